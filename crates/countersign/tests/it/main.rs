//! One test binary: drives this crate as its users would.

mod book;
mod descriptor;
mod forge;
mod gate;
mod gate_journal;
mod lines;
mod message;
mod outbox;
mod peers;
mod process;
mod program;
mod seed;

//! One test binary: drives this crate as its users would.

mod descriptor;
mod lines;
mod message;
mod outbox;
mod process;
mod program;
mod seed;

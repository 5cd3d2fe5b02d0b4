//! One test binary: drives this crate as its users would.

mod peers;
mod program;
mod proxy;
mod reference;
mod structure;

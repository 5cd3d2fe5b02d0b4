//! One test binary: drives this crate as its users would.

mod structure;

//! One test binary: drives this crate as its users would.

mod journal;
mod journal_crash;
mod journal_heads;
mod journal_lock;
mod journal_resume;
mod journal_segments;

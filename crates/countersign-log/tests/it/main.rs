//! One test binary: drives this crate as its users would.
mod canonical;
mod python;

mod data;
mod dossier_cases;
mod formats;
mod golden;
mod live;
mod notes;
mod sample;
mod scale;
mod sets;
mod tamper;
mod trees;

mod journal;
mod journal_crash;
mod journal_heads;
mod journal_lock;
mod journal_resume;
mod journal_segments;

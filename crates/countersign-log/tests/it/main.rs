//! One test binary: drives this crate as its users would.

mod canonical;
mod data;
mod dossier_cases;
mod formats;
mod golden;
mod journal;
mod journal_crash;
mod journal_heads;
mod journal_lock;
mod journal_resume;
mod journal_segments;
mod live;
mod notes;
mod python;
mod sample;
mod scale;
mod sets;
mod tamper;
mod trees;

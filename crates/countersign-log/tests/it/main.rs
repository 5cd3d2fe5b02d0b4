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

//! Formats and verifier of the countersign journal.
//!
//! Everything here is a pure function of its inputs, or plain file work in [`journal`] and [`export`]:
//! there is no async code, no clock, no random source and no network. Time and salts are passed in.
//! The bytes are those of witness-log 0.6.1; `docs/format.md` describes them well enough to write
//! another implementation.

pub mod calls;
pub mod canonical;
pub mod checkpoint;
pub mod commitment;
pub mod dossier;
pub mod export;
pub mod hash;
mod header;
pub mod hex;
pub mod journal;
pub mod json;
pub mod keys;
pub mod leaf;
mod lines;
pub mod note;
mod number;
mod outline;
pub mod python;
mod record;
pub mod report;
pub mod segments;
mod sidecar;
mod sink;
mod string;
pub mod tree;
pub mod verdict;

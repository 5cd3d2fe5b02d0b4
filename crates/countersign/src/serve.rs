//! The client's side: what arrives is sorted, and every request gets its answer.

pub mod audit;
pub mod stdio;

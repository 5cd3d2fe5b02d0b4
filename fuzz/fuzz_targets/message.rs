//! Any octets at all, given to the parser of messages.
//!
//! The one idea: the property is that of the ordinary tests; only the octets come from the fuzzer.
#![no_main]

#[path = "../../crates/countersign/tests/it/message/invariants.rs"]
mod invariants;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| invariants::hold_invariants(&bytes::Bytes::copy_from_slice(octets)));

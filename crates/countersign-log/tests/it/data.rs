//! Where the recorded data is, and how its values are read.

use std::path::PathBuf;

use countersign_log::hash::Hash;
use serde_json::Value;

/// A file or folder of recorded data.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A recorded JSON file.
pub(crate) fn json(name: &str) -> Value {
    let text = std::fs::read(path(name)).expect("recorded data is there");
    serde_json::from_slice(&text).expect("recorded data is JSON")
}

/// A section of the values that the reference gave.
pub(crate) fn vectors(section: &str) -> Value {
    json("log_vectors.json")[section].take()
}

pub(crate) fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

pub(crate) fn hash(value: &Value) -> Hash {
    Hash::from_hex(text(value)).expect("64 hex digits")
}

pub(crate) fn hashes(value: &Value) -> Vec<Hash> {
    list(value).iter().map(hash).collect()
}

/// Octets of hex text of any length.
pub(crate) fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex digits"))
        .collect()
}

/// 32 octets of hex text.
pub(crate) fn seed(value: &Value) -> [u8; 32] {
    octets(text(value)).try_into().expect("32 octets")
}

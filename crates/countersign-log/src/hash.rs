//! SHA-256, and the one type of its output.

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest: a leaf hash, a node, a root, a commitment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// 64 zeros: what a marker leaf carries in place of a commitment.
    pub const ZERO: Self = Self([0; 32]);

    /// SHA-256 of the concatenation of `parts`.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Reads 64 lowercase hex digits.
    ///
    /// # Errors
    /// The wrong length, or where a character is not a lowercase hex digit.
    pub fn from_hex(text: &str) -> Result<Self, crate::hex::HexError> {
        crate::hex::decode_lowercase(text.as_bytes()).map(Self)
    }

    /// 64 lowercase hex digits.
    pub fn to_hex(self) -> String {
        crate::hex::encode(&self.0)
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

//! Where canonical octets go: a buffer, or a hash that never sees them all at once.
//!
//! The one idea: a sink takes pieces, long ones without a copy. It may not fail.

use sha2::{Digest as _, Sha256};

/// Short pieces are gathered up to this before they are hashed, since a call of the hash has a fixed
/// price; more would cost small values its clearing.
const HASH_GATHER_OCTETS: usize = 512;

/// Takes pieces of canonical JSON in order.
pub(crate) trait Sink {
    fn put(&mut self, octets: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, octets: &[u8]) {
        self.extend_from_slice(octets);
    }
}

/// A SHA-256 that gathers short pieces.
pub(crate) struct HashSink {
    hasher: Sha256,
    gathered: [u8; HASH_GATHER_OCTETS],
    /// Octets of `gathered` that were not hashed yet.
    used: usize,
}

impl Sink for HashSink {
    fn put(&mut self, octets: &[u8]) {
        if octets.len() > HASH_GATHER_OCTETS - self.used {
            self.hasher.update(&self.gathered[..self.used]);
            self.used = 0;
            if octets.len() > HASH_GATHER_OCTETS / 4 {
                return self.hasher.update(octets);
            }
        }
        self.gathered[self.used..self.used + octets.len()].copy_from_slice(octets);
        self.used += octets.len();
    }
}

impl HashSink {
    pub(crate) fn new() -> Self {
        Self {
            hasher: Sha256::new(),
            gathered: [0; HASH_GATHER_OCTETS],
            used: 0,
        }
    }

    /// The digest of all pieces. By reference: a copy of the gathered octets would cost small values.
    pub(crate) fn finish(&mut self) -> [u8; 32] {
        self.hasher.update(&self.gathered[..self.used]);
        self.hasher.finalize_reset().into()
    }
}

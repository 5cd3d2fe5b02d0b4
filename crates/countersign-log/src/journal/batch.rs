//! What is staged and not yet written: lines and hashes, in buffers that are used again and again.

use crate::calls::Place;
use crate::commitment::Salt;
use crate::hash::Hash;
use crate::leaf::PlainLeaf;
use crate::sidecar::push_salt;

/// Buffers that one burst made larger than this are given back.
const KEPT_OCTETS_MAX: usize = 4 << 20;

/// The staged part of a journal. Dropping it un-stages: tree and files know nothing of it.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) leaves: Vec<u8>,
    pub(super) salts: Vec<u8>,
    pub(super) calls: Vec<u8>,
    pub(super) hashes: Vec<Hash>,
    pub(super) intents: Vec<Place>,
    pub(super) answered: Vec<Place>,
    /// Of the last staged leaf; 0 if there is none.
    pub(super) last_timestamp_ms: u64,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty() && self.calls.is_empty()
    }

    /// Stages a leaf with its salt.
    pub(super) fn push(&mut self, leaf: &PlainLeaf, salt: &Salt) {
        push_salt(&mut self.salts, leaf.index, salt);
        leaf.push_json(&mut self.leaves);
        self.leaves.push(b'\n');
        self.hashes.push(leaf.hash());
        self.last_timestamp_ms = leaf.timestamp_ms;
    }

    pub(super) fn clear(&mut self) {
        for lines in [&mut self.leaves, &mut self.salts, &mut self.calls] {
            lines.clear();
            lines.shrink_to(KEPT_OCTETS_MAX);
        }
        self.hashes.clear();
        self.intents.clear();
        self.answered.clear();
        self.last_timestamp_ms = 0;
    }
}

//! The Merkle tree of RFC 6962: roots, and proofs that a leaf is in it and that it only grew.
//!
//! [`Frontier`] appends with only the right edge in memory. Proofs need old nodes; they come from
//! [`Nodes`], whoever keeps them.

use crate::hash::Hash;

/// Root of the tree without leaves: SHA-256 of nothing.
pub fn empty_root() -> Hash {
    Hash::of(&[])
}

/// An inner node: `SHA-256(01 ‖ left ‖ right)`.
pub fn node(left: Hash, right: Hash) -> Hash {
    let mut octets = [1; 65];
    octets[1..33].copy_from_slice(&left.0);
    octets[33..].copy_from_slice(&right.0);
    Hash::of(&[&octets])
}

/// The right edge of a growing tree: one complete subtree per set bit of its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// Roots of the complete subtrees, largest first.
    edge: Vec<Hash>,
}

impl Frontier {
    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf hash.
    pub fn push(&mut self, leaf: Hash) {
        self.push_with(leaf, |_, _| ());
    }

    /// Appends a leaf hash and shows every inner node that it completes: level (1 = over two leaves)
    /// and hash, lowest first.
    pub fn push_with(&mut self, leaf: Hash, mut completed: impl FnMut(u32, Hash)) {
        let mut top = leaf;
        for level in 0..self.size.trailing_ones() {
            let left = self
                .edge
                .pop()
                .expect("each set bit of the size has its subtree");
            top = node(left, top);
            completed(level + 1, top);
        }
        self.edge.push(top);
        self.size += 1;
    }

    /// The root over all leaves so far.
    pub fn root(&self) -> Hash {
        let mut edge = self.edge.iter().rev().copied();
        let Some(last) = edge.next() else {
            return empty_root();
        };
        edge.fold(last, |right, left| node(left, right))
    }
}

//! The Merkle tree of RFC 6962: roots, and proofs that a leaf is in it and that it only grew.
//!
//! [`Frontier`] appends with only the right edge in memory. Proofs need old nodes; they come from
//! [`Nodes`], whoever keeps them.

use std::io;

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

/// A tree as it was at some size, written `SIZE:ROOT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// Number of leaves.
    pub size: u64,
    /// Root over them.
    pub root: Hash,
}

impl std::fmt::Display for TreeHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.size, self.root)
    }
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

    /// Size and root.
    pub fn head(&self) -> TreeHead {
        TreeHead {
            size: self.size,
            root: self.root(),
        }
    }
}

/// Whoever keeps the inner nodes of a tree: memory, or a file beside the journal.
pub trait Nodes {
    /// The hash of the complete subtree over the leaves `index << level` up to, not including,
    /// `(index + 1) << level`. Level 0 is the leaf hashes. Only subtrees that lie wholly within
    /// the size that the caller named are asked for.
    ///
    /// # Errors
    /// The node is not there or cannot be read.
    fn node(&self, level: u32, index: u64) -> io::Result<Hash>;
}

/// Every complete subtree of a tree, in memory: twice as many hashes as leaves.
#[derive(Clone, Debug, Default)]
pub struct MemoryNodes {
    levels: Vec<Vec<Hash>>,
    frontier: Frontier,
}

impl MemoryNodes {
    /// Appends a leaf hash.
    pub fn push(&mut self, leaf: Hash) {
        let Self { levels, frontier } = self;
        let mut keep = |level: usize, hash| {
            if levels.len() == level {
                levels.push(Vec::new());
            }
            levels[level].push(hash);
        };
        keep(0, leaf);
        frontier.push_with(leaf, |level, hash| keep(level as usize, hash));
    }

    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.frontier.size()
    }
}

impl Nodes for MemoryNodes {
    fn node(&self, level: u32, index: u64) -> io::Result<Hash> {
        let at = usize::try_from(index).ok();
        self.levels
            .get(level as usize)
            .and_then(|nodes| nodes.get(at?))
            .copied()
            .ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("the tree has no node {index} at level {level}"),
                )
            })
    }
}

/// The root that the tree had at `size`, in O(log n) reads.
///
/// # Errors
/// A node cannot be read.
pub fn root(nodes: &dyn Nodes, size: u64) -> io::Result<Hash> {
    if size == 0 {
        return Ok(empty_root());
    }
    range_root(nodes, 0, size)
}

/// The proof that leaf `index` is in the tree of `size` leaves: RFC 6962 section 2.1.1, innermost
/// sibling first.
///
/// # Errors
/// The index is not below the size, or a node cannot be read.
pub fn inclusion_proof(nodes: &dyn Nodes, index: u64, size: u64) -> io::Result<Vec<Hash>> {
    if index >= size {
        return Err(out_of_range(format!(
            "leaf {index} is not in a tree of {size}"
        )));
    }
    let (mut start, mut end) = (0, size);
    let mut path = Vec::new();
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            path.push(range_root(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(range_root(nodes, start, middle)?);
            start = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// The proof that the tree of `new_size` leaves begins with that of `old_size`: RFC 6962
/// section 2.1.2, deepest node first; empty when the old tree is empty or is the new one.
///
/// # Errors
/// The old size is above the new one, or a node cannot be read.
pub fn consistency_proof(nodes: &dyn Nodes, old_size: u64, new_size: u64) -> io::Result<Vec<Hash>> {
    if old_size > new_size {
        return Err(out_of_range(format!(
            "a tree of {new_size} cannot begin with one of {old_size}"
        )));
    }
    if old_size == 0 || old_size == new_size {
        return Ok(Vec::new());
    }
    let (mut start, mut end) = (0, new_size);
    let mut proof = Vec::new();
    while end != old_size {
        let middle = start + split(end - start);
        if old_size <= middle {
            proof.push(range_root(nodes, middle, end)?);
            end = middle;
        } else {
            proof.push(range_root(nodes, start, middle)?);
            start = middle;
        }
    }
    // A verifier knows the old root; it needs the last subtree only where that is not the old tree.
    if start > 0 {
        proof.push(range_root(nodes, start, end)?);
    }
    proof.reverse();
    Ok(proof)
}

/// Whether `proof` shows that a leaf of hash `leaf` is number `index` of the tree of `size` leaves
/// with `root`: RFC 9162 section 2.1.3.2.
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, proof: &[Hash], root: Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last) = (index, size - 1);
    let mut hash = leaf;
    for &sibling in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node(sibling, hash);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            hash = node(hash, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && hash == root
}

/// Whether `proof` shows that the `new` tree begins with the `old` one: RFC 9162 section 2.1.4.2.
/// Every tree begins with the empty one, which needs, and may have, no proof.
pub fn verify_consistency(old: TreeHead, new: TreeHead, proof: &[Hash]) -> bool {
    if old.size == 0 || old.size >= new.size {
        let same = old.size == new.size && old.root == new.root;
        return proof.is_empty() && (same || (old.size == 0 && new.size > 0));
    }
    // An old tree that is one complete subtree is its own first node.
    let own = old.size.is_power_of_two().then_some(old.root);
    let mut nodes = own.into_iter().chain(proof.iter().copied());
    let Some(first) = nodes.next().filter(|_| !proof.is_empty()) else {
        return false;
    };
    let ones = (old.size - 1).trailing_ones();
    let (mut at, mut last) = ((old.size - 1) >> ones, (new.size - 1) >> ones);
    let (mut old_root, mut new_root) = (first, first);
    for sibling in nodes {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            old_root = node(sibling, old_root);
            new_root = node(sibling, new_root);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            new_root = node(new_root, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && old_root == old.root && new_root == new.root
}

/// Root of the leaves `start..end`, where `start` is where a split of the tree puts a subtree.
fn range_root(nodes: &dyn Nodes, start: u64, end: u64) -> io::Result<Hash> {
    let size = end - start;
    if size.is_power_of_two() {
        let level = size.trailing_zeros();
        return nodes.node(level, start >> level);
    }
    let middle = start + split(size);
    Ok(node(
        range_root(nodes, start, middle)?,
        range_root(nodes, middle, end)?,
    ))
}

/// The largest power of two below `size`, which is at least 2.
fn split(size: u64) -> u64 {
    1 << (u64::BITS - 1 - (size - 1).leading_zeros())
}

fn out_of_range(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

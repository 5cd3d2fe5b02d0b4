//! `X.tree`: the hashes of the tree's nodes, so that a proof needs a few reads and no memory.
//!
//! A cache: everything in it follows from the journal. At a start it is compared with the journal
//! while that is read, and rebuilt from the first difference on. Nothing signed is taken from it
//! unchecked.
//!
//! Layout: 32 octets per node of a complete subtree, in the order in which an append completes them:
//! the leaf's hash, then the inner nodes over it, lowest first. So before leaf `n` stand
//! `2n - popcount(n)` nodes, and the node at `level` over leaves `index << level ..` stands `level`
//! places after the last of those leaves.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::hash::Hash;
use crate::tree::Nodes;

const NODE_OCTETS: u64 = 32;

/// No file holds the nodes of more leaves; keeps the arithmetic of places from overflowing.
const LEAVES_MAX: u64 = 1 << 56;

/// Nodes gather in memory up to this size, 1,024 leaves, before they are written: not per call.
const BATCH_OCTETS: usize = 64 << 10;

/// When the disk refuses them, nodes wait up to this size; then the cache ends until the next start.
const WAITING_OCTETS_MAX: usize = 1 << 20;

/// The node file of one journal.
#[derive(Debug)]
pub(super) struct NodeFile {
    file: File,
    /// Nodes on disk that are known to be right.
    written: u64,
    pending: Vec<u8>,
    /// While a journal is read: what the file says, compared node by node until the first difference.
    compared: Option<BufReader<File>>,
    /// The disk refused more than may wait: nothing is kept or handed out any more.
    given_up: bool,
}

impl NodeFile {
    /// Opens or makes the file, to be compared with a journal from its first leaf on.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
        };
        Ok(Self {
            file: open()?,
            written: 0,
            pending: Vec::new(),
            compared: Some(BufReader::with_capacity(BATCH_OCTETS, open()?)),
            given_up: false,
        })
    }

    /// The next node, in the order of the layout.
    pub(super) fn push(&mut self, node: Hash) {
        if let Some(reader) = &mut self.compared {
            let mut octets = [0; NODE_OCTETS as usize];
            if reader.read_exact(&mut octets).is_ok() && octets == node.0 {
                self.written += 1;
                return;
            }
            self.compared = None;
        }
        if self.given_up {
            return;
        }
        self.pending.extend(node.0);
        if self.pending.len() >= BATCH_OCTETS {
            self.flush();
        }
    }

    /// The journal is read to its end: what the file holds beyond it goes.
    pub(super) fn end_comparison(&mut self) {
        self.compared = None;
        self.flush();
        // A longer file does no harm: its end is overwritten by the nodes to come.
        let _ = self
            .file
            .set_len(self.written * NODE_OCTETS + self.pending.len() as u64);
    }

    /// Writes what has gathered. A refusal is no fault of the journal: the cache is only late.
    pub(super) fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let at = self.written * NODE_OCTETS;
        match self.file.write_all_at(&self.pending, at) {
            Ok(()) => {
                self.written += self.pending.len() as u64 / NODE_OCTETS;
                self.pending.clear();
            }
            Err(_) if self.pending.len() < WAITING_OCTETS_MAX => {}
            Err(_) => {
                self.given_up = true;
                self.pending = Vec::new();
            }
        }
    }
}

impl Nodes for NodeFile {
    fn node(&self, level: u32, index: u64) -> io::Result<Hash> {
        let last_leaf = index
            .checked_add(1)
            .and_then(|next| next.checked_mul(1u64.checked_shl(level)?))
            .filter(|end| *end <= LEAVES_MAX)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?
            - 1;
        let place = nodes_before(last_leaf) + u64::from(level);
        let mut octets = [0; NODE_OCTETS as usize];
        if place < self.written {
            self.file.read_exact_at(&mut octets, place * NODE_OCTETS)?;
        } else {
            let start = ((place - self.written) * NODE_OCTETS) as usize;
            let waiting = self
                .pending
                .get(start..start + octets.len())
                .ok_or_else(|| {
                    io::Error::new(io::ErrorKind::NotFound, "this node is not kept (yet)")
                })?;
            octets.copy_from_slice(waiting);
        }
        Ok(Hash(octets))
    }
}

/// Nodes that stand before leaf `leaf`.
fn nodes_before(leaf: u64) -> u64 {
    2 * leaf - u64::from(leaf.count_ones())
}

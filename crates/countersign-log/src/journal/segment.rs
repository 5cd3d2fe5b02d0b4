//! A segment: one file of the [set](crate::segments) that a long journal is, with its sidecars, open
//! for writing.

use std::path::PathBuf;

use super::batch::Batch;
use super::fault::WriteError;
use super::heads::Heads;
use super::lock::Lock;
use super::nodes::NodeFile;
use super::store::Store;
use crate::tree::{Frontier, TreeHead};

/// When a journal goes on in the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Leaves of a segment.
    pub leaves: u64,
    /// Octets of a segment's journal file.
    pub octets: u64,
}

impl Default for Limits {
    /// A dossier of this many leaves has some 490 MB; the reference reads up to 512 MiB.
    fn default() -> Self {
        Self {
            leaves: 800_000,
            octets: 400_000_000,
        }
    }
}

/// One segment, locked and open for writing.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) leaves: Store,
    pub(super) salts: Store,
    pub(super) calls: Store,
    pub(super) nodes: NodeFile,
    pub(super) heads: Heads,
    pub(super) frontier: Frontier,
    /// A failed batch may still stand behind the good part of a file.
    pub(super) torn: bool,
    /// Last, so that the files are locked until all else is dropped.
    pub(super) lock: Lock,
}

impl Segment {
    pub(super) fn head(&self) -> TreeHead {
        self.frontier.head()
    }

    /// Writes a batch, one `write` for each file, the leaves last: a leaf without its salt can never be
    /// disclosed, and one without its pair looks lost; a salt or a pair without its leaf is dropped at
    /// the next start.
    pub(super) fn commit(&mut self, batch: &Batch) -> Result<(), WriteError> {
        if self.torn {
            self.cut_back()?;
        }
        let files = [
            (&self.salts, &batch.salts),
            (&self.calls, &batch.calls),
            (&self.leaves, &batch.leaves),
        ];
        let failed = files.into_iter().find_map(|(store, octets)| {
            let error = store.write(octets).err()?;
            let path = store.path().to_owned();
            Some(WriteError::Lost { path, error })
        });
        if let Some(error) = failed {
            self.torn = true;
            // If this fails too, the next batch begins with it.
            let _ = self.cut_back();
            return Err(error);
        }
        self.salts.accept(batch.salts.len());
        self.leaves.accept(batch.leaves.len());
        self.calls.accept(batch.calls.len());
        let Self {
            frontier, nodes, ..
        } = self;
        for hash in &batch.hashes {
            nodes.push(*hash);
            frontier.push_with(*hash, |_, node| nodes.push(node));
        }
        Ok(())
    }

    /// Writes the first leaf. The list of open intents must be on disk before it: the leaf says that
    /// the rotation is done, and the earlier segment is then not read again.
    pub(super) fn begin(&mut self, mut batch: Batch) -> Result<(), WriteError> {
        let calls = Batch {
            calls: std::mem::take(&mut batch.calls),
            ..Batch::default()
        };
        self.commit(&calls)?;
        self.calls
            .medium()
            .sync()
            .map_err(|error| WriteError::Lost {
                path: self.calls.path().to_owned(),
                error,
            })?;
        self.commit(&batch)
    }

    /// Removes what a failed batch left behind, from all files or not at all.
    pub(super) fn cut_back(&mut self) -> Result<(), WriteError> {
        for store in [&self.leaves, &self.salts, &self.calls] {
            store.cut_back().map_err(|error| WriteError::Lost {
                path: store.path().to_owned(),
                error,
            })?;
        }
        self.torn = false;
        Ok(())
    }

    /// Whether the path still names the file that is written.
    pub(super) fn is_in_place(&self) -> bool {
        super::lock::is_at(self.leaves.medium().file(), &self.path)
    }
}

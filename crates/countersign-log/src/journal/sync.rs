//! Bringing what was written to the disk, on whatever thread, without holding the journal.

use std::io;
use std::sync::Arc;

use super::store::Medium;
use crate::tree::TreeHead;

/// Which files of a batch must be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The journal itself: enough before a call is forwarded. Its salts may follow with the outcome.
    Intents,
    /// The journal, the salts and the pairs: before an answer is given.
    All,
}

/// The files as they were when [`Journal::sync_target`](super::Journal::sync_target) was called, and
/// what will be on disk once they are synced. Keeps them open, not locked.
#[derive(Debug)]
pub struct SyncTarget {
    pub(super) segment: u32,
    pub(super) head: TreeHead,
    pub(super) leaves: (Arc<Medium>, u64),
    /// Those of the sidecars that have something new.
    pub(super) salts: Option<(Arc<Medium>, u64)>,
    pub(super) calls: Option<(Arc<Medium>, u64)>,
}

impl SyncTarget {
    /// Number of leaves that are on disk after a successful sync.
    pub fn size(&self) -> u64 {
        self.head.size
    }

    /// The files that `scope` needs on disk. They may be synced side by side: they then share the file
    /// system's own commit.
    pub fn parts(&self, scope: SyncScope) -> impl Iterator<Item = SyncPart> {
        let sidecars = match scope {
            SyncScope::Intents => [None, None],
            SyncScope::All => [self.salts.as_ref(), self.calls.as_ref()],
        };
        let leaves = std::iter::once(&self.leaves);
        leaves
            .chain(sidecars.into_iter().flatten())
            .map(|(medium, _)| SyncPart(Arc::clone(medium)))
    }

    /// Syncs all parts, one after the other.
    ///
    /// # Errors
    /// What the system said of the first file that failed. Tell the journal: it must stop.
    pub fn sync(&self, scope: SyncScope) -> io::Result<()> {
        // Every file is tried: what is on disk is as much as can be.
        self.parts(scope)
            .map(|part| part.sync())
            .fold(Ok(()), io::Result::and)
    }
}

/// One file to be synced, on whatever thread.
#[derive(Debug)]
pub struct SyncPart(Arc<Medium>);

impl SyncPart {
    /// `fdatasync`.
    ///
    /// # Errors
    /// What the system said.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

//! Bringing what was written to the disk, on whatever thread, without holding the journal.

use std::io;
use std::sync::Arc;

use super::heads::Head;
use super::store::Medium;

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
    pub(super) head: Head,
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

    /// `fdatasync`s the files, side by side: they then share the file system's own commit.
    ///
    /// # Errors
    /// What the system said of the first file that failed. Tell the journal: it must stop.
    pub fn sync(&self, scope: SyncScope) -> io::Result<()> {
        let sidecars = match scope {
            SyncScope::Intents => [None, None],
            SyncScope::All => [self.salts.as_ref(), self.calls.as_ref()],
        };
        std::thread::scope(|threads| {
            let others = sidecars.map(|sidecar| {
                sidecar.map(|(medium, _)| {
                    (
                        medium,
                        std::thread::Builder::new().spawn_scoped(threads, || medium.sync()),
                    )
                })
            });
            let mut outcome = self.leaves.0.sync();
            for (medium, thread) in others.into_iter().flatten() {
                let synced = match thread {
                    Ok(thread) => thread
                        .join()
                        .unwrap_or_else(|_| Err(io::Error::other("the syncing thread panicked"))),
                    // No thread to be had: one after the other is as good, only slower.
                    Err(_) => medium.sync(),
                };
                outcome = outcome.and(synced);
            }
            outcome
        })
    }
}

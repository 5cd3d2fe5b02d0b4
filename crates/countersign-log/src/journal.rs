//! The journal: a file of leaves that only grows, with its sidecars. Create, append, resume.
//!
//! The bytes are the reference's, so that either program continues the other's journal; what is ours
//! stands in sidecars of its own. One writer: staging gives a leaf its index and hash at once, in
//! memory; [`Journal::commit`] writes everything staged, one `write` for each file. Nothing here
//! reads a clock or makes a random number, and nothing syncs unless it is told to: when to, is the
//! caller's policy. Memory does not grow with the number of leaves.
//!
//! A resume is the normal start: a new journal is an empty file that is resumed.

mod batch;
mod fault;
#[cfg(test)]
mod faulty;
mod folder;
mod heads;
mod kept_heads;
mod ledger;
mod lock;
mod nodes;
mod opening;
mod reserve;
mod resume;
mod rotation;
mod salts;
mod seal;
mod segment;
mod signed_head;
mod start;
mod store;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use fault::{HeadFault, JournalError, WriteError};
pub use folder::{EARLIER_RUNS_MAX, RunHead, earlier_heads, is_folder, run_path};
pub use ledger::OpenIntents;
pub use lock::{LOCK_WAIT, Owner};
pub use opening::{Opened, Opening, Warning};
pub use seal::{JournalOwner, Seal, identity_of};
pub use segment::Limits;
pub use signed_head::SignedHead;
pub use sync::{SyncPart, SyncScope, SyncTarget};

use crate::calls;
pub use crate::calls::Place;
use crate::checkpoint::Checkpoint;
use crate::commitment::{self, Salt};
use crate::hash::Hash;
use crate::keys::{Identity, PublicKey};
use crate::leaf::{Kind, PlainLeaf};
use crate::segments::{newest_segment, segment_path};
use crate::tree::{Frontier, Nodes, TreeHead};
use batch::Batch;
use ledger::OPEN_MAX;
use lock::Lock;
use reserve::Reserve;
use segment::Segment;
use start::Start;
use store::Disk;

/// The sidecars that a writer makes, by what is added to the journal's name.
const SIDECARS: [&str; 5] = ["salts", "calls", "tree", "heads", "reserve"];

/// A journal, locked and open for writing. Dropping it leaves what was committed; [`Self::close`] also
/// syncs and signs.
pub struct Journal {
    identity: Identity,
    unsealed: bool,
    session: PublicKey,
    session_seed: [u8; 32],
    /// Before the segment, so that it is removed while the journal is still locked.
    reserve: Reserve,
    segment: Segment,
    batch: Batch,
    last_timestamp_ms: u64,
    /// Intents of this process that have no result yet; those in flight.
    open: BTreeSet<Place>,
    /// What is on disk.
    synced: Option<TreeHead>,
    key_head: Option<PathBuf>,
    limits: Limits,
    /// Leaves before which no rotation is tried: one has just failed.
    rotate_after: u64,
    rotation_failure: Option<String>,
    stopped: Option<String>,
    disk: Disk,
    base: PathBuf,
    /// The lock on segment 0 while a later one is written.
    base_lock: Option<Lock>,
}

impl std::fmt::Debug for Journal {
    /// Without the seeds, and without what is staged: that has salts in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.segment.path)
            .field("head", &self.segment.head())
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal, making it if there is none.
    ///
    /// # Errors
    /// Why it was refused; it is then as it was, and one that would have been new is not there.
    pub fn open(opening: Opening<'_>) -> Result<(Self, Opened), JournalError> {
        Self::open_on(opening, Disk::Real)
    }

    fn open_on(opening: Opening<'_>, disk: Disk) -> Result<(Self, Opened), JournalError> {
        let base = opening.path.to_owned();
        let base_lock = Lock::take(&base, opening.lock_wait)?;
        let number =
            newest_segment(&base).map_err(JournalError::io("read the folder of", &base))?;
        let path = segment_path(&base, number);
        let (lock, base_lock) = if number == 0 {
            (base_lock, None)
        } else {
            (Lock::take(&path, opening.lock_wait)?, Some(base_lock))
        };
        if let Some(locked) = opening.locked {
            locked();
        }
        let created = lock.created;
        let session = Identity::from_seed(&opening.session_seed).public();
        let started = start::start(
            lock,
            &path,
            opening.seal,
            Start {
                base: &base,
                number,
                session,
                now_ms: opening.now_ms,
                key_head: opening.key_head,
                accept_head: opening.accept_head,
                disk: &disk,
            },
        )?;
        let mut opened = Opened {
            created,
            segment: number,
            leaves: started.segment.frontier.size(),
            session_number: started.session_number,
            dropped_lines: started.dropped_lines,
            open_intents: started.open,
            warnings: started.warnings,
        };
        let mut journal = Self {
            identity: started.identity,
            unsealed: started.unsealed,
            session,
            session_seed: opening.session_seed,
            segment: started.segment,
            batch: Batch::default(),
            last_timestamp_ms: started.last_timestamp_ms,
            open: BTreeSet::new(),
            synced: None,
            key_head: opening.key_head.map(Path::to_owned),
            limits: opening.limits,
            rotate_after: 0,
            rotation_failure: None,
            stopped: None,
            reserve: Reserve::beside(&base),
            disk,
            base,
            base_lock,
        };
        journal.end_rotation(&mut opened, opening.now_ms)?;
        journal.segment.lock.remove = false;
        if opened
            .warnings
            .iter()
            .any(|warning| matches!(warning, Warning::HeadAccepted { .. }))
        {
            journal.sign_accepted(opening.now_ms)?;
        }
        Ok((journal, opened))
    }

    /// The accepted head replaces the one that is not reproduced, or the next start would refuse again.
    fn sign_accepted(&mut self, now_ms: u64) -> Result<(), JournalError> {
        let path = self.segment.path.clone();
        let signed = self.sync().and_then(|()| self.sign(now_ms));
        signed.and_then(|head| head.keep()).map_err(|error| {
            JournalError::io("sign the accepted head of", &path)(io::Error::other(
                error.to_string(),
            ))
        })
    }

    /// Stages a leaf: its place and hash are fixed, nothing is written. Time never runs backwards in a
    /// journal: an earlier `now_ms` counts as that of the leaf before.
    ///
    /// # Panics
    /// `kind` is not memory, intent or result: other leaves have members that this one cannot carry.
    pub fn stage(&mut self, kind: Kind, payload: &[u8], salt: &Salt, now_ms: u64) -> Place {
        assert!(
            matches!(kind, Kind::Memory | Kind::Intent | Kind::Result),
            "only plain leaves can be staged"
        );
        let place = self.next_place();
        let leaf = PlainLeaf {
            kind,
            index: place.index,
            timestamp_ms: now_ms
                .max(self.batch.last_timestamp_ms)
                .max(self.last_timestamp_ms),
            session: self.session.0,
            payload_hash: commitment::commit(payload, salt, place.index),
        };
        self.batch.push(&leaf, salt);
        if kind == Kind::Intent {
            self.batch.intents.push(place);
        }
        place
    }

    /// Says which intent a staged result answers. Called right after the result was staged.
    pub fn stage_pair(&mut self, result: Place, intent: Place) {
        calls::push_pair(
            &mut self.batch.calls,
            self.segment.number,
            result.index,
            intent,
        );
        self.batch.answered.push(intent);
    }

    /// Stages the `countersign.lost v1` leaf for what earlier runs left open. Must be the first leaf
    /// that a session stages: it closes everything that was open before it.
    pub fn stage_lost(&mut self, lost: &OpenIntents, salt: &Salt, now_ms: u64) -> Place {
        let payload = lost.payload(self.segment.number);
        let place = self.stage(Kind::Memory, &payload, salt, now_ms);
        calls::push_lost(&mut self.batch.calls, place.index, &payload);
        place
    }

    /// Where the next staged leaf will stand.
    pub fn next_place(&self) -> Place {
        Place {
            segment: self.segment.number,
            index: self.segment.frontier.size() + self.batch.hashes.len() as u64,
        }
    }

    /// Writes everything staged: all of it is then in the journal, or nothing is and nothing is
    /// staged. Afterwards the journal may have gone on in its next segment.
    ///
    /// # Errors
    /// [`WriteError::Lost`]: stage again what is owed and try again. [`WriteError::Stopped`]: never again.
    pub fn commit(&mut self) -> Result<(), WriteError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let written = self
            .check_running()
            .and_then(|()| self.segment.commit(&self.batch));
        if written.is_ok() {
            self.take_note();
        }
        self.batch.clear();
        written?;
        let size = self.segment.frontier.size();
        let full = size >= self.limits.leaves || self.segment.leaves.good() >= self.limits.octets;
        let due = full && size >= self.rotate_after;
        if due {
            self.rotate_or_go_on();
        }
        Ok(())
    }

    /// Drops everything staged.
    pub fn unstage(&mut self) {
        self.batch.clear();
    }

    fn take_note(&mut self) {
        self.last_timestamp_ms = self.last_timestamp_ms.max(self.batch.last_timestamp_ms);
        for intent in &self.batch.intents {
            if self.open.len() < OPEN_MAX {
                self.open.insert(*intent);
            }
        }
        for intent in &self.batch.answered {
            self.open.remove(intent);
        }
    }

    /// After a lost batch: cuts the files back, and gives the reserve up if the disk is full. While
    /// [`Self::reserve_is_kept`] is then false, only what is owed should be written.
    ///
    /// # Errors
    /// The files cannot be cut back (yet), or the journal has stopped.
    pub fn recover(&mut self, after: &WriteError) -> Result<(), WriteError> {
        self.check_running()?;
        if after.is_full() {
            self.reserve.give_up();
        }
        self.segment.cut_back()
    }

    /// Whether there is room left for what is owed when the disk is full.
    pub fn reserve_is_kept(&self) -> bool {
        self.reserve.is_kept()
    }

    /// Takes the reserve again, if it is not kept: that writes 1 MiB.
    ///
    /// # Errors
    /// There is no room for it, or it cannot be made.
    pub fn keep_reserve(&mut self) -> io::Result<()> {
        self.reserve.keep()
    }

    /// What to sync now, so that another thread can do it.
    ///
    /// # Errors
    /// The journal's file was unlinked or replaced, or the journal has stopped: it stops for good.
    pub fn sync_target(&mut self) -> Result<SyncTarget, WriteError> {
        self.check_place()?;
        let of = |store: &store::Store| (Arc::clone(store.medium()), store.good());
        let segment = &self.segment;
        Ok(SyncTarget {
            segment: segment.number,
            head: segment.head(),
            leaves: of(&segment.leaves),
            salts: segment.salts.is_unsynced().then(|| of(&segment.salts)),
            calls: segment.calls.is_unsynced().then(|| of(&segment.calls)),
        })
    }

    /// Takes note of what became of a sync. After a failed one nobody knows what is on disk, and the
    /// system may say it once only: the journal stops for good.
    ///
    /// # Errors
    /// The sync failed.
    pub fn synced(
        &mut self,
        target: &SyncTarget,
        scope: SyncScope,
        outcome: io::Result<()>,
    ) -> Result<(), WriteError> {
        if let Err(error) = outcome {
            return Err(self.stop(format!(
                "syncing {} failed: {error}",
                self.segment.path.display()
            )));
        }
        if target.segment != self.segment.number {
            // A rotation synced that segment before it left it.
            return Ok(());
        }
        self.segment.leaves.note_synced(target.leaves.1);
        if scope == SyncScope::All {
            for (store, synced) in [
                (&mut self.segment.salts, &target.salts),
                (&mut self.segment.calls, &target.calls),
            ] {
                if let Some((_, octets)) = synced {
                    store.note_synced(*octets);
                }
            }
        }
        if self
            .synced
            .is_none_or(|synced| synced.size <= target.head.size)
        {
            self.synced = Some(target.head);
        }
        Ok(())
    }

    /// Syncs everything here and now.
    ///
    /// # Errors
    /// As [`Self::sync_target`] and [`Self::synced`].
    pub fn sync(&mut self) -> Result<(), WriteError> {
        let target = self.sync_target()?;
        let outcome = target.sync(SyncScope::All);
        self.synced(&target, SyncScope::All, outcome)
    }

    /// Signs the newest head that is on disk, if none has been signed over it: at most once a second
    /// while leaves come, at export, at close. [`SignedHead::keep`] follows, without any lock.
    ///
    /// # Errors
    /// The head cannot be written, or the journal has stopped.
    pub fn sign_head(&mut self, now_ms: u64) -> Result<Option<SignedHead>, WriteError> {
        self.check_place()?;
        let newest = self.segment.heads.newest;
        match self.synced {
            Some(synced) if Some(synced) != newest && synced.size > 0 => {
                self.sign(now_ms).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn sign(&mut self, now_ms: u64) -> Result<SignedHead, WriteError> {
        let head = self.synced.unwrap_or_else(|| self.segment.head());
        self.segment.nodes.flush();
        let (note, heads) = self
            .segment
            .heads
            .sign(&self.identity, head, now_ms)
            .map_err(|error| WriteError::Lost {
                path: self.segment.heads.path().to_owned(),
                error,
            })?;
        Ok(SignedHead {
            checkpoint: Checkpoint::sign(&self.identity, head.size, head.root, now_ms),
            note,
            segment: self.segment.number,
            copy: self.key_head.clone(),
            heads,
        })
    }

    /// Leaves that are written, in this segment.
    pub fn size(&self) -> u64 {
        self.segment.frontier.size()
    }

    /// Root over the leaves that are written.
    pub fn root(&self) -> Hash {
        self.segment.frontier.root()
    }

    /// The right edge of the tree over the leaves that are written.
    pub fn frontier(&self) -> &Frontier {
        &self.segment.frontier
    }

    /// Size and root of what is written.
    pub fn head(&self) -> TreeHead {
        self.segment.head()
    }

    /// Size and root of what is known to be on disk.
    pub fn synced_head(&self) -> Option<TreeHead> {
        self.synced
    }

    /// The identity that signs.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The key of this session.
    pub fn session(&self) -> PublicKey {
        self.session
    }

    /// The file that is written now, one segment of the set.
    pub fn path(&self) -> &Path {
        &self.segment.path
    }

    /// Number of the segment that is written now.
    pub fn segment(&self) -> u32 {
        self.segment.number
    }

    /// Why the last try to go on in the next segment failed, if it did. Writing goes on in this one.
    pub fn rotation_failure(&self) -> Option<&str> {
        self.rotation_failure.as_deref()
    }

    /// Syncs, signs the last head, keeps its copy and gives the journal up. What was staged is dropped.
    ///
    /// # Errors
    /// The journal is closed all the same, as after a crash.
    pub fn close(mut self, now_ms: u64) -> Result<Option<SignedHead>, WriteError> {
        self.sync()?;
        self.segment.nodes.flush();
        let signed = self.sign_head(now_ms)?;
        if let Some(head) = &signed {
            head.keep()?;
        }
        Ok(signed)
    }

    /// Gives the journal up. One that this process made and that has no leaf is removed with its
    /// sidecars: a start that failed elsewhere leaves nothing behind.
    pub fn discard(mut self) {
        let lock = &mut self.segment.lock;
        lock.remove = lock.created && self.segment.frontier.size() == 0;
    }

    fn check_running(&self) -> Result<(), WriteError> {
        match &self.stopped {
            None => Ok(()),
            Some(why) => Err(WriteError::Stopped { why: why.clone() }),
        }
    }

    fn check_place(&mut self) -> Result<(), WriteError> {
        self.check_running()?;
        if self.segment.is_in_place() {
            return Ok(());
        }
        let why = format!(
            "{} was removed or replaced while it was written",
            self.segment.path.display()
        );
        Err(self.stop(why))
    }

    fn stop(&mut self, why: String) -> WriteError {
        let why = self.stopped.get_or_insert(why).clone();
        WriteError::Stopped { why }
    }
}

/// The nodes over the written leaves of this segment, each in one read.
impl Nodes for Journal {
    fn node(&self, level: u32, index: u64) -> io::Result<Hash> {
        self.segment.nodes.node(level, index)
    }
}

//! Going on in the next segment, between two batches.
//!
//! A rotation that fails at any point leaves the journal in the segment it has: nothing is lost by
//! being late. One that a crash cut off is ended at the next start.

use std::fs::File;
use std::io;
use std::time::Duration;

use super::batch::Batch;
use super::fault::JournalError;
use super::ledger::Ledger;
use super::lock::Lock;
use super::opening::Opened;
use super::seal::Seal;
use super::segment::Segment;
use super::start::{self, Start, Started};
use super::{Journal, resume};
use crate::calls::{self, Place};
use crate::commitment;
use crate::hash::Hash;
use crate::keys::Identity;
use crate::leaf::{Kind, PlainLeaf};
use crate::segments::{SEGMENT_MAX, segment_path, segment_payload};
use crate::tree::TreeHead;

/// After a rotation that failed, this many more leaves are written before it is tried again.
const ROTATE_AGAIN_AFTER: u64 = 1_000;

impl Journal {
    /// A crash between the making of a segment and its first leaf is made good.
    pub(super) fn end_rotation(
        &mut self,
        opened: &mut Opened,
        now_ms: u64,
    ) -> Result<(), JournalError> {
        let number = self.segment.number;
        if number == 0 || self.segment.frontier.size() > 0 {
            return Ok(());
        }
        let path = segment_path(&self.base, number - 1);
        let identity = self.identity.public();
        let file = File::open(&path).map_err(JournalError::io("open", &path))?;
        let ledger = Ledger::open(&path, number - 1)?;
        let replay = resume::replay(Some(&file), &path, identity, ledger, None, Vec::new())?;
        let previous = replay.frontier.head();
        let open = replay.calls.open;
        let batch = self.segment_batch(number, previous, &open.places, now_ms);
        self.last_timestamp_ms = batch.last_timestamp_ms;
        self.segment.begin(batch).map_err(|error| {
            JournalError::io("write", &self.segment.path)(io::Error::other(error.to_string()))
        })?;
        opened.open_intents = open;
        opened.leaves = self.segment.frontier.size();
        Ok(())
    }

    pub(super) fn rotate_or_go_on(&mut self) {
        match self.rotate() {
            Ok(()) => {
                self.rotate_after = 0;
                self.rotation_failure = None;
            }
            Err(why) => {
                self.rotate_after = self.segment.frontier.size() + ROTATE_AGAIN_AFTER;
                self.rotation_failure = Some(why);
            }
        }
    }

    /// Goes on in the next segment: the old one synced and signed, the new one begun, then changed over.
    fn rotate(&mut self) -> Result<(), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let now_ms = self.last_timestamp_ms;
        self.sync().map_err(|error| text(&error))?;
        if let Some(head) = self.sign_head(now_ms).map_err(|error| text(&error))? {
            head.keep().map_err(|error| text(&error))?;
        }
        let previous = self.segment.head();
        let number = self.segment.number + 1;
        if number > SEGMENT_MAX {
            return Err(format!(
                "there are {SEGMENT_MAX} segments already; begin a new journal"
            ));
        }
        let mut next = self.next_segment(number).map_err(|error| text(&error))?;
        let carried: Vec<_> = self.open.iter().copied().collect();
        let batch = self.segment_batch(number, previous, &carried, now_ms);
        next.begin(batch).map_err(|error| text(&error))?;
        next.lock.remove = false;
        let old = std::mem::replace(&mut self.segment, next);
        if old.number == 0 {
            self.base_lock = Some(old.lock);
        }
        self.synced = None;
        Ok(())
    }

    fn next_segment(&self, number: u32) -> Result<Segment, JournalError> {
        let path = segment_path(&self.base, number);
        let lock = Lock::take(&path, Duration::ZERO)?;
        let seed = self.identity.seed();
        let seal = if self.unsealed {
            Seal::Unsealed { seed }
        } else {
            Seal::Sealed(Identity::from_seed(&seed))
        };
        let start = Start {
            base: &self.base,
            number,
            session: self.session,
            now_ms: self.last_timestamp_ms,
            key_head: None,
            accept_head: None,
            disk: &self.disk,
        };
        let Started { segment, .. } = start::start(lock, &path, seal, start)?;
        Ok(segment)
    }

    /// The first leaf of a segment, and the intents that are open across the change.
    fn segment_batch(&self, number: u32, previous: TreeHead, open: &[Place], now_ms: u64) -> Batch {
        let payload = segment_payload(number, previous);
        // Nobody else has the session's seed, so what is derived from it is as secret as a random salt.
        let salt = Hash::of(&[
            b"countersign segment salt",
            &self.session_seed,
            &number.to_be_bytes(),
        ])
        .0;
        let leaf = PlainLeaf {
            kind: Kind::Memory,
            index: 0,
            timestamp_ms: now_ms.max(self.last_timestamp_ms),
            session: self.session.0,
            payload_hash: commitment::commit(&payload, &salt, 0),
        };
        let mut batch = Batch::default();
        batch.push(&leaf, &salt);
        for intent in open {
            calls::push_carried(&mut batch.calls, 0, *intent);
        }
        batch
    }
}

//! The journal behind the lock: staging, batches, and what is owed after a failed write.

use std::sync::Arc;

use countersign_log::canonical::CanonicalDigest;
use countersign_log::checkpoint::Checkpoint;
use countersign_log::commitment::Salt;
use countersign_log::hash::Hash;
use countersign_log::journal::{Journal, OpenIntents, Place, SyncScope, SyncTarget, WriteError};
use countersign_log::leaf::Kind;
use tokio::sync::SetOnce;

use super::Fsync;
use super::payload::{IntentText, Outcome, Server};
use crate::clock;
use crate::stderr::note;

/// Leaves that are written together, and who waits for them.
#[derive(Debug, Default)]
pub(super) struct Batch {
    done: SetOnce<Result<(), String>>,
}

impl Batch {
    pub(super) async fn done(&self) -> Result<(), String> {
        self.done.wait().await.clone()
    }

    pub(super) fn end(&self, outcome: Result<(), String>) {
        // A batch ends once: whoever ends it has taken it out of the ledger.
        let _ = self.done.set(outcome);
    }
}

/// How whoever staged a leaf goes on.
pub(super) enum Ticket {
    /// It is written.
    Done,
    /// Someone else writes it.
    Wait(Arc<Batch>),
    /// Let others stage theirs, then write.
    Lead(Arc<Batch>),
}

/// A leaf that has its index but may not be written yet.
pub(super) struct Staged {
    pub(super) place: Place,
    pub(super) ticket: Ticket,
}

/// Where the journal stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The file that is being written.
    pub path: std::path::PathBuf,
    /// Leaves in it.
    pub leaf_count: u64,
    /// Root over them.
    pub root: Hash,
    /// Hex of the identity.
    pub identity: String,
    /// Outcomes that this process has recorded.
    pub outcomes: u64,
}

/// A signed head and the file that it covers.
#[derive(Clone, Debug)]
pub struct Head {
    /// The journal file.
    pub path: std::path::PathBuf,
    /// Size, root and signature.
    pub checkpoint: Checkpoint,
}

/// Written leaves that are to be forced to the disk.
pub(super) struct Unsynced {
    pub(super) target: SyncTarget,
    pub(super) scope: SyncScope,
    /// Who goes on only then.
    pub(super) waiting: Vec<Arc<Batch>>,
}

enum State {
    Opening,
    Open(Box<Journal>),
    Closed,
}

/// An outcome whose client was told that it could not be written: it will say what the client got.
pub(super) struct Owed {
    pub(super) intent: Place,
    pub(super) tool: Box<[u8]>,
    pub(super) digest: CanonicalDigest,
    pub(super) is_error: bool,
}

/// Leaves of each kind.
#[derive(Default)]
struct Counts {
    intents: u64,
    outcomes: u64,
}

pub(super) struct Ledger {
    server: Arc<Server>,
    fsync: Fsync,
    state: State,
    salts: Salts,
    /// The batch that is being staged, if a leaf is.
    batch: Option<Arc<Batch>>,
    /// Whether someone has undertaken to write it.
    led: bool,
    /// How many hold back the writing.
    holds: u32,
    /// Intents without outcome. Bounded by what clients may have in flight.
    open: u64,
    outcomes: u64,
    /// What of both is only staged: a failed write takes it back.
    staged: Counts,
    /// Bounded by what was in flight when the journal failed: nothing new is admitted since.
    owed: Vec<Owed>,
    /// The last write failed, and nothing was staged since.
    failed: Option<WriteError>,
    /// Whether that has been told.
    failing: bool,
    /// Written batches that wait for the disk (`fsync: always`).
    unsynced: Vec<Arc<Batch>>,
    unsynced_outcomes: bool,
    /// Leaves were written since the last sync.
    dirty: bool,
    /// Whether it has been told that the journal could not go on in a new segment.
    rotation_told: bool,
}

impl Ledger {
    pub(super) fn new(server: Arc<Server>, fsync: Fsync) -> Self {
        Self {
            server,
            fsync,
            state: State::Opening,
            salts: Salts::default(),
            batch: None,
            led: false,
            holds: 0,
            open: 0,
            outcomes: 0,
            staged: Counts::default(),
            owed: Vec::new(),
            failed: None,
            failing: false,
            unsynced: Vec::new(),
            unsynced_outcomes: false,
            dirty: false,
            rotation_told: false,
        }
    }

    pub(super) fn open(&mut self, journal: Journal, lost: &OpenIntents) -> Result<(), String> {
        self.state = State::Open(Box::new(journal));
        if lost.is_empty() {
            return Ok(());
        }
        self.salts.stock()?;
        let salt = self.salts.next();
        self.journal()?.stage_lost(lost, &salt, clock::now_ms());
        self.commit_now()
    }

    pub(super) fn stage_intent(&mut self, text: &IntentText) -> Result<Staged, String> {
        self.ready()?;
        self.room()?;
        let place = self.put_intent(text)?;
        self.open += 1;
        self.staged.intents += 1;
        self.ticket(place)
    }

    /// `text` is told the segment in which the result will stand.
    pub(super) fn stage_result(
        &mut self,
        intent: Place,
        text: impl FnOnce(u32) -> Vec<u8>,
    ) -> Result<Staged, String> {
        self.open = self.open.saturating_sub(1);
        self.ready()?;
        let place = self.put_result(intent, text)?;
        self.ticket(place)
    }

    /// `result` is told where the intent stands.
    pub(super) fn stage_whole(
        &mut self,
        text: &IntentText,
        result: impl FnOnce(Place) -> Vec<u8>,
    ) -> Result<Staged, String> {
        self.ready()?;
        self.room()?;
        let intent = self.put_intent(text)?;
        let place = self.put_result(intent, |_| result(intent))?;
        self.ticket(place)
    }

    /// An outcome that could not be written is written first when that is possible again.
    pub(super) fn owe(&mut self, owed: Owed) {
        self.owed.push(owed);
    }

    pub(super) fn hold(&mut self) {
        self.holds += 1;
    }

    pub(super) fn release(&mut self) {
        self.holds -= 1;
        if self.holds == 0 {
            self.commit();
        }
    }

    /// Writes the staged batch; its members learn how that went.
    pub(super) fn commit(&mut self) {
        self.led = false;
        let Some(batch) = self.batch.take() else {
            return;
        };
        match self.commit_now() {
            Ok(()) if self.fsync == Fsync::Always => self.unsynced.push(batch),
            outcome => batch.end(outcome),
        }
    }

    pub(super) fn standing(&mut self) -> Result<Standing, String> {
        let outcomes = self.outcomes;
        let journal = self.journal()?;
        Ok(Standing {
            path: journal.path().to_owned(),
            leaf_count: journal.size(),
            root: journal.root(),
            identity: journal.identity().public().to_string(),
            outcomes,
        })
    }

    /// What is to be synced now, if anything is: the files, how much of them, and who waits.
    pub(super) fn take_unsynced(&mut self) -> Option<Unsynced> {
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        let whole = std::mem::take(&mut self.unsynced_outcomes) || self.fsync != Fsync::Always;
        let waiting = std::mem::take(&mut self.unsynced);
        match self
            .journal()
            .and_then(|journal| journal.sync_target().map_err(|error| error.to_string()))
        {
            Ok(target) => Some(Unsynced {
                target,
                scope: if whole {
                    SyncScope::All
                } else {
                    SyncScope::Intents
                },
                waiting,
            }),
            Err(why) => {
                note!("{why}");
                waiting.iter().for_each(|batch| batch.end(Err(why.clone())));
                None
            }
        }
    }

    /// The journal, to sign a head or to be told of a sync.
    pub(super) fn journal(&mut self) -> Result<&mut Journal, String> {
        match &mut self.state {
            State::Open(journal) => Ok(journal),
            State::Opening => Err("the journal is not open yet".into()),
            State::Closed => Err("the journal is closed".into()),
        }
    }

    pub(super) fn close(&mut self) -> Result<(), String> {
        self.commit();
        let owed = if self.owed.is_empty() {
            Ok(())
        } else {
            self.ready()
        };
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(journal) => {
                let closed = journal
                    .close(clock::now_ms())
                    .map(|_head| ())
                    .map_err(|error| error.to_string());
                self.unsynced
                    .drain(..)
                    .for_each(|batch| batch.end(closed.clone()));
                owed.and(closed)
            }
            State::Opening | State::Closed => owed,
        }
    }

    pub(super) fn discard(&mut self) {
        if let State::Open(journal) = std::mem::replace(&mut self.state, State::Closed) {
            journal.discard();
        }
    }

    /// Makes sure that the leaves of a call can be staged: after a failed write, what is owed goes first.
    fn ready(&mut self) -> Result<(), String> {
        if let Some(failed) = self.failed.take() {
            let recovered = self
                .journal()?
                .recover(&failed)
                .map_err(|error| error.to_string());
            if recovered.is_err() {
                self.failed = Some(failed);
            }
            recovered?;
        }
        if self.owed.is_empty() {
            return self.salts.stock();
        }
        // What others have staged meanwhile is written first: one batch, one outcome for all in it.
        self.commit();
        let owed = std::mem::take(&mut self.owed);
        let server = Arc::clone(&self.server);
        let staged = owed.iter().try_for_each(|owed| {
            let outcome = Outcome {
                tool: &owed.tool,
                digest: owed.digest,
                is_error: owed.is_error,
            };
            self.salts.stock()?;
            self.put_result(owed.intent, |segment| {
                server.result(&outcome, owed.intent, segment)
            })
            .map(|_| ())
        });
        staged
            .and_then(|()| self.commit_now())
            .inspect_err(|_| self.owed = owed)?;
        self.salts.stock()
    }

    /// Without room in reserve no call is admitted: on a full disk, what room there is belongs to the
    /// outcomes that are owed.
    fn room(&mut self) -> Result<(), String> {
        match &mut self.state {
            State::Open(journal) if !journal.reserve_is_kept() => journal
                .keep_reserve()
                .map_err(|error| format!("no room can be kept for the outcomes of calls: {error}")),
            _ => Ok(()),
        }
    }

    fn put_intent(&mut self, text: &IntentText) -> Result<Place, String> {
        let place = self.stage(Kind::Intent, &text.payload)?;
        if let Some(exact) = &text.exact {
            self.stage(Kind::Memory, &exact.payload(place.index))?;
        }
        Ok(place)
    }

    fn put_result(
        &mut self,
        intent: Place,
        text: impl FnOnce(u32) -> Vec<u8>,
    ) -> Result<Place, String> {
        let segment = self.journal()?.next_place().segment;
        let place = self.stage(Kind::Result, &text(segment))?;
        self.journal()?.stage_pair(place, intent);
        self.outcomes += 1;
        self.staged.outcomes += 1;
        self.unsynced_outcomes = true;
        Ok(place)
    }

    fn stage(&mut self, kind: Kind, payload: &[u8]) -> Result<Place, String> {
        let salt = self.salts.next();
        Ok(self.journal()?.stage(kind, payload, &salt, clock::now_ms()))
    }

    /// Writes at once when nobody else can be about to stage; else it is put off a moment.
    fn ticket(&mut self, place: Place) -> Result<Staged, String> {
        if self.holds == 0 && self.open <= 1 && self.batch.is_none() && self.fsync != Fsync::Always
        {
            self.commit_now()?;
            return Ok(Staged {
                place,
                ticket: Ticket::Done,
            });
        }
        let batch = Arc::clone(self.batch.get_or_insert_default());
        let lead = self.holds == 0 && !std::mem::replace(&mut self.led, true);
        Ok(Staged {
            place,
            ticket: if lead {
                Ticket::Lead(batch)
            } else {
                Ticket::Wait(batch)
            },
        })
    }

    fn commit_now(&mut self) -> Result<(), String> {
        let outcome = self.journal()?.commit();
        let staged = std::mem::take(&mut self.staged);
        self.dirty |= outcome.is_ok();
        let was_failing = std::mem::replace(&mut self.failing, outcome.is_err());
        match outcome {
            Ok(()) => {
                if was_failing {
                    note!("the journal can be written again");
                }
                self.tell_of_rotation();
                Ok(())
            }
            Err(error) => {
                self.open = self.open.saturating_sub(staged.intents);
                self.outcomes = self.outcomes.saturating_sub(staged.outcomes);
                let why = error.to_string();
                if !was_failing {
                    note!("the journal cannot be written; calls are refused until it can: {why}");
                }
                self.failed = Some(error);
                Err(why)
            }
        }
    }
}

impl Ledger {
    /// Says once that the journal grows past its bounds, because no new segment could be made.
    fn tell_of_rotation(&mut self) {
        let State::Open(journal) = &self.state else {
            return;
        };
        let failure = journal.rotation_failure();
        let told = std::mem::replace(&mut self.rotation_told, failure.is_some());
        if let (false, Some(why)) = (told, failure) {
            note!("the journal goes on in this file, as no new segment could be made: {why}");
        }
    }
}

/// Random octets, fetched for many salts at once: a system call each would cost as much as the leaf's write.
struct Salts {
    pool: [u8; Self::POOL_OCTETS],
    left: usize,
}

impl Default for Salts {
    fn default() -> Self {
        Self {
            pool: [0; Self::POOL_OCTETS],
            left: 0,
        }
    }
}

impl Salts {
    /// 64 salts, a few dozen calls.
    const POOL_OCTETS: usize = 2048;

    /// What one call stages at most: an intent, its exact octets, a result.
    const AT_ONCE: usize = 3;

    /// Makes sure of salts for one call, so that nothing can fail between its leaves.
    fn stock(&mut self) -> Result<(), String> {
        if self.left < Self::AT_ONCE * size_of::<Salt>() {
            getrandom::fill(&mut self.pool)
                .map_err(|error| format!("no random octets for salts: {error}"))?;
            self.left = self.pool.len();
        }
        Ok(())
    }

    fn next(&mut self) -> Salt {
        let mut salt = Salt::default();
        let at = self
            .left
            .checked_sub(salt.len())
            .expect("every call stocks up first");
        salt.copy_from_slice(&self.pool[at..self.left]);
        // A salt is a secret of its leaf: it does not stay here.
        self.pool[at..self.left].fill(0);
        self.left = at;
        salt
    }
}

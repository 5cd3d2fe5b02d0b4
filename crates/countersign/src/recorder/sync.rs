//! The thread that waits for the disk: it syncs what was written, tells who waited, and signs heads.
//!
//! One sync serves every batch written before it began. A head is signed at most once a second, and
//! only over leaves that are on the disk.

use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use countersign_log::checkpoint::Checkpoint;
use countersign_log::journal::{Journal, SyncPart, SyncScope};

use super::ledger::{Head, Unsynced};
use super::{Fsync, Shared};
use crate::clock;
use crate::stderr::note;

/// How much a power cut may take in `fsync: interval`, and how often a head is signed at the most.
const INTERVAL: Duration = Duration::from_secs(1);

/// Wakes the thread.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<BellState>,
    rung: Condvar,
}

#[derive(Default)]
struct BellState {
    ringing: bool,
    stopped: bool,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Bell {
    pub(super) fn ring_if(&self, ring: bool) {
        if ring {
            self.state
                .lock()
                .expect("no code that holds the bell panics")
                .ringing = true;
            self.rung.notify_one();
        }
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        let thread = {
            let mut state = self
                .state
                .lock()
                .expect("no code that holds the bell panics");
            state.stopped = true;
            state.thread.take()
        };
        self.rung.notify_one();
        if let Some(thread) = thread {
            // Its panic would have been reported by itself; the journal is closed either way.
            let _ = thread.join();
        }
    }

    /// Waits for a ring, at most until `due`. `false`: it is over.
    fn wait(&self, due: Instant) -> bool {
        let mut state = self
            .state
            .lock()
            .expect("no code that holds the bell panics");
        while !state.ringing && !state.stopped {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .rung
                .wait_timeout(state, left)
                .expect("no code that holds the bell panics")
                .0;
        }
        state.ringing = false;
        !state.stopped
    }
}

/// Starts the thread.
///
/// # Errors
/// There is none to be had: then nothing would ever be synced.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
    let for_thread = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("countersign-sync".into())
        .spawn(move || run(&for_thread))?;
    let mut bell = shared
        .syncer
        .state
        .lock()
        .expect("no code that holds the bell panics");
    bell.thread = Some(thread);
    Ok(())
}

fn run(shared: &Shared) {
    let helpers = [Helper::start(), Helper::start()];
    let mut head_due = Instant::now() + INTERVAL;
    let mut unsigned = false;
    while shared.syncer.wait(head_due) {
        let due = Instant::now() >= head_due;
        if due || shared.fsync == Fsync::Always {
            unsigned |= sync(shared, &helpers);
        }
        if !due {
            continue;
        }
        head_due = Instant::now() + INTERVAL;
        if std::mem::take(&mut unsigned)
            && let Err(why) = sign(shared)
        {
            note!("no head was signed: {why}");
        }
    }
}

/// Syncs what was written; whether there was anything.
fn sync(shared: &Shared, helpers: &[Option<Helper>]) -> bool {
    let taken = shared.ledger().take_unsynced();
    let Some(Unsynced {
        target,
        scope,
        waiting,
    }) = taken
    else {
        return false;
    };
    let synced = side_by_side(target.parts(scope), helpers);
    let outcome = shared.ledger().journal().and_then(|journal| {
        journal
            .synced(&target, scope, synced)
            .map_err(|error| error.to_string())
    });
    if let Err(why) = &outcome {
        note!("the journal takes no more entries: {why}");
    }
    for batch in waiting {
        batch.end(outcome.clone());
    }
    true
}

/// A thread that syncs one file beside another. It lives as long as the syncing thread, because making a
/// thread for each sync costs as much as the sync.
struct Helper {
    parts: mpsc::SyncSender<SyncPart>,
    outcomes: mpsc::Receiver<io::Result<()>>,
}

impl Helper {
    fn start() -> Option<Self> {
        // One part is under way at a time.
        let (parts, inbox) = mpsc::sync_channel::<SyncPart>(1);
        let (outbox, outcomes) = mpsc::sync_channel(1);
        let work = move || {
            for part in inbox {
                if outbox.send(part.sync()).is_err() {
                    break;
                }
            }
        };
        // Without it the files are synced one after the other: as good, only slower.
        std::thread::Builder::new()
            .name("countersign-sync".into())
            .spawn(work)
            .ok()?;
        Some(Self { parts, outcomes })
    }
}

fn side_by_side(
    mut parts: impl Iterator<Item = SyncPart>,
    helpers: &[Option<Helper>],
) -> io::Result<()> {
    let first = parts.next();
    let mut busy = Vec::with_capacity(helpers.len());
    let mut outcome = Ok(());
    let mut helpers = helpers.iter().flatten();
    for part in parts {
        let Some(helper) = helpers.next() else {
            outcome = outcome.and(part.sync());
            continue;
        };
        match helper.parts.send(part) {
            Ok(()) => busy.push(helper),
            Err(_) => outcome = outcome.and(Err(gone())),
        }
    }
    outcome = outcome.and(first.map_or(Ok(()), |part| part.sync()));
    for helper in busy {
        outcome = outcome.and(helper.outcomes.recv().unwrap_or_else(|_| Err(gone())));
    }
    outcome
}

fn gone() -> io::Error {
    io::Error::other("a syncing thread has ended")
}

/// Forces all to the disk and signs the head over it.
pub(super) fn sign_head(shared: &Shared) -> Result<Head, String> {
    let target = {
        let mut ledger = shared.ledger();
        ledger.commit();
        ledger
            .journal()?
            .sync_target()
            .map_err(|error| error.to_string())?
    };
    let synced = target.sync(SyncScope::All);
    let noted = |ledger: &mut Journal| ledger.synced(&target, SyncScope::All, synced);
    shared
        .ledger()
        .journal()
        .and_then(|journal| noted(journal).map_err(|error| error.to_string()))?;
    sign(shared)
}

/// Signs the newest head that is on the disk, and keeps its copy beside the key.
fn sign(shared: &Shared) -> Result<Head, String> {
    let (head, signed) = {
        let mut ledger = shared.ledger();
        let journal = ledger.journal()?;
        let signed = journal
            .sign_head(clock::now_ms())
            .map_err(|error| error.to_string())?;
        let at = journal.synced_head().unwrap_or_else(|| journal.head());
        let checkpoint = match &signed {
            Some(signed) => signed.checkpoint.clone(),
            None => Checkpoint::sign(journal.identity(), at.size, at.root, clock::now_ms()),
        };
        (
            Head {
                path: journal.path().to_owned(),
                checkpoint,
            },
            signed,
        )
    };
    // Slow, as it syncs: the ledger is not held.
    signed
        .map_or(Ok(()), |signed| signed.keep())
        .map_err(|error| error.to_string())?;
    Ok(head)
}

//! The one writer of the journal, and the only maker of permits.
//!
//! Leaves are hashed and staged in place under a short lock, on the thread that handles the call;
//! whatever is staged together is written together, with one `write` per file. Nobody goes on before
//! the batch that holds their leaf is written (with `fsync: always`: on disk). A thread of its own
//! syncs and signs heads, so that no call waits for a disk that it did not ask for.
//!
//! Fail closed: [`Recorder::admit`] gives a [`Permit`] only for a logged allow, and
//! [`Recorder::outcome`] gives back the answer only when it is recorded.

mod ledger;
mod payload;
mod sync;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use countersign_log::journal::{Journal, OpenIntents, Place};
use tokio::sync::SetOnce;

use crate::call::{Call, Cancel, Era, Failure, Refusal, Reply};
use crate::decision::{Decision, Verdict};
use crate::message::Message;
use ledger::{Ledger, Owed, Staged, Ticket};
use payload::{Digests, IntentText, Outcome, Server};

pub use ledger::{Head, Standing};

/// When written leaves are forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Once a second while leaves come: what a power cut may take is one second.
    #[default]
    Interval,
    /// The intent before the call is forwarded, the outcome before it is answered.
    Always,
    /// Only when a head is signed, at export and at the end.
    Never,
}

/// Above this size a text is hashed on a thread of its own, so that it delays no other call: at
/// 2 GB/s, 256 KiB take about as long as waking that thread costs.
const INLINE_OCTETS_MAX: usize = 256 << 10;

/// A logged allow: it owns the judged call, with its time limit and its cancel signal. An upstream
/// takes it by value, so nothing is forwarded unlogged, changed after the decision, or twice. Nobody
/// else can make one, or a second one of it.
#[derive(Debug)]
pub struct Permit {
    call: Call,
    line: Bytes,
    within: Duration,
}

impl Permit {
    /// The call that was judged.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The line to forward: exactly what was judged and recorded.
    pub fn line(&self) -> &Bytes {
        &self.line
    }

    /// How long the upstream may take, from forwarding.
    pub fn within(&self) -> Duration {
        self.within
    }

    /// Fires when the client takes the call back.
    pub fn cancel(&self) -> &Cancel {
        self.call.cancel()
    }
}

/// A recorded intent whose outcome is owed. Used up by the outcome: one each.
#[derive(Debug)]
#[must_use = "an intent without an outcome is an open call"]
pub struct Intent {
    place: Place,
    tool: Box<[u8]>,
    era: Era,
}

/// What recording an intent led to.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every admission is a permit; a box would cost each an allocation"
)]
pub enum Admission {
    /// Forward it.
    Permit(Permit, Intent),
    /// Do not; the refusal is recorded and its outcome owed.
    Refused(Refusal, Intent),
}

/// The recorder: cheap to clone, one journal behind all clones.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    server: Arc<Server>,
    fsync: Fsync,
    ledger: Mutex<Ledger>,
    opened: SetOnce<Result<(), String>>,
    syncer: sync::Bell,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger
            .lock()
            .expect("no code that holds the ledger panics")
    }

    /// Wakes the syncing thread, if somebody waits for the disk: else written leaves can wait.
    fn ring(&self) {
        self.syncer.ring_if(self.fsync == Fsync::Always);
    }
}

impl Recorder {
    /// A recorder for the calls of `server`. Calls wait until [`Self::open`] brings the journal.
    pub fn new(server: &str, fsync: Fsync) -> Self {
        let server = Arc::new(Server::new(server));
        Self {
            shared: Arc::new(Shared {
                server: Arc::clone(&server),
                fsync,
                ledger: Mutex::new(Ledger::new(server, fsync)),
                opened: SetOnce::new(),
                syncer: sync::Bell::default(),
            }),
        }
    }

    /// Starts recording into `journal`. `lost` are calls that an earlier run left open: they are
    /// written down as lost, together, before anything else.
    ///
    /// # Errors
    /// The journal does not take the first entry, or nobody can sync it.
    pub fn open(&self, journal: Journal, lost: &OpenIntents) -> Result<(), String> {
        let mut outcome = self.shared.ledger().open(journal, lost);
        if outcome.is_ok() && self.shared.fsync != Fsync::Never {
            outcome = sync::start(Arc::clone(&self.shared))
                .map_err(|error| format!("no thread to sync the journal with: {error}"));
        }
        if outcome.is_err() {
            self.shared.ledger().discard();
        }
        // Opened once: a second journal has no way here.
        let _ = self.shared.opened.set(outcome.clone());
        outcome
    }

    /// There will be no journal: every waiting call is refused with `why`.
    pub fn give_up(&self, why: String) {
        // Whoever set it first has told the waiting calls.
        let _ = self.shared.opened.set(Err(why));
    }

    /// Waits until the journal is there.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn opened(&self) -> Result<(), String> {
        self.shared.opened.wait().await.clone()
    }

    /// Writes down what the client sent and what was decided; only then, and only if that allows it,
    /// the call may go up, for `within` at the most.
    ///
    /// # Errors
    /// The journal does not take the intent, so nothing may be forwarded.
    pub async fn admit(
        &self,
        call: Call,
        decision: &Decision,
        within: Duration,
    ) -> Result<Admission, Failure> {
        self.opened().await.map_err(Failure::NotRecorded)?;
        let line = match &decision.verdict {
            Verdict::Allow => Ok(call.forwarded()),
            Verdict::Refuse(refusal) => Err(refusal.clone()),
        };
        let forwarded = line.as_ref().ok().cloned();
        let text = self.intent_text(call.received(), forwarded).await;
        let staged = self.shared.ledger().stage_intent(&text);
        let intent = Intent {
            place: self.settled(staged).await.map_err(Failure::NotRecorded)?,
            tool: text.tool,
            era: call.era(),
        };
        Ok(match line {
            Ok(line) => Admission::Permit(Permit { call, line, within }, intent),
            Err(refusal) => Admission::Refused(refusal, intent),
        })
    }

    /// Writes down what the client gets, and only then gives it back to be sent. When the journal does
    /// not take it, an error comes back instead, and that error is what will be recorded on recovery.
    pub async fn outcome(&self, intent: Intent, reply: Reply) -> Reply {
        let (recorded, is_error) = reply.recorded();
        let digest = payload::digest(recorded).await;
        let server = &self.shared.server;
        let outcome = Outcome {
            tool: &intent.tool,
            digest,
            is_error,
        };
        let staged = self.shared.ledger().stage_result(intent.place, |segment| {
            server.result(&outcome, intent.place, segment)
        });
        let Err(why) = self.settled(staged).await else {
            return reply;
        };
        let withheld = self.withheld(&reply, intent.era, why);
        let (recorded, is_error) = withheld.recorded();
        let digest = payload::digest_now(&recorded);
        self.shared.ledger().owe(Owed {
            intent: intent.place,
            tool: intent.tool,
            digest,
            is_error,
        });
        withheld
    }

    /// Writes down a call that never reached the core, intent and outcome together, and gives back what
    /// the client is to get.
    pub async fn whole(&self, received: &Message, reply: Reply) -> Reply {
        let era = Era::of(received);
        if let Err(why) = self.opened().await {
            return self.withheld(&reply, era, why);
        }
        let intent = self.intent_text(received, None).await;
        let (recorded, is_error) = reply.recorded();
        let digest = payload::digest(recorded).await;
        let outcome = Outcome {
            tool: &intent.tool,
            digest,
            is_error,
        };
        let server = &self.shared.server;
        let staged = self.shared.ledger().stage_whole(&intent, |place| {
            server.result(&outcome, place, place.segment)
        });
        match self.settled(staged).await {
            Ok(_) => reply,
            // Neither half is in the journal, so nothing is owed.
            Err(why) => self.withheld(&reply, era, why),
        }
    }

    /// While this is held, staged leaves wait to be written together.
    pub(crate) fn hold(&self) -> Hold {
        self.shared.ledger().hold();
        Hold {
            recorder: self.clone(),
        }
    }

    /// Where the journal stands, for whoever asks.
    ///
    /// # Errors
    /// There is no journal.
    pub fn standing(&self) -> Result<Standing, String> {
        self.shared.ledger().standing()
    }

    /// Forces all to the disk and signs the head over it.
    ///
    /// # Errors
    /// The disk or the journal refuses.
    pub fn sign_head(&self) -> Result<Head, String> {
        sync::sign_head(&self.shared)
    }

    /// Writes what is owed, forces all to the disk, signs the last head and lets the journal go.
    ///
    /// # Errors
    /// What could not be written.
    pub fn close(&self) -> Result<(), String> {
        self.shared.syncer.stop();
        self.shared.ledger().close()
    }

    /// Removes a journal that this process made and never wrote a leaf into.
    pub fn discard(&self) {
        self.shared.syncer.stop();
        self.shared.ledger().discard();
    }

    async fn intent_text(&self, received: &Message, forwarded: Option<Bytes>) -> IntentText {
        self.shared
            .server
            .intent(Digests::of(received, forwarded).await)
    }

    /// Waits until the batch is written, or writes it: see [`Ticket`].
    async fn settled(&self, staged: Result<Staged, String>) -> Result<Place, String> {
        let staged = staged?;
        match staged.ticket {
            Ticket::Done => Ok(staged.place),
            Ticket::Wait(batch) => batch.done().await.map(|()| staged.place),
            Ticket::Lead(batch) => {
                let lead = Lead { recorder: self };
                // Calls that became ready at the same time stage their leaves now; then all are written at once.
                tokio::task::yield_now().await;
                drop(lead);
                batch.done().await.map(|()| staged.place)
            }
        }
    }

    fn withheld(&self, reply: &Reply, era: Era, why: String) -> Reply {
        let failure = Failure::AnswerWithheld(why);
        if reply.is_silent() {
            Reply::silent(&failure, era)
        } else {
            Reply::failure(&failure, era)
        }
    }
}

/// See [`Recorder::hold`].
pub(crate) struct Hold {
    recorder: Recorder,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.recorder.shared.ledger().release();
        self.recorder.shared.ring();
    }
}

/// Whoever staged first writes the batch, even when it is dropped while it waits.
struct Lead<'a> {
    recorder: &'a Recorder,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.recorder.shared.ledger().commit();
        self.recorder.shared.ring();
    }
}

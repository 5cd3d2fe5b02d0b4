//! A server as a child process, spoken to over its stdin and stdout.
//!
//! Every request that it holds gets exactly one reply: its answer, or an error when the process ends,
//! is silent too long, or answers with something that is no answer. Which process that is, and when
//! another takes its place, is the supervisor's matter.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, SetOnce, oneshot};

use super::patience::Patience;
use super::pending::{Asks, Kept, Pending, Requests};
use super::setup::Setup;
use super::{Pass, ToClient, Ungoverned, Upstream, label, supervisor};
use crate::BoxFuture;
use crate::call::{Cancel, CancelledBy, Era, Failure, Reply, under_id};
use crate::lines::Line;
use crate::message::{self, Ambiguity, Id, IdKind, Kind, LINE_BYTES_MAX, Message, Parsed, Splice};
use crate::outbox::{Outbox, OutboxReader, QUEUED_BYTES_MAX};
use crate::process::{self, Spec, StartError};
use crate::recorder::Permit;
use crate::stderr::note;

/// How a child is run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The command.
    pub spec: Spec,
    /// Restarts within one minute; 0 for none.
    pub max_restarts: u32,
}

/// How long a server may take to end.
#[derive(Clone, Copy, Debug)]
pub struct Graces {
    /// From the end of its input to SIGTERM.
    pub close: Duration,
    /// From SIGTERM to SIGKILL.
    pub terminate: Duration,
}

/// The child, whichever process it is now. Cheap to clone.
#[derive(Clone)]
pub struct ChildUpstream {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) patience: Patience,
    pub(super) client: Arc<dyn ToClient>,
    pub(super) closing: SetOnce<Graces>,
    pub(super) hurry: Notify,
    pub(super) ended: SetOnce<i32>,
}

pub(super) struct State {
    /// Lines for the process that runs, or for the next one.
    pub(super) outbox: Outbox,
    /// The other end, until a process is set up and takes it: what waits outlives those that never are.
    pub(super) unread: Option<OutboxReader>,
    /// Whether the process that runs has been set up, so that lines reach it at once.
    pub(super) up: bool,
    /// The exit code of the last process, when it is not replaced.
    pub(super) gone: Option<i32>,
    pub(super) generation: u64,
    pub(super) requests: Requests,
    pub(super) asks: Asks,
    pub(super) setup: Setup,
    pub(super) restarts: u64,
    /// Why the command could not be executed at all.
    pub(super) never_started: Option<String>,
    /// What is still unanswered has been answered by us; late answers are not worth a word.
    pub(super) given_up: bool,
}

impl ChildUpstream {
    /// Starts the command. What it sends of its own accord goes to `client`.
    ///
    /// # Errors
    /// The command cannot be started.
    pub fn start(config: Config, client: Arc<dyn ToClient>) -> Result<Self, StartError> {
        let child = process::Child::spawn(&config.spec)?;
        let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                outbox,
                unread: Some(reader),
                up: true,
                gone: None,
                generation: 0,
                requests: Requests::default(),
                asks: Asks::default(),
                setup: Setup::default(),
                restarts: 0,
                never_started: None,
                given_up: false,
            }),
            patience: Patience::new(),
            client,
            closing: SetOnce::new(),
            hurry: Notify::new(),
            ended: SetOnce::new(),
        });
        tokio::spawn(supervisor::run(Arc::clone(&shared), config, child));
        Ok(Self { shared })
    }

    /// How often the process was replaced.
    pub fn restarts(&self) -> u64 {
        self.shared.state().restarts
    }

    /// Whether the server has asked the client something and waits.
    pub fn has_open_asks(&self) -> bool {
        !self.shared.state().asks.is_empty()
    }

    /// Waits for room in the queue towards the process.
    pub async fn room(&self) {
        let outbox = self.shared.state().outbox.clone();
        tokio::select! {
            () = outbox.room() => {}
            _ = self.shared.ended.wait() => {}
        }
    }

    /// Why the command could not be executed at all, if it could not.
    pub fn never_started(&self) -> Option<String> {
        self.shared.state().never_started.clone()
    }

    /// Waits until the last process has ended and is not replaced: its exit code, negative for a signal.
    pub async fn ended(&self) -> i32 {
        *self.shared.ended.wait().await
    }

    /// No more input will come from the client, so it can no longer answer questions either.
    pub fn client_closed(&self) {
        self.shared.patience.resume();
    }

    /// Ends the process: closes its input, waits, then signals its group.
    pub async fn shut_down(&self, graces: Graces) {
        // Only the first one who asks decides how long it may take.
        let _ = self.shared.closing.set(graces);
        self.shared.state().outbox.close();
        self.shared.ended.wait().await;
    }

    /// Cuts a [`Self::shut_down`] that is under way short.
    pub fn hurry(&self) {
        self.shared.hurry.notify_one();
    }

    /// Answers everything that is still in flight with `failure`.
    pub fn give_up(&self, failure: &Failure) {
        let pending = {
            let mut state = self.shared.state();
            state.given_up = true;
            state.requests.drain()
        };
        for pending in pending {
            pending.fail(failure);
        }
    }
}

impl Upstream for ChildUpstream {
    fn send(&self, permit: Permit, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        let message = permit.call().received();
        let request = Request {
            id: message.id().cloned(),
            line: permit.line().clone(),
            label: label(message),
            era: permit.call().era(),
            within: Some(permit.within()),
            cancel: permit.cancel().clone(),
            kept: None,
        };
        self.request(request, to_client)
    }

    fn pass(&self, pass: Pass, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        let message = pass.request.message();
        let kept = if message.method() == Some("subscriptions/listen") {
            Some(Kept::Listen {
                message: message.clone(),
                acknowledged: false,
            })
        } else {
            Setup::concerns(message).then(|| Kept::Setup(message.clone()))
        };
        let request = Request {
            id: message.id().cloned(),
            line: message.raw().clone(),
            label: label(message),
            era: pass.era(),
            within: pass.within,
            cancel: pass.cancel.clone(),
            kept,
        };
        self.request(request, to_client)
    }

    fn tell(&self, message: Ungoverned) {
        self.shared.tell(message.message());
    }
}

/// A request on its way to the process.
struct Request {
    id: Option<Id>,
    line: Bytes,
    label: String,
    era: Era,
    within: Option<Duration>,
    cancel: Cancel,
    kept: Option<Kept>,
}

impl ChildUpstream {
    fn request(&self, request: Request, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let Request {
                era,
                within,
                cancel,
                ..
            } = &request;
            let (era, within, cancel) = (*era, *within, cancel.clone());
            if let Some(by) = cancel.now() {
                return Reply::failure(&Failure::cancelled(&by), era);
            }
            let cancellable = !matches!(&request.kept, Some(Kept::Setup(setup)) if setup.method() == Some("initialize"));
            let (wire_id, mut reply) = match shared.enter(request, to_client) {
                Ok(entered) => entered,
                Err(failure) => return Reply::failure(&failure, era),
            };
            let mut waiting = Waiting {
                shared: &shared,
                id: Some(wire_id),
            };
            tokio::select! {
                biased;
                reply = &mut reply => {
                    waiting.id = None;
                    reply.unwrap_or_else(|_| Reply::failure(&Failure::Broken, era))
                }
                by = cancel.anyone() => {
                    waiting.withdraw(&by);
                    Reply::failure(&Failure::cancelled(&by), era)
                }
                within = shared.out_of_patience(within) => {
                    if cancellable {
                        waiting.withdraw(&CancelledBy::Us);
                    }
                    Reply::failure(&Failure::timed_out(within), era)
                }
            }
        })
    }
}

/// A request whose reply is waited for. Whoever stops waiting leaves its id behind as abandoned.
struct Waiting<'a> {
    shared: &'a Shared,
    id: Option<Id>,
}

impl Waiting<'_> {
    /// Takes the request back at the server too, if it ever got there.
    fn withdraw(&mut self, by: &CancelledBy) {
        let Some(id) = self.id.take() else { return };
        let mut state = self.shared.state();
        let State {
            requests, outbox, ..
        } = &mut *state;
        let Some(pending) = requests.get_mut(&id) else {
            return;
        };
        if pending.queued.is_some_and(|queued| outbox.retract(queued)) {
            // The process will never know of it, so there is nothing to take back and no late answer.
            pending.sent = None;
        }
        let sent = pending.sent.is_some();
        requests.abandon(&id);
        if sent {
            outbox.push(cancel_line(by, &id));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.shared.state().requests.abandon(&id);
        }
    }
}

/// The notification that takes request `id` back: the client's own words, where it has said so.
fn cancel_line(by: &CancelledBy, id: &Id) -> Bytes {
    if let CancelledBy::Client(line) = by
        && let Ok(Parsed::One(message)) = Message::parse(line.clone())
        && let Some(at) = message.member(&["params", "requestId"])
        && let Ok(line) = Splice::new(line).replace(at, id.raw()).finish()
    {
        return line;
    }
    let head =
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":";
    [
        &head[..],
        id.raw(),
        b",\"reason\":\"no longer waited for\"}}",
    ]
    .concat()
    .into()
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code that holds the state panics")
    }

    /// Queues a request for the process and notes that it owes an answer.
    fn enter(
        &self,
        request: Request,
        to_client: Arc<dyn ToClient>,
    ) -> Result<(Id, oneshot::Receiver<Reply>), Failure> {
        let Request {
            id,
            mut line,
            label,
            era,
            kept,
            ..
        } = request;
        let mut state = self.state();
        if let Some(code) = state.gone {
            return Err(state.not_sent(code, label));
        }
        let id = id.ok_or(Failure::Broken)?;
        let listens = matches!(kept, Some(Kept::Listen { .. }));
        let wire_id = state.requests.wire_id(&id, listens);
        if wire_id != id
            && let Ok(Parsed::One(message)) = Message::parse(line.clone())
        {
            line = under_id(&message, &wire_id);
        }
        let (reply, waiting) = oneshot::channel();
        let sent = state.up.then_some(state.generation);
        let pending = Pending {
            reply,
            to_client: Some(to_client),
            label,
            era,
            sent,
            queued: Some(state.outbox.push_retractable(line)),
            request: kept,
        };
        state.requests.insert(wire_id.clone(), pending);
        Ok((wire_id, waiting))
    }

    async fn out_of_patience(&self, within: Option<Duration>) -> Duration {
        match within {
            Some(within) => {
                self.patience.exhausted(within).await;
                within
            }
            None => std::future::pending().await,
        }
    }

    /// A notification or a response of the client's.
    fn tell(&self, message: &Message) {
        let mut state = self.state();
        let line = match (message.kind(), message.id()) {
            (Kind::Response, Some(id)) => match state.asks.settle(id) {
                Some(asked) => under_id(message, &asked.id),
                // The question of a process that has ended: nobody waits for this.
                None if state.generation > 0 => return,
                None => message.raw().clone(),
            },
            _ => {
                state.setup.told(message);
                message.raw().clone()
            }
        };
        if state.asks.is_empty() {
            self.patience.resume();
        }
        state.outbox.push(line);
    }

    /// One line of the process's output.
    pub(super) fn take_line(&self, line: Line) {
        match line {
            Line::Whole(line) | Line::Last(line) => match Message::parse(line) {
                Ok(Parsed::One(message)) => self.take(message),
                Ok(Parsed::Batch(batch)) => {
                    batch.members.into_iter().for_each(|member| match member {
                        Ok(message) => self.take(message),
                        Err(malformed) => self.noise(
                            malformed.id().cloned(),
                            malformed.raw(),
                            &malformed.to_string(),
                        ),
                    })
                }
                Ok(Parsed::Blank) => {}
                Err(malformed) => {
                    let id = malformed
                        .id()
                        .cloned()
                        .or_else(|| message::salvage_id(malformed.raw(), Kind::Response));
                    self.noise(id, malformed.raw(), &malformed.to_string());
                }
            },
            Line::TooLong { head, tail, bytes } => {
                let id = message::salvage_id_from_ends(&head, &tail, Kind::Response);
                self.noise(
                    id,
                    &head,
                    &format!("a line of {bytes} octets is over the limit of {LINE_BYTES_MAX}"),
                );
            }
        }
    }

    fn take(&self, message: Message) {
        if let (Some(Ambiguity::TwoKinds), Some(id)) = (message.ambiguity(), message.id()) {
            // An answer to one reader, a question to another.
            return self.noise(
                Some(id.clone()),
                message.raw(),
                "it is both a request and a response",
            );
        }
        match message.kind() {
            Kind::Response => self.answered(message),
            Kind::Request => self.asked(&message),
            Kind::Notification => self.notified(&message),
        }
    }

    fn answered(&self, message: Message) {
        let Some(id) = message.id().filter(|id| id.kind() != IdKind::Null) else {
            // An error about a message whose id the server could not read: only the client can tell.
            return self.client.forward(message.raw().clone());
        };
        let mut state = self.state();
        let Some(pending) = state.requests.answered(id) else {
            if !state.given_up {
                note!(
                    "dropped an answer that no request in flight has asked for (id {})",
                    show(id.raw())
                );
            }
            return;
        };
        if let Some(Kept::Setup(request)) = pending.request
            && message.result().is_some()
        {
            state.setup.agreed(request);
        }
        drop(state);
        let place = pending.to_client.as_ref().and_then(|client| client.place());
        // Whoever no longer waits has been told otherwise.
        let _ = pending.reply.send(Reply::answer(message, place));
    }

    fn asked(&self, message: &Message) {
        let id = message.id().expect("requests have an id");
        let shown = {
            let mut state = self.state();
            let generation = state.generation;
            state.asks.ask(id, generation)
        };
        self.patience.pause();
        self.client.forward(under_id(message, &shown));
    }

    fn notified(&self, message: &Message) {
        let mut state = self.state();
        let mut line = message.raw().clone();
        match message.method() {
            Some("notifications/cancelled") => {
                if let Some(target) = message.cancel_target() {
                    if let Some(shown) = state.asks.shown(&target) {
                        state.asks.settle(&shown);
                        line = cancel_line(&CancelledBy::Client(line), &shown);
                    } else if let Some(pending) = state.requests.answered(&target) {
                        // The end of a listen: there is no other answer.
                        let _ = pending
                            .reply
                            .send(Reply::silent(&Failure::Cancelled, Era::Modern));
                    }
                }
                if state.asks.is_empty() {
                    self.patience.resume();
                }
            }
            Some("notifications/subscriptions/acknowledged") => {
                let key = ["params", "_meta", "io.modelcontextprotocol/subscriptionId"];
                let id = message
                    .member(&key)
                    .and_then(|at| Id::parse(&message.raw()[at]));
                let pending = id.and_then(|id| state.requests.get_mut(&id));
                if let Some(Pending {
                    request: Some(Kept::Listen { acknowledged, .. }),
                    ..
                }) = pending
                    && std::mem::replace(acknowledged, true)
                {
                    return;
                }
            }
            _ => {}
        }
        drop(state);
        self.client.forward(line);
    }

    /// What is no message: if it was meant to answer a request, that request ends now.
    fn noise(&self, id: Option<Id>, line: &[u8], why: &str) {
        let pending = id.and_then(|id| self.state().requests.answered(&id));
        match pending {
            Some(pending) => pending.fail(&Failure::InvalidAnswer(why.to_owned())),
            None => note!(
                "dropped a line of the server's that is no message ({why}): {}",
                show(line)
            ),
        }
    }

    /// A process has ended: what it owed is answered, what it asked is taken back.
    pub(super) fn process_ended(&self, exit: &Ended) {
        let (lost, asks, no_start) = {
            let mut state = self.state();
            if state.unread.is_none() {
                let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
                std::mem::replace(&mut state.outbox, outbox).close();
                state.unread = Some(reader);
            }
            state.up = false;
            state.generation += 1;
            let State {
                requests, outbox, ..
            } = &mut *state;
            let lost = requests.process_ended(outbox);
            (lost, state.asks.drain(), state.never_started.clone())
        };
        self.patience.resume();
        for shown in asks {
            self.client.forward(cancel_line(&CancelledBy::Us, &shown));
        }
        for pending in lost {
            let failure = match &no_start {
                Some(why) => Failure::NoStart(why.clone()),
                None => Failure::Exited {
                    code: exit.code,
                    during: pending.label.clone(),
                    last_words: exit.last_words.clone(),
                },
            };
            pending.fail(&failure);
        }
    }

    /// There will be no other process.
    pub(super) fn end(&self, code: i32) {
        let failed: Vec<_> = {
            let mut state = self.state();
            state.gone = Some(code);
            state.outbox.close();
            let pending = state.requests.drain();
            let failure = |pending: &Pending| state.not_sent(code, pending.label.clone());
            pending
                .into_iter()
                .map(|pending| (failure(&pending), pending))
                .collect()
        };
        for (failure, pending) in failed {
            pending.fail(&failure);
        }
        // It ends once: only the supervisor says so.
        let _ = self.ended.set(code);
    }
}

impl State {
    /// What is told of a request that no process will ever get; the last one had ended with `code`.
    fn not_sent(&self, code: i32, unsent: String) -> Failure {
        match &self.never_started {
            Some(why) => Failure::NoStart(why.clone()),
            None => Failure::NotReplaced { code, unsent },
        }
    }
}

/// How a process ended, for those whom it leaves without an answer.
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) last_words: Option<String>,
}

/// The beginning of a text, for a person.
fn show(text: &[u8]) -> String {
    const SHOWN: usize = 200;
    String::from_utf8_lossy(&text[..text.len().min(SHOWN)])
        .escape_debug()
        .collect()
}

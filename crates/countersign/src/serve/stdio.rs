//! One client over a pair of streams, in front of one child.
//!
//! Each line is sorted by what it is: a governed call goes through the gate, everything else passes
//! as it came. Lines that arrive together are admitted together. One request under one id at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio::sync::Notify;

use crate::BoxFuture;
use crate::call::{Call, Cancel, Era, Failure, INTERNAL, Refusal, Reply};
use crate::gate::{self, Admissions, Gate};
use crate::lines::{Line, Lines};
use crate::message::{self, Batch, Id, IdKind, Kind, LINE_BYTES_MAX, Malformed, Message, Parsed};
use crate::outbox::{Outbox, Place, QUEUED_BYTES_MAX};
use crate::serve::audit::Audit;
use crate::upstream::child::ChildUpstream;
use crate::upstream::{Pass, ToClient, Ungoverned, Upstream};

/// Requests that a client may have in flight; more are not read until one is answered. SDKs and hosts
/// stay far below; each costs a few kilobytes of ours and of the server's.
pub const IN_FLIGHT_MAX: usize = 1024;

/// The time limit of `initialize`: first runs of `npx` and `uvx` download packages.
const INITIALIZE_WITHIN: Duration = Duration::from_secs(300);

/// The only protocol version with batches.
const VERSION_WITH_BATCHES: &str = "2025-03-26";

/// The client: its queue, and its requests in flight.
pub struct Client {
    outbox: Outbox,
    in_flight: Mutex<HashMap<Id, Flight>>,
    /// How many are in flight.
    count: AtomicUsize,
    /// Tells whoever waits for fewer.
    fewer: Notify,
    /// The protocol version that the handshake settled on.
    version: Mutex<Option<String>>,
    /// Whether there was a request.
    asked: AtomicBool,
}

/// A request in flight.
struct Flight {
    cancel: Cancel,
    /// It has a time limit.
    limited: bool,
}

impl Client {
    /// A client whose lines go to `outbox`.
    pub fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            in_flight: Mutex::default(),
            count: AtomicUsize::new(0),
            fewer: Notify::new(),
            version: Mutex::default(),
            asked: AtomicBool::new(false),
        }
    }

    /// Waits until fewer than `limit` requests are in flight.
    pub async fn fewer_than(&self, limit: usize) {
        loop {
            // Before the look, so that no end is missed between the two.
            let fewer = self.fewer.notified();
            if self.count() < limit {
                return;
            }
            fewer.await;
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether it has asked for anything yet.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Sends a line of our own.
    pub fn push(&self, line: Bytes) {
        self.outbox.push(line);
    }

    /// Notes a request, unless another one under its id is in flight.
    fn enter(&self, id: &Id, limited: bool) -> Option<Cancel> {
        self.asked.store(true, Ordering::Relaxed);
        let mut in_flight = self.in_flight();
        if in_flight.contains_key(id) {
            return None;
        }
        let cancel = Cancel::default();
        in_flight.insert(
            id.clone(),
            Flight {
                cancel: cancel.clone(),
                limited,
            },
        );
        self.count.store(in_flight.len(), Ordering::Relaxed);
        Some(cancel)
    }

    fn leave(&self, id: &Id) {
        let mut in_flight = self.in_flight();
        in_flight.remove(id);
        self.count.store(in_flight.len(), Ordering::Relaxed);
        drop(in_flight);
        self.fewer.notify_waiters();
    }

    fn cancel(&self, id: &Id) -> Option<Cancel> {
        self.in_flight().get(id).map(|flight| flight.cancel.clone())
    }

    fn end_unlimited(&self) {
        self.in_flight()
            .values()
            .filter(|flight| !flight.limited)
            .for_each(|flight| flight.cancel.by_us());
    }

    fn send(&self, id: &Id, mut reply: Reply) {
        if let Some(line) = reply.line(id) {
            match reply.take_place() {
                Some(place) => place.fill(line),
                None => self.outbox.push(line),
            }
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, HashMap<Id, Flight>> {
        self.in_flight.lock().expect("no code that holds it panics")
    }
}

impl ToClient for Client {
    fn forward(&self, line: Bytes) {
        self.outbox.push(line);
    }

    fn place(&self) -> Option<Place> {
        Some(self.outbox.place())
    }

    fn has_room(&self) -> bool {
        self.outbox.queued_bytes() <= QUEUED_BYTES_MAX
    }

    fn room(&self) -> BoxFuture<()> {
        let outbox = self.outbox.clone();
        Box::pin(async move { outbox.room().await })
    }

    fn answer(&self, id: &Id, reply: Reply) {
        self.send(id, reply);
        self.leave(id);
    }
}

/// Who has sent a message, and so where its answer goes.
#[derive(Clone)]
enum Asker {
    /// The client, on a line of its own.
    Client(Arc<Client>),
    /// The client, in a batch.
    Batch(Arc<Gathered>),
}

impl Asker {
    /// Where the answer to a request in flight goes.
    fn to_client(&self) -> Arc<dyn ToClient> {
        match self {
            Self::Client(client) => Arc::clone(client) as _,
            Self::Batch(gathered) => Arc::clone(gathered) as _,
        }
    }

    /// Where the answer to a refused request goes.
    fn refused(&self) -> Arc<dyn ToClient> {
        Arc::new(Refused(self.clone()))
    }

    fn client(&self) -> &Arc<Client> {
        match self {
            Self::Client(client) => client,
            Self::Batch(gathered) => &gathered.client,
        }
    }
}

/// Where the answer to a refused request goes: the id may be another request's, which stays in flight.
struct Refused(Asker);

impl ToClient for Refused {
    fn forward(&self, line: Bytes) {
        self.0.client().forward(line);
    }

    fn place(&self) -> Option<Place> {
        None
    }

    fn has_room(&self) -> bool {
        self.0.client().has_room()
    }

    fn room(&self) -> BoxFuture<()> {
        self.0.client().room()
    }

    fn answer(&self, id: &Id, reply: Reply) {
        match &self.0 {
            Asker::Client(client) => client.send(id, reply),
            Asker::Batch(gathered) => gathered.put(reply.line(id)),
        }
    }
}

/// Where the answers to a batch go: into one array, when the last of them is there.
struct Gathered {
    client: Arc<Client>,
    parts: Mutex<Parts>,
}

struct Parts {
    missing: usize,
    lines: Vec<Bytes>,
}

impl Gathered {
    fn put(&self, line: Option<Bytes>) {
        let mut parts = self.parts.lock().expect("no code that holds it panics");
        parts.lines.extend(line);
        parts.missing -= 1;
        if parts.missing == 0 && !parts.lines.is_empty() {
            let array = [b"[", &parts.lines.join(&b","[..])[..], b"]"].concat();
            self.client.outbox.push(array.into());
        }
    }
}

impl ToClient for Gathered {
    fn forward(&self, line: Bytes) {
        self.client.forward(line);
    }

    fn place(&self) -> Option<Place> {
        None
    }

    fn has_room(&self) -> bool {
        self.client.has_room()
    }

    fn room(&self) -> BoxFuture<()> {
        self.client.room()
    }

    fn answer(&self, id: &Id, reply: Reply) {
        self.put(reply.line(id));
        self.client.leave(id);
    }
}

/// Everything that a client's lines meet.
pub struct Session {
    /// The client.
    pub client: Arc<Client>,
    /// The way of governed calls.
    pub gate: Gate,
    /// The way of everything else.
    pub upstream: ChildUpstream,
    /// The tools that we add.
    pub audit: Arc<Audit>,
    /// How long the server may take for a request.
    pub within: Duration,
}

impl Session {
    /// Takes in lines until the client closes its input.
    ///
    /// # Errors
    /// The input cannot be read.
    pub async fn run(&self, lines: &mut Lines<impl AsyncRead + Unpin>) -> std::io::Result<()> {
        let mut arrived = Vec::new();
        loop {
            self.upstream.room().await;
            let more = lines.read(&mut arrived).await?;
            self.take(arrived.drain(..)).await;
            if !more {
                return Ok(());
            }
        }
    }

    /// No more comes from the client: it cannot answer questions any more, and what has no time limit
    /// would never end.
    pub fn client_closed(&self) {
        self.upstream.client_closed();
        self.client.end_unlimited();
    }

    /// Waits until everything that was taken in is recorded, and answered where it can be.
    pub async fn settled(&self) {
        self.client.fewer_than(1).await;
        self.gate.settled().await;
    }

    /// Takes in lines that arrived together.
    async fn take(&self, lines: impl Iterator<Item = Line>) {
        let mut admissions = None;
        for line in lines {
            if self.client.count() >= IN_FLIGHT_MAX && !self.upstream.has_open_asks() {
                // While the server waits for the client, the client must be read on.
                admissions = None;
                self.client.fewer_than(IN_FLIGHT_MAX).await;
            }
            self.take_line(line, &mut admissions);
        }
    }

    fn take_line(&self, line: Line, admissions: &mut Option<Admissions>) {
        match line {
            Line::Whole(line) | Line::Last(line) => match Message::parse(line) {
                Ok(Parsed::One(message)) => {
                    let asker = Asker::Client(Arc::clone(&self.client));
                    self.take_message(message, &asker, admissions);
                }
                Ok(Parsed::Batch(batch)) => self.take_batch(batch, admissions),
                Ok(Parsed::Blank) => {}
                Err(malformed) => self.client.push(complaint(&malformed)),
            },
            Line::TooLong { head, tail, bytes } => {
                let id = message::salvage_id_from_ends(&head, &tail, Kind::Request);
                let why = format!("a line of {bytes} octets is over the limit of {LINE_BYTES_MAX}");
                self.client
                    .push(error_line(id.as_ref(), message::INVALID_REQUEST, &why));
            }
        }
    }

    fn take_message(&self, message: Message, asker: &Asker, admissions: &mut Option<Admissions>) {
        match Ungoverned::new(message) {
            Ok(ungoverned) => {
                // Whatever was admitted before goes up before it.
                *admissions = None;
                self.take_ungoverned(ungoverned, asker);
            }
            Err(governed) => {
                let admissions = admissions.get_or_insert_with(|| self.gate.admissions());
                self.take_governed(*governed, asker, admissions);
            }
        }
    }

    fn take_governed(&self, message: Message, asker: &Asker, admissions: &mut Admissions) {
        if let Some(ambiguity) = message.ambiguity() {
            let why = Refusal::Malformed(ambiguity.to_string());
            return admissions.refuse(message, why, asker.refused());
        }
        let id = message
            .id()
            .expect("a governed request without an id is ambiguous")
            .clone();
        if self.client.count() >= IN_FLIGHT_MAX {
            return admissions.refuse(
                message,
                Refusal::TooManyInFlight(IN_FLIGHT_MAX),
                asker.refused(),
            );
        }
        let Some(cancel) = self.client.enter(&id, true) else {
            return admissions.refuse(message, Refusal::IdInUse, asker.refused());
        };
        if let Some(tool) = self.audit.claims(&message) {
            let (audit, to_client) = (Arc::clone(&self.audit), asker.to_client());
            return gate::drive(Box::pin(async move {
                let reply = match audit.answer(tool, &message).await {
                    // Who takes a request back gets no answer to it.
                    _ if cancel.is_by_client() => {
                        Reply::failure(&Failure::Cancelled, Era::of(&message))
                    }
                    reply => reply,
                };
                to_client.answer(&id, reply);
            }));
        }
        admissions.call(Call::new(message, cancel), asker.to_client());
    }

    fn take_ungoverned(&self, ungoverned: Ungoverned, asker: &Asker) {
        let message = ungoverned.message();
        match (message.kind(), message.id()) {
            (Kind::Request, Some(id)) if id.kind() != IdKind::Null => {
                let id = id.clone();
                self.take_request(id, ungoverned, asker);
            }
            (Kind::Notification, _) => {
                let target = message
                    .cancel_target()
                    .and_then(|id| self.client.cancel(&id));
                match target {
                    Some(cancel) => cancel.by_client(message.raw().clone()),
                    None => self.upstream.tell(ungoverned),
                }
            }
            // A response; or a request that nobody can be answered under: the server may know better.
            _ => self.upstream.tell(ungoverned),
        }
    }

    fn take_request(&self, id: Id, request: Ungoverned, asker: &Asker) {
        let within = self.within_for(request.message().method());
        let Some(cancel) = self.client.enter(&id, within.is_some()) else {
            let reply = Reply::failure(
                &Failure::Refused(Refusal::IdInUse),
                Era::of(request.message()),
            );
            return asker.refused().answer(&id, reply);
        };
        let lists_tools = request.message().method() == Some("tools/list");
        let initializes = request.message().method() == Some("initialize");
        let pass = Pass {
            request,
            within,
            cancel,
        };
        let (client, audit) = (Arc::clone(&self.client), Arc::clone(&self.audit));
        let to_client = asker.to_client();
        let reply = self.upstream.pass(pass, Arc::clone(&to_client));
        gate::drive(Box::pin(async move {
            let mut reply = reply.await;
            if lists_tools {
                reply = audit.add_tools(reply);
            } else if initializes {
                client.settle_version(&reply);
            }
            to_client.answer(&id, reply);
        }));
    }

    fn within_for(&self, method: Option<&str>) -> Option<Duration> {
        match method {
            // They last as long as somebody listens, or as the task.
            Some("subscriptions/listen" | "tasks/result") => None,
            Some("initialize") => Some(INITIALIZE_WITHIN.max(self.within)),
            _ => Some(self.within),
        }
    }

    /// A batch is taken apart, and its answers go back in one array. Where the version has no batches,
    /// one that holds a governed call is refused as a whole.
    fn take_batch(&self, batch: Batch, admissions: &mut Option<Admissions>) {
        let governed = batch.members.iter().flatten().any(Message::governed);
        if governed && !self.client.has_batches() {
            let admissions = admissions.get_or_insert_with(|| self.gate.admissions());
            for message in batch
                .members
                .into_iter()
                .flatten()
                .filter(Message::governed)
            {
                admissions.refuse_silently(message, Refusal::Batch);
            }
            let why = Refusal::Batch.to_string();
            return self
                .client
                .push(error_line(None, message::INVALID_REQUEST, &why));
        }
        let answers = |member: &Result<Message, Malformed>| match member {
            // Even under `null` there is an answer: a refusal.
            Ok(message) if message.governed() => message.id().is_some(),
            Ok(message) => {
                message.kind() == Kind::Request
                    && message.id().is_some_and(|id| id.kind() != IdKind::Null)
            }
            Err(_) => true,
        };
        let missing = batch
            .members
            .iter()
            .filter(|member| answers(member))
            .count();
        let parts = Mutex::new(Parts {
            missing,
            lines: Vec::new(),
        });
        let gathered = Arc::new(Gathered {
            client: Arc::clone(&self.client),
            parts,
        });
        for member in batch.members {
            match member {
                Ok(message) => {
                    let asker = Asker::Batch(Arc::clone(&gathered));
                    self.take_message(message, &asker, admissions);
                }
                Err(malformed) => gathered.put(Some(complaint(&malformed))),
            }
        }
    }
}

impl Client {
    fn settle_version(&self, reply: &Reply) {
        let version = reply.result_raw().and_then(|result| {
            let line = [b"{\"id\":0,\"result\":", &result[..], b"}"].concat();
            match Message::parse(line.into()) {
                Ok(Parsed::One(message)) => message.string(&["result", "protocolVersion"]),
                _ => None,
            }
        });
        *self.version.lock().expect("no code that holds it panics") = version;
    }

    fn has_batches(&self) -> bool {
        self.version
            .lock()
            .expect("no code that holds it panics")
            .as_deref()
            == Some(VERSION_WITH_BATCHES)
    }
}

fn complaint(malformed: &Malformed) -> Bytes {
    let id = malformed
        .id()
        .cloned()
        .or_else(|| message::salvage_id(malformed.raw(), Kind::Request));
    error_line(id.as_ref(), malformed.code(), &malformed.to_string())
}

/// Waits for the first request, and answers it with an error: for a program that cannot start.
/// `None`: the client closed its input before it asked anything.
///
/// # Errors
/// The input cannot be read.
pub async fn refuse_first(
    lines: &mut Lines<impl AsyncRead + Unpin>,
    why: &str,
) -> std::io::Result<Option<Bytes>> {
    let mut arrived = Vec::new();
    loop {
        let more = lines.read(&mut arrived).await?;
        for line in arrived.drain(..) {
            let (Line::Whole(line) | Line::Last(line)) = line else {
                continue;
            };
            let Ok(Parsed::One(message)) = Message::parse(line) else {
                continue;
            };
            if let (Kind::Request, Some(id)) = (message.kind(), message.id()) {
                return Ok(Some(error_line(Some(id), INTERNAL, why)));
            }
        }
        if !more {
            return Ok(None);
        }
    }
}

/// An error of ours outside any call: `id` is `null` where none is known (JSON-RPC 2.0 section 5).
pub fn error_line(id: Option<&Id>, code: i32, why: &str) -> Bytes {
    let id = id.map_or(&b"null"[..], |id| id.raw());
    let message = serde_json::to_string(&format!("countersign: {why}")).expect("a string is JSON");
    let error = format!(",\"error\":{{\"code\":{code},\"message\":{message}}}}}");
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, error.as_bytes()]
        .concat()
        .into()
}

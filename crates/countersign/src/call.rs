//! A call on its way up, and the reply on its way down.
//!
//! Both carry the octets that came over the wire. A call keeps what the client sent beside what the
//! layers made of it; a reply knows the text that the client will get and the text that is recorded.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::SetOnce;

use crate::message::{Ambiguity, INVALID_REQUEST, Id, Message, Parsed, Splice};
use crate::outbox::Place;

/// The two dialects of MCP, told apart for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Versions up to 2025-11-25: a handshake opens a session.
    Legacy,
    /// 2026-07-28: every request says its version.
    Modern,
}

impl Era {
    /// The era of one request.
    pub fn of(message: &Message) -> Self {
        if message.modern_version().is_some() {
            Self::Modern
        } else {
            Self::Legacy
        }
    }
}

/// A `tools/call` on its way through the rings.
#[derive(Debug)]
pub struct Call {
    received: Message,
    era: Era,
    name: Option<Bytes>,
    arguments: Option<Bytes>,
    changed: Changed,
    cancel: Cancel,
}

/// Which members a layer has set.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    name: bool,
    arguments: bool,
}

impl Call {
    /// The call that a governed message makes, until `cancel` fires.
    pub fn new(received: Message, cancel: Cancel) -> Self {
        let parts = received.tool_call();
        Self {
            era: Era::of(&received),
            name: parts.name_raw,
            arguments: parts.arguments_raw,
            changed: Changed::default(),
            cancel,
            received,
        }
    }

    /// What the client sent. Nothing changes it.
    pub fn received(&self) -> &Message {
        &self.received
    }

    /// The dialect in which the client asked.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Raw JSON of the tool's name as it stands now.
    pub fn name_raw(&self) -> Option<&Bytes> {
        self.name.as_ref()
    }

    /// The tool's name, where it is a string of Unicode text.
    pub fn name(&self) -> Option<String> {
        serde_json::from_slice(self.name.as_ref()?).ok()
    }

    /// Raw JSON of the arguments as they stand now.
    pub fn arguments(&self) -> Option<&Bytes> {
        self.arguments.as_ref()
    }

    /// Calls another tool instead. What the client sent stays on record.
    pub fn set_name(&mut self, name: &str) {
        self.name = Some(serde_json::to_vec(name).expect("a string is JSON").into());
        self.changed.name = true;
    }

    /// Calls with other arguments. What the client sent stays on record.
    pub fn set_arguments(&mut self, arguments: &RawValue) {
        self.arguments = Some(on_one_line(arguments));
        self.changed.arguments = true;
    }

    /// Why no decision can rest on it: as the client sent it, or as layers left it.
    pub(crate) fn ambiguity(&self) -> Option<Ambiguity> {
        let of = |message: &Message| message.ambiguity().cloned();
        if let Some(ambiguity) = of(&self.received) {
            return Some(ambiguity);
        }
        if !self.changed.name && !self.changed.arguments {
            return None;
        }
        of(&one(self.forwarded()))
    }

    /// Whether it was made from these very octets and with this very signal.
    pub(crate) fn is_made_from(&self, received: &Bytes, cancel: &Cancel) -> bool {
        std::ptr::eq(&**self.received.raw(), &**received) && Arc::ptr_eq(&self.cancel.0, &cancel.0)
    }

    /// Fires when the client takes the call back.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The line that goes up: the client's own octets, with only what a layer changed in another's place.
    pub fn forwarded(&self) -> Bytes {
        let raw = self.received.raw();
        let members = [
            (self.changed.name, "name", &self.name),
            (self.changed.arguments, "arguments", &self.arguments),
        ];
        let mut line = raw.clone();
        for (_, member, value) in members.into_iter().filter(|(changed, ..)| *changed) {
            line = put_param(&line, member, value.as_deref().unwrap_or(b"null"));
        }
        line
    }
}

fn one(line: Bytes) -> Message {
    match Message::parse(line) {
        Ok(Parsed::One(message)) => message,
        _ => unreachable!("a call is made from one message, and only JSON is put into it"),
    }
}

/// JSON as a part of a line: between lines stands 0x0A, which inside JSON can only be a blank.
fn on_one_line(json: &RawValue) -> Bytes {
    let blank = |octet: u8| if octet == b'\n' { b' ' } else { octet };
    json.get().bytes().map(blank).collect()
}

/// `line` with `params.<member>` set to `value`; a governed line that reaches this is unambiguous JSON.
fn put_param(line: &Bytes, member: &str, value: &[u8]) -> Bytes {
    let message = one(line.clone());
    let pair = [b"\"", member.as_bytes(), b"\":", value].concat();
    let params = [b",\"params\":{", &pair[..], b"}"].concat();
    let splice = Splice::new(line);
    let spliced = match (
        message.member(&["params", member]),
        message.member(&["params"]),
    ) {
        (Some(at), _) => splice.replace(at, value),
        (None, Some(at)) => splice
            .append(at, &[&pair])
            .expect("ambiguous calls, such as those with other params, are refused before"),
        (None, None) => {
            let end = line
                .iter()
                .rposition(|octet| *octet == b'}')
                .expect("a message is an object");
            splice.replace(end..end, &params)
        }
    };
    spliced
        .finish()
        .expect("the ranges are those of this very line")
}

/// A request taken back, or not: one signal, seen by everyone who holds the request.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    client: SetOnce<Bytes>,
    us: SetOnce<()>,
}

/// Who has taken a request back.
#[derive(Clone, Debug)]
pub enum CancelledBy {
    /// The client, by this notification.
    Client(Bytes),
    /// We ourselves: a layer, or whoever closes this side down, no longer waits.
    Us,
}

impl Cancel {
    /// The client takes the request back; `line` is its own notification. Only the first one counts.
    pub fn by_client(&self, line: Bytes) {
        // A second cancel says nothing new.
        let _ = self.0.client.set(line);
    }

    /// Nobody here waits any more.
    pub(crate) fn by_us(&self) {
        // As above.
        let _ = self.0.us.set(());
    }

    /// Whether the client has taken the request back.
    pub fn is_by_client(&self) -> bool {
        self.0.client.get().is_some()
    }

    /// Waits until the client takes the request back.
    pub async fn client(&self) {
        self.0.client.wait().await;
    }

    /// Who has taken the request back so far.
    pub fn now(&self) -> Option<CancelledBy> {
        let client = self.0.client.get().cloned().map(CancelledBy::Client);
        client.or_else(|| self.0.us.get().map(|()| CancelledBy::Us))
    }

    /// Waits until anyone takes the request back.
    pub async fn anyone(&self) -> CancelledBy {
        tokio::select! {
            biased;
            line = self.0.client.wait() => CancelledBy::Client(line.clone()),
            () = async { *self.0.us.wait().await } => CancelledBy::Us,
        }
    }
}

/// Why a call was not forwarded. Closed on purpose: each has one code on the wire, in [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Parsers could disagree on what it calls, or it cannot be answered.
    Malformed(String),
    /// The client has another request in flight under the same id.
    IdInUse,
    /// The client has as many requests in flight as it may.
    TooManyInFlight(usize),
    /// A batch on a protocol version that has none.
    Batch,
    /// Whoever judges calls failed on this one.
    Unjudged,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "{why}"),
            Self::IdInUse => f.write_str("another request with this id is still in flight"),
            Self::TooManyInFlight(limit) => {
                write!(f, "{limit} requests are in flight; try again later")
            }
            Self::Unjudged => f.write_str("the rules failed on this call, so it was not forwarded"),
            Self::Batch => {
                f.write_str("a batch may hold a tools/call only on protocol version 2025-03-26")
            }
        }
    }
}

/// What went wrong with a request, in place of the upstream's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused before it was forwarded.
    Refused(Refusal),
    /// No answer within the time limit, in seconds as `%g` prints them.
    TimedOut {
        /// The limit.
        after: String,
    },
    /// The server ended while it worked on the call.
    Exited {
        /// Its exit code, negative for a signal.
        code: i32,
        /// The tool, or the method of another request.
        during: String,
        /// The last words on its error output.
        last_words: Option<String>,
    },
    /// The server had ended and was not replaced.
    NotReplaced {
        /// Its exit code, negative for a signal.
        code: i32,
        /// The tool, or the method of another request.
        unsent: String,
    },
    /// The client took the call back.
    Cancelled,
    /// Nobody on our side waits for the answer any more.
    NotAwaited,
    /// A layer broke.
    LayerPanicked,
    /// We broke.
    Broken,
    /// A layer used its `next` after the call was closed.
    Revoked,
    /// A layer handed on another call than the one it was given.
    AnotherCall,
    /// The server's answer is not one.
    InvalidAnswer(String),
    /// The journal takes no entry: nothing was forwarded.
    NotRecorded(String),
    /// The journal takes no entry: the answer, which is here, is withheld.
    AnswerWithheld(String),
    /// We are told to end.
    ShuttingDown,
    /// There was no start: no server that can be executed, or no journal.
    NoStart(String),
}

/// JSON-RPC: internal error. Our own trouble, in either era.
pub(crate) const INTERNAL: i32 = -32603;
/// What the reference answers with; the modern era keeps this range for the peers' own errors.
const REFERENCE: i32 = -32000;

impl Failure {
    /// No answer within `within`.
    pub(crate) fn timed_out(within: Duration) -> Self {
        Self::TimedOut {
            after: countersign_log::python::percent_g(within.as_secs_f64()),
        }
    }

    /// What came in place of an answer because the request was taken back.
    pub(crate) fn cancelled(by: &CancelledBy) -> Self {
        match by {
            CancelledBy::Client(_) => Self::Cancelled,
            CancelledBy::Us => Self::NotAwaited,
        }
    }

    /// Code and message on the wire. This is the one place that gives codes.
    pub fn wire(&self, era: Era) -> (i32, String) {
        let reference = match era {
            Era::Legacy => REFERENCE,
            Era::Modern => INTERNAL,
        };
        match self {
            Self::Refused(refusal @ (Refusal::TooManyInFlight(_) | Refusal::Unjudged)) => {
                (INTERNAL, format!("countersign: {refusal}"))
            }
            Self::Refused(refusal) => (INVALID_REQUEST, format!("countersign: {refusal}")),
            Self::TimedOut { after } => (
                reference,
                format!("witness-log-mcp-proxy: timed out after {after}s"),
            ),
            Self::Exited { code, during, .. } => (
                reference,
                format!("witness-log-mcp-proxy: server exited with code {code} during {during}"),
            ),
            Self::NotReplaced { code, unsent } => (
                reference,
                format!(
                    "witness-log-mcp-proxy: server exited with code {code} and was not replaced; {unsent} was not sent"
                ),
            ),
            Self::Cancelled => (REFERENCE, "countersign: cancelled by the client".into()),
            Self::NotAwaited => (
                INTERNAL,
                "countersign: the request was given up on this side before its answer came".into(),
            ),
            Self::LayerPanicked => (
                INTERNAL,
                "countersign: a layer failed; the call was closed".into(),
            ),
            Self::Broken => (
                INTERNAL,
                "countersign: an internal fault; the call was closed".into(),
            ),
            Self::Revoked => (
                INTERNAL,
                "countersign: the call was closed before it was judged".into(),
            ),
            Self::AnotherCall => (
                INTERNAL,
                "countersign: a layer handed on another call than it was given".into(),
            ),
            Self::InvalidAnswer(why) => (
                INTERNAL,
                format!("countersign: the server's answer is unusable: {why}"),
            ),
            Self::NotRecorded(why) => (
                INTERNAL,
                format!(
                    "countersign: the journal cannot be written, so nothing was forwarded: {why}"
                ),
            ),
            Self::AnswerWithheld(why) => (
                INTERNAL,
                format!(
                    "countersign: the journal cannot be written, so the answer is withheld: {why}"
                ),
            ),
            Self::NoStart(why) => (INTERNAL, format!("countersign: {why}")),
            Self::ShuttingDown => (
                INTERNAL,
                "countersign: shutting down; the answer did not come in time".into(),
            ),
        }
    }

    /// The JSON of the error object. The server's last words, if there are any, go into `data`.
    fn error(&self, era: Era) -> Bytes {
        let (code, message) = self.wire(era);
        let quoted = |text: &str| serde_json::to_string(text).expect("a string is JSON");
        let message = quoted(&message);
        match self {
            Self::Exited {
                last_words: Some(words),
                ..
            } => format!(
                "{{\"code\":{code},\"message\":{message},\"data\":{{\"stderr\":{}}}}}",
                quoted(words)
            )
            .into(),
            _ => format!("{{\"code\":{code},\"message\":{message}}}").into(),
        }
    }
}

/// What comes down for one request.
#[derive(Debug)]
pub struct Reply {
    body: Body,
    /// The answer's place in the order of what the server sent; only the transport fills it.
    place: Option<Place>,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every reply is an answer; a box would cost each an allocation"
)]
enum Body {
    /// The upstream's answer as it came.
    Answer(Message),
    /// A result made here.
    Result(Bytes),
    /// An error made here.
    Error(Bytes),
    /// No answer goes out; the error is what is recorded.
    Silent(Bytes),
}

impl Reply {
    /// The upstream's answer, in its place behind what the server sent before.
    pub(crate) fn answer(message: Message, place: Option<Place>) -> Self {
        Self {
            body: Body::Answer(message),
            place,
        }
    }

    /// A result that a layer gives by itself.
    pub fn result(result: &RawValue) -> Self {
        Self::raw_result(on_one_line(result))
    }

    /// As [`Self::result`], from octets that are known to be JSON.
    pub(crate) fn raw_result(result: Bytes) -> Self {
        Self {
            body: Body::Result(result),
            place: None,
        }
    }

    /// An error that a layer gives by itself.
    pub fn error(code: i32, message: &str) -> Self {
        let message = serde_json::to_string(message).expect("a string is JSON");
        Self {
            body: Body::Error(format!("{{\"code\":{code},\"message\":{message}}}").into()),
            place: None,
        }
    }

    /// What a client of `era` is told of a failure.
    pub fn failure(failure: &Failure, era: Era) -> Self {
        let error = failure.error(era);
        let body = if *failure == Failure::Cancelled {
            Body::Silent(error)
        } else {
            Body::Error(error)
        };
        Self { body, place: None }
    }

    /// Records a failure without answering: for a request that has no id.
    pub fn silent(failure: &Failure, era: Era) -> Self {
        Self {
            body: Body::Silent(failure.error(era)),
            place: None,
        }
    }

    /// Raw JSON of the result, if it is one.
    pub fn result_raw(&self) -> Option<Bytes> {
        match &self.body {
            Body::Answer(message) => message.result(),
            Body::Result(result) => Some(result.clone()),
            Body::Error(_) | Body::Silent(_) => None,
        }
    }

    /// Raw JSON of the error, if it is one.
    pub fn error_raw(&self) -> Option<Bytes> {
        match &self.body {
            Body::Answer(message) => message.error(),
            Body::Error(error) | Body::Silent(error) => Some(error.clone()),
            Body::Result(_) => None,
        }
    }

    /// What is recorded of it: X of the reference, and whether that is an error.
    pub fn recorded(&self) -> (Bytes, bool) {
        match (self.error_raw(), self.result_raw()) {
            (Some(error), _) => ([b"{\"error\":", &error[..], b"}"].concat().into(), true),
            (None, Some(result)) => (result, self.says_error()),
            (None, None) => (Bytes::from_static(b"null"), false),
        }
    }

    fn says_error(&self) -> bool {
        let flag = |message: &Message| {
            // A large result is searched faster than it is walked. An escape could hide the key.
            let result = message.result().unwrap_or_default();
            let may_be = |text| memchr::memmem::find(&result, text).is_some();
            if !may_be(b"isError") && !may_be(b"\\u") {
                return false;
            }
            let at = message.member(&["result", "isError"]);
            at.is_some_and(|at| is_true(&message.raw()[at]))
        };
        match &self.body {
            Body::Answer(message) => flag(message),
            Body::Result(result) => {
                let line = [b"{\"id\":0,\"result\":", &result[..], b"}"].concat();
                matches!(Message::parse(line.into()), Ok(Parsed::One(message)) if flag(&message))
            }
            Body::Error(_) | Body::Silent(_) => true,
        }
    }

    /// The line that answers request `id`, unless none is to go out. The upstream's own octets, unless
    /// the upstream spelled the id in another way.
    pub fn line(&self, id: &Id) -> Option<Bytes> {
        let (member, text) = match &self.body {
            Body::Silent(_) => return None,
            Body::Answer(message) => return Some(under_id(message, id)),
            Body::Result(result) => (&b",\"result\":"[..], result),
            Body::Error(error) => (&b",\"error\":"[..], error),
        };
        Some(
            [
                b"{\"jsonrpc\":\"2.0\",\"id\":",
                &id.raw()[..],
                member,
                text,
                b"}",
            ]
            .concat()
            .into(),
        )
    }

    /// The upstream's answer, if this is one.
    pub(crate) fn answered(&self) -> Option<&Message> {
        match &self.body {
            Body::Answer(message) => Some(message),
            _ => None,
        }
    }

    /// Puts another answer in the place of the upstream's.
    pub(crate) fn replace(&mut self, message: Message) {
        self.body = Body::Answer(message);
    }

    /// Whether an answer goes out.
    pub fn is_silent(&self) -> bool {
        matches!(self.body, Body::Silent(_))
    }

    /// The reply, to go out in `place`.
    pub(crate) fn in_place(self, place: Option<Place>) -> Self {
        Self { place, ..self }
    }

    /// The answer's place in the client's queue, to be filled with [`Self::line`].
    pub(crate) fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }
}

/// `message` under `id`: its own octets, unless its id is spelled otherwise.
pub(crate) fn under_id(message: &Message, id: &Id) -> Bytes {
    if message.id().is_some_and(|own| own.raw() == id.raw()) {
        return message.raw().clone();
    }
    let at = message
        .member(&["id"])
        .expect("requests and their answers have an id");
    Splice::new(message.raw())
        .replace(at, id.raw())
        .finish()
        .expect("the range is of this very line")
}

/// Truth of `isError` as the reference, a Python program, sees it: any value but `false`, `null`, zero and empty.
fn is_true(text: &[u8]) -> bool {
    match serde_json::from_slice::<serde_json::Value>(text) {
        Ok(serde_json::Value::Null) => false,
        Ok(serde_json::Value::Bool(truth)) => truth,
        Ok(serde_json::Value::Number(number)) => number.as_f64() != Some(0.0),
        Ok(serde_json::Value::String(text)) => !text.is_empty(),
        Ok(serde_json::Value::Array(items)) => !items.is_empty(),
        Ok(serde_json::Value::Object(members)) => !members.is_empty(),
        // Too large for a double, or too deep: not zero, not empty.
        Err(_) => true,
    }
}

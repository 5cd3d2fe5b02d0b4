//! A client and a server without wires, for what stands between them.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use countersign::BoxFuture;
use countersign::call::{Call, Cancel, CancelledBy, Failure, Reply};
use countersign::message::{Id, Message, Parsed};
use countersign::outbox::Place;
use countersign::recorder::Permit;
use countersign::upstream::{Pass, ToClient, Ungoverned, Upstream};
use serde_json::value::RawValue;

/// Longest that a server may take for a call.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn message(line: &str) -> Message {
    match Message::parse(Bytes::copy_from_slice(line.as_bytes())) {
        Ok(Parsed::One(message)) => message,
        other => panic!("{line} is {other:?}"),
    }
}

/// A call that nobody takes back.
pub(crate) fn call(line: &str) -> Call {
    Call::new(message(line), Cancel::default())
}

/// The line that calls `tool` without arguments.
pub(crate) fn line(id: u32, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#)
}

pub(crate) fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

pub(crate) fn result(text: &str) -> Reply {
    Reply::result(&json(text))
}

/// The line that a client with the request id 1 gets, if it gets one.
pub(crate) fn answer(reply: &Reply) -> Option<String> {
    let id = Id::parse(b"1").unwrap();
    let line = reply.line(&id)?;
    Some(String::from_utf8(line.to_vec()).unwrap())
}

/// The error that the same client gets.
pub(crate) fn error(code: i32, text: &str) -> Option<String> {
    let text = serde_json::to_string(text).unwrap();
    Some(format!(
        r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":{text}}}}}"#
    ))
}

/// A client that keeps what it gets.
#[derive(Default)]
pub(crate) struct Client {
    answers: Mutex<Vec<(String, Option<String>)>>,
}

impl Client {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Ids, and the lines that answered them, in order.
    pub(crate) fn answers(&self) -> Vec<(String, Option<String>)> {
        self.answers.lock().unwrap().clone()
    }
}

impl ToClient for Client {
    fn forward(&self, line: Bytes) {
        panic!("no server here says anything of its own accord, such as {line:?}");
    }

    fn place(&self) -> Option<Place> {
        None
    }

    fn has_room(&self) -> bool {
        true
    }

    fn room(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn answer(&self, id: &Id, reply: Reply) {
        let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
        let line = reply.line(id).map(|line| text(&line));
        self.answers.lock().unwrap().push((text(id.raw()), line));
    }
}

type Act = dyn Fn(Permit) -> BoxFuture<Reply> + Send + Sync;

/// A server that keeps what reaches it.
pub(crate) struct Server {
    act: Box<Act>,
    seen: Arc<Seen>,
}

/// What has reached a server.
#[derive(Default)]
pub(crate) struct Seen {
    lines: Mutex<Vec<String>>,
    cancels: Mutex<Vec<&'static str>>,
}

impl Seen {
    /// The lines that were forwarded, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Who has taken calls back.
    pub(crate) fn cancels(&self) -> Vec<&'static str> {
        self.cancels.lock().unwrap().clone()
    }
}

impl Server {
    /// A server that does with a call whatever `act` does.
    pub(crate) fn acting(
        act: impl Fn(Permit) -> BoxFuture<Reply> + Send + Sync + 'static,
    ) -> (Arc<dyn Upstream>, Arc<Seen>) {
        let seen = Arc::<Seen>::default();
        let server = Self {
            act: Box::new(act),
            seen: Arc::clone(&seen),
        };
        (Arc::new(server), seen)
    }

    /// A server that answers `text` after `wait`, and keeps to the time limit and the cancel signal.
    pub(crate) fn answering(text: &'static str, wait: Duration) -> (Arc<dyn Upstream>, Arc<Seen>) {
        let seen = Arc::<Seen>::default();
        let for_act = Arc::clone(&seen);
        let act = move |permit: Permit| {
            let seen = Arc::clone(&for_act);
            Box::pin(async move { answer_within(permit, text, wait, &seen).await })
                as BoxFuture<Reply>
        };
        let server = Self {
            act: Box::new(act),
            seen: Arc::clone(&seen),
        };
        (Arc::new(server), seen)
    }
}

async fn answer_within(permit: Permit, text: &str, wait: Duration, seen: &Seen) -> Reply {
    if wait.is_zero() {
        return result(text);
    }
    let era = permit.call().era();
    tokio::select! {
        biased;
        by = permit.cancel().anyone() => {
            let (who, failure) = match by {
                CancelledBy::Client(_) => ("client", Failure::Cancelled),
                CancelledBy::Us => ("us", Failure::NotAwaited),
            };
            seen.cancels.lock().unwrap().push(who);
            Reply::failure(&failure, era)
        }
        () = tokio::time::sleep(wait) => result(text),
        () = tokio::time::sleep(permit.within()) => {
            let after = permit.within().as_secs().to_string();
            Reply::failure(&Failure::TimedOut { after }, era)
        }
    }
}

impl Upstream for Server {
    fn send(&self, permit: Permit, _: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        let line = String::from_utf8(permit.line().to_vec()).unwrap();
        self.seen.lines.lock().unwrap().push(line);
        (self.act)(permit)
    }

    fn pass(&self, pass: Pass, _: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        panic!("only calls come through the gate, not {pass:?}");
    }

    fn tell(&self, message: Ungoverned) {
        panic!("only calls come through the gate, not {message:?}");
    }
}

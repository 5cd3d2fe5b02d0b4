//! Where calls go, and where what comes back goes.
//!
//! A governed call goes up only with a [`Permit`]. Everything else goes as [`Ungoverned`], which
//! cannot be made from a governed message: there is no third way.

pub mod child;
mod patience;
mod pending;
mod setup;
mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::BoxFuture;
use crate::call::{Cancel, Era, Reply};
use crate::message::{Id, Message};
use crate::outbox::Place;
use crate::recorder::Permit;

/// A message that no rule of ours concerns.
#[derive(Clone, Debug)]
pub struct Ungoverned(Message);

impl Ungoverned {
    /// Lets a message pass that nobody could take for a governed one.
    ///
    /// # Errors
    /// The message, when it is governed.
    pub fn new(message: Message) -> Result<Self, Box<Message>> {
        if message.governed() {
            Err(Box::new(message))
        } else {
            Ok(Self(message))
        }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.0
    }
}

/// A request that passes ungoverned, with its time limit and cancel signal.
#[derive(Debug)]
pub struct Pass {
    /// The request.
    pub request: Ungoverned,
    /// How long the upstream may take; `None` for those that wait by nature.
    pub within: Option<Duration>,
    /// Fires when the client takes the request back.
    pub cancel: Cancel,
}

impl Pass {
    /// The era of the request.
    pub fn era(&self) -> Era {
        Era::of(self.request.message())
    }
}

/// The client, as an upstream sees it: where its messages go, in order.
pub trait ToClient: Send + Sync {
    /// Passes on what the server sends of its own accord: a notification, a request.
    fn forward(&self, line: Bytes);

    /// Keeps the place of an answer that has just arrived, so that nothing that the server sends later
    /// overtakes it. `None` where answers are not part of one order.
    fn place(&self) -> Option<Place>;

    /// Whether more may be queued for it.
    fn has_room(&self) -> bool;

    /// Waits until more may be queued for it.
    fn room(&self) -> BoxFuture<()>;

    /// Answers request `id`, in the place that the reply has kept.
    fn answer(&self, id: &Id, reply: Reply);
}

/// A server, or whatever stands for one.
pub trait Upstream: Send + Sync {
    /// Forwards a permitted call and waits for its reply, which must come: within [`Permit::within`], or
    /// soon after [`Permit::cancel`] has fired. The frame waits as long, whatever layers do.
    fn send(&self, permit: Permit, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply>;

    /// Forwards an ungoverned request and waits for its reply.
    fn pass(&self, request: Pass, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply>;

    /// Forwards a notification or a response.
    fn tell(&self, message: Ungoverned);
}

/// What a request is called in messages to people: its tool, or its method.
pub(crate) fn label(message: &Message) -> String {
    let tool = message
        .governed()
        .then(|| message.tool_call().name())
        .flatten();
    tool.or_else(|| message.method().map(str::to_owned))
        .unwrap_or_else(|| "a request".into())
}

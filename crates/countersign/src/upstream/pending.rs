//! Requests that a server owes an answer, and questions that it has asked the client.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::call::{Era, Failure, Reply, under_id};
use crate::message::{Id, Message};
use crate::outbox::{Outbox, Queued};
use crate::upstream::ToClient;

/// Ids whose late answers can still come. More than clients may have in flight, many times over.
const ABANDONED_MAX: usize = 10_000;

/// One request that the server has, or is about to get.
pub(super) struct Pending {
    pub(super) reply: oneshot::Sender<Reply>,
    /// Where its answer will be placed; none for requests of our own.
    pub(super) to_client: Option<Arc<dyn ToClient>>,
    /// The tool or method, for messages.
    pub(super) label: String,
    /// The dialect of whoever asked.
    pub(super) era: Era,
    /// The generation of the process that was given the line; none while it waits for a new process.
    pub(super) sent: Option<u64>,
    /// Its line in the queue towards the process; none for requests of our own.
    pub(super) queued: Option<Queued>,
    /// The request, where a new process gets it again or where an answer teaches us something.
    pub(super) request: Option<Kept>,
}

impl Pending {
    /// Replies with a failure.
    pub(super) fn fail(self, failure: &Failure) {
        // Whoever no longer waits has been told something else.
        let _ = self.reply.send(Reply::failure(failure, self.era));
    }
}

/// A request that is kept whole.
pub(super) enum Kept {
    /// To be remembered as set up once it is agreed to.
    Setup(Message),
    /// To be sent again to a new process, under the same id.
    Listen {
        /// The request.
        message: Message,
        /// The server has acknowledged it, so a second acknowledgement is not for the client.
        acknowledged: bool,
    },
}

/// All requests in flight at one server, by the id on the wire.
#[derive(Default)]
pub(super) struct Requests {
    pending: HashMap<Id, Pending>,
    abandoned: HashSet<Id>,
    /// In the order in which they were given up.
    abandoned_order: VecDeque<Id>,
    substitutes: u64,
}

impl Requests {
    /// The id to use on the wire: the client's own, unless an answer to an earlier request under it may
    /// still come and would be taken for this one's. A listen keeps its id, which stands in all that
    /// comes of it; an earlier one that was taken back has no answer.
    pub(super) fn wire_id(&mut self, id: &Id, listens: bool) -> Id {
        if self.pending.contains_key(id) || (self.abandoned.contains(id) && !listens) {
            self.own_id()
        } else {
            id.clone()
        }
    }

    /// An id that no client uses.
    pub(super) fn own_id(&mut self) -> Id {
        self.substitutes += 1;
        let text = format!("\"countersign/{}\"", self.substitutes);
        Id::parse(text.as_bytes()).expect("a short string is an id")
    }

    /// Notes a request of our own, under an id from [`Self::own_id`].
    pub(super) fn insert_own(&mut self, id: Id) -> oneshot::Receiver<Reply> {
        let (reply, answer) = oneshot::channel();
        let label = "a repeated request".to_owned();
        let pending = Pending {
            reply,
            to_client: None,
            label,
            era: Era::Legacy,
            sent: Some(0),
            queued: None,
            request: None,
        };
        self.pending.insert(id, pending);
        answer
    }

    pub(super) fn insert(&mut self, id: Id, pending: Pending) {
        self.pending.insert(id, pending);
    }

    /// The request that an answer under `id` belongs to. An id in another spelling counts when just one
    /// request in flight can be meant.
    pub(super) fn answered(&mut self, id: &Id) -> Option<Pending> {
        if let Some(pending) = self.pending.remove(id) {
            return Some(pending);
        }
        if self.abandoned.remove(id) {
            self.abandoned_order.retain(|known| known != id);
            return None;
        }
        let mut alike = self.pending.keys().filter(|known| known.is_like(id));
        let only = alike.next().filter(|_| alike.next().is_none()).cloned()?;
        self.pending.remove(&only)
    }

    /// Nobody waits for the answer any more; should it still come, it is dropped.
    pub(super) fn abandon(&mut self, id: &Id) {
        if self
            .pending
            .remove(id)
            .is_none_or(|pending| pending.sent.is_none())
        {
            return;
        }
        if self.abandoned_order.len() == ABANDONED_MAX
            && let Some(oldest) = self.abandoned_order.pop_front()
        {
            self.abandoned.remove(&oldest);
        }
        self.abandoned.insert(id.clone());
        self.abandoned_order.push_back(id.clone());
    }

    pub(super) fn get_mut(&mut self, id: &Id) -> Option<&mut Pending> {
        self.pending.get_mut(id)
    }

    /// What an ended process still owed, but for what a new one gets again, through `outbox`: unanswered
    /// handshakes and open listens.
    pub(super) fn process_ended(&mut self, outbox: &Outbox) -> Vec<Pending> {
        self.abandoned.clear();
        self.abandoned_order.clear();
        let lost = self.pending.extract_if(|id, pending| {
            let kept = match &pending.request {
                _ if pending.sent.is_none() => return false,
                Some(Kept::Setup(message)) if message.method() == Some("initialize") => message,
                Some(Kept::Listen { message, .. }) => message,
                _ => return true,
            };
            pending.queued = Some(outbox.push_retractable(under_id(kept, id)));
            pending.sent = None;
            false
        });
        lost.map(|(_, pending)| pending).collect()
    }

    /// A new process has been given every line that waited.
    pub(super) fn sent_to(&mut self, generation: u64) {
        for pending in self.pending.values_mut() {
            pending.sent.get_or_insert(generation);
        }
    }

    /// Everything, at the end.
    pub(super) fn drain(&mut self) -> Vec<Pending> {
        self.pending.drain().map(|(_, pending)| pending).collect()
    }
}

/// Questions that a server has asked and the client has not answered, by the id that the client sees.
#[derive(Default)]
pub(super) struct Asks {
    open: HashMap<Id, Asked>,
}

/// One question.
pub(super) struct Asked {
    /// The server's own id, which the answer goes back under.
    pub(super) id: Id,
}

/// Questions that one server may have open; more are passed on, but no longer stop the clock.
const ASKS_MAX: usize = 1024;

impl Asks {
    /// Notes a question and says under which id the client is to see it. A process that replaced another
    /// counts from 0 again, so its ids are marked with its generation: a late answer to the old process
    /// must not reach the new one.
    pub(super) fn ask(&mut self, id: &Id, generation: u64) -> Id {
        let shown = match generation {
            0 => id.clone(),
            _ => {
                let raw = String::from_utf8_lossy(id.raw()).into_owned();
                let text = serde_json::to_string(&format!("countersign/{generation}/{raw}"))
                    .expect("a string is JSON");
                Id::parse(text.as_bytes()).unwrap_or_else(|| id.clone())
            }
        };
        if self.open.len() < ASKS_MAX {
            self.open.insert(shown.clone(), Asked { id: id.clone() });
        }
        shown
    }

    /// The client has answered, or the server has taken it back.
    pub(super) fn settle(&mut self, shown: &Id) -> Option<Asked> {
        self.open.remove(shown)
    }

    /// The id that the client sees for the server's own.
    pub(super) fn shown(&self, own: &Id) -> Option<Id> {
        self.open
            .iter()
            .find(|(_, asked)| asked.id == *own)
            .map(|(shown, _)| shown.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The process has ended: nobody waits for these answers.
    pub(super) fn drain(&mut self) -> Vec<Id> {
        self.open.drain().map(|(shown, _)| shown).collect()
    }
}

#[cfg(test)]
mod tests;

//! What the client has set up at a server, so that a new process can be set up again.
//!
//! Legacy: the handshake, the log level, the resource subscriptions. (A modern server keeps nothing
//! between requests; its open `subscriptions/listen` are requests in flight, and sent again as such.)

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::call::under_id;
use crate::message::{Id, Message};

/// Subscriptions that are remembered; a client with more has to subscribe again after a crash.
const SUBSCRIPTIONS_MAX: usize = 4096;

/// What a client has set up.
#[derive(Default)]
pub(super) struct Setup {
    initialize: Option<Message>,
    initialized: Option<Bytes>,
    log_level: Option<Message>,
    subscriptions: BTreeMap<String, Message>,
}

impl Setup {
    /// Whether a request sets something up, if the server agrees.
    pub(super) fn concerns(message: &Message) -> bool {
        matches!(
            message.method(),
            Some(
                "initialize" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            )
        )
    }

    /// The server has agreed to `request`.
    pub(super) fn agreed(&mut self, request: Message) {
        let uri = request.string(&["params", "uri"]);
        match request.method() {
            Some("initialize") => {
                // A client may have said that it is ready before it was answered.
                *self = Self {
                    initialize: Some(request),
                    initialized: self.initialized.take(),
                    ..Self::default()
                }
            }
            Some("logging/setLevel") => self.log_level = Some(request),
            Some("resources/subscribe") if self.subscriptions.len() < SUBSCRIPTIONS_MAX => {
                self.subscriptions.extend(uri.map(|uri| (uri, request)));
            }
            Some("resources/unsubscribe") => {
                uri.map(|uri| self.subscriptions.remove(&uri));
            }
            _ => {}
        }
    }

    /// The client has sent a notification.
    pub(super) fn told(&mut self, message: &Message) {
        if message.method() == Some("notifications/initialized") {
            self.initialized = Some(message.raw().clone());
        }
    }

    /// The handshake's request, under the id `own`.
    pub(super) fn initialize(&self, own: &Id) -> Option<Bytes> {
        self.initialize
            .as_ref()
            .map(|request| under_id(request, own))
    }

    /// The notification that ends the handshake.
    pub(super) fn initialized(&self) -> Option<Bytes> {
        self.initialized.clone()
    }

    /// Every later request that sets something up, under ids that `own` gives.
    pub(super) fn rest(&self, mut own: impl FnMut() -> Id) -> Vec<(Id, Bytes)> {
        let requests = self.log_level.iter().chain(self.subscriptions.values());
        requests
            .map(|request| {
                let id = own();
                let line = under_id(request, &id);
                (id, line)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;

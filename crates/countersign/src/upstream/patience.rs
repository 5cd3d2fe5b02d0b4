//! How long a server may still take. The clock stands still while the client owes it an answer.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock;

/// A clock is stopped for one question at most this long: people answer elicitations, but a client that
/// never answers must not keep requests open for ever.
const ASK_WAIT_MAX: Duration = Duration::from_secs(3600);

/// The server's own time.
pub(super) struct Patience {
    start: Instant,
    pauses: Mutex<Pauses>,
    resumed: watch::Sender<()>,
}

#[derive(Default)]
struct Pauses {
    since: Option<Instant>,
    past: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self {
            start: clock::now(),
            pauses: Mutex::default(),
            resumed: watch::Sender::new(()),
        }
    }

    /// Stops the clock; stopping it again changes nothing.
    pub(super) fn pause(&self) {
        self.pauses().since.get_or_insert_with(clock::now);
    }

    /// Lets the clock go on.
    pub(super) fn resume(&self) {
        let mut pauses = self.pauses();
        if let Some(since) = pauses.since.take() {
            pauses.past += since.elapsed().min(ASK_WAIT_MAX);
            drop(pauses);
            self.resumed.send_replace(());
        }
    }

    /// Returns when the server has had `within` of its own time from now.
    pub(super) async fn exhausted(&self, within: Duration) {
        let end = self.elapsed().saturating_add(within);
        loop {
            let left = end.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            if self.pause_left().is_none() {
                tokio::time::sleep(left).await;
                continue;
            }
            // Subscribed before the second look, so that no resumption is missed.
            let mut resumed = self.resumed.subscribe();
            if let Some(pause_left) = self.pause_left() {
                tokio::select! {
                    () = tokio::time::sleep(pause_left + left) => {}
                    // The sender lives in `self`, so this cannot fail.
                    _ = resumed.changed() => {}
                }
            }
        }
    }

    fn elapsed(&self) -> Duration {
        let pauses = self.pauses();
        let pause = pauses
            .since
            .map_or(Duration::ZERO, |since| since.elapsed().min(ASK_WAIT_MAX));
        self.start.elapsed().saturating_sub(pauses.past + pause)
    }

    fn pause_left(&self) -> Option<Duration> {
        self.pauses()
            .since
            .map(|since| ASK_WAIT_MAX.saturating_sub(since.elapsed()))
    }

    fn pauses(&self) -> std::sync::MutexGuard<'_, Pauses> {
        self.pauses.lock().expect("no code that holds it panics")
    }
}

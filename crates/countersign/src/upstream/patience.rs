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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What happens to the clock at a second of the world's time.
    type Event = (u64, fn(&Patience));

    /// The world's seconds until a request that comes at second 0 has had 60 of the server's own.
    async fn exhausted_after(patience: &Patience, events: &[Event]) -> u64 {
        let begun = clock::now();
        let happen = async {
            for (at, event) in events {
                tokio::time::sleep_until(begun + *at as u32 * SECOND).await;
                event(patience);
            }
        };
        let wait = async {
            patience.exhausted(60 * SECOND).await;
            begun.elapsed().as_secs()
        };
        tokio::join!(wait, happen).0
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_time_counts_in_which_the_client_owes_nothing() {
        let pause: fn(&Patience) = Patience::pause;
        let resume: fn(&Patience) = Patience::resume;
        let cases: [(&[Event], u64); 7] = [
            (&[], 60),
            (&[(0, pause), (100, resume)], 160),
            (&[(10, pause), (100, resume)], 150),
            (&[(10, pause), (20, pause), (100, resume)], 150),
            (&[(10, resume), (20, pause), (30, resume), (40, resume)], 70),
            (&[(10, pause), (20, resume), (30, pause), (40, resume)], 80),
            // Nobody answers: the clock stands still for an hour, and no longer.
            (&[(10, pause)], 3660),
        ];
        for (events, seconds) in cases {
            let patience = Patience::new();
            assert_eq!(exhausted_after(&patience, events).await, seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_never_answered_stops_the_clock_once() {
        let patience = Patience::new();
        patience.pause();
        tokio::time::sleep(2 * ASK_WAIT_MAX).await;
        assert_eq!(exhausted_after(&patience, &[]).await, 60);
        patience.resume();
        assert_eq!(exhausted_after(&patience, &[]).await, 60);
    }
}

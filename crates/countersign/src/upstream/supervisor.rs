//! The processes of a child, one after the other: started, fed, read, ended, replaced.
//!
//! A process that ends by itself is replaced as long as the budget lasts, and the new one is set up as
//! the client had set up the old one before it gets anything else. No request is answered here.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::child::{Config, Ended, Graces, Shared, State};
use crate::clock;
use crate::lines::Lines;
use crate::message::LINE_BYTES_MAX;
use crate::outbox::{self, Outbox, QUEUED_BYTES_MAX};
use crate::process;
use crate::stderr::note;

/// After this long without an end, the whole restart budget is there again.
const QUIET: Duration = Duration::from_secs(60);
/// The wait before the first restart; it doubles with each one.
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
/// The longest wait before a restart: a person watches.
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// How long a process may live on after it has closed its output, and how long output is read on after
/// a process has ended (a grandchild may hold the pipe open).
const LINGER: Duration = Duration::from_secs(1);
/// How long a new process may take to answer the repeated handshake: as a client's `initialize`.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(300);

/// Runs one process after the other.
pub(super) async fn run(shared: Arc<Shared>, config: Config, child: process::Child) {
    let mut budget = Budget::new(config.max_restarts);
    let mut running = Some(child);
    let mut code = 1;
    while let Some(child) = running.take() {
        let ended = attend(&shared, child).await;
        code = ended.code;
        shared.process_ended(&ended);
        if shared.closing.initialized() || shared.state().never_started.is_some() {
            break;
        }
        let Some(wait) = budget.spend(clock::now()) else {
            note!(
                "the server ended with code {code} and is not started again: {} restarts are spent",
                budget.max
            );
            break;
        };
        note!(
            "the server ended with code {code}; starting it again in {} ms",
            wait.as_millis()
        );
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = shared.closing.wait() => break,
        }
        shared.state().restarts += 1;
        match process::Child::spawn(&config.spec) {
            Ok(child) => running = Some(child),
            Err(error) => note!("the server could not be started again: {error}"),
        }
    }
    shared.end(code);
}

/// One process, from its start to its end.
async fn attend(shared: &Arc<Shared>, mut child: process::Child) -> Ended {
    let (stdin, stdout) = (child.take_stdin(), child.take_stdout());
    let writer = tokio::spawn(write(Arc::clone(shared), stdin));
    let mut output = tokio::spawn(read(Arc::clone(shared), stdout));
    let mut silent = false;
    let graces = tokio::select! {
        _ = &mut output => {
            silent = true;
            // Its output is at its end; it usually is, too.
            let _ = tokio::time::timeout(LINGER, child.wait()).await;
            Graces { close: Duration::ZERO, terminate: LINGER }
        }
        _ = child.wait() => Graces { close: Duration::ZERO, terminate: LINGER },
        graces = shared.closing.wait() => *graces,
    };
    if !graces.close.is_zero() {
        // The writer empties the queue and then closes the process's input.
        tokio::select! {
            _ = tokio::time::timeout(graces.close, child.wait()) => {}
            () = shared.hurry.notified() => {}
        }
    }
    if let Some(failure) = child.start_failure() {
        note!("{failure}");
        let mut state = shared.state();
        if state.generation == 0 {
            state.never_started = Some(failure.to_string());
        }
    }
    let last_words = Some(child.stderr_tail()).filter(|words| !words.is_empty());
    writer.abort();
    // Whatever of the group is left has nobody to talk to.
    let exit = child.shut_down(Duration::ZERO, graces.terminate).await;
    // What it wrote last is still in the pipe; a process that escaped the group may hold it open.
    if !silent && tokio::time::timeout(LINGER, &mut output).await.is_err() {
        output.abort();
    }
    // 1 where the system gave no code, as the reference has it.
    Ended {
        code: exit.reference_code().unwrap_or(1),
        last_words,
    }
}

/// Passes the process's output on until it ends.
async fn read(shared: Arc<Shared>, stdout: Option<pipe::Receiver>) {
    let Some(stdout) = stdout else { return };
    let mut lines = Lines::new(stdout, LINE_BYTES_MAX);
    let mut arrived = Vec::new();
    loop {
        if !shared.client.has_room() {
            shared.client.room().await;
        }
        // An error of a pipe that we hold is its end.
        let more = lines.read(&mut arrived).await.unwrap_or(false);
        arrived.drain(..).for_each(|line| shared.take_line(line));
        if !more {
            return;
        }
    }
}

async fn write(shared: Arc<Shared>, stdin: Option<pipe::Sender>) {
    let Some(mut stdin) = stdin else { return };
    let replaced = shared.state().generation > 0;
    if replaced && !set_up_again(&shared, &mut stdin).await {
        // Closing its input ends the process, and that counts as one more end.
        return note!("the new server did not answer the repeated `initialize`");
    }
    let Some(reader) = shared.state().unread.take() else {
        return;
    };
    // A process that no longer reads has ended or will: that is noticed where its output is read.
    let _ = outbox::write_all_to(reader, &mut stdin).await;
}

/// Sets a new process up as the client had set up the old one, before it gets any line that waits.
async fn set_up_again(shared: &Shared, stdin: &mut pipe::Sender) -> bool {
    let (lines, reader) = Outbox::new(QUEUED_BYTES_MAX);
    let handshake = {
        let mut state = shared.state();
        let id = state.requests.own_id();
        state.setup.initialize(&id).map(|line| {
            lines.push(line);
            state.requests.insert_own(id)
        })
    };
    let shake = async {
        let _close = CloseOnDrop(&lines);
        if let Some(answer) = handshake {
            let answer = tokio::time::timeout(HANDSHAKE_WAIT, answer).await;
            if !matches!(answer, Ok(Ok(reply)) if reply.result_raw().is_some()) {
                return false;
            }
        }
        let mut state = shared.state();
        let State {
            setup, requests, ..
        } = &mut *state;
        setup
            .initialized()
            .into_iter()
            .for_each(|line| lines.push(line));
        for (id, line) in setup.rest(|| requests.own_id()) {
            lines.push(line);
            // Its answer is for nobody: the client had one already.
            drop(requests.insert_own(id));
        }
        state.up = true;
        let generation = state.generation;
        state.requests.sent_to(generation);
        true
    };
    let (done, _) = tokio::join!(shake, outbox::write_all_to(reader, stdin));
    done
}

struct CloseOnDrop<'a>(&'a Outbox);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// How often a process may be replaced. What was spent comes back after a quiet minute.
struct Budget {
    max: u32,
    spent: u32,
    last: Option<Instant>,
}

impl Budget {
    fn new(max: u32) -> Self {
        Self {
            max,
            spent: 0,
            last: None,
        }
    }

    /// How long to wait before the next start, if there may be one.
    fn spend(&mut self, now: Instant) -> Option<Duration> {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) >= QUIET)
        {
            self.spent = 0;
        }
        self.last = Some(now);
        if self.spent == self.max {
            return None;
        }
        let wait = BACK_OFF_MIN
            .saturating_mul(1 << self.spent.min(16))
            .min(BACK_OFF_MAX);
        self.spent += 1;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_wait_longer_each_time_and_a_quiet_minute_restores_them() {
        let start = clock::now();
        let mut budget = Budget::new(3);
        let mut spend = |after: Duration| budget.spend(start + after).map(|wait| wait.as_millis());
        let second = Duration::from_secs(1);
        assert_eq!(spend(second), Some(50));
        assert_eq!(spend(2 * second), Some(100));
        assert_eq!(spend(3 * second), Some(200));
        assert_eq!(spend(62 * second), None, "not yet quiet for a minute");
        assert_eq!(spend(122 * second), Some(50));
    }

    #[test]
    fn the_wait_before_a_restart_is_bounded_and_a_budget_may_be_none() {
        let now = clock::now();
        let mut budget = Budget::new(100);
        let longest = (0..100).filter_map(|_| budget.spend(now)).max();
        assert_eq!(longest, Some(BACK_OFF_MAX));
        assert_eq!(Budget::new(0).spend(now), None);
    }
}

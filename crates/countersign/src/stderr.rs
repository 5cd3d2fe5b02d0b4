//! Text for people, on our standard error.
//!
//! The one idea: nothing that serves a call may wait for standard error. A host that does not read
//! it would otherwise stop us, and a server whose stderr we copy. So text goes into one bounded
//! buffer that a thread of its own empties; what does not fit is dropped and counted, and the count
//! is written where it is missing. Nothing is interpreted here.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use crate::descriptor::write_whole;

/// Bytes that may wait to be written. More than any host lags behind that reads at all.
pub const WAITING_BYTES_MAX: usize = 1024 * 1024;

static QUEUE: Queue = Queue {
    state: Mutex::new(State {
        waiting: Vec::new(),
        dropped_bytes: 0,
        writing: false,
    }),
    changed: Condvar::new(),
};

/// Owner of the text that waits. One for the process, as standard error is one.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: Vec<u8>,
    dropped_bytes: u64,
    writing: bool,
}

/// Queues text, newline included, without ever waiting. It is written whole or dropped whole.
pub fn write(text: &[u8]) {
    static WRITER: Once = Once::new();
    WRITER.call_once(|| {
        // Without a thread the text stays queued up to the bound: there is nobody to tell.
        let _ = std::thread::Builder::new()
            .name("stderr".to_owned())
            .spawn(write_out);
    });
    let mut state = QUEUE.lock();
    if state.waiting.len() + text.len() > WAITING_BYTES_MAX {
        state.dropped_bytes += text.len() as u64;
    } else {
        state.waiting.extend_from_slice(text);
    }
    drop(state);
    QUEUE.changed.notify_all();
}

/// Blocks until everything queued is written, for at most `wait`: for the end of the program.
/// Says whether it is.
pub fn settle(wait: Duration) -> bool {
    let state = QUEUE.lock();
    let (state, _) = QUEUE
        .changed
        .wait_timeout_while(state, wait, |state| !state.is_idle())
        .unwrap_or_else(PoisonError::into_inner);
    state.is_idle()
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_idle(&self) -> bool {
        !self.writing && !self.has_work()
    }

    fn has_work(&self) -> bool {
        !self.waiting.is_empty() || self.dropped_bytes > 0
    }
}

/// The thread: writes what waits, for as long as the process lives.
fn write_out() {
    // A duplicate, so that the lock of the standard library's handle is not held while a write
    // blocks. Without a descriptor the text goes nowhere, as it would have anyway.
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    loop {
        let (mut text, dropped_bytes) = take_text();
        if dropped_bytes > 0 {
            let note = format!(
                "countersign: {dropped_bytes} bytes for stderr were dropped here: it was not read in time\n"
            );
            text.extend_from_slice(note.as_bytes());
        }
        if let Ok(file) = &stderr {
            // Dropped: standard error is where this would be told.
            let _ = write_whole(file, &text);
        }
        QUEUE.lock().writing = false;
        QUEUE.changed.notify_all();
    }
}

fn take_text() -> (Vec<u8>, u64) {
    let mut state = QUEUE
        .changed
        .wait_while(QUEUE.lock(), |state| !state.has_work())
        .unwrap_or_else(PoisonError::into_inner);
    state.writing = true;
    let text = std::mem::take(&mut state.waiting);
    (text, std::mem::take(&mut state.dropped_bytes))
}

/// Says something to whoever reads our stderr: one line that begins with our name.
pub fn say(text: std::fmt::Arguments<'_>) {
    write(format!("countersign: {text}\n").as_bytes());
}

/// [`say`] with the arguments of `format!`.
macro_rules! note {
    ($($text:tt)*) => { $crate::stderr::say(format_args!($($text)*)) };
}
pub(crate) use note;

//! The lines on their way to one writer, in order.
//!
//! The one idea: a line's place in the order can be taken before the line exists, so that an
//! answer which must first be written down still leaves before whatever came after it. One
//! consumer takes the lines that are ready and gives many of them to one `write(2)`. The queue is
//! bounded by bytes: whoever feeds it asks for [`Outbox::room`] first. It never waits inside
//! `push`, never reorders, and knows no protocol.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Default for the bytes that may be queued before [`Outbox::room`] waits: as much as one line of
/// the greatest permitted length.
pub const QUEUED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Lines up to this length, in bytes, are copied together; longer ones are written from where they
/// are. Copying 16 KiB costs less than a second `write(2)`.
const JOINED_LINE_MAX: usize = 16 * 1024;

/// Bytes copied together for one `write(2)`: what a pipe of default size takes at once.
const JOINED_MAX: usize = 64 * 1024;

/// Bytes taken from the queue at once, so that the lock is held for a short time and `room` opens
/// while a long queue is written. A single line may be longer.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// Lines taken from the queue at once, for the same reason when lines are short.
const BATCH_LINES_MAX: usize = 1024;

/// What a queued line counts for beside its bytes, so that a queue of empty lines is bounded too.
const SLOT_BYTES: usize = size_of::<Slot>();

/// Slots that an empty queue keeps memory for, after a burst has made it long.
const SLOTS_KEPT_MAX: usize = 1024;

/// The sending half: any number of clones, on any thread.
#[derive(Clone, Debug)]
pub struct Outbox {
    senders: Arc<Senders>,
}

/// The receiving half, for [`write_all_to`]. Dropping it breaks the queue.
#[derive(Debug)]
pub struct OutboxReader {
    shared: Arc<Shared>,
}

/// A place in the order, taken before its line exists. Dropping it gives the place up.
#[derive(Debug)]
#[must_use = "a place that is dropped is given up, and a place that is held stops what is behind it"]
pub struct Place {
    shared: Arc<Shared>,
    /// `None` when there is no such place: it is settled, or the queue was at its end when asked.
    number: Option<u64>,
}

/// Which line [`Outbox::push_retractable`] has appended.
#[derive(Clone, Copy, Debug)]
pub struct Queued(Option<u64>);

/// Closes the queue when the last clone of an [`Outbox`] goes.
#[derive(Debug)]
struct Senders {
    shared: Arc<Shared>,
}

/// Owner of the queue. The lock is held for a few instructions and never across an await.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the consumer.
    ready: Notify,
    /// Wakes those who wait for room or for the end.
    moved: Notify,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    slots: VecDeque<Slot>,
    /// Number of the slot at the front; slots are numbered in the order of their arrival.
    front: u64,
    /// Bytes queued or being written, each line with its newline.
    queued_bytes: usize,
    /// Bytes of it that the consumer has taken and not yet written.
    writing_bytes: usize,
    /// Lines that the consumer has taken and not yet written.
    writing_lines: u64,
    lost: u64,
    closed: bool,
    broken: bool,
    consumer_waits: bool,
}

#[derive(Debug)]
enum Slot {
    Awaited,
    Ready(Bytes),
    GivenUp,
}

impl Outbox {
    /// A queue in which [`Outbox::room`] waits while more than `limit` bytes are queued.
    pub fn new(limit: usize) -> (Self, OutboxReader) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            ready: Notify::new(),
            moved: Notify::new(),
            limit,
        });
        let senders = Arc::new(Senders {
            shared: Arc::clone(&shared),
        });
        (Self { senders }, OutboxReader { shared })
    }

    /// Appends a line (without its newline). Dropped and counted once the queue is closed or broken.
    pub fn push(&self, line: Bytes) {
        // Nobody wants it back.
        let _ = self.push_retractable(line);
    }

    /// As [`Self::push`], for a line that [`Self::retract`] may have to take out again.
    pub fn push_retractable(&self, line: Bytes) -> Queued {
        let shared = self.shared();
        let (number, wake) = {
            let mut state = shared.lock();
            if state.closed || state.broken {
                state.lost += 1;
                return Queued(None);
            }
            let number = state.front + state.slots.len() as u64;
            state.queued_bytes += line.len() + 1;
            state.slots.push_back(Slot::Ready(line));
            (number, state.consumer_can_go())
        };
        shared.wake_consumer(wake);
        Queued(Some(number))
    }

    /// Takes a line out again. Says whether it did: not if the consumer has it already.
    pub fn retract(&self, queued: Queued) -> bool {
        let shared = self.shared();
        let mut state = shared.lock();
        let index = queued.0.and_then(|number| number.checked_sub(state.front));
        let slot = index.and_then(|index| state.slots.get_mut(usize::try_from(index).ok()?));
        let Some(slot @ Slot::Ready(_)) = slot else {
            return false;
        };
        if let Slot::Ready(line) = std::mem::replace(slot, Slot::GivenUp) {
            state.queued_bytes -= line.len() + 1;
        }
        drop(state);
        shared.moved.notify_waiters();
        true
    }

    /// Takes the next place in the order, to be filled later. What is behind it waits for it.
    pub fn place(&self) -> Place {
        let shared = self.shared();
        let mut state = shared.lock();
        let mut number = None;
        if !state.closed && !state.broken {
            number = Some(state.front + state.slots.len() as u64);
            state.slots.push_back(Slot::Awaited);
        }
        Place {
            shared: Arc::clone(shared),
            number,
        }
    }

    /// Waits while more than the limit is queued, where every line counts for some bytes more than
    /// it has. Returns at once when the queue is broken, since
    /// nothing queues there any more.
    pub async fn room(&self) {
        let shared = self.shared();
        shared
            .until(|state| state.weight() <= shared.limit || state.broken)
            .await;
    }

    /// Bytes queued or being written at this moment, newlines included.
    pub fn queued_bytes(&self) -> usize {
        self.shared().lock().queued_bytes
    }

    /// Says that nothing more comes. Places that were taken before may still be filled.
    pub fn close(&self) {
        self.shared().close();
    }

    /// Waits until every line pushed so far and every place taken so far is written or given up,
    /// or the queue is broken.
    pub async fn drained(&self) {
        self.shared()
            .until(|state| state.broken || (state.slots.is_empty() && state.writing_bytes == 0))
            .await;
    }

    /// Whether the writer failed or went away: what was queued is gone, and what comes is dropped.
    pub fn is_broken(&self) -> bool {
        self.shared().lock().broken
    }

    /// Number of lines that were accepted or offered and never written.
    pub fn lost_lines(&self) -> u64 {
        self.shared().lock().lost
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.senders.shared
    }
}

impl Place {
    /// Puts the line (without its newline) in this place. Dropped and counted if the place was
    /// taken after the end of the queue, or the queue is broken.
    pub fn fill(mut self, line: Bytes) {
        match self.number.take() {
            Some(number) => self.shared.settle(number, Slot::Ready(line)),
            None => self.shared.lock().lost += 1,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.shared.settle(number, Slot::GivenUp);
        }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let finished = state.closed && state.slots.is_empty() && state.writing_bytes == 0;
        if !finished {
            state.break_off();
        }
        drop(state);
        self.shared.moved.notify_waiters();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in this file can panic between two changes that belong together, so a poisoned
        // lock holds a sound state.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wake_consumer(&self, wake: bool) {
        if wake {
            self.ready.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_one();
    }

    /// Decides what stands in the place `number`, or counts the line if the queue is broken.
    fn settle(&self, number: u64, slot: Slot) {
        let mut state = self.lock();
        if state.broken {
            if matches!(slot, Slot::Ready(_)) {
                state.lost += 1;
            }
            return;
        }
        if let Slot::Ready(line) = &slot {
            state.queued_bytes += line.len() + 1;
        }
        // An awaited slot is never taken by the consumer, so it is still behind the front.
        let index = usize::try_from(number - state.front).expect("an index into a queue in memory");
        state.slots[index] = slot;
        let wake = state.consumer_can_go();
        drop(state);
        self.wake_consumer(wake);
    }

    /// Waits until `condition` holds of the state.
    async fn until(&self, condition: impl Fn(&State) -> bool) {
        loop {
            // Made before the look at the state: it hears of every change from here on.
            let moved = self.moved.notified();
            if condition(&self.lock()) {
                return;
            }
            moved.await;
        }
    }
}

impl State {
    fn weight(&self) -> usize {
        self.queued_bytes + SLOT_BYTES * self.slots.len()
    }

    /// Whether the sleeping consumer has a reason to wake; it is told once.
    fn consumer_can_go(&mut self) -> bool {
        let go = self.consumer_waits && !matches!(self.slots.front(), Some(Slot::Awaited) | None);
        if go {
            self.consumer_waits = false;
        }
        go
    }

    /// Moves the lines that are ready at the front into `batch`, as far as one batch goes.
    fn take_ready(&mut self, batch: &mut Vec<Bytes>) {
        let mut taken = 0;
        while taken < BATCH_BYTES_MAX && batch.len() < BATCH_LINES_MAX {
            match self.slots.front() {
                None | Some(Slot::Awaited) => break,
                Some(Slot::Ready(_) | Slot::GivenUp) => {}
            }
            self.front += 1;
            if let Some(Slot::Ready(line)) = self.slots.pop_front() {
                taken += line.len() + 1;
                batch.push(line);
            }
        }
        self.writing_bytes += taken;
        self.writing_lines += batch.len() as u64;
    }

    fn break_off(&mut self) {
        let ready = self
            .slots
            .iter()
            .filter(|slot| matches!(slot, Slot::Ready(_)))
            .count();
        self.lost += ready as u64 + self.writing_lines;
        self.front += self.slots.len() as u64;
        self.slots = VecDeque::new();
        self.queued_bytes = 0;
        self.writing_bytes = 0;
        self.writing_lines = 0;
        self.broken = true;
    }
}

impl OutboxReader {
    /// Waits for lines at the front of the queue; leaves `batch` empty when none will come.
    async fn next(&mut self, batch: &mut Vec<Bytes>) {
        while self.take_or_sleep(batch) {
            // Whoever waits for the end must hear of places that were given up, too.
            self.shared.moved.notify_waiters();
            self.shared.ready.notified().await;
        }
    }

    /// Takes what is ready; says whether to sleep, because nothing is and more may come.
    fn take_or_sleep(&mut self, batch: &mut Vec<Bytes>) -> bool {
        let mut state = self.shared.lock();
        state.take_ready(batch);
        let sleep = batch.is_empty() && !(state.closed && state.slots.is_empty());
        state.consumer_waits = sleep;
        sleep
    }

    /// Accounts for what `next` handed out: it is written.
    fn written(&self) {
        {
            let mut state = self.shared.lock();
            state.queued_bytes -= state.writing_bytes;
            state.writing_bytes = 0;
            state.writing_lines = 0;
            if state.slots.is_empty() {
                state.slots.shrink_to(SLOTS_KEPT_MAX);
            }
        }
        self.shared.moved.notify_waiters();
    }
}

/// Writes the lines of an outbox to `writer`, each with its newline, until the outbox is closed and
/// empty. Then the writer is flushed and dropped.
///
/// # Errors
/// The first error of the writer. The outbox is broken from then on: see [`Outbox::is_broken`].
pub async fn write_all_to(
    mut outbox: OutboxReader,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut batch = Vec::new();
    let mut joined = Vec::new();
    loop {
        outbox.next(&mut batch).await;
        if batch.is_empty() {
            // `drained` is told here too, for places given up at the very end.
            outbox.written();
            return writer.flush().await;
        }
        // An error, or dropping this future, breaks the outbox as the reader is dropped.
        write_batch(&batch, &mut joined, &mut writer).await?;
        batch.clear();
        outbox.written();
    }
}

/// Writes lines: short neighbours as one piece, a long line together with what stands before it.
async fn write_batch(
    batch: &[Bytes],
    joined: &mut Vec<u8>,
    writer: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    joined.clear();
    for line in batch {
        if line.len() > JOINED_LINE_MAX {
            let mut slices = [joined.as_slice(), line, b"\n"].map(IoSlice::new);
            write_slices(writer, &mut slices).await?;
            joined.clear();
            continue;
        }
        if joined.len() + line.len() + 1 > JOINED_MAX {
            writer.write_all(joined).await?;
            joined.clear();
        }
        joined.extend_from_slice(line);
        joined.push(b'\n');
    }
    writer.write_all(joined).await?;
    writer.flush().await
}

async fn write_slices(
    writer: &mut (impl AsyncWrite + Unpin),
    mut slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    // Drops empty slices at the front, which would look like a write of nothing.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let count = writer.write_vectored(slices).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut slices, count);
    }
    Ok(())
}

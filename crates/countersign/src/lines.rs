//! Lines read from a byte stream.
//!
//! The one idea: bytes are read in large pieces into one buffer, and a line is a slice of that
//! buffer which its owner may keep without copying it. A line ends at the byte 0x0A and at nothing
//! else, because stdio framing (MCP, transports, "stdio") knows no other end: a carriage return, a
//! NUL and U+2028 are content. This file knows no protocol and never interprets what a line says.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Room offered to every read, in bytes: what a pipe of default size can hold.
const READ: usize = 64 * 1024;

/// Size of a fresh buffer, in bytes. Twice [`READ`], so that a kept line does not force a new
/// buffer before the next read.
const BLOCK: usize = 2 * READ;

/// A buffer above this size, in bytes, was grown for one long line and is given up after it.
const BLOCK_KEPT_MAX: usize = 8 * BLOCK;

/// Lines handed out at once, so that a flood of empty lines cannot make a list out of proportion to
/// its bytes. As many as a client may have calls in flight.
pub const LINES_AT_ONCE_MAX: usize = 1024;

/// How much of the beginning and of the end of an overlong line is kept, in bytes: enough to find
/// an identifier in it and to show a person what it was.
pub const EXCERPT: usize = 4 * 1024;

/// One line, without the 0x0A that ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line that was ended by 0x0A. A carriage return before it is part of the line.
    Whole(Bytes),
    /// The rest of the input after the last 0x0A: never empty, and nothing follows it.
    Last(Bytes),
    /// A line longer than the limit, of which only the ends were kept.
    TooLong {
        /// The first [`EXCERPT`] bytes, or all of them if there are fewer.
        head: Bytes,
        /// The last [`EXCERPT`] bytes; they may overlap the head of a line that is short enough.
        tail: Bytes,
        /// Length of the whole line in bytes, without the 0x0A.
        bytes: u64,
    },
}

/// Splits what a reader delivers into lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    buffer: BytesMut,
    /// Bytes at the front of `buffer` that are known to hold no 0x0A.
    searched: usize,
    /// Capacity of the allocation behind `buffer` when it was last made.
    allocated: usize,
    limit: usize,
    skipped: Option<Excerpt>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `limit` bytes (without their 0x0A) from `reader`.
    pub fn new(reader: R, limit: usize) -> Self {
        Self {
            reader,
            buffer: BytesMut::new(),
            searched: 0,
            allocated: 0,
            limit,
            skipped: None,
            ended: false,
        }
    }

    /// Waits for at least one line, then appends every line that is already here to `into`, at most
    /// [`LINES_AT_ONCE_MAX`] of them.
    ///
    /// Returns `false`, with nothing appended, once the input has ended. Dropping the future loses
    /// nothing: the next call goes on where it stopped. After an error the lines read before it
    /// have been handed out, and the next call reads again.
    ///
    /// # Errors
    /// Whatever the reader reports.
    pub async fn read(&mut self, into: &mut Vec<Line>) -> io::Result<bool> {
        let before = into.len();
        loop {
            self.cut(into);
            if into.len() > before {
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            self.make_room();
            if self.reader.read_buf(&mut self.buffer).await? == 0 {
                self.ended = true;
                self.cut_last(into);
            }
        }
    }

    /// Makes room for the next read. The buffer doubles under a long line, so that reading it is
    /// linear in its length, and never grows past the limit by more than one read.
    fn make_room(&mut self) {
        let held = self.buffer.len();
        if self.allocated > BLOCK_KEPT_MAX && held < self.allocated / 8 {
            let mut fresh = BytesMut::with_capacity(held + BLOCK);
            fresh.extend_from_slice(&self.buffer);
            self.buffer = fresh;
            self.allocated = self.buffer.capacity();
        }
        if self.buffer.capacity() - held >= READ || self.buffer.try_reclaim(READ) {
            return;
        }
        let until_limit = self.limit.saturating_sub(held).max(READ);
        self.buffer.reserve(held.max(BLOCK).min(until_limit));
        self.allocated = self.buffer.capacity();
    }

    /// Hands out lines whose end is in the buffer.
    fn cut(&mut self, into: &mut Vec<Line>) {
        for _ in 0..LINES_AT_ONCE_MAX {
            let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.keep_or_skip();
                return;
            };
            let end = self.searched + at;
            self.searched = 0;
            let line = self.take(end);
            self.buffer.advance(1);
            into.push(line);
        }
    }

    /// Deals with the beginning of a line whose end is not here yet.
    fn keep_or_skip(&mut self) {
        self.searched = self.buffer.len();
        if self.skipped.is_some() || self.buffer.len() > self.limit {
            let excerpt = self.skipped.get_or_insert_default();
            excerpt.take(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
    }

    /// Hands out what stands after the last 0x0A, if anything does.
    fn cut_last(&mut self, into: &mut Vec<Line>) {
        let held = self.buffer.len();
        if held == 0 && self.skipped.is_none() {
            return;
        }
        into.push(match self.take(held) {
            Line::Whole(bytes) => Line::Last(bytes),
            other => other,
        });
        self.buffer = BytesMut::new();
        self.searched = 0;
    }

    /// Takes the first `end` bytes of the buffer as a line.
    fn take(&mut self, end: usize) -> Line {
        if self.skipped.is_some() || end > self.limit {
            let mut excerpt = self.skipped.take().unwrap_or_default();
            excerpt.take(&self.buffer[..end]);
            self.buffer.advance(end);
            return excerpt.into_line();
        }
        // A short line must not keep a buffer alive that was grown for a long one.
        if self.allocated > BLOCK_KEPT_MAX && end < self.allocated / 8 {
            let line = Bytes::copy_from_slice(&self.buffer[..end]);
            self.buffer.advance(end);
            return Line::Whole(line);
        }
        Line::Whole(self.buffer.split_to(end).freeze())
    }
}

/// The two ends of a line that is too long to be kept, and its length so far.
#[derive(Debug, Default)]
struct Excerpt {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes: u64,
}

impl Excerpt {
    fn take(&mut self, part: &[u8]) {
        self.bytes += part.len() as u64;
        let missing = EXCERPT.saturating_sub(self.head.len()).min(part.len());
        self.head.extend_from_slice(&part[..missing]);
        self.tail
            .extend_from_slice(&part[part.len().saturating_sub(EXCERPT)..]);
        let surplus = self.tail.len().saturating_sub(EXCERPT);
        self.tail.drain(..surplus);
    }

    fn into_line(self) -> Line {
        Line::TooLong {
            head: self.head.into(),
            tail: self.tail.into(),
            bytes: self.bytes,
        }
    }
}

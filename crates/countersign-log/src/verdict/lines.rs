//! Lines of a file that may be longer than memory and may still be growing.
//!
//! A line is lent from the buffer that it was read into, not copied: this is where a verifier would
//! otherwise spend its time.

use std::io::{self, Read};

/// The longest line that is read, as in the reference.
pub(super) const LINE_OCTETS_MAX: usize = 16 << 20;

/// Octets of buffer to begin with; it grows only for a line that is longer.
const BUFFER_OCTETS: usize = 256 << 10;

/// One line, without its newline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a [u8],
    /// From 1.
    pub(super) number: u64,
    /// Whether a newline ends it; only the last line may lack one.
    pub(super) terminated: bool,
}

pub(super) struct Lines<'r> {
    input: &'r mut dyn Read,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    /// The end was reached. What a writer appends after that is not read: it would look like a line
    /// of its own, and be the rest of one.
    ended: bool,
}

impl<'r> Lines<'r> {
    pub(super) fn new(input: &'r mut dyn Read) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_OCTETS],
            start: 0,
            end: 0,
            number: 0,
            ended: false,
        }
    }

    /// The next line.
    ///
    /// # Errors
    /// The input fails, or a line is longer than [`LINE_OCTETS_MAX`].
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start + searched..self.end];
            if let Some(at) = memchr::memchr(b'\n', unread) {
                let length = searched + at;
                return Ok(Some(self.lend(length, true)));
            }
            searched = self.end - self.start;
            if searched >= LINE_OCTETS_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("line {} is longer than 16 MiB", self.number + 1),
                ));
            }
            self.ended = self.ended || self.fill()? == 0;
            if self.ended {
                return Ok((searched > 0).then(|| self.lend(searched, false)));
            }
        }
    }

    fn lend(&mut self, length: usize, terminated: bool) -> Line<'_> {
        let start = self.start;
        self.start += length + usize::from(terminated);
        self.number += 1;
        Line {
            text: &self.buffer[start..start + length],
            number: self.number,
            terminated,
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    let length = read?;
                    self.end += length;
                    return Ok(length);
                }
            }
        }
    }
}

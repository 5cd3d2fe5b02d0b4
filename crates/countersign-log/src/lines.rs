//! Lines of a file that may be longer than memory and may still be growing.
//!
//! A line is lent from the buffer that it was read into, not copied: this is where a verifier would
//! otherwise spend its time.

use std::io::{self, Read};
use std::ops::Range;

/// The longest line that is read, newline included: the format's own cap.
const LINE_OCTETS_MAX: usize = 16 << 20;

/// Octets of buffer to begin with; it grows only for a line that is longer.
const BUFFER_OCTETS: usize = 256 << 10;

/// One line and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// Without newline, and without blanks at either end.
    pub(crate) text: &'a [u8],
    /// From 1, blank lines counted.
    pub(crate) number: u64,
    /// Where the next line begins in the file.
    pub(crate) end: u64,
    /// Whether a newline ends it; only the last line may lack one.
    pub(crate) terminated: bool,
}

/// The lines of a file, one at a time, in one buffer.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Of the line that was read last.
    number: u64,
    offset: u64,
    /// The end was reached. What a writer appends after that is not read: it would look like a line
    /// of its own, and be the rest of one.
    ended: bool,
}

/// Where a line stands in the buffer.
struct Found {
    text: Range<usize>,
    terminated: bool,
}

impl<R: Read> Lines<R> {
    /// Lines from where `input` stands, which counts as offset 0.
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_OCTETS],
            start: 0,
            end: 0,
            number: 0,
            offset: 0,
            ended: false,
        }
    }

    /// The next line, which may be blank.
    ///
    /// # Errors
    /// The input fails, or a line is longer than 16 MiB.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        Ok(self.find()?.map(|found| self.lend(found)))
    }

    /// The next line that is not blank.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn next_filled(&mut self) -> io::Result<Option<Line<'_>>> {
        while let Some(found) = self.find()? {
            if !self.buffer[found.text.clone()].trim_ascii().is_empty() {
                return Ok(Some(self.lend(found)));
            }
        }
        Ok(None)
    }

    fn find(&mut self) -> io::Result<Option<Found>> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start + searched..self.end];
            if let Some(at) = memchr::memchr(b'\n', unread) {
                return Ok(Some(self.take(searched + at, true)));
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
                return Ok((searched > 0).then(|| self.take(searched, false)));
            }
        }
    }

    fn take(&mut self, length: usize, terminated: bool) -> Found {
        let start = self.start;
        let taken = length + usize::from(terminated);
        self.start += taken;
        self.offset += taken as u64;
        self.number += 1;
        Found {
            text: start..start + length,
            terminated,
        }
    }

    fn lend(&self, found: Found) -> Line<'_> {
        Line {
            text: self.buffer[found.text].trim_ascii(),
            number: self.number,
            end: self.offset,
            terminated: found.terminated,
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

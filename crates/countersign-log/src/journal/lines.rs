//! Reading a file line by line in constant memory, knowing where each line starts and ends.

use std::io::{self, BufRead as _, BufReader, Read};

/// The longest line that is read, newline included: the format's own cap.
const LINE_OCTETS_MAX: u64 = 16 << 20;

/// Read ahead: large enough that a long journal is read at disk speed.
const READ_OCTETS: usize = 256 << 10;

/// One line and its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Without blanks and newline at either end; empty for a blank line.
    pub(super) text: &'a [u8],
    /// From 1.
    pub(super) number: u64,
    /// Where the line begins in the file.
    pub(super) start: u64,
    /// Where the next line begins.
    pub(super) end: u64,
    /// Whether a newline ends it.
    pub(super) terminated: bool,
}

/// The lines of a file, one at a time, in one reused buffer.
#[derive(Debug)]
pub(super) struct Lines<R> {
    reader: BufReader<R>,
    buffer: Vec<u8>,
    offset: u64,
    number: u64,
}

impl<R: Read> Lines<R> {
    /// Lines from where `source` stands, which counts as offset 0.
    pub(super) fn new(source: R) -> Self {
        Self {
            reader: BufReader::with_capacity(READ_OCTETS, source),
            buffer: Vec::new(),
            offset: 0,
            number: 0,
        }
    }

    /// The next line, blank ones included.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let read = (&mut self.reader)
            .take(LINE_OCTETS_MAX)
            .read_until(b'\n', &mut self.buffer)? as u64;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let start = self.offset;
        self.offset += read;
        let terminated = self.buffer.last() == Some(&b'\n');
        if !terminated && read == LINE_OCTETS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("line {} is longer than 16 MiB", self.number),
            ));
        }
        Ok(Some(Line {
            text: self.buffer.trim_ascii(),
            number: self.number,
            start,
            end: self.offset,
            terminated,
        }))
    }

    /// The next line that is not blank.
    pub(super) fn next_filled(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            // Asked twice, because a borrow that is returned in one arm of a loop is held in all.
            match self.next()? {
                None => return Ok(None),
                Some(line) if line.text.is_empty() => {}
                Some(line) => {
                    let Line {
                        number,
                        start,
                        end,
                        terminated,
                        ..
                    } = line;
                    return Ok(Some(Line {
                        text: self.buffer.trim_ascii(),
                        number,
                        start,
                        end,
                        terminated,
                    }));
                }
            }
        }
    }
}

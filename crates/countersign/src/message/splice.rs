//! Changing a few members of a message and no other octet.
//!
//! The one idea: a new line is the old one with ranges of it replaced. There is no tree that could be
//! written back differently. What a message means is not known here.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;

/// Edits to one line, applied all at once.
///
/// Ranges are those of the original octets, as [`super::Message::member`] gives them.
#[derive(Debug)]
pub struct Splice<'a> {
    raw: &'a Bytes,
    edits: Vec<(Range<usize>, Cow<'a, [u8]>)>,
}

/// Why edits cannot be applied: the caller computed them for another text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpliceError {
    /// The range does not lie inside the line.
    Outside(Range<usize>),
    /// Two edits touch the same octets; the second one is given.
    Overlap(Range<usize>),
    /// The range is not that of an object or array, so nothing can be appended.
    NoContainer(Range<usize>),
}

impl fmt::Display for SpliceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside(at) => {
                write!(out, "octets {}..{} lie outside the line", at.start, at.end)
            }
            Self::Overlap(at) => write!(out, "octets {}..{} are changed twice", at.start, at.end),
            Self::NoContainer(at) => {
                write!(
                    out,
                    "octets {}..{} are no object or array to append to",
                    at.start, at.end
                )
            }
        }
    }
}

impl std::error::Error for SpliceError {}

impl<'a> Splice<'a> {
    /// No edits yet: finished now, it is the same line.
    #[must_use]
    pub fn new(raw: &'a Bytes) -> Self {
        Self {
            raw,
            edits: Vec::new(),
        }
    }

    /// Puts `with` in the place of the octets `at`. An empty range inserts; several insertions at one
    /// place come out in the order in which they were made.
    #[must_use]
    pub fn replace(mut self, at: Range<usize>, with: &'a [u8]) -> Self {
        self.edits.push((at, Cow::Borrowed(with)));
        self
    }

    /// Appends `items` at the end of the object or array whose range is `container`: raw elements for an
    /// array, raw `"key":value` pairs for an object. Call it once per container.
    ///
    /// # Errors
    /// [`SpliceError::NoContainer`] when `container` does not begin and end with brackets.
    pub fn append(mut self, container: Range<usize>, items: &[&[u8]]) -> Result<Self, SpliceError> {
        let inner = self.raw.get(container.clone()).and_then(|text| match text {
            [b'[', inner @ .., b']'] | [b'{', inner @ .., b'}'] => Some(inner),
            _ => None,
        });
        let Some(inner) = inner else {
            return Err(SpliceError::NoContainer(container));
        };
        let mut added = items.join(&b","[..]);
        if !added.is_empty() && !inner.trim_ascii().is_empty() {
            added.insert(0, b',');
        }
        let end = container.end - 1;
        self.edits.push((end..end, Cow::Owned(added)));
        Ok(self)
    }

    /// The new line. Without edits it is the old one, not copied.
    ///
    /// # Errors
    /// [`SpliceError::Outside`] and [`SpliceError::Overlap`] for ranges that do not fit the line.
    pub fn finish(mut self) -> Result<Bytes, SpliceError> {
        if self.edits.is_empty() {
            return Ok(self.raw.clone());
        }
        // Stable, so that insertions at one place keep their order.
        self.edits.sort_by_key(|(at, _)| (at.start, at.end));
        let grown: usize = self.edits.iter().map(|(_, with)| with.len()).sum();
        let mut line = Vec::with_capacity(self.raw.len() + grown);
        let mut done = 0;
        for (at, with) in &self.edits {
            if at.start > at.end || at.end > self.raw.len() {
                return Err(SpliceError::Outside(at.clone()));
            }
            if at.start < done {
                return Err(SpliceError::Overlap(at.clone()));
            }
            line.extend_from_slice(&self.raw[done..at.start]);
            line.extend_from_slice(with);
            done = at.end;
        }
        line.extend_from_slice(&self.raw[done..]);
        Ok(Bytes::from(line))
    }
}

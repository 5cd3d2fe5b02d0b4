//! A record: one line of a journal behind its header, a leaf or a key binding.
//!
//! The one idea: every reader takes the same line for the same thing. Whether it may stand where it
//! stands is for the reader.

use crate::json::JsonError;
use crate::keys::KeyBinding;
use crate::leaf::{Leaf, PlainLeaf};

/// A line, read.
pub(crate) enum Record {
    /// A leaf as nearly all are. Nothing was allocated for it.
    Plain(PlainLeaf),
    /// Any other leaf, or one that is spelled in another way.
    Leaf(Leaf),
    /// A session's authorisation.
    Binding(KeyBinding),
}

/// Why a line is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordError {
    /// It is no text.
    NotUtf8,
    /// It is no binding either; why it is no leaf.
    NoLeaf(JsonError),
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("not UTF-8"),
            Self::NoLeaf(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// Reads a line without its newline.
    ///
    /// # Errors
    /// It is neither leaf nor binding.
    pub(crate) fn read(text: &[u8]) -> Result<Self, RecordError> {
        if let Some(plain) = PlainLeaf::read(text) {
            return Ok(Self::Plain(plain));
        }
        std::str::from_utf8(text).map_err(|_| RecordError::NotUtf8)?;
        Leaf::read(text).map(Self::Leaf).or_else(|error| {
            KeyBinding::read(text)
                .map(Self::Binding)
                .map_err(|_| RecordError::NoLeaf(error))
        })
    }
}

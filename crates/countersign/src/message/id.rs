//! The id of a request, as its sender wrote it.
//!
//! The one idea: an id is text, never a number of ours. It goes back octet for octet, and two ids are the
//! same when their type and their text are. An id owns its few octets, so keeping one does not keep the
//! line that it came in.

use std::fmt;
use std::hash::{Hash, Hasher};

use bytes::Bytes;

use super::scan;

/// The longest id that is kept, in octets of raw text. Ids of real clients are short numbers, UUIDs or
/// names; each call in flight holds one or two, so the bound is what a client may make us remember.
pub const ID_BYTES_MAX: usize = 4096;

/// What an id is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// A JSON number, compared by its text: `1`, `1.0` and `1e0` are three ids.
    Number,
    /// A JSON string, compared with its escapes resolved: `"a"` and `"\u0061"` are one id.
    String,
    /// A present `null`, which is not the same as no id.
    Null,
    /// Something that neither JSON-RPC nor MCP allows: a boolean, an object, an array, or a string that
    /// is no Unicode text. Compared by its text.
    Other,
}

/// The id of a request or response, or a token compared in the same way (progress tokens).
///
/// Equality and hash are those of (type, text): strings by their decoded text, because a peer may escape
/// differently when it echoes one, everything else by the exact octets.
#[derive(Clone)]
pub struct Id {
    kind: IdKind,
    raw: Bytes,
    /// The decoded text of a string whose raw text has escapes.
    decoded: Option<Box<str>>,
}

impl Id {
    /// Reads an id from the raw JSON of one value.
    ///
    /// # Errors
    /// Nothing when `raw` is no JSON value, has blanks around it, or is longer than [`ID_BYTES_MAX`].
    #[must_use]
    pub fn parse(raw: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(raw).ok()?;
        let bare = !text.starts_with(BLANKS) && !text.ends_with(BLANKS);
        (text.len() <= ID_BYTES_MAX && bare && scan::check(text).is_ok()).then(|| Self::of(text))
    }

    /// The id that a checked value is; the caller has bounded its length.
    pub(super) fn of(value: &str) -> Self {
        let (kind, decoded) = match value.as_bytes().first() {
            Some(b'"') => match scan::decode(value) {
                Some(decoded) if !decoded.lone => (
                    IdKind::String,
                    value.contains('\\').then(|| decoded.text.into()),
                ),
                // Two different lone surrogates would decode alike.
                _ => (IdKind::Other, None),
            },
            Some(b'-' | b'0'..=b'9') => (IdKind::Number, None),
            Some(b'n') => (IdKind::Null, None),
            _ => (IdKind::Other, None),
        };
        Self {
            kind,
            raw: Bytes::copy_from_slice(value.as_bytes()),
            decoded,
        }
    }

    /// The type of the id.
    #[must_use]
    pub fn kind(&self) -> IdKind {
        self.kind
    }

    /// The raw JSON, to be echoed as it is.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Whether a peer that re-writes numbers or turns ids into strings may have meant `other`: `1` for
    /// `1.0`, `100` for `1e2`, `0` for `"0"`, a number rounded to a double.
    ///
    /// This is not equality, and two different ids can both be loosely alike to a third. It serves for an
    /// upstream's answer that matches no request exactly, when just one request in flight is alike.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let scalar = |id: &Self| matches!(id.kind, IdKind::Number | IdKind::String);
        let number = |id: &Self| std::str::from_utf8(id.text()).ok()?.parse::<f64>().ok();
        scalar(self)
            && scalar(other)
            && match (self.kind, other.kind) {
                (IdKind::String, IdKind::String) => false,
                (IdKind::Number, IdKind::Number) => number(self)
                    .zip(number(other))
                    .is_some_and(|(one, two)| one == two && one.is_finite()),
                _ => self.text() == other.text(),
            }
    }

    /// What is compared: the decoded text of a string, the raw text of anything else.
    fn text(&self) -> &[u8] {
        match (&self.decoded, self.kind) {
            (Some(decoded), _) => decoded.as_bytes(),
            (None, IdKind::String) => &self.raw[1..self.raw.len() - 1],
            (None, _) => &self.raw,
        }
    }
}

/// The blanks of the JSON grammar (RFC 8259 section 2).
pub(super) const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Self {
            kind: IdKind::Number,
            raw: Bytes::from(number.to_string()),
            decoded: None,
        }
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.text() == other.text()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        self.text().hash(state);
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.raw))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Id({self})")
    }
}

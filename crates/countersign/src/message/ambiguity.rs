//! What makes a message ungovernable, and what makes a line no message.
//!
//! The one idea: parsers differ, so a decision may only rest on what every parser reads alike. Where they
//! would not, the reason is kept as a value, with the words for the sender; nothing is decided here.

use std::fmt;

use bytes::Bytes;

use super::Id;

/// JSON-RPC's code for a text that is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC's code for JSON that is no valid message.
pub const INVALID_REQUEST: i32 = -32600;

/// How much of a foreign key an explanation quotes, in characters; the whole text is in the record.
const QUOTED_CHARS_MAX: usize = 64;

/// Which object of a message a key stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The message itself.
    Top,
    /// `params`
    Params,
    /// `params._meta`
    Meta,
    /// `params.arguments`, its direct members only
    Arguments,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Top => "at the top level",
            Self::Params => "in params",
            Self::Meta => "in params._meta",
            Self::Arguments => "in params.arguments",
        })
    }
}

/// Why a well-formed message cannot be decided on. Only the first reason found is kept.
///
/// It concerns governed messages: for any other the message may pass as it is. Its text is a sentence part
/// for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ambiguity {
    /// A key stands there twice (escapes resolved): one parser takes the first, another the last.
    Doubled {
        /// The key, decoded, cut to a length fit for people.
        key: String,
        /// Where.
        place: Place,
    },
    /// A key that a careless parser takes for one that decisions rest on.
    CaseVariant {
        /// The key as written, decoded, cut to a length fit for people.
        key: String,
        /// The key that it can be taken for.
        of: &'static str,
        /// Where.
        place: Place,
    },
    /// A string that decisions rest on holds U+0000, where some peers end it.
    Nul {
        /// `method`, `name` or `uri`.
        member: &'static str,
    },
    /// A string that decisions rest on holds half a surrogate pair, which peers drop, replace or refuse.
    LoneSurrogate {
        /// `method`, `name` or `uri`.
        member: &'static str,
    },
    /// A method that is `tools/call` only to a reader that ignores case.
    MethodCase,
    /// A method beside a result or an error: a request to one reader, a response to another.
    TwoKinds,
    /// A governed request without an id: it could be run, but not answered.
    IdAbsent,
    /// A governed request whose id is `null`.
    IdNull,
    /// A governed request whose id is neither a number nor text.
    IdType,
    /// A governed request whose `params` is present and no object.
    ParamsType,
    /// What a request is aimed at is present and no string.
    NameType {
        /// `name` or `uri`.
        member: &'static str,
    },
    /// A governed request that nests deeper than [`super::DEPTH_MAX`].
    TooDeep,
    /// An object of a governed request with more members than [`super::MEMBERS_MAX`].
    TooManyMembers {
        /// Which object.
        place: Place,
    },
}

impl Ambiguity {
    pub(super) fn doubled(key: &str, place: Place) -> Self {
        Self::Doubled {
            key: quotable(key),
            place,
        }
    }

    pub(super) fn case_variant(key: &str, of: &'static str, place: Place) -> Self {
        Self::CaseVariant {
            key: quotable(key),
            of,
            place,
        }
    }
}

fn quotable(key: &str) -> String {
    key.chars().take(QUOTED_CHARS_MAX).collect()
}

impl fmt::Display for Ambiguity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doubled { key, place } => write!(out, "the key {key:?} stands twice {place}"),
            Self::CaseVariant { key, of, place } => {
                write!(out, "the key {key:?} {place} can be taken for {of:?}")
            }
            Self::Nul { member } => write!(out, "{member} holds the character U+0000"),
            Self::LoneSurrogate { member } => {
                write!(out, "{member} holds half of a surrogate pair")
            }
            Self::MethodCase => write!(out, "method can be taken for {:?}", super::TOOLS_CALL),
            Self::TwoKinds => out.write_str("it has a method and also a result or an error"),
            Self::IdAbsent => out.write_str("it has no id, so its outcome could not be answered"),
            Self::IdNull => out.write_str("its id is null; use a number or a string"),
            Self::IdType => out.write_str("its id is neither a number nor Unicode text"),
            Self::ParamsType => out.write_str("params is not an object"),
            Self::NameType { member } => write!(out, "params.{member} is not a string"),
            Self::TooDeep => write!(out, "it nests deeper than {} levels", super::DEPTH_MAX),
            Self::TooManyMembers { place } => {
                write!(
                    out,
                    "more than {} members stand {place}",
                    super::MEMBERS_MAX
                )
            }
        }
    }
}

/// What is wrong with a line that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The octets are not UTF-8 from this one on, counted from 0.
    NotUtf8 {
        /// Offset of the first octet that does not fit.
        byte: usize,
    },
    /// A UTF-8 byte order mark comes first, which RFC 8259 section 8.1 forbids to send.
    ByteOrderMark,
    /// The grammar of JSON is broken.
    NotJson {
        /// Where (column in octets, from 1) and what was expected.
        complaint: Box<str>,
    },
    /// JSON, but a string, number, boolean or null.
    NotObject,
    /// A batch without members (JSON-RPC 2.0 section 6).
    EmptyBatch,
    /// A batch with more members than [`super::BATCH_MEMBERS_MAX`].
    BatchTooLong,
    /// A batch inside a batch.
    NestedBatch,
    /// Neither method nor result nor error.
    NoKind,
    /// A result and an error in one response.
    ResultAndError,
    /// A result that belongs to no request, as it has no id.
    ResultWithoutId,
    /// A method that is no string.
    MethodType,
    /// A method longer than [`super::METHOD_BYTES_MAX`].
    MethodTooLong,
    /// An id longer than [`super::ID_BYTES_MAX`].
    IdTooLong,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 { byte } => write!(out, "not UTF-8 at byte {byte}"),
            Self::ByteOrderMark => out.write_str("not JSON: it starts with a byte order mark"),
            Self::NotJson { complaint } => write!(out, "not JSON at {complaint}"),
            Self::NotObject => {
                out.write_str("not a message: neither an object nor a batch of objects")
            }
            Self::EmptyBatch => out.write_str("the batch is empty"),
            Self::BatchTooLong => {
                write!(
                    out,
                    "the batch has more than {} members",
                    super::BATCH_MEMBERS_MAX
                )
            }
            Self::NestedBatch => out.write_str("a batch inside a batch"),
            Self::NoKind => out.write_str("it has no method, no result and no error"),
            Self::ResultAndError => out.write_str("it has both a result and an error"),
            Self::ResultWithoutId => out.write_str("it has a result but no id"),
            Self::MethodType => out.write_str("method is not a string"),
            Self::MethodTooLong => {
                write!(
                    out,
                    "method is longer than {} bytes",
                    super::METHOD_BYTES_MAX
                )
            }
            Self::IdTooLong => write!(out, "id is longer than {} bytes", super::ID_BYTES_MAX),
        }
    }
}

/// A line, or a member of a batch, that is no message, with its octets for the record.
#[derive(Clone, Debug)]
pub struct Malformed {
    pub(super) raw: Bytes,
    pub(super) fault: Fault,
    pub(super) id: Option<Id>,
}

impl Malformed {
    /// The octets as received.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// What is wrong.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The id, where the text is an object that has one. For text that is not JSON, see [`super::salvage_id`].
    #[must_use]
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    /// The JSON-RPC code that says so: [`PARSE_ERROR`] or [`INVALID_REQUEST`].
    #[must_use]
    pub fn code(&self) -> i32 {
        match self.fault {
            Fault::NotUtf8 { .. } | Fault::ByteOrderMark | Fault::NotJson { .. } => PARSE_ERROR,
            _ => INVALID_REQUEST,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(out)
    }
}

impl std::error::Error for Malformed {}

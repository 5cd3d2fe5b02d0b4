//! A JSON-RPC message, kept as the octets that were received.
//!
//! The one idea: the octets are the message. They are parsed once, to find out what kind of message it is and
//! where its parts lie; they are forwarded, hashed and recorded as they came. What is not understood passes.
//! Where parsers would disagree on something that decisions rest on, the message says so
//! ([`Message::ambiguity`]). Nothing here decides, answers, or changes a message behind its reader's back.

mod ambiguity;
mod id;
mod outline;
mod salvage;
mod scan;
mod splice;

use std::ops::Range;

use bytes::Bytes;

pub use ambiguity::{Ambiguity, Fault, INVALID_REQUEST, Malformed, PARSE_ERROR, Place};
pub use id::{ID_BYTES_MAX, Id, IdKind};
pub use salvage::{salvage_id, salvage_id_from_ends};
pub use splice::{Splice, SpliceError};

use scan::Span;

/// The longest line that a reader accepts, in octets without its newline: well above what clients were seen to
/// send (SDKs themselves give up at 8 to 17 MiB), and what one peer may make us hold. The reader enforces it.
pub const LINE_BYTES_MAX: usize = 64 << 20;
/// The deepest nesting of a governed request, in levels from the message itself. Parsers of upstreams stop between
/// 128 and some thousands; deeper, what was judged could not be what is run. Other messages may nest at will.
pub const DEPTH_MAX: usize = 1000;
/// The longest method, in octets as written. Real ones have some dozen; each pending request keeps its method.
pub const METHOD_BYTES_MAX: usize = 4096;
/// The most members of a batch: as many as a client may have calls in flight.
pub const BATCH_MEMBERS_MAX: usize = 1024;
/// The most direct members of a governed request's `arguments` or `_meta`: their keys are held at once to find doubled
/// ones.
pub const MEMBERS_MAX: usize = 65_536;

/// The method that is governed.
pub const TOOLS_CALL: &str = "tools/call";

/// What kind of JSON-RPC message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A method and an id (`null` included).
    Request,
    /// A method and no id.
    Notification,
    /// Exactly one of result and error, and no method. Only an error may lack the id (schema 2025-11-25).
    Response,
}

/// What a line was.
#[derive(Clone, Debug)]
pub enum Parsed {
    /// A message.
    One(Message),
    /// An array of messages, as protocol version 2025-03-26 allows.
    Batch(Batch),
    /// Nothing but blanks, to be dropped.
    Blank,
}

/// An array of messages.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The octets as received.
    pub raw: Bytes,
    /// Each member, parsed on its own; one to [`BATCH_MEMBERS_MAX`]. Their octets are slices of the batch's.
    pub members: Vec<Result<Message, Malformed>>,
}

/// One message, as received.
#[derive(Clone, Debug)]
pub struct Message {
    raw: Bytes,
    kind: Kind,
    id: Option<Id>,
    method: Option<Box<str>>,
    params: Option<Span>,
    result: Option<Span>,
    error: Option<Span>,
    /// `params.name` and `params.arguments` of a governed message.
    name: Option<Span>,
    arguments: Option<Span>,
    governed: bool,
    ambiguity: Option<Box<Ambiguity>>,
}

/// What a governed message calls, for the judge and for the record of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// The raw JSON of `params.name`, of whatever type; of doubled keys the last.
    pub name_raw: Option<Bytes>,
    /// The raw JSON of `params.arguments`, of whatever type; of doubled keys the last.
    pub arguments_raw: Option<Bytes>,
}

impl ToolCall {
    /// The name with its escapes resolved, where it is a string of Unicode text.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        string(std::str::from_utf8(self.name_raw.as_ref()?).ok()?)
    }
}

impl Message {
    /// Parses one line (or one HTTP body) without its newline. A carriage return or blanks at its end belong to it.
    ///
    /// # Errors
    /// [`Malformed`] when it is no message that could be understood or answered as one; whatever merely keeps a
    /// message from being governed is its [`ambiguity`](Self::ambiguity) instead.
    pub fn parse(line: Bytes) -> Result<Parsed, Malformed> {
        let text = match std::str::from_utf8(&line) {
            Ok(text) => text,
            Err(error) => {
                let fault = Fault::NotUtf8 {
                    byte: error.valid_up_to(),
                };
                return Err(Malformed {
                    raw: line,
                    fault,
                    id: None,
                });
            }
        };
        match text.trim_start_matches(id::BLANKS).as_bytes().first() {
            None => Ok(Parsed::Blank),
            Some(b'[') => batch(line).map(Parsed::Batch),
            Some(b'{') => outline::read(&line, text).map(Parsed::One),
            Some(_) => {
                let fault = no_message(text);
                Err(Malformed {
                    raw: line,
                    fault,
                    id: None,
                })
            }
        }
    }

    /// The octets as received.
    #[must_use]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// What kind of message it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The id; a present `null` is an id of [`IdKind::Null`]. Of doubled ids the last.
    #[must_use]
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    /// The method of a request or notification, escapes resolved. Of doubled methods the last that is a string.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The raw JSON of `params`, of whatever type; of doubled ones the last. A case variant of the key does not count.
    #[must_use]
    pub fn params(&self) -> Option<Bytes> {
        self.part(self.params.as_ref())
    }

    /// The raw JSON of `result`.
    #[must_use]
    pub fn result(&self) -> Option<Bytes> {
        self.part(self.result.as_ref())
    }

    /// The raw JSON of `error`, of whatever type.
    #[must_use]
    pub fn error(&self) -> Option<Bytes> {
        self.part(self.error.as_ref())
    }

    /// Whether some reader could take it for a `tools/call`: by any of doubled methods, by a key that is `method`
    /// but for its case, or by a value that is `tools/call` but for case, U+0000 or a lone surrogate.
    #[must_use]
    pub fn governed(&self) -> bool {
        self.governed
    }

    /// Why no decision can rest on it. A governed message that has one must be refused and recorded; any other
    /// may pass.
    #[must_use]
    pub fn ambiguity(&self) -> Option<&Ambiguity> {
        self.ambiguity.as_deref()
    }

    /// What a governed message calls, even when it is ambiguous: where only a case variant of a key is there, its value
    /// stands in, so that the record of the refusal says what was attempted. Both parts are absent for any other
    /// message, and when `params` is no object.
    #[must_use]
    pub fn tool_call(&self) -> ToolCall {
        ToolCall {
            name_raw: self.part(self.name.as_ref()),
            arguments_raw: self.part(self.arguments.as_ref()),
        }
    }

    /// The protocol version that a request of the modern era (2026-07-28 on) carries in `params._meta`.
    #[must_use]
    pub fn modern_version(&self) -> Option<String> {
        self.param_string(&["_meta", "io.modelcontextprotocol/protocolVersion"])
    }

    /// The progress token that a request asks for, or that a progress notification reports on.
    #[must_use]
    pub fn progress_token(&self) -> Option<Id> {
        let path: &[&str] = match self.method() {
            Some("notifications/progress") => &["progressToken"],
            _ => &["_meta", "progressToken"],
        };
        self.param_id(path)
    }

    /// The id of the request that a `notifications/cancelled` takes back.
    #[must_use]
    pub fn cancel_target(&self) -> Option<Id> {
        (self.method() == Some("notifications/cancelled")).then(|| self.param_id(&["requestId"]))?
    }

    /// The cursor of a list request.
    #[must_use]
    pub fn cursor(&self) -> Option<String> {
        self.param_string(&["cursor"])
    }

    /// The protocol version that an `initialize` request asks for.
    #[must_use]
    pub fn requested_version(&self) -> Option<String> {
        (self.method() == Some("initialize")).then(|| self.param_string(&["protocolVersion"]))?
    }

    /// Where in the octets the value lies that `path` leads to, through objects, from the top level (for example
    /// `["result", "tools"]`). Keys match exactly, escapes resolved; of doubled keys the last counts.
    #[must_use]
    pub fn member(&self, path: &[&str]) -> Option<Range<usize>> {
        let (first, rest) = path.split_first()?;
        let outer = match *first {
            "params" => self.params.clone()?,
            "result" => self.result.clone()?,
            "error" => self.error.clone()?,
            other => locate(self.text(0..self.raw.len()), &[other])?,
        };
        if rest.is_empty() {
            return Some(outer);
        }
        let inner = locate(self.text(outer.clone()), rest)?;
        Some(outer.start + inner.start..outer.start + inner.end)
    }

    /// The decoded string that `path` leads to, as for [`Message::member`]; nothing for another type or for text
    /// that is not Unicode.
    #[must_use]
    pub fn string(&self, path: &[&str]) -> Option<String> {
        string(self.text(self.member(path)?))
    }

    /// The text at a place that parsing found. Only that part is looked at, so a small member of a
    /// large line stays cheap.
    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(&self.raw[span])
            .expect("parse accepts only UTF-8, and finds whole values in it")
    }

    fn part(&self, span: Option<&Span>) -> Option<Bytes> {
        span.map(|span| self.raw.slice(span.clone()))
    }

    fn param(&self, path: &[&str]) -> Option<&str> {
        scan::member(self.text(self.params.clone()?), path)
    }

    fn param_string(&self, path: &[&str]) -> Option<String> {
        string(self.param(path)?)
    }

    fn param_id(&self, path: &[&str]) -> Option<Id> {
        Id::parse(self.param(path)?.as_bytes())
            .filter(|id| matches!(id.kind(), IdKind::Number | IdKind::String))
    }
}

fn locate(object: &str, path: &[&str]) -> Option<Span> {
    scan::member(object, path).map(|value| scan::span(object, value))
}

/// What is wrong with a text that begins neither an object nor an array.
fn no_message(text: &str) -> Fault {
    if text.starts_with('\u{feff}') {
        return Fault::ByteOrderMark;
    }
    scan::check(text)
        .err()
        .map_or(Fault::NotObject, |error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> Fault {
    Fault::NotJson {
        complaint: scan::complaint(error).into(),
    }
}

fn string(value: &str) -> Option<String> {
    scan::decode(value)
        .filter(|decoded| !decoded.lone)
        .map(|decoded| decoded.text.into_owned())
}

fn batch(line: Bytes) -> Result<Batch, Malformed> {
    let mut spans = Vec::new();
    let mut found = 0_usize;
    let text = std::str::from_utf8(&line).expect("the caller has checked the octets");
    let checked = scan::elements(text, |element| {
        found += 1;
        if found <= BATCH_MEMBERS_MAX {
            spans.push(scan::span(text, element));
        }
    });
    let fault = match checked {
        Err(error) => not_json(&error),
        Ok(()) if found == 0 => Fault::EmptyBatch,
        Ok(()) if found > BATCH_MEMBERS_MAX => Fault::BatchTooLong,
        Ok(()) => {
            let members = spans
                .into_iter()
                .map(|span| batch_member(line.slice(span)))
                .collect();
            return Ok(Batch { raw: line, members });
        }
    };
    Err(Malformed {
        raw: line,
        fault,
        id: None,
    })
}

fn batch_member(raw: Bytes) -> Result<Message, Malformed> {
    if raw.first() == Some(&b'[') {
        return Err(Malformed {
            raw,
            fault: Fault::NestedBatch,
            id: None,
        });
    }
    match Message::parse(raw)? {
        Parsed::One(message) => Ok(message),
        Parsed::Batch(Batch { raw, .. }) => Err(Malformed {
            raw,
            fault: Fault::NestedBatch,
            id: None,
        }),
        Parsed::Blank => unreachable!("an element of a well-formed array is never blank"),
    }
}

//! The outline of a JSON text: where its containers and members are, and which of them canonical
//! JSON would have to write otherwise.
//!
//! The one idea: most of a text is already canonical, so one pass checks the grammar and keeps
//! records only of what is not. An object in canonical order with canonical members leaves no trace
//! of its members; one that is not leaves them sorted. Memory follows the number of members and
//! containers, never the length of the text, and no nested value is looked at twice.
//!
//! It may not recurse, and it may not copy text, except keys that hold escapes.

use crate::number::{self, INTEGER_DIGITS_MAX};
use crate::string;
use std::fmt;

/// Levels below the root at which the reference still writes a container.
pub(crate) const DEPTH_WRITTEN: usize = 200;

/// Containers inside one another that CPython 3.11 reads when called from a shallow stack: its
/// recursion limit of 1000 less the frames of the caller. The exact number moves with the caller.
pub(crate) const DEPTH_READ_BY_REFERENCE: usize = 994;

/// Offsets are 32 bits wide to keep the records small; a longer text is not outlined.
pub(crate) const TEXT_OCTETS_MAX: usize = u32::MAX as usize;

/// How strictly a text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Fails where the reference fails: text that is not JSON, an integer of more than 4300 digits,
    /// more than 994 containers inside one another.
    Reference,
    /// Never fails. An integer of any length is read, and so is any depth; what is not JSON at all is
    /// taken as a JSON string of the text, with U+FFFD for what is not UTF-8.
    Recorder,
}

/// Why [`Mode::Reference`] does not give a canonical form. Offsets count octets from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanonicalError {
    /// The text is not JSON.
    NotJson {
        /// Where.
        at: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// The text is not UTF-8.
    NotUtf8 {
        /// Where.
        at: usize,
    },
    /// CPython reads integers of at most 4300 digits.
    IntegerTooLong {
        /// Where the integer starts.
        at: usize,
        /// How many digits it has.
        digits: usize,
    },
    /// CPython's recursion limit.
    TooDeep {
        /// Where the container starts that is one too many.
        at: usize,
    },
    /// The text has 4 GiB or more.
    TooLong {
        /// Its length in octets.
        octets: usize,
    },
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { at, expected } => {
                write!(to, "not JSON at octet {at}: expected {expected}")
            }
            Self::NotUtf8 { at } => write!(to, "not UTF-8 at octet {at}: JSON is sent as UTF-8"),
            Self::IntegerTooLong { at, digits } => {
                write!(
                    to,
                    "integer of {digits} digits at octet {at}: send more than 4300 digits as a string"
                )
            }
            Self::TooDeep { at } => write!(to, "nested too deep at octet {at}: flatten the value"),
            Self::TooLong { octets } => {
                write!(to, "text of {octets} octets: the most is {TEXT_OCTETS_MAX}")
            }
        }
    }
}

impl std::error::Error for CanonicalError {}

/// A value of the text. It is sixteen octets, so that it travels in registers.
#[derive(Clone, Copy)]
pub(crate) struct Value {
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The record of an array or object, else [`SCALAR`].
    container: u32,
    /// `start..end` is its own canonical form.
    pub(crate) verbatim: bool,
}

/// Stands for a container's record where there is none: a text of this many containers is too long.
const SCALAR: u32 = u32::MAX;

impl Value {
    /// The index of its record in `Outline::containers`, if it is an array or an object.
    pub(crate) fn container(self) -> Option<u32> {
        (self.container != SCALAR).then_some(self.container)
    }
}

/// A member of an object that is not verbatim.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    /// Offset of the key's opening quote.
    pub(crate) start: u32,
    /// Offset after the key's closing quote.
    pub(crate) key_end: u32,
    pub(crate) key_verbatim: bool,
    /// `start..value.end` is the canonical form of the whole member.
    pub(crate) verbatim: bool,
    pub(crate) value: Value,
    /// The decoded key in the scanner's `decoded`, if the key holds escapes.
    decoded: Option<(u32, u32)>,
}

/// What is to be written for an array or object.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Its text.
    Verbatim,
    /// An object of these records of `Outline::members`.
    Members { first: u32, end: u32 },
    /// An array, its elements to be read from the text.
    Elements,
    /// The replacement for what is nested too deep.
    TooDeep,
}

/// An array or object. Records stand in the order of their opening brackets.
#[derive(Clone, Copy)]
pub(crate) struct Container {
    pub(crate) form: Form,
    /// Offset after the closing bracket.
    pub(crate) end: u32,
    /// Index of the first record that lies outside of this container.
    pub(crate) next: u32,
}

/// What [`outline`] found.
pub(crate) struct Outline {
    pub(crate) root: Value,
    pub(crate) containers: Vec<Container>,
    pub(crate) members: Vec<Member>,
    /// Where the elements of arrays start that are scalars and not verbatim; in order.
    pub(crate) respelled: Vec<u32>,
    /// Some other JSON value has the same canonical form: see [`crate::canonical::CanonicalDigest::lossy`].
    pub(crate) lossy: bool,
}

/// Reads `text` as one JSON value.
pub(crate) fn outline(text: &[u8], mode: Mode) -> Result<Outline, CanonicalError> {
    if text.len() > TEXT_OCTETS_MAX {
        return Err(CanonicalError::TooLong { octets: text.len() });
    }
    std::str::from_utf8(text).map_err(|error| CanonicalError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let mut scanner = Scanner {
        text,
        mode,
        at: if text.starts_with(b"\xEF\xBB\xBF") {
            3
        } else {
            0
        },
        outer: Vec::new(),
        open_members: Vec::new(),
        decoded: Vec::new(),
        containers: Vec::new(),
        members: Vec::new(),
        respelled: Vec::new(),
        lossy: false,
    };
    scanner.space();
    let root = scanner.tree()?;
    scanner.space();
    if scanner.at != text.len() {
        return Err(scanner.expected("the end of the text"));
    }
    let Scanner {
        containers,
        members,
        respelled,
        lossy,
        ..
    } = scanner;
    Ok(Outline {
        root,
        containers,
        members,
        respelled,
        lossy,
    })
}

/// A container whose closing bracket was not reached yet.
struct Frame {
    start: u32,
    object: bool,
    /// So far its text is canonical.
    verbatim: bool,
    /// So far its keys stand in canonical order, each once.
    in_order: bool,
    /// Its record.
    container: u32,
    /// Where its members start in `open_members`.
    members_from: usize,
    /// Where its keys start in `decoded`.
    decoded_from: usize,
}

struct Scanner<'a> {
    text: &'a [u8],
    mode: Mode,
    at: usize,
    /// Containers around the innermost open one, outermost first: at most [`DEPTH_WRITTEN`].
    outer: Vec<Frame>,
    /// Members of the open objects, outermost object first.
    open_members: Vec<Member>,
    /// Decoded keys of the open objects.
    decoded: Vec<u8>,
    containers: Vec<Container>,
    members: Vec<Member>,
    respelled: Vec<u32>,
    lossy: bool,
}

impl Scanner<'_> {
    /// The value at `at`, with everything inside it.
    fn tree(&mut self) -> Result<Value, CanonicalError> {
        let mut innermost: Option<Frame> = None;
        loop {
            let depth = self.outer.len() + usize::from(innermost.is_some());
            let mut value = match self.octet() {
                Some(b'{' | b'[') if depth > DEPTH_WRITTEN => self.too_deep(depth)?,
                Some(b'{' | b'[') => {
                    let mut frame = self.open();
                    if self.closes(&frame) {
                        self.close(&frame)
                    } else {
                        self.key_in(&mut frame)?;
                        self.outer.extend(innermost.replace(frame));
                        continue;
                    }
                }
                _ => {
                    let start = self.at as u32;
                    let verbatim = self.scalar()?;
                    Value {
                        start,
                        end: self.at as u32,
                        container: SCALAR,
                        verbatim,
                    }
                }
            };
            loop {
                let Some(frame) = &mut innermost else {
                    return Ok(value);
                };
                self.attach(frame, value);
                if self.continues(frame)? {
                    break;
                }
                value = self.close(frame);
                innermost = self.outer.pop();
            }
        }
    }

    /// Steps over an opening bracket and the space behind it.
    fn open(&mut self) -> Frame {
        let container = self.containers.len() as u32;
        self.containers.push(Container {
            form: Form::Verbatim,
            end: 0,
            next: 0,
        });
        let (start, object) = (self.at as u32, self.octet() == Some(b'{'));
        self.at += 1;
        let verbatim = !self.space();
        let (members_from, decoded_from) = (self.open_members.len(), self.decoded.len());
        Frame {
            start,
            object,
            verbatim,
            in_order: true,
            container,
            members_from,
            decoded_from,
        }
    }

    /// Steps over the bracket that closes `frame`, if it is next.
    fn closes(&mut self, frame: &Frame) -> bool {
        let closes = self.octet() == Some(if frame.object { b'}' } else { b']' });
        self.at += usize::from(closes);
        closes
    }

    /// Steps over what follows a value: `true` at the next value, `false` behind the closing bracket.
    fn continues(&mut self, frame: &mut Frame) -> Result<bool, CanonicalError> {
        frame.verbatim &= !self.space();
        if self.closes(frame) {
            return Ok(false);
        }
        if self.octet() != Some(b',') {
            return Err(self.expected("',' or the closing bracket"));
        }
        self.at += 1;
        frame.verbatim &= !self.space();
        self.key_in(frame)?;
        Ok(true)
    }

    /// In an object, steps over a key and its colon and opens the member.
    fn key_in(&mut self, frame: &mut Frame) -> Result<(), CanonicalError> {
        if !frame.object {
            return Ok(());
        }
        let start = self.at;
        let (token, tight) = self.key()?;
        let decoded = token.escaped.then(|| {
            let from = self.decoded.len();
            string::decode(&mut self.decoded, &self.text[start + 1..token.end - 1]);
            (from as u32, self.decoded.len() as u32)
        });
        let member = Member {
            start: start as u32,
            key_end: token.end as u32,
            key_verbatim: token.verbatim,
            verbatim: token.verbatim && tight,
            value: Value {
                start: 0,
                end: 0,
                container: SCALAR,
                verbatim: false,
            },
            decoded,
        };
        if frame.in_order && self.open_members.len() > frame.members_from {
            let before = &self.open_members[self.open_members.len() - 1];
            let (before, this) = (
                key_text(self.text, &self.decoded, before),
                key_text(self.text, &self.decoded, &member),
            );
            frame.in_order = string::utf16_order(before, this).is_lt();
        }
        self.open_members.push(member);
        Ok(())
    }

    /// Reads a key, its colon and the space around; the flag says that there was no space.
    fn key(&mut self) -> Result<(string::Token, bool), CanonicalError> {
        if self.octet() != Some(b'"') {
            return Err(self.expected("a member's key"));
        }
        let token = self.string()?;
        self.at = token.end;
        let before = self.space();
        if self.octet() != Some(b':') {
            return Err(self.expected("':'"));
        }
        self.at += 1;
        let after = self.space();
        Ok((token, !before && !after))
    }

    /// Puts a finished value into the container around it.
    fn attach(&mut self, frame: &mut Frame, value: Value) {
        if !frame.object {
            frame.verbatim &= value.verbatim;
            if value.container == SCALAR && !value.verbatim {
                self.respelled.push(value.start);
            }
            return;
        }
        let member = self
            .open_members
            .last_mut()
            .expect("a value in an object follows its key");
        member.value = value;
        member.verbatim &= value.verbatim;
        frame.verbatim &= member.verbatim;
    }

    /// Ends a container behind its closing bracket: forgets what is canonical, sorts what is not.
    fn close(&mut self, frame: &Frame) -> Value {
        let verbatim = frame.verbatim && frame.in_order;
        let form = if verbatim {
            self.open_members.truncate(frame.members_from);
            self.containers.truncate(frame.container as usize + 1);
            Form::Verbatim
        } else if frame.object {
            self.keep_members(frame)
        } else {
            Form::Elements
        };
        self.decoded.truncate(frame.decoded_from);
        let (end, next) = (self.at as u32, self.containers.len() as u32);
        self.containers[frame.container as usize] = Container { form, end, next };
        Value {
            start: frame.start,
            end,
            container: frame.container,
            verbatim,
        }
    }

    /// Moves an object's members to `members`, in canonical order and the last of each key.
    fn keep_members(&mut self, frame: &Frame) -> Form {
        let (text, decoded) = (self.text, &self.decoded);
        let open = &mut self.open_members[frame.members_from..];
        let order = |left: &Member, right: &Member| {
            string::utf16_order(
                key_text(text, decoded, left),
                key_text(text, decoded, right),
            )
        };
        if !frame.in_order {
            open.sort_by(order);
        }
        let first = self.members.len() as u32;
        for (index, member) in open.iter().enumerate() {
            let repeated = !frame.in_order
                && open
                    .get(index + 1)
                    .is_some_and(|next| order(member, next).is_eq());
            if repeated {
                self.lossy = true;
            } else {
                self.members.push(*member);
            }
        }
        self.open_members.truncate(frame.members_from);
        Form::Members {
            first,
            end: self.members.len() as u32,
        }
    }

    /// Reads a container that is replaced as a whole: only its grammar counts.
    fn too_deep(&mut self, depth: usize) -> Result<Value, CanonicalError> {
        self.lossy = true;
        let start = self.at as u32;
        self.skip(depth)?;
        let container = self.containers.len() as u32;
        self.containers.push(Container {
            form: Form::TooDeep,
            end: self.at as u32,
            next: container + 1,
        });
        Ok(Value {
            start,
            end: self.at as u32,
            container,
            verbatim: false,
        })
    }

    /// Steps over the container at `at`, which has `depth` containers around it.
    fn skip(&mut self, depth: usize) -> Result<(), CanonicalError> {
        let mut nested = Brackets::default();
        loop {
            if let Some(bracket @ (b'{' | b'[')) = self.octet() {
                if self.mode == Mode::Reference && depth + nested.len >= DEPTH_READ_BY_REFERENCE {
                    return Err(CanonicalError::TooDeep { at: self.at });
                }
                nested.push(bracket == b'{');
                self.at += 1;
                self.space();
                if !self.closes_skipped(&mut nested) {
                    if bracket == b'{' {
                        self.key()?;
                    }
                    continue;
                }
            } else {
                self.scalar()?;
            }
            loop {
                let Some(object) = nested.last() else {
                    return Ok(());
                };
                self.space();
                if self.closes_skipped(&mut nested) {
                    continue;
                }
                if self.octet() != Some(b',') {
                    return Err(self.expected("',' or the closing bracket"));
                }
                self.at += 1;
                self.space();
                if object {
                    self.key()?;
                }
                break;
            }
        }
    }

    fn closes_skipped(&mut self, nested: &mut Brackets) -> bool {
        let closing = if nested.last() == Some(true) {
            b'}'
        } else {
            b']'
        };
        let closes = self.octet() == Some(closing);
        if closes {
            self.at += 1;
            nested.pop();
        }
        closes
    }

    /// Steps over a scalar; `true` if it is its own canonical form.
    fn scalar(&mut self) -> Result<bool, CanonicalError> {
        match self.octet() {
            Some(b'"') => {
                let token = self.string()?;
                self.at = token.end;
                Ok(token.verbatim)
            }
            Some(b'-' | b'0'..=b'9') if !self.rest().starts_with(b"-I") => self.number(),
            _ => self.word(),
        }
    }

    fn number(&mut self) -> Result<bool, CanonicalError> {
        let shape = number::scan(self.text, self.at).ok_or_else(|| self.expected("a number"))?;
        if self.mode == Mode::Reference && shape.integer && shape.digits > INTEGER_DIGITS_MAX {
            return Err(CanonicalError::IntegerTooLong {
                at: self.at,
                digits: shape.digits,
            });
        }
        let canonical = number::canonical(&self.text[self.at..shape.end], shape);
        self.lossy |= canonical.lossy;
        self.at = shape.end;
        Ok(matches!(canonical.form, number::Form::Verbatim))
    }

    /// `null`, `true`, `false`, and CPython's three additions, which become strings.
    fn word(&mut self) -> Result<bool, CanonicalError> {
        const WORDS: [(&[u8], bool); 6] = [
            (b"null", true),
            (b"true", true),
            (b"false", true),
            (b"NaN", false),
            (b"Infinity", false),
            (b"-Infinity", false),
        ];
        let rest = self.rest();
        let found = WORDS.iter().find(|(word, _)| rest.starts_with(word));
        let (word, plain) = found.ok_or_else(|| self.expected("a value"))?;
        self.lossy |= !plain;
        self.at += word.len();
        Ok(*plain)
    }

    fn string(&self) -> Result<string::Token, CanonicalError> {
        string::scan(self.text, self.at).map_err(|fault| match fault {
            string::Fault::Unclosed => CanonicalError::NotJson {
                at: self.text.len(),
                expected: "a closing quote",
            },
            string::Fault::Control(at) => CanonicalError::NotJson {
                at,
                expected: "an escape for this control character",
            },
            string::Fault::Escape(at) => CanonicalError::NotJson {
                at,
                expected: "one of the escapes of JSON",
            },
        })
    }

    /// Steps over white space; `true` if there was any.
    fn space(&mut self) -> bool {
        let from = self.at;
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.octet() {
            self.at += 1;
        }
        self.at > from
    }

    fn octet(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn expected(&self, expected: &'static str) -> CanonicalError {
        CanonicalError::NotJson {
            at: self.at,
            expected,
        }
    }
}

/// A member's decoded key.
fn key_text<'a>(text: &'a [u8], decoded: &'a [u8], member: &Member) -> &'a [u8] {
    match member.decoded {
        Some((from, end)) => &decoded[from as usize..end as usize],
        None => &text[member.start as usize + 1..member.key_end as usize - 1],
    }
}

/// The open brackets of a skipped text, one bit each, so that a text of nothing but brackets costs
/// an eighth of its length.
#[derive(Default)]
struct Brackets {
    words: Vec<u64>,
    len: usize,
}

impl Brackets {
    fn push(&mut self, object: bool) {
        let (word, bit) = (self.len / 64, self.len % 64);
        if word == self.words.len() {
            self.words.push(0);
        }
        self.words[word] = self.words[word] & !(1 << bit) | u64::from(object) << bit;
        self.len += 1;
    }

    fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    fn last(&self) -> Option<bool> {
        let last = self.len.checked_sub(1)?;
        Some(self.words[last / 64] >> (last % 64) & 1 == 1)
    }
}

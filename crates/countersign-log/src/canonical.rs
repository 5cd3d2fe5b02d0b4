//! Canonical JSON: the octets that stand for arguments and results in a commitment.
//!
//! RFC 8785 as witness-log 0.6.1 writes it on what CPython's `json.loads` read, with the reference's
//! deviations. The one idea: two walks over the octets and no tree of values. The first makes an
//! outline of what is not canonical yet, the second hands pieces of the text to a sink, so that a
//! megabyte goes into a hash without a copy.
//!
//! It may not recurse, and it may not fail for what a recorder has to record.
//!
//! What differs from RFC 8785, in both modes:
//!
//! * The last of repeated keys counts. `NaN`, `Infinity`, `-Infinity` and a byte-order mark are read.
//! * An integer beyond the doubles is the string of its digits; `1e400` is `"inf"`, `NaN` is `"nan"`.
//! * A string with a lone surrogate is written in ASCII throughout; others stay UTF-8.
//! * A container more than 200 levels below the root is the string `"<too deep>"`.
//!
//! KNOWN: `json.loads` guesses UTF-16 and UTF-32 and lets surrogates pass that are encoded as three
//! octets. Neither is a message of a stdio server, and both are "not UTF-8" or "not JSON" here.

use crate::number;
use crate::outline::{Container, Form, Member, Outline, Value, outline};
use crate::sink::{HashSink, Sink};
use crate::string;

pub use crate::outline::{CanonicalError, Mode};

/// SHA-256 of a canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanonicalDigest {
    /// The digest.
    pub sha256: [u8; 32],
    /// Some other JSON value has the same canonical form, so the digest alone does not tell which was
    /// sent. It is set by:
    ///
    /// * a number whose canonical text denotes another decimal number: `9007199254740993`,
    ///   `0.1000000000000000055511151231257827`, `333333333.33333329`, `1e-400`;
    /// * a number that becomes a string: `NaN`, `Infinity`, `1e400`, an integer beyond the doubles;
    /// * a container replaced by `"<too deep>"`;
    /// * a repeated key, even with equal values: a reader may take the first or refuse;
    /// * text that is not JSON, taken as a string.
    ///
    /// Not by another spelling of the same value: white space, order of keys, escapes, a byte-order
    /// mark, `1.0` and `1`, `1e2` and `100`, `-0` and `0`, or a decimal fraction such as `0.1` that no
    /// double holds exactly but that its double prints. A lone surrogate keeps its escape, so nothing
    /// is lost there either.
    pub lossy: bool,
}

/// The canonical form of a JSON text. [`Mode::Recorder`] never gives an error.
pub fn canonical(text: &[u8], mode: Mode) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(text.len());
    match mode {
        Mode::Reference => write_outline(&mut out, text, &outline(text, mode)?),
        Mode::Recorder => {
            record(&mut out, text);
        }
    }
    Ok(out)
}

/// The SHA-256 of what [`canonical`] gives in [`Mode::Recorder`], without making it.
pub fn canonical_sha256(text: &[u8]) -> CanonicalDigest {
    let mut sink = HashSink::new();
    let lossy = record(&mut sink, text);
    CanonicalDigest {
        sha256: sink.finish(),
        lossy,
    }
}

/// Writes the recorder's canonical form and says whether it is lossy, as [`CanonicalDigest`] has it.
pub(crate) fn record<S: Sink>(sink: &mut S, text: &[u8]) -> bool {
    match outline(text, Mode::Recorder) {
        Ok(outline) => {
            write_outline(sink, text, &outline);
            outline.lossy
        }
        // What is not JSON is taken as a string, so why it is not JSON does not matter.
        Err(_) => {
            string::write(sink, &String::from_utf8_lossy(text));
            true
        }
    }
}

/// Appends the canonical JSON string of `text`, quotes included: only `"`, `\` and control characters
/// are escaped (RFC 8785 section 3.2.2.2).
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    string::write(out, text);
}

fn write_outline<S: Sink>(sink: &mut S, text: &[u8], outline: &Outline) {
    Writer {
        sink,
        text,
        outline,
        open: Vec::new(),
    }
    .tree();
}

/// A container that is being written.
enum Open {
    /// An object with these members still to write.
    Members { first: u32, next: u32, end: u32 },
    /// An array whose text goes on at `at`, `container` being the record of its next nested container.
    Elements {
        first: bool,
        at: usize,
        container: u32,
    },
}

struct Writer<'a, S> {
    sink: &'a mut S,
    text: &'a [u8],
    outline: &'a Outline,
    /// Outermost first; as deep as what is written, so at most 201.
    open: Vec<Open>,
}

impl<S: Sink> Writer<'_, S> {
    fn tree(&mut self) {
        self.value(self.outline.root);
        while let Some(open) = self.open.pop() {
            match open {
                Open::Members { first, next, end } => self.member(first, next, end),
                Open::Elements {
                    first,
                    at,
                    container,
                } => self.element(first, at, container),
            }
        }
    }

    /// Writes a value, or as much of it as comes before what is nested in it.
    fn value(&mut self, value: Value) {
        let text = &self.text[value.start as usize..value.end as usize];
        match value.container() {
            _ if value.verbatim => self.sink.put(text),
            None => self.scalar(text),
            Some(index) => self.container(index, value.start as usize),
        }
    }

    /// Writes the array or object that starts at `start`, or its opening bracket.
    fn container(&mut self, index: u32, start: usize) {
        let Container { form, end, .. } = self.outline.containers[index as usize];
        match form {
            Form::Verbatim => self.sink.put(&self.text[start..end as usize]),
            Form::TooDeep => self.sink.put(b"\"<too deep>\""),
            Form::Members { first, end } => {
                self.sink.put(b"{");
                self.open.push(Open::Members {
                    first,
                    next: first,
                    end,
                });
            }
            Form::Elements => {
                self.sink.put(b"[");
                self.open.push(Open::Elements {
                    first: true,
                    at: start + 1,
                    container: index + 1,
                });
            }
        }
    }

    /// Writes members up to one that has a container to be written, or the closing bracket.
    fn member(&mut self, first: u32, from: u32, end: u32) {
        let members = &self.outline.members[from as usize..end as usize];
        for (next, member) in (from + 1..).zip(members) {
            if next > first + 1 {
                self.sink.put(b",");
            }
            if member.verbatim {
                self.sink
                    .put(&self.text[member.start as usize..member.value.end as usize]);
                continue;
            }
            self.key(member);
            self.sink.put(b":");
            if member.value.container().is_some() {
                self.open.push(Open::Members { first, next, end });
                return self.value(member.value);
            }
            self.value(member.value);
        }
        self.sink.put(b"}");
    }

    fn key(&mut self, member: &Member) {
        let key = &self.text[member.start as usize..member.key_end as usize];
        if member.key_verbatim {
            self.sink.put(key);
        } else {
            self.scalar(key);
        }
    }

    /// Writes elements up to a container to be written, or the closing bracket.
    fn element(&mut self, mut first: bool, mut at: usize, container: u32) {
        loop {
            at = self.past_space(at);
            match self.text[at] {
                b']' => return self.sink.put(b"]"),
                b',' => at = self.past_space(at + 1),
                _ => {}
            }
            if !first {
                self.sink.put(b",");
            }
            first = false;
            if let b'{' | b'[' = self.text[at] {
                let Container { end, next, .. } = self.outline.containers[container as usize];
                self.open.push(Open::Elements {
                    first,
                    at: end as usize,
                    container: next,
                });
                return self.container(container, at);
            }
            let end = scalar_end(self.text, at);
            if self.outline.respelled.binary_search(&(at as u32)).is_ok() {
                self.scalar(&self.text[at..end]);
            } else {
                self.sink.put(&self.text[at..end]);
            }
            at = end;
        }
    }

    fn past_space(&self, mut at: usize) -> usize {
        while matches!(self.text[at], b' ' | b'\t' | b'\n' | b'\r') {
            at += 1;
        }
        at
    }

    /// Writes a scalar, or a key, that is not verbatim.
    fn scalar(&mut self, text: &[u8]) {
        match text[0] {
            b'"' => string::write_respelled(self.sink, &text[1..text.len() - 1]),
            b'N' => self.sink.put(b"\"nan\""),
            b'I' => self.sink.put(b"\"inf\""),
            b'-' | b'0'..=b'9' => self.number(text),
            _ => self.sink.put(text),
        }
    }

    fn number(&mut self, text: &[u8]) {
        let form = match number::scan(text, 0) {
            Some(shape) => number::canonical(text, shape).form,
            None => number::Form::QuotedInfinity { negative: true },
        };
        match form {
            number::Form::Verbatim => self.sink.put(text),
            number::Form::Respelled(respelled) => self.sink.put(respelled.octets()),
            number::Form::QuotedDigits => {
                self.sink.put(b"\"");
                self.sink.put(text);
                self.sink.put(b"\"");
            }
            number::Form::QuotedInfinity { negative } => {
                self.sink
                    .put(if negative { b"\"-inf\"" } else { b"\"inf\"" });
            }
        }
    }
}

/// Where the scalar ends that starts at `at`, in a text that was found to be JSON.
fn scalar_end(text: &[u8], at: usize) -> usize {
    if text[at] == b'"' {
        return string::scan(text, at).map_or(text.len(), |token| token.end);
    }
    let is_end = |octet: &u8| matches!(octet, b',' | b']' | b' ' | b'\t' | b'\n' | b'\r');
    text[at..]
        .iter()
        .position(is_end)
        .map_or(text.len(), |length| at + length)
}

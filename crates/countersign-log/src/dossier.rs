//! A dossier: a journal's leaves, its signed head and its key bindings in one JSON file to hand out.
//!
//! Both ways it streams: leaves pass through one by one, so a dossier may be larger than memory.
//! Reading is as strict as the reference: a text that it would refuse is refused here. Nothing here
//! judges what was read; `verdict` does.

use std::io::{self, Read, Write};

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::checkpoint::Checkpoint;
use crate::json::{JsonError, Members};
use crate::keys::{KeyBinding, Revocation};
use crate::leaf::{Leaf, PlainLeaf};

/// Levels of lists and objects that a dossier may have, as in the reference.
const DEPTH_MAX: usize = 1000;

/// Octets of one leaf, binding or other single value: the cap of a journal's line.
const VALUE_OCTETS_MAX: usize = 16 << 20;

/// Octets read from the input at a time.
const CHUNK_OCTETS: usize = 256 << 10;

/// What a dossier has once: all but its lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// Hex of the identity whose journal it is.
    pub identity_pubkey: String,
    /// The identity's word on size and root.
    pub checkpoint: Checkpoint,
}

/// An element of a dossier's lists. They come in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A leaf of kind memory, intent or result, as nearly all are.
    Plain(PlainLeaf),
    /// Any other leaf, or one that is spelled in another way.
    Leaf(Leaf),
    /// A session's authorisation.
    Binding(KeyBinding),
    /// A revocation.
    Revocation(Revocation),
}

/// Why a text is not a dossier.
#[derive(Debug)]
pub enum DossierError {
    /// The input cannot be read.
    Read(io::Error),
    /// Not JSON, or not what a dossier must be: what and where.
    Malformed(String),
}

impl std::fmt::Display for DossierError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot be read: {error}"),
            Self::Malformed(why) => write!(f, "is not a dossier: {why}"),
        }
    }
}

impl std::error::Error for DossierError {}

/// Reads a dossier and hands its parts to `take` as they come. What was handed out before an error
/// is void. Receipts and the directory are checked for their form and dropped.
///
/// # Errors
/// The input fails, or the text is not a dossier.
pub fn read(input: &mut dyn Read, take: &mut dyn FnMut(Part)) -> Result<Cover, DossierError> {
    let mut text = Text::new(input);
    let mut seen = [false; TOP_FIELDS.len()];
    let (mut identity, mut checkpoint) = (None, None);
    text.expect(b'{')?;
    let mut more = !text.accept(b'}')?;
    while more {
        let key: String = parse("a member's name", text.value(1)?.raw)?;
        text.expect(b':')?;
        if let Some(at) = TOP_FIELDS.iter().position(|name| *name == key)
            && std::mem::replace(&mut seen[at], true)
        {
            let repeated = JsonError::Repeated(TOP_FIELDS[at]);
            return Err(DossierError::Malformed(repeated.to_string()));
        }
        match key.as_str() {
            "identity_pubkey" => identity = Some(parse(&key, text.value(1)?.raw)?),
            "checkpoint" => {
                let read = Checkpoint::read(text.value(1)?.raw);
                checkpoint = Some(read.map_err(|error| malformed(&key, error))?);
            }
            "leaves" => read_list(&mut text, "leaf", &mut |leaf| {
                take(match leaf.tight.and_then(PlainLeaf::read) {
                    Some(plain) => Part::Plain(plain),
                    None => Part::Leaf(Leaf::read(leaf.raw)?),
                });
                Ok(())
            })?,
            "key_bindings" => read_list(&mut text, "key binding", &mut |binding| {
                take(Part::Binding(KeyBinding::read(binding.raw)?));
                Ok(())
            })?,
            "revocations" => read_list(&mut text, "revocation", &mut |revocation| {
                take(Part::Revocation(Revocation::read(revocation.raw)?));
                Ok(())
            })?,
            "witness_receipts" => {
                read_list(&mut text, "receipt", &mut |receipt| {
                    check_receipt(receipt.raw)
                })?;
            }
            "witness_directory" => {
                check_directory(text.value(1)?.raw).map_err(|error| malformed(&key, error))?
            }
            _ => drop(parse::<IgnoredAny>(&key, text.value(1)?.raw)?),
        }
        more = text.accept(b',')?;
        if !more {
            text.expect(b'}')?;
        }
    }
    text.expect_end()?;
    let missing =
        |at: usize| DossierError::Malformed(JsonError::Missing(TOP_FIELDS[at]).to_string());
    if !seen[1] {
        return Err(missing(1));
    }
    Ok(Cover {
        identity_pubkey: identity.ok_or_else(|| missing(0))?,
        checkpoint: checkpoint.ok_or_else(|| missing(2))?,
    })
}

const TOP_FIELDS: [&str; 8] = [
    "identity_pubkey",
    "leaves",
    "checkpoint",
    "witness_receipts",
    "witness_directory",
    "key_bindings",
    "revocations",
    "fleet_anchor",
];

fn malformed(what: &str, why: impl std::fmt::Display) -> DossierError {
    DossierError::Malformed(format!("{what}: {why}"))
}

fn parse<'t, T: serde::Deserialize<'t>>(what: &str, raw: &'t [u8]) -> Result<T, DossierError> {
    serde_json::from_slice(raw).map_err(|error| malformed(what, error))
}

/// Reads a list whose elements are called `name` in errors.
fn read_list(
    text: &mut Text<'_>,
    name: &str,
    take: &mut dyn FnMut(Value<'_>) -> Result<(), JsonError>,
) -> Result<(), DossierError> {
    text.expect(b'[')?;
    let mut at = 0_u64;
    let mut more = !text.accept(b']')?;
    while more {
        take(text.value(2)?).map_err(|error| malformed(&format!("{name} {at}"), error))?;
        at += 1;
        more = text.accept(b',')?;
        if !more {
            text.expect(b']')?;
        }
    }
    Ok(())
}

const RECEIPT_FIELDS: [&str; 7] = [
    "witness_pubkey",
    "tree_size",
    "root_hash",
    "witnessed_at_ms",
    "signature",
    "c2sp_origin",
    "witness_name",
];

fn check_receipt(text: &[u8]) -> Result<(), JsonError> {
    let members = Members::read(text, &RECEIPT_FIELDS)?;
    for text in [0, 2, 4] {
        members.string(text)?;
    }
    for number in [1, 3] {
        members.u64(number)?;
    }
    for optional in [5, 6] {
        members.optional_string(optional)?;
    }
    Ok(())
}

const DIRECTORY_FIELDS: [&str; 1] = ["witnesses"];
const ENTRY_FIELDS: [&str; 7] = [
    "name",
    "operator_org",
    "url",
    "pubkey",
    "compute_provider",
    "runtime",
    "is_project_operated",
];

fn check_directory(text: &[u8]) -> Result<(), JsonError> {
    let members = Members::read(text, &DIRECTORY_FIELDS)?;
    let list = members.raw(0).ok_or(JsonError::Missing("witnesses"))?;
    let list = serde_json::from_str::<Vec<&RawValue>>(list.get()).map_err(|_| JsonError::Type {
        member: "witnesses",
        expected: "a list",
    })?;
    list.into_iter().try_for_each(|entry| {
        let members = Members::read(entry.get().as_bytes(), &ENTRY_FIELDS)?;
        for text in 0..4 {
            members.string(text)?;
        }
        members.optional_string(4)?;
        let one_of = |at: usize, values: [&str; 2], expected| match members.raw(at) {
            Some(text) if !values.contains(&text.get()) => Err(JsonError::Type {
                member: ENTRY_FIELDS[at],
                expected,
            }),
            _ => Ok(()),
        };
        one_of(5, ["\"human\"", "\"agent\""], "human or agent")?;
        one_of(6, ["true", "false"], "true or false")
    })
}

/// One value of the text, UTF-8 but not otherwise checked.
#[derive(Clone, Copy)]
struct Value<'t> {
    raw: &'t [u8],
    /// The same without blanks, if they stood only where JSON lets them stand.
    tight: Option<&'t [u8]>,
}

/// A JSON text that is cut into values as it comes, with one value in memory.
struct Text<'r> {
    input: &'r mut dyn Read,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Octets before the buffer.
    offset: u64,
    tight: Vec<u8>,
}

impl<'r> Text<'r> {
    fn new(input: &'r mut dyn Read) -> Self {
        Self {
            input,
            buffer: vec![0; CHUNK_OCTETS],
            start: 0,
            end: 0,
            offset: 0,
            tight: Vec::new(),
        }
    }

    fn fault(&self, why: impl std::fmt::Display) -> DossierError {
        malformed(&format!("octet {}", self.offset + self.start as u64), why)
    }

    /// Reads on; false at the end of the input.
    fn fill(&mut self) -> Result<bool, DossierError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.offset += self.start as u64;
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DossierError::Read(error)),
                Ok(length) => {
                    self.end += length;
                    return Ok(length > 0);
                }
            }
        }
    }

    /// The next octet that is no blank, which is not taken.
    fn peek(&mut self) -> Result<Option<u8>, DossierError> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = unread.iter().position(|octet| !is_blank(*octet)) {
                self.start += at;
                return Ok(Some(self.buffer[self.start]));
            }
            self.start = self.end;
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Takes the next octet if it is `octet`.
    fn accept(&mut self, octet: u8) -> Result<bool, DossierError> {
        let is_next = self.peek()? == Some(octet);
        self.start += usize::from(is_next);
        Ok(is_next)
    }

    fn expect(&mut self, octet: u8) -> Result<(), DossierError> {
        match self.accept(octet)? {
            true => Ok(()),
            false => Err(self.fault(format_args!("`{}` must stand here", char::from(octet)))),
        }
    }

    fn expect_end(&mut self) -> Result<(), DossierError> {
        match self.peek()? {
            None => Ok(()),
            Some(_) => Err(self.fault("text follows the dossier")),
        }
    }

    /// The next value, which stands `depth` levels deep.
    fn value(&mut self, depth: usize) -> Result<Value<'_>, DossierError> {
        self.peek()?;
        self.tight.clear();
        let mut scan = Scan::new(depth);
        let mut length = 0;
        loop {
            let unread = &self.buffer[self.start + length..self.end];
            length += scan.advance(unread, &mut self.tight);
            if scan.depth > DEPTH_MAX {
                return Err(self.fault("lists and objects are more than 1000 levels deep"));
            }
            if length > VALUE_OCTETS_MAX {
                return Err(self.fault("a single value is larger than 16 MiB"));
            }
            if scan.done {
                break;
            }
            if !self.fill()? {
                return Err(self.fault("the text ends within a value"));
            }
        }
        if std::str::from_utf8(&self.buffer[self.start..self.start + length]).is_err() {
            return Err(self.fault("a value is not UTF-8"));
        }
        let start = self.start;
        self.start += length;
        Ok(Value {
            raw: &self.buffer[start..start + length],
            tight: (!scan.loose).then_some(&self.tight),
        })
    }
}

fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | b'\n' | b'\r')
}

/// Finds the end of a value. It only counts brackets outside of strings; whether they match, and all
/// else, is for who reads the value.
struct Scan {
    base: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    done: bool,
    /// The last octet outside of strings that is no blank, and whether blanks followed it.
    last: u8,
    gap: bool,
    /// A blank stood within a number or a name, or between two values.
    loose: bool,
}

impl Scan {
    fn new(base: usize) -> Self {
        Self {
            base,
            depth: base,
            in_string: false,
            escaped: false,
            done: false,
            last: b',',
            gap: false,
            loose: false,
        }
    }

    /// Goes on in `text`, copies what is no blank to `tight`, and returns how far the value reaches.
    fn advance(&mut self, text: &[u8], tight: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < text.len() && !self.done && self.depth <= DEPTH_MAX {
            if self.in_string {
                at += self.string(&text[at..], tight);
                continue;
            }
            let octet = text[at];
            if self.depth == self.base && self.ends_scalar(octet) {
                self.done = true;
                break;
            }
            at += 1;
            if is_blank(octet) {
                self.gap = true;
                continue;
            }
            let may_follow = matches!(self.last, b'{' | b'[' | b',' | b':')
                || matches!(octet, b'}' | b']' | b',' | b':');
            self.loose |= std::mem::take(&mut self.gap) && !may_follow;
            self.last = octet;
            tight.push(octet);
            match octet {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    self.done = self.depth == self.base;
                }
                _ => {}
            }
        }
        at
    }

    /// What follows a number or a name at the value's own level. A bracket that closes before one
    /// opened ends the value too: it belongs to what the value stands in.
    fn ends_scalar(&self, octet: u8) -> bool {
        is_blank(octet) || matches!(octet, b',' | b':' | b'}' | b']')
    }

    fn string(&mut self, text: &[u8], tight: &mut Vec<u8>) -> usize {
        if self.escaped {
            self.escaped = false;
            tight.push(text[0]);
            return 1;
        }
        let Some(at) = memchr::memchr2(b'"', b'\\', text) else {
            tight.extend(text);
            return text.len();
        };
        tight.extend(&text[..=at]);
        if text[at] == b'\\' {
            self.escaped = true;
        } else {
            self.in_string = false;
            self.done = self.depth == self.base;
        }
        at + 1
    }
}

/// Writes a dossier without receipts, in the reference's very bytes, taking leaves one at a time.
///
/// # Errors
/// `out` fails, a leaf cannot be had, or there are not as many leaves as the checkpoint says.
pub fn write(
    out: &mut dyn Write,
    cover: &Cover,
    leaves: &mut dyn Iterator<Item = io::Result<Leaf>>,
    bindings: &[KeyBinding],
) -> io::Result<()> {
    let identity = serde_json::to_string(&cover.identity_pubkey).expect("a string is JSON");
    write!(
        out,
        "{{\n  \"identity_pubkey\": {identity},\n  \"leaves\": "
    )?;
    let mut count = 0;
    let mut texts = leaves.map(|leaf| {
        count += 1;
        leaf.map(|leaf| leaf.to_json())
    });
    write_list(out, &mut texts)?;
    if count != cover.checkpoint.tree_size {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "{count} leaves do not make a dossier under a checkpoint over {}",
                cover.checkpoint.tree_size
            ),
        ));
    }
    out.write_all(b",\n  \"checkpoint\": ")?;
    out.write_all(&pretty(&cover.checkpoint.to_json(), 1))?;
    out.write_all(b",\n  \"witness_receipts\": [],\n  \"witness_directory\": {\n    \"witnesses\": []\n  },\n  \"key_bindings\": ")?;
    write_list(
        out,
        &mut bindings.iter().map(|binding| Ok(binding.to_json())),
    )?;
    out.write_all(b",\n  \"revocations\": []\n}")
}

fn write_list(
    out: &mut dyn Write,
    texts: &mut dyn Iterator<Item = io::Result<Vec<u8>>>,
) -> io::Result<()> {
    let mut separator: &[u8] = b"[\n    ";
    let mut end: &[u8] = b"[]";
    for text in texts {
        out.write_all(separator)?;
        out.write_all(&pretty(&text?, 2))?;
        separator = b",\n    ";
        end = b"\n  ]";
    }
    out.write_all(end)
}

/// Sets a JSON text of one line out over several, two spaces a level, beginning at `depth`.
fn pretty(line: &[u8], mut depth: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(line.len() * 2);
    let (mut in_string, mut escaped) = (false, false);
    for &octet in line {
        if in_string {
            text.push(octet);
            in_string = escaped || octet != b'"';
            escaped = !escaped && octet == b'\\';
            continue;
        }
        match octet {
            b'{' | b'[' => {
                depth += 1;
                text.push(octet);
                break_line(&mut text, depth);
            }
            b'}' | b']' => {
                depth -= 1;
                break_line(&mut text, depth);
                text.push(octet);
            }
            b',' => {
                text.push(octet);
                break_line(&mut text, depth);
            }
            b':' => text.extend(b": "),
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => {
                in_string = octet == b'"';
                text.push(octet);
            }
        }
    }
    text
}

fn break_line(text: &mut Vec<u8>, depth: usize) {
    text.push(b'\n');
    text.extend(std::iter::repeat_n(b' ', depth * 2));
}

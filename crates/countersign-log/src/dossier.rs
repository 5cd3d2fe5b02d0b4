//! A dossier: a journal's leaves, its signed head and its key bindings in one JSON file to hand out.
//!
//! Both ways it streams: leaves pass through one by one, so a dossier may be larger than memory.
//! Reading is as strict as the reference: a text that it would refuse is refused here. Nothing here
//! judges what was read; `verdict` does.

use std::io::{self, BufReader, Read, Write};

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::checkpoint::Checkpoint;
use crate::json::{JsonError, Members};
use crate::keys::{KeyBinding, Revocation};
use crate::leaf::Leaf;

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
    /// A leaf.
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
    let text = BufReader::with_capacity(CHUNK_OCTETS, StrictText::new(input));
    let mut deserializer = serde_json::Deserializer::from_reader(text);
    deserializer
        .deserialize_map(Top { take })
        .and_then(|cover| deserializer.end().map(|()| cover))
        .map_err(|error| match error.io_error_kind() {
            Some(kind) if kind != io::ErrorKind::InvalidData => DossierError::Read(error.into()),
            _ => DossierError::Malformed(error.to_string()),
        })
}

struct Top<'t> {
    take: &'t mut dyn FnMut(Part),
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

impl<'de> Visitor<'de> for Top<'_> {
    type Value = Cover;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cover, A::Error> {
        let take = self.take;
        let mut seen = [false; TOP_FIELDS.len()];
        let (mut identity, mut checkpoint) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            let Some(at) = TOP_FIELDS.iter().position(|name| *name == key) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(A::Error::custom(JsonError::Repeated(TOP_FIELDS[at])));
            }
            match key.as_str() {
                "identity_pubkey" => identity = Some(map.next_value::<String>()?),
                "checkpoint" => {
                    let text = map.next_value::<Box<RawValue>>()?;
                    let read = Checkpoint::read(text.get().as_bytes());
                    checkpoint = Some(read.map_err(|error| in_member(&key, error))?);
                }
                "leaves" => map.next_value_seed(List("leaf", &mut |text| {
                    Leaf::read(text).map(|leaf| take(Part::Leaf(leaf)))
                }))?,
                "key_bindings" => map.next_value_seed(List("key binding", &mut |text| {
                    KeyBinding::read(text).map(|binding| take(Part::Binding(binding)))
                }))?,
                "revocations" => map.next_value_seed(List("revocation", &mut |text| {
                    Revocation::read(text).map(|revocation| take(Part::Revocation(revocation)))
                }))?,
                "witness_receipts" => map.next_value_seed(List("receipt", &mut check_receipt))?,
                "witness_directory" => {
                    let text = map.next_value::<Box<RawValue>>()?;
                    check_directory(text.get().as_bytes())
                        .map_err(|error| in_member(&key, error))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let missing = |at: usize| A::Error::custom(JsonError::Missing(TOP_FIELDS[at]));
        if !seen[1] {
            return Err(missing(1));
        }
        Ok(Cover {
            identity_pubkey: identity.ok_or_else(|| missing(0))?,
            checkpoint: checkpoint.ok_or_else(|| missing(2))?,
        })
    }
}

fn in_member<E: serde::de::Error>(member: &str, error: JsonError) -> E {
    E::custom(format_args!("`{member}`: {error}"))
}

/// A list whose elements are read one by one, called by this name in errors.
struct List<'t>(
    &'static str,
    &'t mut dyn FnMut(&[u8]) -> Result<(), JsonError>,
);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self(name, take) = self;
        let mut at = 0_u64;
        while let Some(text) = list.next_element::<Box<RawValue>>()? {
            take(text.get().as_bytes())
                .map_err(|error| A::Error::custom(format_args!("{name} {at}: {error}")))?;
            at += 1;
        }
        Ok(())
    }
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

/// Passes a text on and refuses it where a JSON parser would not: octets that are not UTF-8 in
/// places that the parser skips, too many levels, a single value that would fill memory.
struct StrictText<'r> {
    input: &'r mut dyn Read,
    depth: usize,
    in_string: bool,
    escaped: bool,
    value_octets: usize,
    /// The start of a character whose rest is in the next chunk.
    partial: Vec<u8>,
}

impl<'r> StrictText<'r> {
    fn new(input: &'r mut dyn Read) -> Self {
        Self {
            input,
            depth: 0,
            in_string: false,
            escaped: false,
            value_octets: 0,
            partial: Vec::new(),
        }
    }

    fn check_utf8(&mut self, chunk: &[u8]) -> Result<(), &'static str> {
        const WHY: &str = "the text is not UTF-8";
        let joined;
        let text = if self.partial.is_empty() {
            chunk
        } else {
            joined = [&self.partial, chunk].concat();
            &joined
        };
        let rest = match std::str::from_utf8(text) {
            Ok(_) => &[][..],
            Err(error) if error.error_len().is_none() => &text[error.valid_up_to()..],
            Err(_) => return Err(WHY),
        };
        // An empty chunk is the end of the input: nothing may be left over.
        if chunk.is_empty() && !rest.is_empty() {
            return Err(WHY);
        }
        self.partial = rest.to_vec();
        Ok(())
    }

    fn check_shape(&mut self, chunk: &[u8]) -> Result<(), &'static str> {
        for &octet in chunk {
            self.value_octets += 1;
            if self.in_string {
                match octet {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match octet {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' => {}
                _ => continue,
            }
            if self.depth > DEPTH_MAX {
                return Err("lists and objects are more than 1000 levels deep");
            }
            // Members of the dossier stand at level 1, elements of its lists at level 2.
            if self.depth <= 2 && octet != b'"' {
                self.value_octets = 0;
            }
        }
        if self.value_octets > VALUE_OCTETS_MAX {
            return Err("a single value is larger than 16 MiB");
        }
        Ok(())
    }
}

impl Read for StrictText<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        let chunk = &buffer[..length];
        self.check_utf8(chunk)
            .and_then(|()| self.check_shape(chunk))
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        Ok(length)
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

//! Reading one level of JSON at a time.
//!
//! The one idea: everything here works on text whose grammar serde_json checks (or has checked), and hands
//! out pieces of that same text, so nothing large is copied and nothing recurses, however deep it nests.
//! Nothing here knows what a method or a call is.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserializer as _;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A place in the octets of a message.
pub(super) type Span = Range<usize>;

/// A JSON string with its escapes resolved.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    /// The characters; a lone surrogate is U+FFFD here.
    pub(super) text: Cow<'a, str>,
    /// Whether a surrogate without its other half was replaced.
    pub(super) lone: bool,
}

/// How a key compares with the keys that decisions rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// It is the key at this index.
    Exact(usize),
    /// Some parser reads it as the key at this index, others do not.
    Variant(usize),
    /// It is none of them.
    Other,
}

/// Where `part` lies in `whole`. `part` must have been cut out of `whole`.
pub(super) fn span(whole: &str, part: &str) -> Span {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// Calls `each` with the quoted key and the value of every member of `object`, in order.
///
/// The grammar of the whole text is checked on the way, so this is the only pass that a message needs.
pub(super) fn members<'a>(
    object: &'a str,
    each: impl FnMut(&'a str, &'a str),
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(object);
    json.deserialize_map(Members(each))?;
    json.end()
}

/// Calls `each` with every element of `array`, in order, checking the grammar of the whole text.
pub(super) fn elements<'a>(
    array: &'a str,
    each: impl FnMut(&'a str),
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(array);
    json.deserialize_seq(Elements(each))?;
    json.end()
}

/// Checks the grammar of a text of any type.
pub(super) fn check(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<&RawValue>(text).map(|_| ())
}

struct Members<F>(F);

impl<'de, F: FnMut(&'de str, &'de str)> Visitor<'de> for Members<F> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        // The key is taken raw as well: a lone surrogate in a vendor's key is legal JSON and must pass.
        while let Some(key) = map.next_key::<&'de RawValue>()? {
            (self.0)(key.get(), map.next_value::<&'de RawValue>()?.get());
        }
        Ok(())
    }
}

struct Elements<F>(F);

impl<'de, F: FnMut(&'de str)> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            (self.0)(element.get());
        }
        Ok(())
    }
}

/// The value of the member that `path` leads to, through objects only; the last of doubled keys wins.
pub(super) fn member<'a>(object: &'a str, path: &[&str]) -> Option<&'a str> {
    let (wanted, rest) = path.split_first()?;
    if !object.starts_with('{') {
        return None;
    }
    let mut found = None;
    // A text that is no JSON has no members; those of a parsed message were checked when it was parsed.
    members(object, |key, value| {
        if decode(key).is_some_and(|key| !key.lone && key.text == *wanted) {
            found = Some(value);
        }
    })
    .ok()?;
    if rest.is_empty() {
        found
    } else {
        member(found?, rest)
    }
}

/// Resolves the escapes of a quoted JSON string; nothing when `quoted` is some other type.
pub(super) fn decode(quoted: &str) -> Option<Decoded<'_>> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Decoded {
            text: Cow::Borrowed(inner),
            lone: false,
        });
    }
    let mut text = String::with_capacity(inner.len());
    let (mut rest, mut lone) = (inner, false);
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..at]);
        let (character, octets) = escape(&rest[at..])?;
        lone |= character.is_none();
        text.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &rest[at + octets..];
    }
    text.push_str(rest);
    Some(Decoded {
        text: Cow::Owned(text),
        lone,
    })
}

/// The character of the escape that `text` begins with (none for a lone surrogate), and its length.
fn escape(text: &str) -> Option<(Option<char>, usize)> {
    let simple = match text.as_bytes().get(1)? {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode_escape(text),
        other => char::from(*other),
    };
    Some((Some(simple), 2))
}

fn unicode_escape(text: &str) -> Option<(Option<char>, usize)> {
    let unit = |at: usize| u32::from_str_radix(text.get(at..at + 4)?, 16).ok();
    let first = unit(2)?;
    if (0xd800..0xdc00).contains(&first)
        && text.get(6..8) == Some("\\u")
        && let Some(second @ 0xdc00..0xe000) = unit(8)
    {
        let combined = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return Some((char::from_u32(combined), 12));
    }
    Some((char::from_u32(first), 6))
}

/// Compares a decoded key with `governed`.
pub(super) fn spelling(key: &Decoded<'_>, governed: &[&str]) -> Spelling {
    if !key.lone
        && let Some(index) = governed.iter().position(|wanted| key.text == *wanted)
    {
        return Spelling::Exact(index);
    }
    let variant = governed
        .iter()
        .position(|wanted| read_as(&key.text, wanted).is_some_and(|rest| rest.is_empty()));
    variant.map_or(Spelling::Other, Spelling::Variant)
}

/// Whether some parser may read the beginning of `text` as `wanted`: what is left of `text` then.
///
/// Parsers were seen to ignore case by Unicode's simple folding (which makes U+017F an `s` and U+212A a `k`),
/// to end strings at U+0000, and to drop lone surrogates.
pub(super) fn read_as<'a>(text: &'a str, wanted: &str) -> Option<&'a str> {
    let (mut rest, mut wanted) = (text.chars(), wanted.chars().map(fold));
    let mut next = wanted.next();
    loop {
        let before = rest.as_str();
        match rest.next().map(fold) {
            Some(char::REPLACEMENT_CHARACTER) => {}
            None | Some('\0') => return next.is_none().then_some(""),
            _ if next.is_none() => return Some(before),
            read if read == next => next = wanted.next(),
            _ => return None,
        }
    }
}

fn fold(character: char) -> char {
    match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    }
}

/// How many objects and arrays enclose the most enclosed value of a well-formed text.
pub(super) fn depth(text: &str) -> usize {
    let octets = text.as_bytes();
    let (mut at, mut level, mut deepest) = (0, 0_usize, 0);
    while let Some(octet) = octets.get(at) {
        at += 1;
        match octet {
            b'{' | b'[' => level += 1,
            b'}' | b']' => level = level.saturating_sub(1),
            b'"' => at = string_end(octets, at).unwrap_or(octets.len()),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

/// Where the string ends whose first octet after the quote is at `at`: the place after its closing quote.
pub(super) fn string_end(octets: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', octets.get(at..)?)?;
        if octets[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// What serde_json objects to, and where, in words for the sender.
pub(super) fn complaint(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let what = said
        .rsplit_once(" at line ")
        .map_or(said.as_str(), |(what, _)| what);
    if error.line() > 1 {
        format!("line {} column {}: {what}", error.line(), error.column())
    } else {
        format!("column {}: {what}", error.column())
    }
}

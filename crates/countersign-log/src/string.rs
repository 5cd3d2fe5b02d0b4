//! JSON strings as text: where one ends, whether it is already canonical, and how it is respelled.
//!
//! The one idea: text between escapes is never looked at twice and never copied here; it is handed
//! on in runs. Strings reach the second half only after [`scan`] accepted them.

use crate::sink::Sink;
use std::cmp::Ordering;

/// Octets after which a run is read by blocks.
const LONG_RUN: usize = 32;

/// What one pass over a string's text found.
#[derive(Clone, Copy)]
pub(crate) struct Token {
    /// Offset after the closing quote.
    pub(crate) end: usize,
    /// The text is its own canonical form.
    pub(crate) verbatim: bool,
    /// It has at least one escape.
    pub(crate) escaped: bool,
}

/// Why a text is not a string.
pub(crate) enum Fault {
    /// The text ends inside the string.
    Unclosed,
    /// A control character stands unescaped at this offset.
    Control(usize),
    /// The escape at this offset is none of JSON's.
    Escape(usize),
}

/// Reads the string whose opening quote stands at `at`.
pub(crate) fn scan(text: &[u8], at: usize) -> Result<Token, Fault> {
    let mut token = Token {
        end: at + 1,
        verbatim: true,
        escaped: false,
    };
    loop {
        token.end += plain_run(&text[token.end..]);
        match text.get(token.end) {
            Some(b'"') => {
                token.end += 1;
                return Ok(token);
            }
            Some(b'\\') => {
                let (length, verbatim) = escape(text, token.end).ok_or(Fault::Escape(token.end))?;
                token.end += length;
                token.escaped = true;
                token.verbatim &= verbatim;
            }
            Some(_) => return Err(Fault::Control(token.end)),
            None => return Err(Fault::Unclosed),
        }
    }
}

/// Length of the escape at `at`, and whether canonical JSON would write it just so.
fn escape(text: &[u8], at: usize) -> Option<(usize, bool)> {
    match text.get(at + 1)? {
        b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => Some((2, true)),
        b'/' => Some((2, false)),
        b'u' => {
            let unit = hex4(text, at + 2)?;
            let short = matches!(unit, 0x08 | 0x09 | 0x0A | 0x0C | 0x0D);
            Some((
                6,
                unit < 0x20 && !short && !text[at + 5].is_ascii_uppercase(),
            ))
        }
        _ => None,
    }
}

/// The value of each hexadecimal digit, and `NO_DIGIT` for every other octet.
const HEX_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

const NO_DIGIT: u8 = 0xFF;

fn hex4(text: &[u8], at: usize) -> Option<u32> {
    let digits: &[u8; 4] = text.get(at..)?.first_chunk()?;
    let values = digits.map(|digit| HEX_VALUES[digit as usize]);
    let valid = values.iter().all(|value| *value != NO_DIGIT);
    valid.then(|| {
        values
            .iter()
            .fold(0, |unit, value| unit << 4 | u32::from(*value))
    })
}

/// Octets before the first quote, backslash or control character. Short runs, which are most, are
/// read by words; only a run that proved long is read by blocks, which the compiler makes vectors of.
fn plain_run(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = text[at..].first_chunk::<8>() {
        let special = specials(u64::from_le_bytes(*word));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
        if at == LONG_RUN {
            at += plain_blocks(&text[at..]);
        }
    }
    let rest = &text[at..];
    at + rest
        .iter()
        .position(|octet| is_special(*octet))
        .unwrap_or(rest.len())
}

/// Octets in leading blocks that hold nothing special.
fn plain_blocks(text: &[u8]) -> usize {
    let (blocks, _) = text.as_chunks::<64>();
    let is_plain = |block: &&[u8; 64]| {
        !block
            .iter()
            .fold(false, |special, octet| special | is_special(*octet))
    };
    blocks.iter().take_while(is_plain).count() * 64
}

fn is_special(octet: u8) -> bool {
    octet < 0x20 || octet == b'"' || octet == b'\\'
}

/// Marks the top bit of every octet that is special. Marks above the lowest may be false: a borrow
/// runs upwards, so only the first is used.
fn specials(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let matches = quote.wrapping_sub(ONES) & !quote | backslash.wrapping_sub(ONES) & !backslash;
    (below_space | matches) & (ONES * 0x80)
}

/// A part of a string's text.
enum Piece<'a> {
    /// Text that stands for itself.
    Run(&'a [u8]),
    /// A code point from an escape or a pair of escapes; a lone surrogate too.
    Code(u32),
}

/// The parts of a string's text between its quotes, in order.
struct Pieces<'a> {
    text: &'a [u8],
    at: usize,
}

fn pieces(inside: &[u8]) -> Pieces<'_> {
    Pieces {
        text: inside,
        at: 0,
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        if run > 0 {
            self.at += run;
            return Some(Piece::Run(&rest[..run]));
        }
        let short = |code| (2, code);
        let (length, code) = match rest[1] {
            b'b' => short(0x08),
            b't' => short(0x09),
            b'n' => short(0x0A),
            b'f' => short(0x0C),
            b'r' => short(0x0D),
            b'u' => code_point(rest),
            itself => short(u32::from(itself)),
        };
        self.at += length;
        Some(Piece::Code(code))
    }
}

/// The code point of the `\uXXXX` that `text` starts with, joined with a second one where both make a pair.
fn code_point(text: &[u8]) -> (usize, u32) {
    let first = hex4(text, 2).expect("the scan read four hex digits here");
    if (0xD800..0xDC00).contains(&first) && text.get(6..8) == Some(b"\\u") {
        let second = hex4(text, 8).expect("the scan read four hex digits here");
        if is_low(second) {
            return (12, 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00));
        }
    }
    (6, first)
}

fn is_low(unit: u32) -> bool {
    (0xDC00..0xE000).contains(&unit)
}

/// Writes the canonical form of a string whose text between the quotes is `inside`.
pub(crate) fn write_respelled<S: Sink>(sink: &mut S, inside: &[u8]) {
    let lone = holds_lone_surrogate(inside);
    sink.put(b"\"");
    for piece in pieces(inside) {
        match piece {
            Piece::Run(run) if !lone => sink.put(run),
            Piece::Run(run) => put_ascii_run(sink, run),
            Piece::Code(code) if lone => put_ascii(sink, code),
            Piece::Code(code) => put_code(sink, code),
        }
    }
    sink.put(b"\"");
}

fn holds_lone_surrogate(inside: &[u8]) -> bool {
    let is_lone = |piece| matches!(piece, Piece::Code(0xD800..0xE000));
    memchr::memmem::find(inside, b"\\u").is_some() && pieces(inside).any(is_lone)
}

/// Writes the canonical form of a string whose decoded text is `text`.
pub(crate) fn write<S: Sink>(sink: &mut S, text: &str) {
    let mut rest = text.as_bytes();
    sink.put(b"\"");
    loop {
        let run = plain_run(rest);
        sink.put(&rest[..run]);
        let Some(special) = rest.get(run) else { break };
        put_code(sink, u32::from(*special));
        rest = &rest[run + 1..];
    }
    sink.put(b"\"");
}

fn put_code<S: Sink>(sink: &mut S, code: u32) {
    if put_short(sink, code) {
        return;
    }
    match char::from_u32(code) {
        Some(plain) if code >= 0x20 => sink.put(plain.encode_utf8(&mut [0; 4]).as_bytes()),
        _ => put_unit(sink, code),
    }
}

fn put_ascii_run<S: Sink>(sink: &mut S, run: &[u8]) {
    let text = std::str::from_utf8(run).expect("the whole text is UTF-8 and escapes are ASCII");
    text.chars()
        .for_each(|plain| put_ascii(sink, u32::from(plain)));
}

fn put_ascii<S: Sink>(sink: &mut S, code: u32) {
    if put_short(sink, code) {
        return;
    }
    match code {
        0x20..=0x7E => sink.put(&[code as u8]),
        0x1_0000.. => {
            put_unit(sink, 0xD800 + ((code - 0x1_0000) >> 10));
            put_unit(sink, 0xDC00 + ((code - 0x1_0000) & 0x3FF));
        }
        _ => put_unit(sink, code),
    }
}

fn put_short<S: Sink>(sink: &mut S, code: u32) -> bool {
    let short: &[u8] = match code {
        0x22 => b"\\\"",
        0x5C => b"\\\\",
        0x08 => b"\\b",
        0x09 => b"\\t",
        0x0A => b"\\n",
        0x0C => b"\\f",
        0x0D => b"\\r",
        _ => return false,
    };
    sink.put(short);
    true
}

fn put_unit<S: Sink>(sink: &mut S, unit: u32) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |shift: u32| HEX[(unit >> shift & 0xF) as usize];
    sink.put(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
}

/// Appends the decoded text to `out`, lone surrogates as three octets as UTF-8 would have them.
pub(crate) fn decode(out: &mut Vec<u8>, inside: &[u8]) {
    for piece in pieces(inside) {
        match piece {
            Piece::Run(run) => out.extend_from_slice(run),
            Piece::Code(code) => match char::from_u32(code) {
                Some(plain) => out.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
                None => out.extend(
                    [
                        0xE0 | code >> 12,
                        0x80 | code >> 6 & 0x3F,
                        0x80 | code & 0x3F,
                    ]
                    .map(|octet| octet as u8),
                ),
            },
        }
    }
}

/// Orders two decoded keys by their UTF-16 code units (RFC 8785 section 3.2.3).
pub(crate) fn utf16_order(left: &[u8], right: &[u8]) -> Ordering {
    let Some(at) = left
        .iter()
        .zip(right)
        .position(|(left, right)| left != right)
    else {
        return left.len().cmp(&right.len());
    };
    // Below the surrogates, octets and code units sort alike.
    if left[at] < 0xED && right[at] < 0xED {
        return left[at].cmp(&right[at]);
    }
    units(&left[at..]).cmp(units(&right[at..]))
}

/// The UTF-16 code units of a text as [`decode`] makes it, from the start of a character.
fn units(mut rest: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let mut low = None;
    std::iter::from_fn(move || {
        if let Some(unit) = low.take() {
            return Some(unit);
        }
        let lead = u32::from(*rest.first()?);
        let (length, bits) = match lead {
            0xF0.. => (4, lead & 0x07),
            0xE0.. => (3, lead & 0x0F),
            0xC0.. => (2, lead & 0x1F),
            _ => (1, lead),
        };
        let code = rest[1..length]
            .iter()
            .fold(bits, |code, octet| code << 6 | u32::from(octet & 0x3F));
        rest = &rest[length..];
        if code < 0x1_0000 {
            return Some(code);
        }
        low = Some(0xDC00 + ((code - 0x1_0000) & 0x3FF));
        Some(0xD800 + ((code - 0x1_0000) >> 10))
    })
}

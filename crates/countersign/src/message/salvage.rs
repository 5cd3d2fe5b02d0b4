//! Finding the id in a line that is not JSON.
//!
//! The one idea: a peer that waits for an answer should not wait until its deadline because the line was
//! cut off or holds a `NaN`. A wrong id would end somebody else's request, so whatever is doubtful gives no
//! id. Nothing here is believed for any other purpose.

use super::id::{ID_BYTES_MAX, Id, IdKind};
use super::{Kind, scan};

/// How deep a broken line may nest before it is given up: it bounds the memory of the search.
const SALVAGE_DEPTH_MAX: usize = 4096;

/// The id at the top level of a line that is not JSON: noise, a message cut off, `NaN`, text that is not UTF-8.
///
/// `kind` says what the line would have been. A broken [`Kind::Response`] is only believed when a `result` or
/// `error` is seen and no `method`, since a peer that sends requests numbers them on its own. The line must
/// begin with an object: a log line that quotes a message is none. Only numbers and strings that are complete
/// count, and two different ids are none. Time is linear in the line, memory bounded.
#[must_use]
pub fn salvage_id(line: &[u8], kind: Kind) -> Option<Id> {
    let seen = Scan::run(line);
    if seen.id.is_some() {
        seen.answer(kind)
    } else {
        None
    }
}

/// The same for a line over the limit, of which only the first and last octets are at hand.
///
/// `tail` must end where the line ended (without its newline): there an `"id":X}` is at the top level.
#[must_use]
pub fn salvage_id_from_ends(head: &[u8], tail: &[u8], kind: Kind) -> Option<Id> {
    let mut seen = Scan::run(head);
    if !seen.opened || seen.closed {
        return None;
    }
    if seen.id.is_none() {
        seen.id = Some(last_id(tail)?);
    }
    seen.answer(kind)
}

/// What the scan of a broken line saw at its top level.
#[derive(Default)]
struct Scan {
    opened: bool,
    closed: bool,
    id: Option<Id>,
    conflict: bool,
    method: bool,
    outcome: bool,
}

impl Scan {
    fn run(line: &[u8]) -> Self {
        let line = line
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(line)
            .trim_ascii();
        let mut seen = Self {
            opened: line.first() == Some(&b'{'),
            ..Self::default()
        };
        if seen.opened {
            // Where the scan stops is the end of what can be told apart; what it saw until then counts.
            let _end = seen.top(line);
        }
        seen
    }

    fn answer(self, kind: Kind) -> Option<Id> {
        let believed = match kind {
            Kind::Response => self.outcome && !self.method,
            Kind::Request => !self.outcome,
            Kind::Notification => false,
        };
        if believed && !self.conflict {
            self.id
        } else {
            None
        }
    }

    /// Walks the members of the object that `line` begins with; ends with `None` at what it cannot follow.
    fn top(&mut self, line: &[u8]) -> Option<()> {
        let mut at = 1;
        loop {
            at = skip_blanks(line, at);
            if *line.get(at)? != b'"' {
                self.closed = line[at] == b'}';
                return None;
            }
            let key_end = scan::string_end(line, at + 1)?;
            let key = &line[at..key_end];
            at = skip_blanks(line, key_end);
            if *line.get(at)? != b':' {
                return None;
            }
            at = skip_blanks(line, at + 1);
            self.note_key(key);
            let end = value_end(line, at)?;
            self.note_value(key, line[at..end].trim_ascii());
            if line[end] == b'}' {
                self.closed = true;
                return Some(());
            }
            at = end + 1;
        }
    }

    fn note_key(&mut self, key: &[u8]) {
        match decoded(key).as_deref() {
            Some("method") => self.method = true,
            Some("result" | "error") => self.outcome = true,
            _ => {}
        }
    }

    fn note_value(&mut self, key: &[u8], value: &[u8]) {
        if decoded(key).as_deref() != Some("id") {
            return;
        }
        match (usable(value), &self.id) {
            (Some(id), None) => self.id = Some(id),
            (Some(id), Some(before)) if id == *before => {}
            _ => self.conflict = true,
        }
    }
}

fn decoded(key: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    // A key that is no well-formed string could still slice oddly in `decode`, so check it first.
    scan::check(key).ok()?;
    scan::decode(key)
        .filter(|key| !key.lone)
        .map(|key| key.text.into_owned())
}

fn usable(value: &[u8]) -> Option<Id> {
    Id::parse(value).filter(|id| matches!(id.kind(), IdKind::Number | IdKind::String))
}

fn skip_blanks(line: &[u8], at: usize) -> usize {
    let blank = |octet: &&u8| matches!(octet, b' ' | b'\t' | b'\r' | b'\n');
    at + line[at.min(line.len())..].iter().take_while(blank).count()
}

/// Where the value at `at` ends: the place of the `,` or `}` after it. Brackets must match.
fn value_end(line: &[u8], mut at: usize) -> Option<usize> {
    let mut open = Vec::new();
    loop {
        let octet = *line.get(at)?;
        match octet {
            b',' | b'}' if open.is_empty() => return Some(at),
            b'"' => {
                at = scan::string_end(line, at + 1)?;
                continue;
            }
            b'{' | b'[' if open.len() == SALVAGE_DEPTH_MAX => return None,
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' if open.pop() != Some(octet) => return None,
            _ => {}
        }
        at += 1;
    }
}

/// The X of a line that ends in `"id":X}`.
fn last_id(tail: &[u8]) -> Option<Id> {
    let text = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let window = &text[text.len().saturating_sub(ID_BYTES_MAX + 16)..];
    let key = memchr::memmem::rfind(window, b"\"id\"")?;
    // The quote that opens the key must not be one that closes or is escaped inside a string.
    if !matches!(window[..key].trim_ascii_end().last(), Some(b',' | b'{')) {
        return None;
    }
    usable(
        window[key + 4..]
            .trim_ascii_start()
            .strip_prefix(b":")?
            .trim_ascii_start(),
    )
}

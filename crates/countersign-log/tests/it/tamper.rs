//! Every octet of a journal, changed one by one: exactly which changes are seen, with and without
//! signed heads. What stays unseen is written down here, in [`unseen`].

use std::ops::Range;

use countersign_log::leaf::Kind;
use countersign_log::verdict::{Ending, Fault, JournalReport, Verdict};

use crate::sample::{Sample, verify, verify_with_heads};

fn journal() -> Sample {
    let mut sample = Sample::new();
    sample
        .session()
        .leaf(Kind::Intent, b"a")
        .leaf(Kind::Result, b"b");
    sample.leaf(Kind::Memory, b"c").redaction(1);
    sample
        .session()
        .leaf(Kind::Intent, b"d")
        .leaf(Kind::Result, b"e")
        .sign();
    sample
}

/// What a reader notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// The journal is invalid.
    Fault,
    /// The last line is told to be torn or unfinished.
    Tail,
    /// Nothing.
    Nothing,
}

fn seen(report: &JournalReport) -> Seen {
    match (report.failures.verdict(), report.ending) {
        (Verdict::Invalid, _) => Seen::Fault,
        (Verdict::Unanchored, Ending::TornTail | Ending::BeingWritten) => Seen::Tail,
        (Verdict::Unanchored, Ending::Whole | Ending::NoNewline) => Seen::Nothing,
    }
}

fn member_name(line: &str, name: &str) -> Option<Range<usize>> {
    let start = line.find(&format!("\"{name}\":"))? + 1;
    Some(start..start + name.len())
}

/// The value of a member, quotes excluded.
fn member_value(line: &str, name: &str) -> Option<Range<usize>> {
    let start = member_name(line, name)?.end + 2;
    let value = line[start..].trim_start_matches('"');
    let start = line.len() - value.len();
    Some(start..start + value.find([',', '"', '}'])?)
}

/// Names of members that may be absent: under another name, they are, and unknown ones are ignored.
/// Where they say nothing (`null`, or custody, which is not signed) the meaning is the same.
fn means_the_same(line: &str, at: usize) -> bool {
    const IGNORED: [&str; 12] = [
        "custody",
        "not_after_ms",
        "redacted_index",
        "revoked_identity",
        "handoff_direction",
        "counterparty_pubkey",
        "handoff_state_hash",
        "authorization_event_kind",
        "authorization_scope_hash",
        "anchor_url",
        "anchor_proof_json",
        "anchor_proof_hash",
    ];
    let is_binding = line.contains("\"custody\"");
    let is_leaf = line.contains("\"leaf_type\"");
    let is_redaction = line.contains("\"leaf_type\":3");
    (is_binding || is_leaf)
        && IGNORED
            .into_iter()
            .filter(|name| !(is_redaction && *name == "redacted_index"))
            .filter_map(|name| member_name(line, name))
            .any(|name| name.contains(&at))
}

/// Leaves are not signed, so without heads a leaf may say anything else that a leaf can say: another
/// of the three kinds without marks, another time, another commitment, another leaf that is redacted.
fn says_something_else(line: &str, at: usize, octet: u8) -> bool {
    let within = |name| member_value(line, name).is_some_and(|value| value.contains(&at));
    let is_redaction = line.contains("\"leaf_type\":3");
    if !line.contains("\"leaf_type\"") {
        return false;
    }
    if within("leaf_type") {
        return !is_redaction && (b'0'..=b'2').contains(&octet);
    }
    if within("timestamp_ms") {
        let first = member_value(line, "timestamp_ms").is_some_and(|value| value.start == at);
        return octet.is_ascii_digit() && !(first && octet == b'0');
    }
    if within("payload_hash") {
        return !is_redaction && matches!(octet, b'0'..=b'9' | b'a'..=b'f');
    }
    // The redaction stands at index 3 and must name an earlier leaf.
    within("redacted_index") && is_redaction && (b'0'..=b'2').contains(&octet)
}

/// Whether the changed line still has the shape of a line, so that its fault is one of meaning.
fn has_shape(line: &str, at: usize, octet: u8) -> bool {
    let within = |name| member_value(line, name).is_some_and(|value| value.contains(&at));
    let in_text = ["session_pubkey", "payload_hash"].into_iter().any(within);
    let in_number = ["index", "leaf_type"].into_iter().any(within);
    // Above 0x7f the line is no longer UTF-8.
    (in_text && octet < 0x80) || (in_number && octet.is_ascii_digit())
}

/// For every octet of the journal: its line, its place in it, and whether a change of it changes
/// the last line. The newline before the last line does: without it the last two lines are one.
fn octets(text: &str) -> Vec<(&str, usize, bool)> {
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let last = lines.len() - 1;
    lines
        .into_iter()
        .enumerate()
        .flat_map(|(number, line)| {
            let joins = move |at| number + 1 == last && at + 1 == line.len();
            (0..line.len()).map(move |at| (line, at, number == last || joins(at)))
        })
        .collect()
}

fn each_flip(mask: u8, mut judge: impl FnMut(usize, &[u8], u8)) {
    let mut text = journal().text;
    for at in 0..text.len() {
        text[at] ^= mask;
        judge(at, &text, text[at]);
        text[at] ^= mask;
    }
}

#[test]
fn without_heads_every_change_is_seen_but_what_a_leaf_may_say_as_well() {
    let original = String::from_utf8(journal().text).expect("JSON is UTF-8");
    let octets = octets(&original);
    let (mut faults, mut nothing) = (0, 0);
    for mask in [0x01, 0x02, 0x80] {
        each_flip(mask, |position, text, octet| {
            let (line, at, last) = octets[position];
            let expected = if octet < 0x80
                && (means_the_same(line, at) || says_something_else(line, at, octet))
            {
                Seen::Nothing
            } else if last && !has_shape(line, at, octet) {
                Seen::Tail
            } else {
                Seen::Fault
            };
            faults += u32::from(expected == Seen::Fault);
            nothing += u32::from(expected == Seen::Nothing);
            let changed = String::from_utf8_lossy(text);
            let found = seen(&verify(text));
            assert_eq!(
                found, expected,
                "{mask:#x} at {position}, {at} of {line}\n{changed}"
            );
        });
    }
    assert!(faults > 1000 && nothing > 1000);
}

#[test]
fn under_a_signed_head_no_change_of_meaning_stays_unseen() {
    let sample = journal();
    let original = String::from_utf8(sample.text.clone()).expect("JSON is UTF-8");
    let octets = octets(&original);
    for mask in [0x01, 0x02, 0x80] {
        each_flip(mask, |position, text, octet| {
            let (line, at, _) = octets[position];
            let expected = match octet < 0x80 && means_the_same(line, at) {
                true => Seen::Nothing,
                false => Seen::Fault,
            };
            let found = seen(&verify_with_heads(text, &sample.heads));
            assert_eq!(found, expected, "{mask:#x} at {position}, {at} of {line}");
        });
    }
}

#[test]
fn a_changed_head_is_seen() {
    let mut sample = journal();
    // Without its newline a head counts as unfinished, so the last octet is left out.
    for at in 0..sample.heads.len() - 1 {
        sample.heads[at] ^= 1;
        let report = verify_with_heads(&sample.text, &sample.heads);
        assert_eq!(seen(&report), Seen::Fault, "at {at}");
        sample.heads[at] ^= 1;
    }
}

#[test]
fn a_journal_cut_anywhere_under_its_head_is_seen() {
    let sample = journal();
    let whole = sample.text.len();
    for length in 0..whole {
        let report = verify_with_heads(&sample.text[..length], &sample.heads);
        // Only its last newline is missing: every leaf is still there.
        let expected = match length + 1 == whole {
            true => Seen::Nothing,
            false => Seen::Fault,
        };
        assert_eq!(seen(&report), expected, "{length}");
    }
}

#[test]
fn a_journal_cut_without_head_is_a_shorter_journal() {
    let sample = journal();
    let header = sample
        .text
        .iter()
        .position(|octet| *octet == b'\n')
        .expect("lines");
    for length in 0..sample.text.len() {
        let report = verify(&sample.text[..length]);
        let expected = match sample.text[..length].last() {
            _ if length < header => Seen::Fault,
            Some(b'\n' | b'}') => Seen::Nothing,
            _ => Seen::Tail,
        };
        assert_eq!(seen(&report), expected, "{length}");
    }
}

/// The journal's lines, header first.
fn lines(sample: &Sample) -> Vec<Vec<u8>> {
    sample
        .text
        .split_inclusive(|octet| *octet == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

#[test]
fn lines_taken_out_doubled_or_exchanged_are_seen_where_it_happened() {
    let sample = journal();
    let whole = lines(&sample);
    for at in 0..whole.len() - 1 {
        let mut removed = whole.clone();
        removed.remove(at);
        let mut doubled = whole.clone();
        doubled.insert(at, whole[at].clone());
        let mut exchanged = whole.clone();
        exchanged.swap(at, at + 1);
        for changed in [removed, doubled, exchanged] {
            let report = verify(&changed.concat());
            assert_eq!(seen(&report), Seen::Fault, "line {}", at + 1);
            let faults = report.failures.count();
            assert!(
                faults <= 6,
                "line {}: {faults} faults for one change",
                at + 1
            );
        }
    }
}

#[test]
fn a_broken_head_says_between_which_heads_the_change_is() {
    let mut sample = Sample::new();
    sample.session();
    for payload in 0..20_u8 {
        sample.leaf(Kind::Memory, &[payload]).sign();
    }
    let at = 2 + 12;
    let mut changed = lines(&sample);
    let text = String::from_utf8(changed[at].clone()).expect("JSON is UTF-8");
    let digits = member_value(&text, "timestamp_ms").expect("a leaf has a time");
    changed[at][digits.end - 1] ^= 1;
    let report = verify_with_heads(&changed.concat(), &sample.heads);
    let [failure] = report.failures.listed() else {
        panic!("one change, one fault: {:?}", report.failures);
    };
    let fault = Fault::HeadNotReproduced {
        size: 13,
        reproduced: 12,
    };
    assert_eq!(failure.fault, fault);
    assert_eq!(report.unsigned_so_far(), 8);
}

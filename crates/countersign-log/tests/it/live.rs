//! Journals in use, and what stands beside them: heads, pairs of calls, losses.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use countersign_log::calls;
use countersign_log::leaf::Kind;
use countersign_log::tree::TreeHead;
use countersign_log::verdict::{
    CallsReport, Ending, Fault, Intents, JournalReport, Place, Report, Sidecars, Verdict, targets,
    verify_journal,
};

use crate::sample::{Sample, verify, verify_with_heads};

fn sample() -> Sample {
    let mut sample = Sample::new();
    sample
        .session()
        .leaf(Kind::Intent, b"a")
        .leaf(Kind::Result, b"b");
    sample
}

#[test]
fn a_line_that_is_being_written_is_told_and_no_fault() {
    let mut sample = sample();
    let whole = sample.text.len();
    sample.leaf(Kind::Intent, b"c");
    let report = verify(&sample.text[..whole + 40]);
    assert_eq!(report.failures.verdict(), Verdict::Unanchored);
    assert_eq!(report.ending, Ending::BeingWritten);
    assert_eq!(report.leaf_count, 2);
}

#[test]
fn garbage_at_the_end_is_a_torn_tail_and_in_the_middle_a_fault() {
    for garbage in [
        &b"\0\0\0\n"[..],
        b"{\"index\":2\n",
        b"\xff\xfe\n",
        b"{}\n",
        b"[1]\n",
    ] {
        let mut sample = sample();
        sample.text.extend(garbage);
        let report = verify(&sample.text);
        assert_eq!(report.failures.count(), 0, "{garbage:?}");
        assert_eq!(report.ending, Ending::TornTail, "{garbage:?}");
        sample.leaf(Kind::Intent, b"c");
        let report = verify(&sample.text);
        assert_eq!(report.failures.count(), 1, "{garbage:?}");
        let failure = &report.failures.listed()[0];
        assert_eq!(failure.place, Place::Line(5), "{garbage:?}");
        assert!(matches!(failure.fault, Fault::Unparsable(_)), "{garbage:?}");
    }
}

#[test]
fn blank_lines_and_carriage_returns_are_let_pass() {
    let sample = sample();
    let text = String::from_utf8(sample.text.clone()).expect("JSON is UTF-8");
    let spaced = text.replace('\n', "\r\n\n  \n");
    let report = verify(spaced.as_bytes());
    assert_eq!(report.failures.listed(), []);
    assert_eq!((report.leaf_count, report.root), (2, sample.head().root));
}

#[test]
fn a_line_longer_than_the_cap_is_an_error_and_not_read_into_memory() {
    let mut sample = sample();
    sample
        .text
        .extend(std::iter::repeat_n(b'x', (16 << 20) + 1));
    let read = verify_journal(&mut &sample.text[..], Sidecars::default(), None);
    let error = read.expect_err("the line is too long");
    assert!(error.to_string().contains("line 5"), "{error}");
}

#[test]
fn leaves_after_the_newest_head_are_unsigned_so_far() {
    let mut sample = sample();
    sample.sign().leaf(Kind::Intent, b"c").sign();
    sample.leaf(Kind::Memory, b"d").leaf(Kind::Memory, b"e");
    let report = verify_with_heads(&sample.text, &sample.heads);
    assert_eq!(report.failures.listed(), []);
    assert_eq!(report.unsigned_so_far(), 2);
    let heads = report.heads.expect("heads were given");
    assert_eq!((heads.count, heads.reproduced), (2, 3));
    assert_eq!(heads.newest.map(|head| head.size), Some(3));
}

#[test]
fn a_head_over_nothing_is_reproduced() {
    let mut sample = Sample::new();
    sample.sign().session().leaf(Kind::Intent, b"a");
    let report = verify_with_heads(&sample.text, &sample.heads);
    assert_eq!(report.failures.listed(), []);
    let mut empty = Sample::new();
    empty.sign();
    let report = verify_with_heads(&empty.text, &empty.heads);
    assert_eq!(report.failures.listed(), []);
}

#[test]
fn two_heads_over_one_size_cannot_both_hold() {
    let mut sample = sample();
    sample.sign();
    let other = TreeHead {
        size: 2,
        root: countersign_log::tree::empty_root(),
    };
    let note = countersign_log::note::sign_head(&sample.identity, other).to_string();
    sample
        .heads
        .extend(serde_json::to_vec(&note).expect("a string is JSON"));
    sample.heads.push(b'\n');
    let report = verify_with_heads(&sample.text, &sample.heads);
    assert_eq!(report.failures.verdict(), Verdict::Invalid);
}

#[test]
fn a_head_of_another_identity_and_a_torn_head_are_told_apart() {
    let mut sample = sample();
    sample.sign();
    let unfinished = [&sample.heads[..], &sample.heads[..50]].concat();
    assert_eq!(
        verify_with_heads(&sample.text, &unfinished)
            .failures
            .count(),
        0
    );
    let text = String::from_utf8(sample.heads.clone()).expect("JSON is UTF-8");
    let stranger = text.replace("witness-log/", "other/");
    let report = verify_with_heads(&sample.text, stranger.as_bytes());
    let failure = &report.failures.listed()[0];
    assert_eq!(failure.place, Place::Heads(1));
    assert!(matches!(failure.fault, Fault::HeadUnreadable(_)));
}

#[test]
fn a_leaf_of_a_session_that_has_ended_is_a_fault() {
    let mut sample = sample();
    let mut lines: Vec<_> = sample
        .text
        .split_inclusive(|octet| *octet == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let late = lines.remove(3);
    sample.text = lines.concat();
    sample.session();
    sample.text.extend(late);
    let report = verify(&sample.text);
    assert_eq!(report.failures.listed()[0].fault, Fault::NotTheOpenSession);
    assert_eq!(report.failures.count(), 1);
}

fn verify_with_calls(sample: &Sample, calls: &str, segment: u32) -> JournalReport {
    let sidecars = Sidecars {
        calls: Some(&mut calls.as_bytes()),
        segment,
        heads: None,
    };
    verify_journal(&mut &sample.text[..], sidecars, None).expect("memory can be read")
}

fn intents(places: &[(u32, u64)]) -> Intents {
    Intents {
        count: places.len() as u64,
        places: places
            .iter()
            .map(|&(segment, index)| calls::Place { segment, index })
            .collect(),
    }
}

/// Intents 0, 1, 2, then results 3, 4 for two of them; then a session that finds one lost.
fn calls_sample() -> (Sample, String) {
    let mut sample = Sample::new();
    sample.session();
    let mut calls = format!("{{\"n\":0,\"s\":\"{}\"}}\n", sample.session_hex());
    for payload in [b"a", b"b", b"c"] {
        sample.leaf(Kind::Intent, payload);
    }
    sample.leaf(Kind::Result, b"d").leaf(Kind::Result, b"e");
    calls += "{\"r\":3,\"i\":2}\n{\"r\":4,\"i\":0}\n";
    (sample, calls)
}

#[test]
fn open_intents_are_named() {
    let (sample, calls) = calls_sample();
    let report = verify_with_calls(&sample, &calls, 0);
    assert_eq!((report.intents, report.results), (3, 2));
    let expected = CallsReport {
        paired: 2,
        open: intents(&[(0, 1)]),
        ..CallsReport::default()
    };
    assert_eq!(report.calls, Some(expected));
    // Without the line of the session, its first result shows that it keeps the file.
    let (_, pairs) = calls.split_once('\n').expect("lines");
    let report = verify_with_calls(&sample, pairs, 0);
    assert_eq!(
        report.calls.map(|calls| calls.open),
        Some(intents(&[(0, 1)]))
    );
}

#[test]
fn intents_lost_by_a_crash_are_named_as_the_start_after_it_named_them() {
    let lost = r#"{"l":5,"p":{"intents":[1],"profile":"countersign.lost v1"}}"#;
    let (mut sample, mut calls) = calls_sample();
    sample
        .session()
        .leaf(Kind::Memory, b"lost")
        .leaf(Kind::Intent, b"f");
    calls += &format!("{{\"n\":5,\"s\":\"{}\"}}\n{lost}\n", sample.session_hex());
    let report = verify_with_calls(&sample, &calls, 0);
    let expected = CallsReport {
        paired: 2,
        lost: intents(&[(0, 1)]),
        open: intents(&[(0, 6)]),
        ..CallsReport::default()
    };
    assert_eq!(report.calls, Some(expected));
}

#[test]
fn an_intent_answered_twice_is_named() {
    let (mut sample, mut calls) = calls_sample();
    sample.leaf(Kind::Result, b"f").leaf(Kind::Result, b"g");
    calls += "{\"r\":5,\"i\":0}\n{\"r\":6,\"i\":1}\n";
    let report = verify_with_calls(&sample, &calls, 0);
    let expected = CallsReport {
        paired: 3,
        doubly_answered: intents(&[(0, 0)]),
        ..CallsReport::default()
    };
    assert_eq!(report.calls, Some(expected));
    assert_eq!(
        report.failures.count(),
        0,
        "the file of pairs is not signed"
    );
}

#[test]
fn what_a_session_without_the_file_left_open_is_only_counted() {
    let (mut sample, mut calls) = calls_sample();
    sample.session();
    for payload in [b"f", b"g", b"h"] {
        sample.leaf(Kind::Intent, payload);
    }
    sample.leaf(Kind::Result, b"i");
    sample.session();
    calls += &format!("{{\"n\":9,\"s\":\"{}\"}}\n", sample.session_hex());
    sample.leaf(Kind::Intent, b"j");
    let report = verify_with_calls(&sample, &calls, 0);
    let expected = CallsReport {
        paired: 2,
        open: intents(&[(0, 1), (0, 9)]),
        unnamed_open: 2,
        ..CallsReport::default()
    };
    assert_eq!(report.calls, Some(expected));
}

#[test]
fn lines_about_leaves_that_came_later_and_torn_lines_are_let_pass() {
    let (sample, mut calls) = calls_sample();
    calls += "{\"r\":9,\"i\":1}\n{\"r\":1";
    let report = verify_with_calls(&sample, &calls, 0)
        .calls
        .expect("pairs were given");
    assert_eq!((report.paired, report.unreadable_lines), (2, 0));
    let (sample, calls) = calls_sample();
    let calls = calls.replacen("{\"r\":3,\"i\":2}", "{\"r\":3,\"i\":", 1);
    let report = verify_with_calls(&sample, &calls, 0)
        .calls
        .expect("pairs were given");
    assert_eq!(
        (report.paired, report.unpaired, report.unreadable_lines),
        (1, 1, 1)
    );
}

#[test]
fn a_call_across_two_segments_is_one_call() {
    let mut sample = Sample::new();
    sample
        .session()
        .leaf(Kind::Memory, b"segment")
        .leaf(Kind::Result, b"a");
    let calls = format!(
        "{{\"n\":0,\"s\":\"{}\"}}\n{{\"o\":0,\"i\":7,\"g\":0}}\n{{\"o\":0,\"i\":8,\"g\":0}}\n{{\"r\":1,\"i\":8,\"g\":0}}\n",
        sample.session_hex()
    );
    let report = verify_with_calls(&sample, &calls, 1);
    let expected = CallsReport {
        paired: 1,
        open: intents(&[(0, 7)]),
        carried_in: intents(&[(0, 7), (0, 8)]),
        ..CallsReport::default()
    };
    assert_eq!(report.calls, Some(expected));
}

/// A file that grows after its end was reached.
struct Growing<'t>(Vec<&'t [u8]>);

impl std::io::Read for Growing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = if self.0.is_empty() {
            &[]
        } else {
            self.0.remove(0)
        };
        buffer[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }
}

#[test]
fn what_is_appended_after_the_end_was_reached_is_not_read() {
    let mut sample = sample();
    let whole = sample.text.len();
    sample.leaf(Kind::Intent, b"c");
    let (first, rest) = sample.text.split_at(whole + 40);
    let mut growing = Growing(vec![first, b"", rest]);
    let report =
        verify_journal(&mut growing, Sidecars::default(), None).expect("memory can be read");
    assert_eq!(report.failures.listed(), []);
    assert_eq!(
        (report.leaf_count, report.ending),
        (2, Ending::BeingWritten)
    );
}

/// Appends leaves in pieces that end anywhere, and signs heads once their leaves are written. Now
/// and then it waits until it was `looked_at`.
fn write_slowly(path: &Path, mut written: usize, looked_at: &Receiver<()>) {
    let append = |path: &Path| OpenOptions::new().append(true).open(path);
    let mut journal = append(path).expect("it was made");
    let mut heads = append(&path.with_extension("wlog.heads")).expect("it was made");
    let mut sample = Sample::new();
    sample.session();
    let mut signed = 0;
    for payload in 0..400_u32 {
        sample.leaf(Kind::Memory, &payload.to_be_bytes());
        for piece in sample.text[written..].chunks(97) {
            journal.write_all(piece).expect("there is room");
        }
        written = sample.text.len();
        if payload % 40 == 0 {
            // If nobody looks any more, the reader has failed, and its failure ends the test.
            looked_at.recv_timeout(Duration::from_secs(10)).ok();
        }
        if payload % 10 == 0 {
            sample.sign();
            heads
                .write_all(&sample.heads[signed..])
                .expect("there is room");
            signed = sample.heads.len();
        }
    }
}

#[test]
fn a_journal_verifies_at_every_moment_while_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("j.wlog");
    let header = Sample::new().text;
    fs::write(&path, &header).expect("writable");
    fs::write(path.with_extension("wlog.heads"), "").expect("writable");
    let target = targets(std::slice::from_ref(&path))
        .expect("it was made")
        .remove(0);
    let check = || {
        let reports = countersign_log::verdict::verify(&target, None).expect("it can be read");
        let [Report::Journal { report, .. }] = &reports[..] else {
            panic!("one journal");
        };
        assert_eq!(report.failures.listed(), []);
        report.leaf_count
    };
    let mut unfinished = 0;
    std::thread::scope(|scope| {
        let (looked, looked_at) = sync_channel(1);
        let (path, written) = (&path, header.len());
        let writer = scope.spawn(move || write_slowly(path, written, &looked_at));
        while !writer.is_finished() {
            unfinished += u32::from((1..400).contains(&check()));
            looked.try_send(()).ok();
        }
    });
    assert!(
        unfinished > 3,
        "looked at {unfinished} times while it was written"
    );
    assert_eq!(check(), 400);
}

//! Sets of segments, folders, and what the program says of files that it cannot judge.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use countersign_log::hex;
use countersign_log::leaf::Kind;
use countersign_log::segments::segment_payload;
use countersign_log::tree::TreeHead;
use serde_json::Value;

use crate::data;
use crate::sample::{SALT, Sample};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_countersign-verify"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the program runs")
}

fn reports(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect()
}

fn segment(number: u32, previous: Option<TreeHead>) -> Sample {
    let mut sample = Sample::new();
    sample.session();
    if let Some(previous) = previous {
        sample.leaf(Kind::Memory, &segment_payload(number, previous));
    }
    sample
        .leaf(Kind::Intent, b"a")
        .leaf(Kind::Result, b"b")
        .sign();
    sample
}

/// A journal of three segments, `j.wlog`, with heads and salts.
fn set() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut previous = None;
    for number in 0..3 {
        let sample = segment(number, previous);
        previous = Some(sample.head());
        let name = match number {
            0 => "j.wlog".to_owned(),
            number => format!("j.{number:04}.wlog"),
        };
        let path = folder.path().join(name);
        fs::write(&path, &sample.text).expect("the folder can be written");
        fs::write(path.with_extension("wlog.heads"), &sample.heads).expect("writable");
        let salt = format!("{{\"i\":0,\"s\":\"{}\"}}\n", hex::encode(&SALT));
        fs::write(path.with_extension("wlog.salts"), salt).expect("writable");
    }
    folder
}

#[test]
fn any_segment_and_the_folder_stand_for_the_whole_set_once() {
    let folder = set();
    for named in [
        &["j.wlog"][..],
        &["j.0002.wlog"],
        &["."],
        &["j.wlog", "j.0001.wlog", "."],
    ] {
        let output = run(folder.path(), &[named, &["--json"]].concat());
        let reports = reports(&output);
        assert_eq!(output.status.code(), Some(0), "{named:?} {reports:?}");
        assert_eq!(reports.len(), 3, "{named:?}");
        assert_eq!(reports[2]["segment"]["number"], 2);
        assert_eq!(reports[2]["segment"]["link_checked"], true);
        assert_eq!(reports[2]["leaf_count"], 3);
    }
}

#[test]
fn a_set_whose_names_have_no_extension_is_a_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = segment(0, None);
    fs::write(folder.path().join("j"), &first.text).expect("writable");
    let second = segment(1, Some(first.head()));
    fs::write(folder.path().join("j.0001"), &second.text).expect("writable");
    for named in ["j", "j.0001"] {
        let reports = reports(&run(folder.path(), &[named, "--json"]));
        assert_eq!(reports.len(), 2, "{named}");
        assert_eq!(reports[1]["segment"]["number"], 1, "{named}");
    }
}

#[test]
fn without_its_salt_the_link_of_a_segment_is_only_noted() {
    let folder = set();
    fs::remove_file(folder.path().join("j.0001.wlog.salts")).expect("it is there");
    let output = run(folder.path(), &["j.wlog", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(reports(&output)[1]["segment"]["link_checked"], false);
}

#[test]
fn an_intent_answered_in_the_next_segment_is_open_in_neither() {
    let folder = set();
    let calls = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("writable");
    };
    // In each segment the leaf before the last is an intent, and the last a result.
    calls("j.wlog.calls", "{\"r\":1,\"i\":9}\n");
    calls(
        "j.0001.wlog.calls",
        "{\"o\":0,\"i\":0,\"g\":0}\n{\"r\":2,\"i\":0,\"g\":0}\n",
    );
    let output = run(folder.path(), &["j.wlog", "--json"]);
    let reports = reports(&output);
    let calls = |at: usize| &reports[at]["calls"];
    assert_eq!(calls(0)["open"]["count"], 0);
    assert_eq!(calls(0)["carried_on"], 1);
    assert_eq!(calls(1)["open"]["places"], serde_json::json!([[1, 1]]));
    assert_eq!(calls(1)["paired"], 1);
    assert_eq!(*calls(2), Value::Null);
}

#[test]
fn a_segment_that_is_missing_or_follows_something_else_is_seen() {
    let folder = set();
    fs::remove_file(folder.path().join("j.0001.wlog")).expect("it is there");
    let output = run(folder.path(), &["j.0002.wlog", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let failures = reports(&output)[1]["failures"].to_string();
    assert!(
        failures.contains("segment 1 of the set is missing"),
        "{failures}"
    );

    let folder = set();
    let mut other = segment(0, None);
    other.leaf(Kind::Memory, b"c");
    fs::write(folder.path().join("j.wlog"), &other.text).expect("writable");
    let output = run(folder.path(), &["j.wlog", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let failures = reports(&output)[1]["failures"].to_string();
    assert!(failures.contains("segment 1 after the end"), "{failures}");
}

#[test]
fn a_numbered_journal_without_the_first_segment_is_a_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("j.2024.wlog"), segment(0, None).text).expect("writable");
    let output = run(folder.path(), &["j.2024.wlog", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(reports(&output)[0]["segment"], Value::Null);
}

#[test]
fn three_plain_lines_come_first() {
    let golden = data::path("journals/basic");
    let output = run(&golden, &["j.wlog"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "j.wlog: journal, fine, unanchored");
    assert!(
        lines[1].starts_with("  holds: structure, identity, key bindings; "),
        "{text}"
    );
    assert!(
        lines[2].starts_with("  not shown: no head was signed"),
        "{text}"
    );

    let output = run(&golden, &["j.wlog", "--identity", &"00".repeat(32)]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.starts_with("j.wlog: journal, INVALID\n  holds: structure, key bindings"),
        "{text}"
    );
    assert!(
        text.contains("\n  does not hold: file: written by 79b5"),
        "{text}"
    );
}

#[test]
fn an_unsealed_journal_says_so() {
    let output = run(&data::path("journals/unsealed"), &["j.wlog"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.contains("unsealed: whoever can read this journal"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_judged_is_one_clear_line_and_exit_2() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("text"), "hello\n").expect("writable");
    let cases: [(&[&str], &str); 7] = [
        (&["gone.wlog"], "gone.wlog cannot be read"),
        (&["text"], "text is not a dossier"),
        (&["."], "holds no journal"),
        (&["--wrong"], "--wrong is no option"),
        (&["text", "--identity", "zz"], "give 64 hex digits"),
        (&["text", "--identity"], "give 64 hex digits"),
        (&[], "no file named"),
    ];
    for (arguments, expected) in cases {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let complaint = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    let help = run(folder.path(), &["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(help.stdout.starts_with(b"usage: countersign-verify"));
}

#[test]
fn an_empty_journal_file_and_a_foreign_header_are_invalid() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = [
        "",
        "hello\n",
        "{\"format_version\":2,\"identity_bytes_hex\":\"\",\"session_number\":0}\n",
    ];
    for content in contents {
        fs::write(folder.path().join("j.wlog"), content).expect("writable");
        let output = run(folder.path(), &["j.wlog"]);
        assert_eq!(output.status.code(), Some(1), "{content}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(
            text.contains("line 1: not the header of a journal"),
            "{text}"
        );
    }
}

#[test]
fn a_terminal_is_never_sent_what_a_file_says_raw() {
    let folder = tempfile::tempdir().expect("a folder");
    let golden = data::path("journals/basic/j.wlog.dossier.json");
    let text = fs::read_to_string(golden).expect("recorded");
    let identity = "79b5562e8fe654f94078b112e8a98ba7901f853ae695bed7e0e3910bad049664";
    let forged = text.replace(identity, "\\u001b[2J");
    fs::write(folder.path().join("d.json"), forged).expect("writable");
    let output = run(folder.path(), &["d.json", "--identity", identity]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!output.stdout.contains(&0x1b));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("written by \\u{1b}[2J"), "{text}");
}

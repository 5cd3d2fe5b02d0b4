//! The reference implementation reads, continues and opens our journals, and we continue its.
//!
//! The one idea: only files and programs meet here. A journal goes from one implementation to the other, each
//! appends, and at the end both have to accept the whole. What the leaves commit to is recomputed
//! from the lines that crossed the client's side, by the reference's own functions.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{self, Running, write_line};
use crate::proxy::{self, IDENTITY_HEX, Proxy, SEED_HEX, driver, peer, text};

/// Each test makes a few dozen calls to a server that answers at once.
const SECONDS_MAX: u64 = 90;

/// The longest that one answer may take: a restart of the server and the one second of a timeout.
const ANSWER: Duration = Duration::from_secs(30);

/// A folder with one journal and the seed of its identity.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
        }
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("j.wlog")
    }
}

/// One call: the line that the client sent and the line that it got.
struct Call {
    sent: String,
    got: String,
}

/// A client without an SDK in front of a proxy: it writes lines and waits for the answer to each.
struct Session {
    running: Running,
    stdin: ChildStdin,
    lines: Receiver<String>,
    next_id: u64,
    calls: Vec<Call>,
}

impl Session {
    fn start(proxy: Proxy, place: &Place) -> Self {
        let seed = proxy::seed_file(place.folder.path());
        let server = [
            text(&peer("py2/bin/python")),
            text(&driver("odd_server.py")),
        ];
        let mut command =
            proxy.command("odd", &place.journal(), &seed, &["--timeout", "1"], &server);
        command.env("XDG_STATE_HOME", place.folder.path().join("state"));
        let mut running = Running::start(&mut command, SECONDS_MAX);
        let (stdin, lines) = (running.stdin(), running.lines());
        let mut session = Self {
            running,
            stdin,
            lines,
            next_id: 1,
            calls: Vec::new(),
        };
        session.ask(
            "initialize",
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"lines","version":"1"}}"#,
        );
        write_line(
            &mut session.stdin,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        session
    }

    /// Sends one request and returns both lines.
    fn ask(&mut self, method: &str, params: &str) -> Call {
        let id = self.next_id;
        let sent = self.send(method, params);
        loop {
            let got = self
                .lines
                .recv_timeout(ANSWER)
                .unwrap_or_else(|_| panic!("no answer to {sent}"));
            let message: Value = serde_json::from_str(&got).expect("the client gets JSON");
            if message["id"] == id {
                return Call { sent, got };
            }
        }
    }

    /// Sends one request and waits for nothing.
    fn send(&mut self, method: &str, params: &str) -> String {
        let sent = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#,
            self.next_id
        );
        self.next_id += 1;
        write_line(&mut self.stdin, &sent);
        sent
    }

    /// Makes one call with these params, as text, and keeps it.
    fn call(&mut self, params: &str) {
        let call = self.ask("tools/call", params);
        self.calls.push(call);
    }

    /// Makes `count` plain calls.
    fn calls(&mut self, count: usize) {
        for number in 0..count {
            self.call(&format!(
                r#"{{"name":"echo","arguments":{{"number":{number}}}}}"#
            ));
        }
    }

    /// Lets the proxy write a dossier and returns where.
    fn export(&mut self) -> PathBuf {
        let call = self.ask("tools/call", r#"{"name":"audit__export","arguments":{}}"#);
        let message: Value = serde_json::from_str(&call.got).expect("the client gets JSON");
        let path = &message["result"]["structuredContent"]["path"];
        PathBuf::from(
            path.as_str()
                .unwrap_or_else(|| panic!("an export names its file: {}", call.got)),
        )
    }

    /// Ends the client's input and waits until the proxy is done; returns the calls made.
    fn close(self) -> Vec<Call> {
        let Self {
            running,
            stdin,
            calls,
            ..
        } = self;
        drop(stdin);
        let finished = running.finish();
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        calls
    }

    /// Kills the proxy as a crash of the machine would, a call still open.
    fn kill_during_a_call(mut self) {
        self.send("tools/call", r#"{"name":"silent","arguments":{}}"#);
        // The intent is in the journal before the server has the call; a second answer says so.
        self.ask("ping", "{}");
        self.running.kill();
    }
}

/// Both verdicts of the reference on a dossier, by its program and by its package.
fn reference_accepts(dossier: &Path) {
    let verdict = proxy::reference_verify(dossier);
    assert_eq!(
        verdict.code,
        Some(20),
        "{}{}",
        verdict.stdout,
        verdict.stderr
    );
    let mut command = Command::new(peer("py2/bin/python"));
    command
        .arg(driver("verify.py"))
        .arg(dossier)
        .arg(IDENTITY_HEX);
    assert_eq!(
        program::run(&mut command, SECONDS_MAX)
            .expect_success("verify.py")
            .trim(),
        "unanchored"
    );
}

/// The reference's library opens the journal, appends one pair and closes it; returns what it saw.
fn reference_goes_on(place: &Place) -> Value {
    let mut command = Command::new(peer("py2/bin/python"));
    command
        .arg(driver("resume.py"))
        .arg(place.journal())
        .arg(SEED_HEX);
    let output = program::run(&mut command, SECONDS_MAX).expect_success("the reference resumes");
    serde_json::from_str(&output).expect("resume.py prints JSON")
}

/// A write that did not finish: the salt is there, of the leaf's line only the first half.
fn tear(journal: &Path) {
    let index = proxy::leaves(journal).len();
    let append = |path: &Path, text: &str| {
        let mut file = OpenOptions::new()
            .append(true)
            .open(path)
            .expect("the file is there");
        file.write_all(text.as_bytes())
            .expect("a temporary folder can be written");
    };
    let salts = PathBuf::from(format!("{}.salts", text(journal)));
    append(
        &salts,
        &format!("{{\"i\":{index},\"s\":\"{}\"}}\n", "5a".repeat(32)),
    );
    append(
        journal,
        &format!("{{\"index\":{index},\"leaf_type\":1,\"timestamp_ms\":17"),
    );
}

/// Cuts the journal's last line in half.
fn cut(journal: &Path) {
    let octets = fs::read(journal).expect("the journal is there");
    fs::write(journal, &octets[..octets.len() - 200]).expect("a temporary folder can be written");
}

#[test]
fn the_reference_accepts_an_export_of_ours() {
    let place = Place::new();
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(5);
    reference_accepts(&session.export());
    session.close();
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
    assert_eq!(proxy::intents_and_results(&place.journal()), (5, 5));
}

#[test]
fn the_reference_accepts_an_export_of_an_empty_journal() {
    let place = Place::new();
    let mut session = Session::start(Proxy::under_test(), &place);
    reference_accepts(&session.export());
    session.close();
    assert_eq!(
        proxy::leaves(&place.journal()).len(),
        0,
        "looking leaves no leaf"
    );
}

#[test]
fn the_reference_goes_on_with_our_journal_and_we_after_it() {
    let place = Place::new();
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(3);
    session.close();
    let seen = reference_goes_on(&place);
    assert_eq!(
        (&seen["before"]["size"], &seen["after"]["size"]),
        (&json!(6), &json!(8))
    );
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(2);
    reference_accepts(&session.export());
    session.close();
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
    assert_eq!(proxy::intents_and_results(&place.journal()), (6, 6));
}

#[test]
fn we_go_on_with_a_journal_of_the_reference_proxy_and_it_accepts_the_whole() {
    let place = Place::new();
    let mut session = Session::start(Proxy::Reference, &place);
    session.calls(4);
    session.close();
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(3);
    reference_accepts(&session.export());
    session.close();
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
    let mut session = Session::start(Proxy::Reference, &place);
    session.calls(2);
    session.close();
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
    assert_eq!(proxy::intents_and_results(&place.journal()), (9, 9));
}

#[test]
fn the_reference_goes_on_after_a_torn_write_of_ours() {
    let place = Place::new();
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(3);
    session.close();
    tear(&place.journal());
    let seen = reference_goes_on(&place);
    assert_eq!(seen["before"]["size"], 6, "the torn line is dropped");
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(1);
    session.close();
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
    assert_eq!(proxy::intents_and_results(&place.journal()), (5, 5));
}

#[test]
fn we_go_on_after_a_torn_write_of_the_reference() {
    for damage in [tear, cut] {
        let place = Place::new();
        let mut session = Session::start(Proxy::Reference, &place);
        session.calls(3);
        session.close();
        damage(&place.journal());
        let left = proxy::intents_and_results(&place.journal());
        let mut session = Session::start(Proxy::under_test(), &place);
        session.calls(2);
        reference_accepts(&session.export());
        session.close();
        proxy::expect_verifies(Proxy::under_test(), &place.journal());
        let (intents, results) = proxy::intents_and_results(&place.journal());
        assert_eq!((intents, results), (left.0 + 2, left.1 + 2));
    }
}

#[test]
fn the_reference_goes_on_with_the_journal_of_a_killed_proxy_and_we_after_it() {
    let place = Place::new();
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(2);
    session.kill_during_a_call();
    let seen = reference_goes_on(&place);
    assert_eq!(
        seen["before"]["size"], 5,
        "two pairs and the intent of the open call"
    );
    let mut session = Session::start(Proxy::under_test(), &place);
    session.calls(1);
    reference_accepts(&session.export());
    session.close();
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
    assert_eq!(
        proxy::intents_and_results(&place.journal()),
        (5, 4),
        "the open call stays without a result"
    );
}

/// The params of calls that end in each way in which a call can end.
const ENDINGS: [&str; 16] = [
    r#"{"name":"echo","arguments":{"a":1,"b":[true,null,"x"]}}"#,
    r#"{"name":"echo","arguments":{}}"#,
    r#"{"name":"echo"}"#,
    r#"{"name":"echo","arguments":null}"#,
    r#"{"name":"echo","arguments":{"Zürich":"北京","😀":1e400,"é":-0.0,"z":9007199254740993,"\u2028":1E-7}}"#,
    r#"{"name":"echo","arguments":{"deep":[[[[[[[[[["x"]]]]]]]]]]},"_meta":{"progressToken":7},"unknown":[]}"#,
    r#"{"name":"odd","arguments":{"x":1.50}}"#,
    r#"{"name":"bare","arguments":{}}"#,
    r#"{"name":"fails","arguments":{}}"#,
    r#"{"name":"refuses","arguments":{}}"#,
    r#"{"name":"no such tool","arguments":{}}"#,
    r#"{"name":"silent","arguments":{"until":"the deadline"}}"#,
    r#"{"name":"crashes","arguments":{"with":3}}"#,
    r#"{"name":"echo","arguments":{"after":"the crash"}}"#,
    r#"{"name":"echo","arguments":{"a":1},"arguments":{"a":2}}"#,
    r#"{"name":"echo","arguments":{"last":true}}"#,
];

#[test]
fn every_leaf_commits_to_what_the_client_sent_and_got() {
    let place = Place::new();
    let mut session = Session::start(Proxy::under_test(), &place);
    for params in ENDINGS {
        session.call(params);
    }
    let calls = session.close();
    let transcript = place.folder.path().join("transcript.jsonl");
    let lines = calls
        .iter()
        .map(|call| json!({"sent": call.sent, "got": call.got}).to_string() + "\n");
    fs::write(&transcript, lines.collect::<String>()).expect("a temporary folder can be written");
    let mut command = Command::new(peer("py2/bin/python"));
    command
        .arg(driver("disclose.py"))
        .arg("odd")
        .arg(place.journal())
        .arg(&transcript);
    let opened = program::run(&mut command, SECONDS_MAX).expect_success("disclose.py");
    assert_eq!(opened.trim(), (2 * ENDINGS.len()).to_string());
    proxy::expect_verifies(Proxy::under_test(), &place.journal());
}

//! The rings when the journal cannot be written, or is not there: fail closed, both ways.

use std::process::Command;
use std::sync::Arc;

use countersign::call::Reply;
use countersign::decision::allow_all;
use countersign::gate::Gate;
use countersign::recorder::Fsync;
use countersign::upstream::Upstream;
use countersign_log::canonical::canonical_sha256;
use countersign_log::commitment::commit;
use countersign_log::hex;
use countersign_log::journal::Limits;
use countersign_log::leaf::Leaf;
use countersign_log::segments::segment_path;
use countersign_log::verdict::{self, Verdict};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::book::{Desk, SERVER, open, open_within};
use crate::peers::{Client, Server, WITHIN, answer, call, line, result};

const NOON: &str = r#"{"content":[]}"#;
const NOTHING_FORWARDED: &str = r#""code":-32603,"message":"countersign: the journal cannot be written, so nothing was forwarded: "#;
const WITHHELD: &str = r#""code":-32603,"message":"countersign: the journal cannot be written, so the answer is withheld: "#;

fn gate(desk: &Desk, server: Arc<dyn Upstream>) -> Gate {
    Gate::new(
        Vec::new(),
        Box::new(allow_all),
        desk.recorder.clone(),
        server,
        WITHIN,
    )
}

async fn handle(gate: &Gate, tool: &str) -> Reply {
    gate.handle(call(&line(1, tool)), Client::new()).await
}

#[track_caller]
fn assert_told(reply: &Reply, what: &str) {
    let told = answer(reply).expect("the client is told");
    assert!(told.contains(what), "{told}");
}

/// Runs the test `name` in a process of its own, for what concerns a whole process. `true` inside it.
fn in_a_process_of_its_own(name: &str) -> bool {
    const INSIDE: &str = "COUNTERSIGN_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let test = std::env::current_exe().expect("this program has a path");
    let outcome = Command::new(test)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("this program can be run");
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(
        outcome.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    false
}

/// A disk that takes nothing more, for as long as it is told so.
struct FullDisk {
    limit: Rlimit,
    /// Without someone who takes the signal, the first refused write would end the process.
    _taken: Signal,
}

impl FullDisk {
    fn ready() -> Self {
        const SIGXFSZ: i32 = 25;
        Self {
            limit: getrlimit(Resource::Fsize),
            _taken: signal(SignalKind::from_raw(SIGXFSZ)).expect("the signal can be taken"),
        }
    }

    fn fill(&self) {
        self.set(Some(1));
    }

    fn clear(&self) {
        self.set(self.limit.current);
    }

    fn set(&self, current: Option<u64>) {
        let limit = Rlimit {
            current,
            maximum: self.limit.maximum,
        };
        setrlimit(Resource::Fsize, limit).expect("the soft limit is ours");
    }
}

#[test]
fn nothing_is_forwarded_while_the_journal_cannot_be_written() {
    if in_a_process_of_its_own(
        "gate_journal::nothing_is_forwarded_while_the_journal_cannot_be_written",
    ) {
        nothing_is_forwarded();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn nothing_is_forwarded() {
    for fsync in [Fsync::Interval, Fsync::Always] {
        let disk = Arc::new(FullDisk::ready());
        let desk = Desk::new(fsync);
        let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
        let gate = gate(&desk, server);
        let first = handle(&gate, "first").await;
        disk.fill();
        for _ in 0..3 {
            assert_told(&handle(&gate, "lost").await, NOTHING_FORWARDED);
        }
        disk.clear();
        let last = gate.handle(call(&line(1, "last")), Client::new());
        // What was lost is not in flight: with nothing else to wait for, this call is forwarded at once.
        let at_once = if fsync == Fsync::Always { 1 } else { 2 };
        assert_eq!(seen.lines().len(), at_once);
        let last = last.await;
        assert_eq!(seen.lines(), [line(1, "first"), line(1, "last")]);
        let standing = desk.recorder.standing().expect("there is a journal");
        assert_eq!(standing.outcomes, 2);
        let book = desk.close();
        book.assert_calls(2);
        book.assert_call(0, "first", "{}", &first);
        book.assert_call(1, "last", "{}", &last);
    }
}

#[test]
fn an_answer_that_cannot_be_recorded_is_withheld_and_owed() {
    if in_a_process_of_its_own(
        "gate_journal::an_answer_that_cannot_be_recorded_is_withheld_and_owed",
    ) {
        an_answer_is_withheld();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn an_answer_is_withheld() {
    // Owed outcomes are written before the next call, or else at the end.
    for (fsync, goes_on) in [
        (Fsync::Interval, true),
        (Fsync::Interval, false),
        (Fsync::Always, true),
    ] {
        let disk = Arc::new(FullDisk::ready());
        let desk = Desk::new(fsync);
        let for_server = Arc::clone(&disk);
        let (server, seen) = Server::acting(move |permit| {
            if permit.call().name().as_deref() == Some("fills") {
                for_server.fill();
            }
            Box::pin(async { result(NOON) })
        });
        let gate = gate(&desk, server);
        let owed = handle(&gate, "fills").await;
        assert_told(&owed, WITHHELD);
        assert_told(&handle(&gate, "lost").await, NOTHING_FORWARDED);
        disk.clear();
        if goes_on {
            let last = handle(&gate, "last").await;
            assert_eq!(seen.lines(), [line(1, "fills"), line(1, "last")]);
            let standing = desk.recorder.standing().expect("there is a journal");
            assert_eq!(standing.outcomes, 2, "the one that was owed counts once");
            let book = desk.close();
            book.assert_calls(2);
            book.assert_call(0, "fills", "{}", &owed);
            assert!(book.outcome(0) < book.intent(1), "what is owed goes first");
            book.assert_call(1, "last", "{}", &last);
        } else {
            let book = desk.close();
            book.assert_calls(1);
            book.assert_call(0, "fills", "{}", &owed);
        }
    }
}

#[test]
fn a_call_that_a_layer_answers_is_withheld_too() {
    if in_a_process_of_its_own("gate_journal::a_call_that_a_layer_answers_is_withheld_too") {
        a_layers_answer_is_withheld();
    }
}

#[tokio::main(flavor = "current_thread")]
async fn a_layers_answer_is_withheld() {
    let disk = FullDisk::ready();
    let desk = Desk::new(Fsync::Interval);
    let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
    let gate = Gate::new(
        vec![Box::new(|_, _| async { result(NOON) })],
        Box::new(allow_all),
        desk.recorder.clone(),
        server,
        WITHIN,
    );
    disk.fill();
    assert_told(&handle(&gate, "lost").await, WITHHELD);
    disk.clear();
    let reply = handle(&gate, "now").await;
    assert!(seen.lines().is_empty());
    let book = desk.close();
    book.assert_calls(1);
    book.assert_call(0, "now", "{}", &reply);
}

#[tokio::test]
async fn with_fsync_always_a_call_waits_until_its_intent_is_on_disk() {
    for (fsync, at_once) in [(Fsync::Interval, 1), (Fsync::Never, 1), (Fsync::Always, 0)] {
        let desk = Desk::new(fsync);
        let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
        let gate = gate(&desk, server);
        let reply = gate.handle(call(&line(1, "now")), Client::new());
        // Nothing else runs on this thread before the first wait.
        assert_eq!(seen.lines().len(), at_once, "{fsync:?}");
        let reply = reply.await;
        assert_eq!(seen.lines().len(), 1, "{fsync:?}");
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test]
async fn an_intent_that_does_not_reach_the_disk_is_not_forwarded_and_the_next_start_says_lost() {
    let desk = Desk::new(Fsync::Always);
    let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
    let gate = gate(&desk, server);
    let first = handle(&gate, "first").await;
    // What is written goes to a file that is no longer the journal: a sync would prove nothing.
    let aside = desk.path().with_extension("aside");
    std::fs::rename(desk.path(), &aside).expect("both are in one folder");
    for _ in 0..2 {
        assert_told(&handle(&gate, "lost").await, NOTHING_FORWARDED);
    }
    assert_eq!(seen.lines(), [line(1, "first")]);
    assert!(desk.recorder.close().is_err());
    std::fs::rename(&aside, desk.path()).expect("both are in one folder");
    let (mut journal, opened) = open(&desk.path());
    let salt = [1; 32];
    let lost = opened.open_intents;
    assert!(!lost.is_empty());
    journal.stage_lost(&lost, &salt, 1_750_000_000_000);
    journal.commit().expect("the disk has room");
    journal.close(1_750_000_000_000).expect("it can be synced");
    let book = desk.verify();
    let calls = book.report.calls.as_ref().expect("its pairs are kept");
    assert_eq!(
        (calls.paired, calls.lost.count, calls.open.count),
        (1, 1, 0)
    );
    assert_eq!((book.report.intents, book.report.results), (2, 1));
    book.assert_call(0, "first", "{}", &first);
}

#[tokio::test]
async fn an_outcome_that_does_not_reach_the_disk_withholds_the_answer() {
    let desk = Desk::new(Fsync::Always);
    let path = desk.path();
    let aside = path.with_extension("aside");
    let to = aside.clone();
    let (server, seen) = Server::acting(move |_| {
        std::fs::rename(&path, &to).expect("both are in one folder");
        Box::pin(async { result(NOON) })
    });
    let gate = gate(&desk, server);
    assert_told(&handle(&gate, "now").await, WITHHELD);
    assert_eq!(seen.lines(), [line(1, "now")]);
    assert_told(&handle(&gate, "later").await, NOTHING_FORWARDED);
    assert!(desk.recorder.close().is_err());
    std::fs::rename(&aside, desk.path()).expect("both are in one folder");
    // Written but not known to be on disk: what stands there is whole, and goes no further.
    let book = desk.verify();
    assert_eq!(book.report.intents, 1);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_journal_and_are_refused_when_there_will_be_none() {
    let desk = Desk::without_journal(Fsync::Interval);
    let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
    let gate = gate(&desk, server);
    let early = gate.handle(call(&line(1, "early")), Client::new());
    assert!(seen.lines().is_empty());
    desk.open();
    let early = early.await;
    assert_eq!(seen.lines(), [line(1, "early")]);
    let book = desk.close();
    book.assert_calls(1);
    book.assert_call(0, "early", "{}", &early);

    let desk = Desk::without_journal(Fsync::Interval);
    let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
    let never = self::gate(&desk, server).handle(call(&line(1, "never")), Client::new());
    desk.recorder.give_up("it is held by process 4711".into());
    assert_told(&never.await, NOTHING_FORWARDED);
    assert!(seen.lines().is_empty());
}

/// A call that is in flight while the journal goes on in a new segment: its result names the intent's.
#[tokio::test]
async fn a_result_in_a_later_segment_names_the_segment_of_its_intent() {
    let desk = Desk::without_journal(Fsync::Interval);
    let limits = Limits {
        leaves: 3,
        octets: u64::MAX,
    };
    let (journal, opened) = open_within(&desk.path(), limits);
    desk.recorder.open(journal, &opened.open_intents).unwrap();
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let (server, _) = Server::acting(move |permit| {
        let late = permit.call().name().as_deref() == Some("late");
        let wait = Arc::clone(&wait);
        Box::pin(async move {
            if late {
                wait.notified().await;
            }
            result(NOON)
        })
    });
    let gate = gate(&desk, server);
    let late = gate.handle(call(&line(1, "late")), Client::new());
    handle(&gate, "soon").await;
    go.notify_one();
    late.await;
    desk.recorder.close().unwrap();

    let targets = verdict::targets(&[desk.path()]).unwrap();
    let reports = verdict::verify(&targets[0], None).unwrap();
    assert_eq!(reports.len(), 2, "two segments");
    assert!(
        reports
            .iter()
            .all(|report| report.verdict() == Verdict::Unanchored)
    );

    let segment = segment_path(&desk.path(), 1);
    let octets = std::fs::read(&segment).unwrap();
    let mut leaves = octets
        .split(|octet| *octet == b'\n')
        .filter_map(|line| Leaf::read(line).ok());
    let result = leaves.next_back().expect("the late result stands there");
    let salts = std::fs::read_to_string(format!("{}.salts", segment.display())).unwrap();
    let salt: serde_json::Value = serde_json::from_str(salts.lines().last().unwrap()).unwrap();
    assert_eq!(salt["i"], result.index);
    let salt = hex::decode(salt["s"].as_str().unwrap().as_bytes()).unwrap();
    let payload = format!(
        r#"{{"intent_index":0,"intent_segment":0,"is_error":false,"profile":"mcp.tools/call v1","result_sha256":"{}","server":"{SERVER}","tool":"late"}}"#,
        hex::encode(&canonical_sha256(NOON.as_bytes()).sha256)
    );
    let commitment = commit(payload.as_bytes(), &salt, result.index);
    assert_eq!(result.payload_hash, commitment.to_string());
    let pairs = std::fs::read_to_string(format!("{}.calls", segment.display())).unwrap();
    let pair = format!(r#"{{"r":{},"i":0,"g":0}}"#, result.index);
    assert!(pairs.lines().any(|line| line == pair), "{pairs}");
}

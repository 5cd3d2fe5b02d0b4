//! How it ends: by the client's hand, by a signal, by force. What was accepted has an outcome, what we
//! started has gone, and what we could not finish is told by the next start.

use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::auditor::{Called, called, lost_payload};
use crate::client::{Client, Desk, Ended, call, error, eventually, is_alive, request, script};

/// SDKs wait two seconds between their steps; machines that are busy get some more from us.
const SOON: Duration = Duration::from_secs(5);

fn result(answer: &str) -> Value {
    let answer: Value = serde_json::from_str(answer).expect("an answer is JSON");
    answer["result"].clone()
}

/// Starts a grandchild of the server, and says its process id.
fn grandchild(client: &mut Client) -> (Called, u32) {
    let arguments = script(json!([["grandchild"], ["answer", "{\"pid\":$PID}"]]));
    let answer = client.call("\"fork\"", "forks", &arguments);
    let pid = result(&answer)["pid"].as_u64().expect("a process id");
    (
        called("forks", &arguments, &answer),
        u32::try_from(pid).expect("a process id"),
    )
}

/// W14: the reference loses most of them.
#[test]
fn five_hundred_pipelined_calls_and_then_the_end_get_five_hundred_answers() {
    for arguments in ["{}", r#"{"script":[["sleep",100],["answer","{}"]]}"#] {
        let desk = Desk::new();
        // Not even the journal is open when they come.
        let mut client = desk.wrap().start();
        let mut lines = String::new();
        for id in 0..500 {
            lines += &call(&id.to_string(), "many", arguments);
            lines.push('\n');
        }
        client.send_octets(lines.as_bytes());
        let ended = client.finish();
        assert_eq!(ended.lines.len(), 500);
        let answer_to = |id: usize| {
            let id = format!("\"id\":{id},");
            ended
                .lines
                .iter()
                .find(|line| line.contains(&id))
                .expect("an answer")
        };
        let calls: Vec<Called> = (0..500)
            .map(|id| called("many", arguments, answer_to(id)))
            .collect();
        desk.journal().assert_calls(&calls);
        desk.verify_complete();
    }
}

/// W21, as far as it is ours: an export stands in nobody's way.
#[test]
fn ten_thousand_calls_with_64_in_flight_leave_ten_thousand_intents_and_results() {
    const CALLS: usize = 10_000;
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let one = |number: usize| call(&number.to_string(), "echo", &format!("{{\"n\":{number}}}"));
    for number in 0..64 {
        client.send(one(number));
    }
    for next in 64..CALLS + 64 {
        let answer = client.line();
        assert!(answer.contains("\"result\""), "{answer}");
        if next < CALLS {
            client.send(one(next));
        }
    }
    // An export that cannot go on, because it would write into a pipe that nobody reads yet.
    let draft = desk.path("j.wlog.dossier.json.tmp");
    let made = std::process::Command::new("mkfifo").arg(&draft).status();
    assert!(made.expect("mkfifo runs").success());
    client.send(call("\"held\"", "audit__export", "{}"));
    client.send(call("\"behind\"", "echo", "{}"));
    let first = client.line();
    assert!(
        first.contains("\"behind\""),
        "the export held it up: {first}"
    );
    let read = std::thread::spawn(move || std::fs::read(draft).expect("it can be read"));
    let held = client.answer("\"held\"");
    assert!(
        held.contains("\"isError\":true"),
        "a pipe is no file: {held}"
    );
    assert!(!read.join().expect("it ends").is_empty());
    client.send(call("\"export\"", "audit__export", "{}"));
    client.answer("\"export\"");
    client.finish();
    let journal = desk.journal();
    assert_eq!(
        (journal.count('I'), journal.count('R')),
        (CALLS + 1, CALLS + 1)
    );
    assert_eq!(desk.verify_complete()["calls"]["paired"], CALLS + 1);
    let dossier = desk.verify_file(&desk.path("j.wlog.dossier.json"));
    assert_eq!(dossier["results"], CALLS + 1);
}

/// W14, W24, W28: outcomes are written, the lock is gone, and so is everything that we started.
#[test]
fn a_signal_to_end_leaves_outcomes_and_nothing_running() {
    for signal in [Signal::TERM, Signal::INT] {
        let desk = Desk::new();
        let mut client = desk.wrap().connect();
        let (fork, grandchild) = grandchild(&mut client);
        let silent = r#"{"script":[]}"#;
        let soon = script(json!([["sleep", 300], ["answer", "{\"in\":\"time\"}"]]));
        client.send(call("1", "silent", silent));
        client.send(call("2", "soon", &soon));
        client.ping();
        client.signal(signal);
        let ended = client.end();
        assert_eq!(
            (ended.code, ended.signal),
            (Some(0), None),
            "{}",
            ended.stderr
        );
        assert!(ended.took < SOON, "{:?}", ended.took);
        let answer = |id: &str| {
            ended
                .lines
                .iter()
                .find(|line| line.contains(id))
                .expect("an answer")
        };
        let (one, two) = (answer("\"id\":1,"), answer("\"id\":2,"));
        assert!(error(one).1.contains("shutting down"), "{one}");
        assert!(two.contains("time"), "{two}");
        desk.journal().assert_calls(&[
            fork,
            called("silent", silent, one),
            called("soon", &soon, two),
        ]);
        desk.verify_complete();
        assert!(!desk.path("j.wlog.lock").exists());
        for pid in desk.server_pids().into_iter().chain([grandchild]) {
            assert!(!is_alive(pid), "{pid} is still there");
        }
    }
}

/// W28: a server that ignores both ends all the same, with everything that it started.
#[test]
fn a_server_that_ignores_the_end_of_its_input_and_sigterm_is_ended_by_force() {
    let ways: [&dyn Fn(Client) -> Ended; 2] = [&|client| client.hang_up(), &|client| {
        client.signal(Signal::TERM);
        client.end()
    }];
    for end in ways {
        let desk = Desk::new();
        let mut client = desk.wrap().server(["--stubborn"]).connect();
        let (fork, grandchild) = grandchild(&mut client);
        let ended = end(client);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        // Two seconds after the end of its input, two after SIGTERM.
        assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
        for pid in desk.server_pids().into_iter().chain([grandchild]) {
            assert!(!is_alive(pid), "{pid} is still there");
        }
        desk.journal().assert_calls(&[fork]);
        desk.verify_complete();
    }
}

/// W28: even where we cannot do anything any more.
#[test]
fn a_server_does_not_outlive_a_wrap_that_was_killed() {
    let desk = Desk::new();
    let client = desk.wrap().server(["--stubborn"]).connect();
    client.signal(Signal::KILL);
    assert_eq!(client.end().signal, Some(9));
    let [server] = desk.server_pids()[..] else {
        panic!("one server")
    };
    eventually("the server's end", || !is_alive(server));
    desk.verify();
}

/// W13, W24: what a crash left open is named by the next start, once and for all.
#[test]
fn calls_that_a_kill_left_open_are_recorded_as_lost_at_the_next_start() {
    let silent = r#"{"script":[]}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("0", "echo", "{}");
    client.send(call("1", "silent", silent));
    client.call("2", "echo", "{}");
    client.send(call("3", "silent", silent));
    client.ping();
    client.signal(Signal::KILL);
    client.end();
    assert_eq!(desk.journal().kinds(), "IRIIRI");
    let report = desk.verify();
    assert_eq!(report["calls"]["open"]["count"], 2, "{report}");
    assert!(
        desk.path("j.wlog.lock").exists(),
        "a kill cannot take it away"
    );

    let mut client = desk.wrap().connect();
    client.call("0", "echo", "{}");
    let ended = client.finish();
    assert!(
        ended.stderr.contains("recorded as lost"),
        "{}",
        ended.stderr
    );
    let journal = desk.journal();
    assert_eq!(journal.kinds(), "IRIIRIMIR");
    assert!(journal.commits(6, &lost_payload(&[2, 5])));
    let report = desk.verify();
    assert_eq!(
        (
            &report["calls"]["lost"]["count"],
            &report["calls"]["open"]["count"]
        ),
        (&json!(2), &json!(0))
    );

    // Nothing is lost twice.
    desk.wrap().connect().finish();
    assert_eq!(desk.journal().kinds(), "IRIIRIMIR");
}

#[test]
fn a_kill_in_the_middle_of_many_calls_loses_no_answered_call() {
    for mode in ["interval", "always"] {
        let desk = Desk::new();
        let answers = answers_before_a_kill(desk.wrap().flags(["--fsync", mode]).connect());

        // As another start finds it, torn or not.
        desk.wrap().connect().finish();
        let journal = desk.journal();
        let results = journal.count('R');
        assert!(results >= answers, "{results} results of {answers} answers");
        let report = desk.verify();
        assert_eq!(report["calls"]["open"]["count"], 0);
        let lost = report["calls"]["lost"]["count"].as_u64().expect("a count");
        assert_eq!(journal.count('I') as u64, results as u64 + lost);
    }
}

/// Calls without a pause, is killed, and says how many answers have come.
fn answers_before_a_kill(mut client: Client) -> usize {
    const BEFORE: usize = 1000;
    let mut input = client.take_input();
    let writer = std::thread::spawn(move || {
        // Until the kill breaks the pipe.
        for id in 0..1_000_000 {
            if writeln!(input, "{}", call(&id.to_string(), "echo", "{}")).is_err() {
                return;
            }
        }
    });
    for _ in 0..BEFORE {
        client.line();
    }
    client.signal(Signal::KILL);
    let ended = client.end();
    writer.join().expect("it ends");
    BEFORE + ended.lines.len()
}

/// W19: the reference stands still in its write.
#[test]
fn a_server_that_stops_reading_costs_the_time_limit_and_no_more() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    let deaf = script(json!([["deaf"], ["answer", "{}"]]));
    let first = client.call("\"deaf\"", "deaf", &deaf);
    let mut calls = vec![called("deaf", &deaf, &first)];
    // More than the pipe and the server's own buffer hold.
    let big = format!("{{\"s\":\"{}\"}}", "x".repeat(200_000));
    let ids: Vec<String> = (0..20).map(|id| id.to_string()).collect();
    for id in &ids {
        client.send(call(id, "big", &big));
    }
    for id in &ids {
        let answer = client.answer(id);
        // The server may read one more line before it stops.
        assert!(
            answer.contains("timed out after 0.5s") || answer.contains("\"echo\""),
            "{}",
            &answer[..100]
        );
        calls.push(called("big", &big, &answer));
    }
    let ended = client.finish();
    assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

#[test]
fn a_client_that_does_not_read_for_a_while_gets_everything() {
    const ANSWERS: usize = 100;
    let desk = Desk::new();
    let mut client = desk.wrap().unread().start();
    // More than is queued for a client.
    let big = script(json!([["fill", 1 << 20]]));
    for id in 0..ANSWERS {
        client.send(call(&id.to_string(), "big", &big));
    }
    sleep(Duration::from_secs(1));
    client.begin_to_read();
    for id in 0..ANSWERS {
        let answer = client.answer(&id.to_string());
        assert!(
            answer.len() > 1 << 20,
            "{}",
            &answer[..answer.len().min(200)]
        );
    }
    client.finish();
    assert_eq!(desk.verify_complete()["results"], ANSWERS);
}

#[test]
fn a_client_that_hangs_up_on_both_ends_still_leaves_an_outcome() {
    let desk = Desk::new();
    let mut client = desk.wrap().unread().start();
    let slow = script(json!([["sleep", 300], ["answer", "{\"late\":1}"]]));
    client.send(call("1", "slow", &slow));
    client.close_output();
    client.finish();
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"late":1}}"#;
    desk.journal()
        .assert_calls(&[called("slow", &slow, answer)]);
    desk.verify_complete();
}

#[test]
fn a_question_that_can_no_longer_be_answered_holds_nobody_up() {
    let asks = script(json!([
        ["out", request("0", "elicitation/create", "{}")],
        ["await", "0"]
    ]));
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "1"]).connect();
    client.send(call("1", "asks", &asks));
    client.message("elicitation/create");
    let ended = client.finish();
    let [answer] = &ended.lines[..] else {
        panic!("{:?}", ended.lines)
    };
    assert!(error(answer).1.contains("timed out"), "{answer}");
    desk.journal()
        .assert_calls(&[called("asks", &asks, answer)]);
    desk.verify_complete();
}

#[test]
fn an_end_without_a_word_leaves_a_whole_journal() {
    let desk = Desk::new();
    desk.wrap().start().finish();
    assert_eq!(desk.journal().kinds(), "");
    desk.verify();
    assert!(!desk.path("j.wlog.lock").exists());
    desk.wrap().connect().finish();
    desk.verify();
}

/// More than may be in flight: the rest is read when there is room, and nothing is refused.
#[test]
fn more_calls_than_may_be_in_flight_are_all_answered() {
    const CALLS: usize = 1500;
    let soon = script(json!([["sleep", 50], ["answer", "{}"]]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let lines: String = (0..CALLS)
        .map(|id| format!("{}\n", call(&id.to_string(), "soon", &soon)))
        .collect();
    client.send_octets(lines.as_bytes());
    let ended = client.finish();
    assert_eq!(ended.lines.len(), CALLS);
    assert!(ended.lines.iter().all(|line| line.contains("\"result\"")));
    assert_eq!(desk.verify_complete()["results"], CALLS);
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_us_from_ending() {
    let ways: [&dyn Fn(Client) -> Ended; 2] = [&Client::hang_up, &|client| {
        client.signal(Signal::TERM);
        client.end()
    }];
    for end in ways {
        let desk = Desk::new();
        let mut client = desk.wrap().unread().start();
        let big = script(json!([["fill", 4 << 20]]));
        client.send(call("1", "big", &big));
        client.send(call("2", "big", &big));
        eventually("two results", || {
            // The file may just be being made, so it is read as text.
            let text = std::fs::read_to_string(desk.journal_path()).unwrap_or_default();
            text.matches("\"leaf_type\":2").count() == 2
        });
        let ended = end(client);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.took < Duration::from_secs(15), "{:?}", ended.took);
        desk.verify_complete();
    }
}

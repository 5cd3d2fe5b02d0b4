//! A server that ends while others rely on it: each request is answered, and its successor is set up as
//! the client had left it.

use serde_json::{Value, json};

use crate::auditor::called;
use crate::client::{
    Client, Desk, call, cancel, error, eventually, initialize_params, request, script,
};

const OURS: i64 = -32000;

/// A notification that makes the server do this.
fn tell(steps: Value) -> String {
    json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": { "script": steps } })
        .to_string()
}

/// What the server's current process got, without its `# start`.
fn last_process(desk: &Desk) -> Vec<String> {
    let log = desk.server_log();
    let start = log
        .iter()
        .rposition(|line| line.starts_with("# start"))
        .expect("a process");
    log[start + 1..].to_vec()
}

#[test]
fn a_crash_answers_the_call_that_caused_it_and_the_next_one_works() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let mut calls = Vec::new();
    for (step, code) in [(json!(["exit", 3]), "3"), (json!(["kill", 9]), "-9")] {
        let arguments = script(json!([["stderr", "dying words"], ["sleep", 50], step]));
        let answer = client.call("1", "crash", &arguments);
        let message = format!("witness-log-mcp-proxy: server exited with code {code} during crash");
        assert_eq!(error(&answer), (OURS, message));
        assert!(answer.contains("dying words"), "{answer}");
        calls.push(called("crash", &arguments, &answer));
        let answer = client.call("1", "echo", "{}");
        calls.push(called("echo", "{}", &answer));
    }
    client.finish();
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

/// W16: not only calls.
#[test]
fn a_crash_answers_every_request_that_was_pending() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let silent = r#"{"script":[]}"#;
    client.send(call("1", "silent", silent));
    for (id, method) in [
        ("2", "tools/list"),
        ("3", "ping"),
        ("4", "resources/read"),
        ("\"5\"", "x/y"),
    ] {
        client.send(request(id, method, silent));
    }
    client.ping();
    client.send(tell(json!([["exit", 4]])));
    let answer = client.answer("1");
    for id in ["2", "3", "4", "\"5\""] {
        let (code, message) = error(&client.answer(id));
        assert_eq!(code, OURS);
        assert!(message.contains("exited with code 4"), "{message}");
    }
    client.finish();
    desk.journal()
        .assert_calls(&[called("silent", silent, &answer)]);
    desk.verify_complete();
}

#[test]
fn a_new_process_is_set_up_as_the_client_had_set_up_the_old_one() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.ask("1", "logging/setLevel", r#"{"level":"debug"}"#);
    client.ask("2", "logging/setLevel", r#"{"level":"warning"}"#);
    client.ask("3", "resources/subscribe", r#"{"uri":"x:a"}"#);
    client.ask("4", "resources/subscribe", r#"{"uri":"x:b"}"#);
    client.ask("5", "resources/unsubscribe", r#"{"uri":"x:a"}"#);
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_pids().len() == 2);
    let answer = client.call("6", "echo", "{}");
    let ended = client.finish();
    // The answers to what we repeated are for nobody.
    assert_eq!(ended.lines, [""; 0]);
    let got = last_process(&desk);
    let position = |text: &str| got.iter().position(|line| line.contains(text));
    let order = [
        position("\"method\":\"initialize\""),
        position("notifications/initialized"),
        position("\"level\":\"warning\""),
        position("\"uri\":\"x:b\""),
        position("\"echo\""),
    ];
    assert!(
        order.iter().all(Option::is_some) && order.is_sorted(),
        "{order:?} {got:#?}"
    );
    assert_eq!(position("debug"), None);
    assert_eq!(position("x:a"), None);
    // Repeated under ids that no client uses: here, under none of those above.
    for id in ["\"open\"", "2", "4"] {
        assert_eq!(position(&format!("\"id\":{id},")), None, "{got:#?}");
    }
    desk.journal()
        .assert_calls(&[called("echo", "{}", &answer)]);
    desk.verify_complete();
}

/// W15: the first handshake is not lost with the process that should have answered it.
#[test]
fn a_crash_before_the_first_handshake_is_answered_is_survived() {
    let desk = Desk::new();
    let steps = json!([["once", desk.path("flag")], ["sleep", 100], ["exit", 1]]);
    let mut client = desk.wrap().start();
    let answer = client.ask("1", "initialize", &script(steps));
    assert!(answer.contains("\"serverInfo\""), "{answer}");
    client.call("2", "echo", "{}");
    client.finish();
    assert_eq!(desk.server_pids().len(), 2);
    desk.verify_complete();
}

/// W20: our repetition of the handshake has an id of its own, so the client's stays free.
#[test]
fn a_repeated_handshake_that_is_never_answered_takes_no_answer_away() {
    let desk = Desk::new();
    let steps = json!([["later", desk.path("flag")]]);
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).start();
    client.ask("1", "initialize", &script(steps));
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_got("countersign/1"));
    // The new process is not set up, so the call waits its time and is told so.
    let answer = client.call("1", "echo", "{}");
    assert_eq!(
        error(&answer).1,
        "witness-log-mcp-proxy: timed out after 0.5s"
    );
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    desk.journal()
        .assert_calls(&[called("echo", "{}", &answer)]);
    desk.verify_complete();
}

#[test]
fn calls_that_come_during_a_restart_reach_the_new_process() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let crash = script(json!([["exit", 1]]));
    let crashed = client.call("1", "crash", &crash);
    let ids = ["2", "3", "4"];
    for id in ids {
        client.send(call(id, "next", "{}"));
    }
    let mut calls = vec![called("crash", &crash, &crashed)];
    calls.extend(ids.map(|id| called("next", "{}", &client.answer(id))));
    client.finish();
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

#[test]
fn a_modern_listen_goes_on_over_a_restart_and_is_acknowledged_once() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    let listen = request("\"l:0\"", "subscriptions/listen", meta);
    client.send(&listen);
    client.message("notifications/subscriptions/acknowledged");
    client.send(tell(json!([["exit", 1]])));
    eventually("the listen again", || {
        desk.server_log()
            .iter()
            .filter(|line| **line == listen)
            .count()
            == 2
    });
    client.ping();
    // The stream is the old one, to the client: what comes on it has the client's id.
    let event = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l:0"}}}"#;
    client.send(tell(json!([["out", event]])));
    assert_eq!(client.message("notifications/tools/list_changed"), event);
    let ended = client.finish();
    // A request gets one answer, and with the client's input the stream has come to its end.
    let [end] = &ended.lines[..] else {
        panic!("{:?}", ended.lines)
    };
    assert!(
        end.contains("\"id\":\"l:0\"") && error(end).1.contains("given up"),
        "{end}"
    );
    desk.verify();
}

#[test]
fn questions_of_a_dead_process_are_taken_back_and_their_late_answers_dropped() {
    let question = request("0", "elicitation/create", r#"{"message":"?"}"#);
    let asks = script(json!([
        ["out", question],
        ["await", "0"],
        ["answer", "{\"reply\":$REPLY}"]
    ]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(call("1", "asks", &asks));
    assert_eq!(client.message("elicitation/create"), question);
    client.send(tell(json!([["exit", 1]])));
    let first = client.answer("1");
    assert_eq!(error(&first).0, OURS);
    let taken_back = client.message("notifications/cancelled");
    assert!(taken_back.contains("\"requestId\":0"), "{taken_back}");
    // The new process counts from 0 again; the late answer to the old one is not for it.
    client.send(call("2", "asks", &asks));
    let again: Value = serde_json::from_str(&client.message("elicitation/create")).expect("JSON");
    client.send(r#"{"jsonrpc":"2.0","id":0,"result":{"late":true}}"#);
    client.send(
        json!({ "jsonrpc": "2.0", "id": again["id"], "result": { "own": true } }).to_string(),
    );
    let second = client.answer("2");
    assert!(
        second.contains("own") && !second.contains("late"),
        "{second}"
    );
    client.finish();
    assert!(!desk.server_got("late"));
    desk.journal().assert_calls(&[
        called("asks", &asks, &first),
        called("asks", &asks, &second),
    ]);
    desk.verify_complete();
}

/// Crashes `client`'s server with this step until it is not started again.
fn crash_for_good(desk: &Desk, mut client: Client, step: &Value, exit_code: i32) {
    let crash = script(json!([["sleep", 200], step]));
    client.send(call("1", "crash", &crash));
    client.send(call("2", "other", r#"{"script":[]}"#));
    client.send(request("3", "tools/list", r#"{"script":[]}"#));
    let answers = ["1", "2"].map(|id| client.answer(id));
    error(&client.answer("3"));
    let ended = client.end();
    assert_eq!(ended.code, Some(exit_code), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("is not started again"),
        "{}",
        ended.stderr
    );
    desk.journal().assert_calls(&[
        called("crash", &crash, &answers[0]),
        called("other", r#"{"script":[]}"#, &answers[1]),
    ]);
    desk.verify_complete();
    assert!(!desk.path("j.wlog.lock").exists());
}

#[test]
fn with_the_restarts_spent_we_end_with_the_servers_exit_code() {
    let desk = Desk::new();
    let client = desk.wrap().flags(["--max-restarts", "0"]).connect();
    crash_for_good(&desk, client, &json!(["exit", 7]), 7);
}

#[test]
fn with_a_server_that_was_killed_we_end_with_1() {
    let desk = Desk::new();
    let client = desk.wrap().flags(["--max-restarts", "0"]).connect();
    crash_for_good(&desk, client, &json!(["kill", 9]), 1);
}

/// A restart each, with a wait before each, then none.
#[test]
fn restarts_have_a_budget() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--max-restarts", "2"]).connect();
    for _ in 0..2 {
        let answer = client.call("1", "crash", &script(json!([["exit", 5]])));
        assert!(error(&answer).1.contains("code 5"));
        client.ping();
    }
    let answer = client.call("1", "crash", &script(json!([["exit", 6]])));
    assert!(error(&answer).1.contains("code 6"));
    let ended = client.end();
    assert_eq!(ended.code, Some(6));
    assert_eq!(desk.server_pids().len(), 3);
    desk.verify_complete();
}

/// What waited for a process that never came is told that it was not sent.
#[test]
fn what_waits_for_a_process_that_never_comes_is_told_that_it_was_not_sent() {
    let desk = Desk::new();
    let steps = json!([["later", desk.path("flag")], ["sleep", 700], ["exit", 7]]);
    let mut client = desk.wrap().flags(["--max-restarts", "1"]).start();
    client.ask("0", "initialize", &script(steps));
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_pids().len() == 2);
    let answer = client.call("1", "waits", "{}");
    let unsent =
        "witness-log-mcp-proxy: server exited with code 7 and was not replaced; waits was not sent";
    assert_eq!(error(&answer), (OURS, unsent.to_owned()));
    assert_eq!(client.end().code, Some(7));
    desk.journal()
        .assert_calls(&[called("waits", "{}", &answer)]);
    desk.verify_complete();
}

/// What waits outlives a new process that ends before it is set up.
#[test]
fn what_waits_is_sent_to_the_third_process_when_the_second_one_ends_at_once() {
    let desk = Desk::new();
    let steps = json!([
        ["later", desk.path("first")],
        ["once", desk.path("second")],
        ["sleep", 300],
        ["exit", 1]
    ]);
    let mut client = desk.wrap().start();
    client.ask("0", "initialize", &script(steps));
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_pids().len() == 2);
    let answer = client.call("1", "waits", "{}");
    assert!(answer.contains("\"result\""), "{answer}");
    client.finish();
    assert_eq!(desk.server_pids().len(), 3);
    desk.journal()
        .assert_calls(&[called("waits", "{}", &answer)]);
    desk.verify_complete();
}

/// A server that closes its output without ending is as good as gone.
#[test]
fn processes_of_an_ended_server_do_not_stay() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let arguments = script(json!([
        ["grandchild"],
        ["answer", "{\"pid\":$PID}"],
        ["sleep", 100],
        ["exit", 1]
    ]));
    let answer: Value = serde_json::from_str(&client.call("1", "forks", &arguments)).expect("JSON");
    let grandchild =
        u32::try_from(answer["result"]["pid"].as_u64().expect("a pid")).expect("a pid");
    eventually("the grandchild's end", || {
        !crate::client::is_alive(grandchild)
    });
    client.ping();
    client.finish();
    desk.verify_complete();
}

/// Some clients do not wait for the answer to their handshake.
#[test]
fn a_handshake_that_was_sent_in_one_piece_is_repeated_whole() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    let lines = [
        request("1", "initialize", &initialize_params("2025-11-25")),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        String::new(),
    ];
    client.send_octets(lines.join("\n").as_bytes());
    client.answer("1");
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_pids().len() == 2);
    client.call("2", "echo", "{}");
    client.finish();
    let got = last_process(&desk);
    assert!(got[0].contains("\"initialize\""), "{got:#?}");
    assert!(got[1].contains("notifications/initialized"), "{got:#?}");
    desk.verify_complete();
}

#[test]
fn a_new_process_takes_its_questions_back_under_the_ids_that_the_client_knows() {
    let question = request("0", "elicitation/create", "{}");
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_pids().len() == 2);
    let asks = script(json!([
        ["out", question],
        ["out", cancel("0")],
        ["answer", "{}"]
    ]));
    let answer = client.call("1", "asks", &asks);
    let asked: Value = serde_json::from_str(&client.message("elicitation/create")).expect("JSON");
    let taken_back: Value =
        serde_json::from_str(&client.message("notifications/cancelled")).expect("JSON");
    assert_eq!(taken_back["params"]["requestId"], asked["id"]);
    assert_ne!(asked["id"], 0);
    client.finish();
    desk.journal()
        .assert_calls(&[called("asks", &asks, &answer)]);
    desk.verify_complete();
}

#[test]
fn a_crash_and_the_clients_end_at_once_leave_nothing_unanswered() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let crash = script(json!([["exit", 1]]));
    let mut lines = call("0", "crash", &crash) + "\n";
    for id in 1..20 {
        lines += &(call(&id.to_string(), "next", "{}") + "\n");
    }
    client.send_octets(lines.as_bytes());
    let ended = client.finish();
    assert_eq!(ended.lines.len(), 20, "{:?}", ended.lines);
    let answer = |id: usize| {
        let id = format!("\"id\":{id},");
        ended
            .lines
            .iter()
            .find(|line| line.contains(&id))
            .expect("an answer")
    };
    let mut calls = vec![called("crash", &crash, answer(0))];
    calls.extend((1..20).map(|id| called("next", "{}", answer(id))));
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

#[test]
fn a_signal_to_end_during_a_restart_ends_us_too() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--max-restarts", "20"]).start();
    let steps = json!([["later", desk.path("flag")], ["sleep", 50], ["exit", 1]]);
    client.ask("0", "initialize", &script(steps));
    client.send(tell(json!([["exit", 1]])));
    eventually("a second process", || desk.server_pids().len() >= 2);
    client.send(call("1", "waits", "{}"));
    eventually("more processes", || desk.server_pids().len() >= 4);
    client.signal(rustix::process::Signal::TERM);
    let ended = client.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.took.as_secs() < 5, "{:?}", ended.took);
    let [answer] = &ended.lines[..] else {
        panic!("{:?}", ended.lines)
    };
    assert!(error(answer).1.contains("shutting down"), "{answer}");
    desk.journal()
        .assert_calls(&[called("waits", "{}", answer)]);
    desk.verify_complete();
}

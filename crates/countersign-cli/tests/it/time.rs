//! Time limits, cancels, and the clock that stands still while the client owes an answer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::auditor::{called, called_with_error, cancelled, members};
use crate::client::{Desk, call, cancel, error, initialize_params, request, script};

const TIMED_OUT: &str = "witness-log-mcp-proxy: timed out after 0.5s";

fn after(ms: u64, result: &str) -> String {
    script(json!([["sleep", ms], ["answer", result]]))
}

#[test]
fn a_silent_server_costs_the_time_limit_and_its_late_answer_is_dropped() {
    let late = after(1200, r#"{"late":1}"#);
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    let begin = Instant::now();
    let answer = client.call("1", "late", &late);
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(error(&answer), (-32000, TIMED_OUT.to_owned()));
    // The server was told, and its late answer comes before this one.
    let quick = client.call("2", "quick", "{}");
    sleep(Duration::from_millis(1200));
    client.ping();
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    assert!(desk.server_got(r#""notifications/cancelled","params":{"requestId":1"#));
    desk.journal().assert_calls(&[
        called("late", &late, &answer),
        called("quick", "{}", &quick),
    ]);
    desk.verify_complete();
}

#[test]
fn in_the_modern_dialect_a_timeout_has_a_code_of_our_own() {
    let silent = r#"{"script":[]}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).start();
    let params = format!(
        "{{\"name\":\"silent\",\"arguments\":{silent},\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}}}}"
    );
    let answer = client.ask("1", "tools/call", &params);
    assert_eq!(error(&answer), (-32603, TIMED_OUT.to_owned()));
    client.finish();
    desk.journal()
        .assert_calls(&[called("silent", silent, &answer)]);
    desk.verify_complete();
}

/// W7: an id that timed out is free for the next request, which gets its own answer.
#[test]
fn an_id_reused_after_a_timeout_gets_its_own_answer() {
    let late = after(1000, r#"{"late":1}"#);
    let slow = after(300, r#"{"own":1}"#);
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    let first = client.call("1", "late", &late);
    let second = client.call("1", "slow", &slow);
    assert!(second.contains("\"own\":1"), "{second}");
    // And once more, for a request that is no call, while the first late answer is still to come.
    let ping = client.ask("1", "ping", "{}");
    assert!(ping.contains("\"result\":{}"), "{ping}");
    sleep(Duration::from_millis(1000));
    let third = client.call("1", "echo", "{}");
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    desk.journal().assert_calls(&[
        called("late", &late, &first),
        called("slow", &slow, &second),
        called("echo", "{}", &third),
    ]);
    desk.verify_complete();
}

/// W7: the same where no late answer ever comes.
#[test]
fn an_id_reused_after_a_timeout_without_a_late_answer_works() {
    let silent = r#"{"script":[]}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    let first = client.call("1", "silent", silent);
    let second = client.call("1", "echo", "{}");
    let ping = client.ask("1", "ping", "{}");
    assert!(ping.contains("\"result\":{}"), "{ping}");
    client.finish();
    desk.journal().assert_calls(&[
        called("silent", silent, &first),
        called("echo", "{}", &second),
    ]);
    desk.verify_complete();
}

#[test]
fn requests_that_are_no_calls_have_the_time_limit_too() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    for method in ["tools/list", "ping", "resources/read"] {
        let answer = client.ask("1", method, r#"{"script":[]}"#);
        assert_eq!(error(&answer), (-32000, TIMED_OUT.to_owned()), "{method}");
    }
    client.finish();
    desk.verify_complete();
}

/// First runs of a server download it.
#[test]
fn initialize_has_far_more_time_than_a_call() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).start();
    let answer = client.ask(
        "1",
        "initialize",
        &after(1500, r#"{"protocolVersion":"2025-11-25"}"#),
    );
    assert!(answer.contains("\"result\""), "{answer}");
    client.finish();
    desk.verify();
}

/// W12: what counts is when the answer is there, not when the client has taken it.
#[test]
fn a_client_that_reads_slowly_still_gets_the_real_answer() {
    let big = script(json!([["fill", 5 << 20]]));
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "1"]).unread().start();
    client.send(request("0", "initialize", &initialize_params("2025-11-25")));
    for id in ["1", "2"] {
        client.send(call(id, "big", &big));
    }
    sleep(Duration::from_millis(2500));
    client.begin_to_read();
    let answers = ["1", "2"].map(|id| client.answer(id));
    for answer in &answers {
        assert!(answer.len() > 5 << 20, "{}", &answer[..200]);
    }
    let ended = client.finish();
    assert_eq!(
        ended.lines.len(),
        1,
        "only the answer to initialize: {:?}",
        ended.lines
    );
    desk.journal()
        .assert_calls(&answers.map(|answer| called("big", &big, &answer)));
    desk.verify_complete();
}

/// W11: recorded as what it is, at once, and no answer goes out.
#[test]
fn a_cancelled_call_is_recorded_as_cancelled_and_not_answered() {
    let late = after(600, r#"{"late":1}"#);
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "3"]).connect();
    client.send(call("7", "late", &late));
    client.send(cancel("7"));
    client.ping();
    // Long before the time limit.
    assert_eq!(desk.journal().kinds(), "IR");
    sleep(Duration::from_millis(700));
    client.ping();
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    // The client's own words.
    assert!(desk.server_log().contains(&cancel("7")));
    desk.journal().assert_calls(&[cancelled("late", &late)]);
    desk.verify_complete();
}

#[test]
fn a_cancel_of_what_is_not_in_flight_passes() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    client.send(cancel("1"));
    client.ping();
    client.finish();
    assert!(desk.server_log().contains(&cancel("1")));
    assert_eq!(desk.verify_complete()["results"], 1);
}

/// A call that is taken back while a new server process is being set up is never sent.
#[test]
fn a_call_that_is_cancelled_before_it_was_sent_is_never_sent() {
    let desk = Desk::new();
    let steps = json!([
        ["later", desk.path("was-here")],
        ["sleep", 1000],
        ["answer", r#"{"protocolVersion":"2025-11-25"}"#],
    ]);
    let mut client = desk.wrap().start();
    client.ask("0", "initialize", &script(steps));
    let crash = script(json!([["exit", 1]]));
    let crashed = client.call("1", "crash", &crash);
    client.send(call("2", "unsent", "{}"));
    client.send(cancel("2"));
    client.send(call("3", "sent", "{}"));
    let sent = client.answer("3");
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    assert!(!desk.server_got("unsent"));
    assert!(!desk.server_got("notifications/cancelled"));
    desk.journal().assert_calls(&[
        called("crash", &crash, &crashed),
        cancelled("unsent", "{}"),
        called("sent", "{}", &sent),
    ]);
    desk.verify_complete();
}

#[test]
fn progress_and_answer_arrive_in_the_servers_order() {
    let progress = |at: u32| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":\"p\",\"progress\":{at}}}}}"
        )
    };
    let arguments = script(json!([
        ["out", progress(1)],
        ["out", progress(2)],
        ["answer", "{}"],
        ["out", progress(3)],
    ]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(call("1", "steps", &arguments));
    let lines = [client.line(), client.line(), client.line(), client.line()];
    assert_eq!(lines[0], progress(1));
    assert_eq!(lines[1], progress(2));
    assert!(lines[2].contains("\"result\""), "{lines:?}");
    assert_eq!(lines[3], progress(3));
    client.finish();
    desk.journal()
        .assert_calls(&[called("steps", &arguments, &lines[2])]);
    desk.verify_complete();
}

#[test]
fn the_clock_stands_still_while_the_client_owes_an_answer() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    let mut calls = Vec::new();
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let question = request("0", method, r#"{"message":"?","n":1E5}"#);
        let reply = r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{"x":1E5}}}"#;
        let arguments = script(json!([
            ["out", question],
            ["await", "0"],
            ["answer", "{\"reply\":$REPLY}"],
        ]));
        client.send(call("1", "asks", &arguments));
        assert_eq!(client.message(method), question);
        sleep(Duration::from_millis(1200));
        client.send(reply);
        let answer = client.answer("1");
        assert!(
            answer.contains(&json!({ "reply": reply }).to_string()),
            "{answer}"
        );
        calls.push(called("asks", &arguments, &answer));
    }
    client.finish();
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

#[test]
fn the_clock_goes_on_once_the_client_has_answered() {
    let question = request("0", "elicitation/create", "{}");
    let arguments = script(json!([["out", question], ["await", "0"]]));
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    client.send(call("1", "asks", &arguments));
    client.message("elicitation/create");
    client.send(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
    let answer = client.answer("1");
    assert_eq!(error(&answer).1, TIMED_OUT);
    client.finish();
    desk.journal()
        .assert_calls(&[called("asks", &arguments, &answer)]);
    desk.verify_complete();
}

#[test]
fn a_question_that_the_server_takes_back_stops_the_clock_no_longer() {
    let question = request("0", "elicitation/create", "{}");
    let arguments = script(json!([["out", question], ["out", cancel("0")]]));
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    client.send(call("1", "asks", &arguments));
    client.message("elicitation/create");
    assert_eq!(client.message("notifications/cancelled"), cancel("0"));
    let answer = client.answer("1");
    assert_eq!(error(&answer).1, TIMED_OUT);
    client.finish();
    desk.journal()
        .assert_calls(&[called("asks", &arguments, &answer)]);
    desk.verify_complete();
}

/// The words of the reference's time limit, as Python prints numbers.
#[test]
fn the_time_limit_is_named_as_the_reference_names_it() {
    for (flag, named) in [("0.25", "0.25"), ("1.0", "1"), ("1e-1", "0.1")] {
        let desk = Desk::new();
        let mut client = desk.wrap().flags(["--timeout", flag]).connect();
        let answer = client.call("1", "silent", r#"{"script":[]}"#);
        let message = format!("witness-log-mcp-proxy: timed out after {named}s");
        assert_eq!(error(&answer), (-32000, message.clone()));
        client.finish();
        let record = called_with_error("silent", r#"{"script":[]}"#, -32000, &message);
        desk.journal().assert_calls(&[record]);
        desk.verify_complete();
    }
}

/// W7: a cancel finds the request that has the id now, whatever it is called upstream.
#[test]
fn a_cancel_of_a_reused_id_reaches_the_later_request() {
    let silent = r#"{"script":[]}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).connect();
    let first = client.call("1", "silent", silent);
    client.send(call("1", "silent", silent));
    client.send(cancel("1"));
    client.ping();
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    let ids = |text: &str| -> Vec<String> {
        let log = desk.server_log();
        let lines = log.iter().filter(|line| line.contains(text));
        lines.map(|line| members(line)["id"].clone()).collect()
    };
    let [_, second] = &ids("\"silent\"")[..] else {
        panic!("{:?}", desk.server_log())
    };
    assert!(desk.server_got(&format!("\"requestId\":{second},\"reason\":\"test\"")));
    desk.journal().assert_calls(&[
        called("silent", silent, &first),
        cancelled("silent", silent),
    ]);
    desk.verify_complete();
}

#[test]
fn requests_that_wait_by_nature_have_no_time_limit() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "0.5"]).start();
    let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    client.send(request("\"l\"", "subscriptions/listen", meta));
    client.message("notifications/subscriptions/acknowledged");
    let result = client.ask("2", "tasks/result", &after(1200, r#"{"task":"done"}"#));
    assert!(result.contains("done"), "{result}");
    // The stream is still open: the server can end it with its answer.
    let end = r#"{"jsonrpc":"2.0","id":"l","result":{"resultType":"complete"}}"#;
    client.ask("3", "x/y", &script(json!([["out", end], ["answer", "{}"]])));
    assert_eq!(client.answer("\"l\""), end);
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    desk.verify();
}

/// What comes of a listen names it by its id, so a later one under the same id must keep it.
#[test]
fn a_listen_under_the_id_of_one_that_was_taken_back_keeps_its_id() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    for _ in 0..2 {
        client.send(request("\"l\"", "subscriptions/listen", meta));
        let acknowledged = client.message("notifications/subscriptions/acknowledged");
        assert!(
            acknowledged.contains("subscriptionId\":\"l\""),
            "{acknowledged}"
        );
        client.send(cancel("\"l\""));
        client.ping();
    }
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    desk.verify();
}

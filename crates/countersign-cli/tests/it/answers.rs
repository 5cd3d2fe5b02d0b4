//! Answers of servers that keep no rules: the client gets one answer all the same, and it is on record.

use serde_json::json;

use crate::auditor::called;
use crate::client::{Desk, call, error, script};

const BROKEN: i64 = -32603;

/// W5, W8: what comes as an answer but is none ends its request at once.
#[test]
fn a_line_that_is_no_answer_but_has_the_id_of_a_request_ends_it() {
    let lines = [
        // Both a result and an error.
        r#"{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"m"}}"#,
        // An answer that is also a request.
        r#"{"jsonrpc":"2.0","id":$ID,"result":{},"method":"ping"}"#,
        // Not JSON.
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"n":NaN}}"#,
        // Cut off.
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":["#,
    ];
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let mut calls = Vec::new();
    for line in lines {
        let arguments = script(json!([["out", line]]));
        let answer = client.call("1", "odd", &arguments);
        assert_eq!(error(&answer).0, BROKEN, "{line}");
        calls.push(called("odd", &arguments, &answer));
    }
    let good = client.call("1", "echo", "{}");
    calls.push(called("echo", "{}", &good));
    client.finish();
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

/// W5: a batch of answers answers each of its calls.
#[test]
fn answers_in_a_batch_reach_their_calls() {
    let steps = json!([
        ["sleep", 200],
        [
            "out",
            r#"[{"jsonrpc":"2.0","id":2,"result":{"to":2}},{"jsonrpc":"2.0","id":1,"result":{"to":1}}]"#
        ],
    ]);
    let (first, second) = (script(json!([])), script(steps));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(call("1", "one", &first));
    client.send(call("2", "two", &second));
    let answers = [client.answer("1"), client.answer("2")];
    assert!(
        answers[0].contains("\"to\":1") && answers[1].contains("\"to\":2"),
        "{answers:?}"
    );
    client.finish();
    desk.journal().assert_calls(&[
        called("one", &first, &answers[0]),
        called("two", &second, &answers[1]),
    ]);
    desk.verify_complete();
}

/// W8: an id that the server spells in another way is still the client's.
#[test]
fn an_id_echoed_in_another_spelling_answers_under_the_clients_own() {
    let spellings = [
        ("1e2", "100"),
        ("7", "7.0"),
        ("8", "\"8\""),
        ("\"9\"", "9"),
        ("\"\\u0061b\"", "\"ab\""),
    ];
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let mut calls = Vec::new();
    for (own, echoed) in spellings {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{echoed},\"result\":{{\"x\":1E5}}}}");
        let arguments = script(json!([["out", line]]));
        let answer = client.call(own, "odd", &arguments);
        assert_eq!(
            answer,
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{own},\"result\":{{\"x\":1E5}}}}")
        );
        calls.push(called("odd", &arguments, &answer));
    }
    let ended = client.finish();
    // And no second answer later.
    assert_eq!(ended.lines, [""; 0]);
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

/// W8: what CPython cannot parse is an answer like any other.
#[test]
fn answers_with_huge_integers_or_deep_nesting_arrive_and_are_recorded() {
    let digits = "7".repeat(5000);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--timeout", "10"]).connect();
    for value in [&digits, &deep] {
        let arguments = script(json!([["answer", format!("{{\"v\":{value}}}")]]));
        client.send(call("1", "odd", &arguments));
        // Too deep to be looked into by the tests' own parser.
        let answer = client.line();
        assert_eq!(
            answer,
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"v\":{value}}}}}")
        );
        if value == &digits {
            desk.journal()
                .assert_calls(&[called("odd", &arguments, &answer)]);
        }
    }
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    assert_eq!(desk.journal().kinds(), "IRIR");
    desk.verify_complete();
}

#[test]
fn noise_and_answers_that_nobody_asked_for_are_dropped_and_told() {
    let steps = json!([
        ["out", "Server listening on port 0"],
        ["out", ""],
        ["out", "\"text\""],
        ["out", r#"{"jsonrpc":"2.0","id":999,"result":{}}"#],
        ["out", r#"{"jsonrpc":"2.0","id":[1],"result":{}}"#],
        ["answer", "{}"],
    ]);
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let answer = client.call("1", "noisy", &script(steps.clone()));
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    assert!(
        ended.stderr.contains("Server listening on port 0"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("999"), "{}", ended.stderr);
    desk.journal()
        .assert_calls(&[called("noisy", &script(steps), &answer)]);
    desk.verify_complete();
}

/// An answer twice: the second is dropped.
#[test]
fn a_second_answer_to_one_call_is_dropped() {
    let arguments = script(json!([["answer", "{\"n\":1}"], ["answer", "{\"n\":2}"]]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let answer = client.call("1", "twice", &arguments);
    assert!(answer.contains("\"n\":1"), "{answer}");
    client.ping();
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    desk.journal()
        .assert_calls(&[called("twice", &arguments, &answer)]);
    desk.verify_complete();
}

/// A half line before the server's end is no answer.
#[test]
fn half_a_line_before_a_crash_is_an_error_for_its_call() {
    let arguments = script(json!([
        ["part", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"con"],
        ["sleep", 100],
        ["exit", 3],
    ]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let answer = client.call("1", "half", &arguments);
    let (code, message) = error(&answer);
    assert!(
        code == BROKEN || message.contains("exited with code 3"),
        "{answer}"
    );
    client.finish();
    desk.journal()
        .assert_calls(&[called("half", &arguments, &answer)]);
    desk.verify_complete();
}

#[test]
fn an_error_about_no_request_reaches_the_client() {
    let line = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call(
        "1",
        "odd",
        &script(json!([["out", line], ["answer", "{}"]])),
    );
    assert_eq!(client.line(), line);
    client.finish();
    desk.verify_complete();
}

#[test]
fn an_answer_that_is_not_utf8_ends_its_call() {
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"s\":\"\xff\"}}\n".to_vec();
    let arguments = script(json!([["octets", line]]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let answer = client.call("1", "odd", &arguments);
    assert_eq!(error(&answer).0, BROKEN);
    client.finish();
    desk.journal()
        .assert_calls(&[called("odd", &arguments, &answer)]);
    desk.verify_complete();
}

#[test]
fn an_answer_over_the_limit_of_a_line_ends_its_call() {
    let arguments = script(json!([["fill", 64 << 20]]));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let answer = client.call("1", "huge", &arguments);
    let (code, message) = error(&answer);
    assert_eq!(code, BROKEN);
    assert!(message.contains("over the limit"), "{message}");
    client.ping();
    client.finish();
    desk.journal()
        .assert_calls(&[called("huge", &arguments, &answer)]);
    desk.verify_complete();
}

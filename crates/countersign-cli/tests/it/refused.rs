//! Calls that parsers could read in two ways: never forwarded, always recorded, answered where they can be.

use crate::auditor::{Called, called, called_with_error, exact_payload};
use crate::client::{Client, Desk, call, error, request};

const INVALID: i64 = -32600;

/// A bad call, and what it is recorded as.
struct Bad {
    line: String,
    /// Under which id it is answered, if it can be.
    answered: Option<&'static str>,
    tool: &'static str,
    arguments: &'static str,
}

fn bad(line: &str, answered: Option<&'static str>, tool: &'static str) -> Bad {
    Bad {
        line: line.to_owned(),
        answered,
        tool,
        arguments: r#"{"b":2}"#,
    }
}

/// Sends each bad line, and demands that it is refused, recorded and never forwarded.
#[track_caller]
fn assert_refused(lines: Vec<Bad>) {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let mut calls = Vec::new();
    for bad in lines {
        client.send(&bad.line);
        let record = match bad.answered {
            Some(id) => {
                let answer = client.answer(id);
                assert_eq!(error(&answer).0, INVALID, "{}: {answer}", bad.line);
                Some(called(bad.tool, bad.arguments, &answer))
            }
            None => None,
        };
        // The next answer is the ping's, so nothing else was said.
        client.send(r#"{"jsonrpc":"2.0","id":"then","method":"ping"}"#);
        assert!(client.line().contains("\"then\""), "{}", bad.line);
        calls.push((bad, record));
    }
    client.finish();
    for (bad, _) in &calls {
        assert!(
            !desk.server_log().contains(&bad.line),
            "forwarded: {}",
            bad.line
        );
    }
    let journal = desk.journal();
    assert_eq!(journal.count('I'), calls.len(), "{}", journal.kinds());
    assert_eq!(journal.count('R'), calls.len(), "{}", journal.kinds());
    if calls.iter().all(|(_, record)| record.is_some()) {
        let calls: Vec<Called> = calls.into_iter().filter_map(|(_, record)| record).collect();
        journal.assert_calls(&calls);
    }
    desk.verify_complete();
}

/// W1: the reference runs such calls and leaves no leaf.
#[test]
fn a_call_with_a_null_id_is_refused_under_null() {
    assert_refused(vec![bad(
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"t","arguments":{"b":2}}}"#,
        Some("null"),
        "t",
    )]);
}

/// W1, the other form: there is nobody to answer, and still there is a record.
#[test]
fn a_call_without_an_id_is_recorded_and_not_forwarded() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","arguments":{"b":2}}}"#,
    );
    client.ping();
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    assert!(!desk.server_got("tools/call"));
    desk.journal().assert_calls(&[called_with_error(
        "t",
        r#"{"b":2}"#,
        INVALID,
        "countersign: it has no id, so its outcome could not be answered",
    )]);
    desk.verify_complete();
}

/// W4: what one parser takes for a ping is a call to another.
#[test]
fn doubled_keys_and_their_case_variants_are_refused() {
    let of = |method: &str, params: &str| {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{method},\"params\":{{{params}}}}}")
    };
    let call = r#""method":"tools/call""#;
    let params = r#""name":"t","arguments":{"b":2}"#;
    let lines = [
        of(r#""method":"tools/call","method":"ping""#, params),
        of(r#""method":"ping","method":"tools/call""#, params),
        of(r#""method":"tools/call","meth\u006fd":"ping""#, params),
        of(r#""Method":"tools/call""#, params),
        of(r#""method":"Tools/Call""#, params),
        of(call, r#""name":"u","name":"t","arguments":{"b":2}"#),
        of(call, r#""name":"t","Name":"u","arguments":{"b":2}"#),
        of(
            call,
            r#""name":"t","arguments":{"b":1},"arguments":{"b":2}"#,
        ),
        of(
            call,
            r#""name":"t","ARGUMENTS":{"b":1},"arguments":{"b":2}"#,
        ),
        of(&format!("\"id\":1,{call}"), params),
        of(&format!("\"Id\":2,{call}"), params),
        of(&format!("\"params\":{{}},{call}"), params),
    ];
    assert_refused(lines.iter().map(|line| bad(line, Some("1"), "t")).collect());
}

#[test]
fn a_doubled_argument_is_refused_and_its_octets_are_recorded() {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1,"a":2}}}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(line);
    let answer = client.answer("1");
    assert_eq!(error(&answer).0, INVALID);
    client.finish();
    let journal = desk.journal();
    journal.assert_calls(&[called("t", r#"{"a":2}"#, &answer)]);
    let exact = journal.kinds().find('M').expect("its octets") as u64;
    assert!(journal.commits(exact, &exact_payload(0, line, false)));
    desk.verify_complete();
}

/// W17: the reference drops them without an answer.
#[test]
fn params_that_are_no_object_are_refused() {
    let mut lines = Vec::new();
    for params in [r#"["t",{"b":2}]"#, r#""t""#, "5", "true"] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{params}}}"
        );
        lines.push(Bad {
            arguments: "{}",
            ..bad(&line, Some("1"), "")
        });
    }
    for (name, recorded) in [("5", "5"), ("null", "None"), ("[]", "[]")] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":{name},\"arguments\":{{\"b\":2}}}}}}"
        );
        lines.push(bad(&line, Some("1"), recorded));
    }
    assert_refused(lines);
}

/// W17: nesting.
#[test]
fn a_call_nested_a_hundred_thousand_deep_is_refused_and_recorded() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let line = call("1", "t", &format!("{{\"d\":{deep}}}"));
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(&line);
    let answer = client.answer("1");
    assert_eq!(error(&answer).0, INVALID);
    assert!(error(&answer).1.contains("deeper"), "{answer}");
    client.finish();
    assert!(!desk.server_got("tools/call"));
    let journal = desk.journal();
    assert_eq!((journal.count('I'), journal.count('R')), (1, 1));
    let exact = journal.kinds().find('M').expect("its octets") as u64;
    assert!(journal.commits(exact, &exact_payload(0, &line, false)));
    desk.verify_complete();
}

/// What is no JSON has no call in it: it is refused under its id where that can be found, and not forwarded.
#[test]
fn a_line_that_is_not_json_is_answered_under_its_id() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let lines = [
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"x":NaN}}}"#,
            "1",
        ),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":{"x":-Infinity}}}"#,
            "2",
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","#,
            "3",
        ),
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t"}}{"#,
            "4",
        ),
        ("hello", "null"),
    ];
    for (line, id) in lines {
        client.send(line);
        assert_eq!(error(&client.answer(id)).0, -32700, "{line}");
    }
    client.send_octets(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"\xff\"}}\n");
    assert_eq!(error(&client.answer("5")).0, -32700);
    client.finish();
    assert!(!desk.server_got("tools/call"));
    assert_eq!(desk.verify_complete()["intents"], 0);
}

/// W3: the reference forwards what its parser refuses, unrecorded.
#[test]
fn integers_of_five_thousand_digits_are_forwarded_and_recorded() {
    let digits = "7".repeat(5000);
    let in_arguments = call("1", "t", &format!("{{\"n\":{digits}}}"));
    let beside = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{{\"name\":\"t\",\"arguments\":{{}}}},\"ignored\":{digits}}}"
    );
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(&in_arguments);
    let first = client.answer("1");
    client.send(&beside);
    let second = client.answer("2");
    client.finish();
    assert!(desk.server_log().contains(&in_arguments));
    assert!(desk.server_log().contains(&beside));
    let journal = desk.journal();
    journal.assert_calls(&[
        called("t", &format!("{{\"n\":\"{digits}\"}}"), &first),
        called("t", "{}", &second),
    ]);
    let exact = journal.kinds().find('M').expect("the octets of the first") as u64;
    assert!(journal.commits(exact, &exact_payload(0, &in_arguments, true)));
    desk.verify_complete();
}

/// W10: arguments that have one canonical form are told apart by their octets.
#[test]
fn arguments_that_hash_alike_are_told_apart_by_their_octets() {
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(250), "]".repeat(250));
    let pairs = [
        ("1e400".to_owned(), "\"inf\"".to_owned()),
        (
            format!("1{}", "0".repeat(400)),
            format!("\"1{}\"", "0".repeat(400)),
        ),
        ("9007199254740993".to_owned(), "9007199254740992".to_owned()),
        (deep("1"), deep("2")),
    ];
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let mut lines = Vec::new();
    for (one, other) in &pairs {
        for value in [one, other] {
            let line = call("1", "t", &format!("{{\"v\":{value}}}"));
            client.send(&line);
            client.answer("1");
            lines.push(line);
        }
    }
    client.finish();
    let journal = desk.journal();
    let kinds: Vec<char> = journal.kinds().chars().collect();
    let intents = (0..kinds.len()).filter(|at| kinds[*at] == 'I');
    for (number, (intent, line)) in intents.zip(&lines).enumerate() {
        // The plain one of each pair but the last has nothing to tell.
        let is_due = number % 2 == 0 || number == 7;
        assert_eq!(
            kinds[intent + 1] == 'M',
            is_due,
            "{number} {}",
            journal.kinds()
        );
        if is_due {
            let exact = exact_payload(intent as u64, line, true);
            assert!(journal.commits(intent as u64 + 1, &exact), "{line}");
        }
    }
    desk.verify_complete();
}

const BATCH: &str = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"b":2}}},{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"u","arguments":{}}}]"#;

/// W2: on a version without batches, one error for the whole, and a record of each call in it.
#[test]
fn a_batch_with_a_call_is_refused_whole_where_there_are_no_batches() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(BATCH);
    let answer = client.line();
    let (code, message) = error(&answer);
    assert_eq!(code, INVALID);
    assert!(answer.contains("\"id\":null"), "{answer}");
    client.ping();
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    assert!(!desk.server_got("tools/call"));
    desk.journal().assert_calls(&[
        called_with_error("t", r#"{"b":2}"#, code, &message),
        called_with_error("u", "{}", code, &message),
    ]);
    desk.verify_complete();
}

/// W2: where batches exist, each member is governed on its own, and the answers come in one array.
#[test]
fn a_batch_is_taken_apart_where_there_are_batches() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    client.open_session("2025-03-26");
    client.send(BATCH);
    let line = client.line();
    let answers: Vec<Box<serde_json::value::RawValue>> =
        serde_json::from_str(&line).expect("one array of answers");
    let answer = |id: &str| {
        let id = format!("\"id\":{id},");
        answers
            .iter()
            .find(|answer| answer.get().contains(&id))
            .expect("an answer")
            .get()
            .to_owned()
    };
    assert_eq!(answers.len(), 3);
    assert!(answer("2").contains("\"result\":{}"), "{line}");
    client.finish();
    assert!(!desk.server_log().iter().any(|line| line.starts_with('[')));
    desk.journal().assert_calls(&[
        called("t", r#"{"b":2}"#, &answer("1")),
        called("u", "{}", &answer("3")),
    ]);
    desk.verify_complete();
}

#[test]
fn a_bad_call_in_a_batch_is_refused_and_its_neighbours_are_not() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    client.open_session("2025-03-26");
    client.send(
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping","params":{"name":"t","arguments":{}}},{"jsonrpc":"2.0","method":"tools/call","params":{"name":"n"}},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"u","arguments":{}}},7]"#,
    );
    let line = client.line();
    let answers: Vec<serde_json::Value> = serde_json::from_str(&line).expect("one array");
    let of = |id: serde_json::Value| {
        answers
            .iter()
            .find(|answer| answer["id"] == id)
            .expect("an answer")
    };
    assert_eq!(answers.len(), 3, "{line}");
    assert_eq!(of(1.into())["error"]["code"], INVALID);
    assert_eq!(of(2.into())["result"]["isError"], false);
    assert_eq!(of(serde_json::Value::Null)["error"]["code"], INVALID);
    client.finish();
    assert!(
        desk.server_got(r#""name":"u""#)
            && !desk.server_got(r#""name":"t""#)
            && !desk.server_got(r#""name":"n""#)
    );
    assert_eq!(desk.verify_complete()["intents"], 3);
}

/// A batch that holds nothing governed passes whole or in parts, and everything in it is answered.
#[test]
fn a_batch_without_calls_is_answered() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"}]"#);
    let line = client.line();
    assert!(line.starts_with('[') && line.contains("\"id\":1"), "{line}");
    client.send("[]");
    assert_eq!(error(&client.answer("null")).0, INVALID);
    client.finish();
    assert_eq!(desk.verify_complete()["intents"], 0);
}

/// W6: the second call under an id in flight is refused; each intent has its own result.
#[test]
fn a_second_call_under_an_id_in_flight_is_refused() {
    let slow = r#"{"script":[["sleep",300],["answer","{\"first\":1}"]]}"#;
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(call("1", "slow", slow));
    client.send(call("1", "quick", "{}"));
    client.send(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let (second, third, first) = (client.answer("1"), client.answer("1"), client.answer("1"));
    assert_eq!((error(&second).0, error(&third).0), (INVALID, INVALID));
    assert!(first.contains("\"first\":1"), "{first}");
    // Answered, the id is free again.
    let again = client.call("1", "again", "{}");
    client.finish();
    assert!(!desk.server_got("quick"));
    desk.journal().assert_calls(&[
        called("slow", slow, &first),
        called("quick", "{}", &second),
        called("again", "{}", &again),
    ]);
    desk.verify_complete();
}

/// The same id in two spellings is two ids to some peers and one to others; each gets its own answer.
#[test]
fn ids_that_differ_only_in_their_type_do_not_meet() {
    let slow = |text: &str| {
        format!("{{\"script\":[[\"sleep\",200],[\"answer\",\"{{\\\"is\\\":\\\"{text}\\\"}}\"]]}}")
    };
    let desk = Desk::new();
    let mut client: Client = desk.wrap().connect();
    client.send(call("1", "number", &slow("number")));
    client.send(call("\"1\"", "text", &slow("text")));
    let (number, text) = (client.answer("1"), client.answer("\"1\""));
    assert!(number.contains("\"is\":\"number\""), "{number}");
    assert!(text.contains("\"is\":\"text\""), "{text}");
    client.finish();
    desk.journal().assert_calls(&[
        called("number", &slow("number"), &number),
        called("text", &slow("text"), &text),
    ]);
    desk.verify_complete();
}

/// W6, with another kind of request in the id's place.
#[test]
fn a_call_under_the_id_of_another_request_in_flight_is_refused() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let slow = r#"{"script":[["sleep",200],["answer","{\"own\":1}"]]}"#;
    client.send(request("1", "resources/read", slow));
    client.send(call("1", "quick", "{}"));
    let (refused, own) = (client.answer("1"), client.answer("1"));
    assert_eq!(error(&refused).0, INVALID);
    assert!(own.contains("\"own\":1"), "{own}");
    client.finish();
    assert!(!desk.server_got("quick"));
    desk.journal()
        .assert_calls(&[called("quick", "{}", &refused)]);
    desk.verify_complete();
}

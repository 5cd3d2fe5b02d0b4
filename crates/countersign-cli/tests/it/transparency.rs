//! What is not ours to change arrives as it was sent, octet for octet, in both directions.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::auditor::called;
use crate::client::{Desk, WAIT, call, error, script};

/// Lines of a client that must reach the server as they are.
const FROM_CLIENT: [&str; 12] = [
    // Unknown members at each level.
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":{"b":[null]}},"_meta":{"x/y":1},"p":2},"top":{"q":[]}}"#,
    // Spellings of numbers that parsers change.
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"n":9007199254740993,"f":1E5,"z":-0,"y":1.0,"e":1e400,"i":123456789012345678901234567890}}}"#,
    // Escapes that need not be, characters that need none.
    r#"{"jsonrpc":"2.0","id":3,"method":"tools\/call","params":{"name":"echo","arguments":{"s":"\u00e9é\/\u2028","k\u0061":"😀\ud83d\ude00"}}}"#,
    // Blanks and a carriage return belong to the line.
    "  { \"jsonrpc\" : \"2.0\" ,\t\"id\":4, \"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{}}} \r",
    // Line ends of Unicode are no line ends.
    "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\"arguments\":{\"s\":\"a\u{2028}b\u{2029}c\u{85}d\"}}}",
    // Ids of every governable kind and spelling.
    r#"{"jsonrpc":"2.0","id":"s\u0069x","method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":7.50,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":-12345678901234567890,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
    // Half a surrogate pair where nothing rests on it.
    r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"s":"\ud800"}}}"#,
    // No arguments at all.
    r#"{"id":10,"method":"tools/call","params":{"name":"echo"},"jsonrpc":"2.0"}"#,
    // Methods that nobody knows, params that are no object.
    r#"{"jsonrpc":"2.0","id":11,"method":"x/y","params":[1,{"a":1,"a":2}]}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/x","params":{},"params":{"b":1e2}}"#,
];

#[test]
fn lines_of_the_client_reach_the_server_octet_for_octet() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    for line in FROM_CLIENT {
        client.send(line);
    }
    client.ping();
    client.finish();
    let got = desk.server_log();
    for line in FROM_CLIENT {
        assert!(
            got.iter().any(|own| own == line),
            "{line:?} is not in {got:#?}"
        );
    }
    assert_eq!(desk.verify_complete()["intents"], 10);
}

/// W18: numbers, escapes and unknown members of answers are the server's own.
#[test]
fn lines_of_the_server_reach_the_client_octet_for_octet() {
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"result":{"inf":1e400,"f":1E5,"z":-0,"n":9007199254740993,"s":"\u00e9é\/"},"top":null}"#,
        "  {\"result\" : {\"a\":1,\"a\":2},\t\"id\":1} \r",
        "{\"id\":1,\"result\":\"a\u{2028}b\u{85}c\",\"jsonrpc\":\"2.0\"}",
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1e0,"message":"\u0041","data":{"deep":[[[[]]]]},"more":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":null}"#,
    ];
    let unasked = [
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1e400},"x":[1 , 2]}"#,
        r#"{"jsonrpc":"2.0","id":"q\u0031","method":"ping","params":{"n":1E5}}"#,
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":0.10}}\r",
    ];
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let mut calls = Vec::new();
    for line in lines {
        let mut steps = unasked.map(|line| json!(["out", line])).to_vec();
        steps.push(json!(["out", line]));
        let arguments = script(json!(steps));
        client.send(call("1", "odd", &arguments));
        // In the server's order, too.
        for expected in unasked.iter().chain([&line]) {
            assert_eq!(client.line(), *expected);
        }
        client.send(r#"{"jsonrpc":"2.0","id":"q1","result":{}}"#);
        calls.push(called("odd", &arguments, line));
    }
    client.finish();
    desk.journal().assert_calls(&calls);
    desk.verify_complete();
}

#[test]
fn lines_of_a_megabyte_and_of_twenty_pass_in_both_directions() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    for (id, octets) in [("1", 1 << 20), ("2", 20 << 20)] {
        let arguments = format!("{{\"big\":\"{}\"}}", "y".repeat(octets));
        let line = call(id, "echo", &arguments);
        client.send(&line);
        let answer = client.answer(id);
        assert!(
            answer.ends_with(&format!("\"echo\":{arguments}}}}}")),
            "{}",
            answer.len()
        );
        assert!(desk.server_log().contains(&line));
    }
    client.finish();
    desk.verify_complete();
}

#[test]
fn a_last_line_without_a_newline_is_a_message() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send_octets(call("1", "echo", "{}").as_bytes());
    let ended = client.finish();
    let [answer] = &ended.lines[..] else {
        panic!("one answer: {ended:?}")
    };
    desk.journal().assert_calls(&[called("echo", "{}", answer)]);
    desk.verify_complete();
}

#[test]
fn a_line_over_the_limit_is_answered_and_not_forwarded() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let padding = "z".repeat(64 << 20);
    client.send(call("1", "huge", &format!("{{\"s\":\"{padding}\"}}")));
    let (code, message) = error(&client.answer("1"));
    assert_eq!(code, -32600);
    assert!(message.contains("over the limit"), "{message}");
    client.call("2", "echo", "{}");
    client.finish();
    assert!(!desk.server_got("huge"));
    desk.verify_complete();
}

#[test]
fn what_the_server_says_on_stderr_reaches_ours() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call(
        "1",
        "talk",
        &script(json!([["stderr", "a word on stderr"], ["answer", "{}"]])),
    );
    let ended = client.finish();
    assert!(
        ended.stderr.lines().any(|line| line == "a word on stderr"),
        "{}",
        ended.stderr
    );
}

/// Its reader speed: one big answer delays no small one behind it by more than its own transfer.
#[test]
fn a_huge_answer_does_not_hold_up_the_small_one_behind_it() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.send(call("1", "big", &script(json!([["fill", 5 << 20]]))));
    client.send(call("2", "echo", "{}"));
    let begin = std::time::Instant::now();
    client.answer("2");
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
    client.answer("1");
    client.finish();
    desk.verify_complete();
}

/// JSON-RPC allows few ids, servers and clients use more; nothing but calls is refused for that.
#[test]
fn requests_with_unusual_ids_are_answered_under_them() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    for id in [
        "true",
        "{\"a\":1}",
        "[1,2]",
        "1.5e3",
        "\"\"",
        "-0",
        "\"\\u0000\"",
    ] {
        client.send(format!(
            "{{\"id\":{id},\"method\":\"ping\",\"jsonrpc\":\"2.0\"}}"
        ));
        let expected = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}");
        assert_eq!(client.line(), expected);
    }
    client.finish();
    desk.verify();
}

/// Hosts give pipes, shells give files.
#[test]
fn files_will_do_as_input_and_output() {
    let desk = Desk::new();
    let lines: String = (0..50)
        .map(|id| format!("{}\n", call(&id.to_string(), "echo", "{}")))
        .collect();
    std::fs::write(desk.path("in"), &lines).expect("a file");
    let status = desk
        .wrap()
        .to_command()
        .stdin(File::open(desk.path("in")).expect("a file"))
        .stdout(File::create(desk.path("out")).expect("a file"))
        .status()
        .expect("it runs");
    assert_eq!(status.code(), Some(0));
    let out = std::fs::read_to_string(desk.path("out")).expect("a file");
    assert_eq!(out.lines().count(), 50);
    assert!(out.lines().all(|line| line.contains("\"result\"")), "{out}");
    assert_eq!(desk.verify_complete()["results"], 50);
}

/// Node gives one socket for each stream.
#[test]
fn sockets_will_do_as_input_and_output() {
    let desk = Desk::new();
    let (mut input, their_input) = UnixStream::pair().expect("a pair");
    let (output, their_output) = UnixStream::pair().expect("a pair");
    let mut child = desk
        .wrap()
        .to_command()
        .stdin(OwnedFd::from(their_input))
        .stdout(OwnedFd::from(their_output))
        .spawn()
        .expect("it starts");
    output.set_read_timeout(Some(WAIT)).expect("a socket");
    let mut output = BufReader::new(output);
    let mut answer = String::new();
    for id in 0..50 {
        writeln!(input, "{}", call(&id.to_string(), "echo", "{}")).expect("it reads");
        answer.clear();
        output.read_line(&mut answer).expect("an answer");
        assert!(
            answer.contains(&format!("\"id\":{id},\"result\"")),
            "{answer}"
        );
    }
    input.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(desk.verify_complete()["results"], 50);
}

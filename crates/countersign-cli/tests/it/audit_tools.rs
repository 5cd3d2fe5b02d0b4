//! The two tools that `wrap` adds: where they are listed, what they say, and that looking leaves no trace.

use std::path::Path;

use serde_json::{Value, json};

use crate::auditor::called;
use crate::client::{Desk, call, cancel, request};

fn parse(answer: &str) -> Value {
    serde_json::from_str(answer).expect("an answer is JSON")
}

fn names(answer: &str) -> Vec<String> {
    let answer = parse(answer);
    let tools = answer["result"]["tools"]
        .as_array()
        .expect("a list of tools");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// W35, its second half.
#[test]
fn the_two_tools_stand_on_the_last_page_only() {
    let desk = Desk::new();
    let mut client = desk.wrap().server(["--pages", "3"]).connect();
    let pages = ["{}", r#"{"cursor":"1"}"#, r#"{"cursor":"2"}"#];
    let listed = pages.map(|cursor| names(&client.ask("1", "tools/list", cursor)));
    assert_eq!(listed[0], ["tool0"]);
    assert_eq!(listed[1], ["tool1"]);
    assert_eq!(listed[2], ["tool2", "audit__status", "audit__export"]);
    client.finish();
    desk.verify_complete();
}

/// W35, its first half: the server's own tool is listed once, reachable, and recorded.
#[test]
fn a_name_that_the_server_uses_stays_the_servers() {
    let desk = Desk::new();
    let mut client = desk.wrap().server(["--audit-tool"]).connect();
    let listed = names(&client.ask("1", "tools/list", "{}"));
    assert_eq!(listed, ["tool0", "audit__status", "audit__export"]);
    let answer = client.call("2", "audit__status", r#"{"mine":true}"#);
    assert_eq!(parse(&answer)["result"]["echo"], json!({ "mine": true }));
    client.finish();
    desk.journal()
        .assert_calls(&[called("audit__status", r#"{"mine":true}"#, &answer)]);
    desk.verify_complete();
}

#[test]
fn looking_tells_where_the_journal_stands_and_leaves_no_leaf() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let answer = client.call("1", "echo", r#"{"a":1}"#);
    let first = parse(&client.call("2", "audit__status", "{}"));
    let export = parse(&client.call("3", "audit__export", "{}"));
    let second = parse(&client.call("4", "audit__status", "null"));
    client.finish();

    let status = &first["result"]["structuredContent"];
    assert_eq!(status["server"], "fake");
    assert_eq!(status["journal"], json!(desk.journal_path()));
    assert_eq!(
        (&status["leaf_count"], &status["calls"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(
        (&status["restarts"], &status["witnessed"]),
        (&json!(0), &json!(false))
    );
    assert_eq!(status["last_verdict"], Value::Null);
    // The text says the same as the structure, for clients that show only text.
    let text = first["result"]["content"][0]["text"]
        .as_str()
        .expect("a text");
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), *status);
    let later = &second["result"]["structuredContent"];
    assert_eq!(later["root"], status["root"]);
    assert_eq!(later["leaf_count"], 2);
    assert_eq!(
        later["last_verdict"],
        export["result"]["structuredContent"]["verdict"]
    );

    desk.journal()
        .assert_calls(&[called("echo", r#"{"a":1}"#, &answer)]);
    assert_eq!(desk.verify_complete()["root"], status["root"]);
    assert!(!desk.server_got("audit__"));
}

#[test]
fn an_export_is_a_dossier_that_verifies() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    let export = parse(&client.call("2", "audit__export", "{}"));
    client.finish();
    let told = &export["result"]["structuredContent"];
    let path = Path::new(told["path"].as_str().expect("a path"));
    let dossier = std::fs::read(path).expect("the dossier is there");
    assert_eq!(told["bytes"], dossier.len());
    assert_eq!(
        told["sha256"],
        countersign_log::hash::Hash::of(&[&dossier]).to_hex()
    );
    let report = desk.verify_file(path);
    assert_eq!(
        (&report["leaf_count"], &report["bindings_asserted"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(report["verdict"], told["verdict"]);
}

/// W31: whoever strips the key bindings off is not told that all is as before.
#[test]
fn a_dossier_without_its_key_bindings_does_not_pass_for_a_whole_one() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    client.call("2", "audit__export", "{}");
    client.finish();
    let text = std::fs::read_to_string(desk.path("j.wlog.dossier.json")).expect("a dossier");
    let mut dossier = parse(&text);
    dossier["key_bindings"] = json!([]);
    let stripped = desk.path("stripped.json");
    std::fs::write(&stripped, dossier.to_string()).expect("a file");
    assert_eq!(desk.verify_file(&stripped)["bindings_asserted"], false);
}

#[test]
fn arguments_to_the_two_tools_are_refused_by_name() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    for tool in ["audit__status", "audit__export"] {
        let answer = parse(&client.call("1", tool, r#"{"path":"/etc/x","verbose":1}"#));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let text = answer["result"]["content"][0]["text"]
            .as_str()
            .expect("a text");
        assert!(text.contains("path") && text.contains("verbose"), "{text}");
    }
    client.finish();
    assert_eq!(desk.journal().kinds(), "");
    assert!(!desk.path("j.wlog.dossier.json").exists());
    desk.verify();
}

#[test]
fn a_modern_client_gets_results_of_the_modern_form() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let discovered = client.ask("1", "server/discover", &format!("{{{meta}}}"));
    assert!(discovered.contains("2026-07-28"), "{discovered}");
    for tool in ["audit__status", "audit__export"] {
        let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{}},{meta}}}");
        let answer = parse(&client.ask("2", "tools/call", &params));
        let result = &answer["result"];
        assert_eq!(result["resultType"], "complete", "{answer}");
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "countersign"
        );
    }
    // In the old dialect they are as the reference has them.
    let legacy = parse(&client.call("3", "audit__status", "{}"));
    assert_eq!(legacy["result"]["resultType"], Value::Null);
    client.finish();
    desk.verify_complete();
}

#[test]
fn a_list_that_fails_passes_as_it_came() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    let line = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no list"}}"#;
    let steps = json!({ "script": [["out", line]] });
    client.send(request("1", "tools/list", &steps.to_string()));
    assert_eq!(client.answer("1"), line);
    client.send(call("2", "echo", "{}"));
    client.answer("2");
    client.finish();
    desk.verify_complete();
}

#[test]
fn an_export_that_the_client_takes_back_is_not_answered() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    let lines = [call("2", "audit__export", "{}"), cancel("2"), String::new()];
    client.send_octets(lines.join("\n").as_bytes());
    let ended = client.finish();
    assert_eq!(ended.lines, [""; 0]);
    desk.verify_complete();
}

#[test]
fn the_two_tools_answer_in_a_batch_too() {
    let desk = Desk::new();
    let mut client = desk.wrap().start();
    client.open_session("2025-03-26");
    let members = [call("1", "audit__status", "{}"), call("2", "echo", "{}")];
    client.send(format!("[{}]", members.join(",")));
    let answers: Value = serde_json::from_str(&client.line()).expect("one array");
    assert_eq!(answers.as_array().map(Vec::len), Some(2), "{answers}");
    client.finish();
    assert_eq!(desk.verify_complete()["intents"], 1);
}

#[test]
fn two_exports_at_once_are_both_whole() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    client.send(call("2", "audit__export", "{}"));
    client.send(call("3", "audit__export", "{}"));
    for id in ["2", "3"] {
        let answer = parse(&client.answer(id));
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    client.finish();
    desk.verify_file(&desk.path("j.wlog.dossier.json"));
}

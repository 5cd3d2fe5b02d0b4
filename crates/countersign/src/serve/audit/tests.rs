//! How our tools stand in lists, and how they answer.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::message::Id;
use crate::outbox::Outbox;
use crate::process::Spec;
use crate::recorder::Fsync;
use crate::serve::stdio::Client;
use crate::upstream::child::Config;

fn message(line: &str) -> Message {
    match Message::parse(Bytes::copy_from_slice(line.as_bytes())) {
        Ok(Parsed::One(message)) => message,
        other => panic!("{line} is {other:?}"),
    }
}

/// Our tools in front of a server that says nothing, without a journal.
fn audit() -> Audit {
    let spec = Spec {
        program: "cat".into(),
        arguments: Vec::new(),
        environment_removed: Vec::new(),
        shim: None,
    };
    let config = Config {
        spec,
        max_restarts: 0,
    };
    let client = Arc::new(Client::new(Outbox::new(1).0));
    let upstream = ChildUpstream::start(config, client).expect("there is a cat");
    Audit::new("time", Recorder::new("time", Fsync::Never), upstream)
}

/// The answer to `tools/list` as the client gets it.
fn shown(audit: &Audit, list: &str) -> String {
    let reply = audit.add_tools(Reply::answer(message(list), None));
    let id = Id::parse(b"1").expect("a number is an id");
    let line = reply.line(&id).expect("an answer goes out");
    String::from_utf8(line.to_vec()).expect("it was made of text")
}

fn ours(names: &[&str]) -> String {
    let of = |(_, name, description): &(Tool, &str, &str)| {
        let definition = definition(name, description);
        String::from_utf8(definition).expect("it is made of text")
    };
    let chosen = TOOLS.iter().filter(|(_, name, _)| names.contains(name));
    chosen.map(of).collect::<Vec<_>>().join(",")
}

const BOTH: [&str; 2] = ["audit__status", "audit__export"];

#[tokio::test]
async fn our_tools_stand_last_on_the_last_page_and_no_other_octet_changes() {
    let cases = [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":["#,
            "",
            r#"]}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[ "#,
            "",
            r#"]}}"#,
        ),
        (
            r#"{"result":{"x":-0,"tools":[{"name":"now","at":1e400} "#,
            ",",
            r#"] , "nextCursor":null},"id":1,"jsonrpc":"2.0"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"t\u006fols":[{"name":"now"}"#,
            ",",
            r#"],"_meta":{"tools":[]}}}"#,
        ),
    ];
    for (before, comma, after) in cases {
        let list = format!("{before}{after}");
        let longer = format!("{before}{comma}{}{after}", ours(&BOTH));
        assert_eq!(shown(&audit(), &list), longer);
    }
}

#[tokio::test]
async fn what_is_no_last_page_of_tools_passes_as_it_came() {
    for list in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"2"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":null}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no","data":{"tools":[]}}}"#,
    ] {
        assert_eq!(shown(&audit(), list), list);
    }
}

#[tokio::test]
async fn a_name_that_the_server_uses_is_the_servers() {
    let audit = audit();
    let call = |name: &str| {
        message(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#
        ))
    };
    assert_eq!(audit.claims(&call("audit__status")), Some(Tool::Status));
    assert_eq!(audit.claims(&call("audit__export")), Some(Tool::Export));
    assert_eq!(audit.claims(&call("now")), None);
    // It may stand on any page.
    let first = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"audit__stat\u0075s"}],"nextCursor":"2"}}"#;
    assert_eq!(shown(&audit, first), first);
    let last = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;
    let longer = last.replace("[]", &format!("[{}]", ours(&["audit__export"])));
    assert_eq!(shown(&audit, last), longer);
    assert_eq!(audit.claims(&call("audit__status")), None);
    assert_eq!(audit.claims(&call("audit__export")), Some(Tool::Export));
}

#[test]
fn our_tools_take_no_arguments_and_name_what_they_were_given() {
    let asked = |arguments: &str| {
        unexpected(&message(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"audit__status","arguments":{arguments}}}}}"#
        )))
    };
    for nothing in ["null", "{}", "{ }"] {
        assert_eq!(asked(nothing), None, "{nothing}");
    }
    for something in [r#"{"b":1}"#, "[]", "1", "\"\""] {
        assert!(asked(something).is_some(), "{something}");
    }
    assert_eq!(
        asked(r#"{"b":1,"a":2}"#).as_deref(),
        Some("this tool takes no arguments, and was given a, b")
    );
}

#[test]
fn a_result_speaks_the_dialect_of_its_caller() {
    let members = || Ok(vec![("calls", json!(1)), ("server", json!("a\"b"))]);
    let legacy = result(members(), Era::Legacy);
    assert_eq!(
        legacy.result_raw().as_deref(),
        Some(&br#"{"content":[{"type":"text","text":"{\"calls\": 1, \"server\": \"a\\\"b\"}"}],"structuredContent":{"calls":1,"server":"a\"b"},"isError":false}"#[..])
    );
    let modern = result(members(), Era::Modern).result_raw();
    let modern: Value =
        serde_json::from_slice(&modern.expect("it is a result")).expect("a result is JSON");
    assert_eq!(modern["resultType"], "complete");
    assert_eq!(
        modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "countersign"
    );
    let failed = result(Err("no journal".into()), Era::Legacy);
    assert!(failed.recorded().1);
}

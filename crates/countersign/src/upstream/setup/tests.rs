//! What a new process is told of the old one.

use super::*;
use crate::message::Parsed;

fn message(line: &str) -> Message {
    match Message::parse(Bytes::copy_from_slice(line.as_bytes())) {
        Ok(Parsed::One(message)) => message,
        other => panic!("{line} is {other:?}"),
    }
}

fn request(id: u32, method: &str, params: &str) -> Message {
    message(&format!(
        r#"{{"id":{id},"method":"{method}","params":{params},"jsonrpc":"2.0"}}"#
    ))
}

fn subscription(number: usize, method: &str) -> Message {
    request(9, method, &format!(r#"{{"uri":"a:{number}"}}"#))
}

/// The lines that come after the handshake.
fn rest(setup: &Setup) -> Vec<String> {
    let mut number = 0;
    let lines = setup.rest(|| {
        number += 1;
        Id::parse(format!("\"own {number}\"").as_bytes()).expect("a short string is an id")
    });
    let text = |(_, line): (Id, Bytes)| String::from_utf8(line.to_vec());
    lines
        .into_iter()
        .map(|line| text(line).expect("it was made of text"))
        .collect()
}

#[test]
fn a_new_process_gets_what_was_agreed_and_is_still_wanted() {
    let mut setup = Setup::default();
    setup.agreed(request(
        0,
        "initialize",
        r#"{"protocolVersion":"2025-11-25"}"#,
    ));
    setup.told(&message(
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    ));
    setup.agreed(request(1, "logging/setLevel", r#"{"level":"info"}"#));
    setup.agreed(request(2, "logging/setLevel", r#"{"level":"error"}"#));
    for number in [2, 1, 3, 1] {
        setup.agreed(subscription(number, "resources/subscribe"));
    }
    setup.agreed(subscription(2, "resources/unsubscribe"));
    setup.agreed(request(5, "tools/list", "{}"));
    let own = Id::parse(b"\"own\"").expect("a short string is an id");
    assert_eq!(
        setup.initialize(&own).as_deref(),
        Some(&br#"{"id":"own","method":"initialize","params":{"protocolVersion":"2025-11-25"},"jsonrpc":"2.0"}"#[..])
    );
    assert_eq!(
        setup.initialized().as_deref(),
        Some(&br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#[..])
    );
    assert_eq!(
        rest(&setup),
        [
            r#"{"id":"own 1","method":"logging/setLevel","params":{"level":"error"},"jsonrpc":"2.0"}"#,
            r#"{"id":"own 2","method":"resources/subscribe","params":{"uri":"a:1"},"jsonrpc":"2.0"}"#,
            r#"{"id":"own 3","method":"resources/subscribe","params":{"uri":"a:3"},"jsonrpc":"2.0"}"#,
        ]
    );
}

#[test]
fn another_handshake_begins_anew() {
    let mut setup = Setup::default();
    let initialized = message(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    setup.agreed(request(0, "initialize", "{}"));
    setup.told(&initialized);
    setup.agreed(subscription(1, "resources/subscribe"));
    setup.agreed(request(1, "initialize", "{}"));
    assert!(rest(&setup).is_empty());
}

#[test]
fn a_client_may_be_ready_before_it_was_answered() {
    let mut setup = Setup::default();
    let initialized = message(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    setup.told(&initialized);
    setup.agreed(request(0, "initialize", "{}"));
    assert_eq!(setup.initialized().as_ref(), Some(initialized.raw()));
}

#[test]
fn subscriptions_are_remembered_up_to_their_bound() {
    let mut setup = Setup::default();
    for number in 0..=SUBSCRIPTIONS_MAX {
        setup.agreed(subscription(number, "resources/subscribe"));
    }
    assert_eq!(rest(&setup).len(), SUBSCRIPTIONS_MAX);
}

#[test]
fn only_what_sets_something_up_concerns() {
    for (method, concerns) in [
        ("initialize", true),
        ("logging/setLevel", true),
        ("resources/subscribe", true),
        ("resources/unsubscribe", true),
        ("resources/read", false),
        ("subscriptions/listen", false),
    ] {
        assert_eq!(
            Setup::concerns(&request(1, method, "{}")),
            concerns,
            "{method}"
        );
    }
}

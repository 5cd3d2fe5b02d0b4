//! Ids on the wire, late answers, and what outlives a process.

use bytes::Bytes;

use super::*;
use crate::message::Parsed;
use crate::outbox::{QUEUED_BYTES_MAX, write_all_to};

fn id(text: &str) -> Id {
    Id::parse(text.as_bytes()).expect("the tests write ids")
}

/// A request named so, in the hands of the first process or not.
fn pending(label: &str, sent: bool, request: Option<Kept>) -> Pending {
    Pending {
        reply: oneshot::channel().0,
        to_client: None,
        label: label.into(),
        era: Era::Legacy,
        sent: sent.then_some(0),
        queued: None,
        request,
    }
}

/// Requests in flight under these ids, each named by its own.
fn in_flight(ids: &[&str]) -> Requests {
    let mut requests = Requests::default();
    for text in ids {
        requests.insert(id(text), pending(text, true, None));
    }
    requests
}

fn message(line: &str) -> Message {
    match Message::parse(Bytes::copy_from_slice(line.as_bytes())) {
        Ok(Parsed::One(message)) => message,
        other => panic!("{line} is {other:?}"),
    }
}

#[test]
fn an_id_whose_late_answer_may_come_is_replaced_until_it_came() {
    let mut requests = in_flight(&["1"]);
    requests.abandon(&id("1"));
    let substitute = requests.wire_id(&id("1"), false);
    assert_eq!(substitute, id("\"countersign/1\""));
    requests.insert(substitute.clone(), pending("second", true, None));
    assert!(requests.answered(&id("1")).is_none(), "it is too late");
    let second = requests.answered(&substitute).expect("it is in flight");
    assert_eq!(second.label, "second");
    assert_eq!(requests.wire_id(&id("1"), false), id("1"));
}

#[test]
fn an_id_in_use_is_replaced() {
    let mut requests = in_flight(&["1"]);
    assert_eq!(requests.wire_id(&id("1"), false), id("\"countersign/1\""));
    assert_eq!(requests.wire_id(&id("1"), false), id("\"countersign/2\""));
    assert_eq!(requests.wire_id(&id("\"1\""), false), id("\"1\""));
}

#[test]
fn a_request_that_was_never_sent_leaves_nothing_behind() {
    let mut requests = Requests::default();
    requests.insert(id("1"), pending("unsent", false, None));
    requests.abandon(&id("1"));
    assert_eq!(requests.wire_id(&id("1"), false), id("1"));
    requests.abandon(&id("2"));
    assert_eq!(requests.wire_id(&id("2"), false), id("2"));
}

#[test]
fn a_listen_keeps_an_id_that_was_given_up_and_not_one_in_use() {
    let mut requests = in_flight(&["1", "2"]);
    requests.abandon(&id("1"));
    assert_eq!(requests.wire_id(&id("1"), true), id("1"));
    assert_ne!(requests.wire_id(&id("2"), true), id("2"));
}

#[test]
fn abandoned_ids_are_bounded_and_the_oldest_goes_first() {
    let mut requests = Requests::default();
    for number in 0..=ABANDONED_MAX {
        let id = id(&number.to_string());
        requests.insert(id.clone(), pending("abandoned", true, None));
        requests.abandon(&id);
    }
    assert_eq!(requests.abandoned.len(), ABANDONED_MAX);
    assert_eq!(requests.abandoned_order.len(), ABANDONED_MAX);
    assert_eq!(requests.wire_id(&id("0"), false), id("0"));
    assert_ne!(requests.wire_id(&id("1"), false), id("1"));
}

#[test]
fn an_id_in_another_spelling_counts_when_only_one_request_can_be_meant() {
    let cases: [(&[&str], &str, Option<&str>); 8] = [
        (&["1", "2"], "1", Some("1")),
        (&["1", "2"], "\"1\"", Some("1")),
        (&["1", "2"], "1.0", Some("1")),
        (&["\"7\"", "2"], "7", Some("\"7\"")),
        (&["1", "1.0"], "1e0", None),
        (&["1", "\"1\""], "\"1\"", Some("\"1\"")),
        (&["\"1\""], "\"01\"", None),
        (&["1"], "3", None),
    ];
    for (ids, answer, meant) in cases {
        let mut requests = in_flight(ids);
        let label = requests.answered(&id(answer)).map(|pending| pending.label);
        assert_eq!(label.as_deref(), meant, "{answer} among {ids:?}");
    }
}

#[tokio::test]
async fn an_ended_process_owes_all_but_what_a_new_one_gets_again() {
    let listen = r#"{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen"}"#;
    let setup = |method: &str| {
        Kept::Setup(message(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"{method}"}}"#
        )))
    };
    let mut requests = in_flight(&["1"]);
    let kept = [
        ("0", setup("initialize")),
        ("4", setup("logging/setLevel")),
        (
            "\"countersign/9\"",
            Kept::Listen {
                message: message(listen),
                acknowledged: true,
            },
        ),
    ];
    for (text, kept) in kept {
        requests.insert(id(text), pending(text, true, Some(kept)));
    }
    requests.insert(id("2"), pending("unsent", false, None));
    requests.insert(id("5"), pending("given up", true, None));
    requests.abandon(&id("5"));

    let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
    let lost = requests.process_ended(&outbox);
    let mut lost: Vec<String> = lost.into_iter().map(|pending| pending.label).collect();
    lost.sort();
    assert_eq!(lost, ["1", "4"]);
    outbox.close();
    let mut again = Vec::new();
    write_all_to(reader, &mut again)
        .await
        .expect("a Vec takes every octet");
    let again = String::from_utf8(again).expect("the lines are text");
    let mut again: Vec<&str> = again.lines().collect();
    again.sort_unstable();
    assert_eq!(
        again,
        [
            r#"{"jsonrpc":"2.0","id":"countersign/9","method":"subscriptions/listen"}"#,
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#,
        ]
    );
    assert_eq!(
        requests.wire_id(&id("5"), false),
        id("5"),
        "its answer cannot come any more"
    );

    requests.sent_to(1);
    let sent = |requests: &mut Requests, text| requests.get_mut(&id(text)).map(|own| own.sent);
    for text in ["0", "2", "\"countersign/9\""] {
        assert_eq!(sent(&mut requests, text), Some(Some(1)), "{text}");
    }
    assert_eq!(requests.drain().len(), 3);
}

#[test]
fn an_answer_to_an_ended_process_does_not_reach_the_next_one() {
    let mut asks = Asks::default();
    let first = asks.ask(&id("0"), 0);
    assert_eq!(first, id("0"), "the first process's ids stay as they are");
    assert_eq!(asks.drain(), std::slice::from_ref(&first));

    let second = asks.ask(&id("0"), 1);
    let text = asks.ask(&id("\"0\""), 1);
    assert_eq!(second, id("\"countersign/1/0\""));
    assert_eq!(text, id(r#""countersign/1/\"0\"""#));
    assert!(asks.settle(&first).is_none());
    assert_eq!(asks.shown(&id("0")), Some(second.clone()));
    let own = |asks: &mut Asks, shown| asks.settle(shown).map(|asked| asked.id);
    assert_eq!(own(&mut asks, &second), Some(id("0")));
    assert_eq!(own(&mut asks, &second), None, "one answer each");
    assert_eq!(own(&mut asks, &text), Some(id("\"0\"")));
    assert!(asks.is_empty());
}

#[test]
fn open_questions_are_bounded() {
    let mut asks = Asks::default();
    for number in 0..=ASKS_MAX {
        let number = id(&number.to_string());
        assert_eq!(asks.ask(&number, 0), number);
    }
    assert_eq!(asks.drain().len(), ASKS_MAX);
}

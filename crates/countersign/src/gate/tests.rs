//! The place of an answer in its client's queue, which only transports see.

use std::time::Duration;

use countersign_log::journal::{Journal, Limits, Opening, Seal};

use super::*;
use crate::decision::allow_all;
use crate::message::Parsed;
use crate::outbox::{Outbox, QUEUED_BYTES_MAX, write_all_to};
use crate::recorder::Fsync;
use crate::serve::stdio::Client;
use crate::upstream::{Pass, Ungoverned};

fn message(line: &'static str) -> Message {
    match Message::parse(line.into()) {
        Ok(Parsed::One(message)) => message,
        other => panic!("{line} is {other:?}"),
    }
}

/// A server that says something right behind each answer.
struct Talkative;

impl Upstream for Talkative {
    fn send(&self, _: Permit, to_client: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        let answer = message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let reply = Reply::answer(answer, to_client.place());
        to_client.forward(Bytes::from_static(b"behind it"));
        Box::pin(async { reply })
    }

    fn pass(&self, pass: Pass, _: Arc<dyn ToClient>) -> BoxFuture<Reply> {
        panic!("only calls come through the gate, not {pass:?}");
    }

    fn tell(&self, message: Ungoverned) {
        panic!("only calls come through the gate, not {message:?}");
    }
}

/// What a client gets when its call goes through `layer` to a talkative server.
async fn sent_through(layer: impl Layer + 'static) -> String {
    let folder = tempfile::TempDir::new().expect("there is room for a folder");
    let opening = Opening {
        path: &folder.path().join("x.wlog"),
        seal: Seal::Unsealed { seed: [7; 32] },
        session_seed: [8; 32],
        now_ms: 1_750_000_000_000,
        key_head: None,
        accept_head: None,
        lock_wait: Duration::ZERO,
        locked: None,
        limits: Limits::default(),
    };
    let (journal, opened) = Journal::open(opening).expect("it is new");
    let recorder = Recorder::new("x", Fsync::Never);
    let begun = recorder.open(journal, &opened.open_intents);
    begun.expect("it is open");
    let gate = Gate::new(
        vec![Box::new(layer)],
        Box::new(allow_all),
        recorder.clone(),
        Arc::new(Talkative),
        Duration::from_secs(60),
    );
    let (outbox, reader) = Outbox::new(QUEUED_BYTES_MAX);
    let client = Arc::new(Client::new(outbox.clone()));
    let call = message(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#);
    let mut admissions = gate.admissions();
    admissions.call(Call::new(call, Cancel::default()), client);
    drop(admissions);
    tokio::time::sleep(Duration::from_secs(600)).await;
    outbox.close();
    let mut sent = Vec::new();
    // A place that is still held would stop the queue for good.
    let written = tokio::time::timeout(Duration::from_secs(1), write_all_to(reader, &mut sent));
    written
        .await
        .expect("no place is held")
        .expect("memory takes all");
    recorder.close().expect("the journal can be written");
    String::from_utf8(sent).expect("it was made of text")
}

#[tokio::test(start_paused = true)]
async fn an_answer_keeps_its_place_through_layers() {
    let sent = sent_through(|call: Call, next: Next| async move {
        let reply = next.run(call).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        reply
    });
    assert_eq!(
        sent.await,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nbehind it\n"
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_keeps_a_reply_does_not_keep_its_place() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let for_layer = Arc::clone(&kept);
    let sent = sent_through(move |call: Call, next: Next| {
        let kept = Arc::clone(&for_layer);
        async move {
            let reply = next.run(call).await;
            kept.lock().expect("nobody panics here").push(reply);
            Reply::error(1, "mine")
        }
    });
    assert_eq!(
        sent.await,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"mine\"}}\nbehind it\n"
    );
    assert_eq!(kept.lock().expect("nobody panics here").len(), 1);
}

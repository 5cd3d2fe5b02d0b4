//! The three rings: whatever client, layers and server do, one intent and one outcome, and the outcome
//! is what the client got.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use countersign::BoxFuture;
use countersign::call::{Call, Cancel, Refusal, Reply};
use countersign::decision::{Decision, Judge, Verdict, allow_all};
use countersign::gate::{Gate, Layer, Next};
use countersign::recorder::Fsync;
use countersign::upstream::Upstream;
use tokio::time::{Instant, sleep};

use crate::book::Desk;
use crate::peers::{Client, Server, WITHIN, answer, call, error, json, line, message, result};

type Layers = Vec<Box<dyn Layer>>;

const NOON: &str = r#"{"content":[{"type":"text","text":"noon"}]}"#;
const SECOND: Duration = Duration::from_secs(1);
const LAYER_PANICKED: &str = "countersign: a layer failed; the call was closed";
const BROKEN: &str = "countersign: an internal fault; the call was closed";
const TIMED_OUT: &str = "witness-log-mcp-proxy: timed out after 60s";

fn gate(desk: &Desk, layers: Layers, server: Arc<dyn Upstream>) -> Gate {
    judged_gate(desk, layers, Box::new(allow_all), server)
}

fn judged_gate(desk: &Desk, layers: Layers, judge: Box<Judge>, server: Arc<dyn Upstream>) -> Gate {
    Gate::new(layers, judge, desk.recorder.clone(), server, WITHIN)
}

fn one(layer: impl Layer + 'static) -> Layers {
    vec![Box::new(layer)]
}

async fn pass_on(call: Call, next: Next) -> Reply {
    next.run(call).await
}

/// Without layers, and with one that changes nothing.
fn both() -> [Layers; 2] {
    [Vec::new(), one(pass_on)]
}

async fn handle(gate: &Gate, call: Call) -> Reply {
    gate.handle(call, Client::new()).await
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_still_leaves_an_outcome() {
    for layers in both() {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, SECOND);
        let gate = gate(&desk, layers, server);
        drop(gate.handle(call(&line(1, "now")), Client::new()));
        sleep(2 * SECOND).await;
        assert_eq!(seen.lines(), [line(1, "now")]);
        assert!(seen.cancels().is_empty());
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &result(NOON));
        book.assert_nothing_else();
    }
}

async fn panics_before(_: Call, _: Next) -> Reply {
    panic!("this layer breaks before the call")
}

async fn panics_after(call: Call, next: Next) -> Reply {
    let reply = next.run(call).await;
    panic!("this layer breaks on {reply:?}")
}

async fn panics_meanwhile(call: Call, next: Next) -> Reply {
    tokio::select! {
        reply = next.run(call) => reply,
        () = sleep(SECOND / 2) => panic!("this layer breaks while it waits"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_panics_costs_one_call_and_leaves_its_outcome() {
    let cases: [(Layers, usize, usize); 3] = [
        (one(panics_before), 0, 0),
        (one(panics_after), 1, 0),
        (one(panics_meanwhile), 1, 1),
    ];
    for (layers, forwarded, cancelled) in cases {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, SECOND);
        let gate = gate(&desk, layers, server);
        let reply = handle(&gate, call(&line(1, "now"))).await;
        assert_eq!(answer(&reply), error(-32603, LAYER_PANICKED));
        assert_eq!(seen.lines().len(), forwarded);
        assert_eq!(seen.cancels().len(), cancelled);
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_layer_answers_gets_its_intent_and_its_outcome_together() {
    let desk = Desk::new(Fsync::Interval);
    let (server, seen) = Server::answering(NOON, SECOND);
    let layers = one(|_, _| async { result(r#"{"content":[],"isError":true}"#) });
    let gate = gate(&desk, layers, server);
    let before = desk.octets();
    let reply = handle(&gate, call(&line(1, "now"))).await;
    assert!(desk.octets() > before);
    assert!(seen.lines().is_empty());
    let book = desk.close();
    book.assert_calls(1);
    assert_eq!((book.intent(0), book.outcome(0)), (0, 1));
    book.assert_outcome(0, "now", "{}", br#"{"content":[],"isError":true}"#, true);
    book.assert_call(0, "now", "{}", &reply);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_answers_before_its_next_has_waits_for_the_core() {
    let desk = Desk::new(Fsync::Interval);
    let (server, seen) = Server::answering(NOON, 5 * SECOND);
    let layers = one(|call: Call, next: Next| async move {
        let later = next.run(call);
        tokio::spawn(later);
        tokio::task::yield_now().await;
        result(r#"{"content":[]}"#)
    });
    let gate = gate(&desk, layers, server);
    let begun = Instant::now();
    let reply = handle(&gate, call(&line(1, "now"))).await;
    assert!(begun.elapsed() >= 5 * SECOND);
    assert_eq!(seen.lines().len(), 1);
    assert!(seen.cancels().is_empty());
    let book = desk.close();
    book.assert_calls(1);
    book.assert_outcome(0, "now", "{}", br#"{"content":[]}"#, false);
    assert_eq!(
        answer(&reply).as_deref(),
        Some(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#)
    );
}

/// A call and the way on, put aside by a layer.
type Aside = Arc<Mutex<Option<(Call, Next)>>>;

async fn use_late(aside: &Aside) -> Reply {
    let (call, next) = aside
        .lock()
        .expect("no test panics while it holds it")
        .take()
        .expect("the layer has put it there");
    next.run(call).await
}

#[tokio::test(start_paused = true)]
async fn nothing_is_forwarded_after_a_call_is_closed() {
    type Ends = fn() -> BoxFuture<Reply>;
    let ends: [(Ends, &str); 2] = [
        (|| Box::pin(async { result("{}") }), "answers"),
        (|| Box::pin(std::future::pending()), "never returns"),
    ];
    for (end, case) in ends {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, SECOND);
        let aside = Aside::default();
        let for_layer = Arc::clone(&aside);
        let layers = one(move |call: Call, next: Next| {
            let mut place = for_layer.lock().expect("no test panics while it holds it");
            *place = Some((call, next));
            end()
        });
        let gate = gate(&desk, layers, server);
        let reply = handle(&gate, call(&line(1, "now"))).await;
        let late = use_late(&aside).await;
        assert_eq!(
            answer(&late),
            error(
                -32603,
                "countersign: the call was closed before it was judged"
            ),
            "{case}"
        );
        assert!(seen.lines().is_empty(), "{case}");
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_stops_waiting_cancels_the_call_upstream_and_drops_it_not() {
    let desk = Desk::new(Fsync::Interval);
    let ended = Arc::new(AtomicBool::new(false));
    let for_server = Arc::clone(&ended);
    let (server, seen) = Server::acting(move |permit| {
        let ended = Arc::clone(&for_server);
        Box::pin(async move {
            permit.cancel().anyone().await;
            // A server that takes its time to stop.
            sleep(SECOND).await;
            ended.store(true, Ordering::Relaxed);
            result(NOON)
        })
    });
    let layers = one(|call: Call, next: Next| async move {
        tokio::time::timeout(SECOND, next.run(call))
            .await
            .unwrap_or_else(|_| Reply::error(-32001, "too slow for me"))
    });
    let gate = gate(&desk, layers, server);
    let begun = Instant::now();
    let reply = handle(&gate, call(&line(1, "now"))).await;
    assert!(ended.load(Ordering::Relaxed));
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(seen.lines().len(), 1);
    assert_eq!(answer(&reply), error(-32001, "too slow for me"));
    let book = desk.close();
    book.assert_calls(1);
    book.assert_call(0, "now", "{}", &reply);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_never_returns_ends_at_its_time_limit() {
    async fn never(_: Call, _next: Next) -> Reply {
        std::future::pending().await
    }
    async fn never_after(call: Call, next: Next) -> Reply {
        let _reply = next.run(call).await;
        std::future::pending().await
    }
    // Judged, the server's own time comes first, and is bounded as well.
    let cases: [(Layers, Duration, usize, u32); 3] = [
        (one(never), SECOND, 0, 1),
        (one(never_after), SECOND, 1, 2),
        (one(never_after), 1000 * SECOND, 1, 2),
    ];
    for (layers, wait, forwarded, limits) in cases {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, wait);
        let gate = gate(&desk, layers, server);
        let begun = Instant::now();
        let reply = handle(&gate, call(&line(1, "now"))).await;
        assert!(begun.elapsed() >= WITHIN);
        assert!(begun.elapsed() <= limits * WITHIN + SECOND);
        assert_eq!(answer(&reply), error(-32000, TIMED_OUT));
        assert_eq!(seen.lines().len(), forwarded);
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_forwarded_differs_from_what_came_only_where_a_layer_changed_it() {
    type Change = fn(&mut Call);
    let renamed: Change = |call| call.set_name("la\"ter");
    let argued: Change = |call| call.set_arguments(&json("{\n \"at\" : 1e400 }"));
    let both: Change = |call| {
        call.set_arguments(&json("{}"));
        call.set_name("later");
    };
    let cases: [(&str, Change, &str); 8] = [
        (
            r#"{"jsonrpc":"2.0", "id":1,"method":"tools\/call","params":{ "n\u0061me" : "n\u006fw" ,"x":-0,"arguments":{"at":1e2}}}"#,
            renamed,
            r#"{"jsonrpc":"2.0", "id":1,"method":"tools\/call","params":{ "n\u0061me" : "la\"ter" ,"x":-0,"arguments":{"at":1e2}}}"#,
        ),
        (
            r#"{"id":1,"params":{"arguments":{"at":1e2},"_meta":{"k":[1 ,2]},"name":"now"},"method":"tools/call","jsonrpc":"2.0"}  "#,
            argued,
            r#"{"id":1,"params":{"arguments":{  "at" : 1e400 },"_meta":{"k":[1 ,2]},"name":"now"},"method":"tools/call","jsonrpc":"2.0"}  "#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now","arguments":null}}"#,
            both,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"later","arguments":{}}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now"}}"#,
            argued,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now","arguments":{  "at" : 1e400 }}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#,
            renamed,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"la\"ter"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ }}"#,
            both,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ "name":"later","arguments":{}}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
            renamed,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"la\"ter"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call" } "#,
            both,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call" ,"params":{"name":"later","arguments":{}}} "#,
        ),
    ];
    for (received, change, forwarded) in cases {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, Duration::ZERO);
        let layers = one(move |mut call: Call, next: Next| {
            change(&mut call);
            next.run(call)
        });
        let reply = handle(&gate(&desk, layers, server), call(received)).await;
        assert_eq!(seen.lines(), [forwarded]);
        let book = desk.close();
        book.assert_calls(1);
        book.assert_exact(0, received.as_bytes(), forwarded.as_bytes());
        let sent = message(received).tool_call();
        if let Some(tool) = sent.name() {
            let arguments = sent.arguments_raw.filter(|raw| raw != "null");
            let arguments = arguments.unwrap_or_else(|| Bytes::from_static(b"{}"));
            let arguments = std::str::from_utf8(&arguments).expect("the table is text");
            book.assert_call(0, &tool, arguments, &reply);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_no_layer_changes_is_forwarded_as_it_came_and_needs_no_further_leaf() {
    let line = r#"{ "id":1,"params":{"arguments":{ "at":1e2},"name":"now"},"method":"tools/call","jsonrpc":"2.0"}"#;
    for layers in both() {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, Duration::ZERO);
        let reply = handle(&gate(&desk, layers, server), call(line)).await;
        assert_eq!(seen.lines(), [line]);
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", r#"{"at":1e2}"#, &reply);
        book.assert_nothing_else();
    }
}

#[tokio::test(start_paused = true)]
async fn a_layers_result_of_several_lines_goes_out_on_one() {
    let desk = Desk::new(Fsync::Interval);
    let (server, _) = Server::answering(NOON, Duration::ZERO);
    let layers = one(|_, _| async { result("{\n\"content\": []\n}") });
    let reply = handle(&gate(&desk, layers, server), call(&line(1, "now"))).await;
    assert_eq!(
        answer(&reply).as_deref(),
        Some(r#"{"jsonrpc":"2.0","id":1,"result":{ "content": [] }}"#)
    );
    let book = desk.close();
    book.assert_calls(1);
    book.assert_outcome(0, "now", "{}", br#"{"content":[]}"#, false);
}

#[tokio::test(start_paused = true)]
async fn the_first_layer_sees_the_call_first_and_the_reply_last() {
    let desk = Desk::new(Fsync::Interval);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let note = |step: &'static str| {
        let steps = Arc::clone(&steps);
        move || steps.lock().expect("nobody panics here").push(step)
    };
    let layer = |before: &'static str, after: &'static str| -> Box<dyn Layer> {
        let (before, after) = (note(before), note(after));
        Box::new(move |call: Call, next: Next| {
            let after = after.clone();
            before();
            let rest = next.run(call);
            async move {
                let reply = rest.await;
                after();
                reply
            }
        })
    };
    let at_server = note("server");
    let (server, _) = Server::acting(move |_| {
        at_server();
        Box::pin(async { result(NOON) })
    });
    let layers = vec![
        layer("first", "first again"),
        layer("second", "second again"),
    ];
    let reply = handle(&gate(&desk, layers, server), call(&line(1, "now"))).await;
    assert_eq!(
        *steps.lock().expect("nobody panics here"),
        ["first", "second", "server", "second again", "first again"]
    );
    let book = desk.close();
    book.assert_calls(1);
    book.assert_call(0, "now", "{}", &reply);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_panics_leaves_one_intent_with_its_outcome() {
    type Break = fn() -> BoxFuture<Reply>;
    let breaks: [Break; 3] = [
        || panic!("this server breaks at once"),
        || Box::pin(async { panic!("this server breaks when it is asked") }),
        || {
            Box::pin(async {
                sleep(SECOND).await;
                panic!("this server breaks later")
            })
        },
    ];
    for broken in breaks {
        for layers in both() {
            let desk = Desk::new(Fsync::Interval);
            let (server, _) = Server::acting(move |_| broken());
            let gate = gate(&desk, layers, server);
            let reply = handle(&gate, call(&line(1, "now"))).await;
            assert_eq!(answer(&reply), error(-32603, BROKEN));
            let client = Client::new();
            let mut admissions = gate.admissions();
            admissions.call(call(&line(1, "later")), Arc::clone(&client) as _);
            drop(admissions);
            sleep(2 * SECOND).await;
            assert_eq!(client.answers(), [("1".to_owned(), answer(&reply))]);
            let book = desk.close();
            book.assert_calls(2);
            book.assert_call(0, "now", "{}", &reply);
            book.assert_call(1, "later", "{}", &reply);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_client_takes_back_leaves_that_outcome_and_no_answer() {
    for layers in both() {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, 5 * SECOND);
        let cancel = Cancel::default();
        let call = Call::new(message(&line(1, "now")), cancel.clone());
        let gate = gate(&desk, layers, server);
        let reply = gate.handle(call, Client::new());
        sleep(SECOND).await;
        cancel.by_client(Bytes::from_static(b"{}"));
        let reply = reply.await;
        assert_eq!(answer(&reply), None);
        assert_eq!(seen.cancels(), ["client"]);
        let book = desk.close();
        book.assert_calls(1);
        book.assert_outcome(
            0,
            "now",
            "{}",
            br#"{"error":{"code":-32000,"message":"countersign: cancelled by the client"}}"#,
            true,
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_taken_back_before_it_is_sent_is_never_sent() {
    for layers in both() {
        let desk = Desk::without_journal(Fsync::Interval);
        // This server does not look at the signal.
        let (server, seen) = Server::acting(|_| Box::pin(async { result(NOON) }));
        let cancel = Cancel::default();
        let call = Call::new(message(&line(1, "now")), cancel.clone());
        let gate = gate(&desk, layers, server);
        let reply = gate.handle(call, Client::new());
        sleep(SECOND).await;
        cancel.by_client(Bytes::from_static(b"{}"));
        desk.open();
        let reply = reply.await;
        assert!(reply.is_silent());
        assert!(seen.lines().is_empty());
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_arrive_together_are_written_at_once_and_forwarded_in_their_order() {
    for layers in both() {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, SECOND);
        let gate = gate(&desk, layers, server);
        let client = Client::new();
        let before = desk.octets();
        let mut admissions = gate.admissions();
        let lines: Vec<String> = (0..64).map(|id| line(id, "now")).collect();
        for line in &lines {
            admissions.call(call(line), Arc::clone(&client) as _);
        }
        assert_eq!(desk.octets(), before);
        assert!(seen.lines().is_empty());
        drop(admissions);
        sleep(3 * SECOND).await;
        assert_eq!(seen.lines(), lines);
        assert_eq!(client.answers().len(), lines.len());
        let book = desk.close();
        book.assert_calls(64);
        for at in 0..64 {
            assert_eq!(
                book.intent(at),
                at as u64,
                "intents come first, in one piece"
            );
            book.assert_call(at, "now", "{}", &result(NOON));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_in_the_journal_whole_before_the_first_of_it_is_forwarded() {
    let desk = Desk::new(Fsync::Interval);
    let path = desk.path();
    let leaves = move || {
        let text = std::fs::read_to_string(&path).expect("the journal can be read");
        text.lines()
            .filter(|line| line.starts_with("{\"index\":"))
            .count()
    };
    let written = Arc::new(Mutex::new(Vec::new()));
    let for_server = Arc::clone(&written);
    let (server, _) = Server::acting(move |_| {
        let mut written = for_server.lock().expect("nobody panics here");
        written.push(leaves());
        Box::pin(async {
            sleep(SECOND).await;
            result(NOON)
        })
    });
    let gate = gate(&desk, Vec::new(), server);
    let mut admissions = gate.admissions();
    for id in 1..=3 {
        admissions.call(call(&line(id, "now")), Client::new());
    }
    drop(admissions);
    // Inline: nothing had to be waited for, so all of them are on their way.
    assert_eq!(*written.lock().expect("nobody panics here"), [3, 3, 3]);
    sleep(2 * SECOND).await;
    desk.close().assert_calls(3);
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_call_is_recorded_and_refused() {
    let cases = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now","arguments":{"at":1,"at":2}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"then","name":"now","arguments":{"at":2}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Method":"ping","params":{"name":"now","arguments":{"at":2}}}"#,
    ];
    for line in cases {
        for layers in both() {
            let desk = Desk::new(Fsync::Interval);
            let (server, seen) = Server::answering(NOON, Duration::ZERO);
            let reply = handle(&gate(&desk, layers, server), call(line)).await;
            let told = answer(&reply).expect("it is told");
            assert!(
                told.contains(r#""code":-32600,"message":"countersign: "#),
                "{told}"
            );
            assert!(seen.lines().is_empty());
            let book = desk.close();
            book.assert_calls(1);
            book.assert_call(0, "now", r#"{"at":2}"#, &reply);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_layer_makes_ambiguous_is_recorded_and_refused() {
    let desk = Desk::new(Fsync::Interval);
    let (server, seen) = Server::answering(NOON, Duration::ZERO);
    let layers = one(|mut call: Call, next: Next| {
        call.set_arguments(&json(r#"{"at":1,"\u0061t":2}"#));
        next.run(call)
    });
    let reply = handle(&gate(&desk, layers, server), call(&line(1, "now"))).await;
    let told = answer(&reply).expect("it is told");
    assert!(told.contains(r#""code":-32600,"#), "{told}");
    assert!(seen.lines().is_empty());
    let book = desk.close();
    book.assert_calls(1);
    book.assert_call(0, "now", "{}", &reply);
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_hand_on_only_the_call_that_it_was_given() {
    let others: [fn(&Call) -> Call; 3] = [
        |given| Call::new(message(&line(1, "other")), given.cancel().clone()),
        |given| Call::new(given.received().clone(), Cancel::default()),
        |given| {
            let ping = message(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
            Call::new(ping, given.cancel().clone())
        },
    ];
    for other in others {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, Duration::ZERO);
        let layers = one(move |call: Call, next: Next| next.run(other(&call)));
        let reply = handle(&gate(&desk, layers, server), call(&line(1, "now"))).await;
        assert_eq!(
            answer(&reply),
            error(
                -32603,
                "countersign: a layer handed on another call than it was given"
            )
        );
        assert!(seen.lines().is_empty());
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_refused_on_arrival_are_recorded_and_told_unless_silent() {
    let desk = Desk::new(Fsync::Interval);
    let (server, seen) = Server::answering(NOON, Duration::ZERO);
    let gate = gate(&desk, Vec::new(), server);
    let client = Client::new();
    let mut admissions = gate.admissions();
    let nameless = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"now"}}"#;
    let null = r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"now"}}"#;
    for line in [line(1, "now").as_str(), nameless, null] {
        admissions.refuse(message(line), Refusal::IdInUse, Arc::clone(&client) as _);
    }
    admissions.refuse_silently(message(&line(2, "now")), Refusal::Batch);
    drop(admissions);
    assert!(seen.lines().is_empty());
    let answers = client.answers();
    let ids: Vec<&str> = answers.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["1", "null"]);
    assert_eq!(
        answers[0].1,
        error(
            -32600,
            "countersign: another request with this id is still in flight"
        )
    );
    let book = desk.close();
    book.assert_calls(4);
    for at in 0..3 {
        let x = r#"{"error":{"code":-32600,"message":"countersign: another request with this id is still in flight"}}"#;
        book.assert_outcome(at, "now", "{}", x.as_bytes(), true);
    }
}

#[tokio::test(start_paused = true)]
async fn the_judge_sees_the_call_as_it_comes_out_of_the_layers() {
    let desk = Desk::new(Fsync::Interval);
    let (server, seen) = Server::answering(NOON, Duration::ZERO);
    let judge = Box::new(|call: &Call| match call.name().as_deref() {
        Some("later") => Decision {
            verdict: Verdict::Refuse(Refusal::Malformed("never later".into())),
            rule: "no-later".into(),
        },
        _ => allow_all(call),
    });
    let layers = one(|mut call: Call, next: Next| {
        call.set_name("later");
        next.run(call)
    });
    let gate = judged_gate(&desk, layers, judge, server);
    let reply = handle(&gate, call(&line(1, "now"))).await;
    assert_eq!(answer(&reply), error(-32600, "countersign: never later"));
    assert!(seen.lines().is_empty());
    let book = desk.close();
    book.assert_calls(1);
    book.assert_call(0, "now", "{}", &reply);
}

#[tokio::test(start_paused = true)]
async fn a_judge_that_panics_refuses() {
    for layers in both() {
        let desk = Desk::new(Fsync::Interval);
        let (server, seen) = Server::answering(NOON, Duration::ZERO);
        let judge = Box::new(|_: &Call| panic!("this judge breaks"));
        let gate = judged_gate(&desk, layers, judge, server);
        let reply = handle(&gate, call(&line(1, "now"))).await;
        assert_eq!(
            answer(&reply),
            error(
                -32603,
                "countersign: the rules failed on this call, so it was not forwarded"
            )
        );
        assert!(seen.lines().is_empty());
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "now", "{}", &reply);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_any_size_are_recorded() {
    // Above 256 KiB a thread of its own hashes.
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(300 << 10));
    let line = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{long}}}}}"#
    );
    for layers in both() {
        let desk = Desk::new(Fsync::Interval);
        let echo = long.clone();
        let (server, seen) = Server::acting(move |_| {
            let reply = result(&echo);
            Box::pin(async { reply })
        });
        let reply = handle(&gate(&desk, layers, server), call(&line)).await;
        assert_eq!(seen.lines().len(), 1);
        let book = desk.close();
        book.assert_calls(1);
        book.assert_call(0, "echo", &long, &reply);
        book.assert_nothing_else();
    }
}

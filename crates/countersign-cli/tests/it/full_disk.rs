//! A journal that cannot be written for a while. Linux can take room from a process that runs and give
//! it back, without a disk of its own.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::auditor::{Called, called};
use crate::client::{Client, Desk, call, error, script};

const OURS: i64 = -32603;

/// Files of the client's `wrap` may grow up to this many octets, or again as far as there is room.
fn limit_files(client: &Client, octets: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(client.pid()).expect("a process id"));
    let limit = Rlimit {
        current: octets,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).expect("it is our child");
}

/// W9: while nothing can be written nothing is forwarded, each client is told, and time limits go on
/// working; once there is room what is owed is written.
#[test]
fn on_a_full_disk_calls_are_refused_until_there_is_room_again() {
    for mode in ["interval", "always", "never"] {
        let desk = Desk::new();
        // Who is over the limit gets an error instead of a signal only where that is ignored.
        let around = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"];
        let flags = ["--timeout", "0.6", "--fsync", mode];
        let mut client = desk.wrap().around(around).flags(flags).connect();
        let mut calls = vec![called("echo", "{}", &client.call("0", "echo", "{}"))];
        calls.extend(calls_in_an_outage(&desk, &mut client));

        limit_files(&client, None);
        for (tool, arguments) in [("echo", "{\"a\":1}"), ("silent", SILENT)] {
            let answer = client.call("4", tool, arguments);
            let is_late = answer.contains("timed out");
            assert_eq!(is_late, tool == "silent", "{answer}");
            calls.push(called(tool, arguments, &answer));
        }
        let ended = client.finish();
        assert!(!desk.server_got("unsent"));
        desk.journal().assert_calls(&calls);
        desk.verify_complete();
        // The outage has a beginning and an end, and is not told for each call.
        let told = ended.our_lines();
        let told = told.iter().filter(|line| line.contains("written"));
        assert_eq!(told.count(), 2, "{}", ended.stderr);
    }
}

/// A call that the server never answers.
const SILENT: &str = r#"{"script":[]}"#;

/// Two calls are in flight as the journal can no longer be written; more are tried.
fn calls_in_an_outage(desk: &Desk, client: &mut Client) -> [Called; 2] {
    let slow = script(json!([["sleep", 300], ["answer", "{}"]]));
    client.send(call("1", "slow", &slow));
    client.send(call("2", "silent", SILENT));
    client.ping();
    limit_files(client, Some(1));
    // The answer of one is here, and withheld; the time of the other is over, and told.
    let (withheld, timed_out) = (client.answer("1"), client.answer("2"));
    for answer in [&withheld, &timed_out] {
        let (code, message) = error(answer);
        assert_eq!(code, OURS);
        assert!(message.contains("cannot be written"), "{message}");
    }
    for _ in 0..3 {
        let (code, message) = error(&client.call("3", "unsent", "{}"));
        assert_eq!(code, OURS);
        assert!(message.contains("nothing was forwarded"), "{message}");
        assert!(message.contains("j.wlog"), "{message}");
    }
    // All else goes on.
    client.ping();
    assert_eq!(desk.journal().kinds(), "IRII");
    [
        called("slow", &slow, &withheld),
        called("silent", SILENT, &timed_out),
    ]
}

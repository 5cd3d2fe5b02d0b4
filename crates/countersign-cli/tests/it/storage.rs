//! The journal's files in trouble: a file that is gone, two who want it, and what an earlier run or
//! somebody's hand has left of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::auditor::{Journal, called, members};
use crate::client::{Desk, PROGRAM, call, error, eventually, initialize_params, request};

const OURS: i64 = -32603;

/// `wrap` on this journal ends with one line that holds `why`, exits with 2 and leaves the journal's
/// octets as they are. Its client is told the same, unless the server has answered before the journal was
/// read: while that takes its time, all but calls passes.
#[track_caller]
fn assert_refused(desk: &Desk, why: &str) -> String {
    let before = fs::read(desk.journal_path()).expect("a journal");
    let mut client = desk.wrap().start();
    client.send(request("1", "initialize", &initialize_params("2025-11-25")));
    let answer = client.answer("1");
    let ended = client.end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let [line] = ended.our_lines()[..] else {
        panic!("{}", ended.stderr)
    };
    assert!(line.contains(why), "{line}");
    if !answer.contains("serverInfo") {
        assert_eq!(error(&answer), (OURS, line.to_owned()));
    }
    assert_eq!(fs::read(desk.journal_path()).expect("a journal"), before);
    assert!(!desk.path("j.wlog.lock").exists());
    line.to_owned()
}

/// A desk with a journal of some calls.
fn with_calls(count: usize) -> Desk {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    for _ in 0..count {
        client.call("1", "echo", "{}");
    }
    client.finish();
    desk
}

#[track_caller]
fn assert_goes_on(desk: &Desk, kinds: &str) {
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    client.finish();
    assert_eq!(desk.journal().kinds(), kinds);
    desk.verify_complete();
}

/// W26: the reference goes on "recording" into a file that is no more.
#[test]
fn with_its_journal_deleted_nothing_is_forwarded_any_more() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("0", "echo", "{}");
    fs::remove_file(desk.journal_path()).expect("it is there");
    // Noticed at the latest when the next leaves are synced, within some seconds.
    let mut refusal = None;
    eventually("calls are refused", || {
        let answer = client.call("1", "echo", "{}");
        std::thread::sleep(Duration::from_millis(50));
        refusal = answer.contains("\"error\"").then(|| error(&answer));
        refusal.is_some()
    });
    let (code, message) = refusal.expect("a refusal");
    assert_eq!(code, OURS);
    assert!(message.contains("j.wlog"), "{message}");
    client.call("2", "unsent", "{}");
    let ended = client.hang_up();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("j.wlog"), "{}", ended.stderr);
    assert!(!desk.server_got("unsent"));
    assert!(!desk.journal_path().exists());
}

/// W26: without regular syncs the end is where it shows, and it does.
#[test]
fn with_its_journal_deleted_and_no_syncs_the_end_says_so() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--fsync", "never"]).connect();
    client.call("0", "echo", "{}");
    fs::remove_file(desk.journal_path()).expect("it is there");
    let ended = client.hang_up();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("j.wlog"), "{}", ended.stderr);
}

/// Whoever waits for a journal still listens to its host.
#[test]
fn a_start_that_waits_for_a_journal_ends_when_it_is_told_to() {
    let desk = Desk::new();
    let first = desk.wrap().connect();
    let second = desk.wrap().start();
    eventually("its server", || desk.server_pids().len() == 2);
    second.signal(rustix::process::Signal::TERM);
    let ended = second.end();
    assert!(ended.took < Duration::from_secs(2), "{:?}", ended.took);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    first.finish();
    desk.verify_complete();
}

/// The second of two windows waits for the first, and then says who is in its way.
#[test]
fn a_journal_in_use_is_waited_for_and_then_named_with_its_owner() {
    let desk = Desk::new();
    let mut first = desk.wrap().connect();
    let mut second = desk.wrap().start();
    second.send(request(
        "\"one\"",
        "initialize",
        &initialize_params("2025-11-25"),
    ));
    let (code, message) = error(&second.answer("\"one\""));
    let ended = second.end();
    assert_eq!((code, ended.code), (OURS, Some(2)), "{}", ended.stderr);
    assert_eq!(ended.our_lines(), [&message]);
    assert!(
        message.contains(&format!("process {}", first.pid())),
        "{message}"
    );
    assert!(
        message.contains(&desk.journal_path().display().to_string()),
        "{message}"
    );
    // The first one has not noticed.
    first.call("1", "echo", "{}");
    first.finish();
    assert_eq!(desk.verify_complete()["sessions"], 1);
}

/// W22: who waits reads the journal when it is theirs, not before.
#[test]
fn a_start_that_waits_for_the_end_of_another_loses_none_of_its_leaves() {
    for _ in 0..5 {
        let desk = Desk::new();
        let mut first = desk.wrap().connect();
        first.call("1", "echo", "{}");
        let mut second = desk.wrap().start();
        second.send(request(
            "\"open\"",
            "initialize",
            &initialize_params("2025-11-25"),
        ));
        for _ in 0..50 {
            first.call("1", "echo", "{}");
        }
        first.finish();
        second.answer("\"open\"");
        second.call("1", "echo", "{}");
        second.finish();
        assert_eq!(desk.journal().kinds(), "IR".repeat(52));
        assert_eq!(desk.verify_complete()["sessions"], 2);
    }
}

/// Journals of a folder.
fn journals(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "wlog")
        })
        .collect()
}

#[test]
fn a_folder_serves_two_processes_at_once_under_one_identity() {
    let desk = Desk::new();
    let folder = desk.path("many/");
    let start = || {
        desk.wrap()
            .journal(format!("{}/", desk.path("many").display()))
            .connect()
    };
    // Both at once: the first one to come makes the identity.
    let (mut first, mut second) = std::thread::scope(|scope| {
        let first = scope.spawn(start);
        let second = scope.spawn(start);
        (
            first.join().expect("it starts"),
            second.join().expect("it starts"),
        )
    });
    let answers = [&mut first, &mut second].map(|client| client.call("1", "echo", "{}"));
    first.finish();
    second.finish();
    let written = journals(&folder);
    assert_eq!(written.len(), 2, "{written:?}");
    let identities: Vec<_> = written
        .iter()
        .map(|path| {
            Journal::read(path).assert_calls(&[called("echo", "{}", &answers[0])]);
            desk.verify_file(path)["identity_pubkey"].clone()
        })
        .collect();
    assert_eq!(identities[0], identities[1]);
    desk.verify_file(&folder);
}

#[test]
fn without_a_journal_of_its_own_a_server_gets_a_folder_in_the_state_folder() {
    let desk = Desk::new();
    for _ in 0..2 {
        let mut client = desk.wrap().default_journal().connect();
        client.call("1", "echo", "{}");
        client.finish();
    }
    let folder = desk.path("state/countersign/fake");
    assert_eq!(journals(&folder).len(), 2);
    desk.verify_file(&folder);
}

/// W24: what counts is whether somebody has the journal open, not what a file says.
#[test]
fn a_lock_that_nobody_holds_is_taken_over() {
    let own = std::process::id().to_string();
    for left in ["", "1", &own, "no number", "4194304"] {
        let desk = with_calls(1);
        fs::write(desk.path("j.wlog.lock"), left).expect("a file");
        assert_goes_on(&desk, "IRIR");
        assert!(!desk.path("j.wlog.lock").exists(), "{left:?}");
    }
}

/// W25: what a crash at the start leaves is made anew.
#[test]
fn an_empty_journal_and_a_torn_header_are_made_anew() {
    for left in ["", "{\"format_version\":1,\"identity_by"] {
        let desk = Desk::new();
        fs::write(desk.journal_path(), left).expect("a file");
        assert_goes_on(&desk, "IR");
    }
}

/// W25: torn ends of all kinds.
#[test]
fn torn_ends_are_cut_off() {
    for torn in [
        &b"{\"index\":4,\"leaf_ty"[..],
        b"\xff\xfe\n",
        b"{\"index\":\xff",
        b"\n",
        b"{}\n",
    ] {
        let desk = with_calls(2);
        let whole = fs::read(desk.journal_path()).expect("a journal");
        fs::write(desk.journal_path(), [&whole, torn].concat()).expect("a file");
        assert_goes_on(&desk, "IRIRIR");
    }
    // What stands before whole leaves is no torn end.
    let desk = with_calls(2);
    let text = fs::read_to_string(desk.journal_path()).expect("a journal");
    let changed = text.replacen("{\"index\":1,", "{\"index\":7,", 1);
    fs::write(desk.journal_path(), changed).expect("a file");
    assert_refused(&desk, "no torn end");
}

/// W27: a binding that does not verify is noticed at the start, not by every later verifier.
#[test]
fn a_journal_with_a_changed_binding_is_refused() {
    let desk = with_calls(1);
    let text = fs::read_to_string(desk.journal_path()).expect("a journal");
    let binding = text
        .lines()
        .find(|line| line.contains("\"signature\""))
        .expect("a binding");
    let signature = members(binding)["signature"].clone();
    let first = if signature.starts_with("\"0") {
        "\"1"
    } else {
        "\"0"
    };
    let changed = text.replace(&signature, &format!("{first}{}", &signature[2..]));
    assert_ne!(text, changed);
    fs::write(desk.journal_path(), changed).expect("a file");
    assert_refused(&desk, "binding");
}

/// W29: a journal that was cut back or rewritten between two runs does not reproduce its signed head.
#[test]
fn a_journal_that_was_cut_back_or_rewritten_is_refused_until_its_head_is_accepted() {
    // Cut back, at a leaf's end.
    let desk = with_calls(3);
    let text = fs::read_to_string(desk.journal_path()).expect("a journal");
    let lines: Vec<&str> = text.lines().collect();
    let cut = format!("{}\n", lines[..lines.len() - 2].join("\n"));
    fs::write(desk.journal_path(), cut).expect("a file");
    let why = assert_refused(&desk, "cut back or rewritten");

    // The refusal says what to give, and with it, it goes on.
    let head = why.rsplit("--accept-head ").next().expect("a hint").trim();
    let mut client = desk.wrap().flags(["--accept-head", head]).connect();
    client.call("1", "echo", "{}");
    let ended = client.finish();
    assert!(ended.stderr.contains("head"), "loudly: {}", ended.stderr);
    assert!(desk.journal().kinds().ends_with("IR"));

    // Rewritten: another commitment in a leaf.
    let desk = with_calls(3);
    let text = fs::read_to_string(desk.journal_path()).expect("a journal");
    let hash = desk.journal().leaves[0].payload_hash.clone();
    fs::write(desk.journal_path(), text.replace(&hash, &"a".repeat(64))).expect("a file");
    assert_refused(&desk, "cut back or rewritten");

    // And the heads removed with it: their copy is kept beside the key.
    fs::remove_file(desk.path("j.wlog.heads")).expect("it is there");
    assert_refused(&desk, "keys");
}

/// W33: a seed that the environment gives is in no process's environment: not the server's, not ours.
#[cfg(target_os = "linux")]
#[test]
fn the_seed_is_in_no_environment() {
    let seed = "5e".repeat(32);
    let desk = Desk::new();
    let mut client = desk
        .wrap()
        .environment("WITNESS_LOG_IDENTITY_SEED_ENV", "MY_SEED")
        .environment("MY_SEED", &seed)
        .environment("OTHER", "stays")
        .connect();
    client.call("1", "echo", "{}");
    let [server] = desk.server_pids()[..] else {
        panic!("one server")
    };
    for pid in [client.pid(), server] {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains(&seed), "{pid}");
        assert!(!environment.contains("MY_SEED"), "{pid}");
        if pid == server {
            assert!(environment.contains("OTHER=stays"));
            assert!(!environment.contains("SEED"), "{environment}");
        }
    }
    client.finish();
    let seed: [u8; 32] = countersign_log::hex::decode(seed.as_bytes()).expect("64 digits");
    let identity = countersign_log::keys::Identity::from_seed(&seed)
        .public()
        .to_string();
    assert_eq!(desk.verify_complete()["identity_pubkey"], identity);
    let text = fs::read_to_string(desk.journal_path()).expect("a journal");
    assert!(!text.contains("5e5e5e"), "the seed is in the journal");
}

/// W33: an unsealed journal is one that was asked for, goes on as it is, and is called what it is.
#[test]
fn an_unsealed_journal_goes_on_with_a_warning() {
    let desk = Desk::new();
    let mut client = desk.wrap().flags(["--unsealed"]).connect();
    client.call("1", "echo", "{}");
    client.finish();
    assert_ne!(desk.journal().header["identity_bytes_hex"], "");
    let header = desk.journal().header;
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    let ended = client.finish();
    assert!(ended.stderr.contains("unsealed"), "{}", ended.stderr);
    assert_eq!(desk.journal().header, header);
    assert_eq!(desk.verify_complete()["sealed"], false);
}

/// A key that was given needs no folder of ours; without one there is no copy of the newest head.
#[test]
fn a_given_key_works_where_no_state_can_be_kept() {
    let desk = Desk::new();
    let seed = desk.path("seed");
    fs::write(&seed, "07".repeat(32)).expect("a file");
    let seed = seed.display().to_string();
    let mut client = desk
        .wrap()
        .flags(["--seed-file", &seed])
        .environment("XDG_STATE_HOME", "/dev/null/state")
        .connect();
    client.call("1", "echo", "{}");
    let ended = client.finish();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let told = "no copy of the newest head is kept";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    desk.verify_complete();
}

/// A journal of ours holds no seed unless that was asked for.
#[test]
fn a_new_journal_is_sealed_and_its_key_is_elsewhere_and_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let desk = with_calls(1);
    let report = desk.verify_complete();
    assert_eq!(report["sealed"], true);
    assert_eq!(desk.journal().header["identity_bytes_hex"], "");
    let identity = report["identity_pubkey"].as_str().expect("an identity");
    let key = desk.path(&format!("state/countersign/keys/{identity}.seed"));
    let mode = fs::metadata(&key).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let salts = fs::metadata(desk.path("j.wlog.salts")).expect("a file");
    assert_eq!(salts.permissions().mode() & 0o077, 0);
}

#[test]
fn every_way_of_syncing_records_the_same() {
    for mode in ["interval", "always", "never"] {
        let desk = Desk::new();
        let mut client = desk.wrap().flags(["--fsync", mode]).connect();
        for id in 0..20 {
            client.send(call(&id.to_string(), "echo", "{}"));
        }
        let calls: Vec<_> = (0..20)
            .map(|id| called("echo", "{}", &client.answer(&id.to_string())))
            .collect();
        client.finish();
        desk.journal().assert_calls(&calls);
        desk.verify_complete();
    }
}

#[test]
fn one_changed_digit_fails_the_verification() {
    let desk = with_calls(2);
    let verify = |file: &Path| {
        let told = desk
            .program(Path::new(PROGRAM))
            .arg("verify")
            .arg(file)
            .output();
        told.expect("the program runs").status.code()
    };
    assert_eq!(verify(&desk.journal_path()), Some(0));
    let text = fs::read_to_string(desk.journal_path()).expect("a journal");
    let hash = desk.journal().leaves[1].payload_hash.clone();
    let changed = desk.path("changed.wlog");
    fs::write(&changed, text.replace(&hash, &"b".repeat(64))).expect("a file");
    fs::copy(desk.path("j.wlog.heads"), desk.path("changed.wlog.heads")).expect("heads");
    assert_eq!(verify(&changed), Some(1));
    fs::write(&changed, "hello\n").expect("a file");
    assert!(matches!(verify(&changed), Some(1 | 2)));
    assert_eq!(verify(&desk.path("nothing.wlog")), Some(2));
}

//! What keeps `wrap` from starting: one line that says what, where and what to do, the same to the client
//! that asks soon, exit code 2, and nothing half-made left behind.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::auditor::called;
use crate::client::{Client, Desk, PROGRAM, Wrap, error, fake_server, initialize_params, request};

/// All files below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path);
        }
    }
    found
}

/// Demands that it does not start, for this reason, and leaves no file but a key.
#[track_caller]
fn assert_no_start(desk: &Desk, wrap: Wrap<'_>, why: &[&str]) {
    let here = desk.path("");
    let before = files(&here);
    let mut client = wrap.start();
    client.send(request(
        "\"a\"",
        "initialize",
        &initialize_params("2025-11-25"),
    ));
    let answer = client.answer("\"a\"");
    let ended = client.end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let [line] = ended.stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", ended.stderr)
    };
    // A server may answer while the journal is being read; calls wait for it.
    if !answer.contains("serverInfo") {
        assert_eq!(error(&answer), (-32603, line.to_owned()));
    }
    for part in why {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    let new: Vec<_> = files(&here)
        .difference(&before)
        .filter(|path| !path.starts_with(desk.path("state")) && !path.ends_with("server.log"))
        .cloned()
        .collect();
    assert!(new.is_empty(), "{new:?}");
}

/// W37: the reference shows a traceback, and leaves a journal.
#[test]
fn a_command_that_cannot_be_started_is_named_and_leaves_no_journal() {
    let desk = Desk::new();
    let plain = desk.path("plain.txt");
    fs::write(&plain, "hello").expect("a file");
    let script = desk.path("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let folder = desk.path("folder");
    fs::create_dir(&folder).expect("a folder");
    let text = |path: &Path| path.display().to_string();
    let cases = [
        ("no-such-command-anywhere".to_owned(), "not found in PATH"),
        ("/no/such/file".to_owned(), "no such file"),
        (text(&plain), "not executable"),
        (text(&folder), "directory"),
        (text(&script), "interpreter"),
        (String::new(), ""),
    ];
    for (command, why) in &cases {
        assert_no_start(&desk, desk.wrap().command([command]), &[command, why]);
    }
}

/// A journal that was there before stays as it was.
#[test]
fn a_command_that_cannot_be_started_leaves_an_earlier_journal_alone() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    client.finish();
    assert_no_start(
        &desk,
        desk.wrap().command(["no-such-command-anywhere"]),
        &["not found"],
    );
    let script = desk.path("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    assert_no_start(
        &desk,
        desk.wrap().command([&script.display().to_string()]),
        &["interpreter"],
    );
    assert_eq!(desk.journal().kinds(), "IR");
    desk.verify_complete();
}

#[test]
fn what_is_no_journal_is_named_and_left_alone() {
    let desk = Desk::new();
    let cases = [
        ("text", "hello\nworld\n"),
        ("json", "{\"a\":1}\n"),
        (
            "version",
            "{\"format_version\":2,\"identity_bytes_hex\":\"\",\"identity_pubkey_hex\":\"aa\",\"session_number\":0}\n",
        ),
    ];
    for (name, octets) in cases {
        let path = desk.path(name);
        fs::write(&path, octets).expect("a file");
        assert_no_start(
            &desk,
            desk.wrap().journal(&path),
            &[&path.display().to_string()],
        );
        assert_eq!(fs::read_to_string(&path).expect("a file"), octets);
    }
    let folder = desk.path("folder");
    fs::create_dir(&folder).expect("a folder");
    let nowhere = desk.path("no/such/folder/j.wlog");
    let nowhere_name = desk.path("no/such/folder").display().to_string();
    assert_no_start(
        &desk,
        desk.wrap().journal(&nowhere),
        &[&nowhere_name, "does not exist"],
    );
    // A folder of journals without its slash, or what cannot be read.
    let client = desk.wrap().journal(&folder).start();
    assert!(matches!(client.hang_up().code, Some(0 | 2)));
}

/// Root reads everything; for anybody else a journal without permissions is one line.
#[test]
fn an_unreadable_journal_is_named() {
    let desk = Desk::new();
    desk.wrap().connect().finish();
    fs::set_permissions(desk.journal_path(), fs::Permissions::from_mode(0o000))
        .expect("it is ours");
    if rustix::process::getuid().is_root() {
        // A device in its place, which is unreadable as a journal for everybody.
        let device = Path::new("/dev/null");
        assert_no_start(&desk, desk.wrap().journal(device), &["/dev/null"]);
    } else {
        let name = desk.journal_path().display().to_string();
        assert_no_start(&desk, desk.wrap(), &[&name, "denied"]);
    }
}

#[test]
fn a_wrong_or_missing_key_is_named_with_what_to_do() {
    let desk = Desk::new();
    let mut client = desk.wrap().connect();
    client.call("1", "echo", "{}");
    client.finish();
    let identity = desk.verify_complete()["identity_pubkey"]
        .as_str()
        .expect("text")
        .to_owned();

    let other = desk.path("other.seed");
    fs::write(&other, "ab".repeat(32)).expect("a file");
    let other_name = other.display().to_string();
    assert_no_start(
        &desk,
        desk.wrap().flags(["--seed-file", &other_name]),
        &[&identity, "belongs to"],
    );

    let keys = desk.path("state/countersign/keys");
    let key = keys.join(format!("{identity}.seed"));
    fs::rename(&key, desk.path("moved.seed")).expect("the key is there");
    assert_no_start(
        &desk,
        desk.wrap(),
        &[&identity, &key.display().to_string(), "--seed-file"],
    );

    // With it at hand, wherever it is, the journal goes on.
    let moved = desk.path("moved.seed").display().to_string();
    desk.wrap()
        .flags(["--seed-file", &moved])
        .connect()
        .finish();
    desk.verify_complete();
}

#[test]
fn a_bad_seed_is_named_and_never_shown() {
    let desk = Desk::new();
    let secret = "c0ffee";
    let file = desk.path("bad.seed");
    fs::write(&file, secret).expect("a file");
    let name = file.display().to_string();
    assert_no_start(
        &desk,
        desk.wrap().flags(["--seed-file", &name]),
        &[&name, "64 hex digits"],
    );
    assert_no_start(
        &desk,
        desk.wrap().flags(["--seed-file", "/no/such.seed"]),
        &["/no/such.seed"],
    );

    let named = |variable: &str| {
        desk.wrap()
            .environment("WITNESS_LOG_IDENTITY_SEED_ENV", variable)
    };
    assert_no_start(&desk, named("NOT_SET"), &["NOT_SET", "not set"]);
    assert_no_start(
        &desk,
        named("BAD").environment("BAD", secret),
        &["BAD", "64 hex digits"],
    );
    let mut client: Client = named("BAD").environment("BAD", secret).start();
    client.send(request("1", "ping", "{}"));
    assert!(!client.line().contains(secret));
    assert!(!client.end().stderr.contains(secret));
}

/// Wrong use is told on stderr alone, with the way to right use.
#[test]
fn wrong_use_ends_with_2() {
    let desk = Desk::new();
    let cases: [&[&str]; 6] = [
        &["wrap"],
        &["wrap", "--name", "x"],
        &["wrap", "--name", "x", "--"],
        &["wrap", "--name", "x", "--timeout", "0", "--", "true"],
        &["wrap", "--name", "x", "--timeout", "soon", "--", "true"],
        &["wrap", "--name", "x", "--no-such-flag", "--", "true"],
    ];
    for words in cases {
        let told = desk
            .program(Path::new(PROGRAM))
            .args(words)
            .output()
            .expect("it runs");
        assert_eq!(told.status.code(), Some(2), "{words:?}");
        assert!(
            told.stdout.is_empty() && !told.stderr.is_empty(),
            "{words:?}"
        );
        assert!(!String::from_utf8_lossy(&told.stderr).contains("panicked"));
    }
    assert_eq!(files(&desk.path("")).len(), 0);
}

/// The variables of the identity concern who signs; nobody else looks at them.
#[test]
fn a_bad_seed_variable_stops_only_wrap() {
    let told = std::process::Command::new(PROGRAM)
        .args(["verify", "--help"])
        .env("WITNESS_LOG_IDENTITY_SEED_ENV", "NOT_SET_ANYWHERE")
        .output()
        .expect("the program runs");
    assert_eq!(told.status.code(), Some(0));
    assert!(told.stderr.is_empty());
}

#[test]
fn the_version_is_told() {
    let desk = Desk::new();
    let told = desk
        .program(Path::new(PROGRAM))
        .arg("--version")
        .output()
        .expect("it runs");
    assert_eq!(told.status.code(), Some(0));
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(text, format!("countersign {}\n", env!("CARGO_PKG_VERSION")));
}

/// Under the reference's name it takes the reference's command line.
#[test]
fn a_link_under_the_references_name_takes_its_command_line() {
    let desk = Desk::new();
    let link = desk.path("witness-log-mcp-proxy");
    std::os::unix::fs::symlink(PROGRAM, &link).expect("a link");
    let mut command = desk.program(&link);
    command
        .args(["--name", "fake", "--journal"])
        .arg(desk.journal_path())
        // Unique beginnings of flags will do there.
        .args(["--time", "0.5", "--max-restarts", "0", "--"])
        .arg(fake_server());
    let mut client = Client::new(command, false);
    client.open_session("2025-11-25");
    let answer = client.call("1", "silent", r#"{"script":[]}"#);
    assert_eq!(
        error(&answer).1,
        "witness-log-mcp-proxy: timed out after 0.5s"
    );
    client.finish();
    desk.journal()
        .assert_calls(&[called("silent", r#"{"script":[]}"#, &answer)]);
    desk.verify_complete();

    let told = desk
        .program(&link)
        .arg("--version")
        .output()
        .expect("it runs");
    assert_eq!(told.status.code(), Some(0));
    let told = desk
        .program(&link)
        .args(["--name", "x", "--", "true"])
        .output()
        .expect("it runs");
    assert_eq!(told.status.code(), Some(2));
}

/// A server that ends by itself before anybody has asked for anything.
#[test]
fn a_client_that_comes_after_the_servers_end_is_told_of_it() {
    let desk = Desk::new();
    let mut client = desk
        .wrap()
        .flags(["--max-restarts", "0"])
        .command(["false"])
        .start();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let answer = client.ask("1", "initialize", &initialize_params("2025-11-25"));
    assert!(error(&answer).1.contains("ended with code 1"), "{answer}");
    assert_eq!(client.end().code, Some(1));
    assert!(!desk.path("j.wlog.lock").exists());
    desk.verify();
}

/// The client that says nothing is not waited for long.
#[test]
fn a_client_that_does_not_ask_is_not_waited_for() {
    let desk = Desk::new();
    let client = desk.wrap().command(["no-such-command-anywhere"]).start();
    let ended = client.end();
    assert_eq!((ended.code, ended.lines.len()), (Some(2), 0));
    assert!(ended.took.as_secs() < 10, "{:?}", ended.took);
    let ended = desk
        .wrap()
        .command(["no-such-command-anywhere"])
        .start()
        .hang_up();
    assert_eq!((ended.code, ended.lines.len()), (Some(2), 0));
}

#[test]
fn the_demo_ends_well_and_shows_a_caught_forgery() {
    let desk = Desk::new();
    let told = desk
        .program(Path::new(PROGRAM))
        .args(["demo", "--keep"])
        .arg(desk.path("demo"))
        .output();
    let told = told.expect("it runs");
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(
        told.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&told.stderr)
    );
    assert!(
        text.contains("INVALID") && text.contains("timed out after 1s"),
        "{text}"
    );
}

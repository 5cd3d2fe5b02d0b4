//! Children: how they start, what they see, and that none of them is left behind.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use countersign::process::{Child, Exit, Signal, Spec, StartError, resolve};
use countersign::stderr::WAITING_BYTES_MAX;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::program::{eventually, is_alive, shim};

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(100);

fn spec(program: impl Into<OsString>, arguments: &[&str], shim: Option<PathBuf>) -> Spec {
    Spec {
        program: program.into(),
        arguments: arguments.iter().map(OsString::from).collect(),
        environment_removed: Vec::new(),
        shim,
    }
}

/// A shell child, once started directly and once through the shim.
fn shells(script: &str) -> impl Iterator<Item = Child> {
    [None, Some(shim())].into_iter().map(move |shim| {
        Child::spawn(&spec("sh", &["-c", script], shim)).expect("there is a shell")
    })
}

async fn output(child: &mut Child) -> String {
    let mut text = String::new();
    let mut stdout = child.take_stdout().expect("it is taken once");
    stdout
        .read_to_string(&mut text)
        .await
        .expect("it can be read");
    text
}

/// The first line that a child writes; the rest stays open with the returned reader.
async fn first_line(child: &mut Child) -> (String, impl Sized + use<>) {
    let stdout = child.take_stdout().expect("it is taken once");
    let mut stdout = tokio::io::BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line).await.expect("it can be read");
    (line.trim_end().to_owned(), stdout)
}

fn file(folder: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("files can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    path
}

#[tokio::test]
async fn what_goes_in_comes_out() {
    for shim in [None, Some(shim())] {
        let mut child = Child::spawn(&spec("cat", &[], shim)).expect("there is a cat");
        let mut stdin = child.take_stdin().expect("it is taken once");
        let text = "x".repeat(3_000_000);
        let (written, read) = tokio::join!(
            async {
                let written = stdin.write_all(text.as_bytes()).await;
                drop(stdin);
                written
            },
            output(&mut child)
        );
        written.expect("it reads");
        assert!(read == text);
        assert_eq!(
            child.wait().await,
            Exit {
                code: Some(0),
                signal: None
            }
        );
    }
}

#[tokio::test]
async fn the_end_is_told_as_code_or_signal() {
    let cases = [
        ("exit 0", Some(0), None, 0, "exited with code 0"),
        ("exit 7", Some(7), None, 7, "exited with code 7"),
        ("exit 127", Some(127), None, 127, "exited with code 127"),
        (
            "kill -TERM $$",
            None,
            Some(15),
            -15,
            "was ended by signal 15",
        ),
        ("kill -KILL $$", None, Some(9), -9, "was ended by signal 9"),
    ];
    for (script, code, signal, reference, text) in cases {
        for mut child in shells(script) {
            let exit = child.wait().await;
            assert_eq!(exit, Exit { code, signal }, "{script}");
            assert_eq!(child.wait().await, exit, "asked twice");
            assert_eq!(exit.reference_code(), Some(reference));
            assert_eq!(exit.to_string(), text);
            assert!(child.start_failure().is_none());
            assert_eq!(child.shut_down(LONG, LONG).await, exit);
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_shim_leaves_no_trace_in_the_program() {
    let script = "tr '\\0' '|' < /proc/$$/cmdline; echo; tr '\\0' '\\n' < /proc/$$/environ; \
                  cut -d' ' -f5 /proc/$$/stat; \
                  for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done; echo $$";
    let mut seen = Vec::new();
    for shim in [None, Some(shim())] {
        let mut spec = spec("sh", &["-c", script, "na me", ""], shim);
        spec.environment_removed = vec!["HOME".into()];
        let mut child = Child::spawn(&spec).expect("there is a shell");
        let id = child.id().to_string();
        let text = output(&mut child).await;
        assert!(text.starts_with("sh|-c|tr "), "{text}");
        assert!(
            !text.contains("\nHOME=") && text.contains("\nPATH="),
            "{text}"
        );
        // Its process group, and its id, are those that we know.
        assert_eq!(text.lines().filter(|line| *line == id).count(), 2, "{text}");
        let lines = text
            .lines()
            .map(|line| if line == id { "ID" } else { line });
        seen.push(lines.map(str::to_owned).collect::<Vec<_>>());
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_missing_command_is_told_with_the_path_that_was_searched() {
    let error = resolve(OsStr::new("no-such-command-here")).expect_err("there is none");
    assert!(matches!(
        error,
        StartError::Missing {
            searched: Some(_),
            ..
        }
    ));
    let text = error.to_string();
    let path = std::env::var("PATH").expect("tests have one");
    assert!(
        text.contains("no-such-command-here") && text.contains(&path),
        "{text}"
    );
    assert!(resolve(OsStr::new("")).is_err());
    let error = Child::spawn(&spec("./no/such", &[], None)).expect_err("there is none");
    assert!(matches!(error, StartError::Missing { searched: None, .. }));
}

#[tokio::test]
async fn what_cannot_be_executed_is_told_apart() {
    let folder = tempfile::tempdir().expect("folders can be made");
    let plain = file(folder.path(), "plain", "text", 0o644);
    let directory = folder.path().join("directory");
    std::fs::create_dir(&directory).expect("folders can be made");
    assert!(
        matches!(resolve(plain.as_os_str()), Err(StartError::NotExecutable { path }) if path == plain)
    );
    assert!(
        matches!(resolve(directory.as_os_str()), Err(StartError::NotAFile { path }) if path == directory)
    );
}

#[tokio::test]
async fn a_failed_execution_is_a_start_failure_with_its_reason() {
    let folder = tempfile::tempdir().expect("folders can be made");
    let orphan = file(folder.path(), "orphan", "#!/no/such/interpreter\n", 0o755);
    let broken = file(folder.path(), "broken", "\x7fELF not really", 0o755);

    let direct = Child::spawn(&spec(&orphan, &[], None)).expect_err("it cannot start");
    assert!(matches!(direct, StartError::Interpreter { path } if path == orphan));

    let mut child = Child::spawn(&spec(&orphan, &[], Some(shim()))).expect("the shim starts");
    assert_eq!(child.wait().await.code, Some(127));
    assert!(
        matches!(child.start_failure(), Some(StartError::Interpreter { path }) if path == orphan)
    );
    assert_eq!(child.stderr_tail(), "");

    let mut child = Child::spawn(&spec(&broken, &[], Some(shim()))).expect("the shim starts");
    child.wait().await;
    // Some systems hand such a file to a shell, which fails by itself.
    let failure = child.start_failure();
    assert!(matches!(failure, Some(StartError::Refused { .. }) | None));
    assert_ne!(child.wait().await.code, Some(0));

    let missing = folder.path().join("no-shim");
    let error = Child::spawn(&spec("sh", &[], Some(missing.clone()))).expect_err("it cannot start");
    assert!(matches!(error, StartError::Refused { path, .. } if path == missing));
}

#[tokio::test]
async fn a_shim_whose_parent_is_another_does_not_execute() {
    let done = Command::new(shim())
        .args(["__exec", "1", "--", "/bin/sh", "sh", "-c", "echo ran"])
        .output()
        .expect("the example program starts");
    if cfg!(target_os = "linux") {
        assert_eq!(done.status.code(), Some(127));
        assert_eq!(done.stdout, b"");
    }
    let done = Command::new(shim())
        .arg("__exec")
        .output()
        .expect("it starts");
    assert_eq!(done.status.code(), Some(127));
}

#[tokio::test]
async fn the_tail_of_stderr_is_kept_lossily() {
    let script = "i=0; while [ $i -lt 500 ]; do echo \"line number $i\" >&2; i=$((i+1)); done; \
                  printf 'last \\377 words' >&2";
    for mut child in shells(script) {
        child.wait().await;
        let tail = child.stderr_tail();
        assert!(
            tail.ends_with("line number 499\nlast \u{fffd} words"),
            "{tail}"
        );
        assert!(
            tail.len() <= 4096 + 2 && tail.len() > 4000,
            "{}",
            tail.len()
        );
    }
}

#[tokio::test]
async fn a_stderr_that_floods_stops_neither_the_child_nor_its_stdout() {
    // Nobody empties the stderr of this test faster than the bound; the rest is dropped.
    let script = "dd if=/dev/zero bs=65536 count=200 2>/dev/null | tr '\\0' 'x' >&2; echo done";
    for mut child in shells(script) {
        let text = tokio::time::timeout(LONG, output(&mut child)).await;
        assert_eq!(text.expect("it is not stalled"), "done\n");
        assert_eq!(child.wait().await.code, Some(0));
    }
}

#[test]
fn what_does_not_fit_on_a_stderr_that_nobody_reads_is_dropped_and_counted() {
    let written = 64 * 65_536;
    let script = "dd if=/dev/zero bs=65536 count=64 2>/dev/null | tr '\\0' '.' >&2";
    let mut holder = Command::new(shim())
        .args(["hold", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example program starts");
    let stdout = holder.stdout.take().expect("it is piped");
    let mut stdout = BufReader::new(stdout);
    let mut told = String::new();
    stdout
        .read_line(&mut told)
        .expect("it tells the process id");
    told.clear();
    // The child ends although its four megabytes have nowhere to go.
    stdout.read_line(&mut told).expect("it tells the end");
    assert_eq!(told, "exited with code 0\n");
    // Read only now.
    let rest = holder.wait_with_output().expect("it can be waited for");
    let text = String::from_utf8(rest.stderr).expect("it is ASCII");
    let dots = text.bytes().filter(|byte| *byte == b'.').count();
    // Each loss is told where it happened; there may be more than one.
    let notes: Vec<&str> = text.split("countersign: ").skip(1).collect();
    let dropped = notes.iter().map(|note| {
        let (dropped, note) = note.split_once(' ').expect("it is a sentence");
        let told = note.starts_with("bytes for stderr were dropped here");
        assert!(told, "{note}");
        dropped.parse::<usize>().expect("it is a number")
    });
    let dropped: usize = dropped.sum();
    assert!(!notes.is_empty(), "the loss is told");
    assert_eq!(dots + dropped, written);
    assert!(
        dots > WAITING_BYTES_MAX / 2 && dots < 3 * WAITING_BYTES_MAX,
        "{dots}"
    );
}

#[tokio::test]
async fn closing_stdin_is_enough_for_a_child_that_listens() {
    for child in shells("cat; exit 5") {
        let start = Instant::now();
        let exit = child.shut_down(LONG, LONG).await;
        assert_eq!(exit.code, Some(5));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_child_that_ignores_its_input_gets_a_term() {
    for mut child in shells("trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done") {
        let (ready, _open) = first_line(&mut child).await;
        assert_eq!(ready, "ready");
        assert_eq!(child.shut_down(SHORT, LONG).await.code, Some(6));
    }
}

#[tokio::test]
async fn a_child_that_ignores_everything_is_killed_with_its_grandchildren() {
    for mut child in shells("trap '' TERM; sleep 1000 & echo $!; while :; do wait; done") {
        let (grandchild, _open) = first_line(&mut child).await;
        let grandchild: u32 = grandchild.parse().expect("it is a process id");
        let leader = child.id();
        assert!(is_alive(grandchild) && is_alive(leader));
        assert_eq!(child.shut_down(SHORT, SHORT).await.signal, Some(9));
        eventually("the grandchild is gone", || !is_alive(grandchild));
        assert!(
            !Path::new(&format!("/proc/{leader}")).exists(),
            "it is reaped"
        );
    }
}

#[tokio::test]
async fn a_grandchild_does_not_outlive_a_leader_that_ended_by_itself() {
    for mut child in shells("sleep 1000 2>/dev/null & echo $!; exit 3") {
        let (grandchild, _open) = first_line(&mut child).await;
        let grandchild: u32 = grandchild.parse().expect("it is a process id");
        assert_eq!(child.wait().await.code, Some(3));
        // Looking at the end kills nobody; the group can still be signalled.
        assert!(is_alive(grandchild));
        child.signal_group(Signal::CONT).expect("it is our group");
        assert_eq!(child.shut_down(SHORT, SHORT).await.code, Some(3));
        eventually("the grandchild is gone", || !is_alive(grandchild));
    }
}

#[tokio::test]
async fn a_grandchild_that_holds_stderr_does_not_delay_the_end() {
    for mut child in shells("sleep 1000 >/dev/null & echo $!; exit 3") {
        let start = Instant::now();
        assert_eq!(child.wait().await.code, Some(3));
        assert!(start.elapsed() < Duration::from_secs(3));
        child.shut_down(SHORT, SHORT).await;
    }
}

#[tokio::test]
async fn dropping_a_child_kills_its_group_and_reaps_it() {
    for mut child in shells("sleep 1000 & echo $!; wait") {
        let (grandchild, _open) = first_line(&mut child).await;
        let grandchild: u32 = grandchild.parse().expect("it is a process id");
        let leader = child.id();
        drop(child);
        eventually("the grandchild is gone", || !is_alive(grandchild));
        eventually("the leader is reaped", || {
            !Path::new(&format!("/proc/{leader}")).exists()
        });
    }
}

#[tokio::test]
async fn several_children_are_each_told_their_own_end() {
    let mut children: Vec<Child> = (0..20)
        .map(|code| {
            let script = format!("sleep 0.0{}; exit {code}", code % 7);
            Child::spawn(&spec("sh", &["-c", &script], None)).expect("there is a shell")
        })
        .collect();
    for (code, child) in (0..).zip(&mut children) {
        assert_eq!(child.wait().await.code, Some(code));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_child_dies_with_a_parent_that_is_killed() {
    let mut parent = Command::new(shim())
        // It ignores its input and every signal that can be ignored.
        .args([
            "hold",
            "sh",
            "-c",
            "trap '' TERM HUP INT; while :; do sleep 0.05; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example program starts");
    let mut line = String::new();
    let stdout = parent.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it says its child's id");
    let child: u32 = line.trim().parse().expect("it is a process id");
    std::thread::sleep(SHORT);
    assert!(is_alive(child));
    parent.kill().expect("it runs");
    parent.wait().expect("it can be waited for");
    eventually("the child is gone", || !is_alive(child));
}

#[cfg(target_os = "linux")]
#[test]
fn an_end_is_noticed_even_where_the_host_has_blocked_the_signal_for_it() {
    let start = Instant::now();
    let told = Command::new("env")
        .arg("--block-signal=CHLD")
        .arg(shim())
        .args(["hold", "sh", "-c", "sleep 0.1; exit 3"])
        .output()
        .expect("there is an env");
    let text = String::from_utf8(told.stdout).expect("it is ASCII");
    assert!(
        text.ends_with("exited with code 3\n"),
        "{text} {:?}",
        told.stderr
    );
    assert!(start.elapsed() < LONG);
}

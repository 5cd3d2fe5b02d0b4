//! Programs that the tests run: each with a deadline, in a process group of its own, ended as a group.
//!
//! The one idea: no test can hang and none leaves a process behind, whatever the program under test
//! does. Output is read on threads of its own, so a full pipe never blocks the program. Nothing here
//! knows what the programs are.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often a program that is waited for is looked at: short against any program's own start.
const LOOK: Duration = Duration::from_millis(10);

/// How long output may still come after a program ended: a grandchild can hold the pipe open.
const DRAIN: Duration = Duration::from_secs(5);

/// What a program left: its exit code (none after a signal) and all that it wrote.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// The output of a program that succeeded; anything else fails the test with what it said.
    pub(crate) fn expect_success(self, what: &str) -> String {
        assert_eq!(
            self.code,
            Some(0),
            "{what}: {}\n{}",
            self.stderr,
            self.stdout
        );
        self.stdout
    }
}

/// A running program with a deadline; dropping it ends its whole group.
pub(crate) struct Running {
    child: Child,
    deadline: Instant,
    what: String,
    stderr: Receiver<String>,
    stdout: Option<Receiver<String>>,
}

impl Running {
    /// Starts `command` in a group of its own, its three streams piped, with `seconds` to live.
    pub(crate) fn start(command: &mut Command, seconds: u64) -> Self {
        let what = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let stderr = read_on_a_thread(child.stderr.take().expect("stderr is piped"));
        Self {
            child,
            deadline: Instant::now() + Duration::from_secs(seconds),
            what,
            stderr,
            stdout: None,
        }
    }

    /// The program's stdin; dropping it is the end of its input.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child
            .stdin
            .take()
            .expect("stdin is piped and taken once")
    }

    /// The program's stdout, line by line as it comes, without the newline.
    pub(crate) fn lines(&mut self) -> Receiver<String> {
        let stdout = self
            .child
            .stdout
            .take()
            .expect("stdout is piped and taken once");
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // The receiver goes away when the test no longer cares.
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        lines
    }

    /// Kills the program alone, as a crash would: no handler runs.
    pub(crate) fn kill(&mut self) {
        self.child
            .kill()
            .expect("a child that was not waited for can be killed");
    }

    /// Waits for the end; past the deadline the group is killed and the test fails.
    pub(crate) fn finish(mut self) -> Finished {
        drop(self.child.stdin.take());
        if let Some(stdout) = self.child.stdout.take() {
            self.stdout = Some(read_on_a_thread(stdout));
        }
        let status = self.wait();
        let stdout = self
            .stdout
            .take()
            .map_or_else(String::new, |text| drained(&text));
        Finished {
            code: status.code(),
            stdout,
            stderr: drained(&self.stderr),
        }
    }

    fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .expect("our own child can be waited for")
            {
                return status;
            }
            if Instant::now() >= self.deadline {
                self.end_group();
                panic!(
                    "past its deadline: {}\n{}",
                    self.what,
                    drained(&self.stderr)
                );
            }
            thread::sleep(LOOK);
        }
    }

    fn end_group(&self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The group may be gone already, which is what is wanted.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_group();
        // Reaps the child; after a kill this does not block.
        let _ = self.child.wait();
    }
}

/// Runs `command` to its end within `seconds`, with nothing on its stdin.
pub(crate) fn run(command: &mut Command, seconds: u64) -> Finished {
    Running::start(command, seconds).finish()
}

/// Writes one line to a program; a program that went away is seen by whoever waits for its answer.
pub(crate) fn write_line(to: &mut ChildStdin, line: &str) {
    let _ = to
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| to.flush());
}

fn read_on_a_thread(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, text) = channel();
    thread::spawn(move || {
        let mut octets = Vec::new();
        // An error ends the text where it stands; what came before it is kept.
        let _ = from.read_to_end(&mut octets);
        let _ = send.send(String::from_utf8_lossy(&octets).into_owned());
    });
    text
}

fn drained(text: &Receiver<String>) -> String {
    text.recv_timeout(DRAIN).unwrap_or_default()
}

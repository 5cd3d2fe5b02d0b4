//! A client of `countersign wrap`, as hosts are: lines to its stdin, lines from its stdout.
//!
//! Each test has a [`Desk`]: a folder of its own with the journal, the keys and the log of the server
//! that the tests bring along. Nothing here knows what is right; the tests do.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auditor::{Journal, members};

/// No test waits longer for what must come. Generous, since the machine may be busy.
pub(crate) const WAIT: Duration = Duration::from_secs(30);

/// The name under which the server stands in the journals.
pub(crate) const SERVER: &str = "fake";

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_countersign");

/// The server of the tests. Built here where the test runner was told to build this test binary alone.
pub(crate) fn fake_server() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let tests = std::env::current_exe().expect("a running test has a path");
        // target/PROFILE/deps/it-HASH stands beside target/PROFILE/examples/fake_server.
        let profile = tests.ancestors().nth(2).expect("tests stand in deps");
        let path = profile.join("examples/fake_server");
        if !path.exists() {
            let built = Command::new(env!("CARGO"))
                .args([
                    "build",
                    "--package",
                    "countersign-cli",
                    "--example",
                    "fake_server",
                ])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo runs, since it started this test");
            assert!(built.success());
        }
        path
    })
}

/// Waits for a condition that another process brings about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !condition() {
        assert!(Instant::now() < end, "not within {WAIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there and is not merely waiting to be reaped.
pub(crate) fn is_alive(id: u32) -> bool {
    let told = Command::new("ps")
        .args(["-o", "stat=", "-p", &id.to_string()])
        .output();
    let state = told.map(|told| told.stdout).unwrap_or_default();
    !state.trim_ascii().is_empty() && !state.trim_ascii().starts_with(b"Z")
}

/// A folder of its own for one test.
pub(crate) struct Desk {
    folder: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The journal that [`Self::wrap`] writes unless told otherwise.
    pub(crate) fn journal_path(&self) -> PathBuf {
        self.path("j.wlog")
    }

    /// Reads it as an auditor does.
    #[track_caller]
    pub(crate) fn journal(&self) -> Journal {
        Journal::read(&self.journal_path())
    }

    /// `wrap` in front of the tests' server.
    pub(crate) fn wrap(&self) -> Wrap<'_> {
        Wrap {
            desk: self,
            journal: Some(self.journal_path().display().to_string()),
            flags: Vec::new(),
            server: Vec::new(),
            command: None,
            around: Vec::new(),
            environment: Vec::new(),
            unread: false,
        }
    }

    /// Any command of the program, in this desk's surroundings.
    pub(crate) fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("WITNESS_LOG_IDENTITY_SEED_ENV")
            .current_dir(self.folder.path());
        command
    }

    /// The full verification of the journal: the program's own, which must hold, as JSON.
    #[track_caller]
    pub(crate) fn verify(&self) -> Value {
        self.verify_file(&self.journal_path())
    }

    #[track_caller]
    pub(crate) fn verify_file(&self, file: &Path) -> Value {
        let told = self
            .program(Path::new(PROGRAM))
            .args(["verify", "--json"])
            .arg(file)
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        assert_eq!(
            told.status.code(),
            Some(0),
            "{text}{}",
            String::from_utf8_lossy(&told.stderr)
        );
        let report: Value =
            serde_json::from_str(text.lines().next().expect("a line")).expect("a JSON object");
        assert_eq!(report["failure_count"], 0, "{report}");
        report
    }

    /// Verifies, and demands that each intent has its one result.
    #[track_caller]
    pub(crate) fn verify_complete(&self) -> Value {
        let report = self.verify();
        assert_eq!(report["intents"], report["results"], "{report}");
        for member in ["open", "doubly_answered", "lost"] {
            assert_eq!(report["calls"][member]["count"], 0, "{report}");
        }
        assert_eq!(report["calls"]["unpaired"], 0, "{report}");
        report
    }

    /// Every line that the server got, in order; `# start PID` and `# end` for each of its processes.
    pub(crate) fn server_log(&self) -> Vec<String> {
        let log = fs::read(self.path("server.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        log.split('\n').map(str::to_owned).collect()
    }

    /// The server's process ids so far.
    pub(crate) fn server_pids(&self) -> Vec<u32> {
        let pid = |line: &String| line.strip_prefix("# start ")?.parse().ok();
        self.server_log().iter().filter_map(pid).collect()
    }

    /// Whether a line that the server got holds `text`.
    pub(crate) fn server_got(&self, text: &str) -> bool {
        self.server_log().iter().any(|line| line.contains(text))
    }
}

/// `countersign wrap` that is about to be started.
pub(crate) struct Wrap<'a> {
    desk: &'a Desk,
    journal: Option<String>,
    flags: Vec<String>,
    server: Vec<String>,
    command: Option<Vec<String>>,
    around: Vec<String>,
    environment: Vec<(String, String)>,
    unread: bool,
}

impl<'a> Wrap<'a> {
    /// Flags of `wrap`.
    pub(crate) fn flags<const N: usize>(mut self, flags: [&str; N]) -> Self {
        self.flags.extend(flags.map(str::to_owned));
        self
    }

    /// Flags of the server.
    pub(crate) fn server<const N: usize>(mut self, flags: [&str; N]) -> Self {
        self.server.extend(flags.map(str::to_owned));
        self
    }

    pub(crate) fn journal(mut self, journal: impl AsRef<Path>) -> Self {
        self.journal = Some(journal.as_ref().display().to_string());
        self
    }

    pub(crate) fn default_journal(mut self) -> Self {
        self.journal = None;
        self
    }

    /// Another command than the tests' server.
    pub(crate) fn command<const N: usize>(mut self, command: [&str; N]) -> Self {
        self.command = Some(command.map(str::to_owned).to_vec());
        self
    }

    /// A command that runs `wrap`, such as `prlimit --fsize=N`.
    pub(crate) fn around<const N: usize>(mut self, around: [&str; N]) -> Self {
        self.around = around.map(str::to_owned).to_vec();
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command, for a test that has its own streams.
    pub(crate) fn to_command(&self) -> Command {
        let words = self.words();
        let mut command = self.desk.program(Path::new(&words[0]));
        command
            .args(&words[1..])
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts it, and does nothing else.
    pub(crate) fn start(self) -> Client {
        Client::new(self.to_command(), self.unread)
    }

    /// The client reads nothing before [`Client::begin_to_read`].
    pub(crate) fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Starts it and opens a legacy session. The journal is open when this returns; before, calls would
    /// wait for it while all else passes them.
    #[track_caller]
    pub(crate) fn connect(self) -> Client {
        let mut client = self.start();
        client.open_session("2025-11-25");
        client.call("\"status\"", "audit__status", "{}");
        client
    }

    fn words(&self) -> Vec<String> {
        let mut words = self.around.clone();
        words.extend([PROGRAM, "wrap", "--name", SERVER].map(str::to_owned));
        if let Some(journal) = &self.journal {
            words.extend(["--journal".to_owned(), journal.clone()]);
        }
        words.extend(self.flags.clone());
        words.push("--".to_owned());
        match &self.command {
            Some(command) => words.extend(command.clone()),
            None => {
                let log = self.desk.path("server.log").display().to_string();
                words.extend([fake_server().display().to_string(), "--log".to_owned(), log]);
                words.extend(self.server.clone());
            }
        }
        words
    }
}

/// How `wrap` ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stderr: String,
    /// Lines that came and nobody had asked for.
    pub(crate) lines: Vec<String>,
    pub(crate) took: Duration,
}

impl Ended {
    /// Our own lines on stderr.
    pub(crate) fn our_lines(&self) -> Vec<&str> {
        self.stderr
            .lines()
            .filter(|line| line.starts_with("countersign"))
            .collect()
    }
}

/// A client with its `wrap`, which is killed when it goes out of scope.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    arriving: Receiver<Vec<u8>>,
    /// Lines that came while another was waited for.
    kept: VecDeque<String>,
    stderr: Option<JoinHandle<String>>,
    /// Held as long as the client is not to read.
    begin: Option<Sender<()>>,
}

impl Client {
    pub(crate) fn new(mut command: Command, unread: bool) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let mut stderr = child.stderr.take().expect("stderr is a pipe");
        let (arrive, arriving) = channel();
        let (begin, begun) = channel();
        let begin = Some(begin).filter(|_| unread);
        std::thread::spawn(move || {
            // Ends at once where nobody holds the other end; a word means that nothing is to be read.
            if let Ok(()) = begun.recv() {
                return;
            }
            let mut stdout = BufReader::new(stdout);
            let mut line = Vec::new();
            while let Ok(1..) = stdout.read_until(b'\n', &mut line) {
                // A test that has ended takes no more.
                let _ = arrive.send(std::mem::take(&mut line));
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).expect("a pipe can be read");
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            stdin: child.stdin.take(),
            child,
            arriving,
            kept: VecDeque::new(),
            stderr: Some(stderr),
            begin,
        }
    }

    /// Takes in what has come so far and what will come.
    pub(crate) fn begin_to_read(&mut self) {
        self.begin = None;
    }

    /// Closes the output of a client that has read nothing.
    pub(crate) fn close_output(&mut self) {
        let begin = self.begin.take().expect("it has read nothing");
        begin.send(()).expect("somebody waits for it");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one line.
    #[track_caller]
    pub(crate) fn send(&mut self, line: impl AsRef<[u8]>) {
        self.send_octets(&[line.as_ref(), b"\n"].concat());
    }

    /// Sends octets as they are.
    #[track_caller]
    pub(crate) fn send_octets(&mut self, octets: &[u8]) {
        let stdin = self.stdin.as_mut().expect("the input is still open");
        stdin.write_all(octets).expect("the program reads");
    }

    /// The input, to be written from another thread.
    pub(crate) fn take_input(&mut self) -> ChildStdin {
        self.stdin.take().expect("the input is still open")
    }

    /// The next line, without its newline.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        match self.kept.pop_front() {
            Some(line) => line,
            None => self.arrived(WAIT).expect("a line comes in time"),
        }
    }

    /// The answer to the request with this id, as raw JSON; other lines are kept.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: &str) -> String {
        let is_answer = |line: &str| {
            let members = members(line);
            members.get("id").is_some_and(|own| own == id) && !members.contains_key("method")
        };
        self.find(&format!("an answer to {id}"), is_answer)
    }

    /// The next line that has this method; other lines are kept.
    #[track_caller]
    pub(crate) fn message(&mut self, method: &str) -> String {
        let method = json!(method).to_string();
        self.find(&method, |line| members(line).get("method") == Some(&method))
    }

    #[track_caller]
    pub(crate) fn find(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        if let Some(at) = self.kept.iter().position(|line| is_it(line)) {
            return self.kept.remove(at).expect("it is there");
        }
        let end = Instant::now() + WAIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self
                .arrived(left)
                .unwrap_or_else(|| panic!("{what} comes in time"));
            if is_it(&line) {
                return line;
            }
            self.kept.push_back(line);
        }
    }

    fn arrived(&mut self, wait: Duration) -> Option<String> {
        match self.arriving.recv_timeout(wait) {
            Ok(mut line) => {
                assert_eq!(line.pop(), Some(b'\n'), "every line ends");
                Some(String::from_utf8(line).expect("lines are UTF-8"))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Sends a request and waits for its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, id: &str, method: &str, params: &str) -> String {
        self.send(request(id, method, params));
        self.answer(id)
    }

    /// Calls a tool and waits for the answer.
    #[track_caller]
    pub(crate) fn call(&mut self, id: &str, tool: &str, arguments: &str) -> String {
        self.send(call(id, tool, arguments));
        self.answer(id)
    }

    #[track_caller]
    pub(crate) fn open_session(&mut self, version: &str) {
        let answer = self.ask("\"open\"", "initialize", &initialize_params(version));
        assert!(answer.contains("\"serverInfo\""), "{answer}");
        self.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
    }

    /// A round through the server, after which everything before it has arrived.
    #[track_caller]
    pub(crate) fn ping(&mut self) {
        self.ask("\"ping\"", "ping", "{}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it is still there");
    }

    /// Closes the input and waits for the end.
    #[track_caller]
    pub(crate) fn hang_up(mut self) -> Ended {
        drop(self.stdin.take());
        self.end()
    }

    /// As [`Self::hang_up`], for a run that must end well.
    #[track_caller]
    pub(crate) fn finish(self) -> Ended {
        let ended = self.hang_up();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended
    }

    /// Waits for an end that comes by itself.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let begin = Instant::now();
        let mut status = None;
        eventually("the program ends", || {
            status = self.child.try_wait().expect("it can be waited for");
            status.is_some()
        });
        let took = begin.elapsed();
        let mut lines: Vec<String> = self.kept.drain(..).collect();
        // The reading thread ends with the pipe, which a process that escaped could hold open.
        while self.begin.is_none()
            && let Some(line) = self.arrived(Duration::from_secs(5))
        {
            lines.push(line);
        }
        let status = status.expect("it has ended");
        Ended {
            code: status.code(),
            signal: status.signal(),
            stderr: self
                .stderr
                .take()
                .expect("taken once")
                .join()
                .expect("it does not panic"),
            lines,
            took,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request's line.
pub(crate) fn request(id: &str, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}")
}

/// A call's line.
pub(crate) fn call(id: &str, tool: &str, arguments: &str) -> String {
    request(
        id,
        "tools/call",
        &format!("{{\"name\":\"{tool}\",\"arguments\":{arguments}}}"),
    )
}

/// What a client sends first.
pub(crate) fn initialize_params(version: &str) -> String {
    format!(
        "{{\"protocolVersion\":\"{version}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"test\",\"version\":\"1\"}}}}"
    )
}

/// Arguments, or params, that make the server do this step by step.
pub(crate) fn script(steps: Value) -> String {
    json!({ "script": steps }).to_string()
}

/// Cancels a request.
pub(crate) fn cancel(id: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":\"test\"}}}}"
    )
}

/// The error's code and message.
#[track_caller]
pub(crate) fn error(answer: &str) -> (i64, String) {
    let answer: Value = serde_json::from_str(answer).expect("an answer is JSON");
    let error = &answer["error"];
    (
        error["code"]
            .as_i64()
            .unwrap_or_else(|| panic!("an error: {answer}")),
        error["message"].as_str().expect("a message").to_owned(),
    )
}

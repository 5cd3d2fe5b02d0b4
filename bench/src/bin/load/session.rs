//! One running contender and the client's side of its conversation.
//!
//! The client is one thread that keeps a number of calls in flight, looks at every answer, and
//! knows each call by its id. Anything that is not the answer expected is a [`Failure`].

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use countersign_bench::CHUNK_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::contender::Contender;
use crate::process::Tree;

/// Longest silence of a contender that still owes an answer. The slowest one known needs 0.9 s for
/// one result of 1 MB.
const SILENCE_SECONDS_MAX: i64 = 30;

/// How long a contender may take to leave after its input ended, before it is killed.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where the members of an answer that are not its text stand: this far from either end.
const MARGIN_BYTES: usize = 256;

/// How much of a wrong answer is shown.
const QUOTED_BYTES_MAX: usize = 100;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"start","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;

/// Why a contender has no number.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not be started, or a pipe to it broke.
    Io(io::Error),
    /// Its output ended while answers were due; its last line on stderr.
    Left(String),
    /// It owed an answer and said nothing for [`SILENCE_SECONDS_MAX`].
    Silent,
    /// An answer with the wrong id, size or shape; its beginning.
    Wrong(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Left(stderr) => write!(f, "left with answers due; stderr ends: {stderr}"),
            Self::Silent => write!(f, "no answer in {SILENCE_SECONDS_MAX} s"),
            Self::Wrong(line) => write!(f, "wrong answer: {line}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a round asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) calls: usize,
    pub(crate) in_flight: usize,
    /// Bytes of text in each result.
    pub(crate) result_bytes: usize,
    /// No call is sent after this much time; those in flight are still waited for.
    pub(crate) time_max: Duration,
}

/// What a round took.
pub(crate) struct Round {
    /// Of each call, from before its `write` to after the `read` that brought its end.
    pub(crate) latencies: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

/// A started contender, initialized. Dropping it ends the process.
pub(crate) struct Session {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines,
    method: &'static str,
    calls: usize,
    stderr: PathBuf,
    /// From before the process was started to the answer to `initialize`.
    pub(crate) startup: Duration,
}

impl Session {
    /// Starts a contender with its files in `dir` and does what every client does first.
    pub(crate) fn open(contender: &Contender, dir: &Path) -> Result<Self, Failure> {
        let stderr = dir.with_extension("stderr");
        let mut command = contender.command(dir)?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr)?);
        let began = Instant::now();
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("stdout was asked for as a pipe");
        let mut session = Self {
            child,
            input,
            lines: Lines::new(output),
            method: contender.method,
            calls: 0,
            stderr,
            startup: Duration::ZERO,
        };
        session.ask(INITIALIZE, r#""id":"start""#)?;
        session.startup = began.elapsed();
        session.send(format!("{INITIALIZED}\n").as_bytes())?;
        session.ask(LIST, r#""name":"echo""#)?;
        Ok(session)
    }

    pub(crate) fn processes(&self) -> Tree {
        Tree::of(self.child.id())
    }

    /// Sends the calls of a plan and checks the answer to each.
    ///
    /// Requests are written while nobody reads the answers. That cannot block for ever: all those
    /// in flight together are smaller than two pages, the smallest pipe there is.
    pub(crate) fn run(&mut self, plan: Plan) -> Result<Round, Failure> {
        let first = self.calls;
        let mut sent: Vec<Option<Instant>> = Vec::with_capacity(plan.calls);
        let mut latencies = Vec::with_capacity(plan.calls);
        let mut requests = Vec::new();
        let began = Instant::now();
        let mut calls = plan.calls;
        while latencies.len() < calls {
            requests.clear();
            let now = Instant::now();
            while sent.len() < calls && sent.len() - latencies.len() < plan.in_flight {
                request(
                    self.method,
                    first + sent.len(),
                    plan.result_bytes,
                    &mut requests,
                );
                sent.push(Some(now));
            }
            self.send(&requests)?;
            self.fill()?;
            let now = Instant::now();
            while let Some(line) = self.lines.next() {
                let Some(id) = answered(line, plan.result_bytes)? else {
                    continue;
                };
                let call = id
                    .checked_sub(first)
                    .and_then(|call| sent.get_mut(call)?.take());
                latencies.push(now - call.ok_or_else(|| wrong(line))?);
            }
            if now - began > plan.time_max {
                calls = sent.len();
            }
        }
        self.calls += sent.len();
        Ok(Round {
            latencies,
            elapsed: began.elapsed(),
        })
    }

    /// Calls answered since the start, which is also the next call's id.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Ends the input and waits until the process has left.
    pub(crate) fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.input = None;
        let began = Instant::now();
        while began.elapsed() < LEAVE_WAIT_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
        // It did not leave by itself. If it has gone since, there is nothing to kill: both errors say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends one line and waits for the line that contains `expected`.
    fn ask(&mut self, line: &str, expected: &str) -> Result<(), Failure> {
        self.send(format!("{line}\n").as_bytes())?;
        loop {
            while let Some(line) = self.lines.next() {
                if String::from_utf8_lossy(line).contains(expected) {
                    return Ok(());
                }
            }
            self.fill()?;
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let input = self
            .input
            .as_mut()
            .expect("the input stays open until `end`");
        input.write_all(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => self.left(),
            _ => error.into(),
        })
    }

    fn fill(&mut self) -> Result<(), Failure> {
        match self.lines.fill()? {
            0 => Err(self.left()),
            _ => Ok(()),
        }
    }

    fn left(&self) -> Failure {
        let stderr = fs::read_to_string(&self.stderr).unwrap_or_default();
        Failure::Left(stderr.lines().last().unwrap_or("(nothing)").to_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// The lines of a pipe, found without copying them.
struct Lines {
    pipe: ChildStdout,
    buffer: Vec<u8>,
    /// `buffer[start..end]` has been read and not yet handed out; no newline before `searched`.
    start: usize,
    searched: usize,
    end: usize,
}

impl Lines {
    fn new(pipe: ChildStdout) -> Self {
        Self {
            pipe,
            buffer: vec![0; 2 * CHUNK_BYTES],
            start: 0,
            searched: 0,
            end: 0,
        }
    }

    /// Waits for bytes and reads them: 0 at the end of the stream.
    fn fill(&mut self) -> Result<usize, Failure> {
        if self.buffer.len() - self.end < CHUNK_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.searched -= self.start;
            self.start = 0;
            self.buffer
                .resize(self.buffer.len().max(self.end + CHUNK_BYTES), 0);
        }
        let patience = Timespec {
            tv_sec: SILENCE_SECONDS_MAX,
            tv_nsec: 0,
        };
        if poll(
            &mut [PollFd::new(&self.pipe, PollFlags::IN)],
            Some(&patience),
        )
        .map_err(io::Error::from)?
            == 0
        {
            return Err(Failure::Silent);
        }
        let read = self.pipe.read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read)
    }

    /// The next whole line, without its newline.
    fn next(&mut self) -> Option<&[u8]> {
        // `skip_until` is the standard library's vectorised search; a loop over the bytes would
        // be the largest cost of a result of 1 MB.
        let mut rest = &self.buffer[self.searched..self.end];
        let skipped = rest
            .skip_until(b'\n')
            .expect("reading from memory does not fail");
        self.searched += skipped;
        if skipped == 0 || self.buffer[self.searched - 1] != b'\n' {
            return None;
        }
        let line = self.start..self.searched - 1;
        self.start = self.searched;
        if self.start == self.end {
            (self.start, self.searched, self.end) = (0, 0, 0);
        }
        Some(&self.buffer[line])
    }
}

fn request(method: &str, id: usize, result_bytes: usize, out: &mut Vec<u8>) {
    writeln!(
        out,
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"echo","arguments":{{"size":{result_bytes}}}}}}}"#
    )
    .expect("writing to memory does not fail");
}

/// The id of a right answer, or `None` for a message that is not an answer.
///
/// Members are looked for near both ends, for a proxy may order them anew; the text itself, which
/// holds no quote, is measured and not read, so that the check costs the same at every size.
fn answered(line: &[u8], result_bytes: usize) -> Result<Option<usize>, Failure> {
    let head = &line[..line.len().min(MARGIN_BYTES)];
    let tail = &line[line.len().saturating_sub(MARGIN_BYTES)..];
    if find(head, br#""method":"#).is_some() {
        return Ok(None);
    }
    let id = number_after(head, br#""id":"#).or_else(|| number_after(tail, br#""id":"#));
    let text = find(head, br#""text":""#).map(|at| at + br#""text":""#.len());
    let text_end = tail
        .windows(2)
        .rposition(|pair| pair == b"x\"")
        .map(|at| line.len() - tail.len() + at + 1);
    match (id, text, text_end) {
        (Some(id), Some(start), Some(end)) if end.checked_sub(start) == Some(result_bytes) => {
            Ok(Some(id))
        }
        _ => Err(wrong(line)),
    }
}

fn number_after(bytes: &[u8], key: &[u8]) -> Option<usize> {
    let digits = bytes[find(bytes, key)? + key.len()..].trim_ascii_start();
    let length = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    str::from_utf8(&digits[..length]).ok()?.parse().ok()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn wrong(line: &[u8]) -> Failure {
    Failure::Wrong(String::from_utf8_lossy(&line[..line.len().min(QUOTED_BYTES_MAX)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_with_its_id_and_size() {
        for (line, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"xxx"}]}}"#,
                Ok(Some(7)),
            ),
            (
                r#"{"result":{"content":[{"text":"xxx","type":"text"}]},"id":7}"#,
                Ok(Some(7)),
            ),
            (r#"{"method":"notifications/message"}"#, Ok(None)),
            (
                r#"{"id":7,"result":{"content":[{"type":"text","text":"xx"}]}}"#,
                Err(()),
            ),
            (
                r#"{"result":{"content":[{"type":"text","text":"xxx"}]}}"#,
                Err(()),
            ),
            (
                r#"{"id":7,"error":{"code":-32603,"message":"xxx"}}"#,
                Err(()),
            ),
            (r#"{"id":7"#, Err(())),
        ] {
            assert_eq!(
                answered(line.as_bytes(), 3).map_err(drop),
                expected,
                "{line}"
            );
        }
    }
}

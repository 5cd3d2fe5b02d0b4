//! A child process that we talk to over pipes and that does not outlive us.
//!
//! The one idea: a child is the leader of a process group of its own, and until the very last
//! signal it stays unreaped. A process that has ended but is not reaped keeps its number, so no
//! signal of ours can reach a stranger that was given the number again. [`Child`] therefore only
//! *looks* at how its leader ended (`waitid` with `WNOWAIT`) and reaps in one place, after the
//! group was killed.
//!
//! Between us and the program stands a shim, which is ourselves executed again: it asks the kernel
//! for a signal at our death and then becomes the program. Limits, stated: what leaves the group
//! (`setsid`) is not ended, and a program that changes its user loses the signal at our death. On
//! macOS there is no such signal; there the child notices the end of its input.
//! This file knows no protocol.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::Access;
use rustix::process::{Pid, WaitId, WaitIdOptions};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::descriptor::widen;
use crate::stderr;

pub use rustix::process::Signal;

/// First argument of ourselves as the shim. The program hands what follows it to [`shim_main`].
pub const SHIM_ARGUMENT: &str = "__exec";

/// How the shim says, on its stderr, that the program could not be executed; the number of the
/// system's error follows.
const SHIM_FAILED: &str = "countersign __exec: the program could not be executed: os error ";

/// Exit code of the shim when the program could not be executed, as shells have it.
const SHIM_FAILED_CODE: u8 = 127;

/// Bytes at the end of a child's stderr that are kept for error messages.
const STDERR_TAIL: usize = 4 * 1024;

/// Bytes of stderr without a newline that are held back before they are passed on as they are.
const STDERR_LINE_MAX: usize = 64 * 1024;

/// Room offered to every read of a child's stderr, in bytes.
const STDERR_READ: usize = 8 * 1024;

/// How long the end of a child's stderr is waited for once the child itself has ended: what it
/// wrote is in the pipe already, and a grandchild may hold the other end for ever.
const STDERR_WAIT: Duration = Duration::from_millis(200);

/// How often an end is looked for without having been told of one: a host may start us with SIGCHLD
/// blocked, and then nobody tells.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a killed process may take to end. It takes longer only when stuck in the kernel.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// Where commands are looked up when `PATH` is not set, as `execvp` has it.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// What to start.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// The program, as a person writes it: a path, or a name to be looked up in `PATH`.
    pub program: OsString,
    /// Its arguments, without its name.
    pub arguments: Vec<OsString>,
    /// Variables of our environment that the program does not get.
    pub environment_removed: Vec<OsString>,
    /// An executable whose `main` calls [`shim_main`], usually our own. Without it the child is
    /// started directly and may outlive us when we are killed.
    pub shim: Option<PathBuf>,
}

/// Why a program could not be started.
#[derive(Debug)]
pub enum StartError {
    /// No such file, or no such name in `PATH`.
    Missing {
        /// The program as it was given.
        program: OsString,
        /// The value of `PATH` that was searched; `None` if the program was given as a path.
        searched: Option<OsString>,
    },
    /// There is a file, and we may not execute it.
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// There is a directory (or another thing that is no file) under that name.
    NotAFile {
        /// What was found.
        path: PathBuf,
    },
    /// The file is there and executable, and what its first line names is not there.
    Interpreter {
        /// The file.
        path: PathBuf,
    },
    /// The system refused to execute the file.
    Refused {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// We could not make the pipes, the process or the wait for it.
    Resources {
        /// The program as it was given.
        program: OsString,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing {
                program,
                searched: None,
            } => write!(
                out,
                "{}: no such file; check the path of the command",
                program.display()
            ),
            Self::Missing {
                program,
                searched: Some(path),
            } => write!(
                out,
                "{}: command not found in PATH ({}); install it, or give its full path",
                program.display(),
                path.display()
            ),
            Self::NotExecutable { path } => write!(
                out,
                "{}: not executable by this user; run chmod +x on it, or name its interpreter as the command",
                path.display()
            ),
            Self::NotAFile { path } => write!(
                out,
                "{}: a directory or special file, not a program; give the path of an executable file",
                path.display()
            ),
            Self::Interpreter { path } => write!(
                out,
                "{}: its interpreter (the #! line, or the loader of a binary) does not exist; install it or correct the line",
                path.display()
            ),
            Self::Refused { path, source } => write!(
                out,
                "{}: the system cannot execute it: {source}; check that it is a program for this machine",
                path.display()
            ),
            Self::Resources { program, source } => write!(
                out,
                "{}: cannot be started: {source}; check the limits on processes and open files",
                program.display()
            ),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused { source, .. } | Self::Resources { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// How a child ended. Both are `None` when that cannot be told: someone else reaped it, or it is
/// stuck in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
}

impl Exit {
    /// One number for both, as the reference program has it: a signal counts negative.
    pub fn reference_code(self) -> Option<i32> {
        self.code.or(self.signal.map(|signal| -signal))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(out, "exited with code {code}"),
            (None, Some(signal)) => write!(out, "was ended by signal {signal}"),
            (None, None) => write!(out, "ended in an unknown way"),
        }
    }
}

/// Finds the executable file of a command, as `execvp` would.
///
/// # Errors
/// [`StartError::Missing`], [`StartError::NotExecutable`] or [`StartError::NotAFile`]. If `PATH`
/// holds only unusable candidates, the first of them is named.
pub fn resolve(program: &OsStr) -> Result<PathBuf, StartError> {
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match fault(&path) {
            None => Ok(path),
            Some(fault) => Err(fault),
        };
    }
    let searched = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut first_fault = None;
    // An empty name would name the directories themselves.
    let directories = std::env::split_paths(&searched).filter(|_| !program.is_empty());
    for directory in directories {
        // An empty entry means the working directory, and joining keeps it so.
        let path = Path::new(".").join(directory).join(program);
        match fault(&path) {
            None => return Ok(path),
            Some(StartError::Missing { .. }) => {}
            Some(fault) => first_fault = first_fault.or(Some(fault)),
        }
    }
    Err(first_fault.unwrap_or_else(|| StartError::Missing {
        program: program.to_owned(),
        searched: Some(searched),
    }))
}

/// What stands against executing the file at `path`.
fn fault(path: &Path) -> Option<StartError> {
    let owned = path.to_owned();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Some(StartError::NotExecutable { path: owned })
        }
        Err(_) => Some(StartError::Missing {
            program: owned.into(),
            searched: None,
        }),
        Ok(found) if !found.is_file() => Some(StartError::NotAFile { path: owned }),
        Ok(_) => rustix::fs::access(path, Access::EXEC_OK)
            .is_err()
            .then_some(StartError::NotExecutable { path: owned }),
    }
}

/// Says what a failed execution of an existing file means.
fn refusal(path: PathBuf, source: io::Error) -> StartError {
    if source.kind() == io::ErrorKind::NotFound && path.exists() {
        StartError::Interpreter { path }
    } else {
        StartError::Refused { path, source }
    }
}

/// A running child, or one that has ended and is not reaped yet. Dropping it kills its group.
#[derive(Debug)]
pub struct Child {
    /// `None` once it was handed over for reaping; then nothing is signalled any more.
    process: Option<Process>,
    leader: Pid,
    path: PathBuf,
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Arc<Mutex<Stderr>>,
    stderr_copy: JoinHandle<()>,
    /// Tells that some child of ours has changed its state.
    changes: SignalStream,
}

impl Child {
    /// Starts a program in a process group of its own, with pipes as stdin, stdout and stderr.
    ///
    /// Its stderr is copied on to ours line by line, without ever stalling it. To be called within
    /// a runtime, from a thread that lives as long as the process (the kernel ties the signal at
    /// the parent's death to the thread that started the child).
    ///
    /// With a shim a failed execution shows after the start: see [`Child::start_failure`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn spawn(spec: &Spec) -> Result<Self, StartError> {
        let path = resolve(&spec.program)?;
        let resources = |source| StartError::Resources {
            program: spec.program.clone(),
            source,
        };
        // Listening starts before there is anything to hear, so that no exit is missed.
        let changes = signal(SignalKind::child()).map_err(resources)?;
        let mut process = command(spec, &path)
            .spawn()
            .map_err(|source| match &spec.shim {
                None => refusal(path.clone(), source),
                Some(shim) => refusal(shim.clone(), source),
            })?;
        match Self::adopt(&mut process, spec.shim.is_some()) {
            Ok((stdin, stdout, stderr, stderr_copy)) => Ok(Self {
                leader: Pid::from_child(&process),
                process: Some(process),
                path,
                stdin: Some(stdin),
                stdout: Some(stdout),
                stderr,
                stderr_copy,
                changes,
            }),
            Err(source) => {
                kill_and_reap(process);
                Err(resources(source))
            }
        }
    }

    /// Registers our ends of the child's pipes with the reactor.
    fn adopt(process: &mut Process, shimmed: bool) -> io::Result<Adopted> {
        let (Some(stdin), Some(stdout), Some(errors)) = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        ) else {
            return Err(io::Error::other("the pipes of the child are missing"));
        };
        widen(&stdin);
        widen(&stdout);
        let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
        let errors = pipe::Receiver::from_owned_fd(OwnedFd::from(errors))?;
        let stderr = Arc::new(Mutex::new(Stderr {
            tail: Vec::new(),
            may_be_shim: shimmed,
            failure: None,
        }));
        let copy = tokio::spawn(copy_stderr(errors, Arc::clone(&stderr)));
        Ok((stdin, stdout, stderr, copy))
    }

    /// The child's process id, which is also that of its group.
    pub fn id(&self) -> u32 {
        self.leader.as_raw_pid().unsigned_abs()
    }

    /// Hands out the child's stdin. The child sees the end of its input when it is dropped.
    pub fn take_stdin(&mut self) -> Option<pipe::Sender> {
        self.stdin.take()
    }

    /// Hands out the child's stdout.
    pub fn take_stdout(&mut self) -> Option<pipe::Receiver> {
        self.stdout.take()
    }

    /// The last 4 KiB of what the child wrote to its stderr, for error messages.
    pub fn stderr_tail(&self) -> String {
        String::from_utf8_lossy(&lock(&self.stderr).tail).into_owned()
    }

    /// Why the program was never executed, if the shim said so. To be asked after [`Child::wait`].
    pub fn start_failure(&self) -> Option<StartError> {
        let errno = lock(&self.stderr).failure?;
        if look(self.leader)?.code != Some(i32::from(SHIM_FAILED_CODE)) {
            return None;
        }
        Some(refusal(
            self.path.clone(),
            io::Error::from_raw_os_error(errno),
        ))
    }

    /// Waits until the leader has ended and its last words are here. It stays unreaped, so the
    /// answer stays the same and [`Child::signal_group`] stays safe. Cancel-safe.
    pub async fn wait(&mut self) -> Exit {
        let exit = self.ended().await;
        self.stderr_settled().await;
        exit
    }

    /// Sends a signal to every process of the group. No error if there is none left to take it.
    ///
    /// # Errors
    /// When the system forbids it: a member of the group changed its user.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        // Safe against reuse of the number: the leader is running or unreaped as long as `process`
        // is here, and the kernel gives its number to nobody, neither as process nor as group.
        match rustix::process::kill_process_group(self.leader, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the child: closes its stdin (if it was not taken; else its owner closes it before),
    /// waits `close_wait`, sends SIGTERM to the group, waits `term_wait`, sends SIGKILL to the
    /// group, reaps. The group is killed in any case, so that no grandchild outlives its leader.
    /// Takes at most the two waits and two seconds.
    pub async fn shut_down(mut self, close_wait: Duration, term_wait: Duration) -> Exit {
        drop(self.stdin.take());
        if timeout(close_wait, self.ended()).await.is_err() {
            // Dropped: a member that may not be signalled is not ours to end; so below.
            let _ = self.signal_group(Signal::TERM);
            let _ = timeout(term_wait, self.ended()).await;
        }
        let _ = self.signal_group(Signal::KILL);
        let exit = timeout(KILL_WAIT, self.ended()).await.unwrap_or_default();
        self.stderr_settled().await;
        // Whoever still holds the other end has left the group.
        self.stderr_copy.abort();
        if let Some(process) = self.process.take() {
            reap(process);
        }
        exit
    }

    async fn ended(&mut self) -> Exit {
        loop {
            if let Some(exit) = look(self.leader) {
                return exit;
            }
            // An end of the wait without a signal is another reason to look.
            let _ = timeout(LOOK_EVERY, self.changes.recv()).await;
        }
    }

    async fn stderr_settled(&mut self) {
        if !self.stderr_copy.is_finished() {
            // An end of the wait without an end of stderr is expected: see `STDERR_WAIT`.
            let _ = timeout(STDERR_WAIT, &mut self.stderr_copy).await;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            kill_and_reap(process);
        }
    }
}

type Adopted = (
    pipe::Sender,
    pipe::Receiver,
    Arc<Mutex<Stderr>>,
    JoinHandle<()>,
);

fn command(spec: &Spec, path: &Path) -> Command {
    let mut command = match &spec.shim {
        None => {
            let mut command = Command::new(path);
            command.arg0(&spec.program);
            command
        }
        Some(shim) => {
            let mut command = Command::new(shim);
            let parent = std::process::id().to_string();
            // The path for the kernel, the name for the program's own first argument.
            command
                .args([SHIM_ARGUMENT, &parent, "--"])
                .arg(path)
                .arg(&spec.program);
            command
        }
    };
    command
        .args(&spec.arguments)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The standard library sorts an environment that it changes; one that need not change keeps the
    // order in which the program would have got it directly.
    for name in &spec.environment_removed {
        if std::env::var_os(name).is_some() {
            command.env_remove(name);
        }
    }
    command
}

/// How the process ended, if it has, without reaping it.
fn look(leader: Pid) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    loop {
        return match rustix::process::waitid(WaitId::Pid(leader), options) {
            Ok(status) => status.map(|status| Exit {
                code: status.exit_status(),
                signal: status.terminating_signal(),
            }),
            Err(rustix::io::Errno::INTR) => continue,
            // Reaped by someone else: there is nothing more to learn or to wait for.
            Err(_) => Some(Exit::default()),
        };
    }
}

fn kill_and_reap(process: Process) {
    // Safe against reuse of the number: `process` is not reaped yet. Dropped: see `shut_down`.
    let _ = rustix::process::kill_process_group(Pid::from_child(&process), Signal::KILL);
    reap(process);
}

/// Reaps a process that has ended or is about to. A thread waits where it has not ended yet.
fn reap(mut process: Process) {
    if let Ok(None) = process.try_wait() {
        // Without a thread it stays a zombie until we end, which harms nobody.
        let _ = std::thread::Builder::new()
            .name("reap".to_owned())
            .spawn(move || process.wait());
    }
}

/// What is known from a child's stderr. Owned by the copying task and its [`Child`].
#[derive(Debug)]
struct Stderr {
    tail: Vec<u8>,
    /// Whether the next line may still be the shim's.
    may_be_shim: bool,
    /// Number of the system's error with which the shim failed.
    failure: Option<i32>,
}

impl Stderr {
    /// Takes note of complete lines, or of a piece of one; says whether they are to be passed on.
    fn note(&mut self, text: &[u8]) -> bool {
        if std::mem::take(&mut self.may_be_shim) {
            self.failure = shim_failure(text);
            if self.failure.is_some() {
                return false;
            }
        }
        let text = &text[text.len().saturating_sub(STDERR_TAIL)..];
        self.tail.extend_from_slice(text);
        let surplus = self.tail.len().saturating_sub(STDERR_TAIL);
        self.tail.drain(..surplus);
        true
    }
}

fn shim_failure(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_prefix(SHIM_FAILED)?.trim_end().parse().ok()
}

fn lock(stderr: &Mutex<Stderr>) -> MutexGuard<'_, Stderr> {
    // Nothing panics between two changes that belong together.
    stderr.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies a child's stderr on to ours, line by line, until its end.
async fn copy_stderr(mut errors: pipe::Receiver, known: Arc<Mutex<Stderr>>) {
    let mut held = Vec::new();
    loop {
        held.reserve(STDERR_READ);
        // An error is an end: there is nobody to report the loss of a report to.
        let count = errors.read_buf(&mut held).await.unwrap_or(0);
        let complete = match memchr::memrchr(b'\n', &held) {
            Some(at) if count > 0 && held.len() < STDERR_LINE_MAX => at + 1,
            None if count > 0 && held.len() < STDERR_LINE_MAX => 0,
            _ => held.len(),
        };
        if complete > 0 {
            if lock(&known).note(&held[..complete]) {
                stderr::write(&held[..complete]);
            }
            held.drain(..complete);
        }
        if count == 0 {
            return;
        }
    }
}

/// The `main` of the shim: asks for SIGKILL at the parent's death and becomes the program.
///
/// `arguments` are those after [`SHIM_ARGUMENT`]: the parent's process id, `--`, the path of the
/// executable, the program's own arguments beginning with its name. Returns only if that failed.
/// To be called before anything else in `main`, while there is one thread.
///
/// SIGKILL, because after our death nobody is left to send a second signal to a server that ignores
/// the first, and a server without its governor must not run. Its children see the end of their
/// input.
pub fn shim_main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let error = become_program(arguments.into_iter());
    let errno = error.raw_os_error().unwrap_or(0);
    stderr::write(format!("{SHIM_FAILED}{errno}\n").as_bytes());
    // A second is far more than an empty pipe takes.
    stderr::settle(Duration::from_secs(1));
    ExitCode::from(SHIM_FAILED_CODE)
}

fn become_program(mut arguments: impl Iterator<Item = OsString>) -> io::Error {
    let parent = arguments
        .next()
        .and_then(|text| text.to_str()?.parse().ok());
    let dashes = arguments.next();
    let (Some(parent), Some(path), Some(name)) = (parent, arguments.next(), arguments.next())
    else {
        return rustix::io::Errno::INVAL.into();
    };
    if dashes.as_deref() != Some(OsStr::new("--")) {
        return rustix::io::Errno::INVAL.into();
    }
    if let Err(error) = follow_parent(parent) {
        return error;
    }
    Command::new(path).arg0(name).args(arguments).exec()
}

/// Ties our life to that of the parent.
#[cfg(target_os = "linux")]
fn follow_parent(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above took effect; then we have another by now.
    let now = rustix::process::getppid().map(|id| id.as_raw_pid());
    if now == Some(parent) {
        Ok(())
    } else {
        Err(rustix::io::Errno::SRCH.into())
    }
}

/// Elsewhere there is no such signal: the end of its input is what the program notices.
#[cfg(not(target_os = "linux"))]
fn follow_parent(_parent: i32) -> io::Result<()> {
    Ok(())
}

//! The smallest program around the crate's I/O primitives: what a `main` must do to serve as the
//! shim of its own children. The tests drive it, since some promises (what is inherited, what
//! outlives a killed parent) can only be seen from outside a process.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, ExitCode};
use std::time::Duration;

use bytes::Bytes;
use countersign::descriptor::{Input, Output};
use countersign::lines::{Line, Lines};
use countersign::outbox::{self, Outbox};
use countersign::process::{self, Child, Spec};
use countersign::seed::{self, Seed};
use countersign::stderr;

const LINE_MAX: usize = 64 * 1024 * 1024;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next().unwrap_or_default();
    if verb == process::SHIM_ARGUMENT {
        return process::shim_main(arguments);
    }
    match run(verb.to_str(), arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stderr::write(format!("shim: {error}\n").as_bytes());
            stderr::settle(Duration::from_secs(1));
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Option<&str>, mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let seed = seed::take().map_err(io::Error::other)?;
    match verb {
        Some("echo") => {
            let limit = arguments
                .next()
                .and_then(|text| text.to_str()?.parse().ok());
            on_runtime(echo(limit.unwrap_or(LINE_MAX)))
        }
        Some("hold") => on_runtime(hold(arguments.collect())),
        Some("seed") => show_seed(seed),
        _ => Err(io::Error::other(
            "usage: shim echo [LIMIT]|hold PROGRAM…|seed",
        )),
    }
}

fn on_runtime(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Writes to stdout the lines that come from stdin (of one above the limit: its length), after a line on stderr that says what the two
/// descriptors are.
async fn echo(limit: usize) -> io::Result<()> {
    let input = Input::stdin()?;
    let output = Output::stdout()?;
    let kinds = format!("{} {}\n", input_kind(&input), output_kind(&output));
    stderr::write(kinds.as_bytes());
    let (outbox, queue) = Outbox::new(outbox::QUEUED_BYTES_MAX);
    let writer = tokio::spawn(outbox::write_all_to(queue, output));
    let mut lines = Lines::new(input, limit);
    let mut batch = Vec::new();
    while lines.read(&mut batch).await? {
        for line in batch.drain(..) {
            match line {
                Line::Whole(bytes) | Line::Last(bytes) => outbox.push(bytes),
                Line::TooLong { bytes, .. } => outbox.push(Bytes::from(bytes.to_string())),
            }
        }
        outbox.room().await;
    }
    outbox.close();
    let written = writer.await.map_err(io::Error::other)?;
    stderr::settle(Duration::from_secs(1));
    written
}

fn input_kind(input: &Input) -> &'static str {
    match input {
        Input::Pipe(_) => "pipe",
        Input::Socket(_) => "socket",
        Input::Thread(_) => "thread",
    }
}

fn output_kind(output: &Output) -> &'static str {
    match output {
        Output::Pipe(_) => "pipe",
        Output::Socket(_) => "socket",
        Output::Thread(_) => "thread",
    }
}

/// Starts a program through ourselves, prints its process id, and waits for it and its stderr.
async fn hold(command: Vec<OsString>) -> io::Result<()> {
    let mut command = command.into_iter();
    let mut child = Child::spawn(&Spec {
        program: command.next().unwrap_or_default(),
        arguments: command.collect(),
        environment_removed: seed::environment_names_to_remove(),
        shim: Some(std::env::current_exe()?),
    })
    .map_err(io::Error::other)?;
    writeln!(io::stdout(), "{}", child.id())?;
    let exit = child.wait().await;
    writeln!(io::stdout(), "{exit}")?;
    child.shut_down(Duration::ZERO, Duration::ZERO).await;
    // As long as a person may take to look at what was written.
    stderr::settle(Duration::from_secs(10));
    Ok(())
}

/// Shows the seed, our environment as others see it, and what a child inherits.
fn show_seed(seed: Option<Seed>) -> io::Result<()> {
    let mut out = io::stdout();
    match seed {
        Some(seed) => writeln!(out, "seed {:?}", seed.bytes())?,
        None => writeln!(out, "no seed")?,
    }
    writeln!(
        out,
        "arguments {:?}",
        std::env::args_os().collect::<Vec<_>>()
    )?;
    // Where there is no such file, nothing of it is shown.
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    writeln!(
        out,
        "environ {}",
        String::from_utf8_lossy(&environment).replace('\0', " ")
    )?;
    let mut child = Command::new("sh");
    child.args(["-c", "for fd in /proc/$$/fd/*; do [ -e $fd ] && echo \"descriptor ${fd##*/}\"; done; tr '\\0' ' ' < /proc/$$/environ"]);
    for name in seed::environment_names_to_remove() {
        child.env_remove(name);
    }
    let shown = child.output()?;
    out.write_all(&shown.stdout)?;
    #[cfg(target_os = "linux")]
    writeln!(out, "\ndumps {:?}", rustix::process::dumpable_behavior()?)?;
    Ok(())
}

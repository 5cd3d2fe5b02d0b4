//! A bare byte relay: starts the command given as its arguments and copies both directions.
//!
//! Two threads, blocking reads and writes, wide pipes, no look at the bytes. It is the floor for
//! anything that stands between a client and a server as a process of its own.

use std::env;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use countersign_bench::{CHUNK_BYTES, stdin, stdout, widen};

fn main() -> io::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let program = arguments
        .next()
        .ok_or_else(|| io::Error::other("usage: relay COMMAND [ARG]..."))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let to_child = child.stdin.take().expect("stdin was asked for as a pipe");
    let from_child = child.stdout.take().expect("stdout was asked for as a pipe");
    widen(&to_child);
    widen(&from_child);
    let from_client = stdin()?;
    // Dropping the child's input at the end of ours is what tells the server to leave. The thread
    // is not joined: when the server has gone there is nobody to copy for.
    thread::spawn(move || copy(from_client, to_child));
    copy(from_child, stdout()?)?;
    child.wait().map(drop)
}

fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..read])?;
    }
}

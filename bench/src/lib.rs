//! What the measuring programs share: raw standard streams and wide pipes.
//!
//! The programs are `echo_server` (the server under every contender), `relay` (the floor for any
//! proxy) and `load` (the client that measures and prints the table). Nothing here may use code of
//! the product: a fault shared by both sides of a measurement cannot be seen.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

/// Bytes that one `read` may bring and that a pipe should hold: the most an unprivileged process
/// may ask of Linux by default (`/proc/sys/fs/pipe-max-size`).
pub const CHUNK_BYTES: usize = 1 << 20;

/// Standard input without the standard library's buffer.
pub fn stdin() -> io::Result<File> {
    widened(io::stdin().as_fd())
}

/// Standard output without the standard library's line buffer.
pub fn stdout() -> io::Result<File> {
    widened(io::stdout().as_fd())
}

/// Asks the kernel for a pipe of [`CHUNK_BYTES`].
///
/// The answer is ignored: the descriptor may be a file or a terminal, or the user's pipe quota
/// used up, and then the stream works as before.
pub fn widen(pipe: impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, CHUNK_BYTES);
}

fn widened(fd: impl AsFd) -> io::Result<File> {
    widen(fd.as_fd());
    Ok(File::from(fd.as_fd().try_clone_to_owned()?))
}

//! Our own stdin and stdout as asynchronous streams.
//!
//! The one idea: what a descriptor is decides how it is waited for, so that the common cases (a
//! pipe, a socket) stay on the reactor and cost no second thread. A host may hand over anything:
//! most give pipes, Node gives sockets, a shell gives files, terminals and `/dev/null`, and epoll
//! refuses regular files.
//!
//! O_NONBLOCK belongs to the open file description, which we may share with the host, a shell or
//! our own stderr. A pipe is therefore opened anew through `/proc/self/fd`; where that cannot be
//! done (no `/proc`, macOS, a pipe of another user) a blocking thread reads or writes it as it is.
//! This file knows no protocol and never looks at the bytes.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Capacity asked for on every pipe, in bytes: the most that Linux gives without privilege. A
/// result of a megabyte then crosses in one piece.
pub const PIPE_BYTES: usize = 1024 * 1024;

/// Bytes that the blocking thread reads at once.
const CHUNK: usize = 64 * 1024;

/// Chunks that the blocking thread reads ahead.
const CHUNKS_AHEAD: usize = 4;

/// Bytes handed to the blocking thread for one write; one such piece is under way at a time.
const PIECE_MAX: usize = 1024 * 1024;

/// Our standard input.
#[derive(Debug)]
pub enum Input {
    /// A pipe, opened anew and registered with the reactor.
    Pipe(pipe::Receiver),
    /// A stream socket, registered with the reactor.
    Socket(UnixStream),
    /// Anything else, read by a thread of its own.
    Thread(ReadThread),
}

/// Our standard output. Dropping it does not close descriptor 1: its reader sees the end when the
/// process ends.
#[derive(Debug)]
pub enum Output {
    /// A pipe, opened anew and registered with the reactor.
    Pipe(pipe::Sender),
    /// A stream socket, registered with the reactor.
    Socket(UnixStream),
    /// Anything else, written by a thread of its own. What was written is there after a flush.
    Thread(WriteThread),
}

impl Input {
    /// Takes standard input. To be called within a runtime, and once: two readers of one
    /// descriptor would share its bytes between them.
    ///
    /// # Errors
    /// When the descriptor is closed or cannot be registered.
    pub fn stdin() -> io::Result<Self> {
        Self::open(io::stdin().as_fd(), "0")
    }

    fn open(descriptor: BorrowedFd<'_>, number: &str) -> io::Result<Self> {
        let again = descriptor.try_clone_to_owned()?;
        match file_type(descriptor)? {
            FileType::Fifo => match reopen_reader(descriptor, number) {
                Some(pipe) => Ok(Self::Pipe(pipe)),
                None => ReadThread::start(again).map(Self::Thread),
            },
            FileType::Socket => socket(again).map(Self::Socket),
            _ => ReadThread::start(again).map(Self::Thread),
        }
    }
}

impl Output {
    /// Takes standard output. To be called within a runtime.
    ///
    /// # Errors
    /// When the descriptor is closed or cannot be registered.
    pub fn stdout() -> io::Result<Self> {
        Self::open(io::stdout().as_fd(), "1")
    }

    fn open(descriptor: BorrowedFd<'_>, number: &str) -> io::Result<Self> {
        let again = descriptor.try_clone_to_owned()?;
        match file_type(descriptor)? {
            FileType::Fifo => match reopen_writer(number) {
                Some(pipe) => Ok(Self::Pipe(pipe)),
                None => WriteThread::start(again).map(Self::Thread),
            },
            FileType::Socket => socket(again).map(Self::Socket),
            _ => WriteThread::start(again).map(Self::Thread),
        }
    }
}

/// Asks for [`PIPE_BYTES`] of room in a pipe. Refusal is no error: the pipe works as it is, and
/// an unprivileged user has a bounded amount of pipe memory in all.
pub fn widen(pipe: impl AsFd) {
    #[cfg(target_os = "linux")]
    if rustix::pipe::fcntl_getpipe_size(&pipe).is_ok_and(|size| size < PIPE_BYTES) {
        // Dropped: see above.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE_BYTES);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = pipe;
}

fn file_type(descriptor: BorrowedFd<'_>) -> io::Result<FileType> {
    let stat = rustix::fs::fstat(descriptor)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// The same pipe under a description of our own, or `None` where that cannot be had.
fn reopen_reader(descriptor: BorrowedFd<'_>, number: &str) -> Option<pipe::Receiver> {
    let again = pipe::OpenOptions::new()
        .open_receiver(own_path(number)?)
        .ok()?;
    // A named pipe that is opened while it has no writer never reports its end to that description.
    // Looked at after opening: a writer that leaves later is reported.
    if hung_up(descriptor) {
        return None;
    }
    widen(&again);
    Some(again)
}

/// The same pipe under a description of our own, or `None`: also when its reader is gone, which the
/// first write through the original then reports.
fn reopen_writer(number: &str) -> Option<pipe::Sender> {
    let again = pipe::OpenOptions::new()
        .open_sender(own_path(number)?)
        .ok()?;
    widen(&again);
    Some(again)
}

/// The path that opens one of our descriptors anew. Elsewhere than on Linux `/dev/fd` merely
/// duplicates, and O_NONBLOCK would leak.
fn own_path(number: &str) -> Option<String> {
    cfg!(target_os = "linux").then(|| format!("/proc/self/fd/{number}"))
}

fn hung_up(descriptor: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let at_once = Timespec::default();
    // An error is taken for a hang-up: the blocking thread then meets it and reports it.
    poll(&mut polled, Some(&at_once)).is_err() || polled[0].revents().contains(PollFlags::HUP)
}

/// KNOWN: a socket cannot be opened anew, so O_NONBLOCK becomes visible to whoever shares its
/// description. Our own stderr is such a sharer when a host gives one socket for all three; text
/// for people goes through `crate::stderr`, which waits where a write would block.
fn socket(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let stream = BlockingUnixStream::from(descriptor);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_read(context, buffer),
            Self::Socket(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Thread(thread) => thread.poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_write(context, bytes),
            Self::Socket(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Thread(thread) => thread.poll_write(context, &[IoSlice::new(bytes)]),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_write_vectored(context, slices),
            Self::Socket(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Self::Thread(thread) => thread.poll_write(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_flush(context),
            Self::Socket(socket) => Pin::new(socket).poll_flush(context),
            Self::Thread(thread) => thread.poll_idle(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Pipe(pipe) => Pin::new(pipe).poll_shutdown(context),
            Self::Socket(socket) => Pin::new(socket).poll_shutdown(context),
            Self::Thread(thread) => thread.poll_idle(context),
        }
    }
}

/// A thread that reads ahead of us, by a few bounded chunks. It ends with the input, or with the
/// first chunk that nobody wants; until then it may sit in `read(2)`, which nothing can end.
#[derive(Debug)]
pub struct ReadThread {
    chunks: mpsc::Receiver<io::Result<Bytes>>,
    chunk: Bytes,
}

impl ReadThread {
    fn start(descriptor: OwnedFd) -> io::Result<Self> {
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(move || read_chunks(File::from(descriptor), &sender))?;
        Ok(Self {
            chunks,
            chunk: Bytes::new(),
        })
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.chunk.is_empty() {
            match ready!(self.chunks.poll_recv(context)) {
                Some(chunk) => self.chunk = chunk?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk[..count]);
        self.chunk.advance(count);
        Poll::Ready(Ok(()))
    }
}

fn read_chunks(mut file: File, chunks: &mpsc::Sender<io::Result<Bytes>>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let chunk = match file.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
            Err(error) if wait_for(&file, &error, PollFlags::IN) => continue,
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        // A failed send means that nobody reads any more.
        if chunks.blocking_send(chunk).is_err() || failed {
            return;
        }
    }
}

/// A thread that writes for us, one bounded piece at a time. An error is reported by the write or
/// flush that follows it.
#[derive(Debug)]
pub struct WriteThread {
    pieces: mpsc::Sender<Bytes>,
    results: mpsc::Receiver<io::Result<()>>,
    busy: bool,
}

impl WriteThread {
    fn start(descriptor: OwnedFd) -> io::Result<Self> {
        // One piece is under way at a time, so one place in either direction is enough.
        let (pieces, from_us) = mpsc::channel(1);
        let (to_us, results) = mpsc::channel(1);
        std::thread::Builder::new()
            .name("stdout".to_owned())
            .spawn(move || write_pieces(File::from(descriptor), from_us, &to_us))?;
        Ok(Self {
            pieces,
            results,
            busy: false,
        })
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_idle(context))?;
        let mut piece = Vec::new();
        for slice in slices {
            let count = slice.len().min(PIECE_MAX - piece.len());
            piece.extend_from_slice(&slice[..count]);
        }
        let count = piece.len();
        if count == 0 {
            return Poll::Ready(Ok(0));
        }
        if self.pieces.try_send(Bytes::from(piece)).is_err() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.busy = true;
        Poll::Ready(Ok(count))
    }

    /// Waits until the thread has written what it was given.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.busy {
            return Poll::Ready(Ok(()));
        }
        let result = ready!(self.results.poll_recv(context));
        self.busy = false;
        Poll::Ready(result.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into())))
    }
}

fn write_pieces(
    mut file: File,
    mut pieces: mpsc::Receiver<Bytes>,
    results: &mpsc::Sender<io::Result<()>>,
) {
    while let Some(piece) = pieces.blocking_recv() {
        let result = write_whole(&mut file, &piece);
        let failed = result.is_err();
        if results.blocking_send(result).is_err() || failed {
            return;
        }
    }
}

/// Writes all of `bytes` to a descriptor that may be in either mode, waiting as long as it takes.
pub(crate) fn write_whole(mut file: impl Write + AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if wait_for(&file, &error, PollFlags::OUT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the attempt that ended with `error` is worth repeating. Waits before saying so when
/// whoever gave us the descriptor had put it into non-blocking mode.
fn wait_for(descriptor: impl AsFd, error: &io::Error, what: PollFlags) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        io::ErrorKind::WouldBlock => {
            let mut polled = [PollFd::new(&descriptor, what)];
            // No time limit: a reader that is merely slow is no failure. EINTR is another attempt.
            matches!(
                poll(&mut polled, None),
                Ok(_) | Err(rustix::io::Errno::INTR)
            )
        }
        _ => false,
    }
}

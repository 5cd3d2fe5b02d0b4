//! Standard input and output of every kind, seen from the process that shares them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;

use crate::program::shim;

const TEXT: &str = "one\ntwo\r\nthree\n";

fn echo(input: impl Into<Stdio>, output: impl Into<Stdio>) -> Child {
    Command::new(shim())
        .arg("echo")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example program starts")
}

/// Waits for an echo and returns what it said about its descriptors.
fn kinds(child: Child) -> String {
    let done = child.wait_with_output().expect("it can be waited for");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stderr).expect("it is ASCII")
}

fn is_blocking(descriptor: impl AsFd) -> bool {
    let flags = rustix::fs::fcntl_getfl(descriptor).expect("flags can be read");
    !flags.contains(OFlags::NONBLOCK)
}

#[test]
fn pipes_are_opened_anew_and_stay_blocking_for_those_who_share_them() {
    let (their_input, mut input) = std::io::pipe().expect("pipes can be made");
    let (mut output, their_output) = std::io::pipe().expect("pipes can be made");
    let shared_input = their_input.try_clone().expect("it can be duplicated");
    let shared_output = their_output.try_clone().expect("it can be duplicated");
    let child = echo(their_input, their_output);
    input.write_all(TEXT.as_bytes()).expect("it reads");
    let mut echoed = [0; TEXT.len()];
    output.read_exact(&mut echoed).expect("it writes");
    assert_eq!(echoed, TEXT.as_bytes());
    // It runs, and is using both at this moment.
    assert!(is_blocking(&shared_input) && is_blocking(&shared_output));
    #[cfg(target_os = "linux")]
    for pipe in [shared_input.as_fd(), shared_output.as_fd()] {
        let size = rustix::pipe::fcntl_getpipe_size(pipe).expect("sizes can be read");
        assert_eq!(size, countersign::descriptor::PIPE_BYTES);
    }
    drop(input);
    let expected = if cfg!(target_os = "linux") {
        "pipe pipe\n"
    } else {
        "thread thread\n"
    };
    assert_eq!(kinds(child), expected);
}

#[test]
fn a_pipe_whose_writer_is_gone_is_read_to_its_end() {
    let (their_input, mut input) = std::io::pipe().expect("pipes can be made");
    input.write_all(TEXT.as_bytes()).expect("it has room");
    drop(input);
    let mut child = echo(their_input, Stdio::piped());
    let mut echoed = String::new();
    let output = child.stdout.as_mut().expect("it is piped");
    output.read_to_string(&mut echoed).expect("it writes");
    assert_eq!(echoed, TEXT);
    assert!(kinds(child).starts_with("thread "));
}

#[test]
fn a_named_pipe_ends_with_its_writer() {
    let folder = tempfile::tempdir().expect("folders can be made");
    let path = folder.path().join("named");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo starts").success());
    // Opened in both modes, so that the open below does not wait.
    let both = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .expect("it opens");
    let their_input = File::open(&path).expect("it opens");
    let child = echo(their_input, Stdio::null());
    (&both).write_all(TEXT.as_bytes()).expect("it has room");
    drop(both);
    kinds(child);
}

#[test]
fn sockets_are_registered_as_they_are() {
    let (mut ours, theirs) = UnixStream::pair().expect("sockets can be made");
    let output = theirs.try_clone().expect("it can be duplicated");
    let child = echo(OwnedFd::from(theirs), OwnedFd::from(output));
    ours.write_all(TEXT.as_bytes()).expect("it reads");
    ours.shutdown(std::net::Shutdown::Write)
        .expect("it is connected");
    let mut echoed = String::new();
    ours.read_to_string(&mut echoed).expect("it writes");
    assert_eq!(echoed, TEXT);
    assert_eq!(kinds(child), "socket socket\n");
}

#[test]
fn files_are_read_and_written_by_threads() {
    let folder = tempfile::tempdir().expect("folders can be made");
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    // More than the thread holds at once, in either direction.
    let text = TEXT.repeat(200_000);
    std::fs::write(&input, &text).expect("files can be written");
    let child = echo(
        File::open(&input).expect("it is there"),
        File::create(&output).expect("files can be made"),
    );
    assert_eq!(kinds(child), "thread thread\n");
    assert!(std::fs::read_to_string(&output).expect("it is there") == text);
}

#[test]
fn nothing_in_and_nothing_out_is_no_error() {
    assert_eq!(kinds(echo(Stdio::null(), Stdio::null())), "thread thread\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_that_is_full_is_an_error_and_not_silence() {
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let mut child = echo(Stdio::piped(), full);
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(TEXT.as_bytes()).expect("it reads");
    drop(input);
    let done = child.wait_with_output().expect("it can be waited for");
    assert!(!done.status.success());
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("No space left"), "{said}");
}

#[test]
fn a_reader_that_is_gone_from_the_start_is_a_broken_pipe() {
    let (output, their_output) = std::io::pipe().expect("pipes can be made");
    drop(output);
    let mut child = echo(Stdio::piped(), their_output);
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(TEXT.as_bytes()).expect("it has room");
    drop(input);
    let done = child.wait_with_output().expect("it can be waited for");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        !done.status.success() && said.contains("Broken pipe"),
        "{said}"
    );
}

#[test]
fn a_named_pipe_whose_writer_left_before_the_start_ends_too() {
    let folder = tempfile::tempdir().expect("folders can be made");
    let path = folder.path().join("named");
    let made = Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo starts").success());
    let both = File::options().read(true).write(true).open(&path);
    let mut both = both.expect("it opens");
    let their_input = File::open(&path).expect("it opens");
    both.write_all(TEXT.as_bytes()).expect("it has room");
    drop(both);
    assert_eq!(kinds(echo(their_input, Stdio::null())), "thread thread\n");
}

/// A terminal of our own: the side that a person would sit at, and the side a program gets.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
    grantpt(&person).expect("it is ours");
    unlockpt(&person).expect("it is ours");
    let path = ptsname(&person, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK;
    let program = rustix::fs::open(path.as_c_str(), flags, rustix::fs::Mode::empty());
    let program = program.expect("it opens");
    let mut mode = rustix::termios::tcgetattr(&program).expect("it is a terminal");
    mode.make_raw();
    rustix::termios::tcsetattr(&program, rustix::termios::OptionalActions::Now, &mode)
        .expect("it is a terminal");
    (person.into(), program.into())
}

#[test]
fn a_terminal_given_in_non_blocking_mode_is_waited_for() {
    let (mut person, program) = terminal();
    let again = program.try_clone().expect("it can be duplicated");
    let mut child = echo(program, again);
    let mut said = [0; 14];
    let errors = child.stderr.as_mut().expect("it is piped");
    errors.read_exact(&mut said).expect("it says its kinds");
    assert_eq!(&said, b"thread thread\n");
    // More than a terminal buffers, so that writing meets a full one too.
    let typed = "typed by a person\n".repeat(2_000);
    let mut keyboard = person.try_clone().expect("it can be duplicated");
    let keys = typed.clone();
    let typing = std::thread::spawn(move || keyboard.write_all(keys.as_bytes()));
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut echoed = vec![0; typed.len()];
    person.read_exact(&mut echoed).expect("the lines come back");
    assert!(echoed == typed.as_bytes());
    typing.join().expect("it does not panic").expect("it reads");
    child.kill().expect("it runs");
    child.wait().expect("it can be waited for");
}

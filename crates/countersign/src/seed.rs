//! The identity seed that arrives in an environment variable, and how it leaves the environment.
//!
//! The reference program takes its seed from the variable that `WITNESS_LOG_IDENTITY_SEED_ENV`
//! names. Not passing the variable on does not hide it: the environment that a process was started
//! with stays readable, for everyone with its user id, in `/proc/<pid>/environ`, and a server of
//! ours may read its parent's. The one idea: we execute ourselves again without the two variables,
//! and hand the seed over in a pipe. Reading it empties the pipe, so nothing is left to inherit.
//! (A memory file would do on Linux alone and would have to be wiped; a pipe does everywhere.)
//!
//! On macOS the same is done through `/dev/fd`, since there too the first environment is what
//! others are shown; only the ban on memory dumps is missing there.
//! This file knows nothing of journals or keys and never prints a value.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::FileType;
use zeroize::Zeroizing;

/// Names the variable that holds the seed (reference, section 2, "Environment").
pub const SEED_VARIABLE_NAMED_IN: &str = "WITNESS_LOG_IDENTITY_SEED_ENV";

/// Tells our second image the number of the descriptor from which to read the seed.
const DESCRIPTOR_NAMED_IN: &str = "COUNTERSIGN_SEED_DESCRIPTOR";

/// Length of a seed in bytes; in the variable it stands as twice as many hex digits.
pub const SEED_LENGTH: usize = 32;

/// Where a descriptor of ours can be opened by its number.
const DESCRIPTORS: &str = if cfg!(target_os = "linux") {
    "/proc/self/fd"
} else {
    "/dev/fd"
};

/// The first descriptor that is not standard input, output or error.
const FIRST_OTHER_DESCRIPTOR: i32 = 3;

/// An identity seed. Wiped from memory when dropped; its `Debug` shows nothing of it.
pub struct Seed(Zeroizing<[u8; SEED_LENGTH]>);

impl Seed {
    /// The seed itself. Whoever copies it wipes the copy.
    pub fn bytes(&self) -> &[u8; SEED_LENGTH] {
        &self.0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Seed(..)")
    }
}

/// Why the seed could not be taken. Never holds a value, only names.
#[derive(Debug)]
pub enum SeedError {
    /// The variable that should hold the seed is not set, or its name is no name.
    Missing {
        /// The name found in [`SEED_VARIABLE_NAMED_IN`].
        variable: OsString,
    },
    /// What should be the name of a variable looks like a seed itself, so it is not repeated here.
    NotAName,
    /// What the variable holds is not 64 hex digits.
    NotHex {
        /// Its name.
        variable: OsString,
        /// The length of what it holds, in bytes.
        length: usize,
    },
    /// We could not execute ourselves again, so the seed would have stayed readable.
    Hide {
        /// What the system said.
        source: io::Error,
    },
    /// Our second image did not find the seed where the first one had left it.
    Handover {
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for SeedError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { variable } => write!(
                out,
                "{SEED_VARIABLE_NAMED_IN} names the variable {:?}, which is not set; set it to the seed (64 hex digits), or unset {SEED_VARIABLE_NAMED_IN}",
                variable.display()
            ),
            Self::NotAName => write!(
                out,
                "{SEED_VARIABLE_NAMED_IN} must hold the name of the variable that holds the seed, and seems to hold the seed; put the seed in a variable of its own, and treat it as seen"
            ),
            Self::NotHex { variable, length } => write!(
                out,
                "the variable {:?}, named by {SEED_VARIABLE_NAMED_IN}, does not hold a seed: 64 hex digits are needed, found {length} bytes; correct its value",
                variable.display()
            ),
            Self::Hide { source } => write!(
                out,
                "the identity seed cannot be hidden from other processes: executing this program again failed: {source}; give the seed in a file instead"
            ),
            Self::Handover { source } => write!(
                out,
                "the identity seed was lost between two images of this program ({DESCRIPTORS}): {source}; unset {DESCRIPTOR_NAMED_IN} if you have set it, or give the seed in a file instead"
            ),
        }
    }
}

impl std::error::Error for SeedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Hide { source } | Self::Handover { source } => Some(source),
            Self::Missing { .. } | Self::NotAName | Self::NotHex { .. } => None,
        }
    }
}

/// Takes the identity seed out of the environment, if there is one.
///
/// To be called first in `main`, while there is one thread and no descriptor of ours is open: where
/// the environment holds a seed this does not return but starts the program anew, with the same
/// arguments, and returns there. From then on no descriptor above 2 is inherited by a child, and
/// (on Linux) our memory cannot be dumped or read by others of our user.
///
/// # Errors
/// [`SeedError`]; the program must not go on without the seed that it was told to use.
pub fn take() -> Result<Option<Seed>, SeedError> {
    if let Some(number) = env::var_os(DESCRIPTOR_NAMED_IN) {
        let seed = receive(&number).map_err(|source| SeedError::Handover { source })?;
        return Ok(Some(seed));
    }
    let Some(variable) = env::var_os(SEED_VARIABLE_NAMED_IN) else {
        return Ok(None);
    };
    let seed = read_variable(&variable)?;
    let source = match hand_over(&seed, &variable) {
        Err(source) => source,
        Ok(never) => match never {},
    };
    Err(SeedError::Hide { source })
}

/// The variables of our environment that no child may get, whether set or not.
pub fn environment_names_to_remove() -> Vec<OsString> {
    let mut names = vec![SEED_VARIABLE_NAMED_IN.into(), DESCRIPTOR_NAMED_IN.into()];
    names.extend(env::var_os(SEED_VARIABLE_NAMED_IN).filter(|name| is_name(name)));
    names
}

/// Forbids dumps of our memory, and with them its reading by other processes of our user. For
/// whoever got a seed from elsewhere; [`take`] does it by itself.
///
/// # Errors
/// What the system said. On macOS nothing is done, and that is no error.
pub fn forbid_dumps() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Whether a variable can have this name; the standard library panics on others.
fn is_name(name: &OsStr) -> bool {
    !name.is_empty() && !name.as_bytes().contains(&b'=')
}

fn read_variable(variable: &OsStr) -> Result<Seed, SeedError> {
    let value = Some(variable)
        .filter(|name| is_name(name))
        .and_then(env::var_os)
        .map(|value| Zeroizing::new(std::os::unix::ffi::OsStringExt::into_vec(value)))
        .ok_or_else(|| {
            if looks_secret(variable) {
                SeedError::NotAName
            } else {
                SeedError::Missing {
                    variable: variable.to_owned(),
                }
            }
        })?;
    decode(&value).ok_or_else(|| SeedError::NotHex {
        variable: variable.to_owned(),
        length: value.len(),
    })
}

/// Whether a would-be name is a long run of hex digits, which no one calls a variable.
fn looks_secret(name: &OsStr) -> bool {
    name.len() >= SEED_LENGTH && name.as_bytes().iter().all(u8::is_ascii_hexdigit)
}

fn decode(text: &[u8]) -> Option<Seed> {
    if text.len() != 2 * SEED_LENGTH {
        return None;
    }
    let mut seed = Zeroizing::new([0; SEED_LENGTH]);
    for (byte, digits) in seed.iter_mut().zip(text.chunks_exact(2)) {
        let high = char::from(digits[0]).to_digit(16)?;
        let low = char::from(digits[1]).to_digit(16)?;
        *byte = u8::try_from(16 * high + low).expect("two hex digits make one byte");
    }
    Some(Seed(seed))
}

/// Leaves the seed in a pipe and becomes our second image. Returns only on failure.
fn hand_over(seed: &Seed, variable: &OsStr) -> io::Result<std::convert::Infallible> {
    let program = env::current_exe()?;
    let (reader, writer) = inheritable_pipe()?;
    // Far below what any pipe holds, so it does not wait for a reader.
    rustix::io::write(&writer, seed.bytes())?;
    drop(writer);
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let failure = command
        .args(arguments)
        .env_remove(SEED_VARIABLE_NAMED_IN)
        .env_remove(variable)
        .env(DESCRIPTOR_NAMED_IN, reader.as_raw_fd().to_string())
        .exec();
    Err(failure)
}

/// A pipe whose ends survive an `exec`.
fn inheritable_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe()?)
}

/// Reads the seed that our first image has left in the descriptor `number`.
fn receive(number: &OsStr) -> io::Result<Seed> {
    let number: u32 = number
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut pipe = File::open(format!("{DESCRIPTORS}/{number}"))?;
    // The inherited descriptor itself cannot be closed by number in safe code. It is kept from our
    // children, and the pipe behind it is empty after the next lines.
    close_fds::set_fds_cloexec(FIRST_OTHER_DESCRIPTOR, &[]);
    forbid_dumps()?;
    let stat = rustix::fs::fstat(&pipe)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut seed = Zeroizing::new([0; SEED_LENGTH]);
    pipe.read_exact(&mut *seed)?;
    Ok(Seed(seed))
}

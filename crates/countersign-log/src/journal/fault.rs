//! What can go wrong with a journal: at opening ([`JournalError`]) and while writing ([`WriteError`]).
//!
//! Each variant says what, where and what to do; nothing here decides anything.

use std::io;
use std::path::{Path, PathBuf};

use super::lock::Owner;
use crate::keys::PublicKey;
use crate::tree::TreeHead;

/// Why a journal was not opened. A journal that was refused is as it was.
#[derive(Debug)]
pub enum JournalError {
    /// The system refused something.
    Io {
        /// What was tried, as a verb phrase.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The folder in which the journal should be made does not exist.
    NoFolder(PathBuf),
    /// Another process has the journal open.
    Locked {
        /// The journal.
        path: PathBuf,
        /// Who holds it.
        owner: Owner,
    },
    /// There are salts, but no journal that they belong to.
    SaltsWithoutJournal(PathBuf),
    /// The first line is not the header of a journal.
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first line.
        why: String,
    },
    /// A format that this program does not know.
    Version {
        /// The journal.
        path: PathBuf,
        /// The version it states.
        version: u64,
    },
    /// The journal is sealed and no seed was given.
    SealedNeedsSeed {
        /// The journal.
        path: PathBuf,
        /// Whose seed is needed.
        identity: PublicKey,
    },
    /// The given seed is that of another identity.
    WrongIdentity {
        /// The journal.
        path: PathBuf,
        /// Whose journal it is.
        journal: PublicKey,
        /// Whose seed was given.
        given: PublicKey,
    },
    /// A line of the journal is wrong, and not merely torn at the end.
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// A line of a sidecar is wrong, and not merely torn at the end.
    Sidecar {
        /// The sidecar.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong, and what is lost by removing the file.
        why: &'static str,
    },
    /// The journal is not the one over which a head was signed: it was cut back or rewritten.
    HeadNotReproduced(Box<HeadFault>),
    /// The newest head cannot be read or was not signed by the journal's identity.
    HeadUnreadable {
        /// Where it stands.
        file: PathBuf,
        /// What the journal now is.
        found: Box<TreeHead>,
    },
    /// A head is kept beside the key, but the journal's own list of heads is gone.
    HeadsGone(Box<HeadFault>),
    /// The head to accept (here the `head`) is not what the journal now is.
    NotThatHead(Box<HeadFault>),
    /// The name of a run cannot be a file name.
    RunName(String),
}

/// A head that was signed, and a journal that does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadFault {
    /// The journal.
    pub path: PathBuf,
    /// The file in which the head stands.
    pub kept_in: PathBuf,
    /// What was signed.
    pub head: TreeHead,
    /// What the journal now is.
    pub found: TreeHead,
}

impl JournalError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { doing, path, error }
    }
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io { doing, path, error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())
            }
            Self::NoFolder(folder) => write!(
                f,
                "the folder {} does not exist; make it, or name a journal elsewhere",
                folder.display()
            ),
            Self::Locked { path, owner } => write!(
                f,
                "journal {} is in use by {owner}; stop it, or name another journal (a folder, with a slash at its end, serves any number of processes)",
                path.display()
            ),
            Self::SaltsWithoutJournal(salts) => write!(
                f,
                "{} exists, but its journal does not; put the journal back, or move the salts away",
                salts.display()
            ),
            Self::NotAJournal { path, why } => {
                write!(f, "{} is not a journal: {why}", path.display())
            }
            Self::Version { path, version } => write!(
                f,
                "journal {} has format version {version}; this program reads version 1",
                path.display()
            ),
            Self::SealedNeedsSeed { path, identity } => write!(
                f,
                "journal {} is sealed: give the seed of identity {identity}",
                path.display()
            ),
            Self::WrongIdentity {
                path,
                journal,
                given,
            } => write!(
                f,
                "journal {} belongs to identity {journal}, the given seed to {given}; give the other seed, or name another journal",
                path.display()
            ),
            Self::Corrupt { path, line, why } => write!(
                f,
                "journal {} line {line}: {why}; this is no torn end of a write: restore the file from a copy, or begin another journal",
                path.display()
            ),
            Self::Sidecar { path, line, why } => {
                write!(f, "{} line {line}: {why}", path.display())
            }
            Self::HeadNotReproduced(fault) => write!(
                f,
                "journal {} was cut back or rewritten: its head {} was signed (see {}), but the journal is now {found}; restore it, or go on with --accept-head {found}",
                fault.path.display(),
                fault.head,
                fault.kept_in.display(),
                found = fault.found
            ),
            Self::HeadUnreadable { file, found } => write!(
                f,
                "the newest head in {} is not one that this journal's identity signed; restore the file, or go on with --accept-head {found}",
                file.display()
            ),
            Self::HeadsGone(fault) => write!(
                f,
                "journal {path} has lost its heads: {} holds head {} and {path}.heads is not there; the journal is now {found}: restore it, or go on with --accept-head {found}",
                fault.kept_in.display(),
                fault.head,
                path = fault.path.display(),
                found = fault.found
            ),
            Self::NotThatHead(fault) => write!(
                f,
                "journal {} is now {}, not {}: only its present head can be accepted",
                fault.path.display(),
                fault.found,
                fault.head
            ),
            Self::RunName(name) => write!(
                f,
                "{name:?} cannot name a run: use up to 100 letters, digits, dots, dashes and underscores, not starting with a dot"
            ),
        }
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Why something is not in the journal.
#[derive(Debug)]
pub enum WriteError {
    /// The batch is not on disk and no longer staged: stage again what is owed and commit again.
    /// [`Journal::recover`](super::Journal::recover) says whether that is worth trying.
    Lost {
        /// The file that could not be written.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// This journal takes nothing more: what is on disk is no longer known. Open it again.
    Stopped {
        /// What happened.
        why: String,
    },
}

impl WriteError {
    /// Whether there was no room, so that the reserve can help.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Lost { error, .. } if is_full(error))
    }
}

/// Whether a write failed for want of room, be it the disk's, a quota's or that of a limit on files.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Self::Stopped { why } => write!(f, "the journal has stopped: {why}; start again"),
        }
    }
}

impl std::error::Error for WriteError {}

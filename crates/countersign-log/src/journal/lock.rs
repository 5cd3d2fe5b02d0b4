//! One process per journal.
//!
//! The kernel's lock on the journal's inode comes first and is what counts between processes of this
//! program: it cannot go stale. `X.lock` with our process id is for the reference, which knows no
//! kernel lock. A lock file alone proves nothing: only a process that has this journal open counts.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::fault::JournalError;
use crate::sidecar;

/// How long a start should wait for the journal: hosts reconnect while the old process still drains.
pub const LOCK_WAIT: Duration = Duration::from_secs(3);

/// Between two tries: short against a start, long against the cost of a try.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// A path may be replaced between opening and locking; more often than this it is done on purpose.
const REPLACED_MAX: u32 = 100;

/// Longest lock file that is read: a process id is far shorter.
const LOCK_OCTETS_MAX: u64 = 64;

/// Who holds a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process with this id.
    Process(u32),
    /// Someone who holds the kernel's lock and did not (yet) write who.
    Unknown,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Process(id) => write!(f, "process {id}"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// The journal, locked. Dropping it removes our lock file and gives the kernel's lock up.
#[derive(Debug)]
pub(super) struct Lock {
    file: Arc<File>,
    path: PathBuf,
    lock_path: PathBuf,
    /// This process made the journal's file.
    pub(super) created: bool,
    /// Dropping the lock removes the journal with the sidecars that came after it: so for a journal
    /// that this process made, until it is fully there.
    pub(super) remove: bool,
    /// Sidecars that were there before the journal was made, such as the heads of one that someone
    /// removed: evidence, which is never removed with a new journal.
    earlier: Vec<&'static str>,
}

/// What a try to take the lock came to.
enum Try {
    Taken(Lock),
    Held(Owner),
    Replaced,
}

impl Lock {
    /// Opens the journal at `path`, making an empty file if there is none, and locks it.
    pub(super) fn take(path: &Path, wait: Duration) -> Result<Self, JournalError> {
        let mut tries_left = wait.as_millis() / RETRY_EVERY.as_millis();
        let mut replaced = 0;
        let earlier: Vec<_> = super::SIDECARS
            .into_iter()
            .filter(|name| sidecar::path(path, name).exists())
            .collect();
        let mut created = false;
        loop {
            match Self::try_take(path, &earlier, &mut created)? {
                Try::Taken(lock) => return Ok(lock),
                Try::Replaced if replaced < REPLACED_MAX => replaced += 1,
                Try::Replaced => {
                    return Err(JournalError::Locked {
                        path: path.to_owned(),
                        owner: Owner::Unknown,
                    });
                }
                Try::Held(owner) if tries_left == 0 => {
                    return Err(JournalError::Locked {
                        path: path.to_owned(),
                        owner,
                    });
                }
                Try::Held(_) => {
                    tries_left -= 1;
                    std::thread::sleep(RETRY_EVERY);
                }
            }
        }
    }

    /// The open journal.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    fn try_take(
        path: &Path,
        earlier: &[&'static str],
        created: &mut bool,
    ) -> Result<Try, JournalError> {
        let Some(file) = open_or_create(path, created)? else {
            return Ok(Try::Replaced);
        };
        let lock_path = sidecar::path(path, "lock");
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let owner = pid_in(&lock_path).map_or(Owner::Unknown, Owner::Process);
                return Ok(Try::Held(owner));
            }
            Err(TryLockError::Error(error)) => {
                return Err(JournalError::io("lock", path)(error));
            }
        }
        if !is_at(&file, path) {
            *created = false;
            return Ok(Try::Replaced);
        }
        if let Some(pid) = pid_in(&lock_path).filter(|pid| *pid != std::process::id())
            && has_open(pid, &file)
        {
            return Ok(Try::Held(Owner::Process(pid)));
        }
        // From here on, dropping it on the way out undoes what was done.
        let lock = Self {
            file: Arc::new(file),
            path: path.to_owned(),
            lock_path,
            created: *created,
            remove: *created,
            earlier: earlier.to_vec(),
        };
        match write_pid(&lock.lock_path) {
            Ok(true) => Ok(Try::Taken(lock)),
            Ok(false) => {
                *created = false;
                Ok(Try::Replaced)
            }
            Err(error) => Err(JournalError::io("write", &lock.lock_path)(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.remove {
            // Still locked, so nobody can be writing; whoever waits finds that the file is gone.
            for name in super::SIDECARS {
                if self.earlier.contains(&name) {
                    continue;
                }
                let _ = fs::remove_file(sidecar::path(&self.path, name));
            }
            let _ = fs::remove_file(&self.path);
        }
        if pid_in(&self.lock_path) == Some(std::process::id()) {
            // A lock file that stays is taken over by the next process: nothing is lost.
            let _ = fs::remove_file(&self.lock_path);
        }
        // Closing the file unlocks it, but a sync on another thread may still hold a reference.
        let _ = self.file.unlock();
    }
}

/// The journal's file, made empty and 0600 if there is none. `None` if it came or went meanwhile.
fn open_or_create(path: &Path, created: &mut bool) -> Result<Option<File>, JournalError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Ok(file) => return Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(JournalError::io("open", path)(error)),
    }
    let folder = sidecar::folder_of(path);
    if !folder.is_dir() {
        return Err(JournalError::NoFolder(folder.to_owned()));
    }
    let salts = sidecar::path(path, "salts");
    if salts.exists() {
        return Err(JournalError::SaltsWithoutJournal(salts));
    }
    match options.create_new(true).mode(0o600).open(path) {
        Ok(file) => {
            *created = true;
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(JournalError::io("create", path)(error)),
    }
}

/// Whether `path` still names the open `file`.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.dev() == named.dev() && open.ino() == named.ino(),
        _ => false,
    }
}

/// Writes our process id into a fresh lock file; false if another process was faster.
fn write_pid(lock_path: &Path) -> io::Result<bool> {
    match fs::remove_file(lock_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    match options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(lock_path)
    {
        Ok(mut file) => {
            let written = file.write_all(format!("{}\n", std::process::id()).as_bytes());
            if written.is_err() {
                // An empty lock file would be taken over anyway.
                let _ = fs::remove_file(lock_path);
            }
            written.map(|()| true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The process id in a lock file, if there is one.
fn pid_in(lock_path: &Path) -> Option<u32> {
    let mut text = String::new();
    let file = File::open(lock_path).ok()?;
    file.take(LOCK_OCTETS_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Whether process `pid` has the journal open. A process whose files cannot be read counts as one that
/// has; where there is no `/proc`, only the kernel's lock decides.
fn has_open(pid: u32, journal: &File) -> bool {
    let Ok(journal) = journal.metadata() else {
        return true;
    };
    let folder = format!("/proc/{pid}/fd");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    entries.flatten().any(|entry| {
        fs::metadata(entry.path())
            .is_ok_and(|open| open.dev() == journal.dev() && open.ino() == journal.ino())
    })
}

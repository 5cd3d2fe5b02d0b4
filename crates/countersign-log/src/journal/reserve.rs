//! `X.reserve`: room on the disk that is given up when it is full, for the outcomes that are owed.
//!
//! A call that was forwarded must get its outcome written even when the disk filled up meanwhile. The
//! file's content means nothing; it is there while the journal is open.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::sidecar;

/// Room for some 1,800 outcomes with their salts and pairs.
const RESERVE_OCTETS: usize = 1 << 20;

/// The reserve of one journal.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    kept: bool,
}

impl Reserve {
    /// Tries to keep room beside the journal.
    pub(super) fn beside(journal: &Path) -> Self {
        let mut reserve = Self {
            path: sidecar::path(journal, "reserve"),
            kept: false,
        };
        // Without it the journal works; its caller asks for it before the next call.
        let _ = reserve.keep();
        reserve
    }

    /// Whether the room is there.
    pub(super) fn is_kept(&self) -> bool {
        self.kept
    }

    /// Takes the room again, if the disk has it.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        if self.kept {
            return Ok(());
        }
        let written = self.write();
        self.kept = written.is_ok();
        if !self.kept {
            self.give_up();
        }
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })
    }

    /// Gives the room up.
    pub(super) fn give_up(&mut self) {
        self.kept = false;
        // If it cannot be removed, there is no room to gain.
        let _ = fs::remove_file(&self.path);
    }

    fn write(&self) -> io::Result<()> {
        // Not zeros: file systems that compress or punch holes would keep no room for them.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut octets = Vec::with_capacity(RESERVE_OCTETS);
        while octets.len() < RESERVE_OCTETS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            octets.extend(state.to_le_bytes());
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(&octets)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.give_up();
    }
}

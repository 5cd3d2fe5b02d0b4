//! One file that only grows at its end, and what is known to be good of it.
//!
//! A write goes to the end of what is good; only when the whole batch is written does the end move. So
//! a failed or short write leaves nothing that must be kept, and [`Store::cut_back`] removes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where files come from: the file system, or in tests one that fails as it is told.
#[derive(Clone, Debug)]
pub(super) enum Disk {
    Real,
    #[cfg(test)]
    Faulty(Arc<super::faulty::Faults>),
}

/// The three operations that can lose something.
#[derive(Debug)]
pub(super) enum Medium {
    Real(Arc<File>),
    #[cfg(test)]
    Faulty(Arc<File>, Arc<super::faulty::Faults>, PathBuf),
}

impl Medium {
    pub(super) fn file(&self) -> &File {
        match self {
            Self::Real(file) => file,
            #[cfg(test)]
            Self::Faulty(file, _, _) => file,
        }
    }

    fn write_at(&self, octets: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Real(file) => file.write_all_at(octets, offset),
            #[cfg(test)]
            Self::Faulty(file, faults, path) => faults.write_at(file, path, octets, offset),
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        match self {
            Self::Real(file) => file.set_len(length),
            #[cfg(test)]
            Self::Faulty(file, faults, path) => faults.truncate(file, path, length),
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Real(file) => file.sync_data(),
            #[cfg(test)]
            Self::Faulty(file, faults, path) => faults.sync(file, path),
        }
    }
}

/// A file and the end of its good part.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    medium: Arc<Medium>,
    good: u64,
    synced: u64,
}

impl Store {
    /// Opens the sidecar at `path`, 0600 if it is new, of which the first `good` octets count.
    pub(super) fn open(path: PathBuf, disk: &Disk, good: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        Self::over(Arc::new(file), path, disk, good)
    }

    /// The open `file`, of which the first `good` octets count: the rest is cut off.
    pub(super) fn over(file: Arc<File>, path: PathBuf, disk: &Disk, good: u64) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let medium = match disk {
            Disk::Real => Medium::Real(file),
            #[cfg(test)]
            Disk::Faulty(faults) => Medium::Faulty(file, faults.clone(), path.clone()),
        };
        let store = Self {
            path,
            medium: Arc::new(medium),
            good,
            synced: 0,
        };
        if length > good {
            store.cut_back()?;
        }
        Ok(store)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn medium(&self) -> &Arc<Medium> {
        &self.medium
    }

    /// End of the good part.
    pub(super) fn good(&self) -> u64 {
        self.good
    }

    /// Writes behind the good part, with one `write` unless the system splits it.
    pub(super) fn write(&self, octets: &[u8]) -> io::Result<()> {
        if octets.is_empty() {
            return Ok(());
        }
        self.medium.write_at(octets, self.good)
    }

    /// What was written last is good now.
    pub(super) fn accept(&mut self, octets: usize) {
        self.good += octets as u64;
    }

    /// Writes and accepts in one, for what is not part of a batch.
    pub(super) fn append(&mut self, octets: &[u8]) -> io::Result<()> {
        match self.write(octets) {
            Ok(()) => {
                self.accept(octets.len());
                Ok(())
            }
            Err(error) => {
                // What stays behind the good part is overwritten by the next write, or cut at the
                // next start: the first error is the one to report.
                let _ = self.cut_back();
                Err(error)
            }
        }
    }

    /// Removes whatever stands behind the good part.
    pub(super) fn cut_back(&self) -> io::Result<()> {
        self.medium.truncate(self.good)
    }

    /// Whether something good may not be on disk yet.
    pub(super) fn is_unsynced(&self) -> bool {
        self.synced < self.good
    }

    /// The first `octets` are on disk.
    pub(super) fn note_synced(&mut self, octets: u64) {
        self.synced = self.synced.max(octets);
    }
}

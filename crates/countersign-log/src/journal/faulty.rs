//! A disk that fails as it is told, for tests: each fault lost, or persisted but reported lost.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;

/// The operation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    Truncate,
    Sync,
}

/// What happens to the data although the caller sees a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing of it happened.
    Lost,
    /// Half of it happened.
    Half,
    /// It happened, and was reported lost.
    Persisted,
}

/// One fault: the next such operation on a file whose name ends so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) operation: Operation,
    pub(super) name_ends: &'static str,
    pub(super) effect: Effect,
    pub(super) kind: io::ErrorKind,
}

/// The faults to come.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<VecDeque<Fault>>);

impl Faults {
    pub(super) fn plan(&self, fault: Fault) {
        self.0
            .lock()
            .expect("no test panics while it plans")
            .push_back(fault);
    }

    fn due(&self, operation: Operation, path: &Path) -> Option<Fault> {
        let mut faults = self.0.lock().expect("no test panics while it plans");
        let at = faults.iter().position(|fault| {
            fault.operation == operation && path.to_string_lossy().ends_with(fault.name_ends)
        })?;
        faults.remove(at)
    }

    pub(super) fn write_at(
        &self,
        file: &File,
        path: &Path,
        octets: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let Some(fault) = self.due(Operation::Write, path) else {
            return file.write_all_at(octets, offset);
        };
        let written = match fault.effect {
            Effect::Lost => 0,
            Effect::Half => octets.len() / 2,
            Effect::Persisted => octets.len(),
        };
        file.write_all_at(&octets[..written], offset)?;
        Err(fault.kind.into())
    }

    pub(super) fn truncate(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        match self.due(Operation::Truncate, path) {
            None => file.set_len(length),
            Some(fault) => {
                if fault.effect == Effect::Persisted {
                    file.set_len(length)?;
                }
                Err(fault.kind.into())
            }
        }
    }

    pub(super) fn sync(&self, file: &File, path: &Path) -> io::Result<()> {
        match self.due(Operation::Sync, path) {
            None => file.sync_data(),
            Some(fault) => {
                if fault.effect == Effect::Persisted {
                    file.sync_data()?;
                }
                Err(fault.kind.into())
            }
        }
    }
}

//! A journal that is a folder: each run writes its own file, so that any number of processes can run
//! under one identity at once.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::fault::JournalError;
use super::heads;
use crate::keys::PublicKey;
use crate::segments::journals_in;
use crate::tree::TreeHead;

/// Earlier runs whose heads a run names: the newest by name, which begin with their time.
pub const EARLIER_RUNS_MAX: usize = 100;

const RUN_NAME_OCTETS_MAX: usize = 100;

/// Whether a path given for a journal means a folder of journals: it ends with a slash, or one is there.
pub fn is_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir()
}

/// The journal of run `run_id` in `folder`, which is made (0700, with those above it) if need be.
///
/// # Errors
/// The name cannot be a file name, or the folder cannot be made.
pub fn run_path(folder: &Path, run_id: &str) -> Result<PathBuf, JournalError> {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
    if run_id.is_empty()
        || run_id.len() > RUN_NAME_OCTETS_MAX
        || run_id.starts_with('.')
        || !run_id.bytes().all(plain)
    {
        return Err(JournalError::RunName(run_id.to_owned()));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(JournalError::io("make the folder", folder))?;
    Ok(folder.join(format!("{run_id}.wlog")))
}

/// The newest head of another run of the same folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    /// File name of its journal.
    pub journal: String,
    /// What it signed last.
    pub head: TreeHead,
}

/// The heads of the newest [`EARLIER_RUNS_MAX`] journals of `folder` but `own`, by name. A run that
/// signed nothing (yet), or whose heads cannot be read, is left out: `verify` is there to judge it.
///
/// # Errors
/// The folder cannot be read.
pub fn earlier_heads(
    folder: &Path,
    own: &Path,
    identity: PublicKey,
) -> Result<Vec<RunHead>, JournalError> {
    let mut journals = journals_in(folder).map_err(JournalError::io("read the folder", folder))?;
    journals.retain(|path| path != own);
    let newest = journals.split_off(journals.len().saturating_sub(EARLIER_RUNS_MAX));
    Ok(newest
        .into_iter()
        .filter_map(|path| {
            Some(RunHead {
                journal: path.file_name()?.to_str()?.to_owned(),
                head: heads::newest_of(&path, identity)?,
            })
        })
        .collect())
}

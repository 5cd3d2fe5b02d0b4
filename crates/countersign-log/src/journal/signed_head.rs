//! A head that was just signed, on its way to the places where it is needed.

use std::path::PathBuf;
use std::sync::Arc;

use super::fault::WriteError;
use super::kept_heads;
use super::store::Medium;
use crate::checkpoint::Checkpoint;

/// A head that was signed and appended to the journal's list.
#[derive(Debug)]
pub struct SignedHead {
    /// The head as dossiers carry it.
    pub checkpoint: Checkpoint,
    /// The head as a signed note.
    pub note: String,
    pub(super) segment: u32,
    pub(super) copy: Option<PathBuf>,
    pub(super) heads: Arc<Medium>,
}

impl SignedHead {
    /// Writes the copy beside the key, if one is kept there. Slow (it syncs): hold no lock. The list of
    /// heads goes to the disk first: were only the copy there after a power cut, the next start would
    /// take the journal for robbed of its heads.
    ///
    /// # Errors
    /// What the system said; the copy is then as it was.
    pub fn keep(&self) -> Result<(), WriteError> {
        let Some(path) = &self.copy else {
            return Ok(());
        };
        self.heads
            .sync()
            .and_then(|()| kept_heads::write_copy(path, self.segment, &self.note))
            .map_err(|error| WriteError::Lost {
                path: path.clone(),
                error,
            })
    }
}

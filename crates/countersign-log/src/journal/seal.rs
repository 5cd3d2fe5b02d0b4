//! Whose journal it is: the identity that its header names, and the seed that goes on signing in it.
//!
//! A sealed journal is continued only with its identity's seed; an unsealed one brings its own. Neither
//! is rewritten as the other.

use std::path::Path;

use super::fault::JournalError;
use crate::header::{self, Header, HeaderError};
use crate::keys::{Identity, PublicKey};
use crate::lines::Lines;
use crate::sidecar;

/// Where an identity's seed comes from.
pub enum Seal {
    /// From outside the journal: the header holds only the public key.
    Sealed(Identity),
    /// From the journal's header; a new journal takes this fresh random seed.
    Unsealed {
        /// 32 random octets, unused when the journal exists.
        seed: [u8; 32],
    },
}

impl std::fmt::Debug for Seal {
    /// Without the seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sealed(identity) => write!(f, "Sealed({})", identity.public()),
            Self::Unsealed { .. } => f.write_str("Unsealed"),
        }
    }
}

impl Seal {
    /// The identity that goes on writing the journal at `path`.
    pub(super) fn open(self, header: &Header, path: &Path) -> Result<Identity, JournalError> {
        match (self, header.seed) {
            (Self::Sealed(given), _) if given.public() == header.identity => Ok(given),
            (Self::Sealed(given), _) => Err(JournalError::WrongIdentity {
                path: path.to_owned(),
                journal: header.identity,
                given: given.public(),
            }),
            (Self::Unsealed { .. }, Some(seed)) => Ok(Identity::from_seed(&seed)),
            (Self::Unsealed { .. }, None) => Err(JournalError::SealedNeedsSeed {
                path: path.to_owned(),
                identity: header.identity,
            }),
        }
    }
}

/// Whose journal a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOwner {
    /// The identity that signs it.
    pub identity: PublicKey,
    /// The seed stands in the journal's own header.
    pub unsealed: bool,
}

/// Whose journal stands at `path`; `None` where there is none yet, or nothing but a torn beginning.
///
/// # Errors
/// It cannot be read, or its first line is complete and no journal's.
pub fn identity_of(path: &Path) -> Result<Option<JournalOwner>, JournalError> {
    let Some(file) = sidecar::open(path).map_err(JournalError::io("open", path))? else {
        return Ok(None);
    };
    let mut lines = Lines::new(file);
    let first = lines.next().map_err(JournalError::io("read", path))?;
    let Some(line) = first.filter(|line| line.terminated) else {
        return Ok(None);
    };
    let header = read_header(line.text, path)?;
    Ok(Some(JournalOwner {
        identity: header.identity,
        unsealed: header.seed.is_some(),
    }))
}

/// The header of the journal at `path`.
pub(super) fn read_header(text: &[u8], path: &Path) -> Result<Header, JournalError> {
    let path = path.to_owned();
    Header::read(text).map_err(|error| match error {
        HeaderError::Version(version) => JournalError::Version { path, version },
        error => JournalError::NotAJournal {
            path,
            why: error.to_string(),
        },
    })
}

/// Whether `content`, a whole file, is what a crash leaves between making a journal and its header:
/// nothing, zeros (blocks that were never written), or the beginning of a header. A file that someone
/// named by mistake is none of these, so it is not overwritten.
pub(super) fn is_torn(content: &[u8], seal: &Seal) -> bool {
    if content.iter().all(|octet| *octet == 0) {
        return true;
    }
    match seal {
        Seal::Sealed(identity) => header::line(identity, false).starts_with(content),
        Seal::Unsealed { seed } => {
            // The torn seed was another one; only the form around it can be compared.
            let whole = header::line(&Identity::from_seed(seed), true);
            content.len() < whole.len()
                && content.iter().zip(&whole).enumerate().all(|(at, (a, b))| {
                    a == b || (SEED_COLUMNS.contains(&at) && a.is_ascii_hexdigit())
                })
        }
    }
}

/// Where the seed's digits stand in the line of an unsealed journal.
const SEED_COLUMNS: std::ops::Range<usize> = 42..106;

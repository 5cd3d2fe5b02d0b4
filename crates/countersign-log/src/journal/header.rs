//! The first line of a journal: its format, whose it is, and whether the seed stands in it.
//!
//! Sealed is the rule: the line then holds only the public key. An unsealed journal keeps the seed in
//! its own header, so whoever reads it can sign in its name; it is continued, never rewritten.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _};
use std::path::Path;

use super::fault::JournalError;
use crate::hex;
use crate::json::Members;
use crate::keys::{Identity, PublicKey};

const FIELDS: [&str; 4] = [
    "format_version",
    "identity_bytes_hex",
    "identity_pubkey_hex",
    "session_number",
];

const VERSION: u64 = 1;

/// Longest header that is looked for: ours have 153 octets, foreign ones may have more members.
const LINE_OCTETS_MAX: u64 = 64 << 10;

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

/// A header, as read.
pub(super) struct Header {
    seed: Option<[u8; 32]>,
    identity: PublicKey,
    /// Session numbers of this journal begin here.
    pub(super) session_number: u64,
}

impl Header {
    /// Reads the first line of a journal.
    pub(super) fn read(text: &[u8], path: &Path) -> Result<Self, JournalError> {
        let not_a_journal = |why: String| JournalError::NotAJournal {
            path: path.to_owned(),
            why,
        };
        let json = |error: crate::json::JsonError| not_a_journal(error.to_string());
        if std::str::from_utf8(text).is_err() {
            return Err(not_a_journal("its first line is not UTF-8".into()));
        }
        let members = Members::read(text, &FIELDS).map_err(json)?;
        let version = members.u64(0).map_err(json)?;
        if version != VERSION {
            return Err(JournalError::Version {
                path: path.to_owned(),
                version,
            });
        }
        let seed = members.string(1).map_err(json)?;
        let session_number = members.u64(3).map_err(json)?;
        let stated = members.optional_string(2).map_err(json)?;
        if let (true, Some(key)) = (seed.is_empty(), &stated) {
            let identity = PublicKey::from_hex(key)
                .map_err(|error| not_a_journal(format!("`identity_pubkey_hex`: {error}")))?;
            return Ok(Self {
                seed: None,
                identity,
                session_number,
            });
        }
        let seed = hex::decode(seed.as_bytes())
            .map_err(|error| not_a_journal(format!("`identity_bytes_hex`: {error}")))?;
        Ok(Self {
            seed: Some(seed),
            identity: Identity::from_seed(&seed).public(),
            session_number,
        })
    }

    /// The identity that goes on writing this journal.
    pub(super) fn identity(&self, seal: Seal, path: &Path) -> Result<Identity, JournalError> {
        match (seal, self.seed) {
            (Seal::Sealed(given), _) if given.public() == self.identity => Ok(given),
            (Seal::Sealed(given), _) => Err(JournalError::WrongIdentity {
                path: path.to_owned(),
                journal: self.identity,
                given: given.public(),
            }),
            (Seal::Unsealed { .. }, Some(seed)) => Ok(Identity::from_seed(&seed)),
            (Seal::Unsealed { .. }, None) => Err(JournalError::SealedNeedsSeed {
                path: path.to_owned(),
                identity: self.identity,
            }),
        }
    }

    /// Whether the seed stands in the journal.
    pub(super) fn is_unsealed(&self) -> bool {
        self.seed.is_some()
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
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(JournalError::io("open", path))?,
    };
    let mut line = Vec::new();
    let mut start = io::BufReader::new(file).take(LINE_OCTETS_MAX);
    start
        .read_until(b'\n', &mut line)
        .map_err(JournalError::io("read", path))?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        return Ok(None);
    }
    let header = Header::read(&line, path)?;
    Ok(Some(JournalOwner {
        identity: header.identity,
        unsealed: header.is_unsealed(),
    }))
}

/// The line that begins a new journal, newline included.
pub(super) fn line(identity: &Identity, unsealed: bool) -> Vec<u8> {
    if unsealed {
        format!(
            "{{\"format_version\":{VERSION},\"identity_bytes_hex\":\"{}\",\"session_number\":0}}\n",
            hex::encode(&identity.seed())
        )
    } else {
        format!(
            "{{\"format_version\":{VERSION},\"identity_bytes_hex\":\"\",\"identity_pubkey_hex\":\"{}\",\"session_number\":0}}\n",
            identity.public()
        )
    }
    .into_bytes()
}

/// Whether `content`, a whole file, is what a crash leaves between making a journal and its header:
/// nothing, zeros (blocks that were never written), or the beginning of a header. A file that someone
/// named by mistake is none of these, so it is not overwritten.
pub(super) fn is_torn(content: &[u8], seal: &Seal) -> bool {
    if content.iter().all(|octet| *octet == 0) {
        return true;
    }
    match seal {
        Seal::Sealed(identity) => line(identity, false).starts_with(content),
        Seal::Unsealed { seed } => {
            // The torn seed was another one; only the form around it can be compared.
            let whole = line(&Identity::from_seed(seed), true);
            content.len() < whole.len()
                && content.iter().zip(&whole).enumerate().all(|(at, (a, b))| {
                    a == b || (SEED_COLUMNS.contains(&at) && a.is_ascii_hexdigit())
                })
        }
    }
}

/// Where the seed's digits stand in the line of an unsealed journal.
const SEED_COLUMNS: std::ops::Range<usize> = 42..106;

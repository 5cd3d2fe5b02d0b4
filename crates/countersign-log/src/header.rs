//! The first line of a journal: its format, whose it is, and whether the seed stands in it.
//!
//! Sealed is the rule: the line then holds only the public key. An unsealed journal keeps the seed in
//! its own header, so whoever reads it can sign in its name.

use crate::hex::{self, HexError};
use crate::json::{JsonError, Members};
use crate::keys::{Identity, PublicKey};

const FIELDS: [&str; 4] = [
    "format_version",
    "identity_bytes_hex",
    "identity_pubkey_hex",
    "session_number",
];

const VERSION: u64 = 1;

/// A header, as read.
pub(crate) struct Header {
    /// Whose journal it is.
    pub(crate) identity: PublicKey,
    /// The identity's seed, where it stands in the journal.
    pub(crate) seed: Option<[u8; 32]>,
    /// Session numbers of this journal begin here.
    pub(crate) session_number: u64,
}

/// Why a line is not a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// It is no text.
    NotUtf8,
    /// It is not the object that it must be.
    Json(JsonError),
    /// Its format is not ours.
    Version(u64),
    /// This member is not the hex of 32 octets.
    Hex(&'static str, HexError),
    /// It names another identity than its seed gives.
    SeedOfAnother,
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotUtf8 => f.write_str("its first line is not UTF-8"),
            Self::Json(error) => error.fmt(f),
            Self::Version(version) => write!(f, "format {version} is unknown"),
            Self::Hex(member, error) => write!(f, "`{member}`: {error}"),
            Self::SeedOfAnother => f.write_str("its seed is not that of its identity"),
        }
    }
}

impl std::error::Error for HeaderError {}

impl Header {
    /// Reads the first line of a journal.
    ///
    /// # Errors
    /// It is no header, or one of a format that is not known here.
    pub(crate) fn read(text: &[u8]) -> Result<Self, HeaderError> {
        std::str::from_utf8(text).map_err(|_| HeaderError::NotUtf8)?;
        let members = Members::read(text, &FIELDS).map_err(HeaderError::Json)?;
        let version = members.u64(0).map_err(HeaderError::Json)?;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let seed = members.string(1).map_err(HeaderError::Json)?;
        let stated = members.optional_string(2).map_err(HeaderError::Json)?;
        let session_number = members.u64(3).map_err(HeaderError::Json)?;
        let stated = stated
            .map(|key| PublicKey::from_hex(&key))
            .transpose()
            .map_err(|error| HeaderError::Hex(FIELDS[2], error))?;
        if let (true, Some(identity)) = (seed.is_empty(), stated) {
            return Ok(Self {
                identity,
                seed: None,
                session_number,
            });
        }
        let seed =
            hex::decode(seed.as_bytes()).map_err(|error| HeaderError::Hex(FIELDS[1], error))?;
        let identity = Identity::from_seed(&seed).public();
        if stated.is_some_and(|stated| stated != identity) {
            return Err(HeaderError::SeedOfAnother);
        }
        Ok(Self {
            identity,
            seed: Some(seed),
            session_number,
        })
    }
}

/// The line that begins a new journal, newline included.
pub(crate) fn line(identity: &Identity, unsealed: bool) -> Vec<u8> {
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

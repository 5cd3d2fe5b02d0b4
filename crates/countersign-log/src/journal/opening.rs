//! What a start is given, and what it found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ledger::OpenIntents;
use super::seal::Seal;
use super::segment::Limits;
use crate::tree::TreeHead;

/// Everything that a start is given: nothing random or timely is found out here.
pub struct Opening<'a> {
    /// The journal's file. Its folder must exist.
    pub path: &'a Path,
    /// Whose journal it is.
    pub seal: Seal,
    /// 32 fresh random octets: the key of this session, and the salts of segment leaves.
    pub session_seed: [u8; 32],
    /// Unix milliseconds.
    pub now_ms: u64,
    /// Where the newest head is also kept, beside the key.
    pub key_head: Option<&'a Path>,
    /// The head that the journal now has, to go on although it does not reproduce what was signed.
    pub accept_head: Option<TreeHead>,
    /// How long to wait while another process holds the journal; [`LOCK_WAIT`](super::LOCK_WAIT) is right for hosts.
    pub lock_wait: Duration,
    /// Called once the journal is locked, before it is read: reading a long one takes a while.
    pub locked: Option<&'a dyn Fn()>,
    /// When to go on in the next segment.
    pub limits: Limits,
}

impl std::fmt::Debug for Opening<'_> {
    /// Without the seeds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// What a start found.
#[derive(Debug)]
pub struct Opened {
    /// This process made the journal.
    pub created: bool,
    /// The segment that is written now.
    pub segment: u32,
    /// Leaves in this segment.
    pub leaves: u64,
    /// Number of this session in this segment.
    pub session_number: u64,
    /// Torn lines that were cut off the end: 0 or 1.
    pub dropped_lines: u64,
    /// Calls without an outcome, for [`Journal::stage_lost`](super::Journal::stage_lost).
    pub open_intents: OpenIntents,
    /// What the operator should be told.
    pub warnings: Vec<Warning>,
}

/// Something about a journal that does not keep it from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The seed stands in the journal's header.
    Unsealed,
    /// An empty file, or one with only a torn header, was made into a new journal.
    MadeAnew {
        /// Salts of leaves that are gone.
        salts_moved_to: Option<PathBuf>,
    },
    /// Earlier leaves can be neither disclosed nor forgotten.
    SaltsMissing,
    /// The last head was torn, and cut off.
    HeadTorn,
    /// The operator accepted a journal that is not the one that was signed.
    HeadAccepted {
        /// What the journal is.
        head: TreeHead,
        /// Why it would have been refused.
        instead: String,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsealed => f.write_str(
                "the journal is unsealed: whoever can read it has the seed and can sign in its name",
            ),
            Self::MadeAnew {
                salts_moved_to: None,
            } => f.write_str("the journal was empty, as after a crash, and was made anew"),
            Self::MadeAnew {
                salts_moved_to: Some(path),
            } => write!(
                f,
                "the journal was empty though it had leaves before, and was made anew; their salts are now in {}",
                path.display()
            ),
            Self::SaltsMissing => f.write_str(
                "the salts are gone: earlier leaves can be neither disclosed nor forgotten",
            ),
            Self::HeadTorn => f.write_str("the last signed head was torn and has been cut off"),
            Self::HeadAccepted { head, instead } => {
                write!(f, "head {head} was accepted by the operator although {instead}")
            }
        }
    }
}

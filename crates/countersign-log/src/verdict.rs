//! The verdict: what holds of a journal or a dossier, what does not, and where.
//!
//! Everything is read once, front to back, in memory that does not grow with the number of leaves.
//! Only the files themselves are believed: whoever holds the identity's key can write another
//! journal that verifies just as well, and without a trusted directory of witnesses the best verdict
//! is therefore [`Verdict::Unanchored`].
//!
//! Nothing here writes, and nothing here decides what a verdict is good for.

mod calls;
mod dossier;
mod journal;
mod leaves;
mod sessions;
mod target;

pub use calls::{CallsReport, Intents};
pub use dossier::{DossierReport, verify_dossier};
pub use journal::{Ending, HeadsReport, JournalReport, Sidecars, verify_journal};
pub use target::{Report, Segment, Target, Unreadable, targets, verify};

use crate::hash::Hash;
use crate::leaf::LeafFault;

/// What can be said in the end. The names and numbers are the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Something does not hold.
    Invalid,
    /// All of it holds, on the word of the identity alone.
    Unanchored,
}

impl Verdict {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unanchored => "unanchored",
        }
    }

    /// The exit code by which the reference's command says it.
    pub fn reference_exit(self) -> u8 {
        match self {
            Self::Invalid => 40,
            Self::Unanchored => 20,
        }
    }
}

/// Where something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A line of a journal, from 1.
    Line(u64),
    /// A leaf, by its position; the line is that of a journal.
    Leaf {
        /// Position from 0.
        position: u64,
        /// Line from 1, in a journal.
        line: Option<u64>,
    },
    /// A key binding of a dossier, from 0.
    Binding(u64),
    /// A revocation of a dossier, from 0.
    Revocation(u64),
    /// A line of the file of signed heads, from 1.
    Heads(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => f.write_str("file"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Leaf {
                position,
                line: None,
            } => write!(f, "leaf {position}"),
            Self::Leaf {
                position,
                line: Some(line),
            } => write!(f, "leaf {position} (line {line})"),
            Self::Binding(at) => write!(f, "key binding {at}"),
            Self::Revocation(at) => write!(f, "revocation {at}"),
            Self::Heads(line) => write!(f, "line {line} of the signed heads"),
        }
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The first line is not a journal's header.
    Header(String),
    /// A line is neither leaf nor binding, and lines follow it.
    Unparsable(String),
    /// A leaf breaks a rule of its kind or place.
    Structure(LeafFault),
    /// No binding authorises the leaf's session key.
    Unbound,
    /// The leaf is not by the session that the last binding before it opened.
    NotTheOpenSession,
    /// The leaf is by one session more than can be told apart.
    TooManySessions,
    /// The leaf is later than its session was allowed to write.
    AfterSession {
        /// Unix milliseconds of the session's end.
        not_after_ms: u64,
    },
    /// A binding is by another identity.
    BindingOfAnother(String),
    /// The identity did not sign this binding.
    BindingSignature,
    /// Sessions are numbered upwards, and this one is not.
    SessionOrder {
        /// Its number.
        number: u64,
        /// The lowest that it may have.
        lowest: u64,
    },
    /// A revocation is by another identity, or not signed by it.
    Revocation,
    /// A leaf or the checkpoint is from after the identity was revoked.
    Revoked,
    /// The identity did not sign the checkpoint.
    CheckpointSignature,
    /// The checkpoint is by another identity than the dossier's.
    CheckpointOfAnother,
    /// It is not the identity that was asked for.
    NotPinned(String),
    /// The checkpoint is over another number of leaves.
    Size {
        /// Leaves that are there.
        leaves: u64,
        /// Leaves that were signed.
        claimed: u64,
    },
    /// The leaves do not give the signed root.
    Root {
        /// What they give.
        root: Hash,
    },
    /// A head cannot be read, or the journal's identity did not sign it.
    HeadUnreadable(String),
    /// The first leaves do not give the root that was signed over them.
    HeadNotReproduced {
        /// Leaves under the head.
        size: u64,
        /// Leaves under the newest head before it that is reproduced.
        reproduced: u64,
    },
    /// A head was signed over more leaves than are there.
    CutBack {
        /// Leaves under the head.
        size: u64,
        /// Leaves that are there.
        leaves: u64,
    },
    /// A segment before this one is missing.
    SegmentMissing(u32),
    /// The segment is by another identity than the first.
    SegmentOfAnother,
    /// The segment's first payload does not name the head of the segment before it.
    SegmentLink(u32),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(why) => write!(f, "not the header of a journal: {why}"),
            Self::Unparsable(why) => write!(f, "neither leaf nor key binding: {why}"),
            Self::Structure(fault) => fault.fmt(f),
            Self::Unbound => f.write_str("no key binding authorises its session key"),
            Self::NotTheOpenSession => {
                f.write_str("its session key is not the one that the last key binding opened")
            }
            Self::TooManySessions => f.write_str(
                "by one session more than the 1,048,576 that can be told apart; verify the journal itself",
            ),
            Self::AfterSession { not_after_ms } => {
                write!(f, "written after its session ended at {not_after_ms} ms")
            }
            Self::BindingOfAnother(identity) => write!(f, "signed by another identity, {}", identity.escape_debug()),
            Self::BindingSignature => {
                f.write_str("the identity's signature under the key binding is wrong")
            }
            Self::CheckpointSignature => {
                f.write_str("the identity's signature under the checkpoint is wrong")
            }
            Self::SessionOrder { number, lowest } => {
                write!(
                    f,
                    "session number {number}, where {lowest} or more must stand"
                )
            }
            Self::Revocation => f.write_str("not signed by this identity"),
            Self::Revoked => {
                f.write_str("a leaf or the checkpoint is from after the identity was revoked")
            }
            Self::CheckpointOfAnother => {
                f.write_str("the checkpoint was signed by another identity than the dossier names")
            }
            Self::NotPinned(identity) => {
                let identity = identity.escape_debug();
                write!(
                    f,
                    "written by {identity}, which is not the identity asked for"
                )
            }
            Self::Size { leaves, claimed } => {
                write!(
                    f,
                    "{leaves} leaves, but the checkpoint was signed over {claimed}"
                )
            }
            Self::Root { root } => write!(
                f,
                "the leaves give root {root}, which is not the signed one"
            ),
            Self::HeadUnreadable(why) => write!(f, "not a head of this journal: {why}"),
            Self::HeadNotReproduced { size, reproduced } => write!(
                f,
                "the head signed over {size} leaves is not reproduced: a leaf from {reproduced} up to {} was changed",
                size.saturating_sub(1)
            ),
            Self::CutBack { size, leaves } => write!(
                f,
                "cut back: a head was signed over {size} leaves, {leaves} are left"
            ),
            Self::SegmentMissing(number) => write!(f, "segment {number} of the set is missing"),
            Self::SegmentOfAnother => {
                f.write_str("the segment is by another identity than the first")
            }
            Self::SegmentLink(number) => write!(
                f,
                "its first payload does not name it segment {number} after the end of the one before"
            ),
        }
    }
}

/// The five things that a report states, each of which a fault denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The checkpoint is signed.
    CheckpointSignature,
    /// It is the work of the right identity.
    Identity,
    /// Every line and leaf is well-formed and in its place.
    Structure,
    /// Every leaf is by an authorised session.
    Bindings,
    /// The leaves give every signed root.
    Merkle,
}

impl Fault {
    /// What this fault denies.
    pub fn check(&self) -> Check {
        match self {
            Self::CheckpointSignature => Check::CheckpointSignature,
            Self::CheckpointOfAnother | Self::NotPinned(_) | Self::SegmentOfAnother => {
                Check::Identity
            }
            Self::Header(_)
            | Self::Unparsable(_)
            | Self::Structure(_)
            | Self::SegmentMissing(_)
            | Self::SegmentLink(_) => Check::Structure,
            Self::Unbound
            | Self::NotTheOpenSession
            | Self::TooManySessions
            | Self::AfterSession { .. }
            | Self::BindingOfAnother(_)
            | Self::BindingSignature
            | Self::SessionOrder { .. }
            | Self::Revocation
            | Self::Revoked => Check::Bindings,
            Self::Size { .. }
            | Self::Root { .. }
            | Self::HeadUnreadable(_)
            | Self::HeadNotReproduced { .. }
            | Self::CutBack { .. } => Check::Merkle,
        }
    }
}

/// A fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where.
    pub place: Place,
    /// What.
    pub fault: Fault,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

/// Failures that are listed; a file of garbage has one per line, and nobody reads more.
pub const FAILURES_MAX: usize = 100;

/// All that failed: the first failures in the order in which they were found, and the count of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    listed: Vec<Failure>,
    count: u64,
    denied: Vec<Check>,
}

impl Failures {
    /// The first of them, at most [`FAILURES_MAX`].
    pub fn listed(&self) -> &[Failure] {
        &self.listed
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether no fault denies `check`.
    pub fn allow(&self, check: Check) -> bool {
        !self.denied.contains(&check)
    }

    /// What they amount to.
    pub fn verdict(&self) -> Verdict {
        if self.count == 0 {
            Verdict::Unanchored
        } else {
            Verdict::Invalid
        }
    }

    fn add(&mut self, place: Place, fault: Fault) {
        let check = fault.check();
        if self.allow(check) {
            self.denied.push(check);
        }
        if self.listed.len() < FAILURES_MAX {
            self.listed.push(Failure { place, fault });
        }
        self.count += 1;
    }
}

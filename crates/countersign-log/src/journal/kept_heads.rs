//! Judging a journal by the heads that it signed: its own list, and the newest one beside the key.
//!
//! A journal that does not reproduce its newest head was cut back or rewritten; one that has lost its
//! list while the copy is there was robbed of it. Either goes on only if the operator names its
//! present head.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::fault::{HeadFault, JournalError};
use super::heads::{self, Heads};
use super::opening::Warning;
use super::resume::{Expected, Replay};
use super::start::Start;
use crate::json::Members;
use crate::keys::PublicKey;
use crate::note;
use crate::segments::segment_path;
use crate::sidecar;
use crate::tree::TreeHead;

/// Longest copy beside the key that is read: a note has some 300 octets.
const COPY_OCTETS_MAX: u64 = 16 << 10;

/// The heads that were signed, as they are kept.
#[derive(Debug)]
pub(super) struct KeptHeads {
    copy: Option<(PathBuf, TreeHead)>,
    /// The copy is of a segment that does not exist, or no longer as it was signed.
    copy_is_broken: bool,
    /// There is a copy beside the key, but no list of heads.
    gone: bool,
    /// The file whose newest head is not one that the identity signed.
    unreadable: Option<PathBuf>,
}

impl KeptHeads {
    pub(super) fn read(
        start: &Start<'_>,
        heads: &Heads,
        identity: PublicKey,
    ) -> Result<Self, JournalError> {
        let mut kept = Self {
            copy: None,
            copy_is_broken: false,
            gone: false,
            unreadable: heads.unreadable.then(|| heads.path().to_owned()),
        };
        let Some(copy_path) = start.key_head else {
            return Ok(kept);
        };
        let copy = match Copy::read(copy_path, identity)? {
            CopyRead::Absent => return Ok(kept),
            CopyRead::Unreadable => {
                kept.unreadable = Some(copy_path.to_owned());
                return Ok(kept);
            }
            CopyRead::Read(copy) => copy,
        };
        let number = start.number;
        kept.copy = Some((copy_path.to_owned(), copy.head));
        if copy.segment < number {
            // The last head of an earlier segment; its own list must still end in it.
            let earlier = segment_path(start.base, copy.segment);
            let earlier = heads::newest_of(&earlier, identity);
            kept.copy_is_broken = !earlier
                .is_some_and(|earlier| earlier == copy.head || earlier.size > copy.head.size);
        } else {
            kept.copy_is_broken = copy.segment > number;
            kept.gone = copy.segment == number && heads.is_absent();
        }
        if copy.segment != number && !kept.copy_is_broken {
            kept.copy = None;
        }
        Ok(kept)
    }

    /// What the journal must reproduce.
    pub(super) fn expected(&self, heads: &Heads) -> Vec<Expected> {
        let newest = heads.newest.map(|newest| Expected {
            head: newest,
            kept_in: heads.path().to_owned(),
        });
        let copy = self
            .copy
            .iter()
            .filter(|_| !self.copy_is_broken)
            .map(|(path, head)| Expected {
                head: *head,
                kept_in: path.clone(),
            });
        newest.into_iter().chain(copy).collect()
    }

    /// Refuses a journal that is not the one that was signed, unless its present head is accepted.
    pub(super) fn judge(
        self,
        path: &Path,
        replay: &Replay,
        accept: Option<TreeHead>,
    ) -> Result<Vec<Warning>, JournalError> {
        let found = replay.frontier.head();
        let of = |kept_in: &Path, head| {
            Box::new(HeadFault {
                path: path.to_owned(),
                kept_in: kept_in.to_owned(),
                head,
                found,
            })
        };
        let fault = match (&replay.broken_head, &self.copy) {
            (Some(broken), _) => JournalError::HeadNotReproduced(of(&broken.kept_in, broken.head)),
            (None, Some((copy, head))) if self.copy_is_broken => {
                JournalError::HeadNotReproduced(of(copy, *head))
            }
            (None, Some((copy, head))) if self.gone => JournalError::HeadsGone(of(copy, *head)),
            (None, _) => match &self.unreadable {
                None => return Ok(Vec::new()),
                Some(file) => JournalError::HeadUnreadable {
                    file: file.clone(),
                    found: Box::new(found),
                },
            },
        };
        match accept {
            Some(accept) if accept == found => Ok(vec![Warning::HeadAccepted {
                head: found,
                instead: fault.to_string(),
            }]),
            Some(accept) => Err(JournalError::NotThatHead(of(path, accept))),
            None => Err(fault),
        }
    }
}

/// The newest head as it is kept beside the key.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// Number of the segment that it is a head of.
    segment: u32,
    head: TreeHead,
}

impl Copy {
    fn read(path: &Path, identity: PublicKey) -> Result<CopyRead, JournalError> {
        const FIELDS: [&str; 2] = ["segment", "note"];
        let mut text = Vec::new();
        let Some(file) = sidecar::open(path).map_err(JournalError::io("open", path))? else {
            return Ok(CopyRead::Absent);
        };
        file.take(COPY_OCTETS_MAX)
            .read_to_end(&mut text)
            .map_err(JournalError::io("read", path))?;
        let read = || {
            let members = Members::read(text.trim_ascii(), &FIELDS).ok()?;
            Some(Self {
                segment: u32::try_from(members.u64(0).ok()?).ok()?,
                head: note::open_head(identity, &members.string(1).ok()?).ok()?,
            })
        };
        Ok(read().map_or(CopyRead::Unreadable, CopyRead::Read))
    }
}

/// What stands beside the key.
#[derive(Debug)]
enum CopyRead {
    Absent,
    /// Not a head that the identity signed.
    Unreadable,
    Read(Copy),
}

/// Writes the copy beside the key.
pub(super) fn write_copy(path: &Path, segment: u32, note: &str) -> io::Result<()> {
    let note = serde_json::to_string(note).expect("a string is JSON");
    sidecar::replace(path, |out| {
        writeln!(out, "{{\"segment\":{segment},\"note\":{note}}}")
    })
}

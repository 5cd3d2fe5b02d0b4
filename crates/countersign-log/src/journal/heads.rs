//! `X.heads`: what this journal has signed, so that cutting it back or rewriting it shows at a start.
//!
//! One JSON string a line, each a signed note. The newest is also kept beside the key. This catches
//! who can change the journal's folder and not the key's; more is for witnesses.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::JournalError;
use super::store::{Disk, Medium, Store};
use crate::keys::{Identity, PublicKey};
use crate::lines::Lines;
use crate::note;
use crate::sidecar;
use crate::tree::TreeHead;

/// The newest heads that are kept, besides the first of each day.
const KEPT_NEWEST: u64 = 1_000;

/// Heads gather to this number above what was kept before the file is rewritten.
const REWRITE_AFTER: u64 = 1_000;

const DAY_MS: u64 = 86_400_000;

/// A line is looked for in the file's last octets: a note has some 300.
const TAIL_OCTETS: u64 = 8 << 10;

/// The signed heads of one journal.
#[derive(Debug)]
pub(super) struct Heads {
    path: PathBuf,
    store: Option<Store>,
    disk: Disk,
    /// The newest head, which the journal must reproduce.
    pub(super) newest: Option<TreeHead>,
    /// End of the last whole line.
    good: u64,
    lines: u64,
    lines_kept: u64,
    /// Whether the last line was torn and will be cut off.
    pub(super) torn: bool,
    /// Whether the newest head is not one that the identity signed.
    pub(super) unreadable: bool,
}

impl Heads {
    /// Reads the newest head and changes nothing.
    pub(super) fn read(
        journal: &Path,
        identity: PublicKey,
        disk: &Disk,
    ) -> Result<Self, JournalError> {
        let path = sidecar::path(journal, "heads");
        let mut heads = Self {
            path: path.clone(),
            store: None,
            disk: disk.clone(),
            newest: None,
            good: 0,
            lines: 0,
            lines_kept: 0,
            torn: false,
            unreadable: false,
        };
        let Some(file) = sidecar::open(&path).map_err(JournalError::io("open", &path))? else {
            return Ok(heads);
        };
        let mut lines = Lines::new(file);
        let mut newest = Vec::new();
        while let Some(line) = lines
            .next_filled()
            .map_err(JournalError::io("read", &path))?
        {
            // A head is one write: without its newline it was never finished.
            if !line.terminated {
                heads.torn = true;
                break;
            }
            newest.clear();
            newest.extend(line.text);
            heads.good = line.end;
            heads.lines += 1;
        }
        heads.lines_kept = heads.lines.min(KEPT_NEWEST);
        if heads.lines > 0 {
            heads.newest = read_line(&newest, identity);
            heads.unreadable = heads.newest.is_none();
        }
        Ok(heads)
    }

    /// Whether no head was ever written here.
    pub(super) fn is_absent(&self) -> bool {
        self.newest.is_none() && !self.unreadable
    }

    /// Where the heads are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Signs a head and appends it; gives the note, and the file in which it stands. The journal must
    /// be on disk up to the head's size.
    pub(super) fn sign(
        &mut self,
        identity: &Identity,
        head: TreeHead,
        now_ms: u64,
    ) -> io::Result<(String, Arc<Medium>)> {
        let note = note::sign_head_at(identity, head, now_ms).to_string();
        let mut line = serde_json::to_string(&note).expect("a string is JSON");
        line.push('\n');
        let store = match &mut self.store {
            Some(store) => store,
            none => {
                let is_new = !self.path.exists();
                let store = none.insert(Store::open(self.path.clone(), &self.disk, self.good)?);
                if is_new {
                    sidecar::sync_folder_of(&self.path)?;
                }
                store
            }
        };
        store.append(line.as_bytes())?;
        let medium = store.medium().clone();
        self.good = store.good();
        self.newest = Some(head);
        self.lines += 1;
        if self.lines >= self.lines_kept + REWRITE_AFTER {
            // The head is signed and kept either way; a list that is too long is thinned out later.
            let _ = self.thin_out();
        }
        Ok((note, medium))
    }

    /// Rewrites the file with the newest heads and the first of each day.
    fn thin_out(&mut self) -> io::Result<()> {
        let newest_from = self.lines.saturating_sub(KEPT_NEWEST);
        let (kept, octets) = sidecar::replace(&self.path, |out| {
            let mut lines = Lines::new(File::open(&self.path)?);
            let (mut at, mut kept, mut octets, mut last_day) = (0, 0, 0, None);
            while let Some(line) = lines.next_filled()? {
                let day = day_of(line.text);
                if at >= newest_from || day != last_day {
                    out.write_all(line.text)?;
                    out.write_all(b"\n")?;
                    kept += 1;
                    octets += line.text.len() as u64 + 1;
                }
                last_day = day;
                at += 1;
            }
            Ok((kept, octets))
        })?;
        // The next head opens the new file.
        self.store = None;
        (self.good, self.lines, self.lines_kept) = (octets, kept, kept);
        sidecar::sync_folder_of(&self.path)
    }
}

/// The newest head of another journal, from the end of its file: one that is not there, torn or not
/// signed by `identity` counts as none.
pub(super) fn newest_of(journal: &Path, identity: PublicKey) -> Option<TreeHead> {
    let mut file = File::open(sidecar::path(journal, "heads")).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_OCTETS)))
        .ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_OCTETS).read_to_end(&mut tail).ok()?;
    let whole = memchr::memrchr(b'\n', &tail)?;
    let start = memchr::memrchr(b'\n', &tail[..whole]).map_or(0, |newline| newline + 1);
    read_line(&tail[start..whole], identity)
}

/// One line of the file.
fn read_line(text: &[u8], identity: PublicKey) -> Option<TreeHead> {
    let note: String = serde_json::from_slice(text).ok()?;
    note::open_head(identity, &note).ok()
}

/// The day on which a line's head was signed; the file's own lines need no second verification.
fn day_of(text: &[u8]) -> Option<u64> {
    let note: String = serde_json::from_slice(text).ok()?;
    Some(note::head_time_ms(&note)? / DAY_MS)
}

//! `X.heads`: what this journal has signed, so that cutting it back or rewriting it shows at a start.
//!
//! One JSON string a line, each a signed note. The newest is also kept beside the key. This catches
//! who can change the journal's folder and not the key's; more is for witnesses.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::JournalError;
use super::head_note::{self, SignedAt};
use super::lines::Lines;
use super::store::{Disk, Medium, Store};
use crate::hash::Hash;
use crate::json::Members;
use crate::keys::{Identity, PublicKey};

/// The newest heads that are kept, besides the first of each day.
const KEPT_NEWEST: u64 = 1_000;

/// Heads gather to this number above what was kept before the file is rewritten.
const REWRITE_AFTER: u64 = 1_000;

const DAY_MS: u64 = 86_400_000;

/// Longest copy beside the key that is read: a note has some 300 octets.
const COPY_OCTETS_MAX: u64 = 16 << 10;

/// Size and root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of leaves.
    pub size: u64,
    /// Root over them.
    pub root: Hash,
}

impl std::fmt::Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.size, self.root)
    }
}

/// The signed heads of one journal.
#[derive(Debug)]
pub(super) struct Heads {
    path: PathBuf,
    store: Option<Store>,
    disk: Disk,
    /// The newest head, which the journal must reproduce.
    pub(super) newest: Option<SignedAt>,
    /// End of the last whole line.
    good: u64,
    lines: u64,
    lines_kept: u64,
    /// Whether the last line was torn and will be cut off.
    pub(super) torn: bool,
}

impl Heads {
    /// Reads the newest head and changes nothing.
    pub(super) fn read(
        journal: &Path,
        identity: PublicKey,
        disk: &Disk,
    ) -> Result<Self, JournalError> {
        let path = super::sidecar(journal, "heads");
        let mut heads = Self {
            path: path.clone(),
            store: None,
            disk: disk.clone(),
            newest: None,
            good: 0,
            lines: 0,
            lines_kept: 0,
            torn: false,
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(heads),
            Err(error) => return Err(JournalError::io("open", &path)(error)),
        };
        let mut lines = Lines::new(file);
        let mut newest = String::new();
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
            newest.push_str(&String::from_utf8_lossy(line.text));
            heads.good = line.end;
            heads.lines += 1;
        }
        heads.lines_kept = heads.lines.min(KEPT_NEWEST);
        if heads.lines > 0 {
            let signed = serde_json::from_str::<String>(&newest)
                .ok()
                .and_then(|note| head_note::read(&note, identity))
                .ok_or(JournalError::HeadUnreadable(path))?;
            heads.newest = Some(signed);
        }
        Ok(heads)
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
        signed: SignedAt,
    ) -> io::Result<(String, Arc<Medium>)> {
        let note = head_note::sign(identity, signed);
        let mut line = serde_json::to_string(&note).expect("a string is JSON");
        line.push('\n');
        let store = match &mut self.store {
            Some(store) => store,
            none => {
                let is_new = !self.path.exists();
                let store = none.insert(Store::open(self.path.clone(), &self.disk, self.good)?);
                if is_new {
                    super::sync_folder_of(&self.path)?;
                }
                store
            }
        };
        store.append(line.as_bytes())?;
        let medium = store.medium().clone();
        self.good = store.good();
        self.newest = Some(signed);
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
        let temporary = super::sidecar(&self.path, "tmp");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        let mut out = BufWriter::new(file);
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
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&temporary, &self.path)?;
        // The next head opens the new file.
        self.store = None;
        (self.good, self.lines, self.lines_kept) = (octets, kept, kept);
        super::sync_folder_of(&self.path)
    }
}

/// The day on which a line's head was signed; the file's own lines need no second verification.
fn day_of(text: &[u8]) -> Option<u64> {
    let note: String = serde_json::from_slice(text).ok()?;
    let time: u64 = note
        .lines()
        .find_map(|line| line.strip_prefix("time ")?.parse().ok())?;
    Some(time / DAY_MS)
}

/// The newest head as it is kept beside the key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Number of the segment that it is a head of.
    pub(super) segment: u32,
    pub(super) signed: SignedAt,
}

impl Copy {
    /// Reads the copy, if there is one.
    pub(super) fn read(path: &Path, identity: PublicKey) -> Result<Option<Self>, JournalError> {
        use std::io::Read as _;
        const FIELDS: [&str; 2] = ["segment", "note"];
        let mut text = Vec::new();
        match File::open(path) {
            Ok(file) => file
                .take(COPY_OCTETS_MAX)
                .read_to_end(&mut text)
                .map_err(JournalError::io("read", path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::io("open", path)(error)),
        };
        let read = || {
            let members = Members::read(text.trim_ascii(), &FIELDS).ok()?;
            Some(Self {
                segment: u32::try_from(members.u64(0).ok()?).ok()?,
                signed: head_note::read(&members.string(1).ok()?, identity)?,
            })
        };
        read()
            .map(Some)
            .ok_or_else(|| JournalError::HeadUnreadable(path.to_owned()))
    }
}

/// Writes the copy beside the key: temporary file, sync, rename, so that it is never half there.
pub(super) fn write_copy(path: &Path, segment: u32, note: &str) -> io::Result<()> {
    let note = serde_json::to_string(note).expect("a string is JSON");
    let temporary = super::sidecar(path, "tmp");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(format!("{{\"segment\":{segment},\"note\":{note}}}\n").as_bytes())?;
    file.sync_data()?;
    fs::rename(&temporary, path)
}

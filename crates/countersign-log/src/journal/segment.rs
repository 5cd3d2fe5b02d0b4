//! A segment: one file of the set that a long journal is, with its sidecars, open for writing.
//!
//! Each segment is a journal by itself, whose indices begin at 0, so that the reference's tools can
//! read it and its dossier stays below their limit on input. `X.wlog` is segment 0, `X.0001.wlog` the
//! next. The first payload leaf of a later segment is
//! `{"number":N,"previous_head":{"root":"<64 hex>","size":N},"profile":"countersign.segment v1"}`.
//!
//! A call may be open while its journal rotates. Its result then stands in the later segment, its
//! payload and its line in `.calls` naming the intent by segment and index ([`Place`](super::Place)).
//! The open intents are listed in the later segment's `.calls`, so that a start reads that one alone.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::batch::Batch;
use super::calls::{self, Ledger, OpenIntents};
use super::fault::{JournalError, WriteError};
use super::header::{self, Header, Seal};
use super::heads::{Head, Heads};
use super::kept_heads::KeptHeads;
use super::lock::Lock;
use super::nodes::Nodes;
use super::opening::Warning;
use super::resume::{self, Replay};
use super::salts::{self, Live, Repair};
use super::store::{Disk, Store};
use super::{sidecar, sync_folder_of};
use crate::keys::{Identity, KeyBinding, PublicKey};
use crate::tree::Frontier;

/// When a journal goes on in the next segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Leaves of a segment.
    pub leaves: u64,
    /// Octets of a segment's journal file.
    pub octets: u64,
}

impl Default for Limits {
    /// A dossier of this many leaves has some 490 MB; the reference reads up to 512 MiB.
    fn default() -> Self {
        Self {
            leaves: 800_000,
            octets: 400_000_000,
        }
    }
}

/// The file of segment `number` of the journal at `base`.
pub fn segment_path(base: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return base.to_owned();
    }
    let mut name = OsString::from(base.file_stem().unwrap_or_default());
    name.push(format!(".{number:04}"));
    if let Some(extension) = base.extension() {
        name.push(".");
        name.push(extension);
    }
    base.with_file_name(name)
}

/// The number of the newest segment of the journal at `base`, 0 if it never rotated.
pub fn newest_segment(base: &Path) -> io::Result<u32> {
    let entries = match fs::read_dir(super::folder_of(base)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut newest = 0;
    for entry in entries {
        let path = entry?.path();
        let digits = |path: &Path| -> Option<u32> {
            let stem = Path::new(path.file_stem()?);
            let number = if base.extension().is_some() {
                stem.extension()?
            } else {
                path.extension()?
            };
            number.to_str()?.parse().ok()
        };
        if let Some(number) = digits(&path)
            && segment_path(base, number).file_name() == path.file_name()
        {
            newest = newest.max(number);
        }
    }
    Ok(newest)
}

/// The payload of a segment's first leaf, canonical JSON.
pub(super) fn payload(number: u32, previous: Head) -> Vec<u8> {
    format!(
        "{{\"number\":{number},\"previous_head\":{{\"root\":\"{}\",\"size\":{}}},\"profile\":\"countersign.segment v1\"}}",
        previous.root, previous.size
    )
    .into_bytes()
}

/// What a start needs besides the locked file.
#[derive(Debug)]
pub(super) struct Start<'a> {
    /// The path of segment 0.
    pub(super) base: &'a Path,
    pub(super) number: u32,
    pub(super) session: PublicKey,
    pub(super) now_ms: u64,
    /// Where the newest head is also kept.
    pub(super) key_head: Option<&'a Path>,
    pub(super) accept_head: Option<Head>,
    pub(super) disk: &'a Disk,
}

/// What a start found.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) segment: Segment,
    pub(super) identity: Identity,
    pub(super) unsealed: bool,
    pub(super) last_timestamp_ms: u64,
    pub(super) session_number: u64,
    pub(super) dropped_lines: u64,
    pub(super) open: OpenIntents,
    pub(super) warnings: Vec<Warning>,
}

/// One segment, locked and open for writing.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    pub(super) leaves: Store,
    pub(super) salts: Store,
    pub(super) calls: Store,
    pub(super) nodes: Nodes,
    pub(super) heads: Heads,
    pub(super) frontier: Frontier,
    /// A failed batch may still stand behind the good part of a file.
    torn: bool,
    /// Last, so that the files are locked until all else is dropped.
    pub(super) lock: Lock,
}

impl Segment {
    /// Reads the locked journal, repairs its torn ends, and binds this session to it. Nothing is
    /// changed before everything is found to be right.
    pub(super) fn start(
        lock: Lock,
        path: &Path,
        seal: Seal,
        start: Start<'_>,
    ) -> Result<Started, JournalError> {
        let file = lock.file().clone();
        let header = read_header(&file, path, &seal)?;
        let unsealed = match (&header, &seal) {
            (Some(header), _) => header.is_unsealed(),
            (None, seal) => matches!(seal, Seal::Unsealed { .. }),
        };
        let first_session = header.as_ref().map(|header| header.session_number + 1);
        let is_new = header.is_none();
        let identity = match (header, seal) {
            (Some(header), seal) => header.identity(seal, path)?,
            (None, Seal::Sealed(identity)) => identity,
            (None, Seal::Unsealed { seed }) => Identity::from_seed(&seed),
        };
        let heads = Heads::read(path, identity.public(), start.disk)?;
        let mut nodes = Nodes::open(&sidecar(path, "tree"))
            .map_err(JournalError::io("open", &sidecar(path, "tree")))?;
        let kept_heads = KeptHeads::read(&start, &heads, identity.public())?;
        let replay = resume::replay(
            (!is_new).then_some(&*file),
            path,
            identity.public(),
            Ledger::open(path, start.number)?,
            Some(&mut nodes),
            kept_heads.expected(&heads),
        )?;
        let mut warnings = kept_heads.judge(path, &replay, start.accept_head)?;
        nodes.end_comparison();
        let repair = salts::inspect(&sidecar(path, "salts"), live(&replay))?;

        // From here on, files are written.
        if is_new {
            warnings.extend(begin(&lock, path, &identity, unsealed, start.now_ms)?);
        } else if matches!(repair, Repair::Absent) && replay.frontier.size() > 0 {
            warnings.push(Warning::SaltsMissing);
        }
        let kept = if is_new {
            header::line(&identity, unsealed).len() as u64
        } else {
            replay.kept
        };
        let salts = open_salts(
            path,
            if is_new { Repair::Absent } else { repair },
            &replay,
            start.disk,
        )?;
        let calls = open_calls(path, &replay, start.session, start.disk)?;
        if is_new {
            sync_folder_of(path).map_err(JournalError::io("sync the folder of", path))?;
        }
        let mut leaves = Store::over(file, path.to_owned(), start.disk, kept)
            .map_err(JournalError::io("cut the torn end of", path))?;
        let session_number = first_session.map_or(0, |first| first.max(replay.session_number + 1));
        let binding =
            KeyBinding::sign(&identity, start.session, session_number, start.now_ms, None);
        let newline: &[u8] = if replay.add_newline { b"\n" } else { b"" };
        leaves
            .append(&[newline, &binding.to_json(), b"\n"].concat())
            .map_err(JournalError::io("write", path))?;
        if unsealed {
            warnings.push(Warning::Unsealed);
        }
        if heads.torn {
            warnings.push(Warning::HeadTorn);
        }
        Ok(Started {
            identity,
            unsealed,
            last_timestamp_ms: replay.last_timestamp_ms,
            session_number,
            dropped_lines: replay.dropped_lines,
            open: replay.calls.open,
            warnings,
            segment: Self {
                number: start.number,
                path: path.to_owned(),
                leaves,
                salts,
                calls,
                nodes,
                heads,
                frontier: replay.frontier,
                torn: false,
                lock,
            },
        })
    }

    pub(super) fn head(&self) -> Head {
        Head {
            size: self.frontier.size(),
            root: self.frontier.root(),
        }
    }

    /// Writes a batch, one `write` for each file, the leaves last: a leaf without its salt can never be
    /// disclosed, and one without its pair looks lost; a salt or a pair without its leaf is dropped at
    /// the next start.
    pub(super) fn commit(&mut self, batch: &Batch) -> Result<(), WriteError> {
        if self.torn {
            self.cut_back()?;
        }
        let files = [
            (&self.salts, &batch.salts),
            (&self.calls, &batch.calls),
            (&self.leaves, &batch.leaves),
        ];
        let failed = files.into_iter().find_map(|(store, octets)| {
            let error = store.write(octets).err()?;
            let path = store.path().to_owned();
            Some(WriteError::Lost { path, error })
        });
        if let Some(error) = failed {
            self.torn = true;
            // If this fails too, the next batch begins with it.
            let _ = self.cut_back();
            return Err(error);
        }
        self.salts.accept(batch.salts.len());
        self.leaves.accept(batch.leaves.len());
        self.calls.accept(batch.calls.len());
        let Self {
            frontier, nodes, ..
        } = self;
        for hash in &batch.hashes {
            nodes.push(*hash);
            frontier.push_with(*hash, |_, node| nodes.push(node));
        }
        Ok(())
    }

    /// Writes the first leaf. The list of open intents must be on disk before it: the leaf says that
    /// the rotation is done, and the earlier segment is then not read again.
    pub(super) fn begin(&mut self, mut batch: Batch) -> Result<(), WriteError> {
        let calls = Batch {
            calls: std::mem::take(&mut batch.calls),
            ..Batch::default()
        };
        self.commit(&calls)?;
        self.calls
            .medium()
            .sync()
            .map_err(|error| WriteError::Lost {
                path: self.calls.path().to_owned(),
                error,
            })?;
        self.commit(&batch)
    }

    /// Removes what a failed batch left behind, from all files or not at all.
    pub(super) fn cut_back(&mut self) -> Result<(), WriteError> {
        for store in [&self.leaves, &self.salts, &self.calls] {
            store.cut_back().map_err(|error| WriteError::Lost {
                path: store.path().to_owned(),
                error,
            })?;
        }
        self.torn = false;
        Ok(())
    }

    /// Whether the path still names the file that is written.
    pub(super) fn is_in_place(&self) -> bool {
        super::lock::is_at(self.leaves.medium().file(), &self.path)
    }
}

/// The longest file that can be a torn header.
const TORN_HEADER_OCTETS_MAX: u64 = 4 << 10;

/// The header; `None` for a file that has none yet and holds nothing else.
fn read_header(file: &File, path: &Path, seal: &Seal) -> Result<Option<Header>, JournalError> {
    let read = JournalError::io("read", path);
    let content = || -> io::Result<Vec<u8>> {
        let mut reader = file;
        reader.seek(SeekFrom::Start(0))?;
        let mut content = Vec::new();
        reader
            .take(TORN_HEADER_OCTETS_MAX)
            .read_to_end(&mut content)?;
        Ok(content)
    };
    let content = content().map_err(read)?;
    let whole = (content.len() as u64) < TORN_HEADER_OCTETS_MAX;
    let text = content.trim_ascii();
    if whole && !content.contains(&b'\n') && Header::read(text, path).is_err() {
        return if header::is_torn(&content, seal) {
            Ok(None)
        } else {
            Header::read(text, path).map(Some)
        };
    }
    resume::header(file, path)
}

/// Writes the header of a new journal and makes it durable.
fn begin(
    lock: &Lock,
    path: &Path,
    identity: &Identity,
    unsealed: bool,
    now_ms: u64,
) -> Result<Option<Warning>, JournalError> {
    let aside = set_salts_aside(path, now_ms)?;
    let write = || -> io::Result<()> {
        let mut file: &File = lock.file();
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header::line(identity, unsealed))?;
        file.sync_all()
    };
    write().map_err(JournalError::io("write", path))?;
    if lock.created {
        return Ok(None);
    }
    Ok(Some(Warning::MadeAnew {
        salts_moved_to: aside,
    }))
}

/// An empty journal with salts once had leaves. Their salts are not ours to destroy.
fn set_salts_aside(path: &Path, now_ms: u64) -> Result<Option<PathBuf>, JournalError> {
    let salts = sidecar(path, "salts");
    if !fs::metadata(&salts).is_ok_and(|salts| salts.len() > 0) {
        return Ok(None);
    }
    let aside = sidecar(path, &format!("salts.until-{now_ms}"));
    fs::rename(&salts, &aside).map_err(JournalError::io("move", &salts))?;
    Ok(Some(aside))
}

fn live(replay: &Replay) -> Live<'_> {
    Live {
        size: replay.frontier.size(),
        redacted: &replay.redacted,
    }
}

fn open_salts(
    journal: &Path,
    repair: Repair,
    replay: &Replay,
    disk: &Disk,
) -> Result<Store, JournalError> {
    let path = sidecar(journal, "salts");
    let (good, add_newline) = match repair {
        Repair::Absent => (0, false),
        Repair::Keep {
            octets,
            add_newline,
        } => (octets, add_newline),
        Repair::Rewrite => {
            let good =
                salts::rewrite(&path, live(replay)).map_err(JournalError::io("rewrite", &path))?;
            (good, false)
        }
    };
    let open = || {
        let mut store = Store::open(path.clone(), disk, good)?;
        if add_newline {
            store.append(b"\n")?;
        }
        Ok(store)
    };
    open().map_err(JournalError::io("write", &path))
}

fn open_calls(
    journal: &Path,
    replay: &Replay,
    session: PublicKey,
    disk: &Disk,
) -> Result<Store, JournalError> {
    let path = sidecar(journal, "calls");
    let mut line = Vec::new();
    if replay.calls.add_newline {
        line.push(b'\n');
    }
    calls::push_session(&mut line, replay.frontier.size(), &session.0);
    let open = || {
        let mut store = Store::open(path.clone(), disk, replay.calls.good)?;
        store.append(&line)?;
        Ok(store)
    };
    open().map_err(JournalError::io("write", &path))
}

//! Starting on a locked file: read everything, and only when all is right repair, bind, go on.
//!
//! An empty file is begun here too: making a journal and resuming one is the same road.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::fault::JournalError;
use super::heads::Heads;
use super::kept_heads::KeptHeads;
use super::ledger::{Ledger, OpenIntents};
use super::lock::Lock;
use super::nodes::NodeFile;
use super::opening::Warning;
use super::resume::{self, Replay};
use super::salts::{self, Live, Repair};
use super::seal::{self, Seal};
use super::segment::Segment;
use super::store::{Disk, Store};
use crate::calls;
use crate::header::{self, Header};
use crate::keys::{Identity, KeyBinding, PublicKey};
use crate::sidecar::{self, sync_folder_of};
use crate::tree::TreeHead;

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
    pub(super) accept_head: Option<TreeHead>,
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

/// Reads the locked journal, repairs its torn ends, and binds this session to it. Nothing but the
/// node cache is changed before everything is found to be right.
pub(super) fn start(
    lock: Lock,
    path: &Path,
    seal: Seal,
    start: Start<'_>,
) -> Result<Started, JournalError> {
    let file = lock.file().clone();
    let ownership = Ownership::read(&file, path, seal)?;
    let mut found = Found::read(&file, path, &ownership, &start)?;
    if ownership.is_new() {
        let begun = begin(&lock, path, &ownership, start.now_ms)?;
        found.warnings.extend(begun);
    }
    let salts = open_salts(path, &found, start.disk)?;
    let calls = open_calls(path, &found.replay, start.session, start.disk)?;
    if ownership.is_new() {
        sync_folder_of(path).map_err(JournalError::io("sync the folder of", path))?;
    }
    let session_number = ownership.session_number(&found.replay);
    let mut leaves = Store::over(file, path.to_owned(), start.disk, found.kept(&ownership))
        .map_err(JournalError::io("cut the torn end of", path))?;
    let newline: &[u8] = if found.replay.add_newline { b"\n" } else { b"" };
    let binding = KeyBinding::sign(
        &ownership.identity,
        start.session,
        session_number,
        start.now_ms,
        None,
    );
    leaves
        .append(&[newline, &binding.to_json(), b"\n"].concat())
        .map_err(JournalError::io("write", path))?;
    Ok(Started {
        identity: ownership.identity,
        unsealed: ownership.unsealed,
        last_timestamp_ms: found.replay.last_timestamp_ms,
        session_number,
        dropped_lines: found.replay.dropped_lines,
        open: found.replay.calls.open,
        warnings: found.warnings,
        segment: Segment {
            number: start.number,
            path: path.to_owned(),
            leaves,
            salts,
            calls,
            nodes: found.nodes,
            heads: found.heads,
            frontier: found.replay.frontier,
            torn: false,
            lock,
        },
    })
}

/// Whose journal it is.
#[derive(Debug)]
struct Ownership {
    identity: Identity,
    unsealed: bool,
    /// The header's session number; `None` where there is no header yet.
    header_session: Option<u64>,
}

impl Ownership {
    fn read(file: &File, path: &Path, seal: Seal) -> Result<Self, JournalError> {
        match (read_header(file, path, &seal)?, seal) {
            (Some(header), seal) => Ok(Self {
                unsealed: header.seed.is_some(),
                header_session: Some(header.session_number),
                identity: seal.open(&header, path)?,
            }),
            (None, Seal::Sealed(identity)) => Ok(Self {
                identity,
                unsealed: false,
                header_session: None,
            }),
            (None, Seal::Unsealed { seed }) => Ok(Self {
                identity: Identity::from_seed(&seed),
                unsealed: true,
                header_session: None,
            }),
        }
    }

    fn is_new(&self) -> bool {
        self.header_session.is_none()
    }

    fn session_number(&self, replay: &Replay) -> u64 {
        self.header_session.map_or(0, |header| {
            header.max(replay.session_number).saturating_add(1)
        })
    }
}

/// Everything that was read.
#[derive(Debug)]
struct Found {
    heads: Heads,
    nodes: NodeFile,
    replay: Replay,
    repair: Repair,
    warnings: Vec<Warning>,
}

impl Found {
    fn read(
        file: &File,
        path: &Path,
        ownership: &Ownership,
        start: &Start<'_>,
    ) -> Result<Self, JournalError> {
        let identity = ownership.identity.public();
        let heads = Heads::read(path, identity, start.disk)?;
        let kept_heads = KeptHeads::read(start, &heads, identity)?;
        let tree = sidecar::path(path, "tree");
        let mut nodes = NodeFile::open(&tree).map_err(JournalError::io("open", &tree))?;
        let replay = resume::replay(
            (!ownership.is_new()).then_some(file),
            path,
            identity,
            Ledger::open(path, start.number)?,
            Some(&mut nodes),
            kept_heads.expected(&heads),
        )?;
        let mut warnings = kept_heads.judge(path, &replay, start.accept_head)?;
        nodes.end_comparison();
        let repair = if ownership.is_new() {
            Repair::Absent
        } else {
            salts::inspect(&sidecar::path(path, "salts"), live(&replay))?
        };
        if matches!(repair, Repair::Absent) && replay.frontier.size() > 0 {
            warnings.push(Warning::SaltsMissing);
        }
        if ownership.unsealed {
            warnings.push(Warning::Unsealed);
        }
        if heads.torn {
            warnings.push(Warning::HeadTorn);
        }
        Ok(Self {
            heads,
            nodes,
            replay,
            repair,
            warnings,
        })
    }

    /// Octets of the journal that stay.
    fn kept(&self, ownership: &Ownership) -> u64 {
        if ownership.is_new() {
            header::line(&ownership.identity, ownership.unsealed).len() as u64
        } else {
            self.replay.kept
        }
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
    if whole
        && !content.contains(&b'\n')
        && Header::read(text).is_err()
        && seal::is_torn(&content, seal)
    {
        return Ok(None);
    }
    resume::header(file, path)
}

/// Writes the header of a new journal and makes it durable.
fn begin(
    lock: &Lock,
    path: &Path,
    ownership: &Ownership,
    now_ms: u64,
) -> Result<Option<Warning>, JournalError> {
    let aside = set_salts_aside(path, now_ms)?;
    let write = || -> io::Result<()> {
        let mut file: &File = lock.file();
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&header::line(&ownership.identity, ownership.unsealed))?;
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
    let salts = sidecar::path(path, "salts");
    if !fs::metadata(&salts).is_ok_and(|salts| salts.len() > 0) {
        return Ok(None);
    }
    let aside = sidecar::path(path, &format!("salts.until-{now_ms}"));
    fs::rename(&salts, &aside).map_err(JournalError::io("move", &salts))?;
    Ok(Some(aside))
}

fn live(replay: &Replay) -> Live<'_> {
    Live {
        size: replay.frontier.size(),
        redacted: &replay.redacted,
    }
}

fn open_salts(journal: &Path, found: &Found, disk: &Disk) -> Result<Store, JournalError> {
    let path = sidecar::path(journal, "salts");
    let (good, add_newline) = match found.repair {
        Repair::Absent => (0, false),
        Repair::Keep {
            octets,
            add_newline,
        } => (octets, add_newline),
        Repair::Rewrite => {
            let good = salts::rewrite(&path, live(&found.replay))
                .map_err(JournalError::io("rewrite", &path))?;
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
    let path = sidecar::path(journal, "calls");
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

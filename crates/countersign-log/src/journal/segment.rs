//! A segment: one file of the set that a long journal is, with its sidecars, open for writing.
//!
//! Each segment is a journal by itself, whose indices begin at 0, so that the reference's tools can
//! read it and its dossier stays below their limit on input. `X.wlog` is segment 0, `X.0001.wlog` the
//! next. The first payload leaf of a later segment is
//! `{"number":N,"previous_head":{"root":"<64 hex>","size":N},"profile":"countersign.segment v1"}`.
//!
//! A call may be open while its journal rotates. Its result then stands in the later segment, its
//! payload and its line in `.calls` naming the intent by segment and index ([`Place`](crate::calls::Place)).
//! The open intents are listed in the later segment's `.calls`, so that a start reads that one alone.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::batch::Batch;
use super::fault::WriteError;
use super::heads::Heads;
use super::lock::Lock;
use super::nodes::Nodes;
use super::store::Store;
use crate::tree::{Frontier, TreeHead};

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
pub(super) fn payload(number: u32, previous: TreeHead) -> Vec<u8> {
    format!(
        "{{\"number\":{number},\"previous_head\":{{\"root\":\"{}\",\"size\":{}}},\"profile\":\"countersign.segment v1\"}}",
        previous.root, previous.size
    )
    .into_bytes()
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
    pub(super) torn: bool,
    /// Last, so that the files are locked until all else is dropped.
    pub(super) lock: Lock,
}

impl Segment {
    pub(super) fn head(&self) -> TreeHead {
        self.frontier.head()
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

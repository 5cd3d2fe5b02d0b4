//! Writing a journal's dossier: the leaves under one signed head, in one file that a stranger can check.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::checkpoint::Checkpoint;
use crate::dossier::{self, Cover};
use crate::hash::Hash;
use crate::keys::KeyBinding;
use crate::leaf::Leaf;
use crate::lines::Lines;
use crate::record::Record;
use crate::sidecar;
use crate::verdict::{self, Verdict};

/// A dossier that was written.
#[derive(Clone, Debug)]
pub struct Exported {
    /// `<journal>.dossier.json`.
    pub path: PathBuf,
    /// SHA-256 of the file.
    pub sha256: Hash,
    /// Size of the file.
    pub octets: u64,
    /// What a verifier without a directory says of it.
    pub verdict: Verdict,
}

/// Writes the dossier of the leaves that `checkpoint` covers beside `journal`: whole or not at all.
/// The journal may grow meanwhile. Leaves pass through one at a time.
///
/// # Errors
/// A file cannot be read or written, or the journal does not hold the leaves that the head covers.
pub fn dossier(journal: &Path, checkpoint: &Checkpoint) -> io::Result<Exported> {
    let path = sidecar::path(journal, "dossier.json");
    let draft = sidecar::path(journal, "dossier.json.tmp");
    let written = write(journal, checkpoint, &draft).and_then(|sums| {
        std::fs::rename(&draft, &path)?;
        sidecar::sync_folder_of(&path)?;
        Ok(sums)
    });
    if written.is_err() {
        // The draft may not even be there; the error that counts is the first one.
        let _ = std::fs::remove_file(&draft);
    }
    let (sha256, octets) = written?;
    let report =
        verdict::verify_dossier(&mut File::open(&path)?, None).map_err(io::Error::other)?;
    Ok(Exported {
        path,
        sha256,
        octets,
        verdict: report.failures.verdict(),
    })
}

fn write(journal: &Path, checkpoint: &Checkpoint, draft: &Path) -> io::Result<(Hash, u64)> {
    let bindings = bindings(journal)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(draft)?;
    let mut out = Hashing {
        out: BufWriter::new(file),
        hasher: Sha256::new(),
        octets: 0,
    };
    let cover = Cover {
        identity_pubkey: checkpoint.signer_pubkey.clone(),
        checkpoint: checkpoint.clone(),
    };
    let mut records = Records::open(journal)?;
    let mut leaves = std::iter::from_fn(|| records.next_leaf().transpose())
        .take(usize::try_from(checkpoint.tree_size).unwrap_or(usize::MAX));
    dossier::write(&mut out, &cover, &mut leaves, &bindings)?;
    out.out.flush()?;
    out.out.get_ref().sync_all()?;
    Ok((Hash(out.hasher.finalize().into()), out.octets))
}

fn bindings(journal: &Path) -> io::Result<Vec<KeyBinding>> {
    let mut found = Vec::new();
    let mut records = Records::open(journal)?;
    while let Some(record) = records.next()? {
        if let Record::Binding(binding) = record {
            found.push(binding);
        }
    }
    Ok(found)
}

/// The complete lines that a journal had when it was opened, but for its header.
struct Records(Lines<io::Take<File>>);

impl Records {
    fn open(journal: &Path) -> io::Result<Self> {
        let file = File::open(journal)?;
        let length = file.metadata()?.len();
        let mut lines = Lines::new(file.take(length));
        lines.next()?;
        Ok(Self(lines))
    }

    /// The next record. Lines that are none were torn, and stand at the end.
    fn next(&mut self) -> io::Result<Option<Record>> {
        // The last line may just be being written.
        while let Some(line) = self.0.next_filled()?.filter(|line| line.terminated) {
            if let Ok(record) = Record::read(line.text) {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    fn next_leaf(&mut self) -> io::Result<Option<Leaf>> {
        while let Some(record) = self.next()? {
            match record {
                Record::Plain(plain) => return Ok(Some(plain.into())),
                Record::Leaf(leaf) => return Ok(Some(leaf)),
                Record::Binding(_) => {}
            }
        }
        Ok(None)
    }
}

/// Hashes what is written on its way out.
struct Hashing<W> {
    out: W,
    hasher: Sha256,
    octets: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let length = self.out.write(octets)?;
        self.hasher.update(&octets[..length]);
        self.octets += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

//! `X.salts`: the random octets that open the journal's commitments, one line per payload leaf.
//!
//! Secret, and only needed to disclose or to forget, so nothing of it stays in memory. A salt is
//! written before its leaf; at a start those without a leaf, and those of forgotten leaves, go.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use super::fault::JournalError;
use crate::lines::Lines;
use crate::sidecar::{self, push_salt, read_salt};

/// What a start has to do with a salts file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// Keep this many octets, the whole file but for a torn end or salts without leaves.
    Keep { octets: u64, add_newline: bool },
    /// Salts that must go stand between others.
    Rewrite,
    /// There is no such file.
    Absent,
}

/// Which salts may stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live<'a> {
    /// Number of leaves.
    pub(super) size: u64,
    /// Leaves that were forgotten.
    pub(super) redacted: &'a BTreeSet<u64>,
}

impl Live<'_> {
    fn has(self, index: u64) -> bool {
        index < self.size && !self.redacted.contains(&index)
    }
}

/// Reads the salts file and changes nothing.
pub(super) fn inspect(path: &Path, live: Live<'_>) -> Result<Repair, JournalError> {
    let Some(file) = sidecar::open(path).map_err(JournalError::io("open", path))? else {
        return Ok(Repair::Absent);
    };
    let mut lines = Lines::new(file);
    let (mut octets, mut add_newline) = (0, false);
    let (mut unparsable, mut stale, mut rewrite) = (None, false, false);
    while let Some(line) = lines
        .next_filled()
        .map_err(JournalError::io("read", path))?
    {
        if let Some(number) = unparsable {
            return Err(JournalError::Sidecar {
                path: path.to_owned(),
                line: number,
                why: "this is no salt, and more follows; remove the file to go on without disclosing or forgetting earlier leaves",
            });
        }
        match read_salt(line.text) {
            None => unparsable = Some(line.number),
            Some((index, _)) if live.has(index) => {
                // A stale salt before a live one can only go by rewriting the file.
                rewrite |= stale;
                octets = line.end;
                add_newline = !line.terminated;
            }
            Some(_) => stale = true,
        }
    }
    Ok(if rewrite {
        Repair::Rewrite
    } else {
        Repair::Keep {
            octets,
            add_newline,
        }
    })
}

/// Writes the file anew with the live salts only, and gives its size.
pub(super) fn rewrite(path: &Path, live: Live<'_>) -> io::Result<u64> {
    let octets = sidecar::replace(path, |out| {
        let mut lines = Lines::new(File::open(path)?);
        let mut octets = 0;
        let mut kept = Vec::new();
        while let Some(line) = lines.next_filled()? {
            if let Some((index, salt)) = read_salt(line.text)
                && live.has(index)
            {
                kept.clear();
                push_salt(&mut kept, index, &salt);
                out.write_all(&kept)?;
                octets += kept.len() as u64;
            }
        }
        Ok(octets)
    })?;
    sidecar::sync_folder_of(path)?;
    Ok(octets)
}

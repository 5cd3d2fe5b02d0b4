//! The set of files that a long journal is: their names, and how each names the one before.
//!
//! Each segment is a journal by itself, whose indices begin at 0, so that the reference's tools can
//! read it and its dossier stays below their limit on input. `X.wlog` is segment 0, `X.0001.wlog` the
//! next. The first payload leaf of a later segment is
//! `{"number":N,"previous_head":{"root":"<64 hex>","size":N},"profile":"countersign.segment v1"}`.
//!
//! A call may be open while its journal rotates. Its result then stands in the later segment, its
//! payload and its line in `.calls` naming the intent by segment and index
//! ([`Place`](crate::calls::Place)). The open intents are listed in the later segment's `.calls`, so
//! that a start reads that one alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::sidecar::folder_of;
use crate::tree::TreeHead;

/// The highest number of a segment: names have four digits or more, and a journal of this many segments
/// would hold 800 thousand million leaves. A file with a higher number is none of ours.
pub const SEGMENT_MAX: u32 = 999_999;

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

/// The journal of which `path` can be a later segment, and that segment's number: the inverse of
/// [`segment_path`].
pub fn segment_of(path: &Path) -> Option<(PathBuf, u32)> {
    let stem = Path::new(path.file_stem()?);
    let (name, digits, extension) = match stem.extension() {
        Some(digits) => (stem.file_stem()?, digits, path.extension()),
        None => (stem.as_os_str(), path.extension()?, None),
    };
    let number = digits.to_str()?.parse().ok()?;
    let mut name = name.to_owned();
    if let Some(extension) = extension {
        name.push(".");
        name.push(extension);
    }
    let base = path.with_file_name(name);
    // Only one spelling of a number names a file.
    let known = (1..=SEGMENT_MAX).contains(&number);
    (known && segment_path(&base, number) == path).then_some((base, number))
}

/// The files of the later segments of the journal at `base`, by number from 1.
///
/// # Errors
/// The folder cannot be read; one that does not exist holds none.
pub fn later_segments(base: &Path) -> io::Result<BTreeMap<u32, PathBuf>> {
    let entries = match fs::read_dir(folder_of(base)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut segments = BTreeMap::new();
    for entry in entries {
        let path = base.with_file_name(entry?.file_name());
        if let Some((of, number)) = segment_of(&path)
            && of == base
        {
            segments.insert(number, path);
        }
    }
    Ok(segments)
}

/// The number of the newest segment of the journal at `base`, 0 if it never rotated.
///
/// # Errors
/// As [`later_segments`].
pub fn newest_segment(base: &Path) -> io::Result<u32> {
    let later = later_segments(base)?;
    Ok(later.last_key_value().map_or(0, |(number, _)| *number))
}

/// The files of `folder` that have a journal's name, in order.
///
/// # Errors
/// The folder cannot be read.
pub(crate) fn journals_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if has_journal_name(&path) && path.is_file() {
            journals.push(path);
        }
    }
    journals.sort_unstable();
    Ok(journals)
}

pub(crate) fn has_journal_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "wlog")
}

/// The payload by which segment `number` names the end of the one before it: canonical JSON.
pub fn segment_payload(number: u32, previous: TreeHead) -> Vec<u8> {
    format!(
        "{{\"number\":{number},\"previous_head\":{{\"root\":\"{}\",\"size\":{}}},\"profile\":\"countersign.segment v1\"}}",
        previous.root, previous.size
    )
    .into_bytes()
}

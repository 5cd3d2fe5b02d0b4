//! The files beside a journal: where they stand, and the lines of `X.salts`.
//!
//! The lines of `X.calls` are in [`calls`](crate::calls), those of `X.heads` are notes
//! ([`note`](crate::note)), each as a JSON string.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::commitment::Salt;
use crate::hex;
use crate::json::Members;

/// The file beside `journal` whose name has `.name` added.
pub(crate) fn path(journal: &Path, name: &str) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(".");
    path.push(name);
    path.into()
}

/// The folder in which `path` stands.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes what was created, renamed or removed beside `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Opens a file that may be missing.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts a new file, 0600 and synced, in the place of the one at `path`: it is never half there. Its
/// folder is not synced.
pub(crate) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> io::Result<T> {
    let draft = self::path(path, "tmp");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out)?;
    out.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    fs::rename(&draft, path)?;
    Ok(written)
}

/// Appends the line of one salt: `{"i":<index of its leaf>,"s":"<64 hex>"}`.
pub(crate) fn push_salt(lines: &mut Vec<u8>, index: u64, salt: &Salt) {
    write!(lines, "{{\"i\":{index},\"s\":\"").expect("a Vec takes every octet");
    hex::push(lines, salt);
    lines.extend(b"\"}\n");
}

/// One line's index and salt.
pub(crate) fn read_salt(text: &[u8]) -> Option<(u64, Salt)> {
    const FIELDS: [&str; 2] = ["i", "s"];
    let members = Members::read(text, &FIELDS).ok()?;
    let salt = hex::decode(members.string(1).ok()?.as_bytes()).ok()?;
    Some((members.u64(0).ok()?, salt))
}

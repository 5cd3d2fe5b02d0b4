//! Data to stdout. (Text for people goes to stderr.)

use std::io::Write as _;

/// Writes text to stdout; a reader that has gone is no error of ours.
pub(crate) fn data(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // `countersign … | head` closes the pipe when it has seen enough.
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

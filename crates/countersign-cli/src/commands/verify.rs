//! `countersign verify`: what holds of journals and dossiers.

use std::path::PathBuf;
use std::process::ExitCode;

use countersign_log::keys::PublicKey;
use countersign_log::{report, verdict};

use crate::args::Verify;
use crate::{USAGE, say};

/// Something does not hold.
const INVALID: u8 = 1;

pub(crate) fn run(args: &Verify) -> ExitCode {
    match judge(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(INVALID),
        Err(why) => {
            eprintln!("countersign verify: {why}");
            ExitCode::from(USAGE)
        }
    }
}

fn judge(args: &Verify) -> Result<bool, String> {
    if let Some(identity) = &args.identity {
        PublicKey::from_hex(identity)
            .map_err(|error| format!("--identity: {error}; give 64 hex digits"))?;
    }
    judge_files(&args.files, args.identity.as_deref(), args.json)
}

/// Verifies everything under `files` and prints what was found; whether all of it holds.
///
/// # Errors
/// There is no verdict: a file cannot be read, or is neither journal nor dossier.
pub(crate) fn judge_files(
    files: &[PathBuf],
    identity: Option<&str>,
    json: bool,
) -> Result<bool, String> {
    let mut all_hold = true;
    for target in verdict::targets(files).map_err(|error| error.to_string())? {
        for found in verdict::verify(&target, identity).map_err(|error| error.to_string())? {
            all_hold &= found.verdict() != verdict::Verdict::Invalid;
            say::data(&if json {
                format!("{}\n", report::json(&found))
            } else {
                report::text(&found)
            });
        }
    }
    Ok(all_hold)
}

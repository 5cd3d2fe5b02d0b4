//! `countersign verify`: what holds of journals and dossiers.

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
    let mut all_hold = true;
    for target in verdict::targets(&args.files).map_err(|error| error.to_string())? {
        let reports = verdict::verify(&target, args.identity.as_deref())
            .map_err(|error| error.to_string())?;
        for found in &reports {
            all_hold &= found.verdict() != verdict::Verdict::Invalid;
            say::data(&if args.json {
                format!("{}\n", report::json(found))
            } else {
                report::text(found)
            });
        }
    }
    Ok(all_hold)
}

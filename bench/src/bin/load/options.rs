//! The command line of the load client. `bench/run` fills in the folders.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::contender::Programs;

pub(crate) const USAGE: &str =
    "usage: load --product DIR --peers DIR --work DIR [--quick] [--write-each] [--only WORD]";

/// What `--quick` shortens.
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) starts: usize,
    /// Divides the number of calls of a round.
    pub(crate) divisor: usize,
    pub(crate) round_time_max: Duration,
}

const FULL: Effort = Effort {
    rounds: 7,
    starts: 20,
    divisor: 1,
    round_time_max: Duration::from_secs(1),
};

const QUICK: Effort = Effort {
    rounds: 3,
    starts: 5,
    divisor: 4,
    round_time_max: Duration::from_millis(300),
};

/// What a run is told.
pub(crate) struct Options {
    pub(crate) programs: Programs,
    /// An empty folder on the disk whose syncs are to count.
    pub(crate) work: PathBuf,
    pub(crate) effort: Effort,
    /// Passed on to the echo server.
    pub(crate) server_options: Vec<&'static str>,
    /// Only contenders with this in their name, beside the direct connection.
    pub(crate) only: Option<String>,
}

/// Reads the command line; `Err` says which word is at fault.
pub(crate) fn options() -> Result<Options, String> {
    let (mut product, mut peers, mut work, mut only) = (None, None, None, None);
    let mut effort = FULL;
    let mut server_options = Vec::new();
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        let slot = match word.as_str() {
            "--quick" => {
                effort = QUICK;
                continue;
            }
            "--write-each" => {
                server_options.push("--write-each");
                continue;
            }
            "--product" => &mut product,
            "--peers" => &mut peers,
            "--work" => &mut work,
            "--only" => &mut only,
            _ => return Err(format!("{word} is not an option")),
        };
        *slot = Some(
            words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?,
        );
    }
    let folder = |given: Option<String>, option: &str| {
        let given = given.ok_or_else(|| format!("{option} is missing"))?;
        fs::canonicalize(&given).map_err(|error| format!("{given}: {error}"))
    };
    let bench = env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let bench = bench.parent().unwrap_or(Path::new("/")).to_owned();
    Ok(Options {
        programs: Programs {
            bench,
            product: folder(product, "--product")?,
            peers: folder(peers, "--peers")?,
        },
        work: folder(work, "--work")?,
        effort,
        server_options,
        only,
    })
}

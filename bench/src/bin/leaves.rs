//! Leaves per second of one thread: appended one by one, appended in batches, verified.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use countersign_log::journal::{Journal, Limits, Opening, Seal};
use countersign_log::keys::Identity;
use countersign_log::leaf::Kind;
use countersign_log::verdict::{self, Verdict};

/// Leaves of each run: a second or so.
const LEAVES: u64 = 200_000;

/// What a call's payload has, give or take.
const PAYLOAD: &[u8] = &[b'p'; 200];

fn main() -> Result<(), String> {
    let folder = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or("usage: leaves FOLDER")?;
    println!("\n### Leaves, one thread\n\n| what | leaves/s |\n| --- | ---: |");
    for (what, batch) in [
        ("append, written one by one", 1),
        ("append, written 64 at a time", 64),
    ] {
        let took = append(&folder.join(format!("leaves-{batch}.wlog")), batch)?;
        println!("| {what} | {:.0} |", LEAVES as f64 / took.as_secs_f64());
    }
    let took = verify(&folder.join("leaves-64.wlog"))?;
    println!("| verify | {:.0} |", LEAVES as f64 / took.as_secs_f64());
    Ok(())
}

fn append(path: &Path, batch: u64) -> Result<Duration, String> {
    let (mut journal, _) = Journal::open(Opening {
        path,
        seal: Seal::Sealed(Identity::from_seed(&[1; 32])),
        session_seed: [2; 32],
        now_ms: 1_800_000_000_000,
        key_head: None,
        accept_head: None,
        lock_wait: Duration::ZERO,
        locked: None,
        limits: Limits::default(),
    })
    .map_err(|error| error.to_string())?;
    let began = Instant::now();
    for leaf in 1..=LEAVES {
        let mut salt = [0; 32];
        salt[..8].copy_from_slice(&leaf.to_be_bytes());
        journal.stage(Kind::Memory, PAYLOAD, &salt, 1_800_000_000_000 + leaf);
        if leaf % batch == 0 {
            journal.commit().map_err(|error| error.to_string())?;
        }
    }
    journal.commit().map_err(|error| error.to_string())?;
    let took = began.elapsed();
    journal
        .close(1_800_000_000_000 + LEAVES)
        .map_err(|error| error.to_string())?;
    Ok(took)
}

fn verify(path: &Path) -> Result<Duration, String> {
    let began = Instant::now();
    for target in verdict::targets(&[path.to_owned()]).map_err(|error| error.to_string())? {
        for report in verdict::verify(&target, None).map_err(|error| error.to_string())? {
            if report.verdict() == Verdict::Invalid {
                return Err(format!("{} does not verify", path.display()));
            }
        }
    }
    Ok(began.elapsed())
}

//! Memory does not grow with the number of leaves.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use countersign_log::checkpoint::Checkpoint;
use countersign_log::dossier::{Cover, write};
use countersign_log::hash::Hash;
use countersign_log::leaf::{Kind, Leaf, PlainLeaf};

use crate::sample::Sample;

const LEAVES: u64 = 300_000;

/// The program takes some 4 MiB for itself and its buffer; 32 octets a leaf would be 9 MiB more.
const PEAK_KIB_MAX: u64 = 8 << 10;

fn leaf(index: u64, session: [u8; 32]) -> PlainLeaf {
    let mut payload_hash = Hash::ZERO;
    payload_hash.0[..8].copy_from_slice(&index.to_be_bytes());
    PlainLeaf {
        kind: if index.is_multiple_of(2) {
            Kind::Intent
        } else {
            Kind::Result
        },
        index,
        timestamp_ms: 1_750_000_000_000 + index,
        session,
        payload_hash,
    }
}

/// A journal with a head every 1,000 leaves and a pair of calls for each result.
fn write_journal(path: &Path) -> Sample {
    let mut sample = Sample::new();
    sample.session();
    let session = countersign_log::hex::decode(sample.session_hex().as_bytes()).expect("hex");
    let mut journal = BufWriter::new(File::create(path).expect("writable"));
    let calls = File::create(path.with_extension("wlog.calls")).expect("writable");
    let mut calls = BufWriter::new(calls);
    journal.write_all(&sample.text).expect("there is room");
    let mut line = Vec::new();
    for index in 0..LEAVES {
        let leaf = leaf(index, session);
        line.clear();
        leaf.push_json(&mut line);
        line.push(b'\n');
        journal.write_all(&line).expect("there is room");
        sample.frontier.push(leaf.hash());
        if index % 2 == 1 {
            writeln!(calls, "{{\"r\":{index},\"i\":{}}}", index - 1).expect("there is room");
        }
        if index % 1000 == 999 {
            sample.sign();
        }
    }
    journal.flush().expect("there is room");
    calls.flush().expect("there is room");
    fs::write(path.with_extension("wlog.heads"), &sample.heads).expect("there is room");
    sample
}

fn write_dossier(path: &Path, sample: &Sample) {
    let session = countersign_log::hex::decode(sample.session_hex().as_bytes()).expect("hex");
    let head = sample.head();
    let cover = Cover {
        identity_pubkey: sample.identity.public().to_string(),
        checkpoint: Checkpoint::sign(&sample.identity, head.size, head.root, 1),
    };
    let mut leaves = (0..LEAVES).map(|index| Ok(Leaf::from(leaf(index, session))));
    let mut out = BufWriter::new(File::create(path).expect("writable"));
    write(&mut out, &cover, &mut leaves, &[]).expect("there is room");
    out.flush().expect("there is room");
}

/// Runs the program and reads its peak of resident memory again and again until it ends. The peak
/// never falls, so the last reading is at most what the last moments added below the truth.
fn peak_kib(path: &Path) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_countersign-verify"))
        .args([path.as_os_str(), "--json".as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    let (mut peak, mut readings) = (0, 0);
    while child.try_wait().expect("it is our child").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()) {
            peak = kib;
            readings += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(readings >= 10, "it ended before its memory could be read");
    let output = child.wait_with_output().expect("it is our child");
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["leaf_count"], LEAVES);
    peak
}

#[test]
fn a_long_journal_and_its_dossier_are_verified_in_the_memory_of_a_short_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = folder.path().join("j.wlog");
    let sample = write_journal(&journal);
    let peak = peak_kib(&journal);
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB for a journal");
    fs::remove_file(&journal).expect("it is there");
    let dossier = folder.path().join("j.dossier.json");
    write_dossier(&dossier, &sample);
    let peak = peak_kib(&dossier);
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB for a dossier");
}

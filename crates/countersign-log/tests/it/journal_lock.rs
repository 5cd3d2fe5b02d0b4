//! One process per journal, and a journal that is taken away while it is written.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign_log::journal::{Journal, JournalError, LOCK_WAIT, Opening, WriteError};
use countersign_log::leaf::Kind;

use crate::journal::{NOW_MS, audit, call, folder, open, opening, salt, side};

#[test]
fn a_journal_that_is_open_is_refused_and_its_owner_named() {
    let (_folder, path) = folder();
    let (journal, _) = open(&path);
    let pid = std::process::id();
    let lock = std::fs::read_to_string(side(&path, "lock")).unwrap();
    assert_eq!(lock, format!("{pid}\n"));
    let refused = Journal::open(opening(&path)).unwrap_err();
    assert!(matches!(refused, JournalError::Locked { .. }));
    assert!(
        refused.to_string().contains(&format!("process {pid}")),
        "{refused}"
    );
    drop(journal);
    drop(open(&path));
    assert!(!side(&path, "lock").exists());
}

#[test]
fn a_start_waits_while_the_old_process_still_drains() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    let waiting = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| {
            Journal::open(Opening {
                lock_wait: LOCK_WAIT,
                ..opening(&path)
            })
        });
        std::thread::sleep(Duration::from_millis(100));
        call(&mut journal, 0);
        journal.close(NOW_MS).unwrap();
        waiting.join().unwrap()
    });
    let (_journal, opened) = waiting.expect("the lock became free");
    assert_eq!(
        opened.leaves, 2,
        "what was written while it waited is there"
    );
}

#[test]
fn a_lock_file_counts_while_its_process_has_the_journal_open_without_a_kernel_lock() {
    let (_folder, path) = folder();
    drop(open(&path));
    // The reference opens its journal and takes no kernel lock: a child does the same here.
    let mut child = Command::new("sleep")
        .arg("30")
        .stdin(std::fs::File::open(&path).unwrap())
        .spawn()
        .unwrap();
    std::fs::write(side(&path, "lock"), format!("{}\n", child.id())).unwrap();
    let refused = Journal::open(opening(&path)).unwrap_err().to_string();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        refused.contains(&format!("process {}", child.id())),
        "{refused}"
    );
    drop(open(&path));
}

#[test]
fn w22_processes_that_race_for_a_journal_never_lose_a_leaf() {
    let (_folder, path) = folder();
    let written = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for racer in 0..4u64 {
            let (path, written) = (&path, &written);
            threads.spawn(move || {
                for round in 0..15u64 {
                    let opening = Opening {
                        lock_wait: Duration::from_secs(60),
                        session_seed: [(racer * 50 + round) as u8 + 1; 32],
                        ..opening(path)
                    };
                    let (mut journal, opened) = Journal::open(opening).unwrap();
                    assert_eq!(opened.leaves, written.load(Ordering::SeqCst));
                    for number in 0..3 {
                        journal.stage(Kind::Memory, b"", &salt(number), NOW_MS);
                        journal.commit().unwrap();
                        written.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let audit = audit(&path);
    assert_eq!(audit.leaves.len() as u64, 4 * 15 * 3);
    assert_eq!(audit.bindings.len(), 60);
    let numbers: Vec<_> = audit
        .bindings
        .iter()
        .map(|binding| binding.session_number)
        .collect();
    assert_eq!(numbers, (0..60).collect::<Vec<_>>());
}

#[test]
fn w26_a_journal_that_is_removed_or_replaced_while_it_is_written_stops_it() {
    for replace in [false, true] {
        let (_folder, path) = folder();
        let (mut journal, _) = open(&path);
        call(&mut journal, 0);
        let octets = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        if replace {
            std::fs::write(&path, octets).unwrap();
        }
        let stopped = journal.sync().unwrap_err();
        assert!(
            stopped.to_string().contains("removed or replaced"),
            "{stopped}"
        );
        journal.stage(Kind::Memory, b"", &salt(9), NOW_MS);
        assert!(matches!(journal.commit(), Err(WriteError::Stopped { .. })));
        assert!(matches!(
            journal.sign_head(NOW_MS),
            Err(WriteError::Stopped { .. })
        ));
        assert!(matches!(
            journal.close(NOW_MS),
            Err(WriteError::Stopped { .. })
        ));
    }
}

/// Where a child of the test below writes; only such a child has it.
const CHILD_JOURNAL: &str = "COUNTERSIGN_TEST_CHILD_JOURNAL";

#[test]
fn what_a_killed_process_had_committed_is_there_and_its_lock_is_taken_over() {
    if let Some(path) = std::env::var_os(CHILD_JOURNAL) {
        write_until_killed(Path::new(&path));
    }
    let (_folder, path) = folder();
    let mut leaves = 0;
    for lines in [1, 50, 400, 3, 1000] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("journal_lock::what_a_killed_process_had_committed_is_there_and_its_lock_is_taken_over")
            .env(CHILD_JOURNAL, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let committed: u64 = stdout
            .lines()
            .filter_map(|line| line.unwrap().strip_prefix("committed ")?.parse().ok())
            .nth(lines)
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(side(&path, "lock").exists(), "it had no time to tidy up");
        let (journal, opened) = open(&path);
        assert!(opened.leaves >= committed && committed > leaves);
        leaves = opened.leaves;
        assert_eq!(opened.open_intents.places.len() as u64, leaves % 2);
        drop(journal);
        assert_eq!(audit(&path).leaves.len() as u64, leaves);
    }
}

#[expect(
    clippy::print_stdout,
    reason = "this is how the child tells its parent"
)]
fn write_until_killed(path: &Path) -> ! {
    let (mut journal, opened) = open(path);
    if !opened.open_intents.is_empty() {
        journal.stage_lost(&opened.open_intents, &salt(0), NOW_MS);
    }
    for number in 0.. {
        call(&mut journal, number);
        println!("committed {}", journal.size());
    }
    unreachable!("it is killed long before it has counted so far")
}

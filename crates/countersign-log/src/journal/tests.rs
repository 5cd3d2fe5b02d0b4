//! Faults of the disk, each lost, half done, and done but reported lost.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::faulty::{Effect, Fault, Faults, Operation};
use super::store::Disk;
use super::*;
use crate::sidecar;

const NOW_MS: u64 = 1_800_000_000_000;
const EFFECTS: [Effect; 3] = [Effect::Lost, Effect::Half, Effect::Persisted];
const FILES: [&str; 3] = [".wlog", ".salts", ".calls"];

struct Bench {
    _folder: tempfile::TempDir,
    path: PathBuf,
    faults: Arc<Faults>,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    Bench {
        path: folder.path().join("j.wlog"),
        _folder: folder,
        faults: Arc::default(),
    }
}

fn opening(path: &Path) -> Opening<'_> {
    Opening {
        path,
        seal: Seal::Sealed(Identity::from_seed(&[1; 32])),
        session_seed: [2; 32],
        now_ms: NOW_MS,
        key_head: None,
        accept_head: None,
        locked: None,
        lock_wait: Duration::ZERO,
        limits: Limits::default(),
    }
}

impl Bench {
    fn open(&self) -> (Journal, Opened) {
        let disk = Disk::Faulty(self.faults.clone());
        Journal::open_on(opening(&self.path), disk).unwrap()
    }

    fn plan(&self, operation: Operation, name_ends: &'static str, effect: Effect, kind: ErrorKind) {
        self.faults.plan(Fault {
            operation,
            name_ends,
            effect,
            kind,
        });
    }

    fn contents(&self) -> [Vec<u8>; 3] {
        ["", ".salts", ".calls"].map(|name| {
            let path = format!("{}{name}", self.path.display());
            std::fs::read(path).unwrap()
        })
    }

    /// What a start that knows of no fault finds.
    fn reopened_head(&self) -> TreeHead {
        Journal::open(opening(&self.path)).unwrap().0.head()
    }
}

fn stage_call(journal: &mut Journal) {
    let intent = journal.stage(Kind::Intent, b"intent", &[3; 32], NOW_MS);
    let result = journal.stage(Kind::Result, b"result", &[4; 32], NOW_MS);
    journal.stage_pair(result, intent);
}

fn call(journal: &mut Journal) -> Result<(), WriteError> {
    stage_call(journal);
    journal.commit()
}

#[test]
fn a_failed_write_leaves_all_files_and_the_tree_as_before_and_the_next_one_works() {
    for name in FILES {
        for effect in EFFECTS {
            let bench = bench();
            let (mut journal, _) = bench.open();
            call(&mut journal).unwrap();
            let (before, head) = (bench.contents(), journal.head());
            bench.plan(Operation::Write, name, effect, ErrorKind::StorageFull);
            let lost = call(&mut journal).unwrap_err();
            assert!(lost.is_full() && lost.to_string().contains(name), "{lost}");
            assert_eq!((bench.contents(), journal.head()), (before, head));
            assert_eq!(journal.next_place().index, 2, "the batch is un-staged");
            journal.recover(&lost).unwrap();
            call(&mut journal).unwrap();
            let head = journal.head();
            assert_eq!(head.size, 4);
            drop(journal);
            assert_eq!(bench.reopened_head(), head);
        }
    }
}

#[test]
fn what_cannot_be_cut_back_at_once_is_cut_back_before_the_next_batch() {
    for name in FILES {
        for effect in [Effect::Lost, Effect::Persisted] {
            let bench = bench();
            let (mut journal, _) = bench.open();
            call(&mut journal).unwrap();
            let before = bench.contents();
            bench.plan(Operation::Write, ".calls", Effect::Half, ErrorKind::Other);
            bench.plan(Operation::Truncate, name, effect, ErrorKind::Other);
            bench.plan(Operation::Truncate, name, effect, ErrorKind::Other);
            let lost = call(&mut journal).unwrap_err();
            assert!(!lost.is_full());
            assert!(
                journal.recover(&lost).is_err(),
                "the second truncation fails too"
            );
            call(&mut journal).unwrap();
            let head = journal.head();
            for (after, before) in bench.contents().iter().zip(&before) {
                assert!(after.starts_with(before));
            }
            drop(journal);
            assert_eq!((bench.reopened_head(), head.size), (head, 4));
        }
    }
}

#[test]
fn a_crash_before_anything_was_cut_back_is_repaired_at_the_next_start() {
    for name in FILES {
        for effect in EFFECTS {
            let bench = bench();
            let (mut journal, _) = bench.open();
            call(&mut journal).unwrap();
            bench.plan(Operation::Write, name, effect, ErrorKind::Other);
            for cut in FILES {
                bench.plan(Operation::Truncate, cut, Effect::Lost, ErrorKind::Other);
            }
            call(&mut journal).unwrap_err();
            drop(journal);
            let (journal, opened) = Journal::open(opening(&bench.path)).unwrap();
            // Whole leaves that were reported lost may be there: they are leaves like others.
            assert!((2..=4).contains(&journal.size()), "{name} {effect:?}");
            assert_eq!(
                opened.open_intents.places.len() as u64,
                journal.size() % 2,
                "{name} {effect:?}"
            );
        }
    }
}

#[test]
fn a_failed_sync_stops_the_journal_for_good() {
    for name in FILES {
        for effect in [Effect::Lost, Effect::Persisted] {
            let bench = bench();
            let (mut journal, _) = bench.open();
            call(&mut journal).unwrap();
            bench.plan(Operation::Sync, name, effect, ErrorKind::Other);
            assert!(matches!(journal.sync(), Err(WriteError::Stopped { .. })));
            assert!(matches!(
                call(&mut journal),
                Err(WriteError::Stopped { .. })
            ));
            assert!(matches!(journal.sync(), Err(WriteError::Stopped { .. })));
            assert!(journal.sign_head(NOW_MS).is_err());
            drop(journal);
            assert_eq!(bench.reopened_head().size, 2);
            assert!(
                !sidecar::path(&bench.path, "heads").exists(),
                "no head covers what may be lost"
            );
        }
    }
}

#[test]
fn an_intent_is_on_disk_with_the_journal_alone_and_its_salt_follows() {
    let bench = bench();
    let (mut journal, _) = bench.open();
    call(&mut journal).unwrap();
    bench.plan(Operation::Sync, ".salts", Effect::Lost, ErrorKind::Other);
    let target = journal.sync_target().unwrap();
    let outcome = target.sync(SyncScope::Intents);
    journal
        .synced(&target, SyncScope::Intents, outcome)
        .unwrap();
    assert_eq!(journal.synced_head().map(|head| head.size), Some(2));
    assert!(journal.sync().is_err(), "the salts are still to be synced");
}

#[test]
fn a_head_that_cannot_be_written_is_signed_again_later() {
    for effect in EFFECTS {
        let bench = bench();
        let (mut journal, _) = bench.open();
        call(&mut journal).unwrap();
        journal.sync().unwrap();
        bench.plan(Operation::Write, ".heads", effect, ErrorKind::StorageFull);
        assert!(matches!(
            journal.sign_head(NOW_MS),
            Err(WriteError::Lost { .. })
        ));
        assert!(journal.sign_head(NOW_MS).unwrap().is_some());
        drop(journal);
        let heads = std::fs::read_to_string(sidecar::path(&bench.path, "heads")).unwrap();
        assert_eq!(heads.lines().count(), 1);
        assert_eq!(bench.reopened_head().size, 2);
    }
}

#[test]
fn the_reserve_is_given_up_only_when_the_disk_is_full_and_can_be_taken_again() {
    let bench = bench();
    let reserve = sidecar::path(&bench.path, "reserve");
    let (mut journal, _) = bench.open();
    assert!(journal.reserve_is_kept());
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), 1 << 20);
    bench.plan(Operation::Write, ".wlog", Effect::Lost, ErrorKind::Other);
    let lost = call(&mut journal).unwrap_err();
    journal.recover(&lost).unwrap();
    assert!(journal.reserve_is_kept());
    bench.plan(
        Operation::Write,
        ".wlog",
        Effect::Lost,
        ErrorKind::StorageFull,
    );
    let lost = call(&mut journal).unwrap_err();
    journal.recover(&lost).unwrap();
    assert!(!journal.reserve_is_kept() && !reserve.exists());
    assert!(journal.keep_reserve().is_ok() && reserve.exists());
}

#[test]
fn a_start_that_fails_leaves_no_new_journal_and_an_old_one_as_it_can_be_resumed() {
    for name in FILES {
        for effect in EFFECTS {
            let bench = bench();
            let disk = || Disk::Faulty(bench.faults.clone());
            bench.plan(Operation::Write, name, effect, ErrorKind::StorageFull);
            let started = Journal::open_on(opening(&bench.path), disk());
            let folder = || {
                std::fs::read_dir(bench.path.parent().unwrap())
                    .unwrap()
                    .count()
            };
            match started {
                Err(JournalError::Io { .. }) => assert_eq!(folder(), 0, "{name}"),
                // A start writes nothing to the salts.
                started => assert!(started.is_ok() && name == ".salts", "{name}"),
            }
            drop(Journal::open(opening(&bench.path)).unwrap());
            let before = bench.reopened_head();
            bench.plan(Operation::Write, name, effect, ErrorKind::StorageFull);
            let _ = Journal::open_on(opening(&bench.path), disk());
            assert_eq!(bench.reopened_head(), before);
        }
    }
}

#[test]
fn a_rotation_that_fails_at_any_write_goes_on_in_the_old_segment() {
    for name in ["j.0001.wlog", "j.0001.wlog.salts", "j.0001.wlog.calls"] {
        for effect in EFFECTS {
            let bench = bench();
            let disk = Disk::Faulty(bench.faults.clone());
            let small = Opening {
                limits: Limits {
                    leaves: 4,
                    ..Limits::default()
                },
                ..opening(&bench.path)
            };
            let (mut journal, _) = Journal::open_on(small, disk).unwrap();
            bench.plan(Operation::Write, name, effect, ErrorKind::StorageFull);
            for _ in 0..3 {
                call(&mut journal).unwrap();
            }
            assert!(journal.rotation_failure().is_some());
            assert_eq!((journal.segment(), journal.size()), (0, 6));
            assert_eq!(newest_segment(&bench.path).unwrap(), 0, "nothing half-made");
        }
    }
}

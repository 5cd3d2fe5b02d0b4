//! A long journal goes on in its next segment.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::path::Path;

use countersign_log::commitment::commit;
use countersign_log::hash::Hash;
use countersign_log::journal::{Journal, JournalError, Limits, Opening, Place};
use countersign_log::leaf::{Kind, Leaf};
use countersign_log::segments::{newest_segment, segment_of, segment_path};
use countersign_log::tree::TreeHead;

use crate::journal::{NOW_MS, audit, call, folder, opening, salt, side};

fn small(path: &Path) -> Opening<'_> {
    Opening {
        limits: Limits {
            leaves: 6,
            ..Limits::default()
        },
        ..opening(path)
    }
}

/// The payload of a segment's first leaf, checked against its commitment with the salt on disk.
fn assert_begins(path: &Path, number: u32, previous: TreeHead) {
    let payload = format!(
        r#"{{"number":{number},"previous_head":{{"root":"{}","size":{}}},"profile":"countersign.segment v1"}}"#,
        previous.root, previous.size
    );
    let salts = crate::journal::salts(path);
    let salt = countersign_log::hex::decode(salts[&0].as_bytes()).unwrap();
    let first: &Leaf = &audit(path).leaves[0];
    assert_eq!(first.kind(), Some(Kind::Memory));
    assert_eq!(
        first.payload_hash,
        commit(payload.as_bytes(), &salt, 0).to_hex()
    );
}

fn head_of(path: &Path) -> TreeHead {
    let audit = audit(path);
    TreeHead {
        size: audit.leaves.len() as u64,
        root: audit.root,
    }
}

#[test]
fn segments_are_named_in_the_middle_and_found_by_name() {
    let name = |path: &str, number| segment_path(Path::new(path), number);
    assert_eq!(name("a/git.wlog", 0), Path::new("a/git.wlog"));
    assert_eq!(name("a/git.wlog", 1), Path::new("a/git.0001.wlog"));
    assert_eq!(name("a/git", 12_345), Path::new("a/git.12345"));
    let (folder, path) = folder();
    for other in [
        "j.0001.wlog",
        "j.0003.wlog",
        "j.4.wlog",
        "k.0009.wlog",
        "j.0007.wlog.salts",
    ] {
        std::fs::write(folder.path().join(other), "").unwrap();
    }
    assert_eq!(newest_segment(&path).unwrap(), 3);
}

#[test]
fn the_name_of_a_segment_leads_back_to_its_journal() {
    for base in ["j.wlog", "folder/a.b.wlog", "plain"] {
        for number in [1, 42, 12_345] {
            let path = segment_path(Path::new(base), number);
            assert_eq!(segment_of(&path), Some((base.into(), number)));
        }
    }
    for other in [
        "j.1000000.wlog",
        "j.4294967295.wlog",
        "j.wlog",
        "j.1.wlog",
        "j.0000.wlog",
        "j.00001.wlog",
        "plain",
    ] {
        assert_eq!(segment_of(Path::new(other)), None, "{other}");
    }
}

#[test]
fn a_full_segment_is_signed_and_the_next_begins_with_its_head() {
    let (folder, path) = folder();
    let copy = folder.path().join("key.head");
    let opening = || Opening {
        key_head: Some(&copy),
        ..small(&path)
    };
    let (mut journal, _) = Journal::open(opening()).unwrap();
    for number in 0..20 {
        call(&mut journal, number);
    }
    assert_eq!(journal.rotation_failure(), None);
    let last = journal.segment();
    assert!(last >= 6, "{last}");
    assert_eq!(newest_segment(&path).unwrap(), last);
    let head = journal.head();
    journal.close(NOW_MS).unwrap();
    let mut calls = 0;
    for number in 0..=last {
        let segment = segment_path(&path, number);
        if number > 0 {
            assert_begins(&segment, number, head_of(&segment_path(&path, number - 1)));
        }
        assert!(side(&segment, "heads").exists() || number == last);
        assert!(!side(&segment, "lock").exists());
        calls += audit(&segment)
            .leaves
            .iter()
            .filter(|leaf| leaf.leaf_type == 2)
            .count();
    }
    assert_eq!(calls, 20);
    let (mut journal, opened) = Journal::open(opening()).unwrap();
    assert_eq!((opened.segment, journal.head()), (last, head));
    assert!(opened.open_intents.is_empty());
    call(&mut journal, 99);
}

#[test]
fn a_call_that_is_open_while_its_journal_rotates_keeps_its_place_and_is_not_lost() {
    let (_folder, path) = folder();
    let (mut journal, _) = Journal::open(small(&path)).unwrap();
    let early = journal.stage(Kind::Intent, b"early", &salt(100), NOW_MS);
    let lost = journal.stage(Kind::Intent, b"lost", &salt(101), NOW_MS);
    for number in 0..12 {
        call(&mut journal, number);
    }
    let segment = journal.segment();
    assert!(segment >= 2);
    assert_eq!(
        early,
        Place {
            segment: 0,
            index: 0
        }
    );
    let result = journal.stage(Kind::Result, b"late", &salt(102), NOW_MS);
    journal.stage_pair(result, early);
    journal.commit().unwrap();
    assert_eq!(result.segment, segment);
    let calls = std::fs::read_to_string(side(&segment_path(&path, segment), "calls")).unwrap();
    let pair = format!(r#"{{"r":{},"i":0,"g":0}}"#, result.index);
    assert!(calls.lines().any(|line| line == pair), "{calls}");
    drop(journal);
    let (mut journal, opened) = Journal::open(small(&path)).unwrap();
    assert_eq!(opened.open_intents.places, [lost]);
    journal.stage_lost(&opened.open_intents, &salt(103), NOW_MS);
    journal.commit().unwrap();
    drop(journal);
    assert!(
        Journal::open(small(&path))
            .unwrap()
            .1
            .open_intents
            .is_empty()
    );
}

#[test]
fn a_crash_while_a_segment_is_begun_is_made_good_at_the_next_start() {
    let (_folder, path) = folder();
    let (mut journal, _) = Journal::open(small(&path)).unwrap();
    let open = journal.stage(Kind::Intent, b"open", &salt(100), NOW_MS);
    for number in 0..3 {
        call(&mut journal, number);
    }
    assert_eq!(journal.segment(), 1);
    drop(journal);
    // The intent that filled the segment; its result is in the part that the crash takes.
    let across = Place {
        segment: 0,
        index: 5,
    };
    let next = segment_path(&path, 1);
    let whole = std::fs::read(&next).unwrap();
    let sidecars = ["salts", "calls"].map(|name| {
        let path = side(&next, name);
        let octets = std::fs::read(&path).unwrap();
        (path, octets)
    });
    let lines: Vec<_> = whole.split_inclusive(|octet| *octet == b'\n').collect();
    let begun = lines[..3].concat().len();
    for length in 0..=begun {
        // What is in the sidecars was there before the leaf was.
        for with_sidecars in [true, false] {
            let leaf_is_whole = length + 1 >= begun;
            for (path, octets) in &sidecars {
                let octets: &[u8] = if with_sidecars || leaf_is_whole {
                    octets
                } else {
                    b""
                };
                std::fs::write(path, octets).unwrap();
            }
            std::fs::write(&next, &whole[..length]).unwrap();
            let (mut journal, opened) = Journal::open(small(&path)).unwrap();
            assert_eq!((opened.segment, opened.leaves), (1, 1), "{length}");
            assert_eq!(opened.open_intents.places, [open, across], "{length}");
            assert_begins(&next, 1, head_of(&path));
            call(&mut journal, 9);
        }
    }
}

#[test]
fn a_segment_that_was_removed_is_missed_by_the_copy_beside_the_key() {
    let (folder, path) = folder();
    let copy = folder.path().join("key.head");
    let opening = || Opening {
        key_head: Some(&copy),
        ..small(&path)
    };
    let (mut journal, _) = Journal::open(opening()).unwrap();
    for number in 0..4 {
        call(&mut journal, number);
    }
    assert_eq!(journal.segment(), 1);
    journal.close(NOW_MS).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap().path();
        if entry.to_string_lossy().contains("j.0001") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    let refused = Journal::open(opening()).unwrap_err();
    assert!(
        matches!(refused, JournalError::HeadNotReproduced(_)),
        "{refused}"
    );
}

#[test]
fn a_segment_that_cannot_be_made_keeps_the_journal_going_in_the_one_it_has() {
    let (_folder, path) = folder();
    let (mut journal, _) = Journal::open(small(&path)).unwrap();
    std::fs::write(side(&segment_path(&path, 1), "salts"), "").unwrap();
    for number in 0..5 {
        call(&mut journal, number);
    }
    assert!(
        journal
            .rotation_failure()
            .is_some_and(|why| why.contains("j.0001.wlog.salts"))
    );
    assert_eq!((journal.segment(), journal.size()), (0, 10));
    assert_ne!(journal.root(), Hash::ZERO);
}

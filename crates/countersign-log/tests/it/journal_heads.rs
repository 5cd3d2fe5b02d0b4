//! Signed heads: a journal that was cut back or rewritten since it signed is refused (W29).

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::path::Path;

use countersign_log::journal::{
    Journal, JournalError, Opening, SignedHead, Warning, earlier_heads, is_folder, run_path,
};
use countersign_log::leaf::Kind;
use countersign_log::tree::TreeHead;

use crate::journal::{NOW_MS, audit, call, folder, identity, open, opening, salt, side};

fn with_copy<'a>(path: &'a Path, copy: &'a Path) -> Opening<'a> {
    Opening {
        key_head: Some(copy),
        ..opening(path)
    }
}

fn sign(journal: &mut Journal, now_ms: u64) -> SignedHead {
    journal.sync().unwrap();
    journal.sign_head(now_ms).unwrap().expect("a new head")
}

/// Keeps the first `leaves` leaves of a journal.
fn cut_to(path: &Path, leaves: usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut left = leaves;
    let kept: String = text
        .split_inclusive('\n')
        .take_while(|line| {
            let is_leaf = line.starts_with("{\"index\"");
            if is_leaf && left == 0 {
                return false;
            }
            left -= usize::from(is_leaf);
            true
        })
        .collect();
    std::fs::write(path, kept).unwrap();
}

#[test]
fn a_head_is_a_checkpoint_note_that_this_identity_signed() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    assert!(
        journal.sign_head(NOW_MS).unwrap().is_none(),
        "nothing is on disk yet"
    );
    call(&mut journal, 0);
    assert!(
        journal.sign_head(NOW_MS).unwrap().is_none(),
        "nothing is known to be on disk"
    );
    let signed = sign(&mut journal, NOW_MS + 5);
    assert!(signed.checkpoint.verifies());
    assert_eq!(signed.checkpoint.root_hash, journal.root().to_hex());
    let lines: Vec<_> = signed.note.lines().collect();
    assert_eq!(lines[0], format!("witness-log/{}", identity().public()));
    assert_eq!(lines[1], "2");
    assert_eq!(lines[3], format!("time {}", NOW_MS + 5));
    assert_eq!(lines[4], "");
    assert!(lines[5].starts_with(&format!("\u{2014} {} ", lines[0])));
    let kept = std::fs::read_to_string(side(&path, "heads")).unwrap();
    let note: String = serde_json::from_str(kept.trim_end()).unwrap();
    assert_eq!(note, signed.note);
    assert!(
        journal.sign_head(NOW_MS + 6).unwrap().is_none(),
        "nothing is new"
    );
}

#[test]
fn a_head_covers_only_what_was_on_disk_when_the_sync_began() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    let target = journal.sync_target().unwrap();
    call(&mut journal, 1);
    let scope = countersign_log::journal::SyncScope::All;
    let outcome = target.sync(scope);
    journal.synced(&target, scope, outcome).unwrap();
    let signed = journal.sign_head(NOW_MS).unwrap().unwrap();
    assert_eq!((signed.checkpoint.tree_size, journal.size()), (2, 4));
}

#[test]
fn w29_a_journal_that_was_cut_back_or_rewritten_is_refused_and_left_as_it_is() {
    let changes: [fn(&Path); 3] = [
        |path| cut_to(path, 3),
        |path| cut_to(path, 0),
        |path| {
            let text = std::fs::read_to_string(path).unwrap();
            let leaf = &audit(path).leaves[2];
            let earlier = format!("\"timestamp_ms\":{}", leaf.timestamp_ms);
            let later = format!("\"timestamp_ms\":{}", leaf.timestamp_ms + 1);
            assert!(text.contains(&earlier));
            std::fs::write(path, text.replace(&earlier, &later)).unwrap();
        },
    ];
    for change in changes {
        let (_folder, path) = folder();
        let (mut journal, _) = open(&path);
        call(&mut journal, 0);
        call(&mut journal, 1);
        journal.close(NOW_MS).unwrap();
        change(&path);
        let changed = std::fs::read(&path).unwrap();
        let refused = Journal::open(opening(&path)).unwrap_err();
        assert!(
            matches!(refused, JournalError::HeadNotReproduced(_)),
            "{refused}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), changed);
    }
}

#[test]
fn w29_without_its_heads_a_journal_is_refused_when_one_is_kept_beside_the_key() {
    let (folder, path) = folder();
    let copy = folder.path().join("key.head");
    let (mut journal, _) = Journal::open(with_copy(&path, &copy)).unwrap();
    call(&mut journal, 0);
    journal.close(NOW_MS).unwrap();
    drop(Journal::open(with_copy(&path, &copy)).unwrap());
    std::fs::remove_file(side(&path, "heads")).unwrap();
    let refused = Journal::open(with_copy(&path, &copy)).unwrap_err();
    assert!(matches!(refused, JournalError::HeadsGone(_)), "{refused}");
    // The journal and all beside it gone: not begun anew as if nothing had been.
    for name in ["salts", "calls", "tree"] {
        std::fs::remove_file(side(&path, name)).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
    let refused = Journal::open(with_copy(&path, &copy)).unwrap_err();
    assert!(
        matches!(refused, JournalError::HeadNotReproduced(_)),
        "{refused}"
    );
    assert!(!path.exists());
    // Without a copy there is nothing to tell it by.
    drop(open(&path));
}

#[test]
fn w29_a_removed_journal_is_missed_by_its_heads_which_stay_as_evidence() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    journal.close(NOW_MS).unwrap();
    let heads = std::fs::read(side(&path, "heads")).unwrap();
    for file in [path.clone(), side(&path, "salts")] {
        std::fs::remove_file(file).unwrap();
    }
    for _ in 0..2 {
        let refused = Journal::open(opening(&path)).unwrap_err();
        assert!(
            matches!(refused, JournalError::HeadNotReproduced(_)),
            "{refused}"
        );
        assert_eq!(std::fs::read(side(&path, "heads")).unwrap(), heads);
        assert!(!path.exists());
    }
}

#[test]
fn w29_cut_back_together_with_its_heads_a_journal_is_refused_by_the_copy_beside_the_key() {
    let (folder, path) = folder();
    let copy = folder.path().join("key.head");
    let (mut journal, _) = Journal::open(with_copy(&path, &copy)).unwrap();
    call(&mut journal, 0);
    sign(&mut journal, NOW_MS).keep().unwrap();
    let early = [path.clone(), side(&path, "heads")].map(|file| {
        let octets = std::fs::read(&file).unwrap();
        (file, octets)
    });
    call(&mut journal, 1);
    journal.close(NOW_MS).unwrap();
    for (file, octets) in early {
        std::fs::write(file, octets).unwrap();
    }
    let refused = Journal::open(with_copy(&path, &copy)).unwrap_err();
    let JournalError::HeadNotReproduced(fault) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (&fault.kept_in, fault.head.size, fault.found.size),
        (&copy, 4, 2)
    );
}

#[test]
fn an_accepted_head_must_be_the_present_one_and_is_signed_so_that_the_next_start_is_quiet() {
    let (folder, path) = folder();
    let copy = folder.path().join("key.head");
    let (mut journal, _) = Journal::open(with_copy(&path, &copy)).unwrap();
    call(&mut journal, 0);
    let past = journal.head();
    call(&mut journal, 1);
    journal.close(NOW_MS).unwrap();
    cut_to(&path, 2);
    let accepting = |head| Opening {
        accept_head: Some(head),
        ..with_copy(&path, &copy)
    };
    let other = TreeHead { size: 1, ..past };
    let refused = Journal::open(accepting(other)).unwrap_err();
    assert!(matches!(refused, JournalError::NotThatHead(_)), "{refused}");
    let (mut journal, opened) = Journal::open(accepting(past)).unwrap();
    let [Warning::HeadAccepted { head, instead }] = opened.warnings.as_slice() else {
        panic!("{:?}", opened.warnings)
    };
    assert_eq!(*head, past);
    assert!(instead.contains("cut back or rewritten"));
    call(&mut journal, 2);
    drop(journal);
    let (_, opened) = Journal::open(with_copy(&path, &copy)).unwrap();
    assert!(opened.warnings.is_empty());
}

#[test]
fn a_torn_last_head_is_cut_off_and_a_forged_one_is_refused() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    sign(&mut journal, NOW_MS);
    call(&mut journal, 1);
    journal.close(NOW_MS).unwrap();
    let heads = side(&path, "heads");
    let whole = std::fs::read(&heads).unwrap();
    std::fs::write(&heads, &whole[..whole.len() - 20]).unwrap();
    let (mut journal, opened) = open(&path);
    assert_eq!(opened.warnings, [Warning::HeadTorn]);
    sign(&mut journal, NOW_MS);
    drop(journal);
    assert!(open(&path).1.warnings.is_empty());
    let forged = String::from_utf8(whole)
        .unwrap()
        .replace("\\n4\\n", "\\n2\\n");
    std::fs::write(&heads, forged).unwrap();
    let refused = Journal::open(opening(&path)).unwrap_err();
    assert!(
        matches!(refused, JournalError::HeadUnreadable { .. }),
        "{refused}"
    );
}

#[test]
fn heads_that_cannot_be_read_are_refused_until_the_present_head_is_accepted() {
    let (folder, path) = folder();
    let copy = folder.path().join("key.head");
    for damaged in [side(&path, "heads"), copy.clone()] {
        let (mut journal, _) = Journal::open(with_copy(&path, &copy)).unwrap();
        call(&mut journal, 0);
        let head = journal.head();
        journal.close(NOW_MS).unwrap();
        std::fs::write(&damaged, "\"garbage\"\n").unwrap();
        let refused = Journal::open(with_copy(&path, &copy)).unwrap_err();
        let JournalError::HeadUnreadable { file, found } = &refused else {
            panic!("{refused}")
        };
        assert_eq!((file, **found), (&damaged, head));
        let accepting = Opening {
            accept_head: Some(head),
            ..with_copy(&path, &copy)
        };
        let (journal, opened) = Journal::open(accepting).unwrap();
        assert_eq!(opened.warnings.len(), 1);
        drop(journal);
        let (_, opened) = Journal::open(with_copy(&path, &copy)).unwrap();
        assert!(opened.warnings.is_empty());
    }
}

#[test]
fn the_last_thousand_heads_and_the_first_of_each_day_are_kept() {
    const PER_DAY: u64 = 700;
    const DAY_MS: u64 = 86_400_000;
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    let mut sizes = Vec::new();
    for number in 0..5 * PER_DAY {
        let now_ms = NOW_MS / DAY_MS * DAY_MS + number / PER_DAY * DAY_MS + number % PER_DAY;
        journal.stage(Kind::Memory, b"", &salt(number), now_ms);
        journal.commit().unwrap();
        // A sync of the disk for each head would only make the test slow.
        let target = journal.sync_target().unwrap();
        journal
            .synced(&target, countersign_log::journal::SyncScope::All, Ok(()))
            .unwrap();
        journal.sign_head(now_ms).unwrap().unwrap();
        sizes.push(number + 1);
    }
    let text = std::fs::read_to_string(side(&path, "heads")).unwrap();
    let kept: Vec<u64> = text
        .lines()
        .map(|line| {
            let note: String = serde_json::from_str(line).unwrap();
            note.lines().nth(1).unwrap().parse().unwrap()
        })
        .collect();
    assert!(kept.ends_with(&sizes[sizes.len() - 1_000..]));
    for day in 0..5 {
        assert!(
            kept.contains(&(day * PER_DAY + 1)),
            "the first head of day {day}"
        );
    }
    assert!(kept.len() <= 2_010, "{}", kept.len());
    drop(journal);
    assert!(open(&path).1.warnings.is_empty());
}

#[test]
fn each_run_of_a_folder_journal_has_its_file_and_sees_the_heads_of_those_before_it() {
    let (folder, _) = folder();
    let runs = folder.path().join("state/name");
    assert!(is_folder(Path::new("state/name/")) && !is_folder(Path::new("j.wlog")));
    let first = run_path(&runs, "2027-01-15T08-00-00Z-ab").unwrap();
    let second = run_path(&runs, "2027-01-15T09-00-00Z-cd").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(
        std::fs::metadata(&runs).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let (mut one, _) = open(&first);
    call(&mut one, 0);
    let head = one.head();
    one.close(NOW_MS).unwrap();
    let (two, _) = open(&second);
    let earlier = earlier_heads(&runs, &second, identity().public()).unwrap();
    assert_eq!(earlier.len(), 1);
    assert_eq!(earlier[0].journal, "2027-01-15T08-00-00Z-ab.wlog");
    assert_eq!(earlier[0].head, head);
    drop(two);
    for name in ["", "..", "a/b", ".hidden", "a b"] {
        assert!(
            matches!(run_path(&runs, name), Err(JournalError::RunName(_))),
            "{name:?}"
        );
    }
}

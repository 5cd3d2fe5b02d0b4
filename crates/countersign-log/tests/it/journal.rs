//! What is written while a journal is open: leaves, salts, pairs, nodes; and how the other tests open one.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign_log::commitment::{Salt, commit};
use countersign_log::hash::Hash;
use countersign_log::journal::{
    Journal, JournalError, Limits, OpenIntents, Opened, Opening, Place, Seal, Warning,
};
use countersign_log::keys::{Identity, KeyBinding};
use countersign_log::leaf::{Kind, Leaf, PlainLeaf};
use countersign_log::tree::{
    Frontier, Nodes as _, TreeHead, consistency_proof, inclusion_proof, node, verify_consistency,
    verify_inclusion,
};

pub(crate) const NOW_MS: u64 = 1_800_000_000_000;

/// The seed whose octets are 1, 2, … 32, which the recorded journals use.
pub(crate) fn seed() -> [u8; 32] {
    std::array::from_fn(|at| at as u8 + 1)
}

pub(crate) fn identity() -> Identity {
    Identity::from_seed(&seed())
}

pub(crate) fn opening(path: &Path) -> Opening<'_> {
    Opening {
        path,
        seal: Seal::Sealed(identity()),
        session_seed: [7; 32],
        now_ms: NOW_MS,
        key_head: None,
        accept_head: None,
        locked: None,
        lock_wait: Duration::ZERO,
        limits: Limits::default(),
    }
}

pub(crate) fn open(path: &Path) -> (Journal, Opened) {
    Journal::open(opening(path)).expect("the journal opens")
}

/// A salt that a test can make again.
pub(crate) fn salt(number: u64) -> Salt {
    Hash::of(&[b"salt", &number.to_be_bytes()]).0
}

/// One call, committed: an intent and its result.
pub(crate) fn call(journal: &mut Journal, number: u64) -> (Place, Place) {
    let intent = journal.stage(Kind::Intent, b"intent", &salt(2 * number), NOW_MS + number);
    journal.commit().expect("the disk takes it");
    let result = journal.stage(
        Kind::Result,
        b"result",
        &salt(2 * number + 1),
        NOW_MS + number,
    );
    journal.stage_pair(result, intent);
    journal.commit().expect("the disk takes it");
    (intent, result)
}

/// A journal as an auditor reads it.
pub(crate) struct Audit {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) bindings: Vec<KeyBinding>,
    pub(crate) root: Hash,
}

/// Reads a whole journal by the format alone and checks all that can be checked without payloads.
pub(crate) fn audit(path: &Path) -> Audit {
    let text = std::fs::read_to_string(path).expect("a journal is text");
    assert!(text.ends_with('\n'), "the last line is whole");
    let mut audit = Audit {
        leaves: Vec::new(),
        bindings: Vec::new(),
        root: Frontier::default().root(),
    };
    let mut frontier = Frontier::default();
    for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        match Leaf::read(line.as_bytes()) {
            Ok(leaf) => {
                leaf.check(frontier.size()).expect("a sound leaf");
                assert!(
                    audit
                        .bindings
                        .iter()
                        .any(|binding| binding.session_pubkey == leaf.session_pubkey),
                    "leaf {} was written by a bound session",
                    leaf.index
                );
                frontier.push(leaf.hash());
                audit.leaves.push(leaf);
            }
            Err(_) => {
                let binding = KeyBinding::read(line.as_bytes()).expect("a binding");
                assert!(binding.verifies());
                audit.bindings.push(binding);
            }
        }
    }
    audit.root = frontier.root();
    audit
}

/// Salts by index, as a reader takes them: the last line for an index counts.
pub(crate) fn salts(path: &Path) -> std::collections::BTreeMap<u64, String> {
    let mut salts = std::collections::BTreeMap::new();
    for line in std::fs::read_to_string(side(path, "salts"))
        .unwrap_or_default()
        .lines()
    {
        let line: serde_json::Value = serde_json::from_str(line).expect("a salt is JSON");
        salts.insert(
            line["i"].as_u64().unwrap(),
            line["s"].as_str().unwrap().to_owned(),
        );
    }
    salts
}

pub(crate) fn side(path: &Path, name: &str) -> PathBuf {
    PathBuf::from(format!("{}.{name}", path.display()))
}

pub(crate) fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("j.wlog");
    (folder, path)
}

#[test]
fn a_new_journal_is_the_header_and_a_binding_as_the_reference_writes_them() {
    let (_folder, path) = folder();
    let (journal, opened) = open(&path);
    assert!(opened.created);
    assert_eq!((opened.leaves, opened.session_number), (0, 0));
    assert!(opened.warnings.is_empty());
    journal.close(NOW_MS).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!(
            r#"{{"format_version":1,"identity_bytes_hex":"","identity_pubkey_hex":"{}","session_number":0}}"#,
            identity().public()
        )
    );
    assert_eq!(lines.len(), 2);
    let binding = KeyBinding::read(lines[1].as_bytes()).unwrap();
    assert!(binding.verifies());
    assert_eq!(binding.session_number, 0);
    use std::os::unix::fs::PermissionsExt as _;
    for file in [path.clone(), side(&path, "salts"), side(&path, "calls")] {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    assert!(!side(&path, "lock").exists() && !side(&path, "reserve").exists());
}

#[test]
fn leaves_and_salts_are_what_the_formats_own_functions_make_of_the_payloads() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    let kinds = [Kind::Intent, Kind::Result, Kind::Memory];
    for (at, kind) in kinds.into_iter().cycle().take(30).enumerate() {
        let payload = vec![b'p'; at * 37];
        let place = journal.stage(kind, &payload, &salt(at as u64), NOW_MS + at as u64);
        assert_eq!(
            place,
            Place {
                segment: 0,
                index: at as u64
            }
        );
        if at % 4 == 3 {
            journal.commit().unwrap();
        }
    }
    journal.commit().unwrap();
    let head = journal.head();
    let session = journal.session();
    journal.close(NOW_MS).unwrap();
    let audit = audit(&path);
    assert_eq!(
        (audit.leaves.len() as u64, audit.root),
        (head.size, head.root)
    );
    let salts = salts(&path);
    for (at, leaf) in audit.leaves.iter().enumerate() {
        let index = at as u64;
        let expected = PlainLeaf {
            kind: kinds[at % 3],
            index,
            timestamp_ms: NOW_MS + index,
            session: session.0,
            payload_hash: commit(&vec![b'p'; at * 37], &salt(index), index),
        };
        assert_eq!(*leaf, Leaf::from(expected));
        assert_eq!(salts[&index], countersign_log::hex::encode(&salt(index)));
    }
}

#[test]
fn time_never_runs_backwards_in_a_journal_even_across_runs() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    journal.stage(Kind::Memory, b"a", &salt(0), NOW_MS + 50);
    journal.stage(Kind::Memory, b"b", &salt(1), NOW_MS);
    journal.commit().unwrap();
    journal.stage(Kind::Memory, b"c", &salt(2), 5);
    journal.commit().unwrap();
    drop(journal);
    let (mut journal, _) = open(&path);
    journal.stage(Kind::Memory, b"d", &salt(3), 6);
    journal.commit().unwrap();
    drop(journal);
    assert!(
        audit(&path)
            .leaves
            .iter()
            .all(|leaf| leaf.timestamp_ms == NOW_MS + 50)
    );
}

#[test]
fn what_is_staged_and_not_committed_is_not_in_the_journal() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    let head = journal.head();
    journal.stage(Kind::Memory, b"never", &salt(9), NOW_MS);
    assert_eq!(journal.head(), head);
    journal.unstage();
    assert_eq!(journal.next_place().index, 2);
    journal.stage(Kind::Memory, b"dropped", &salt(9), NOW_MS);
    drop(journal);
    assert_eq!(audit(&path).leaves.len(), 2);
}

#[test]
fn an_intent_without_a_result_is_found_at_the_next_start_and_reported_once() {
    let (_folder, path) = folder();
    let (mut journal, opened) = open(&path);
    assert!(opened.open_intents.is_empty());
    call(&mut journal, 0);
    let lost = [
        journal.stage(Kind::Intent, b"x", &salt(90), NOW_MS),
        journal.stage(Kind::Intent, b"y", &salt(91), NOW_MS),
    ];
    journal.commit().unwrap();
    call(&mut journal, 1);
    drop(journal);

    let (mut journal, opened) = open(&path);
    assert_eq!(opened.open_intents.places, lost);
    assert!(opened.open_intents.sessions.is_empty());
    let place = journal.stage_lost(&opened.open_intents, &salt(92), NOW_MS);
    journal.commit().unwrap();
    call(&mut journal, 2);
    let payload = br#"{"intents":[2,3],"profile":"countersign.lost v1"}"#;
    let leaf = &audit(&path).leaves[place.index as usize];
    assert_eq!(
        leaf.payload_hash,
        commit(payload, &salt(92), place.index).to_hex()
    );
    let calls = std::fs::read_to_string(side(&path, "calls")).unwrap();
    let line = format!(
        r#"{{"l":{},"p":{}}}"#,
        place.index,
        str::from_utf8(payload).unwrap()
    );
    assert!(calls.lines().any(|there| there == line), "{calls}");
    drop(journal);
    let (_journal, opened) = open(&path);
    assert_eq!(opened.open_intents, OpenIntents::default());
}

#[test]
fn of_a_session_that_keeps_no_pairs_only_the_count_of_open_intents_is_told() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    journal.stage(Kind::Intent, b"x", &salt(90), NOW_MS);
    journal.commit().unwrap();
    let session = journal.session();
    drop(journal);
    std::fs::remove_file(side(&path, "calls")).unwrap();
    let (mut journal, opened) = open(&path);
    assert!(opened.open_intents.places.is_empty());
    assert_eq!(opened.open_intents.sessions, [(session.to_string(), 1)]);
    journal.stage_lost(&opened.open_intents, &salt(91), NOW_MS);
    journal.commit().unwrap();
    drop(journal);
    assert!(open(&path).1.open_intents.is_empty());
}

#[test]
fn pairs_that_did_not_reach_the_disk_do_not_make_answered_calls_look_lost() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    for number in 0..3 {
        call(&mut journal, number);
    }
    drop(journal);
    let calls = side(&path, "calls");
    let text = std::fs::read_to_string(&calls).unwrap();
    let kept: Vec<_> = text
        .lines()
        .take(2)
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&calls, kept.concat() + "{\"r\":3,").unwrap();
    let (_journal, opened) = open(&path);
    assert!(opened.open_intents.is_empty(), "{:?}", opened.open_intents);
}

#[test]
fn pairs_that_are_wrong_and_not_merely_torn_are_refused_and_name_their_line() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    drop(journal);
    let calls = side(&path, "calls");
    let text = std::fs::read_to_string(&calls).unwrap();
    std::fs::write(&calls, format!("garbage\n{text}")).unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = Journal::open(opening(&path)).unwrap_err().to_string();
    assert!(refused.contains("j.wlog.calls line 1"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_journal_in_use_proves_its_leaves_and_that_it_only_grew() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    let mut heads = vec![journal.head()];
    // More than the 1,024 leaves whose nodes are written at once, and some that wait.
    for size in [1, 2, 3, 1_000, 1_500] {
        for index in journal.size()..size {
            journal.stage(Kind::Memory, b"", &salt(index), NOW_MS);
        }
        journal.commit().unwrap();
        heads.push(journal.head());
    }
    let now = journal.head();
    for old in heads {
        let proof = consistency_proof(&journal, old.size, now.size).unwrap();
        assert!(verify_consistency(old, now, &proof), "{old}");
    }
    for index in [0, 1, 1_023, 1_024, 1_498, 1_499] {
        let proof = inclusion_proof(&journal, index, now.size).unwrap();
        let leaf = journal.node(0, index).unwrap();
        assert!(verify_inclusion(leaf, index, now.size, &proof, now.root));
    }
}

#[test]
fn the_node_file_gives_every_complete_subtree_and_is_rebuilt_when_it_is_wrong() {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    for index in 0..2_500 {
        journal.stage(Kind::Memory, b"", &salt(index), NOW_MS);
    }
    journal.commit().unwrap();
    let levels = levels(&path);
    let check = |journal: &Journal| {
        for (level, nodes) in levels.iter().enumerate() {
            for (index, node) in nodes.iter().enumerate() {
                let kept = journal.node(level as u32, index as u64).unwrap();
                assert_eq!(kept, *node, "level {level}, index {index}");
            }
            for index in [nodes.len() as u64, u64::MAX >> level, u64::MAX] {
                assert!(journal.node(level as u32, index).is_err());
            }
        }
    };
    check(&journal);
    journal.close(NOW_MS).unwrap();
    let tree = side(&path, "tree");
    let whole = std::fs::read(&tree).unwrap();
    let damages: [fn(&mut Vec<u8>); 5] = [
        |_| (),
        |octets| octets[70_000] ^= 1,
        |octets| octets.truncate(50_001),
        |octets| octets.extend([9; 1000]),
        |octets| octets.clear(),
    ];
    for damage in damages {
        let mut octets = whole.clone();
        damage(&mut octets);
        std::fs::write(&tree, octets).unwrap();
        let (journal, _) = open(&path);
        check(&journal);
        drop(journal);
        assert_eq!(std::fs::read(&tree).unwrap(), whole);
    }
}

/// Every complete subtree of a journal, by level.
fn levels(path: &Path) -> Vec<Vec<Hash>> {
    let leaves = audit(path).leaves;
    let mut levels = vec![leaves.iter().map(Leaf::hash).collect::<Vec<_>>()];
    while levels[levels.len() - 1].len() > 1 {
        let below = &levels[levels.len() - 1];
        let pairs = below.chunks_exact(2);
        levels.push(pairs.map(|pair| node(pair[0], pair[1])).collect());
    }
    levels
}

/// Set for the child of the test below, so that it measures a process that does nothing else.
const CHILD: &str = "COUNTERSIGN_TEST_CHILD_MEMORY";

#[test]
fn memory_does_not_grow_with_the_number_of_leaves() {
    if std::env::var_os(CHILD).is_none() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "journal::memory_does_not_grow_with_the_number_of_leaves",
            ])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(child.success());
        return;
    }
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    for number in 0..5_000 {
        call(&mut journal, number);
    }
    let before = resident_octets();
    for number in 5_000..50_000 {
        call(&mut journal, number);
    }
    let after = resident_octets();
    // 90,000 leaves more: a bare hash of each would be 2.9 MB.
    assert!(after < before + (2 << 20), "{before} to {after}");
    let head = journal.head();
    drop(journal);
    let (journal, opened) = open(&path);
    assert_eq!((opened.leaves, journal.head()), (100_000, head));
    let again = resident_octets();
    assert!(again < after + (2 << 20), "{after} to {again}");
}

fn resident_octets() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn an_unsealed_journal_goes_on_with_a_warning_and_is_not_rewritten() {
    let (_folder, path) = folder();
    let unsealed = |seed| Opening {
        seal: Seal::Unsealed { seed },
        ..opening(&path)
    };
    let (journal, opened) = Journal::open(unsealed(seed())).unwrap();
    assert_eq!(opened.warnings, [Warning::Unsealed]);
    assert_eq!(journal.identity().public(), identity().public());
    drop(journal);
    let header = std::fs::read_to_string(&path)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .to_owned();
    assert!(header.contains(&countersign_log::hex::encode(&seed())));
    // The seed in the header counts, not the fresh one.
    let (journal, opened) = Journal::open(unsealed([9; 32])).unwrap();
    assert_eq!(journal.identity().public(), identity().public());
    assert_eq!(opened.warnings, [Warning::Unsealed]);
    drop(journal);
    // W33: the right seed from outside is taken, but the one in the header is still told of.
    let (journal, opened) = open(&path);
    assert_eq!(opened.warnings, [Warning::Unsealed]);
    drop(journal);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with(&header));
    let other = Opening {
        seal: Seal::Sealed(Identity::from_seed(&[9; 32])),
        ..opening(&path)
    };
    let refused = Journal::open(other).unwrap_err();
    assert!(
        matches!(refused, JournalError::WrongIdentity { .. }),
        "{refused}"
    );
}

#[test]
fn what_cannot_be_a_journal_is_refused_in_one_line_and_left_as_it_was() {
    let (_folder, path) = folder();
    let cases: [(&[u8], &str); 6] = [
        (b"Dear diary", "is not a journal"),
        (b"Dear diary\nfoo\n", "is not a journal"),
        (b"{}\n", "`format_version` is missing"),
        (b"\xff\xfe\n", "not UTF-8"),
        (b"{\"format_version\":1,\"identity_bytes_hex\":\"\",\"identity_pubkey_hex\":\"00\",\"session_number\":0}\n", "identity_pubkey_hex"),
        (br#"{"format_version":1,"identity_bytes_hex":"0101010101010101010101010101010101010101010101010101010101010101","identity_pubkey_hex":"0101010101010101010101010101010101010101010101010101010101010101","session_number":0}"#, "its seed is not that of its identity"),
    ];
    for (content, expected) in cases {
        std::fs::write(&path, content).unwrap();
        let refused = Journal::open(opening(&path)).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
        assert!(!refused.contains('\n'));
        assert_eq!(std::fs::read(&path).unwrap(), content);
        assert!(!side(&path, "lock").exists());
    }
    let nowhere = path.with_file_name("no/such/j.wlog");
    let refused = Journal::open(opening(&nowhere)).unwrap_err();
    assert!(matches!(refused, JournalError::NoFolder(_)), "{refused}");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(side(&path, "salts"), "").unwrap();
    let refused = Journal::open(opening(&path)).unwrap_err();
    assert!(
        matches!(refused, JournalError::SaltsWithoutJournal(_)),
        "{refused}"
    );
    assert!(!path.exists());
}

#[test]
fn a_line_above_the_cap_is_refused_and_its_journal_left_as_it_was() {
    let (_folder, path) = folder();
    drop(open(&path));
    let length = std::fs::metadata(&path).unwrap().len() + (17 << 20);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(length).unwrap();
    let refused = Journal::open(opening(&path)).unwrap_err().to_string();
    assert!(
        refused.contains("line 3 is longer than 16 MiB"),
        "{refused}"
    );
    assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
}

#[test]
fn a_discarded_new_journal_leaves_nothing_behind_and_one_with_leaves_stays() {
    let (folder, path) = folder();
    let count = || std::fs::read_dir(folder.path()).unwrap().count();
    open(&path).0.discard();
    assert_eq!(count(), 0);
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    journal.discard();
    assert_eq!(audit(&path).leaves.len(), 2);
    // Not made by this process: not its to remove.
    std::fs::remove_file(side(&path, "salts")).unwrap();
    open(&path).0.discard();
    assert!(path.exists());
}

#[test]
fn a_head_is_shown_as_it_is_accepted() {
    let head = TreeHead {
        size: 3,
        root: Hash::ZERO,
    };
    assert_eq!(head.to_string(), format!("3:{}", "0".repeat(64)));
}

//! The 54 recorded cases of resuming a journal: 46 end as with the reference, eight end better.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::path::{Path, PathBuf};

use countersign_log::journal::{Journal, JournalError, Opening, Seal, Warning};
use countersign_log::keys::Identity;
use countersign_log::leaf::Kind;
use serde_json::Value;

use crate::journal::{NOW_MS, audit, folder, opening, salt, salts, seed, side};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/resume")
}

fn cases() -> Vec<Value> {
    let text = std::fs::read(data().join("resume.json")).expect("the recorded cases");
    serde_json::from_slice(&text).expect("JSON")
}

fn case(name: &str) -> Value {
    let found = cases().into_iter().find(|case| case["dir"] == name);
    found.unwrap_or_else(|| panic!("case {name}"))
}

/// Where ours is better, with the fault of the reference that it mends.
const BETTER: [&str; 8] = [
    "lock_empty",
    "lock_text",
    "lock_own_pid",
    "lock_of_pid_1",
    "empty_file",
    "torn_header",
    "invalid_utf8_line_with_newline_at_the_end",
    "binding_signature_broken",
];

/// One case, laid out in a folder of its own.
struct Laid {
    _folder: tempfile::TempDir,
    path: PathBuf,
    journal: Vec<u8>,
    salts: Option<Vec<u8>>,
}

impl Laid {
    fn out(case: &Value) -> Self {
        let (folder, path) = folder();
        let from = data().join(case["dir"].as_str().unwrap());
        let journal = std::fs::read(from.join("before.wlog")).unwrap();
        std::fs::write(&path, &journal).unwrap();
        let salts = std::fs::read(from.join("before.salts")).ok();
        if let Some(salts) = &salts {
            std::fs::write(side(&path, "salts"), salts).unwrap();
        }
        if let Some(lock) = case["lock_before"].as_str() {
            std::fs::write(side(&path, "lock"), lock).unwrap();
        }
        Self {
            _folder: folder,
            path,
            journal,
            salts,
        }
    }

    fn opening(&self, case: &Value) -> Opening<'_> {
        let opening = opening(&self.path);
        match case["seed_given"].as_bool() {
            Some(true) if case["dir"] == "wrong_seed" => Opening {
                seal: Seal::Sealed(Identity::from_seed(&[9; 32])),
                ..opening
            },
            Some(true) => opening,
            _ => Opening {
                seal: Seal::Unsealed { seed: [3; 32] },
                ..opening
            },
        }
    }

    fn assert_untouched(&self, name: &str) {
        assert_eq!(std::fs::read(&self.path).unwrap(), self.journal, "{name}");
        assert_eq!(
            std::fs::read(side(&self.path, "salts")).ok(),
            self.salts,
            "{name}"
        );
    }

    /// Opens, and compares everything that is recorded of the case with what ours did.
    fn assert_resumes(&self, case: &Value) {
        let name = case["dir"].as_str().unwrap();
        let number = |member: &str| case[member].as_u64().unwrap();
        let (mut journal, opened) =
            Journal::open(self.opening(case)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!opened.created, "{name}");
        assert_eq!(opened.leaves, number("tree_size"), "{name}");
        assert_eq!(
            journal.root().to_hex(),
            case["root"].as_str().unwrap(),
            "{name}"
        );
        assert_eq!(
            opened.dropped_lines,
            number("dropped_trailing_lines"),
            "{name}"
        );
        assert_eq!(
            opened.session_number,
            number("new_session_number"),
            "{name}"
        );

        let after = std::fs::read(&self.path).unwrap();
        let kept = number("kept_bytes") as usize;
        let added = case["kept_added_newline"].as_bool().unwrap();
        let before = &self.journal[..kept - usize::from(added)];
        assert!(after.starts_with(before), "{name}");
        let rest = &after[before.len()..];
        let rest = if added {
            rest.strip_prefix(b"\n").unwrap()
        } else {
            rest
        };
        assert!(
            rest.starts_with(b"{\"identity_pubkey\":"),
            "{name}: only a binding follows"
        );
        assert_eq!(
            rest.iter().filter(|octet| **octet == b'\n').count(),
            1,
            "{name}"
        );

        let indices: Vec<_> = salts(&self.path).into_keys().collect();
        assert_eq!(
            serde_json::to_value(indices).unwrap(),
            case["salt_indices"],
            "{name}"
        );

        let place = journal.stage(Kind::Memory, b"next", &salt(0), NOW_MS);
        journal.commit().unwrap();
        assert_eq!(place.index, number("next_leaf"), "{name}");
        let head = journal.head();
        journal.close(NOW_MS).unwrap();
        let (journal, again) = Journal::open(self.opening(case)).unwrap();
        assert_eq!(journal.head(), head, "{name}");
        assert_eq!(again.dropped_lines, 0, "{name}");
        assert_eq!(again.session_number, opened.session_number + 1, "{name}");
    }
}

#[test]
fn forty_six_recorded_journals_resume_as_with_the_reference() {
    let mut equal = 0;
    for case in cases() {
        let name = case["dir"].as_str().unwrap().to_owned();
        if BETTER.contains(&name.as_str()) {
            continue;
        }
        let laid = Laid::out(&case);
        if case["ok"].as_bool().unwrap() {
            laid.assert_resumes(&case);
        } else {
            let refused = Journal::open(laid.opening(&case)).unwrap_err().to_string();
            assert!(
                refused.contains("j.wlog"),
                "{name} names its file: {refused}"
            );
            laid.assert_untouched(&name);
            assert!(!side(&laid.path, "lock").exists(), "{name}");
        }
        equal += 1;
    }
    assert_eq!(equal, 46);
}

/// A refused case of the reference in which the journal itself is the intact one.
fn assert_resumes_as_intact(name: &str, change: impl FnOnce(&Laid)) {
    let refused = case(name);
    assert_eq!(refused["ok"], false, "the reference refuses {name}");
    let laid = Laid::out(&refused);
    change(&laid);
    let mut expected = case("intact");
    expected["dir"] = refused["dir"].clone();
    laid.assert_resumes(&expected);
}

#[test]
fn w24_an_empty_lock_file_is_taken_over() {
    assert_resumes_as_intact("lock_empty", |_| ());
}

#[test]
fn w24_a_lock_file_with_other_text_is_taken_over() {
    assert_resumes_as_intact("lock_text", |_| ());
}

#[test]
fn w24_a_lock_file_with_our_own_process_id_is_taken_over() {
    assert_resumes_as_intact("lock_own_pid", |laid| {
        let own = format!("{}\n", std::process::id());
        std::fs::write(side(&laid.path, "lock"), own).unwrap();
    });
}

#[test]
fn w24_a_lock_file_of_a_live_process_that_has_another_file_open_is_taken_over() {
    if std::fs::read_dir("/proc/1/fd").is_err() && Path::new("/proc/1").exists() {
        // Whose files cannot be read, that process counts as the owner.
        let laid = Laid::out(&case("lock_of_pid_1"));
        let refused = Journal::open(opening(&laid.path)).unwrap_err();
        assert!(refused.to_string().contains("process 1"), "{refused}");
        laid.assert_untouched("lock_of_pid_1");
        return;
    }
    assert_resumes_as_intact("lock_of_pid_1", |_| ());
}

fn assert_made_anew(name: &str) {
    for earlier_salts in [false, true] {
        let laid = Laid::out(&case(name));
        let salts = side(&laid.path, "salts");
        if earlier_salts {
            std::fs::copy(data().join("intact/before.salts"), &salts).unwrap();
        }
        let (mut journal, opened) = Journal::open(opening(&laid.path)).unwrap();
        assert_eq!((opened.leaves, opened.session_number), (0, 0));
        let [Warning::MadeAnew { salts_moved_to }] = opened.warnings.as_slice() else {
            panic!("{:?}", opened.warnings)
        };
        // Salts show that there were leaves once; they are not ours to destroy.
        let aside = salts_moved_to
            .as_ref()
            .map(|aside| std::fs::read(aside).unwrap());
        let earlier =
            earlier_salts.then(|| std::fs::read(data().join("intact/before.salts")).unwrap());
        assert_eq!(aside, earlier);
        crate::journal::call(&mut journal, 0);
        journal.close(NOW_MS).unwrap();
        assert_eq!(audit(&laid.path).leaves.len(), 2);
    }
}

#[test]
fn w25_an_empty_file_is_made_anew() {
    assert_made_anew("empty_file");
}

#[test]
fn w25_a_torn_header_is_made_anew() {
    assert_made_anew("torn_header");
}

#[test]
fn w25_every_torn_header_is_made_anew_sealed_or_not() {
    let (_folder, path) = folder();
    let unsealed = |seed| Opening {
        seal: Seal::Unsealed { seed },
        ..opening(&path)
    };
    for sealed in [true, false] {
        let again = || {
            if sealed {
                opening(&path)
            } else {
                unsealed([4; 32])
            }
        };
        drop(
            Journal::open(if sealed {
                opening(&path)
            } else {
                unsealed(seed())
            })
            .unwrap(),
        );
        let header = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .to_owned();
        for end in 0..header.len() {
            std::fs::write(&path, &header[..end]).unwrap();
            let (_, opened) = Journal::open(again()).unwrap();
            assert!(opened.warnings.contains(&Warning::MadeAnew {
                salts_moved_to: None
            }));
            audit(&path);
        }
        std::fs::write(&path, vec![0; 512]).unwrap();
        drop(Journal::open(again()).unwrap());
        audit(&path);
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(side(&path, "salts")).unwrap();
    }
}

#[test]
fn w25_a_terminated_last_line_that_is_not_utf8_is_a_torn_end() {
    let refused = case("invalid_utf8_line_with_newline_at_the_end");
    assert_eq!(refused["ok"], false);
    let mut expected = case("torn_garbage_with_newline");
    expected["dir"] = refused["dir"].clone();
    Laid::out(&refused).assert_resumes(&expected);
}

#[test]
fn w27_a_binding_whose_signature_is_broken_is_refused() {
    let accepted = case("binding_signature_broken");
    assert_eq!(accepted["ok"], true, "the reference goes on");
    let laid = Laid::out(&accepted);
    let refused = Journal::open(opening(&laid.path)).unwrap_err();
    assert!(matches!(refused, JournalError::Corrupt { .. }), "{refused}");
    laid.assert_untouched("binding_signature_broken");
}

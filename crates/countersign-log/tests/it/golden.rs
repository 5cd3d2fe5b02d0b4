//! Journals and dossiers that the reference wrote.

use std::fs;

use countersign_log::dossier::{self, Part};
use countersign_log::keys::{Identity, KeyBinding, Revocation};
use countersign_log::leaf::Leaf;
use countersign_log::tree::Frontier;
use countersign_log::verdict::{Ending, Report, Verdict, targets, verify, verify_dossier};

use crate::data::{json, path, text};

/// Name, starts of a writer, leaves when the dossier was written.
const JOURNALS: [(&str, u64, u64); 8] = [
    ("basic", 1, 8),
    ("crash", 1, 8),
    ("timeout", 1, 6),
    ("kill9-resume", 2, 5),
    ("forget", 2, 6),
    ("unsealed", 1, 2),
    ("empty", 1, 0),
    ("all-kinds", 1, 13),
];

/// Leaves and bindings of a journal of the reference.
fn lines(name: &str) -> (Vec<Leaf>, Vec<KeyBinding>) {
    let journal = fs::read(path(&format!("journals/{name}/j.wlog"))).expect("recorded");
    let lines = journal.split(|octet| *octet == b'\n').skip(1);
    let mut leaves = Vec::new();
    let mut bindings = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        match Leaf::read(line) {
            Ok(leaf) => {
                assert_eq!(leaf.to_json(), line, "{name}");
                leaves.push(leaf);
            }
            Err(_) => bindings.push(KeyBinding::read(line).expect(name)),
        }
    }
    (leaves, bindings)
}

#[test]
fn journals_of_the_reference_verify_with_the_heads_that_it_signed() {
    for (name, sessions, exported) in JOURNALS {
        let file = path(&format!("journals/{name}/j.wlog"));
        let targets = targets(&[file]).expect(name);
        let reports = verify(&targets[0], None).expect(name);
        let [
            Report::Journal {
                report,
                segment: None,
                ..
            },
        ] = &reports[..]
        else {
            panic!("{name}: one journal");
        };
        assert_eq!(report.failures.listed(), [], "{name}");
        assert_eq!(reports[0].verdict(), Verdict::Unanchored, "{name}");
        assert_eq!(report.sealed, name != "unsealed");
        assert_eq!(report.sessions, sessions, "{name}");
        assert_eq!(report.ending, Ending::Whole, "{name}");
        assert_eq!(report.unsigned_so_far(), report.leaf_count, "{name}");
        let dossier = json(&format!("journals/{name}/j.wlog.dossier.json"));
        let identity = report.identity.expect(name).to_string();
        assert_eq!(identity, text(&dossier["identity_pubkey"]), "{name}");
        let (leaves, bindings) = lines(name);
        assert_eq!(bindings.len() as u64, sessions, "{name}");
        assert_eq!(leaves.len() as u64, report.leaf_count, "{name}");
        let mut frontier = Frontier::default();
        leaves[..exported as usize]
            .iter()
            .for_each(|leaf| frontier.push(leaf.hash()));
        let checkpoint = &dossier["checkpoint"];
        assert_eq!(checkpoint["tree_size"], exported, "{name}");
        assert_eq!(
            frontier.root().to_hex(),
            text(&checkpoint["root_hash"]),
            "{name}"
        );
        if report.leaf_count == exported {
            assert_eq!(report.root, frontier.root(), "{name}");
        }
    }
}

#[test]
fn leaves_of_the_reference_have_its_octets_and_commitments() {
    for (name, ..) in JOURNALS {
        let payloads = json(&format!("journals/{name}/payloads.json"));
        let (leaves, _) = lines(name);
        for case in payloads.as_array().expect("a list") {
            let leaf = &leaves[crate::data::number(&case["index"]) as usize];
            let octets = crate::data::octets(text(&case["canonical_hex"]));
            assert_eq!(leaf.canonical_octets(), octets, "{name}");
            assert_eq!(leaf.hash(), crate::data::hash(&case["leaf_hash"]), "{name}");
            if let (Some(payload), Some(_)) =
                (case["payload_utf8"].as_str(), case["salt_hex"].as_str())
            {
                let salt = crate::data::seed(&case["salt_hex"]);
                let commitment =
                    countersign_log::commitment::commit(payload.as_bytes(), &salt, leaf.index);
                assert_eq!(
                    commitment.to_hex(),
                    leaf.payload_hash,
                    "{name} {}",
                    leaf.index
                );
            }
        }
    }
}

#[test]
fn dossiers_written_from_a_journal_s_lines_are_the_reference_s_to_the_octet() {
    for (name, ..) in JOURNALS {
        let golden = fs::read(path(&format!("journals/{name}/j.wlog.dossier.json"))).expect(name);
        let mut parts = 0;
        let mut bound = 0;
        let cover = dossier::read(&mut &golden[..], &mut |part| {
            parts += 1;
            bound += usize::from(matches!(part, Part::Binding(_)));
        })
        .expect(name);
        let (leaves, bindings) = lines(name);
        let size = cover.checkpoint.tree_size;
        assert_eq!(parts, size as usize + bound, "{name}");
        let mut leaves = leaves.into_iter().take(size as usize).map(Ok);
        let mut written = Vec::new();
        dossier::write(&mut written, &cover, &mut leaves, &bindings[..bound]).expect(name);
        assert!(written == golden, "{name}");
    }
}

#[test]
fn a_dossier_needs_as_many_leaves_as_its_checkpoint_says() {
    let golden = fs::read(path("journals/basic/j.wlog.dossier.json")).expect("recorded");
    let cover = dossier::read(&mut &golden[..], &mut |_| ()).expect("the reference wrote it");
    let (leaves, bindings) = lines("basic");
    let mut fewer = leaves.into_iter().take(7).map(Ok);
    assert!(dossier::write(&mut Vec::new(), &cover, &mut fewer, &bindings).is_err());
}

/// Gives one octet at a time, so that every character and token is cut everywhere.
struct Trickle<'t>(&'t [u8]);

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.0.len().min(buffer.len()).min(1);
        buffer[..length].copy_from_slice(&self.0[..length]);
        self.0 = &self.0[length..];
        Ok(length)
    }
}

#[test]
fn a_dossier_read_octet_by_octet_is_the_same() {
    let golden = fs::read(path("journals/all-kinds/j.wlog.dossier.json")).expect("recorded");
    let slow = verify_dossier(&mut Trickle(&golden), None).expect("the reference wrote it");
    assert_eq!(slow.failures.count(), 0);
    assert_eq!(slow.leaf_count, 13);
    let cut = &golden[..golden.len() - 1];
    assert!(verify_dossier(&mut Trickle(cut), None).is_err());
}

#[test]
fn characters_cut_between_reads_are_whole_and_broken_ones_are_refused() {
    let golden = fs::read(path("journals/basic/j.wlog.dossier.json")).expect("recorded");
    let with = |unknown: &[u8]| [b"{\"x\":\"", unknown, b"\",", &golden[1..]].concat();
    for character in ["\u{e9}", "\u{20ac}", "\u{1f512}"] {
        let octets = character.as_bytes();
        let whole = with(octets);
        assert!(
            verify_dossier(&mut Trickle(&whole), None).is_ok(),
            "{character}"
        );
        let broken = with(&octets[..octets.len() - 1]);
        assert!(
            verify_dossier(&mut Trickle(&broken), None).is_err(),
            "{character}"
        );
        assert!(
            verify_dossier(&mut &broken[..], None).is_err(),
            "{character}"
        );
    }
}

#[test]
fn a_value_larger_than_the_cap_is_refused_and_a_dossier_larger_than_it_is_not() {
    let golden = fs::read(path("journals/basic/j.wlog.dossier.json")).expect("recorded");
    let megabyte = "x".repeat(1 << 20);
    let one = format!("\"x\":\"{}\",", megabyte.repeat(17));
    let many = format!("\"x\":\"{megabyte}\",").repeat(17);
    let with = |unknown: &str| [b"{", unknown.as_bytes(), &golden[1..]].concat();
    let refused = verify_dossier(&mut &with(&one)[..], None).expect_err("it is too large");
    assert!(
        refused.to_string().contains("larger than 16 MiB"),
        "{refused}"
    );
    let report = verify_dossier(&mut &with(&many)[..], None).expect("no value is too large");
    assert_eq!(report.failures.count(), 0);
}

/// The basic dossier with this text as its list of revocations.
fn revoked(revocations: &str) -> Vec<u8> {
    let golden = fs::read_to_string(path("journals/basic/j.wlog.dossier.json")).expect("recorded");
    golden
        .replace(
            "\"revocations\": []",
            &format!("\"revocations\": [{revocations}]"),
        )
        .into_bytes()
}

#[test]
fn a_revocation_counts_from_its_time_and_from_its_size_on() {
    let dossier = json("journals/basic/j.wlog.dossier.json");
    let signed_ms = crate::data::number(&dossier["checkpoint"]["timestamp_ms"]);
    let keys = crate::data::vectors("keys");
    let identity = Identity::from_seed(&crate::data::seed(&keys["identity_seed"]));
    let cases = [
        (signed_ms + 1, None, true),
        (signed_ms, None, false),
        (signed_ms + 1, Some(8), true),
        (signed_ms + 1, Some(7), false),
    ];
    for (as_of_ms, as_of_index, holds) in cases {
        let revocation = Revocation::sign(&identity, as_of_ms, as_of_index, "lost");
        let index =
            as_of_index.map_or_else(String::new, |index| format!("\"as_of_index\":{index},"));
        let text = format!(
            "{{\"identity_pubkey\":\"{}\",\"as_of_ms\":{as_of_ms},{index}\"reason\":\"lost\",\"signature\":\"{}\"}}",
            revocation.identity_pubkey, revocation.signature
        );
        let report = verify_dossier(&mut &revoked(&text)[..], None).expect("it is a dossier");
        assert_eq!(
            report.failures.count() == 0,
            holds,
            "{as_of_ms} {as_of_index:?}"
        );
        let forged = text.replace("lost", "lest");
        let report = verify_dossier(&mut &revoked(&forged)[..], None).expect("it is a dossier");
        assert!(report.failures.count() > 0, "{as_of_ms} {as_of_index:?}");
    }
}

#[test]
fn blanks_may_stand_only_between_tokens() {
    let golden = fs::read_to_string(path("journals/basic/j.wlog.dossier.json")).expect("recorded");
    let judge = |text: &str| verify_dossier(&mut text.as_bytes(), None);
    let spaced = golden
        .replace(':', " : ")
        .replace(",\n", " \t,\r\n ")
        .replace("{\n", " {\n\n");
    let report = judge(&spaced).expect("blanks between tokens mean nothing");
    assert_eq!((report.failures.count(), report.leaf_count), (0, 8));
    let tight: String = golden.split_whitespace().collect();
    assert_eq!(
        judge(&tight)
            .expect("no blanks are needed")
            .failures
            .count(),
        0
    );
    let misplaced = [
        ("\"index\": 1,", "\"index\": 1 0,"),
        ("\"timestamp_ms\": 17", "\"timestamp_ms\": 1 7"),
        ("null", "nu ll"),
        ("\"leaf_type\": 1", "\"leaf_type\": \"\" 1"),
        ("\"leaf_type\"", "\"leaf_type\" \"\""),
    ];
    for (right, wrong) in misplaced {
        assert!(golden.contains(right), "{right}");
        assert!(judge(&golden.replacen(right, wrong, 1)).is_err(), "{wrong}");
    }
}

#[test]
fn a_dossier_cut_anywhere_is_none() {
    let golden = fs::read(path("journals/unsealed/j.wlog.dossier.json")).expect("recorded");
    for length in 0..golden.len() {
        assert!(
            verify_dossier(&mut &golden[..length], None).is_err(),
            "{length}"
        );
    }
}

#[test]
fn any_changed_octet_of_a_dossier_s_leaves_is_seen() {
    let mut golden = fs::read(path("journals/unsealed/j.wlog.dossier.json")).expect("recorded");
    let before = verify_dossier(&mut &golden[..], None).expect("the reference wrote it");
    for at in 0..golden.len() {
        golden[at] ^= 1;
        // What still verifies says the same: names of members that are null, or blanks.
        if let Ok(report) = verify_dossier(&mut &golden[..], None)
            && report.failures.count() == 0
        {
            assert_eq!((report.root, report.leaf_count), (before.root, 2), "{at}");
            assert_eq!(report.cover, before.cover, "{at}");
        }
        golden[at] ^= 1;
    }
}

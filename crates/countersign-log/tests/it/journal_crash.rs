//! A crash at any octet of a batch: what is whole stays, what is torn goes, and writing goes on.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use countersign_log::journal::Journal;
use countersign_log::leaf::Kind;

use crate::journal::{NOW_MS, audit, call, folder, open, opening, salt, salts, side};

/// A journal with two calls, the second of them in one batch of three leaves, and where that began.
struct Written {
    files: [(&'static str, Vec<u8>, usize); 3],
}

const FILES: [&str; 3] = ["", "salts", "calls"];

fn write() -> Written {
    let (_folder, path) = folder();
    let (mut journal, _) = open(&path);
    call(&mut journal, 0);
    let file = |name: &str| match name {
        "" => path.clone(),
        name => side(&path, name),
    };
    let begun = FILES.map(|name| std::fs::read(file(name)).unwrap().len());
    let intent = journal.stage(Kind::Intent, b"i", &salt(7), NOW_MS);
    let result = journal.stage(Kind::Result, b"r", &salt(8), NOW_MS);
    journal.stage_pair(result, intent);
    journal.stage(Kind::Memory, b"m", &salt(9), NOW_MS);
    journal.commit().unwrap();
    let mut at = 0;
    let files = FILES.map(|name| {
        at += 1;
        (name, std::fs::read(file(name)).unwrap(), begun[at - 1])
    });
    Written { files }
}

/// Lays the files out with each cut to the given length, resumes, checks, writes on, resumes again.
fn assert_goes_on(written: &Written, lengths: [usize; 3]) {
    let (_folder, path) = folder();
    for ((name, octets, _), length) in written.files.iter().zip(lengths) {
        let file = match *name {
            "" => path.clone(),
            name => side(&path, name),
        };
        std::fs::write(file, &octets[..length]).unwrap();
    }
    let whole = 2 + written.files[0].1[written.files[0].2..lengths[0]]
        .split_inclusive(|octet| *octet == b'\n')
        .filter(|line| line.trim_ascii_end().ends_with(b"}"))
        .count() as u64;
    let (mut journal, opened) = Journal::open(opening(&path)).unwrap();
    assert_eq!(opened.leaves, whole, "{lengths:?}");
    assert!(
        salts(&path).into_keys().all(|index| index < whole),
        "{lengths:?}"
    );
    let lost: Vec<_> = opened
        .open_intents
        .places
        .iter()
        .map(|place| place.index)
        .collect();
    let expected: &[u64] = if whole == 3 { &[2] } else { &[] };
    assert_eq!(lost, expected, "{lengths:?}");
    call(&mut journal, 1);
    let head = journal.head();
    drop(journal);
    let audit = audit(&path);
    assert_eq!(
        (audit.leaves.len() as u64, audit.root),
        (head.size, head.root)
    );
    let (journal, opened) = open(&path);
    assert_eq!((journal.head(), opened.dropped_lines), (head, 0));
}

#[test]
fn a_crash_at_any_octet_of_the_journals_write_keeps_every_whole_leaf() {
    let written = write();
    let [journal, salts, calls] = written.files.each_ref().map(|(_, octets, _)| octets.len());
    for length in written.files[0].2..=journal {
        assert_goes_on(&written, [length, salts, calls]);
    }
}

#[test]
fn a_crash_at_any_octet_of_the_sidecars_writes_keeps_every_leaf() {
    let written = write();
    let [_, salts, calls] = written.files.each_ref().map(|(_, octets, _)| octets.len());
    for length in written.files[1].2..=salts {
        assert_goes_on(&written, [written.files[0].2, length, written.files[2].2]);
        // The salts may reach the disk after the leaves when the power goes.
        assert_goes_on(&written, [written.files[0].1.len(), length, calls]);
    }
    for length in written.files[2].2..=calls {
        assert_goes_on(&written, [written.files[0].2, salts, length]);
        assert_goes_on(&written, [written.files[0].1.len(), salts, length]);
    }
}

//! Signed notes, checkpoint texts and cosignatures against the values that the reference gave.

use countersign_log::keys::Identity;
use countersign_log::note::{
    Cosignature, KeyKind, Note, NoteError, VerifierKey, checkpoint_text, cosignature_message,
    open_head, origin, parse_checkpoint, sign_head,
};
use countersign_log::tree::TreeHead;

use crate::data::{hash, list, number, octets, seed, text, vectors};

fn identity() -> Identity {
    Identity::from_seed(&seed(&vectors("keys")["identity_seed"]))
}

fn witness() -> Identity {
    Identity::from_seed(&seed(&vectors("checkpoints")["witness_seeds"][0]))
}

fn head(size: u64) -> TreeHead {
    let roots = vectors("merkle");
    let root = list(&roots["roots"])
        .iter()
        .find(|case| number(&case["n"]) == size)
        .expect("a root of that size is recorded");
    TreeHead {
        size,
        root: hash(&root["root"]),
    }
}

#[test]
fn names_ids_and_verifier_keys_are_the_reference_s() {
    let c2sp = vectors("c2sp");
    let log = VerifierKey::of_log(identity().public());
    assert_eq!(origin(identity().public()), text(&c2sp["origin"]));
    assert_eq!(log.id().to_vec(), octets(text(&c2sp["key_id_ed25519_hex"])));
    assert_eq!(log.to_string(), text(&c2sp["log_vkey"]));
    assert_eq!(VerifierKey::parse(text(&c2sp["log_vkey"])), Ok(log));
    let witness = VerifierKey {
        name: "witness.example/w1".into(),
        kind: KeyKind::Cosignature,
        key: witness().public(),
    };
    assert_eq!(witness.to_string(), text(&c2sp["witness_vkey"]));
    assert_eq!(VerifierKey::parse(text(&c2sp["witness_vkey"])), Ok(witness));
}

#[test]
fn malformed_verifier_keys_are_refused() {
    let c2sp = vectors("c2sp");
    let good = text(&c2sp["log_vkey"]).to_owned();
    let malformed = [
        good.replace('+', " "),
        good.replacen("+5f", "+5e", 1),
        good.replacen("witness", "wit ness", 1),
        good[..good.len() - 4].to_owned(),
        good.replacen("+AX", "+BX", 1),
        String::new(),
    ];
    for vkey in malformed {
        let read = VerifierKey::parse(&vkey);
        assert!(matches!(read, Err(NoteError::VerifierKey(_))), "{vkey}");
    }
}

#[test]
fn heads_are_written_signed_and_read_as_the_reference_does() {
    let c2sp = vectors("c2sp");
    let cases = list(&c2sp["checkpoint_text"]);
    assert!(!cases.is_empty());
    for case in cases {
        let head = head(number(&case["n"]));
        let name = origin(identity().public());
        let checkpoint = checkpoint_text(&name, head);
        assert_eq!(checkpoint, text(&case["text"]));
        assert_eq!(parse_checkpoint(&checkpoint), Ok((name.as_str(), head)));
        let note = sign_head(&identity(), head).to_string();
        assert_eq!(note, text(&case["signed_note"]));
        assert_eq!(open_head(identity().public(), &note), Ok(head));
        assert!(open_head(witness().public(), &note).is_err());
    }
}

#[test]
fn bodies_for_witnesses_carry_our_notes_and_proofs() {
    for case in list(&vectors("c2sp")["add_checkpoint_bodies"]) {
        let body = text(&case["body"]);
        let (_, note) = body
            .split_once("\n\n")
            .expect("an empty line ends the proof");
        assert_eq!(
            note,
            sign_head(&identity(), head(number(&case["n"]))).to_string()
        );
    }
}

#[test]
fn other_checkpoint_texts_are_refused() {
    let root = "zeIv7VJ/10SNMNki8xMHHBdqBdQlgrfccGRfaeZvomU=";
    let malformed = [
        String::new(),
        format!("o\n7\n{root}"),
        format!("\n7\n{root}\n"),
        format!("o\n07\n{root}\n"),
        format!("o\n+7\n{root}\n"),
        format!("o\n\n{root}\n"),
        format!("o\n18446744073709551616\n{root}\n"),
        "o\n7\nAAAA\n".to_owned(),
        format!("o\n7\n{}\n", root.trim_end_matches('=')),
        "o\n7\n".to_owned(),
    ];
    for checkpoint in malformed {
        let read = parse_checkpoint(&checkpoint);
        assert!(
            matches!(read, Err(NoteError::Checkpoint(_))),
            "{checkpoint:?}"
        );
    }
    let extended = format!("o\n7\n{root}\ntime 5\n");
    assert!(parse_checkpoint(&extended).is_ok());
}

/// Our error for the reference's words.
fn says_the_same(reason: &str, error: &NoteError) -> bool {
    let words = match error {
        NoteError::ControlCharacter(_) => "control character",
        NoteError::NoSeparator => "no blank line",
        NoteError::TooManySignatures => "more than 64 signature lines",
        NoteError::SignatureLine { .. } => "malformed signature line",
        NoteError::BadSignature(_) => "from a known key failed to verify",
        NoteError::NoKnownKey => "known",
        NoteError::Checkpoint(_) | NoteError::VerifierKey(_) => return false,
    };
    reason.contains(words)
}

#[test]
fn notes_are_parsed_and_verified_as_the_reference_does() {
    let cases = vectors("signed_note_parsing");
    assert_eq!(list(&cases).len(), 14);
    let known = [VerifierKey::of_log(identity().public())];
    for case in list(&cases) {
        let name = text(&case["name"]);
        let expected = text(&case["parse"]);
        let note = match Note::parse(text(&case["note"])) {
            Ok(note) => note,
            Err(error) => {
                assert!(
                    says_the_same(expected, &error),
                    "{name}: {expected} / {error}"
                );
                continue;
            }
        };
        assert_eq!(
            expected,
            format!("ok, {} signatures", note.signatures.len()),
            "{name}"
        );
        match (note.verify(&known), &case["verify_with_log_vkey"]) {
            (Ok(signatures), names) => {
                let ours: Vec<_> = signatures.iter().map(|line| line.name.as_str()).collect();
                let theirs: Vec<_> = list(names).iter().map(text).collect();
                assert_eq!(ours, theirs, "{name}");
            }
            (Err(error), reason) => {
                assert!(
                    says_the_same(text(reason), &error),
                    "{name}: {reason} / {error}"
                )
            }
        }
    }
}

#[test]
fn control_characters_are_refused_and_unknown_keys_prove_nothing() {
    let note = sign_head(&identity(), head(7)).to_string();
    let tab = note.replacen("\n7\n", "\n7\t\n", 1);
    assert!(matches!(
        Note::parse(&tab),
        Err(NoteError::ControlCharacter(_))
    ));
    let stranger = [VerifierKey::of_log(witness().public())];
    let parsed = Note::parse(&note).expect("it is well-formed");
    assert_eq!(parsed.verify(&stranger), Err(NoteError::NoKnownKey));
}

#[test]
fn cosignatures_are_signed_written_and_read_as_the_reference_does() {
    let c2sp = vectors("c2sp");
    let case = &c2sp["cosignature_n7"];
    let key = VerifierKey::parse(text(&c2sp["witness_vkey"])).expect("the reference wrote it");
    let time_s = number(&case["timestamp"]);
    let mut note = sign_head(&identity(), head(7));
    assert_eq!(
        cosignature_message(time_s, &note.text),
        text(&c2sp["cosignature_message_n7"])
    );
    let signed = Cosignature::sign(&witness(), time_s, &note.text);
    assert_eq!(
        signed.signature.to_vec(),
        octets(text(&case["signature_hex"]))
    );
    let line = signed.line(&key);
    assert_eq!(line.to_string(), text(&case["note_line"]));
    assert_eq!(Cosignature::read(&line), Some(signed));
    assert!(signed.verifies(key.key, &note.text));
    let later = Cosignature {
        time_s: time_s + 1,
        ..signed
    };
    assert!(!later.verifies(key.key, &note.text));

    note.signatures.push(line);
    let known = [VerifierKey::of_log(identity().public()), key.clone()];
    let reread = Note::parse(&note.to_string()).expect("we wrote it");
    assert_eq!(reread.verify(&known).map(|lines| lines.len()), Ok(2));
    note.signatures[1] = later.line(&key);
    assert_eq!(note.verify(&known), Err(NoteError::BadSignature(key.name)));
}

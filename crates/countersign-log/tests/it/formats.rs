//! Commitments, leaves, keys and checkpoints against the values that the reference gave.

use countersign_log::checkpoint::Checkpoint;
use countersign_log::commitment::commit;
use countersign_log::hash::Hash;
use countersign_log::hex;
use countersign_log::keys::{Identity, KeyBinding, PublicKey, Revocation};
use countersign_log::leaf::{Leaf, LeafFault, PlainLeaf};

use crate::data::{hash, list, number, octets, seed, text, vectors};

#[test]
fn commitments_are_the_reference_s() {
    let cases = vectors("payload_hash");
    assert_eq!(list(&cases).len(), 86);
    for case in list(&cases) {
        let length = number(&case["payload_len"]) as usize;
        let payload: Vec<u8> = (0..length).map(|i| (31 * i + 7) as u8).collect();
        let index = text(&case["index"]).parse().expect("a decimal index");
        let commitment = commit(&payload, &seed(&case["salt_hex"]), index);
        assert_eq!(commitment, hash(&case["payload_hash"]), "{length} {index}");
    }
}

/// Our fault for the reference's words.
fn says_the_same(reason: &str, fault: &LeafFault) -> bool {
    match fault {
        LeafFault::Position { .. } => reason.contains("does not match its position"),
        LeafFault::UnknownKind(tag) => reason == format!("unrecognized leaf_type tag: 0x{tag:02x}"),
        LeafFault::NotHex(field) => {
            reason.starts_with(&format!("field `{field}` must be exactly 64 lowercase hex"))
        }
        LeafFault::Foreign { kind, field } => reason.starts_with(&format!(
            "leaf_type 0x{kind:02x} must not carry field `{field}`"
        )),
        LeafFault::Absent { kind, field } => {
            reason == format!("leaf_type 0x{kind:02x} requires field `{field}` to be present")
        }
        LeafFault::MarkerWithPayload => reason.contains("payload_hash"),
        LeafFault::RedactsLater(index) => {
            reason.contains("must name an earlier leaf")
                && reason.ends_with(&format!("\"{index}\""))
        }
        LeafFault::AnchorUrl(url) => {
            reason.starts_with("field `anchor_url` must be")
                && reason.ends_with(&format!("{url:?}"))
        }
        LeafFault::AnchorProof => reason.starts_with("anchor_proof_json does not hash"),
    }
}

#[test]
fn leaves_have_the_reference_s_octets_hashes_and_faults() {
    let cases = vectors("leaves");
    assert_eq!(list(&cases).len(), 35);
    for case in list(&cases) {
        let name = text(&case["name"]);
        let json = case["leaf"].to_string();
        let leaf = Leaf::read(json.as_bytes()).expect(name);
        assert_eq!(
            leaf.canonical_octets(),
            octets(text(&case["canonical_hex"])),
            "{name}"
        );
        assert_eq!(leaf.hash(), hash(&case["leaf_hash"]), "{name}");
        match (
            leaf.check(leaf.index),
            case["validate_at_own_index"].as_str(),
        ) {
            (Ok(()), None) => {}
            (Err(fault), Some(reason)) => {
                assert!(says_the_same(reason, &fault), "{name}: {reason} / {fault}")
            }
            (ours, theirs) => panic!("{name}: {ours:?}, the reference {theirs:?}"),
        }
        assert_eq!(Leaf::read(&leaf.to_json()), Ok(leaf.clone()), "{name}");
        if let Some(plain) = PlainLeaf::read(&leaf.to_json()) {
            let mut again = Vec::new();
            plain.push_json(&mut again);
            assert_eq!(again, leaf.to_json(), "{name}");
            assert_eq!(plain.hash(), leaf.hash(), "{name}");
            assert_eq!(Leaf::from(plain), leaf, "{name}");
            assert_eq!(leaf.check(leaf.index), Ok(()), "{name}");
        }
    }
}

#[test]
fn bindings_are_signed_and_written_as_the_reference_does() {
    let keys = vectors("keys");
    let identity = Identity::from_seed(&seed(&keys["identity_seed"]));
    assert_eq!(
        identity.public().to_string(),
        text(&keys["identity_pubkey"])
    );
    let session = Identity::from_seed(&seed(&keys["session_seed"])).public();
    assert_eq!(session.to_string(), text(&keys["session_pubkey"]));
    let lines = list(&keys["bindings_json_lines"]);
    assert_eq!(lines.len(), list(&keys["bindings"]).len());
    for (case, line) in list(&keys["bindings"]).iter().zip(lines) {
        let signed = KeyBinding::sign(
            &identity,
            session,
            number(&case["session_number"]),
            number(&case["timestamp_ms"]),
            case["not_after_ms"].as_u64(),
        );
        assert_eq!(signed.signature, text(&case["signature"]));
        assert_eq!(
            String::from_utf8(signed.to_json()).as_deref(),
            Ok(text(line))
        );
        let read = KeyBinding::read(text(line).as_bytes()).expect("the reference wrote it");
        assert_eq!(read, signed);
        assert!(read.verifies());
        let number = read.session_number ^ 1;
        assert!(
            !KeyBinding {
                session_number: number,
                ..read
            }
            .verifies()
        );
    }
}

#[test]
fn revocations_are_signed_as_the_reference_does() {
    let keys = vectors("keys");
    let identity = Identity::from_seed(&seed(&keys["identity_seed"]));
    for version in ["revocation_v1", "revocation_v2"] {
        let case = &keys[version];
        let reason = text(&case["reason"]);
        let index = case["as_of_index"].as_u64();
        let as_of_ms = number(&case["as_of_ms"]);
        let signed = Revocation::sign(&identity, as_of_ms, index, reason);
        assert_eq!(signed.signature, text(&case["signature"]), "{version}");
        let read = Revocation::read(case.to_string().as_bytes()).expect(version);
        assert_eq!(read, signed, "{version}");
        assert!(read.verifies(), "{version}");
        let message = octets(text(&keys[format!("{version}_message_hex")]));
        let signature = hex::decode(signed.signature.as_bytes()).expect("128 hex digits");
        assert!(
            identity.public().verifies(&message, &signature),
            "{version}"
        );
        assert!(
            !Revocation {
                as_of_ms: as_of_ms + 1,
                ..read
            }
            .verifies(),
            "{version}"
        );
    }
}

#[test]
fn checkpoints_are_signed_as_the_reference_does() {
    let cases = vectors("checkpoints");
    let identity = Identity::from_seed(&seed(&vectors("keys")["identity_seed"]));
    for case in list(&cases["signed_tree_heads"]) {
        let size = number(&case["tree_size"]);
        let signed = Checkpoint::sign(
            &identity,
            size,
            hash(&case["root_hash"]),
            number(&case["timestamp_ms"]),
        );
        let read = Checkpoint::read(case.to_string().as_bytes()).expect("the reference wrote it");
        assert_eq!(read, signed);
        assert!(read.verifies());
        assert!(
            !Checkpoint {
                tree_size: size + 1,
                ..read
            }
            .verifies()
        );
        if size == 7 {
            assert_eq!(
                String::from_utf8(signed.to_json()).as_deref(),
                Ok(text(&cases["json_line_n7"]))
            );
        }
    }
}

fn sized(value: &str) -> Vec<u8> {
    [&(value.len() as u32).to_be_bytes()[..], value.as_bytes()].concat()
}

#[test]
fn receipts_of_writes_and_of_native_witnesses_verify() {
    let cases = vectors("checkpoints");
    let signature = |case: &serde_json::Value| {
        hex::decode(text(&case["signature"]).as_bytes()).expect("128 hex digits")
    };
    let write = &cases["write_receipt"];
    let mut message = b"witness-log-write-receipt-v1".to_vec();
    for field in ["sig_alg", "signer_pubkey", "payload_hash"] {
        message.extend(sized(text(&write[field])));
    }
    for field in ["tree_size", "issued_at_ms"] {
        message.extend(number(&write[field]).to_be_bytes());
    }
    let signer = PublicKey::from_hex(text(&write["signer_pubkey"])).expect("a key");
    assert!(signer.verifies(&message, &signature(write)));

    let receipts = list(&cases["native_witness_receipts_over_n7"]);
    assert!(!receipts.is_empty());
    for receipt in receipts {
        let mut message = b"witness-log-witness-receipt-v2".to_vec();
        message.extend(sized(text(&receipt["witness_pubkey"])));
        message.extend(sized(&signer.to_string()));
        message.extend(number(&receipt["tree_size"]).to_be_bytes());
        message.extend(sized(text(&receipt["root_hash"])));
        message.extend(number(&receipt["witnessed_at_ms"]).to_be_bytes());
        let witness = PublicKey::from_hex(text(&receipt["witness_pubkey"])).expect("a key");
        assert!(witness.verifies(&message, &signature(receipt)));
    }
}

#[test]
fn a_small_order_key_signs_nothing() {
    assert_eq!(
        vectors("ed25519_note")["identity_point_parses_as_key"],
        true
    );
    let mut point = [0; 32];
    point[0] = 1;
    // Under lax rules R = the identity point and s = 0 is this key's signature over everything.
    let mut signature = [0; 64];
    signature[0] = 1;
    assert!(!PublicKey(point).verifies(b"anything", &signature));
    assert_ne!(Hash(point), Hash::ZERO);
}

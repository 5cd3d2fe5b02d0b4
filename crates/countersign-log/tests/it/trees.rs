//! Roots and proofs against the values that the reference gave.

use std::cell::Cell;
use std::io;

use countersign_log::commitment::commit;
use countersign_log::hash::Hash;
use countersign_log::leaf::{Kind, PlainLeaf};
use countersign_log::tree::{
    Frontier, MemoryNodes, Nodes, TreeHead, consistency_proof, empty_root, inclusion_proof, root,
    verify_consistency, verify_inclusion,
};

use crate::data::{hash, hashes, list, number, seed, vectors};

const LEAVES: u64 = 1000;

/// Leaf hash `i` of the recorded tree.
fn leaf_hash(session: [u8; 32], i: u64) -> Hash {
    let kinds = [Kind::Intent, Kind::Result, Kind::Memory];
    let leaf = PlainLeaf {
        kind: kinds[(i % 3) as usize],
        index: i,
        timestamp_ms: 1_750_000_000_000 + 7 * i,
        session,
        payload_hash: commit(format!("payload {i}").as_bytes(), &[i as u8; 32], i),
    };
    leaf.hash()
}

fn tree() -> (Vec<Hash>, MemoryNodes) {
    let session = seed(&vectors("merkle")["session_pubkey"]);
    let leaves: Vec<_> = (0..LEAVES).map(|i| leaf_hash(session, i)).collect();
    let mut nodes = MemoryNodes::default();
    leaves.iter().for_each(|leaf| nodes.push(*leaf));
    assert_eq!(nodes.size(), LEAVES);
    (leaves, nodes)
}

fn head(nodes: &dyn Nodes, size: u64) -> TreeHead {
    let root = root(nodes, size).expect("the tree has that many leaves");
    TreeHead { size, root }
}

#[test]
fn roots_are_the_reference_s_whether_built_or_looked_up() {
    let merkle = vectors("merkle");
    let (leaves, nodes) = tree();
    assert_eq!(leaves[..20], hashes(&merkle["leaf_hashes_0_19"]));
    for (leaf, hash) in list(&merkle["leaves_0_4"]).iter().zip(&leaves) {
        let json = leaf.to_string();
        let read = countersign_log::leaf::Leaf::read(json.as_bytes()).expect("a leaf");
        assert_eq!(read.hash(), *hash);
    }
    for case in list(&merkle["roots"]) {
        let n = number(&case["n"]);
        let mut frontier = Frontier::default();
        leaves[..n as usize]
            .iter()
            .for_each(|leaf| frontier.push(*leaf));
        assert_eq!(frontier.root(), hash(&case["root"]), "{n}");
        assert_eq!(head(&nodes, n).root, hash(&case["root"]), "{n}");
    }
}

#[test]
fn inclusion_proofs_are_the_reference_s_and_verify() {
    let (leaves, nodes) = tree();
    let cases = vectors("merkle");
    let cases = list(&cases["inclusion"]);
    assert!(cases.len() > 200);
    for case in cases {
        let (n, i) = (number(&case["n"]), number(&case["i"]));
        let path = inclusion_proof(&nodes, i, n).expect("the leaf is there");
        assert_eq!(path, hashes(&case["path"]), "{i} of {n}");
        let root = head(&nodes, n).root;
        let leaf = leaves[i as usize];
        assert!(verify_inclusion(leaf, i, n, &path, root), "{i} of {n}");
        assert!(!verify_inclusion(root, i, n, &path, leaf) || n == 1);
        assert!(!verify_inclusion(leaf, i + 1, n, &path, root), "{i} of {n}");
        for at in 0..path.len() {
            let mut wrong = path.clone();
            wrong[at].0[31] ^= 1;
            assert!(!verify_inclusion(leaf, i, n, &wrong, root), "{i} of {n}");
            let shorter = [&path[..at], &path[at + 1..]].concat();
            assert!(!verify_inclusion(leaf, i, n, &shorter, root), "{i} of {n}");
        }
    }
}

#[test]
fn consistency_proofs_are_the_reference_s_and_verify() {
    let (_, nodes) = tree();
    let cases = vectors("merkle");
    let cases = list(&cases["consistency"]);
    assert!(cases.len() > 200);
    for case in cases {
        let (m, n) = (number(&case["m"]), number(&case["n"]));
        let proof = consistency_proof(&nodes, m, n).expect("the old tree is not larger");
        assert_eq!(proof, hashes(&case["proof"]), "{m} to {n}");
        let (old, new) = (head(&nodes, m), head(&nodes, n));
        assert!(verify_consistency(old, new, &proof), "{m} to {n}");
        let forked = TreeHead {
            root: empty_root(),
            ..new
        };
        assert_eq!(
            verify_consistency(old, forked, &proof),
            m == 0,
            "{m} to {n}"
        );
        for at in 0..proof.len() {
            let mut wrong = proof.clone();
            wrong[at].0[0] ^= 1;
            assert!(!verify_consistency(old, new, &wrong), "{m} to {n}");
            let shorter = [&proof[..at], &proof[at + 1..]].concat();
            assert!(!verify_consistency(old, new, &shorter), "{m} to {n}");
        }
    }
}

#[test]
fn edge_cases_of_proofs_are_decided_as_the_reference_does() {
    let (leaves, nodes) = tree();
    let seven = head(&nodes, 7);
    let path = inclusion_proof(&nodes, 3, 7).expect("the leaf is there");
    let extra = leaves[0];
    let included = |index, proof: &[Hash]| verify_inclusion(leaves[3], index, 7, proof, seven.root);
    let consistent = |old: TreeHead, new, proof: &[Hash]| verify_consistency(old, new, proof);
    let any = TreeHead {
        size: 0,
        root: extra,
    };
    for case in list(&vectors("merkle")["verify_edge_cases"]) {
        let what = crate::data::text(&case["what"]);
        let ok = match what {
            "extra trailing hash" => included(3, &[&path[..], &[extra]].concat()),
            "extra leading hash" => included(3, &[&[extra], &path[..]].concat()),
            "index 7 of size 7" => included(7, &path),
            "right proof" => included(3, &path),
            "consistency 0 -> 7, empty proof, any old root" => consistent(any, seven, &[]),
            "consistency 0 -> 7, non-empty proof" => consistent(any, seven, &[extra]),
            "consistency 7 -> 7 empty" => consistent(seven, seven, &[]),
            "consistency 8 -> 7" => consistent(head(&nodes, 8), seven, &[]),
            other => panic!("unknown case {other}"),
        };
        assert_eq!(ok, case["ok"], "{what}");
    }
    assert!(!consistent(
        TreeHead {
            root: extra,
            ..seven
        },
        seven,
        &[]
    ));
    assert!(
        !consistent(head(&nodes, 4), seven, &[]),
        "a real proof is never empty"
    );
}

/// Counts what is read.
struct Counting<'n>(&'n MemoryNodes, Cell<u32>);

impl Nodes for Counting<'_> {
    fn node(&self, level: u32, index: u64) -> io::Result<Hash> {
        self.1.set(self.1.get() + 1);
        self.0.node(level, index)
    }
}

#[test]
fn a_proof_reads_no_more_than_twice_the_height_of_the_tree() {
    let (_, nodes) = tree();
    for size in 1..=LEAVES {
        for index in [0, size / 3, size / 2, size - 1] {
            let counting = Counting(&nodes, Cell::new(0));
            inclusion_proof(&counting, index, size).expect("the leaf is there");
            consistency_proof(&counting, index, size).expect("the old tree is not larger");
            root(&counting, size).expect("the tree has that many leaves");
            let height = u64::BITS - size.leading_zeros();
            assert!(counting.1.get() <= 5 * height, "{index} of {size}");
        }
    }
}

#[test]
fn proofs_outside_the_tree_are_errors() {
    let (_, nodes) = tree();
    assert!(inclusion_proof(&nodes, 7, 7).is_err());
    assert!(consistency_proof(&nodes, 8, 7).is_err());
    assert!(root(&nodes, LEAVES + 1).is_err());
}

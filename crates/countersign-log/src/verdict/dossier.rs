//! What holds of a dossier.

use std::io::Read;

use super::leaves::Leaves;
use super::sessions::Sessions;
use super::{Failures, Fault, Place};
use crate::dossier::{Cover, DossierError, Part, read};
use crate::hash::Hash;
use crate::hex;

/// What was found in a dossier.
#[derive(Clone, Debug)]
pub struct DossierReport {
    /// Identity and checkpoint, as read.
    pub cover: Cover,
    /// Leaves that are there.
    pub leaf_count: u64,
    /// Root over them.
    pub root: Hash,
    /// Leaves of kind intent.
    pub intents: u64,
    /// Leaves of kind result.
    pub results: u64,
    /// Key bindings.
    pub sessions: u64,
    /// Whether the dossier says which sessions may write; if not, that is not checked.
    pub bindings_asserted: bool,
    /// Whether the caller named the identity.
    pub identity_pinned: bool,
    /// What does not hold.
    pub failures: Failures,
}

/// Reads a dossier and leaves it; `pinned` is the hex of the identity that must have written it.
///
/// # Errors
/// The input fails or is not a dossier: then there is no verdict.
pub fn verify_dossier(
    input: &mut dyn Read,
    pinned: Option<&str>,
) -> Result<DossierReport, DossierError> {
    let mut leaves = Leaves::default();
    let mut sessions = Sessions::default();
    let mut failures = Failures::default();
    let cover = read(input, &mut |part| match part {
        Part::Plain(leaf) => {
            sessions.leaf(
                leaves.frontier.size(),
                Some(leaf.session),
                leaf.timestamp_ms,
            );
            leaves.follow(leaf.index, None, &mut failures);
            leaves.push(Some(leaf.kind), leaf.hash());
        }
        Part::Leaf(leaf) => {
            let key = hex::decode_lowercase(leaf.session_pubkey.as_bytes()).ok();
            sessions.leaf(leaves.frontier.size(), key, leaf.timestamp_ms);
            if let Err(fault) = leaf.check(leaf.index) {
                failures.add(leaves.place(None), Fault::Structure(fault));
            }
            leaves.follow(leaf.index, None, &mut failures);
            leaves.push(leaf.kind(), leaf.hash());
        }
        Part::Binding(binding) => sessions.binding(&binding, &mut failures),
        Part::Revocation(revocation) => sessions.revocation(&revocation, &mut failures),
    })?;
    let leaf_count = leaves.frontier.size();
    let root = leaves.frontier.root();
    judge_cover(&cover, pinned, &mut failures);
    sessions.judge(
        &cover.identity_pubkey,
        leaf_count,
        &cover.checkpoint,
        &mut failures,
    );
    if leaf_count != cover.checkpoint.tree_size {
        let claimed = cover.checkpoint.tree_size;
        let leaves = leaf_count;
        failures.add(Place::Whole, Fault::Size { leaves, claimed });
    } else if cover.checkpoint.root_hash != root.to_hex() {
        failures.add(Place::Whole, Fault::Root { root });
    }
    Ok(DossierReport {
        cover,
        leaf_count,
        root,
        intents: leaves.intents,
        results: leaves.results,
        sessions: sessions.bindings(),
        bindings_asserted: sessions.bindings() > 0,
        identity_pinned: pinned.is_some(),
        failures,
    })
}

fn judge_cover(cover: &Cover, pinned: Option<&str>, failures: &mut Failures) {
    let Cover {
        identity_pubkey,
        checkpoint,
    } = cover;
    if !checkpoint.verifies() {
        failures.add(Place::Whole, Fault::CheckpointSignature);
    }
    if !identity_pubkey.eq_ignore_ascii_case(&checkpoint.signer_pubkey) {
        failures.add(Place::Whole, Fault::CheckpointOfAnother);
    }
    if pinned.is_some_and(|pinned| !pinned.eq_ignore_ascii_case(identity_pubkey)) {
        failures.add(Place::Whole, Fault::NotPinned(identity_pubkey.clone()));
    }
}

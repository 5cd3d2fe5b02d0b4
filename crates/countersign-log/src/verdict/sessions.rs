//! Which session wrote what, for a dossier, whose bindings may follow its leaves.
//!
//! A session is kept as its first leaf and its latest time, so leaves can be forgotten as they pass.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Failures, Fault, Place};
use crate::checkpoint::Checkpoint;
use crate::keys::{KeyBinding, PublicKey, Revocation};

/// Sessions that are told apart: a million starts of a writer, in some 100 MB. Only a text made to
/// fill memory has more.
const SESSIONS_MAX: usize = 1 << 20;

/// What is kept of a session: about 100 octets with its place in the map.
#[derive(Debug, Default)]
struct Session {
    wrote: Option<Wrote>,
    bound: Option<Bound>,
}

#[derive(Debug)]
struct Wrote {
    first_leaf: u64,
    latest_ms: u64,
}

#[derive(Debug)]
struct Bound {
    not_after_ms: Option<u64>,
}

/// The sessions of a dossier.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_key: HashMap<[u8; 32], Session>,
    bindings: u64,
    revocations: u64,
    latest_leaf_ms: u64,
    revoked_ms: Option<u64>,
    revoked_size: Option<u64>,
    /// The first leaf that came when there was no room for its session.
    crowded_out: Option<u64>,
    /// Who signed bindings and revocations; more than one is a fault whoever the dossier is by.
    signers: Signers,
}

#[derive(Debug, Default)]
struct Signers {
    first: Option<(Place, String)>,
    other: Option<(Place, String)>,
}

impl Signers {
    fn add(&mut self, place: Place, identity: &str) {
        match &self.first {
            None => self.first = Some((place, identity.to_owned())),
            Some((_, first)) if !first.eq_ignore_ascii_case(identity) => {
                self.other.get_or_insert((place, identity.to_owned()));
            }
            Some(_) => {}
        }
    }
}

impl Sessions {
    /// Takes note of a leaf; `key` is its session's, if that is hex.
    pub(super) fn leaf(&mut self, position: u64, key: Option<[u8; 32]>, timestamp_ms: u64) {
        self.latest_leaf_ms = self.latest_leaf_ms.max(timestamp_ms);
        // A key that is not hex is a fault of structure, and reported as one.
        let Some(key) = key else {
            return;
        };
        let Some(session) = self.session(key) else {
            self.crowded_out.get_or_insert(position);
            return;
        };
        let wrote = &mut session.wrote;
        let wrote = wrote.get_or_insert(Wrote {
            first_leaf: position,
            latest_ms: 0,
        });
        wrote.latest_ms = wrote.latest_ms.max(timestamp_ms);
    }

    pub(super) fn binding(&mut self, binding: &KeyBinding, failures: &mut Failures) {
        let place = Place::Binding(self.bindings);
        self.bindings += 1;
        self.signers.add(place, &binding.identity_pubkey);
        if !binding.verifies() {
            failures.add(place, Fault::BindingSignature);
        }
        // A binding whose key is not hex does not verify either, so it is already reported.
        // One that finds no room bound no leaf before it, and leaves after it find none either.
        if let Ok(key) = PublicKey::from_hex(&binding.session_pubkey)
            && let Some(session) = self.session(key.0)
        {
            session.bound = Some(Bound {
                not_after_ms: binding.not_after_ms,
            });
        }
    }

    /// What is kept of the session of `key`, if there is room.
    fn session(&mut self, key: [u8; 32]) -> Option<&mut Session> {
        let full = self.by_key.len() >= SESSIONS_MAX;
        match self.by_key.entry(key) {
            Entry::Occupied(session) => Some(session.into_mut()),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(room) => Some(room.insert(Session::default())),
        }
    }

    pub(super) fn revocation(&mut self, revocation: &Revocation, failures: &mut Failures) {
        let place = Place::Revocation(self.revocations);
        self.revocations += 1;
        self.signers.add(place, &revocation.identity_pubkey);
        if !revocation.verifies() {
            failures.add(place, Fault::Revocation);
        }
        let lowest = |kept: Option<u64>, new| Some(kept.map_or(new, |kept| kept.min(new)));
        self.revoked_ms = lowest(self.revoked_ms, revocation.as_of_ms);
        if let Some(index) = revocation.as_of_index {
            self.revoked_size = lowest(self.revoked_size, index);
        }
    }

    /// Number of bindings.
    pub(super) fn bindings(&self) -> u64 {
        self.bindings
    }

    /// Whether the dossier says anything about sessions.
    pub(super) fn asserted(&self) -> bool {
        self.bindings + self.revocations > 0
    }

    /// Judges what was collected, once identity and checkpoint are known.
    pub(super) fn judge(
        &self,
        identity: &str,
        leaves: u64,
        checkpoint: &Checkpoint,
        failures: &mut Failures,
    ) {
        if !self.asserted() {
            return;
        }
        let signers = [&self.signers.first, &self.signers.other];
        for (place, signer) in signers.into_iter().flatten() {
            if !signer.eq_ignore_ascii_case(identity) {
                failures.add(*place, Fault::BindingOfAnother(signer.clone()));
            }
        }
        if let Some(position) = self.crowded_out {
            let line = None;
            failures.add(Place::Leaf { position, line }, Fault::TooManySessions);
        }
        let mut faults: Vec<_> = self.by_key.values().filter_map(Session::fault).collect();
        faults.sort_unstable_by_key(|(first_leaf, _)| *first_leaf);
        for (position, fault) in faults {
            let line = None;
            failures.add(Place::Leaf { position, line }, fault);
        }
        let newest_ms = self.latest_leaf_ms.max(checkpoint.timestamp_ms);
        if self.revoked_ms.is_some_and(|revoked| newest_ms >= revoked)
            || self
                .revoked_size
                .is_some_and(|size| leaves > size || checkpoint.tree_size > size)
        {
            failures.add(Place::Whole, Fault::Revoked);
        }
    }
}

impl Session {
    fn fault(&self) -> Option<(u64, Fault)> {
        let wrote = self.wrote.as_ref()?;
        let fault = match &self.bound {
            None => Fault::Unbound,
            Some(Bound {
                not_after_ms: Some(not_after_ms),
            }) if wrote.latest_ms > *not_after_ms => Fault::AfterSession {
                not_after_ms: *not_after_ms,
            },
            Some(_) => return None,
        };
        Some((wrote.first_leaf, fault))
    }
}

//! What holds of a journal, and of the signed heads and pairs of calls beside it.
//!
//! One pass, line by line. In memory: the right edge of the tree, the session that is open, the
//! heads. The journal may be in use: what a writer has not finished is said, not held against it.

use std::io::{self, Read};

use super::calls::{Calls, CallsReport};
use super::leaves::Leaves;
use super::{Failures, Fault, Place};
use crate::hash::Hash;
use crate::header::Header;
use crate::hex;
use crate::keys::{KeyBinding, PublicKey};
use crate::leaf::{Kind, Leaf, PlainLeaf};
use crate::lines::{Line, Lines};
use crate::note;
use crate::record::Record;
use crate::tree::{Frontier, TreeHead};

/// How the file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a whole line.
    Whole,
    /// With a whole line that lacks its newline.
    NoNewline,
    /// With the beginning of a line: it is being written, or its writer died.
    BeingWritten,
    /// With a line that is nothing, though a newline ends it. A writer that resumes cuts it off.
    TornTail,
}

/// What the signed heads say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadsReport {
    /// Heads that this identity signed.
    pub count: u64,
    /// The head over most leaves.
    pub newest: Option<TreeHead>,
    /// Leaves under the newest head that is reproduced, with all before it.
    pub reproduced: u64,
}

/// What was found in a journal.
#[derive(Clone, Debug)]
pub struct JournalReport {
    /// Whose journal it is, if its header can be read.
    pub identity: Option<PublicKey>,
    /// Whether the identity's seed is kept elsewhere. Unsealed, everyone who can read the journal
    /// can sign in its name.
    pub sealed: bool,
    /// Whether the caller named the identity.
    pub identity_pinned: bool,
    /// Leaves.
    pub leaf_count: u64,
    /// Root over them.
    pub root: Hash,
    /// Leaves of kind intent.
    pub intents: u64,
    /// Leaves of kind result.
    pub results: u64,
    /// Key bindings: starts of a writer.
    pub sessions: u64,
    /// How the file ends.
    pub ending: Ending,
    /// What the signed heads say, if their file is there.
    pub heads: Option<HeadsReport>,
    /// What the pairs of calls say, if their file is there.
    pub calls: Option<CallsReport>,
    /// Index and commitment of the first leaf that has a payload.
    pub first_payload: Option<(u64, Hash)>,
    /// What does not hold.
    pub failures: Failures,
}

impl JournalReport {
    /// Leaves that no reproduced head covers: nothing but the file itself vouches for them yet.
    pub fn unsigned_so_far(&self) -> u64 {
        let signed = self.heads.as_ref().map_or(0, |heads| heads.reproduced);
        self.leaf_count.saturating_sub(signed)
    }
}

/// What stands beside a journal.
#[derive(Default)]
pub struct Sidecars<'r> {
    /// The text of the file of signed heads. It must have been read before the journal is: a writer
    /// that is at work signs what is in the journal already.
    pub heads: Option<Vec<u8>>,
    /// The file of pairs.
    pub calls: Option<&'r mut dyn Read>,
    /// Number of the segment, 0 for a journal that never rotated.
    pub segment: u32,
}

/// Reads a journal and checks it; `pinned` is the hex of the identity that must have written it.
///
/// # Errors
/// The journal or a sidecar cannot be read, or has a line of more than 16 MiB.
pub fn verify_journal(
    journal: &mut dyn Read,
    sidecars: Sidecars<'_>,
    pinned: Option<&str>,
) -> io::Result<JournalReport> {
    let mut lines = Lines::new(journal);
    let mut failures = Failures::default();
    let header = match lines.next()? {
        Some(line) => Header::read(line.text).map_err(|error| error.to_string()),
        None => Err("the file is empty".to_owned()),
    };
    let header = header
        .map_err(|why| failures.add(Place::Line(1), Fault::Header(why)))
        .ok();
    let identity = header.as_ref().map(|header| header.identity);
    if let (Some(pinned), Some(identity)) = (pinned, identity)
        && !pinned.eq_ignore_ascii_case(&identity.to_string())
    {
        failures.add(Place::Whole, Fault::NotPinned(identity.to_string()));
    }
    let heads = sidecars
        .heads
        .map(|text| Heads::read(&text, identity, &mut failures));
    let calls = match sidecars.calls {
        Some(calls) => Some(Calls::new(calls, sidecars.segment)?),
        None => None,
    };
    let mut check = Pass {
        identity,
        heads,
        calls,
        lowest_session: header.as_ref().map_or(0, |header| header.session_number),
        failures,
        leaves: Leaves::default(),
        session: None,
        accused: None,
        sessions: 0,
        first_payload: None,
        unparsable: None,
        terminated: true,
    };
    while let Some(line) = lines.next_filled()? {
        check.line(line)?;
    }
    let sealed = header.is_some_and(|header| header.seed.is_none());
    check.end(sealed, pinned.is_some())
}

/// The heads by size, each with its line.
struct Heads {
    by_size: Vec<(TreeHead, u64)>,
    /// Heads before this one are judged.
    at: usize,
    reproduced: u64,
    broken: bool,
}

impl Heads {
    fn read(text: &[u8], identity: Option<PublicKey>, failures: &mut Failures) -> Self {
        let mut by_size = Vec::new();
        let mut lines = text.split_inclusive(|octet| *octet == b'\n');
        let mut number = 0;
        while let (Some(line), Some(identity)) = (lines.next(), identity) {
            number += 1;
            // A head is one write; without its newline it was never finished.
            if line.trim_ascii().is_empty() || !line.ends_with(b"\n") {
                continue;
            }
            let head = serde_json::from_slice::<String>(line)
                .map_err(|error| error.to_string())
                .and_then(|note| {
                    note::open_head(identity, &note).map_err(|error| error.to_string())
                });
            match head {
                Ok(head) => by_size.push((head, number)),
                Err(why) => failures.add(Place::Heads(number), Fault::HeadUnreadable(why)),
            }
        }
        by_size.sort_by_key(|(head, _)| head.size);
        Self {
            by_size,
            at: 0,
            reproduced: 0,
            broken: false,
        }
    }

    /// Size of the next head that is not judged yet.
    fn awaited(&self) -> Option<u64> {
        self.by_size.get(self.at).map(|(head, _)| head.size)
    }

    /// Judges the heads over as many leaves as the tree now has.
    fn judge(&mut self, frontier: &Frontier, failures: &mut Failures) {
        let root = frontier.root();
        while let Some((head, line)) = self.by_size.get(self.at)
            && head.size == frontier.size()
        {
            self.at += 1;
            if head.root == root {
                // A root vouches for all leaves under it, whatever became of smaller heads.
                self.reproduced = head.size;
                continue;
            }
            // One changed leaf breaks every head after it; the first says where it is.
            if !std::mem::replace(&mut self.broken, true) {
                let fault = Fault::HeadNotReproduced {
                    size: head.size,
                    reproduced: self.reproduced,
                };
                failures.add(Place::Heads(*line), fault);
            }
        }
    }

    fn end(self, leaves: u64, failures: &mut Failures) -> HeadsReport {
        if let Some((head, line)) = self.by_size.last().filter(|(head, _)| head.size > leaves) {
            let size = head.size;
            failures.add(Place::Heads(*line), Fault::CutBack { size, leaves });
        }
        HeadsReport {
            count: self.by_size.len() as u64,
            newest: self.by_size.last().map(|(head, _)| *head),
            reproduced: self.reproduced,
        }
    }
}

/// The session that the last binding opened.
struct Session {
    key: [u8; 32],
    not_after_ms: Option<u64>,
}

/// A journal as far as it is read.
struct Pass<'r> {
    identity: Option<PublicKey>,
    heads: Option<Heads>,
    calls: Option<Calls<'r>>,
    failures: Failures,
    leaves: Leaves,
    session: Option<Session>,
    /// The key whose leaves were last found at fault: a run of them is one fault.
    accused: Option<[u8; 32]>,
    lowest_session: u64,
    sessions: u64,
    first_payload: Option<(u64, Hash)>,
    /// A line that is nothing: forgiven if it turns out to be the last.
    unparsable: Option<(u64, String)>,
    terminated: bool,
}

impl Pass<'_> {
    fn line(&mut self, line: Line<'_>) -> io::Result<()> {
        self.next_line(line);
        match Record::read(line.text) {
            Ok(Record::Plain(leaf)) => self.plain_leaf(&leaf, line.number)?,
            Ok(Record::Leaf(leaf)) => self.any_leaf(&leaf, line.number)?,
            Ok(Record::Binding(binding)) => self.binding(&binding, line.number),
            Err(error) => self.unparsable = Some((line.number, error.to_string())),
        }
        Ok(())
    }

    /// A line follows: what looked like a torn tail was not the tail.
    fn next_line(&mut self, line: Line<'_>) {
        if let Some((number, why)) = self.unparsable.take() {
            self.failures
                .add(Place::Line(number), Fault::Unparsable(why));
        }
        self.terminated = line.terminated;
    }

    /// As [`Self::any_leaf`], for nearly every line: nothing is allocated.
    fn plain_leaf(&mut self, leaf: &PlainLeaf, line: u64) -> io::Result<()> {
        self.leaves
            .follow(leaf.index, Some(line), &mut self.failures);
        self.session(&leaf.session, leaf.timestamp_ms, line);
        if self.first_payload.is_none() {
            self.first_payload = Some((leaf.index, leaf.payload_hash));
        }
        self.push(leaf.index, Some(leaf.kind), &leaf.session, leaf.hash())
    }

    fn any_leaf(&mut self, leaf: &Leaf, line: u64) -> io::Result<()> {
        self.leaves
            .follow(leaf.index, Some(line), &mut self.failures);
        let place = self.leaves.place(Some(line));
        if let Err(fault) = leaf.check(leaf.index) {
            self.failures.add(place, Fault::Structure(fault));
        }
        let session = hex::decode_lowercase(leaf.session_pubkey.as_bytes());
        if let Ok(session) = &session {
            self.session(session, leaf.timestamp_ms, line);
        }
        if self.first_payload.is_none()
            && leaf.kind().is_some_and(Kind::has_payload)
            && let Ok(commitment) = Hash::from_hex(&leaf.payload_hash)
        {
            self.first_payload = Some((leaf.index, commitment));
        }
        let session = session.unwrap_or_default();
        self.push(leaf.index, leaf.kind(), &session, leaf.hash())
    }

    fn session(&mut self, key: &[u8; 32], timestamp_ms: u64, line: u64) {
        let fault = match &self.session {
            Some(session) if session.key == *key => match session.not_after_ms {
                Some(not_after_ms) if timestamp_ms > not_after_ms => {
                    Fault::AfterSession { not_after_ms }
                }
                _ => return,
            },
            Some(_) => Fault::NotTheOpenSession,
            None => Fault::Unbound,
        };
        if self.accused.replace(*key).as_ref() != Some(key) {
            self.failures.add(self.leaves.place(Some(line)), fault);
        }
    }

    fn push(
        &mut self,
        index: u64,
        kind: Option<Kind>,
        session: &[u8; 32],
        hash: Hash,
    ) -> io::Result<()> {
        // A head over nothing is judged before the first leaf.
        self.judge_heads();
        if let Some(calls) = &mut self.calls {
            calls.leaf(index, kind, session)?;
        }
        self.leaves.push(kind, hash);
        self.judge_heads();
        Ok(())
    }

    fn judge_heads(&mut self) {
        if let Some(heads) = &mut self.heads
            && heads.awaited() == Some(self.leaves.frontier.size())
        {
            heads.judge(&self.leaves.frontier, &mut self.failures);
        }
    }

    fn binding(&mut self, binding: &KeyBinding, line: u64) {
        let place = Place::Line(line);
        let signer = PublicKey::from_hex(&binding.identity_pubkey).ok();
        // Without a header nobody knows whose journal it is; that is reported already.
        if self.identity.is_some() && signer != self.identity {
            let fault = Fault::BindingOfAnother(binding.identity_pubkey.clone());
            self.failures.add(place, fault);
        }
        if !binding.verifies() {
            self.failures.add(place, Fault::BindingSignature);
        }
        if binding.session_number < self.lowest_session {
            let fault = Fault::SessionOrder {
                number: binding.session_number,
                lowest: self.lowest_session,
            };
            self.failures.add(place, fault);
        }
        self.lowest_session = binding.session_number.saturating_add(1);
        self.sessions += 1;
        self.accused = None;
        // A key that is not hex cannot verify, so that is reported already.
        self.session = PublicKey::from_hex(&binding.session_pubkey)
            .ok()
            .map(|key| Session {
                key: key.0,
                not_after_ms: binding.not_after_ms,
            });
    }

    fn end(mut self, sealed: bool, identity_pinned: bool) -> io::Result<JournalReport> {
        self.judge_heads();
        let leaf_count = self.leaves.frontier.size();
        let heads = self
            .heads
            .take()
            .map(|heads| heads.end(leaf_count, &mut self.failures));
        let calls = match self.calls.take() {
            Some(calls) => Some(calls.end(leaf_count)?),
            None => None,
        };
        Ok(JournalReport {
            identity: self.identity,
            sealed,
            identity_pinned,
            leaf_count,
            root: self.leaves.frontier.root(),
            intents: self.leaves.intents,
            results: self.leaves.results,
            sessions: self.sessions,
            ending: match (self.unparsable, self.terminated) {
                (None, true) => Ending::Whole,
                (None, false) => Ending::NoNewline,
                (Some(_), false) => Ending::BeingWritten,
                (Some(_), true) => Ending::TornTail,
            },
            heads,
            calls,
            first_payload: self.first_payload,
            failures: self.failures,
        })
    }
}

//! A small journal as a writer leaves it, with its sidecars as text.

use countersign_log::commitment::commit;
use countersign_log::keys::{Identity, KeyBinding};
use countersign_log::leaf::{Kind, Leaf, PlainLeaf};
use countersign_log::note::sign_head;
use countersign_log::tree::{Frontier, TreeHead};
use countersign_log::verdict::{JournalReport, Sidecars, verify_journal};

/// The salt of every leaf.
pub(crate) const SALT: [u8; 32] = [9; 32];

pub(crate) struct Sample {
    pub(crate) identity: Identity,
    pub(crate) text: Vec<u8>,
    pub(crate) heads: Vec<u8>,
    pub(crate) frontier: Frontier,
    session: [u8; 32],
    sessions: u64,
}

impl Sample {
    /// A sealed journal without sessions.
    pub(crate) fn new() -> Self {
        let identity = Identity::from_seed(&[7; 32]);
        let header = format!(
            "{{\"format_version\":1,\"identity_bytes_hex\":\"\",\"identity_pubkey_hex\":\"{}\",\"session_number\":0}}\n",
            identity.public()
        );
        Self {
            identity,
            text: header.into_bytes(),
            heads: Vec::new(),
            frontier: Frontier::default(),
            session: [0; 32],
            sessions: 0,
        }
    }

    /// Begins a session.
    pub(crate) fn session(&mut self) -> &mut Self {
        let key = Identity::from_seed(&[100 + self.sessions as u8; 32]).public();
        let binding = KeyBinding::sign(&self.identity, key, self.sessions, 1_750_000_000_000, None);
        self.session = key.0;
        self.sessions += 1;
        self.line(&binding.to_json())
    }

    /// The key of the session that is open, in hex.
    pub(crate) fn session_hex(&self) -> String {
        countersign_log::hex::encode(&self.session)
    }

    /// Appends a leaf.
    pub(crate) fn leaf(&mut self, kind: Kind, payload: &[u8]) -> &mut Self {
        let index = self.frontier.size();
        let leaf = PlainLeaf {
            kind,
            index,
            timestamp_ms: 1_750_000_000_000 + index,
            session: self.session,
            payload_hash: commit(payload, &SALT, index),
        };
        self.frontier.push(leaf.hash());
        let mut json = Vec::new();
        leaf.push_json(&mut json);
        self.line(&json)
    }

    /// Appends a marker that an earlier leaf's salt was destroyed.
    pub(crate) fn redaction(&mut self, of: u64) -> &mut Self {
        let leaf = Leaf {
            index: self.frontier.size(),
            leaf_type: Kind::Redaction as u8,
            timestamp_ms: 1_750_000_000_000,
            session_pubkey: self.session_hex(),
            payload_hash: "0".repeat(64),
            redacted_index: Some(of),
            ..Leaf::default()
        };
        self.frontier.push(leaf.hash());
        self.line(&leaf.to_json())
    }

    /// Signs the head and keeps it.
    pub(crate) fn sign(&mut self) -> &mut Self {
        let note = sign_head(&self.identity, self.head()).to_string();
        self.heads
            .extend(serde_json::to_vec(&note).expect("a string is JSON"));
        self.heads.push(b'\n');
        self
    }

    pub(crate) fn head(&self) -> TreeHead {
        self.frontier.head()
    }

    fn line(&mut self, line: &[u8]) -> &mut Self {
        self.text.extend(line);
        self.text.push(b'\n');
        self
    }
}

/// Verifies a journal's text alone.
pub(crate) fn verify(text: &[u8]) -> JournalReport {
    verify_journal(&mut &*text, Sidecars::default(), None).expect("memory can be read")
}

/// Verifies a journal's text with its signed heads.
pub(crate) fn verify_with_heads(text: &[u8], heads: &[u8]) -> JournalReport {
    let sidecars = Sidecars {
        heads: Some(heads.to_vec()),
        ..Sidecars::default()
    };
    verify_journal(&mut &*text, sidecars, None).expect("memory can be read")
}

//! The texts that leaves commit to: `mcp.tools/call v1` of the reference, and our own profiles.
//!
//! All are canonical JSON, written by hand because their members are few and their order is fixed.

use bytes::Bytes;
use countersign_log::canonical::{self, CanonicalDigest};
use countersign_log::hash::Hash;
use countersign_log::hex;
use countersign_log::journal::Place;
use countersign_log::python;

use super::INLINE_OCTETS_MAX;
use crate::message::Message;

/// The upstream's name as it stands in every payload: a canonical JSON string.
pub(super) struct Server(Vec<u8>);

/// What an intent leaf commits to, before it has an index.
pub(super) struct IntentText {
    pub(super) payload: Vec<u8>,
    /// The tool's name as a canonical JSON string, for the result.
    pub(super) tool: Box<[u8]>,
    /// What `countersign.exact` adds, where it is due.
    pub(super) exact: Option<Exact>,
}

/// Digests of the octets as received and as forwarded (`None`: never forwarded).
pub(super) struct Exact {
    received: Hash,
    forwarded: Option<Hash>,
}

/// What of a call is hashed before the ledger is locked.
pub(super) struct Digests {
    /// The tool's name as a canonical JSON string.
    tool: Vec<u8>,
    arguments: CanonicalDigest,
    exact: Option<Exact>,
}

impl Digests {
    /// Hashes on this thread or, where that would delay others, on one of its own.
    pub(super) async fn of(received: &Message, forwarded: Option<Bytes>) -> Self {
        if received.raw().len() <= INLINE_OCTETS_MAX {
            return Self::now(received, forwarded.as_ref());
        }
        let received = received.clone();
        elsewhere(move || Self::now(&received, forwarded.as_ref())).await
    }

    fn now(received: &Message, forwarded: Option<&Bytes>) -> Self {
        let parts = received.tool_call();
        let tool = python::python_str(parts.name_raw.as_deref());
        let arguments = match parts.arguments_raw.as_deref() {
            None | Some(b"null") => b"{}",
            Some(arguments) => arguments,
        };
        let arguments = canonical::canonical_sha256(arguments);
        let raw = received.raw();
        let changed = forwarded.is_some_and(|line| line != raw);
        let exact = (changed || arguments.lossy || tool.lossy).then(|| {
            let received = Hash::of(&[raw]);
            let forwarded =
                forwarded.map(|line| if changed { Hash::of(&[line]) } else { received });
            Exact {
                received,
                forwarded,
            }
        });
        Self {
            tool: tool.json,
            arguments,
            exact,
        }
    }
}

impl Exact {
    /// `countersign.exact v1`, for the intent at `index`.
    pub(super) fn payload(&self, index: u64) -> Vec<u8> {
        let quoted = |hash: Hash| format!("\"{hash}\"");
        let forwarded = self.forwarded.map_or_else(|| "null".to_owned(), quoted);
        format!(
            "{{\"forwarded_sha256\":{forwarded},\"intent_index\":{index},\"profile\":\"countersign.exact v1\",\
             \"received_sha256\":{}}}",
            quoted(self.received)
        )
        .into_bytes()
    }
}

impl Server {
    pub(super) fn new(name: &str) -> Self {
        let mut text = Vec::new();
        canonical::write_string(&mut text, name);
        Self(text)
    }

    pub(super) fn intent(&self, digests: Digests) -> IntentText {
        let tool = digests.tool;
        let mut payload = Vec::with_capacity(160 + tool.len() + self.0.len());
        payload.extend(b"{\"args_sha256\":\"");
        hex::push(&mut payload, &digests.arguments.sha256);
        payload.extend(b"\",\"profile\":\"mcp.tools/call v1\",\"server\":");
        payload.extend(&self.0);
        payload.extend(b",\"tool\":");
        payload.extend(&tool);
        payload.push(b'}');
        IntentText {
            payload,
            tool: tool.into(),
            exact: digests.exact,
        }
    }

    /// The text of a result that will stand in `segment`; an intent in an earlier one is named with its own.
    pub(super) fn result(&self, outcome: &Outcome<'_>, intent: Place, segment: u32) -> Vec<u8> {
        let tool = outcome.tool;
        let mut payload = Vec::with_capacity(240 + tool.len() + self.0.len());
        payload.extend(b"{\"intent_index\":");
        payload.extend(intent.index.to_string().bytes());
        if intent.segment != segment {
            payload.extend(format!(",\"intent_segment\":{}", intent.segment).bytes());
        }
        payload.extend(if outcome.is_error {
            &b",\"is_error\":true"[..]
        } else {
            b",\"is_error\":false"
        });
        payload.extend(b",\"profile\":\"mcp.tools/call v1\",\"result_sha256\":\"");
        hex::push(&mut payload, &outcome.digest.sha256);
        payload.extend(b"\",\"server\":");
        payload.extend(&self.0);
        payload.extend(b",\"tool\":");
        payload.extend(tool);
        payload.push(b'}');
        payload
    }
}

/// What a result leaf commits to, but for its intent.
pub(super) struct Outcome<'a> {
    /// The tool's name as a canonical JSON string.
    pub(super) tool: &'a [u8],
    /// Of X.
    pub(super) digest: CanonicalDigest,
    pub(super) is_error: bool,
}

/// Digest of the canonical form of X, on a thread of its own where it is large.
pub(super) async fn digest(text: Bytes) -> CanonicalDigest {
    if text.len() <= INLINE_OCTETS_MAX {
        return digest_now(&text);
    }
    elsewhere(move || digest_now(&text)).await
}

pub(super) fn digest_now(text: &[u8]) -> CanonicalDigest {
    canonical::canonical_sha256(text)
}

async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .expect("hashing neither panics nor is it aborted")
}

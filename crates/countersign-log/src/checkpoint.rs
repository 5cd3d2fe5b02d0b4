//! A checkpoint: the signed tree head, an identity's word on size and root of its journal.

use crate::hash::Hash;
use crate::hex;
use crate::json::{JsonError, Members};
use crate::keys::{Identity, PublicKey};

/// The one algorithm that the format knows.
pub const ALGORITHM: &str = "ed25519";

/// A signed tree head, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Number of leaves.
    pub tree_size: u64,
    /// Hex of the root over them.
    pub root_hash: String,
    /// Unix milliseconds of the signature.
    pub timestamp_ms: u64,
    /// Name of the algorithm.
    pub sig_alg: String,
    /// Hex of the identity that signed.
    pub signer_pubkey: String,
    /// Hex of the signature.
    pub signature: String,
}

const FIELDS: [&str; 6] = [
    "tree_size",
    "root_hash",
    "timestamp_ms",
    "sig_alg",
    "signer_pubkey",
    "signature",
];

impl Checkpoint {
    /// Signs size and root.
    pub fn sign(identity: &Identity, tree_size: u64, root: Hash, timestamp_ms: u64) -> Self {
        let signer_pubkey = identity.public().to_string();
        let message = message(ALGORITHM, &signer_pubkey, tree_size, root, timestamp_ms);
        Self {
            tree_size,
            root_hash: root.to_hex(),
            timestamp_ms,
            sig_alg: ALGORITHM.into(),
            signer_pubkey,
            signature: hex::encode(&identity.sign(&message)),
        }
    }

    /// Whether the identity that it names signed it.
    pub fn verifies(&self) -> bool {
        let read = || {
            let signer = PublicKey::from_hex(&self.signer_pubkey).ok()?;
            let root = Hash(hex::decode(self.root_hash.as_bytes()).ok()?);
            let signature = hex::decode::<64>(self.signature.as_bytes()).ok()?;
            let message = message(
                &self.sig_alg,
                &self.signer_pubkey,
                self.tree_size,
                root,
                self.timestamp_ms,
            );
            Some(self.sig_alg == ALGORITHM && signer.verifies(&message, &signature))
        };
        read().unwrap_or(false)
    }

    /// Reads the JSON object of a checkpoint.
    ///
    /// # Errors
    /// Not an object, a member missing, twice, or of the wrong type.
    pub fn read(text: &[u8]) -> Result<Self, JsonError> {
        let members = Members::read(text, &FIELDS)?;
        Ok(Self {
            tree_size: members.u64(0)?,
            root_hash: members.string(1)?,
            timestamp_ms: members.u64(2)?,
            sig_alg: members.string(3)?,
            signer_pubkey: members.string(4)?,
            signature: members.string(5)?,
        })
    }

    /// The JSON object on one line.
    pub fn to_json(&self) -> Vec<u8> {
        let text = |value: &str| serde_json::to_string(value).expect("a string is JSON");
        format!(
            "{{\"tree_size\":{},\"root_hash\":{},\"timestamp_ms\":{},\"sig_alg\":{},\"signer_pubkey\":{},\"signature\":{}}}",
            self.tree_size,
            text(&self.root_hash),
            self.timestamp_ms,
            text(&self.sig_alg),
            text(&self.signer_pubkey),
            text(&self.signature),
        )
        .into_bytes()
    }
}

fn message(
    algorithm: &str,
    signer: &str,
    tree_size: u64,
    root: Hash,
    timestamp_ms: u64,
) -> Vec<u8> {
    let mut message = b"witness-log-sth-v2".to_vec();
    for text in [algorithm, signer] {
        message.extend((text.len() as u32).to_be_bytes());
        message.extend(text.as_bytes());
    }
    message.extend(tree_size.to_be_bytes());
    message.extend(root.0);
    message.extend(timestamp_ms.to_be_bytes());
    message
}

//! Keys: the identity that signs, the sessions that it authorises.
//!
//! The identity signs key bindings and checkpoints. A session key signs nothing: it only names the
//! run of the writer in which a leaf was written. Verification is strict everywhere: small-order
//! points are refused and the cofactorless equation is used, so that a signature has one reading.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use crate::hex;
use crate::json::{JsonError, Members};

/// The signing key of an identity. Wiped from memory when dropped.
pub struct Identity(SigningKey);

impl Identity {
    /// The identity of a seed of 32 octets (RFC 8032 section 5.1.5).
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public key: what the identity is called.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// The seed, which an unsealed journal keeps in its header.
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Signs `message`; the same message always gives the same signature.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.public())
    }
}

/// An Ed25519 public key as octets; whether they are a point shows when a signature is checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Reads 64 hex digits of either case.
    ///
    /// # Errors
    /// The wrong length or a character that is no hex digit.
    pub fn from_hex(text: &str) -> Result<Self, hex::HexError> {
        hex::decode(text.as_bytes()).map(Self)
    }

    /// Whether `signature` is this key's over `message`, by the strict rules.
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            key.verify_strict(message, &Signature::from_bytes(signature))
                .is_ok()
        })
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// An identity's word that a session key may write in its journal. One per start of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBinding {
    /// Hex of the identity.
    pub identity_pubkey: String,
    /// Hex of the session's key.
    pub session_pubkey: String,
    /// Number of the session, counted from 0 in each journal.
    pub session_number: u64,
    /// Unix milliseconds of the signature.
    pub timestamp_ms: u64,
    /// Raw JSON of who holds the key. Not signed.
    pub custody: String,
    /// Unix milliseconds after which the session may not write.
    pub not_after_ms: Option<u64>,
    /// Hex of the identity's signature.
    pub signature: String,
}

/// Custody as every writer states it.
const UNDISCLOSED: &str = "\"undisclosed\"";

const BINDING_FIELDS: [&str; 7] = [
    "identity_pubkey",
    "session_pubkey",
    "session_number",
    "timestamp_ms",
    "custody",
    "not_after_ms",
    "signature",
];

impl KeyBinding {
    /// Authorises `session` to write as number `session_number`.
    pub fn sign(
        identity: &Identity,
        session: PublicKey,
        session_number: u64,
        timestamp_ms: u64,
        not_after_ms: Option<u64>,
    ) -> Self {
        let message = binding_message(
            identity.public(),
            session,
            session_number,
            timestamp_ms,
            not_after_ms,
        );
        Self {
            identity_pubkey: identity.public().to_string(),
            session_pubkey: session.to_string(),
            session_number,
            timestamp_ms,
            custody: UNDISCLOSED.into(),
            not_after_ms,
            signature: hex::encode(&identity.sign(&message)),
        }
    }

    /// Whether the identity that it names signed it.
    pub fn verifies(&self) -> bool {
        let read = || {
            let identity = PublicKey::from_hex(&self.identity_pubkey).ok()?;
            let session = PublicKey::from_hex(&self.session_pubkey).ok()?;
            let signature = hex::decode::<64>(self.signature.as_bytes()).ok()?;
            let message = binding_message(
                identity,
                session,
                self.session_number,
                self.timestamp_ms,
                self.not_after_ms,
            );
            Some(identity.verifies(&message, &signature))
        };
        read().unwrap_or(false)
    }

    /// Reads the JSON object of a binding.
    ///
    /// # Errors
    /// Not an object, a member missing, twice, or of the wrong type.
    pub fn read(text: &[u8]) -> Result<Self, JsonError> {
        let members = Members::read(text, &BINDING_FIELDS)?;
        let custody = match members.raw(4).map(serde_json::value::RawValue::get) {
            None => UNDISCLOSED.to_owned(),
            Some(text) if is_custody(text) => text.to_owned(),
            Some(_) => {
                return Err(JsonError::Type {
                    member: "custody",
                    expected: "a known kind of custody",
                });
            }
        };
        Ok(Self {
            identity_pubkey: members.string(0)?,
            session_pubkey: members.string(1)?,
            session_number: members.u64(2)?,
            timestamp_ms: members.u64(3)?,
            custody,
            not_after_ms: members.optional_u64(5)?,
            signature: members.string(6)?,
        })
    }

    /// One line of a journal, without its newline.
    pub fn to_json(&self) -> Vec<u8> {
        let text = |value: &str| serde_json::to_string(value).expect("a string is JSON");
        let not_after = self
            .not_after_ms
            .map_or_else(|| "null".to_owned(), |ms| ms.to_string());
        format!(
            "{{\"identity_pubkey\":{},\"session_pubkey\":{},\"session_number\":{},\"timestamp_ms\":{},\
             \"custody\":{},\"not_after_ms\":{not_after},\"signature\":{}}}",
            text(&self.identity_pubkey),
            text(&self.session_pubkey),
            self.session_number,
            self.timestamp_ms,
            self.custody,
            text(&self.signature),
        )
        .into_bytes()
    }
}

fn binding_message(
    identity: PublicKey,
    session: PublicKey,
    session_number: u64,
    timestamp_ms: u64,
    not_after_ms: Option<u64>,
) -> Vec<u8> {
    let mut message = b"witness-log-key-bind-v1".to_vec();
    message.extend(identity.0);
    message.extend(session.0);
    message.extend(session_number.to_be_bytes());
    message.extend(timestamp_ms.to_be_bytes());
    message.push(not_after_ms.is_some().into());
    message.extend(not_after_ms.into_iter().flat_map(u64::to_be_bytes));
    message
}

/// Whether `text` is one of the reference's spellings of custody: a name, the same as `{"name":null}`,
/// or a threshold with its two numbers as text.
fn is_custody(text: &str) -> bool {
    const NAMES: [&str; 6] = [
        "self_held",
        "platform_held",
        "hsm",
        "kms",
        "session_delegated",
        "undisclosed",
    ];
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else {
        return false;
    };
    match &value {
        serde_json::Value::String(name) => NAMES.contains(&name.as_str()),
        serde_json::Value::Object(object) if object.len() == 1 => {
            object.iter().all(|(name, inner)| {
                (NAMES.contains(&name.as_str()) && inner.is_null())
                    || (name == "threshold" && inner["k"].is_string() && inner["n"].is_string())
            })
        }
        _ => false,
    }
}

/// An identity's word that it is not to be trusted from a time, or from a leaf, on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Hex of the identity that revokes itself.
    pub identity_pubkey: String,
    /// Unix milliseconds from which on nothing counts.
    pub as_of_ms: u64,
    /// Number of leaves after which nothing counts. Its presence makes the second version.
    pub as_of_index: Option<u64>,
    /// Why.
    pub reason: String,
    /// Hex of the identity's signature.
    pub signature: String,
}

const REVOCATION_FIELDS: [&str; 5] = [
    "identity_pubkey",
    "as_of_ms",
    "as_of_index",
    "reason",
    "signature",
];

impl Revocation {
    /// Revokes `identity`.
    pub fn sign(
        identity: &Identity,
        as_of_ms: u64,
        as_of_index: Option<u64>,
        reason: &str,
    ) -> Self {
        let message = revocation_message(identity.public(), as_of_ms, as_of_index, reason);
        Self {
            identity_pubkey: identity.public().to_string(),
            as_of_ms,
            as_of_index,
            reason: reason.to_owned(),
            signature: hex::encode(&identity.sign(&message)),
        }
    }

    /// Whether the identity that it names signed it.
    pub fn verifies(&self) -> bool {
        let read = || {
            let identity = PublicKey::from_hex(&self.identity_pubkey).ok()?;
            let signature = hex::decode::<64>(self.signature.as_bytes()).ok()?;
            let message =
                revocation_message(identity, self.as_of_ms, self.as_of_index, &self.reason);
            Some(identity.verifies(&message, &signature))
        };
        read().unwrap_or(false)
    }

    /// Reads the JSON object of a revocation.
    ///
    /// # Errors
    /// Not an object, a member missing, twice, or of the wrong type.
    pub fn read(text: &[u8]) -> Result<Self, JsonError> {
        let members = Members::read(text, &REVOCATION_FIELDS)?;
        Ok(Self {
            identity_pubkey: members.string(0)?,
            as_of_ms: members.u64(1)?,
            as_of_index: members.optional_u64(2)?,
            reason: members.string(3)?,
            signature: members.string(4)?,
        })
    }
}

fn revocation_message(
    identity: PublicKey,
    as_of_ms: u64,
    as_of_index: Option<u64>,
    reason: &str,
) -> Vec<u8> {
    let version: &[u8] = match as_of_index {
        None => b"witness-log-revoke-v1",
        Some(_) => b"witness-log-revoke-v2",
    };
    let mut message = version.to_vec();
    message.extend(identity.0);
    message.extend(as_of_ms.to_be_bytes());
    if let Some(index) = as_of_index {
        message.push(1);
        message.extend(index.to_be_bytes());
    }
    message.extend(reason.as_bytes());
    message
}

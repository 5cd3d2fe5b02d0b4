//! The text of a signed head: a C2SP checkpoint note, as witnesses read it.
//!
//! One extension line, `time <Unix milliseconds>`, says when it was signed, so that the first head of
//! each day can be kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::Hash;
use crate::keys::{Identity, PublicKey};
use crate::tree::TreeHead;

/// A head and when it was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignedAt {
    pub(super) head: TreeHead,
    pub(super) time_ms: u64,
}

const SIGNATURE_MARK: &str = "\u{2014} ";
const TIME: &str = "time ";

fn origin(identity: PublicKey) -> String {
    format!("witness-log/{identity}")
}

/// The first four octets of `SHA-256(name ‖ LF ‖ 01 ‖ key)`.
fn key_id(name: &str, key: PublicKey) -> [u8; 4] {
    let hash = Hash::of(&[name.as_bytes(), b"\n\x01", &key.0]);
    [hash.0[0], hash.0[1], hash.0[2], hash.0[3]]
}

/// Signs a head as a note.
pub(super) fn sign(identity: &Identity, signed: SignedAt) -> String {
    let key = identity.public();
    let origin = origin(key);
    let text = format!(
        "{origin}\n{}\n{}\n{TIME}{}\n",
        signed.head.size,
        STANDARD.encode(signed.head.root.0),
        signed.time_ms
    );
    let mut signature = key_id(&origin, key).to_vec();
    signature.extend(identity.sign(text.as_bytes()));
    format!(
        "{text}\n{SIGNATURE_MARK}{origin} {}\n",
        STANDARD.encode(signature)
    )
}

/// The head of a note, if `identity` signed it.
pub(super) fn read(note: &str, identity: PublicKey) -> Option<SignedAt> {
    let (text, signatures) = note.split_once("\n\n")?;
    let text = format!("{text}\n");
    let mut lines = text.lines();
    let origin = origin(identity);
    (lines.next()? == origin).then_some(())?;
    let size = lines.next()?.parse().ok()?;
    let root = Hash(STANDARD.decode(lines.next()?).ok()?.try_into().ok()?);
    let time_ms = lines.find_map(|line| line.strip_prefix(TIME)?.parse().ok())?;
    let line = signatures.lines().find_map(|line| {
        line.strip_prefix(SIGNATURE_MARK)?
            .strip_prefix(&origin)?
            .strip_prefix(' ')
    })?;
    let octets = STANDARD.decode(line).ok()?;
    let (id, signature) = octets.split_first_chunk::<4>()?;
    let signature: &[u8; 64] = signature.try_into().ok()?;
    (*id == key_id(&origin, identity) && identity.verifies(text.as_bytes(), signature)).then_some(
        SignedAt {
            head: TreeHead { size, root },
            time_ms,
        },
    )
}

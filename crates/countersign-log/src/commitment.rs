//! The salted commitment to a payload: the journal shows that something was written, not what.
//!
//! The salt keeps short payloads from being guessed; the index binds a commitment to its place.
//! Destroying the salt erases the payload for good; handing it out discloses this one payload.
//!
//! A digest shows no length. The padding is for whoever sees how much is hashed, by the time that it
//! takes or because padded payloads are kept or sent: they see a length only by its bucket.

use crate::hash::Hash;

/// 32 random octets, fresh for each leaf. Secret: with it, a payload can be guessed and checked.
pub type Salt = [u8; 32];

/// What is hashed grows in steps of this many octets.
const BUCKET_OCTETS: usize = 256;

/// `SHA-256(u64(length) ‖ payload ‖ zeros to the bucket's end ‖ salt ‖ u64(index))`.
///
/// Even an exact multiple of the bucket is padded by one more, so that there is always a pad.
pub fn commit(payload: &[u8], salt: &Salt, index: u64) -> Hash {
    let pad = BUCKET_OCTETS - payload.len() % BUCKET_OCTETS;
    let length = (payload.len() as u64).to_be_bytes();
    Hash::of(&[
        &length,
        payload,
        &[0; BUCKET_OCTETS][..pad],
        salt,
        &index.to_be_bytes(),
    ])
}

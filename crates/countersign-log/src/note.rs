//! Signed notes of C2SP: how a tree head travels to witnesses, and how it is kept beside the journal.
//!
//! A note is a text and signature lines; each line names its key and carries four octets of the
//! key's digest. A reader ignores keys that it does not know, and refuses the whole note when a key
//! that it does know did not sign it. Nothing here decides which keys are known.
//!
//! Sources: c2sp.org/signed-note, c2sp.org/tlog-checkpoint, c2sp.org/tlog-cosignature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::hash::Hash;
use crate::hex;
use crate::keys::{Identity, PublicKey};
use crate::tree::TreeHead;

/// What is wrong with a note, a checkpoint text or a verifier key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteError {
    /// An octet below 0x20 other than a newline, at this offset.
    ControlCharacter(usize),
    /// No empty line parts text from signatures.
    NoSeparator,
    /// More than [`SIGNATURES_MAX`] signature lines.
    TooManySignatures,
    /// This signature line, counted from 1, is malformed.
    SignatureLine {
        /// Number of the line.
        line: usize,
        /// What it must be.
        expected: &'static str,
    },
    /// A known key's signature is wrong.
    BadSignature(String),
    /// No known key signed.
    NoKnownKey,
    /// The text is not a checkpoint.
    Checkpoint(&'static str),
    /// The text is not a verifier key.
    VerifierKey(&'static str),
}

impl std::fmt::Display for NoteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ControlCharacter(at) => {
                write!(f, "octet {at} of the note is a control character")
            }
            Self::NoSeparator => {
                f.write_str("no empty line parts the note's text from its signatures")
            }
            Self::TooManySignatures => {
                write!(f, "the note has more than {SIGNATURES_MAX} signature lines")
            }
            Self::SignatureLine { line, expected } => {
                write!(f, "signature line {line} of the note must be {expected}")
            }
            Self::BadSignature(name) => write!(f, "the note's signature by {name} is wrong"),
            Self::NoKnownKey => f.write_str("no known key signed the note"),
            Self::Checkpoint(expected) => write!(f, "the note's text must be {expected}"),
            Self::VerifierKey(expected) => write!(f, "a verifier key must be {expected}"),
        }
    }
}

impl std::error::Error for NoteError {}

/// Signature lines that a note may have: the specification lets readers stop here.
pub const SIGNATURES_MAX: usize = 64;

/// Octets of a key id.
const KEY_ID_OCTETS: usize = 4;

/// What a signature line starts with: an em dash and a space.
const DASH: &str = "\u{2014} ";

/// What a key signs, and so what its lines carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyKind {
    /// Signs the text of a note.
    Note = 1,
    /// A witness's key: signs the text and the time at which it was seen.
    Cosignature = 4,
}

/// A public key under its name in notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifierKey {
    /// What signature lines call it.
    pub name: String,
    /// What it signs.
    pub kind: KeyKind,
    /// The key.
    pub key: PublicKey,
}

impl VerifierKey {
    /// The key of a log: its identity under its [`origin`].
    pub fn of_log(identity: PublicKey) -> Self {
        Self {
            name: origin(identity),
            kind: KeyKind::Note,
            key: identity,
        }
    }

    /// First four octets of `SHA-256(name ‖ 0A ‖ kind ‖ key)`.
    pub fn id(&self) -> [u8; KEY_ID_OCTETS] {
        let digest = Hash::of(&[self.name.as_bytes(), b"\n", &[self.kind as u8], &self.key.0]);
        *digest.0.first_chunk().expect("a digest has 32 octets")
    }

    /// Reads `<name>+<8 hex digits>+<base64 of kind and key>`.
    ///
    /// # Errors
    /// A part is missing or malformed, or the id is not the key's.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let parts: Vec<&str> = text.splitn(3, '+').collect();
        let [name, id, key] = parts[..] else {
            return Err(NoteError::VerifierKey(
                "a name, an id and a key, joined by `+`",
            ));
        };
        if !is_key_name(name) {
            return Err(NoteError::VerifierKey("named, without `+` or space"));
        }
        let key = BASE64.decode(key).unwrap_or_default();
        let (kind, key) = match key.split_first() {
            Some((1, key)) => (KeyKind::Note, key),
            Some((4, key)) => (KeyKind::Cosignature, key),
            _ => return Err(NoteError::VerifierKey("base64 of a known kind and a key")),
        };
        let key = key
            .try_into()
            .map_err(|_| NoteError::VerifierKey("a key of 32 octets"))?;
        let this = Self {
            name: name.to_owned(),
            kind,
            key: PublicKey(key),
        };
        match hex::decode_lowercase(id.as_bytes()) {
            Ok(id) if id == this.id() => Ok(this),
            _ => Err(NoteError::VerifierKey("under the id that its key gives")),
        }
    }

    /// Whether `signature` names this key: by name and by id.
    fn wrote(&self, signature: &NoteSignature) -> bool {
        signature.name == self.name && signature.key_id == self.id()
    }

    /// Whether this key signed `text` with `signature`.
    fn verifies(&self, text: &str, signature: &NoteSignature) -> bool {
        match self.kind {
            KeyKind::Note => signature
                .octets
                .as_slice()
                .try_into()
                .is_ok_and(|octets| self.key.verifies(text.as_bytes(), octets)),
            KeyKind::Cosignature => Cosignature::read(signature)
                .is_some_and(|cosignature| cosignature.verifies(self.key, text)),
        }
    }
}

impl std::fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = [&[self.kind as u8], &self.key.0[..]].concat();
        write!(
            f,
            "{}+{}+{}",
            self.name,
            hex::encode(&self.id()),
            BASE64.encode(key)
        )
    }
}

/// The name of a log: the only one under which its notes count.
pub fn origin(identity: PublicKey) -> String {
    format!("witness-log/{identity}")
}

/// A signature line of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    /// Name of the key.
    pub name: String,
    /// Id of the key.
    pub key_id: [u8; KEY_ID_OCTETS],
    /// What follows the id: a signature, or a time and a signature.
    pub octets: Vec<u8>,
}

impl NoteSignature {
    fn parse(line: &str, number: usize) -> Result<Self, NoteError> {
        let fault = |expected| NoteError::SignatureLine {
            line: number,
            expected,
        };
        let rest = line
            .strip_prefix(DASH)
            .ok_or(fault("an em dash, a key name and base64"))?;
        let (name, payload) = rest
            .split_once(' ')
            .ok_or(fault("an em dash, a key name and base64"))?;
        if !is_key_name(name) {
            return Err(fault("under a key name without `+` or space"));
        }
        let payload = BASE64
            .decode(payload)
            .map_err(|_| fault("in padded standard base64"))?;
        match payload.split_first_chunk() {
            Some((key_id, octets)) if !octets.is_empty() => Ok(Self {
                name: name.to_owned(),
                key_id: *key_id,
                octets: octets.to_vec(),
            }),
            _ => Err(fault("longer than a key id")),
        }
    }
}

impl std::fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let payload = [&self.key_id[..], &self.octets].concat();
        write!(f, "{DASH}{} {}", self.name, BASE64.encode(payload))
    }
}

fn is_key_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('+') && !name.contains(char::is_whitespace)
}

/// A text and who signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What is signed, with its last newline.
    pub text: String,
    /// The signature lines, in order.
    pub signatures: Vec<NoteSignature>,
}

impl Note {
    /// Reads a note. A missing last newline and empty lines at the end are let pass.
    ///
    /// # Errors
    /// The text or a signature line is malformed; signatures are not checked here.
    pub fn parse(note: &str) -> Result<Self, NoteError> {
        if let Some(at) = note
            .bytes()
            .position(|octet| octet < 0x20 && octet != b'\n')
        {
            return Err(NoteError::ControlCharacter(at));
        }
        let body = note.trim_end_matches('\n');
        let separator = body.rfind("\n\n").ok_or(NoteError::NoSeparator)?;
        let lines = body[separator + 2..].split('\n');
        if lines.clone().count() > SIGNATURES_MAX {
            return Err(NoteError::TooManySignatures);
        }
        Ok(Self {
            text: body[..=separator].to_owned(),
            signatures: lines
                .enumerate()
                .map(|(at, line)| NoteSignature::parse(line, at + 1))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The signatures by keys in `known`, all of which hold.
    ///
    /// # Errors
    /// A known key's signature is wrong, or no known key signed.
    pub fn verify(&self, known: &[VerifierKey]) -> Result<Vec<&NoteSignature>, NoteError> {
        let mut verified = Vec::new();
        for signature in &self.signatures {
            let Some(key) = known.iter().find(|key| key.wrote(signature)) else {
                continue;
            };
            if !key.verifies(&self.text, signature) {
                return Err(NoteError::BadSignature(key.name.clone()));
            }
            verified.push(signature);
        }
        if verified.is_empty() {
            return Err(NoteError::NoKnownKey);
        }
        Ok(verified)
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures
            .iter()
            .try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

/// The text of a checkpoint: `<origin>\n<size>\n<base64 of the root>\n`.
pub fn checkpoint_text(origin: &str, head: TreeHead) -> String {
    format!("{origin}\n{}\n{}\n", head.size, BASE64.encode(head.root.0))
}

/// Reads the text of a checkpoint: origin and head. Lines that follow are extensions and ignored.
///
/// # Errors
/// A line is missing, the size is not a plain decimal number, or the root not 32 octets of base64.
pub fn parse_checkpoint(text: &str) -> Result<(&str, TreeHead), NoteError> {
    const LINES: NoteError = NoteError::Checkpoint("an origin, a size and a root, one a line");
    let text = text.strip_suffix('\n').ok_or(LINES)?;
    let mut lines = text.split('\n');
    let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
        return Err(LINES);
    };
    if origin.is_empty() {
        return Err(LINES);
    }
    let plain = size.bytes().all(|digit| digit.is_ascii_digit())
        && !(size.len() > 1 && size.starts_with('0'));
    let size = size
        .parse()
        .ok()
        .filter(|_| plain)
        .ok_or(NoteError::Checkpoint("of a plain decimal size"))?;
    let root = BASE64
        .decode(root)
        .ok()
        .and_then(|octets| octets.try_into().ok())
        .ok_or(NoteError::Checkpoint("of a root of 32 octets in base64"))?;
    let root = Hash(root);
    Ok((origin, TreeHead { size, root }))
}

/// What the extension line starts with that says when a journal signed its head.
const TIME: &str = "time ";

/// The time in a head's text, Unix milliseconds, if it says one.
pub fn head_time_ms(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(TIME)?.parse().ok())
}

/// A log's head as a note signed by the log alone.
pub fn sign_head(identity: &Identity, head: TreeHead) -> Note {
    sign(identity, checkpoint_text(&origin(identity.public()), head))
}

/// As [`sign_head`], with the extension line `time <Unix milliseconds>`.
pub fn sign_head_at(identity: &Identity, head: TreeHead, time_ms: u64) -> Note {
    let text = checkpoint_text(&origin(identity.public()), head);
    sign(identity, format!("{text}{TIME}{time_ms}\n"))
}

fn sign(identity: &Identity, text: String) -> Note {
    let key = VerifierKey::of_log(identity.public());
    let signature = NoteSignature {
        key_id: key.id(),
        octets: identity.sign(text.as_bytes()).to_vec(),
        name: key.name,
    };
    Note {
        text,
        signatures: vec![signature],
    }
}

/// The head in a note that the log of `identity` signed under its own origin.
///
/// # Errors
/// The note is malformed, not this log's, or not signed by it.
pub fn open_head(identity: PublicKey, note: &str) -> Result<TreeHead, NoteError> {
    let note = Note::parse(note)?;
    let key = VerifierKey::of_log(identity);
    let (named, head) = parse_checkpoint(&note.text)?;
    if named != key.name {
        return Err(NoteError::Checkpoint("under this log's own origin"));
    }
    note.verify(&[key])?;
    Ok(head)
}

/// A witness's word that it saw a checkpoint: the payload of its signature line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cosignature {
    /// Unix seconds at which it was seen.
    pub time_s: u64,
    /// Signature over time and text.
    pub signature: [u8; 64],
}

impl Cosignature {
    /// Signs the text of a checkpoint, as seen at `time_s`.
    pub fn sign(witness: &Identity, time_s: u64, text: &str) -> Self {
        Self {
            time_s,
            signature: witness.sign(cosignature_message(time_s, text).as_bytes()),
        }
    }

    /// Whether `witness` signed this over `text`.
    pub fn verifies(&self, witness: PublicKey, text: &str) -> bool {
        let message = cosignature_message(self.time_s, text);
        witness.verifies(message.as_bytes(), &self.signature)
    }

    /// The cosignature in a signature line, if it has the length of one.
    pub fn read(line: &NoteSignature) -> Option<Self> {
        let (time, signature) = line.octets.split_first_chunk()?;
        Some(Self {
            time_s: u64::from_be_bytes(*time),
            signature: signature.try_into().ok()?,
        })
    }

    /// The signature line of `witness`, which must be a [`KeyKind::Cosignature`] key.
    pub fn line(&self, witness: &VerifierKey) -> NoteSignature {
        NoteSignature {
            name: witness.name.clone(),
            key_id: witness.id(),
            octets: [&self.time_s.to_be_bytes()[..], &self.signature].concat(),
        }
    }
}

/// What a witness signs: a header, the time, and the text of the checkpoint.
pub fn cosignature_message(time_s: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time_s}\n{text}")
}

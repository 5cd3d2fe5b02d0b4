//! A leaf: one line of the journal, one entry of the tree.
//!
//! [`Leaf`] holds the fifteen members as they were read, valid or not; [`Leaf::check`] says whether
//! they may stand at their place; [`Leaf::hash`] is what the tree is built from. A leaf is not
//! signed: only a signed checkpoint over the tree protects it.

use crate::hash::Hash;
use crate::hex;
use crate::json::{JsonError, Members};

/// What a leaf records. The numbers are those on disk and in the hashed octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Anything worth keeping that is neither intent nor result.
    Memory = 0,
    /// What someone asked for, written before it is done.
    Intent = 1,
    /// What came of it.
    Result = 2,
    /// Marks an earlier leaf whose salt was destroyed.
    Redaction = 3,
    /// Marks an identity as revoked.
    Revocation = 4,
    /// State handed to, or taken from, another identity.
    Handoff = 5,
    /// A grant, its change or its end.
    Authorization = 6,
    /// A pointer to evidence outside the journal.
    Anchor = 7,
}

impl Kind {
    /// The kind with this number.
    pub fn from_tag(tag: u8) -> Option<Self> {
        const ALL: [Kind; 8] = [
            Kind::Memory,
            Kind::Intent,
            Kind::Result,
            Kind::Redaction,
            Kind::Revocation,
            Kind::Handoff,
            Kind::Authorization,
            Kind::Anchor,
        ];
        ALL.get(usize::from(tag)).copied()
    }

    /// Whether leaves of this kind commit to a payload (markers do not).
    pub fn has_payload(self) -> bool {
        !matches!(self, Self::Redaction | Self::Revocation)
    }

    /// Whether a leaf of this kind may carry member `field`, one of the last ten of [`FIELDS`].
    fn may_carry(self, field: &str) -> bool {
        match self {
            Self::Memory | Self::Intent | Self::Result => false,
            Self::Redaction => field == "redacted_index",
            Self::Revocation => field == "revoked_identity",
            Self::Handoff => matches!(
                field,
                "handoff_direction" | "counterparty_pubkey" | "handoff_state_hash"
            ),
            Self::Authorization => {
                matches!(
                    field,
                    "authorization_event_kind" | "counterparty_pubkey" | "authorization_scope_hash"
                )
            }
            Self::Anchor => matches!(
                field,
                "anchor_url" | "anchor_proof_json" | "anchor_proof_hash"
            ),
        }
    }

    /// The members without which a leaf of this kind says nothing.
    fn must_carry(self) -> &'static [&'static str] {
        match self {
            Self::Memory | Self::Intent | Self::Result => &[],
            Self::Redaction => &["redacted_index"],
            Self::Revocation => &["revoked_identity"],
            Self::Handoff => &[
                "handoff_direction",
                "counterparty_pubkey",
                "handoff_state_hash",
            ],
            Self::Authorization => &[
                "authorization_event_kind",
                "counterparty_pubkey",
                "authorization_scope_hash",
            ],
            Self::Anchor => &["anchor_url", "anchor_proof_hash"],
        }
    }
}

/// Member names in the order in which they are written.
const FIELDS: [&str; 15] = [
    "index",
    "leaf_type",
    "timestamp_ms",
    "session_pubkey",
    "payload_hash",
    "redacted_index",
    "revoked_identity",
    "handoff_direction",
    "counterparty_pubkey",
    "handoff_state_hash",
    "authorization_event_kind",
    "authorization_scope_hash",
    "anchor_url",
    "anchor_proof_json",
    "anchor_proof_hash",
];

const DIRECTIONS: [&str; 2] = ["Sent", "Received"];
const EVENTS: [&str; 6] = [
    "GrantedByMe",
    "GrantedToMe",
    "RevokedByMe",
    "RevokedToMe",
    "ScopeChangedByMe",
    "ScopeChangedToMe",
];

/// Digits of a key, a hash or an identity.
const HEX_DIGITS: usize = 64;

/// The fifteen members of a leaf, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Position in the tree, from 0.
    pub index: u64,
    /// Number of the [`Kind`]; any number can be read.
    pub leaf_type: u8,
    /// Unix milliseconds, by the writer's clock.
    pub timestamp_ms: u64,
    /// Hex of the session's public key.
    pub session_pubkey: String,
    /// Hex of the [commitment](crate::commitment::commit), 64 zeros for a marker.
    pub payload_hash: String,
    /// Redaction: index of the leaf whose salt was destroyed.
    pub redacted_index: Option<u64>,
    /// Revocation: hex of the revoked identity.
    pub revoked_identity: Option<String>,
    /// Handoff: 0 sent, 1 received.
    pub handoff_direction: Option<u8>,
    /// Handoff and authorization: hex of the other identity.
    pub counterparty_pubkey: Option<String>,
    /// Handoff: hex of the unsalted SHA-256 of the state.
    pub handoff_state_hash: Option<String>,
    /// Authorization: 0 to 5, in the order granted, revoked, scope changed, each by me then to me.
    pub authorization_event_kind: Option<u8>,
    /// Authorization: hex of the unsalted SHA-256 of the scope.
    pub authorization_scope_hash: Option<String>,
    /// Anchor: where the evidence is.
    pub anchor_url: Option<String>,
    /// Anchor: the evidence itself, as JSON text. Not part of the hashed octets.
    pub anchor_proof_json: Option<String>,
    /// Anchor: hex of the SHA-256 of the evidence.
    pub anchor_proof_hash: Option<String>,
}

/// Why a leaf may not stand where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafFault {
    /// Its index is not its position.
    Position {
        /// What the leaf says.
        index: u64,
        /// Where it stands.
        position: u64,
    },
    /// There is no kind with this number.
    UnknownKind(u8),
    /// A member must be 64 lowercase hex digits.
    NotHex(&'static str),
    /// A member belongs to another kind.
    Foreign {
        /// Number of the kind.
        kind: u8,
        /// Name of the member.
        field: &'static str,
    },
    /// A member of this kind is missing.
    Absent {
        /// Number of the kind.
        kind: u8,
        /// Name of the member.
        field: &'static str,
    },
    /// A marker carries something other than 64 zeros for a commitment.
    MarkerWithPayload,
    /// A redaction names itself or a later leaf.
    RedactsLater(u64),
    /// An anchor's URL is neither http nor https.
    AnchorUrl(String),
    /// An anchor's evidence does not hash to what the leaf commits to.
    AnchorProof,
}

impl std::fmt::Display for LeafFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Position { index, position } => write!(
                f,
                "leaf index {index} does not match its position {position}"
            ),
            Self::UnknownKind(tag) => write!(f, "leaf type {tag} is unknown"),
            Self::NotHex(field) => write!(f, "`{field}` must be 64 lowercase hex digits"),
            Self::Foreign { kind, field } => {
                write!(f, "a leaf of type {kind} may not carry `{field}`")
            }
            Self::Absent { kind, field } => write!(f, "a leaf of type {kind} must carry `{field}`"),
            Self::MarkerWithPayload => {
                f.write_str("a marker must carry 64 zeros as `payload_hash`")
            }
            Self::RedactsLater(index) => {
                write!(f, "`redacted_index` {index} must name an earlier leaf")
            }
            Self::AnchorUrl(url) => write!(f, "`anchor_url` must be http or https, not {url:?}"),
            Self::AnchorProof => {
                f.write_str("`anchor_proof_json` does not hash to `anchor_proof_hash`")
            }
        }
    }
}

impl std::error::Error for LeafFault {}

impl Leaf {
    /// Reads the JSON object of a leaf. Members that are absent count as `null`; unknown ones are ignored.
    ///
    /// # Errors
    /// Not an object, a known member twice or of the wrong type, or one of the first five missing.
    pub fn read(text: &[u8]) -> Result<Self, JsonError> {
        let members = Members::read(text, &FIELDS)?;
        let named = |at: usize, names: &[&str], expected| match members.optional_string(at)? {
            None => Ok(None),
            Some(name) => names
                .iter()
                .position(|known| *known == name)
                .map(|tag| Some(tag as u8))
                .ok_or(JsonError::Type {
                    member: FIELDS[at],
                    expected,
                }),
        };
        Ok(Self {
            index: members.u64(0)?,
            leaf_type: u8::try_from(members.u64(1)?).map_err(|_| JsonError::Type {
                member: FIELDS[1],
                expected: "a number below 256",
            })?,
            timestamp_ms: members.u64(2)?,
            session_pubkey: members.string(3)?,
            payload_hash: members.string(4)?,
            redacted_index: members.optional_u64(5)?,
            revoked_identity: members.optional_string(6)?,
            handoff_direction: named(7, &DIRECTIONS, "Sent or Received")?,
            counterparty_pubkey: members.optional_string(8)?,
            handoff_state_hash: members.optional_string(9)?,
            authorization_event_kind: named(10, &EVENTS, "a kind of authorization event")?,
            authorization_scope_hash: members.optional_string(11)?,
            anchor_url: members.optional_string(12)?,
            anchor_proof_json: members.optional_string(13)?,
            anchor_proof_hash: members.optional_string(14)?,
        })
    }

    /// The kind, if its number is one.
    pub fn kind(&self) -> Option<Kind> {
        Kind::from_tag(self.leaf_type)
    }

    /// The octets that are hashed.
    pub fn canonical_octets(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(PLAIN_OCTETS);
        octets.push(self.leaf_type);
        octets.extend(self.index.to_be_bytes());
        octets.extend(self.timestamp_ms.to_be_bytes());
        push_text(&mut octets, &self.session_pubkey);
        push_text(&mut octets, &self.payload_hash);
        push_option(&mut octets, self.redacted_index, |octets, index| {
            octets.extend(index.to_be_bytes())
        });
        push_option(&mut octets, self.revoked_identity.as_deref(), push_text);
        match self.kind() {
            Some(Kind::Handoff) => {
                push_option(&mut octets, self.handoff_direction, |octets, tag| {
                    octets.push(tag)
                });
                push_option(&mut octets, self.counterparty_pubkey.as_deref(), push_text);
                push_option(&mut octets, self.handoff_state_hash.as_deref(), push_text);
            }
            Some(Kind::Authorization) => {
                push_option(&mut octets, self.authorization_event_kind, |octets, tag| {
                    octets.push(tag)
                });
                push_option(&mut octets, self.counterparty_pubkey.as_deref(), push_text);
                push_option(
                    &mut octets,
                    self.authorization_scope_hash.as_deref(),
                    push_text,
                );
            }
            Some(Kind::Anchor) => {
                push_option(&mut octets, self.anchor_url.as_deref(), push_text);
                push_option(&mut octets, self.anchor_proof_hash.as_deref(), push_text);
            }
            _ => {}
        }
        octets
    }

    /// The hash that stands in the tree: RFC 6962 section 2.1, `SHA-256(00 ‖ octets)`.
    pub fn hash(&self) -> Hash {
        Hash::of(&[&[0], &self.canonical_octets()])
    }

    /// Whether this leaf may stand at `position`.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, position: u64) -> Result<(), LeafFault> {
        if self.index != position {
            return Err(LeafFault::Position {
                index: self.index,
                position,
            });
        }
        let kind = self.kind().ok_or(LeafFault::UnknownKind(self.leaf_type))?;
        hex_field("session_pubkey", &self.session_pubkey)?;
        hex_field("payload_hash", &self.payload_hash)?;
        for (field, present) in self.special_fields() {
            if present && !kind.may_carry(field) {
                return Err(LeafFault::Foreign {
                    kind: self.leaf_type,
                    field,
                });
            }
            if !present && kind.must_carry().contains(&field) {
                return Err(LeafFault::Absent {
                    kind: self.leaf_type,
                    field,
                });
            }
        }
        if !kind.has_payload() && self.payload_hash.bytes().any(|digit| digit != b'0') {
            return Err(LeafFault::MarkerWithPayload);
        }
        self.check_special_values()
    }

    /// One line of a journal, without its newline.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(PLAIN_JSON_OCTETS);
        text.extend(b"{\"index\":");
        push_decimal(&mut text, self.index);
        text.extend(b",\"leaf_type\":");
        push_decimal(&mut text, self.leaf_type.into());
        text.extend(b",\"timestamp_ms\":");
        push_decimal(&mut text, self.timestamp_ms);
        push_member(&mut text, "session_pubkey", Some(&self.session_pubkey));
        push_member(&mut text, "payload_hash", Some(&self.payload_hash));
        text.extend(b",\"redacted_index\":");
        match self.redacted_index {
            Some(index) => push_decimal(&mut text, index),
            None => text.extend(b"null"),
        }
        push_member(
            &mut text,
            "revoked_identity",
            self.revoked_identity.as_deref(),
        );
        push_member(
            &mut text,
            "handoff_direction",
            self.handoff_direction
                .map(|tag| DIRECTIONS[usize::from(tag)]),
        );
        push_member(
            &mut text,
            "counterparty_pubkey",
            self.counterparty_pubkey.as_deref(),
        );
        push_member(
            &mut text,
            "handoff_state_hash",
            self.handoff_state_hash.as_deref(),
        );
        let event = self
            .authorization_event_kind
            .map(|tag| EVENTS[usize::from(tag)]);
        push_member(&mut text, "authorization_event_kind", event);
        push_member(
            &mut text,
            "authorization_scope_hash",
            self.authorization_scope_hash.as_deref(),
        );
        push_member(&mut text, "anchor_url", self.anchor_url.as_deref());
        push_member(
            &mut text,
            "anchor_proof_json",
            self.anchor_proof_json.as_deref(),
        );
        push_member(
            &mut text,
            "anchor_proof_hash",
            self.anchor_proof_hash.as_deref(),
        );
        text.push(b'}');
        text
    }

    fn special_fields(&self) -> [(&'static str, bool); 10] {
        [
            ("redacted_index", self.redacted_index.is_some()),
            ("revoked_identity", self.revoked_identity.is_some()),
            ("handoff_direction", self.handoff_direction.is_some()),
            ("counterparty_pubkey", self.counterparty_pubkey.is_some()),
            ("handoff_state_hash", self.handoff_state_hash.is_some()),
            (
                "authorization_event_kind",
                self.authorization_event_kind.is_some(),
            ),
            (
                "authorization_scope_hash",
                self.authorization_scope_hash.is_some(),
            ),
            ("anchor_url", self.anchor_url.is_some()),
            ("anchor_proof_json", self.anchor_proof_json.is_some()),
            ("anchor_proof_hash", self.anchor_proof_hash.is_some()),
        ]
    }

    fn check_special_values(&self) -> Result<(), LeafFault> {
        let hex_fields = [
            ("revoked_identity", &self.revoked_identity),
            ("counterparty_pubkey", &self.counterparty_pubkey),
            ("handoff_state_hash", &self.handoff_state_hash),
            ("authorization_scope_hash", &self.authorization_scope_hash),
            ("anchor_proof_hash", &self.anchor_proof_hash),
        ];
        for (field, value) in hex_fields {
            value
                .as_deref()
                .map_or(Ok(()), |value| hex_field(field, value))?;
        }
        if let Some(index) = self.redacted_index.filter(|index| *index >= self.index) {
            return Err(LeafFault::RedactsLater(index));
        }
        if let Some(url) = &self.anchor_url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return Err(LeafFault::AnchorUrl(url.clone()));
        }
        match (&self.anchor_proof_json, &self.anchor_proof_hash) {
            (Some(proof), Some(hash)) if Hash::of(&[proof.as_bytes()]).to_hex() != *hash => {
                Err(LeafFault::AnchorProof)
            }
            _ => Ok(()),
        }
    }
}

fn hex_field(field: &'static str, value: &str) -> Result<(), LeafFault> {
    let lowercase_hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if value.len() == HEX_DIGITS && value.bytes().all(lowercase_hex) {
        Ok(())
    } else {
        Err(LeafFault::NotHex(field))
    }
}

fn push_text(octets: &mut Vec<u8>, text: &str) {
    // A text of 4 GiB cannot come out of a line of at most 16 MiB.
    octets.extend((text.len() as u32).to_be_bytes());
    octets.extend(text.as_bytes());
}

fn push_option<T>(octets: &mut Vec<u8>, value: Option<T>, push: impl FnOnce(&mut Vec<u8>, T)) {
    octets.push(value.is_some().into());
    if let Some(value) = value {
        push(octets, value);
    }
}

fn push_member(text: &mut Vec<u8>, name: &str, value: Option<&str>) {
    text.extend(b",\"");
    text.extend(name.as_bytes());
    text.extend(b"\":");
    match value {
        Some(value) => serde_json::to_writer(text, value).expect("a Vec takes every octet"),
        None => text.extend(b"null"),
    }
}

fn push_decimal(text: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend(&digits[at..]);
}

/// Hashed octets of a leaf without special members.
const PLAIN_OCTETS: usize = 155;

/// Room for the JSON of a leaf without special members.
const PLAIN_JSON_OCTETS: usize = 500;

/// A leaf of kind memory, intent or result: what nearly every line is. Fixed size, no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainLeaf {
    /// Memory, intent or result.
    pub kind: Kind,
    /// Position in the tree.
    pub index: u64,
    /// Unix milliseconds.
    pub timestamp_ms: u64,
    /// The session's public key.
    pub session: [u8; 32],
    /// The commitment.
    pub payload_hash: Hash,
}

const SESSION_MEMBER: &[u8] = b",\"session_pubkey\":\"";
const PAYLOAD_MEMBER: &[u8] = b"\",\"payload_hash\":\"";
const PLAIN_TAIL: &[u8] = b"\",\"redacted_index\":null,\"revoked_identity\":null,\"handoff_direction\":null,\
\"counterparty_pubkey\":null,\"handoff_state_hash\":null,\"authorization_event_kind\":null,\
\"authorization_scope_hash\":null,\"anchor_url\":null,\"anchor_proof_json\":null,\"anchor_proof_hash\":null}";

impl PlainLeaf {
    /// The hash that stands in the tree; equals [`Leaf::hash`] of the same leaf.
    pub fn hash(&self) -> Hash {
        let mut octets = [0; PLAIN_OCTETS + 1];
        octets[1] = self.kind as u8;
        octets[2..10].copy_from_slice(&self.index.to_be_bytes());
        octets[10..18].copy_from_slice(&self.timestamp_ms.to_be_bytes());
        octets[18..22].copy_from_slice(&(HEX_DIGITS as u32).to_be_bytes());
        hex::write(&mut octets[22..86], &self.session);
        octets[86..90].copy_from_slice(&(HEX_DIGITS as u32).to_be_bytes());
        hex::write(&mut octets[90..154], &self.payload_hash.0);
        Hash::of(&[&octets])
    }

    /// Appends the JSON of this leaf, without a newline; equals [`Leaf::to_json`].
    pub fn push_json(&self, text: &mut Vec<u8>) {
        text.extend(b"{\"index\":");
        push_decimal(text, self.index);
        text.extend(b",\"leaf_type\":");
        push_decimal(text, self.kind as u64);
        text.extend(b",\"timestamp_ms\":");
        push_decimal(text, self.timestamp_ms);
        text.extend(SESSION_MEMBER);
        hex::push(text, &self.session);
        text.extend(PAYLOAD_MEMBER);
        hex::push(text, &self.payload_hash.0);
        text.extend(PLAIN_TAIL);
    }

    /// Reads a line that is spelled exactly as [`Self::push_json`] spells it; `None` sends the
    /// caller to [`Leaf::read`], which reads every spelling.
    pub fn read(line: &[u8]) -> Option<Self> {
        let (index, rest) = decimal(line.strip_prefix(b"{\"index\":")?)?;
        let (tag, rest) = decimal(rest.strip_prefix(b",\"leaf_type\":")?)?;
        let (timestamp_ms, rest) = decimal(rest.strip_prefix(b",\"timestamp_ms\":")?)?;
        let (session, rest) = rest
            .strip_prefix(SESSION_MEMBER)?
            .split_at_checked(HEX_DIGITS)?;
        let (payload, rest) = rest
            .strip_prefix(PAYLOAD_MEMBER)?
            .split_at_checked(HEX_DIGITS)?;
        let kind = Kind::from_tag(u8::try_from(tag).ok()?)?;
        let plain = matches!(kind, Kind::Memory | Kind::Intent | Kind::Result);
        (plain && rest == PLAIN_TAIL).then_some(())?;
        Some(Self {
            kind,
            index,
            timestamp_ms,
            session: hex::decode_lowercase(session).ok()?,
            payload_hash: Hash(hex::decode_lowercase(payload).ok()?),
        })
    }
}

impl From<PlainLeaf> for Leaf {
    fn from(plain: PlainLeaf) -> Self {
        Self {
            index: plain.index,
            leaf_type: plain.kind as u8,
            timestamp_ms: plain.timestamp_ms,
            session_pubkey: hex::encode(&plain.session),
            payload_hash: plain.payload_hash.to_hex(),
            ..Self::default()
        }
    }
}

/// A decimal number at the start of `text`, in its only spelling, and what follows it.
fn decimal(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|digit| !digit.is_ascii_digit())?;
    let (digits, rest) = text.split_at(end);
    if digits.len() > 1 && digits[0] == b'0' {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest))
}

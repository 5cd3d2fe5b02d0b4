//! The lines of `X.calls`: which result answers which intent. The leaves hide it behind their salts.
//!
//! They stand in the order of the leaves that they speak of:
//!
//! * `{"n":N,"s":"<64 hex>"}`: from leaf `N` on, session `s` keeps this file, so its silence means
//!   something. Sessions of the reference have no such line.
//! * `{"r":R,"i":I}`: result `R` answers intent `I`. With `,"g":G` the intent stands in segment `G`.
//! * `{"o":O,"i":I,"g":G}`: at segment leaf `O`, intent `I` of segment `G` was still open.
//! * `{"l":L,"p":{…}}`: leaf `L` is the `countersign.lost` payload `p`, octet for octet.
//!
//! Nobody signs them, so what to believe of them is for their two readers: a start and verify.

use std::io::Write as _;

use serde::de::DeserializeOwned;

use crate::hex;
use crate::json::Members;

/// Where a leaf stands: its segment, and its index in that segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the segment, 0 for a journal that never rotated.
    pub segment: u32,
    /// Index of the leaf in its segment.
    pub index: u64,
}

/// Appends the line by which a session says that it keeps this file.
pub(crate) fn push_session(lines: &mut Vec<u8>, from: u64, session: &[u8; 32]) {
    write!(lines, "{{\"n\":{from},\"s\":\"").expect("a Vec takes every octet");
    hex::push(lines, session);
    lines.extend(b"\"}\n");
}

/// Appends the line of a pair; `result` stands in `segment`.
pub(crate) fn push_pair(lines: &mut Vec<u8>, segment: u32, result: u64, intent: Place) {
    write!(lines, "{{\"r\":{result},\"i\":{}", intent.index).expect("a Vec takes every octet");
    if intent.segment != segment {
        write!(lines, ",\"g\":{}", intent.segment).expect("a Vec takes every octet");
    }
    lines.extend(b"}\n");
}

/// Appends the line of an intent that is open across a rotation.
pub(crate) fn push_carried(lines: &mut Vec<u8>, leaf: u64, intent: Place) {
    writeln!(
        lines,
        "{{\"o\":{leaf},\"i\":{},\"g\":{}}}",
        intent.index, intent.segment
    )
    .expect("a Vec takes every octet");
}

/// Appends the text of a `countersign.lost` payload.
pub(crate) fn push_lost(lines: &mut Vec<u8>, leaf: u64, payload: &[u8]) {
    write!(lines, "{{\"l\":{leaf},\"p\":").expect("a Vec takes every octet");
    lines.extend(payload);
    lines.extend(b"}\n");
}

/// One line, read.
#[derive(Debug)]
pub(crate) enum Entry {
    /// From leaf `from` on, the session of this key keeps the file.
    Session { from: u64, key: [u8; 32] },
    /// A result and the intent that it answers.
    Pair { result: u64, intent: Place },
    /// An intent of an earlier segment that was open at this leaf.
    Carried { leaf: u64, intent: Place },
    /// The leaf that says which intents a crash left open.
    Lost { leaf: u64, intents: Vec<Place> },
}

impl Entry {
    /// Reads a line of the file beside segment `segment`.
    pub(crate) fn read(text: &[u8], segment: u32) -> Option<Self> {
        const FIELDS: [&str; 8] = ["n", "s", "r", "i", "g", "o", "l", "p"];
        let members = Members::read(text, &FIELDS).ok()?;
        let number = |at| members.optional_u64(at).ok();
        let intent = || {
            let segment = match number(4)? {
                Some(other) => u32::try_from(other).ok()?,
                None => segment,
            };
            Some(Place {
                segment,
                index: number(3)??,
            })
        };
        if let Some(from) = number(0)? {
            let key = hex::decode(members.string(1).ok()?.as_bytes()).ok()?;
            return Some(Self::Session { from, key });
        }
        if let Some(result) = number(2)? {
            let intent = intent()?;
            return Some(Self::Pair { result, intent });
        }
        if let Some(leaf) = number(5)? {
            let intent = intent()?;
            return Some(Self::Carried { leaf, intent });
        }
        let leaf = number(6)??;
        let intents = lost_intents(members.raw(7)?.get(), segment)?;
        Some(Self::Lost { leaf, intents })
    }

    /// The leaf with which it is taken into account.
    pub(crate) fn leaf(&self) -> u64 {
        match self {
            Self::Session { from: leaf, .. }
            | Self::Pair { result: leaf, .. }
            | Self::Carried { leaf, .. }
            | Self::Lost { leaf, .. } => *leaf,
        }
    }
}

/// The intents in a `countersign.lost` payload: indices in `intents`, pairs of segment and index in
/// `earlier`.
fn lost_intents(payload: &str, segment: u32) -> Option<Vec<Place>> {
    const FIELDS: [&str; 2] = ["intents", "earlier"];
    let members = Members::read(payload.as_bytes(), &FIELDS).ok()?;
    let here = list(&members, 0)?.into_iter();
    let earlier = list(&members, 1)?.into_iter();
    let here = here.map(|index| Place { segment, index });
    let earlier = earlier.map(|(segment, index)| Place { segment, index });
    Some(here.chain(earlier).collect())
}

fn list<T: DeserializeOwned>(members: &Members<'_, 2>, at: usize) -> Option<Vec<T>> {
    match members.raw(at) {
        None => Some(Vec::new()),
        Some(list) => serde_json::from_str(list.get()).ok(),
    }
}

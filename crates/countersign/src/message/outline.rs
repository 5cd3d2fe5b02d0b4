//! The one pass that finds out what a message is, and the closer look at what decisions rest on.
//!
//! The one idea: the keys that countersign decides by are few and listed here. Only these can make a message
//! ambiguous; every other member is stepped over. Nothing large is copied or looked at twice.

use std::borrow::Cow;

use bytes::Bytes;

use super::scan::{self, Decoded, Spelling};
use super::{
    Ambiguity, DEPTH_MAX, Fault, ID_BYTES_MAX, Id, IdKind, Kind, MEMBERS_MAX, METHOD_BYTES_MAX,
    Malformed, Message, Place, TOOLS_CALL, not_json,
};

/// The keys that decisions rest on at the top level. The constants below index it.
const TOP_KEYS: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];
const ID: usize = 1;
const METHOD: usize = 2;
const PARAMS: usize = 3;
const RESULT: usize = 4;
const ERROR: usize = 5;

/// The keys that decisions rest on in `params._meta`, beside every key under [`META_PREFIX`].
const META_KEYS: &[&str] = &[
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/subscriptionId",
    "io.modelcontextprotocol/related-task",
];
const META_PREFIX: &str = "io.modelcontextprotocol/";

/// The most keys of one table above or below; the slots of [`Members`] are as many.
const KEYS_MAX: usize = 8;

/// The keys of `params` that decisions rest on, by method. Each table begins with its target.
fn params_keys(method: &str) -> &'static [&'static str] {
    match method {
        TOOLS_CALL | "prompts/get" => &[
            "name",
            "arguments",
            "_meta",
            "task",
            "inputResponses",
            "requestState",
        ],
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => &["uri", "_meta"],
        "tools/list" => &["cursor", "_meta"],
        "notifications/cancelled" => &["requestId", "_meta"],
        "initialize" => &["protocolVersion", "_meta"],
        _ => &[],
    }
}

/// Reads an object whose text is all of `raw`.
pub(super) fn read(raw: &Bytes, text: &str) -> Result<Message, Malformed> {
    let malformed = |fault, id| Malformed {
        raw: raw.clone(),
        fault,
        id,
    };
    let mut methods = Methods::default();
    let top = Members::read(
        text,
        TOP_KEYS,
        Place::Top,
        |spelling, _, value| match spelling {
            Spelling::Exact(METHOD) => methods.note(value, true),
            Spelling::Variant(METHOD) => methods.note(value, false),
            _ => {}
        },
    )
    .map_err(|error| malformed(not_json(&error), None))?;

    let id = match top.slots[ID].exact {
        Some(value) if value.len() > ID_BYTES_MAX => return Err(malformed(Fault::IdTooLong, None)),
        value => value.map(Id::of),
    };
    let method = match methods.fault() {
        Some(fault) => return Err(malformed(fault, id)),
        None => methods.effective(&top),
    };
    let kind = match kind(method.is_some(), id.is_some(), &top) {
        Ok(kind) => kind,
        Err(fault) => return Err(malformed(fault, id)),
    };
    let params = top.last(PARAMS);
    let decided = if methods.governed {
        TOOLS_CALL
    } else {
        method.as_deref().unwrap_or_default()
    };
    let target = params
        .map(|params| Target::read(params, decided))
        .unwrap_or_default();
    let two_kinds = method.is_some() && top.has_outcome();
    let ambiguity = top
        .ambiguity
        .clone()
        .or(methods.oddity)
        .or(two_kinds.then_some(Ambiguity::TwoKinds))
        .or_else(|| methods.governed.then(|| unanswerable(kind, id.as_ref()))?)
        .or(target.ambiguity)
        .or_else(|| (methods.governed && too_deep(text)).then_some(Ambiguity::TooDeep));

    let span = |value: &str| scan::span(text, value);
    Ok(Message {
        raw: raw.clone(),
        kind,
        id,
        method: method.map(Into::into),
        params: top.slots[PARAMS].exact.map(span),
        result: top.slots[RESULT].exact.map(span),
        error: top.slots[ERROR].exact.map(span),
        name: target.name.filter(|_| methods.governed).map(span),
        arguments: target.arguments.filter(|_| methods.governed).map(span),
        governed: methods.governed,
        ambiguity: ambiguity.map(Box::new),
    })
}

fn kind(method: bool, id: bool, top: &Members<'_>) -> Result<Kind, Fault> {
    let (result, error) = (
        top.slots[RESULT].exact.is_some(),
        top.slots[ERROR].exact.is_some(),
    );
    match (method, id, result, error) {
        (true, true, ..) => Ok(Kind::Request),
        (true, false, ..) => Ok(Kind::Notification),
        (false, _, true, true) => Err(Fault::ResultAndError),
        (false, true, true, false) | (false, _, false, true) => Ok(Kind::Response),
        (false, false, true, false) => Err(Fault::ResultWithoutId),
        (false, _, false, false) => Err(Fault::NoKind),
    }
}

/// Whether a text nests too deep. Each level takes two octets, so short texts need no look.
fn too_deep(text: &str) -> bool {
    text.len() > 2 * DEPTH_MAX && scan::depth(text) > DEPTH_MAX
}

/// Why a governed message could be run but not answered.
fn unanswerable(kind: Kind, id: Option<&Id>) -> Option<Ambiguity> {
    match id.map(Id::kind) {
        None => (kind == Kind::Notification).then_some(Ambiguity::IdAbsent),
        Some(IdKind::Null) => Some(Ambiguity::IdNull),
        Some(IdKind::Other) => Some(Ambiguity::IdType),
        Some(IdKind::Number | IdKind::String) => None,
    }
}

/// The values of one listed key.
#[derive(Clone, Copy, Debug, Default)]
struct Slot<'a> {
    /// The last one under the key itself.
    exact: Option<&'a str>,
    /// The last one under a key that can be taken for it.
    variant: Option<&'a str>,
}

/// The listed members of one object.
#[derive(Debug, Default)]
struct Members<'a> {
    slots: [Slot<'a>; KEYS_MAX],
    ambiguity: Option<Ambiguity>,
}

impl<'a> Members<'a> {
    /// Sorts the members of `object` by `keys`, and shows each member to `each`, listed or not.
    fn read(
        object: &'a str,
        keys: &'static [&'static str],
        place: Place,
        mut each: impl FnMut(Spelling, Decoded<'a>, &'a str),
    ) -> Result<Self, serde_json::Error> {
        let mut found = Self::default();
        scan::members(object, |key, value| {
            let Some(key) = scan::decode(key) else { return };
            let spelling = scan::spelling(&key, keys);
            match spelling {
                Spelling::Exact(index) => {
                    if found.slots[index].exact.replace(value).is_some() {
                        found
                            .ambiguity
                            .get_or_insert_with(|| Ambiguity::doubled(&key.text, place));
                    }
                }
                Spelling::Variant(index) => {
                    found.slots[index].variant = Some(value);
                    found.ambiguity.get_or_insert_with(|| {
                        Ambiguity::case_variant(&key.text, keys[index], place)
                    });
                }
                Spelling::Other => {}
            }
            each(spelling, key, value);
        })?;
        Ok(found)
    }

    /// What the record calls the value: the last under the key itself, or else the last under a variant.
    fn last(&self, index: usize) -> Option<&'a str> {
        self.slots[index].exact.or(self.slots[index].variant)
    }

    fn has_outcome(&self) -> bool {
        self.slots[RESULT].exact.is_some() || self.slots[ERROR].exact.is_some()
    }
}

/// Every value under `method`, or under a key that can be taken for it.
#[derive(Debug, Default)]
struct Methods<'a> {
    exact: Option<Cow<'a, str>>,
    variant: Option<Cow<'a, str>>,
    no_string: bool,
    too_long: bool,
    governed: bool,
    oddity: Option<Ambiguity>,
}

impl<'a> Methods<'a> {
    fn note(&mut self, value: &'a str, exact: bool) {
        let Some(method) = scan::decode(value) else {
            self.no_string |= exact;
            return;
        };
        self.too_long |= value.len() > METHOD_BYTES_MAX;
        if self.oddity.is_none() {
            self.oddity = text_oddity(&method, "method");
        }
        if scan::read_as(&method.text, TOOLS_CALL).is_some_and(str::is_empty) {
            self.governed = true;
            if method.text != TOOLS_CALL {
                self.oddity.get_or_insert(Ambiguity::MethodCase);
            }
        }
        *(if exact {
            &mut self.exact
        } else {
            &mut self.variant
        }) = Some(method.text);
    }

    /// A method of the wrong type is no message, unless another reading of it is one to be refused and recorded.
    fn fault(&self) -> Option<Fault> {
        if self.too_long {
            return Some(Fault::MethodTooLong);
        }
        (self.no_string && !self.governed).then_some(Fault::MethodType)
    }

    fn effective(&self, top: &Members<'_>) -> Option<Cow<'a, str>> {
        let variant = || self.variant.clone().filter(|_| !top.has_outcome());
        self.exact.clone().or_else(variant)
    }
}

fn text_oddity(text: &Decoded<'_>, member: &'static str) -> Option<Ambiguity> {
    if text.lone {
        return Some(Ambiguity::LoneSurrogate { member });
    }
    text.text
        .contains('\0')
        .then_some(Ambiguity::Nul { member })
}

/// What the `params` of a message aim at.
#[derive(Debug, Default)]
struct Target<'a> {
    name: Option<&'a str>,
    arguments: Option<&'a str>,
    ambiguity: Option<Ambiguity>,
}

impl<'a> Target<'a> {
    fn read(params: &'a str, method: &str) -> Self {
        let keys = params_keys(method);
        if keys.is_empty() {
            return Self::default();
        }
        if !params.starts_with('{') {
            return Self {
                ambiguity: Some(Ambiguity::ParamsType),
                ..Self::default()
            };
        }
        let Ok(members) = Members::read(params, keys, Place::Params, |_, _, _| {}) else {
            // Its grammar was checked with the whole message, so this cannot be; unread, it must not be governed.
            return Self {
                ambiguity: Some(Ambiguity::ParamsType),
                ..Self::default()
            };
        };
        let value = |wanted: &str| {
            keys.iter()
                .position(|key| *key == wanted)
                .and_then(|index| members.last(index))
        };
        let ambiguity = members
            .ambiguity
            .clone()
            .or_else(|| text_ambiguity(value("name")?, "name"))
            .or_else(|| text_ambiguity(value("uri")?, "uri"))
            .or_else(|| meta_ambiguity(value("_meta")?))
            .or_else(|| arguments_ambiguity(value("arguments")?));
        Self {
            name: value("name"),
            arguments: value("arguments"),
            ambiguity,
        }
    }
}

fn text_ambiguity(value: &str, member: &'static str) -> Option<Ambiguity> {
    scan::decode(value).map_or(Some(Ambiguity::NameType { member }), |text| {
        text_oddity(&text, member)
    })
}

fn arguments_ambiguity(arguments: &str) -> Option<Ambiguity> {
    let mut keys = Keys::default();
    // An error means that they are no object, so there are no keys to compare.
    scan::members(arguments, |key, _| keys.extend(scan::decode(key))).ok()?;
    keys.repeated(Place::Arguments)
}

fn meta_ambiguity(meta: &str) -> Option<Ambiguity> {
    let mut keys = Keys::default();
    let mut variant = None;
    let members = Members::read(meta, META_KEYS, Place::Meta, |spelling, key, _| {
        if spelling == Spelling::Other && scan::read_as(&key.text, META_PREFIX).is_some() {
            if !key.text.starts_with(META_PREFIX) {
                variant = Some(Ambiguity::case_variant(&key.text, META_PREFIX, Place::Meta));
            }
            keys.extend([key]);
        }
    });
    // An error means that it is no object, which is for the upstream to refuse.
    members
        .ok()?
        .ambiguity
        .or(variant)
        .or_else(|| keys.repeated(Place::Meta))
}

/// Keys of one object of which none may stand twice.
#[derive(Debug, Default)]
struct Keys<'a> {
    texts: Vec<Cow<'a, str>>,
    too_many: bool,
}

impl<'a> Extend<Decoded<'a>> for Keys<'a> {
    fn extend<I: IntoIterator<Item = Decoded<'a>>>(&mut self, keys: I) {
        for key in keys {
            if self.texts.len() < MEMBERS_MAX {
                // Lone surrogates are U+FFFD here, so keys that a replacing parser confuses are found equal.
                self.texts.push(key.text);
            } else {
                self.too_many = true;
            }
        }
    }
}

impl Keys<'_> {
    fn repeated(mut self, place: Place) -> Option<Ambiguity> {
        if self.too_many {
            return Some(Ambiguity::TooManyMembers { place });
        }
        self.texts.sort_unstable();
        let pair = self.texts.windows(2).find(|pair| pair[0] == pair[1])?;
        Some(Ambiguity::doubled(&pair[0], place))
    }
}

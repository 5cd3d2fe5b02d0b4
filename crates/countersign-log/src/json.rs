//! Reading the JSON objects of journals and dossiers as strictly as the reference does.
//!
//! Objects only; unknown members are ignored even when repeated, known ones may not repeat;
//! integers are plain `u64`. No derive: the rules are few, and a derived reader hides them.

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Why a text is not the object that was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// Not JSON, not an object, or trailing text; the parser's own words.
    Syntax(String),
    /// A member that may stand once stands twice.
    Repeated(&'static str),
    /// A required member is not there.
    Missing(&'static str),
    /// A member has the wrong type or range.
    Type {
        /// Name of the member.
        member: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Syntax(why) => f.write_str(why),
            Self::Repeated(member) => write!(f, "`{member}` stands twice"),
            Self::Missing(member) => write!(f, "`{member}` is missing"),
            Self::Type { member, expected } => write!(f, "`{member}` must be {expected}"),
        }
    }
}

impl std::error::Error for JsonError {}

/// The known members of one object, as raw text, in the order of the names asked for.
#[derive(Debug)]
pub struct Members<'a, const N: usize> {
    names: &'static [&'static str; N],
    values: [Option<&'a RawValue>; N],
}

impl<'a, const N: usize> Members<'a, N> {
    /// Reads one object and keeps the members that `names` lists.
    ///
    /// # Errors
    /// Not one JSON object, or a listed member that stands twice.
    pub fn read(text: &'a [u8], names: &'static [&'static str; N]) -> Result<Self, JsonError> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let values = deserializer
            .deserialize_map(Collect { names })
            .and_then(|values| deserializer.end().map(|()| values))
            .map_err(|error| JsonError::Syntax(error.to_string()))?;
        values
            .map(|values| Self { names, values })
            .map_err(JsonError::Repeated)
    }

    /// The raw text of member `at`, if it is there (`null` counts as there).
    pub fn raw(&self, at: usize) -> Option<&'a RawValue> {
        self.values[at]
    }

    /// Member `at` as an unsigned integer without sign, fraction or exponent.
    ///
    /// # Errors
    /// Missing, or not such an integer.
    pub fn u64(&self, at: usize) -> Result<u64, JsonError> {
        self.optional_u64(at)?
            .ok_or(JsonError::Missing(self.names[at]))
    }

    /// As [`Self::u64`]; absent and `null` are `None`.
    ///
    /// # Errors
    /// Not such an integer.
    pub fn optional_u64(&self, at: usize) -> Result<Option<u64>, JsonError> {
        self.optional(at, "an unsigned integer", |text| {
            text.bytes()
                .all(|digit| digit.is_ascii_digit())
                .then(|| text.parse().ok())
                .flatten()
        })
    }

    /// Member `at` as a string.
    ///
    /// # Errors
    /// Missing, not a string, or one that is not Unicode text (a lone surrogate).
    pub fn string(&self, at: usize) -> Result<String, JsonError> {
        self.optional_string(at)?
            .ok_or(JsonError::Missing(self.names[at]))
    }

    /// As [`Self::string`]; absent and `null` are `None`.
    ///
    /// # Errors
    /// Not a string of Unicode text.
    pub fn optional_string(&self, at: usize) -> Result<Option<String>, JsonError> {
        self.optional(at, "a string", |text| serde_json::from_str(text).ok())
    }

    fn optional<T>(
        &self,
        at: usize,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, JsonError> {
        match self.values[at].map(RawValue::get) {
            None | Some("null") => Ok(None),
            Some(text) => read(text).map(Some).ok_or(JsonError::Type {
                member: self.names[at],
                expected,
            }),
        }
    }
}

struct Collect<const N: usize> {
    names: &'static [&'static str; N],
}

impl<'de, const N: usize> Visitor<'de> for Collect<N> {
    type Value = Result<[Option<&'de RawValue>; N], &'static str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; N];
        let mut repeated = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.names.iter().position(|name| *name == key) {
                Some(at) => {
                    if values[at].replace(map.next_value::<&RawValue>()?).is_some() {
                        repeated.get_or_insert(self.names[at]);
                    }
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(repeated.map_or(Ok(values), Err))
    }
}

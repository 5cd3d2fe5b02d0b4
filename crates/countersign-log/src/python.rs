//! Two habits of CPython that are in the reference's payloads: `'%g'` and `str()`.
//!
//! The one idea: where a payload holds a number or a name as Python prints it, the text is made here
//! and nowhere else. It may not be used for canonical numbers, which are ECMAScript's.

use crate::canonical::{record, write_string};
use crate::number::{self, Decimal};

/// Significant digits of `%g`.
const PRECISION: i32 = 6;

/// A number as Python's `'%g'` prints it: six significant digits, no zeros at the end, an exponent of
/// at least two digits below 1e-4 and from 1e6 on: `60`, `0.5`, `1e-05`, `1.23457e+06`, `nan`, `-inf`.
pub fn percent_g(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let scientific = format!("{value:.*e}", PRECISION as usize - 1);
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the format has an exponent");
    let exponent: i32 = exponent
        .parse()
        .expect("the format's exponent is an integer");
    if (-4..PRECISION).contains(&exponent) {
        let decimals = (PRECISION - 1 - exponent) as usize;
        return without_end_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}e{sign}{:02}",
        without_end_zeros(mantissa),
        exponent.unsigned_abs()
    )
}

fn without_end_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// What `str()` makes of a JSON value, ready to stand in canonical JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrForm {
    /// A canonical JSON string, quotes included.
    pub json: Vec<u8>,
    /// The value was no string, or lost something: another value has the same form.
    pub lossy: bool,
}

/// Python's `str(value)` for the JSON text of a call's name, absent or not.
///
/// | value | string |
/// | --- | --- |
/// | absent | `""` |
/// | string | itself |
/// | `null`, `true`, `false` | `"None"`, `"True"`, `"False"` |
/// | integer | its digits; `-0` is `"0"`. Any length, where CPython stops at 4300 digits |
/// | fraction or exponent | CPython's `repr`: `"1.5"`, `"100.0"`, `"1e-05"`, `"1e+16"`, `"-0.0"`, `"inf"` |
/// | `NaN`, `Infinity`, `-Infinity` | `"nan"`, `"inf"`, `"-inf"` |
/// | array, object | its canonical JSON, as a string |
/// | not JSON | the text itself |
///
/// KNOWN: for an array or object the reference has Python's `repr` (`['a', None]`), which no server
/// accepts as a name and which depends on CPython's tables of printable characters.
pub fn python_str(raw_json: Option<&[u8]>) -> StrForm {
    let text = raw_json.map_or(&b"\"\""[..], <[u8]>::trim_ascii);
    if is_plain_string(text) && raw_json.is_some() {
        // Nearly every name: its canonical form is what it is.
        return StrForm {
            json: text.to_vec(),
            lossy: false,
        };
    }
    let quoted = |text: &str| {
        let mut json = Vec::with_capacity(text.len() + 2);
        write_string(&mut json, text);
        StrForm { json, lossy: true }
    };
    match text {
        b"null" => return quoted("None"),
        b"true" => return quoted("True"),
        b"false" => return quoted("False"),
        _ => {}
    }
    if let Some(shape) = number::scan(text, 0).filter(|shape| shape.end == text.len()) {
        return quoted(&number_str(text, shape));
    }
    let mut json = Vec::with_capacity(text.len());
    let lossy = record(&mut json, text);
    if json.first() != Some(&b'"') {
        return quoted(&String::from_utf8_lossy(&json));
    }
    StrForm {
        json,
        lossy: lossy || raw_json.is_none(),
    }
}

/// Whether `text` is a JSON string of printable ASCII without escapes.
fn is_plain_string(text: &[u8]) -> bool {
    let plain = |octet: &u8| matches!(octet, b' '..=b'~') && !matches!(octet, b'"' | b'\\');
    match text {
        [b'"', inner @ .., b'"'] => inner.iter().all(plain),
        _ => false,
    }
}

fn number_str(text: &[u8], shape: number::Shape) -> String {
    let as_text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    if shape.integer {
        return if text == b"-0" {
            "0".to_owned()
        } else {
            as_text(text)
        };
    }
    let value = number::double(text);
    if value.is_infinite() {
        return percent_g(value);
    }
    as_text(
        Decimal::shortest(value)
            .python(value.is_sign_negative())
            .octets(),
    )
}

//! JSON numbers as text: where one ends, what double it reads as, and how ECMAScript and Python
//! write that double.
//!
//! The one idea: a number is compared and respelled as the decimal that its text denotes, so that
//! "does the canonical form say the same number?" has an exact answer. Nothing here allocates for
//! the length of a number, except for texts whose exponent is beyond what the standard library reads.

use std::cmp::Ordering;
use std::io::Write as _;

/// Integers with at most this many digits are read by the reference; CPython refuses longer ones.
pub(crate) const INTEGER_DIGITS_MAX: usize = 4300;

/// Every decimal with at most this many significant digits is the shortest text of its double.
const DIGITS_SURE: usize = 15;

/// Two decimals of fewer digits are too far apart to be halfway from one double.
const DIGITS_TIED: usize = 16;

/// Digits that decide how a decimal rounds to a double; 767 are enough, the rest is one sticky digit.
const DIGITS_DECIDING: usize = 800;

/// The standard library stops reading a decimal exponent near this size. Only a text with as many
/// digits can bring a number with such an exponent back among the doubles.
const EXPONENT_READ_BY_STD: usize = 0x1_0000;

/// What the grammar says of a number's text.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Offset after its last octet.
    pub(crate) end: usize,
    /// It has neither a fraction nor an exponent.
    pub(crate) integer: bool,
    /// Digits before the exponent.
    pub(crate) digits: usize,
    /// The text is its own canonical form, for reasons that need no arithmetic.
    pub(crate) verbatim: bool,
}

/// Reads the number that starts at `at`: `-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?`, or nothing.
pub(crate) fn scan(text: &[u8], at: usize) -> Option<Shape> {
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let whole_end = digits_end(text, first);
    let whole = whole_end - first;
    if whole == 0 || (whole > 1 && text[first] == b'0') {
        return None;
    }
    let mut shape = Shape {
        end: whole_end,
        integer: true,
        digits: whole,
        verbatim: whole <= DIGITS_SURE,
    };
    if text[first] == b'0' && negative {
        shape.verbatim = false;
    }
    if text.get(shape.end) == Some(&b'.') {
        let fraction = shape.end + 1;
        shape.end = digits_end(text, fraction);
        if shape.end == fraction {
            return None;
        }
        shape.integer = false;
        shape.digits += shape.end - fraction;
        shape.verbatim = fraction_is_verbatim(&text[first..whole_end], &text[fraction..shape.end]);
    }
    if matches!(text.get(shape.end), Some(b'e' | b'E')) {
        let signed = matches!(text.get(shape.end + 1), Some(b'+' | b'-'));
        let exponent = shape.end + 1 + usize::from(signed);
        shape.end = digits_end(text, exponent);
        if shape.end == exponent {
            return None;
        }
        shape.integer = false;
        shape.verbatim = false;
    }
    Some(shape)
}

fn digits_end(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

/// Few digits, no zero at the end, and not so small that ECMAScript would use an exponent.
fn fraction_is_verbatim(whole: &[u8], fraction: &[u8]) -> bool {
    whole.len() + fraction.len() <= DIGITS_SURE
        && fraction.last() != Some(&b'0')
        && (whole != b"0" || fraction.iter().take(6).any(|digit| *digit != b'0'))
}

/// The canonical form of one number, and whether it still says what the text said.
pub(crate) struct Canonical {
    pub(crate) form: Form,
    /// The form denotes another decimal number than the text, or is no number at all.
    pub(crate) lossy: bool,
}

/// How a number is written canonically.
pub(crate) enum Form {
    /// As its text.
    Verbatim,
    /// As another number text.
    Respelled(NumberText),
    /// As a string holding its digits: an integer beyond the doubles.
    QuotedDigits,
    /// As the string `"inf"` or `"-inf"`: a fraction or exponent beyond the doubles.
    QuotedInfinity { negative: bool },
}

/// The canonical form of the number `text`, which [`scan`] found to have this `shape`.
pub(crate) fn canonical(text: &[u8], shape: Shape) -> Canonical {
    if shape.verbatim {
        return Canonical {
            form: Form::Verbatim,
            lossy: false,
        };
    }
    if shape.integer && shape.digits > INTEGER_DIGITS_MAX {
        return Canonical {
            form: Form::QuotedDigits,
            lossy: true,
        };
    }
    let value = double(text);
    if value.is_infinite() {
        let form = if shape.integer {
            Form::QuotedDigits
        } else {
            Form::QuotedInfinity {
                negative: value < 0.0,
            }
        };
        return Canonical { form, lossy: true };
    }
    let shortest = Decimal::shortest(value);
    let respelled = shortest.ecmascript();
    if respelled.octets() == text {
        return Canonical {
            form: Form::Verbatim,
            lossy: false,
        };
    }
    Canonical {
        lossy: !Written::read(text).is(&shortest),
        form: Form::Respelled(respelled),
    }
}

/// The double nearest to a JSON number's text, ties to even; infinite when out of range.
pub(crate) fn double(text: &[u8]) -> f64 {
    let plain = std::str::from_utf8(text).expect("a number is ASCII");
    let read = if text.len() < EXPONENT_READ_BY_STD {
        plain.parse::<f64>()
    } else {
        Written::read(text).clipped(text[0] == b'-').parse::<f64>()
    };
    read.expect("the JSON number grammar is part of what f64 reads")
}

/// A decimal as its text has it: significant digits without zeros at either end, and the power of
/// ten of the first. Zero has no digits.
struct Written<'a> {
    /// Digits, among them perhaps one point.
    significant: &'a [u8],
    leading: i64,
}

impl<'a> Written<'a> {
    fn read(text: &'a [u8]) -> Self {
        let unsigned = text.strip_prefix(b"-").unwrap_or(text);
        let mantissa_end = memchr::memchr2(b'e', b'E', unsigned).unwrap_or(unsigned.len());
        let (mantissa, exponent) = unsigned.split_at(mantissa_end);
        let exponent = exponent.get(1..).map_or(0, saturating_integer);
        let whole = memchr::memchr(b'.', mantissa).unwrap_or(mantissa.len());
        let is_significant = |octet: &u8| matches!(octet, b'1'..=b'9');
        let Some(first) = mantissa.iter().position(is_significant) else {
            return Written {
                significant: &[],
                leading: 0,
            };
        };
        let last = mantissa.iter().rposition(is_significant).unwrap_or(first);
        let place = if first < whole {
            (whole - 1 - first) as i64
        } else {
            -((first - whole) as i64)
        };
        Written {
            significant: &mantissa[first..=last],
            leading: exponent.saturating_add(place),
        }
    }

    fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        self.significant
            .iter()
            .copied()
            .filter(|octet| *octet != b'.')
    }

    fn is(&self, other: &Decimal) -> bool {
        self.digits().eq(other.digits().iter().copied())
            && (self.significant.is_empty() || self.leading == i64::from(other.leading))
    }

    /// The same number with a bounded count of digits and its exponent folded into one field.
    fn clipped(&self, negative: bool) -> String {
        let mut text = String::from(if negative { "-0." } else { "0." });
        text.extend(self.digits().take(DIGITS_DECIDING).map(char::from));
        if self.digits().nth(DIGITS_DECIDING).is_some() {
            text.push('1');
        }
        let leading = self.leading.clamp(-10_000, 10_000);
        format!("{text}0e{}", leading + 1)
    }
}

fn saturating_integer(text: &[u8]) -> i64 {
    let negative = text.first() == Some(&b'-');
    let digits = text.iter().filter(|octet| octet.is_ascii_digit());
    let size = digits.fold(0i64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    });
    if negative { -size } else { size }
}

/// The shortest decimal that reads back as one finite double.
pub(crate) struct Decimal {
    negative: bool,
    digits: [u8; 17],
    count: usize,
    /// Power of ten of the first digit.
    leading: i32,
}

impl Decimal {
    /// The shortest digits of `value`, which is finite; of those as short the nearest, then the even.
    pub(crate) fn shortest(value: f64) -> Self {
        let shortest = Decimal::printed(value, format_args!("{:e}", value.abs()));
        if !shortest.may_be_tied(value) {
            return shortest;
        }
        // Halfway between two, std takes the upper one; printed to a given length it takes the even
        // one. That one may lie outside of what reads back, just below a power of two.
        let fraction = shortest.count - 1;
        let even = Decimal::printed(value, format_args!("{:.fraction$e}", value.abs()));
        let reads_back = || double(even.exponential(1).octets()).to_bits() == value.to_bits();
        if even.digits != shortest.digits && reads_back() {
            even
        } else {
            shortest
        }
    }

    /// Whether `value` can lie halfway between two decimals of this many digits: written out in full
    /// it would have one digit more, and a double with n binary places has n decimal places.
    fn may_be_tied(&self, value: f64) -> bool {
        if self.count < DIGITS_TIED {
            return false;
        }
        let bits = value.to_bits();
        let (field, fraction) = ((bits >> 52 & 0x7FF) as i32, bits & ((1 << 52) - 1));
        let (mantissa, power) = if field == 0 {
            (fraction, -1074)
        } else {
            (fraction | 1 << 52, field - 1075)
        };
        let places = -(power + mantissa.trailing_zeros() as i32);
        let places_of_tie = self.count as i32 - self.leading;
        places == places_of_tie || (places <= 0 && places_of_tie <= 0)
    }

    /// Reads what std printed for the absolute value as `d.ddde-dd`.
    fn printed(value: f64, print: std::fmt::Arguments<'_>) -> Self {
        let mut room = [0u8; 32];
        let mut rest = &mut room[..];
        rest.write_fmt(print)
            .expect("17 digits, a point and an exponent fit in 32 octets");
        let left = rest.len();
        let text = &room[..room.len() - left];
        let mark = memchr::memchr(b'e', text).expect("the format has an exponent");
        let leading = saturating_integer(&text[mark + 1..]) as i32;
        let mut decimal = Decimal {
            negative: value < 0.0,
            digits: [0; 17],
            count: 0,
            leading,
        };
        for digit in text[..mark].iter().filter(|octet| octet.is_ascii_digit()) {
            decimal.digits[decimal.count] = *digit;
            decimal.count += 1;
        }
        if value == 0.0 {
            decimal.count = 0;
        }
        decimal
    }

    fn digits(&self) -> &[u8] {
        &self.digits[..self.count]
    }

    /// ECMAScript `Number::toString`, as RFC 8785 section 3.2.2.3 asks: `100`, `0.000001`, `1e-7`, `1e+21`.
    pub(crate) fn ecmascript(&self) -> NumberText {
        match self.leading {
            _ if self.count == 0 => NumberText::of(b"0"),
            -6..=20 => self.positional(false),
            _ => self.exponential(1),
        }
    }

    /// CPython `repr(float)`: `100.0`, `0.0001`, `1e-05`, `1e+16`. `negative_zero` gives `-0.0`.
    pub(crate) fn python(&self, negative_zero: bool) -> NumberText {
        match self.leading {
            _ if self.count == 0 => NumberText::of(if negative_zero { b"-0.0" } else { b"0.0" }),
            -4..=15 => self.positional(true),
            _ => self.exponential(2),
        }
    }

    fn positional(&self, always_a_point: bool) -> NumberText {
        let mut text = NumberText::signed(self.negative);
        let point = self.leading + 1;
        match (self.count as i32).cmp(&point) {
            _ if point <= 0 => {
                text.push(b"0.");
                (point..0).for_each(|_| text.push(b"0"));
                text.push(self.digits());
            }
            Ordering::Greater => {
                let (whole, fraction) = self.digits().split_at(point as usize);
                text.push(whole);
                text.push(b".");
                text.push(fraction);
            }
            Ordering::Less | Ordering::Equal => {
                text.push(self.digits());
                (self.count as i32..point).for_each(|_| text.push(b"0"));
                if always_a_point {
                    text.push(b".0");
                }
            }
        }
        text
    }

    fn exponential(&self, exponent_digits_min: usize) -> NumberText {
        let mut text = NumberText::signed(self.negative);
        let (first, rest) = self.digits().split_at(1);
        text.push(first);
        if !rest.is_empty() {
            text.push(b".");
            text.push(rest);
        }
        text.push(if self.leading < 0 { b"e-" } else { b"e+" });
        let mut room = [0u8; 8];
        let mut free = &mut room[..];
        write!(
            free,
            "{:0width$}",
            self.leading.unsigned_abs(),
            width = exponent_digits_min
        )
        .expect("an exponent has three digits");
        let used = 8 - free.len();
        text.push(&room[..used]);
        text
    }
}

/// A short number text on the stack: at most a sign, 17 digits, `0.00000` and an exponent.
pub(crate) struct NumberText {
    room: [u8; 32],
    len: usize,
}

impl NumberText {
    fn of(text: &[u8]) -> Self {
        let mut made = NumberText {
            room: [0; 32],
            len: 0,
        };
        made.push(text);
        made
    }

    fn signed(negative: bool) -> Self {
        NumberText::of(if negative { b"-" } else { b"" })
    }

    fn push(&mut self, text: &[u8]) {
        self.room[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    /// The text.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

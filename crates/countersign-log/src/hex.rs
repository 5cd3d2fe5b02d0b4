//! Lowercase hexadecimal text, the only spelling of octets in journals and dossiers.

/// Why a text is not the hex of the octets that were expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HexError {
    /// The text has this many characters, and not twice the number of octets.
    Length(usize),
    /// This octet of the text is not a hex digit (uppercase counts only where it is read leniently).
    Digit(usize),
}

impl std::fmt::Display for HexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(length) => write!(
                f,
                "{length} characters are the wrong length for this hex text"
            ),
            Self::Digit(at) => write!(f, "character {} is not a hex digit", at + 1),
        }
    }
}

impl std::error::Error for HexError {}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The lowercase hex of `octets`.
pub fn encode(octets: &[u8]) -> String {
    let mut text = Vec::with_capacity(octets.len() * 2);
    push(&mut text, octets);
    String::from_utf8(text).expect("hex digits are ASCII")
}

/// Appends the lowercase hex of `octets` to `text`.
pub fn push(text: &mut Vec<u8>, octets: &[u8]) {
    let start = text.len();
    text.resize(start + octets.len() * 2, 0);
    write(&mut text[start..], octets);
}

/// Writes the lowercase hex of `octets` over `text`, which has room for just that.
pub(crate) fn write(text: &mut [u8], octets: &[u8]) {
    for (pair, octet) in text.as_chunks_mut::<2>().0.iter_mut().zip(octets) {
        *pair = [digit_of(*octet >> 4), digit_of(*octet & 15)];
    }
}

/// Computed, not looked up: the compiler does it for many octets at once, and a writer writes 256
/// digits per leaf.
fn digit_of(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

/// Reads exactly `N` octets from hex of either case.
///
/// # Errors
/// The wrong length, or the place of the first character that is no hex digit.
pub fn decode<const N: usize>(text: &[u8]) -> Result<[u8; N], HexError> {
    if text.len() != N * 2 {
        return Err(HexError::Length(text.len()));
    }
    let mut octets = [0; N];
    for (at, octet) in octets.iter_mut().enumerate() {
        *octet = (digit(text, 2 * at)? << 4) | digit(text, 2 * at + 1)?;
    }
    Ok(octets)
}

/// Reads exactly `N` octets from lowercase hex.
///
/// # Errors
/// As [`decode`]; an uppercase digit is an error.
pub fn decode_lowercase<const N: usize>(text: &[u8]) -> Result<[u8; N], HexError> {
    match text.iter().position(u8::is_ascii_uppercase) {
        Some(at) if text.len() == N * 2 => Err(HexError::Digit(at)),
        _ => decode(text),
    }
}

fn digit(text: &[u8], at: usize) -> Result<u8, HexError> {
    match VALUES[usize::from(text[at])] {
        NONE => Err(HexError::Digit(at)),
        value => Ok(value),
    }
}

const NONE: u8 = 255;

/// Value of each ASCII hex digit; a table, because a verifier reads 128 digits per leaf.
const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut digit = 0;
    while digit < 16 {
        values[DIGITS[digit] as usize] = digit as u8;
        values[DIGITS[digit].to_ascii_uppercase() as usize] = digit as u8;
        digit += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_reads_what_it_writes_and_names_what_it_cannot_read() {
        assert_eq!(encode(&[0, 0x1f, 0xff]), "001fff");
        assert_eq!(decode::<3>(b"001fFF"), Ok([0, 0x1f, 0xff]));
        assert_eq!(decode_lowercase::<3>(b"001fFF"), Err(HexError::Digit(4)));
        assert_eq!(decode::<3>(b"001f"), Err(HexError::Length(4)));
        assert_eq!(decode::<2>(b"00g0"), Err(HexError::Digit(2)));
    }
}

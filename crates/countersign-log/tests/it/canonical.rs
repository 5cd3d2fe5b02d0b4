//! Canonical JSON against the reference's own values, and what a recorder may rely on.

use countersign_log::canonical::{CanonicalError, Mode, canonical, canonical_sha256, write_string};
use countersign_log::python::python_str;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

const VECTORS: &str = include_str!("../data/canonical_json.json");
const PAYLOADS: &str = include_str!("../data/proxy_payloads.json");
const DIFFERENTIAL: &str = include_str!("../data/canonical_differential.json");

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").expect("a String takes everything");
        text
    })
}

fn cases(file: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(file).expect("the tables are JSON");
    file["cases"]
        .as_array()
        .expect("the cases are a list")
        .clone()
}

fn recorded(text: &[u8]) -> Vec<u8> {
    canonical(text, Mode::Recorder).expect("the recorder never fails")
}

/// Long inputs are given as `parse '<first 20 characters>' len <n>`: ones, perhaps after a minus.
fn input(case: &Value) -> String {
    if let Some(input) = case["input"].as_str() {
        return input.to_owned();
    }
    let rule = case["input_rule"]
        .as_str()
        .expect("a case has an input or its rule");
    let length: usize = rule
        .rsplit(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("the rule ends with a length");
    let sign = if rule.contains("'-") { "-" } else { "" };
    format!("{sign}{}", "1".repeat(length - sign.len()))
}

#[test]
fn every_vector_of_the_reference_holds_errors_included() {
    let cases = cases(VECTORS);
    assert_eq!(cases.len(), 544);
    for case in cases {
        let (name, text) = (&case["name"], input(&case));
        let ours = canonical(text.as_bytes(), Mode::Reference);
        let Some(error) = case["error"].as_str() else {
            let ours = ours.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(
                hex(&Sha256::digest(&ours)),
                case["canonical_sha256"],
                "{name}"
            );
            assert_eq!(ours.len() as u64, case["length"], "{name}");
            if let Some(octets) = case["canonical_hex"].as_str() {
                assert_eq!(hex(&ours), octets, "{name}");
            }
            assert_eq!(recorded(text.as_bytes()), ours, "{name}");
            assert_eq!(
                canonical_sha256(text.as_bytes()).sha256[..],
                Sha256::digest(&ours)[..]
            );
            continue;
        };
        match ours {
            Err(CanonicalError::IntegerTooLong { digits: 4301, .. }) => {
                assert!(error.contains("Exceeds the limit"), "{name}");
                assert_eq!(
                    recorded(text.as_bytes()),
                    format!("\"{text}\"").into_bytes()
                );
            }
            Err(CanonicalError::NotJson { .. }) => {
                let mut quoted = Vec::new();
                write_string(&mut quoted, &text);
                assert_eq!(recorded(text.as_bytes()), quoted, "{name}");
            }
            other => panic!("{name}: {other:?} where the reference has {error}"),
        }
    }
}

#[test]
fn the_reference_and_we_agree_on_thousands_of_other_texts() {
    let cases = cases(DIFFERENTIAL);
    assert!(cases.len() > 3500);
    for case in cases {
        let (text, theirs) = (case[0].as_str().unwrap(), case[1].as_str());
        let ours = canonical(text.as_bytes(), Mode::Reference).ok();
        let ours = ours
            .as_deref()
            .map(|ours| std::str::from_utf8(ours).unwrap());
        assert_eq!(ours, theirs, "{}", &text[..text.floor_char_boundary(300)]);
    }
}

#[test]
fn a_canonical_form_is_its_own_canonical_form_and_its_digest_is_the_same_octets() {
    for case in cases(DIFFERENTIAL) {
        let once = recorded(case[0].as_str().unwrap().as_bytes());
        assert_eq!(recorded(&once), once);
        let digest = canonical_sha256(case[0].as_str().unwrap().as_bytes());
        assert_eq!(digest.sha256[..], Sha256::digest(&once)[..]);
        assert!(
            !canonical_sha256(&once).lossy,
            "{}",
            String::from_utf8_lossy(&once)
        );
    }
}

#[test]
fn payloads_of_the_proxy_are_rebuilt_octet_by_octet() {
    let cases: Vec<Value> = serde_json::from_str(PAYLOADS).unwrap();
    assert_eq!(cases.len(), 15);
    for case in cases {
        let intent = case["kind"] == "intent";
        let hashed = match (intent, &case["arguments"], &case["hashed"]) {
            (true, Value::Null, _) => "{}".to_owned(),
            (true, arguments, _) => arguments.to_string(),
            (false, _, hashed) => hashed.to_string(),
        };
        let form = recorded(hashed.as_bytes());
        let expected = if intent {
            "args_canonical_hex"
        } else {
            "hashed_canonical_hex"
        };
        assert_eq!(hex(&form), case[expected]);
        let digest = hex(&canonical_sha256(hashed.as_bytes()).sha256);

        let mut payload = if intent {
            format!("{{\"args_sha256\":\"{digest}\"")
        } else {
            let (index, is_error) = (&case["intent_index"], &case["is_error"]);
            format!("{{\"intent_index\":{index},\"is_error\":{is_error}")
        };
        payload.push_str(",\"profile\":\"mcp.tools/call v1\"");
        if !intent {
            payload.push_str(&format!(",\"result_sha256\":\"{digest}\""));
        }
        let mut payload = payload.into_bytes();
        payload.extend(b",\"server\":");
        write_string(&mut payload, case["server"].as_str().unwrap());
        payload.extend(b",\"tool\":");
        payload.extend(python_str(Some(case["tool"].to_string().as_bytes())).json);
        payload.extend(b"}");
        assert_eq!(String::from_utf8(payload).unwrap(), case["payload_utf8"]);
    }
}

#[test]
fn a_digest_says_when_another_value_would_have_the_same() {
    let long_integer = "7".repeat(4301);
    let deep = format!("{}{}", "[".repeat(202), "]".repeat(202));
    let lossy: &[&str] = &[
        "1e400",
        "-1e400",
        "[1e400]",
        "NaN",
        "Infinity",
        "-Infinity",
        "{\"a\":NaN}",
        "9007199254740993",
        "-9007199254740993",
        "18446744073709551615",
        "295147905179352825856",
        "0.1000000000000000055511151231257827",
        "333333333.33333329",
        "1e-400",
        "4.9406564584124654e-324",
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"\\u0061\":2}",
        "[{\"b\":0,\"a\":{\"a\":1,\"a\":2}}]",
        &long_integer,
        &deep,
        "nan",
        "",
        "{",
        "[1,]",
        "\"\t\"",
        "1 2",
    ];
    let exact: &[&str] = &[
        "1.0",
        "1",
        "1e2",
        "100",
        "-0",
        "-0.0",
        "0e400",
        "0.1",
        "0.30000000000000004",
        "1E5",
        "5e-324",
        "1.7976931348623157e308",
        "9007199254740992",
        "9007199254740994",
        "295147905179352830000",
        "123456789012345680000",
        "1e22",
        "100000000000000000000000",
        "2.50",
        "0.10000000000000000000",
        " { \"b\" : 1 , \"a\" : [ ] } ",
        "\"\\u00e9\\/\\u000a\"",
        "\"\\ud800\"",
        "\"inf\"",
        "\"<too deep>\"",
        "\u{feff}1",
        "{\"\\ud83d\\ude00\":1,\"\u{ffff}\":2}",
        "[true,false,null,\"\"]",
    ];
    for text in lossy {
        assert!(
            canonical_sha256(text.as_bytes()).lossy,
            "{text} loses something"
        );
    }
    for text in exact {
        assert!(
            !canonical_sha256(text.as_bytes()).lossy,
            "{text} loses nothing"
        );
    }
    assert!(
        canonical_sha256(b"\"\xFF\"").lossy,
        "octets that are not UTF-8 lose something"
    );
}

#[test]
fn an_error_names_what_and_where() {
    let cases: [(&[u8], &str); 6] = [
        (b"{\"a\" 1}", "not JSON at octet 5: expected ':'"),
        (
            b"[1 2]",
            "not JSON at octet 3: expected ',' or the closing bracket",
        ),
        (
            b"\"a\\x\"",
            "not JSON at octet 2: expected one of the escapes of JSON",
        ),
        (
            b"[1] x",
            "not JSON at octet 4: expected the end of the text",
        ),
        (b"\"ab", "not JSON at octet 3: expected a closing quote"),
        (
            b"\"\xED\xA0\x80\"",
            "not UTF-8 at octet 1: JSON is sent as UTF-8",
        ),
    ];
    for (text, expected) in cases {
        let error = canonical(text, Mode::Reference).expect_err("this is no JSON");
        assert_eq!(error.to_string(), expected);
    }
    let nest = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    assert!(canonical(nest(994).as_bytes(), Mode::Reference).is_ok());
    let error = canonical(nest(995).as_bytes(), Mode::Reference);
    assert_eq!(error, Err(CanonicalError::TooDeep { at: 994 }));
}

/// A small generator with a fixed seed, so that a failure is found again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

#[test]
fn a_recorder_takes_a_hundred_thousand_damaged_texts() {
    let texts: Vec<String> = cases(DIFFERENTIAL)
        .iter()
        .map(|case| case[0].as_str().unwrap().to_owned())
        .filter(|text| text.len() < 400)
        .collect();
    let bits: &[&[u8]] = &[
        b"\"",
        b"\\",
        b"\\u",
        b"\\ud800",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"-",
        b"e9",
        b".",
        b"0",
        b" ",
        b"\n",
        b"\x00",
        b"\xFF",
        b"\xED\xA0\x80",
        b"\xF0\x9F\x98\x80",
        b"null",
        b"NaN",
        b"{\"a\":",
        b"\"a\":1,",
    ];
    let mut dice = Dice(0x5EED);
    let mut still_json = 0;
    for _ in 0..100_000 {
        let mut text = texts[dice.below(texts.len())].clone().into_bytes();
        for _ in 0..=dice.below(3) {
            let (from, length) = (dice.below(text.len() + 1), dice.below(4));
            let to = (from + length).min(text.len());
            let bit = bits[dice.below(bits.len())];
            text.splice(from..to, bit.iter().copied());
        }
        let form = recorded(&text);
        assert_eq!(recorded(&form), form, "{}", String::from_utf8_lossy(&text));
        assert_eq!(
            canonical_sha256(&text).sha256[..],
            Sha256::digest(&form)[..]
        );
        if serde_json::from_slice::<&RawValue>(&text).is_ok() {
            still_json += 1;
            assert!(
                canonical(&text, Mode::Reference).is_ok(),
                "{}",
                String::from_utf8_lossy(&text)
            );
        }
    }
    assert!(
        still_json > 1_000,
        "enough of the damaged texts are JSON: {still_json}"
    );
}

#[test]
fn a_nest_of_two_hundred_thousand_arrays_is_cut_at_the_depth_of_the_reference() {
    let levels = 200_000;
    let text = "[".repeat(levels) + &"]".repeat(levels);
    let form = "[".repeat(201) + "\"<too deep>\"" + &"]".repeat(201);
    assert_eq!(recorded(text.as_bytes()), form.as_bytes());
    assert!(canonical_sha256(text.as_bytes()).lossy);
    let torn = "{\"a\":[".repeat(levels);
    assert_eq!(recorded(torn.as_bytes()).len(), torn.len() + 2 + 2 * levels);
}

#[test]
fn a_large_object_in_the_wrong_order_is_sorted() {
    let member = |key: usize| {
        format!(
            "\"k{key:06}\":{{\"b\":\"{}\",\"a\":[1, 2]}}",
            "x".repeat(25)
        )
    };
    let sorted = |key: usize| format!("\"k{key:06}\":{{\"a\":[1,2],\"b\":\"{}\"}}", "x".repeat(25));
    let members: Vec<String> = (0..100_000).rev().map(member).collect();
    let text = format!("{{{}}}", members.join(","));
    assert!(text.len() > 5_000_000);
    let members: Vec<String> = (0..100_000).map(sorted).collect();
    assert_eq!(
        recorded(text.as_bytes()),
        format!("{{{}}}", members.join(",")).into_bytes()
    );
}

#[test]
fn objects_in_the_wrong_order_at_every_level_are_written_once() {
    let filler = "y".repeat(2_000);
    let open = format!("{{\"z\":\"{filler}\", \"a\":");
    let text = open.repeat(200) + "0" + &"}".repeat(200);
    let form = "{\"a\":".repeat(200) + "0" + &format!(",\"z\":\"{filler}\"}}").repeat(200);
    assert_eq!(recorded(text.as_bytes()), form.as_bytes());
}

#[test]
fn a_string_is_written_with_the_fewest_escapes() {
    let cases = [
        ("", "\"\""),
        ("a\"b\\c/", "\"a\\\"b\\\\c/\""),
        (
            "\u{8}\t\n\u{c}\r\u{0}\u{1f}\u{7f}",
            "\"\\b\\t\\n\\f\\r\\u0000\\u001f\u{7f}\"",
        ),
        ("é€😀\u{2028}", "\"é€😀\u{2028}\""),
    ];
    for (text, expected) in cases {
        let mut out = b"before".to_vec();
        write_string(&mut out, text);
        assert_eq!(out, format!("before{expected}").into_bytes());
    }
}

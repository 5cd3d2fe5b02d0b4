//! Numbers and names as Python prints them, against what CPython printed.

use countersign_log::python::{percent_g, python_str};
use serde_json::Value;

const TIMEOUTS: &str = include_str!("../data/timeout_number_format.json");
const DIFFERENTIAL: &str = include_str!("../data/python_differential.json");

fn text(value: &Value) -> &str {
    value.as_str().expect("the tables hold texts")
}

fn pairs<'a>(file: &'a Value, section: &str) -> Vec<(&'a str, &'a str)> {
    let list = file[section].as_array().expect("the section is a list");
    list.iter()
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect()
}

#[test]
fn time_outs_are_written_as_the_reference_writes_them() {
    let file: Value = serde_json::from_str(TIMEOUTS).unwrap();
    let cases = file["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 14);
    for (seconds, text) in cases {
        assert_eq!(
            percent_g(seconds.parse().unwrap()),
            *text.as_str().unwrap(),
            "{seconds}"
        );
    }
}

#[test]
fn percent_g_is_that_of_python() {
    let file: Value = serde_json::from_str(DIFFERENTIAL).unwrap();
    let cases = pairs(&file, "percent_g");
    assert!(cases.len() > 600);
    for (value, text) in cases {
        assert_eq!(percent_g(value.parse().unwrap()), text, "{value}");
    }
    assert_eq!(percent_g(f64::NEG_INFINITY), "-inf");
    assert_eq!(percent_g(-f64::NAN), "nan");
}

#[test]
fn names_that_are_no_strings_become_what_str_makes_of_them() {
    let file: Value = serde_json::from_str(DIFFERENTIAL).unwrap();
    let cases = pairs(&file, "str");
    assert!(cases.len() > 150);
    for (json, text) in cases {
        let form = python_str(Some(json.as_bytes()));
        assert_eq!(String::from_utf8(form.json).unwrap(), text, "{json}");
        assert_eq!(form.lossy, !json.starts_with('"'), "{json}");
    }
}

#[test]
fn names_of_other_kinds_still_give_a_string() {
    let long_integer = "1".repeat(5000);
    let quoted = format!("\"{long_integer}\"");
    let cases: [(Option<&[u8]>, &str); 8] = [
        (None, "\"\""),
        (Some(b" \"a\" "), "\"a\""),
        (
            Some(b"[\"b\", {\"z\":1,\"a\":2}]"),
            "\"[\\\"b\\\",{\\\"a\\\":2,\\\"z\\\":1}]\"",
        ),
        (Some(b"{}"), "\"{}\""),
        (Some(b"nonsense"), "\"nonsense\""),
        (Some(b""), "\"\""),
        (Some(b"\"\xFF\""), "\"\\\"\u{fffd}\\\"\""),
        (Some(long_integer.as_bytes()), &quoted),
    ];
    for (json, text) in cases {
        let form = python_str(json);
        assert_eq!(String::from_utf8(form.json).unwrap(), text);
        assert_eq!(form.lossy, json != Some(b" \"a\" "), "{text}");
    }
}

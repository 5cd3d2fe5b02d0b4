//! A minimal MCP server over stdio: one tool, `echo`, answered as fast as one thread can.
//!
//! The one idea: read a large chunk, answer every whole line in it, write once. It must cost so
//! little that what is measured is the path to it. With `--write-each` every answer has a `write`
//! of its own, as with most servers there are. It looks at requests only as far as it must, and it
//! serves well-formed input only.

use std::env;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use countersign_bench::CHUNK_BYTES;

/// Answers waiting for one `write`. Larger results leave at once, so that the client can read
/// while the next one is made.
const UNWRITTEN_BYTES_MAX: usize = 256 << 10;

const TOOLS: &[u8] = br#"{"tools":[{"name":"echo","description":"Answers a text of `size` bytes, or its arguments.","inputSchema":{"type":"object","properties":{"size":{"type":"integer","minimum":0}}}}]}"#;

fn main() -> io::Result<()> {
    let write_each = env::args().any(|word| word == "--write-each");
    let unwritten_bytes_max = if write_each { 0 } else { UNWRITTEN_BYTES_MAX };
    let mut input = countersign_bench::stdin()?;
    let mut output = countersign_bench::stdout()?;
    let mut pending = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut answers = Vec::new();
    loop {
        let read = input.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&chunk[..read]);
        // Only what just arrived can hold a newline: looking again would make long lines quadratic.
        let mut searched = pending.len() - read;
        let mut start = 0;
        while let Some(length) = pending[searched..].iter().position(|&b| b == b'\n') {
            let end = searched + length;
            answer(&pending[start..end], &mut answers);
            if answers.len() > unwritten_bytes_max {
                output.write_all(&answers)?;
                answers.clear();
            }
            start = end + 1;
            searched = start;
        }
        pending.drain(..start);
        output.write_all(&answers)?;
        answers.clear();
    }
}

/// Appends the answer to one message, or nothing for a notification.
fn answer(line: &[u8], out: &mut Vec<u8>) {
    let Some(id) = member(line, "id") else { return };
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id);
    match member(line, "method") {
        Some(b"\"initialize\"") => result(out, &initialized(line)),
        Some(b"\"tools/list\"") => result(out, TOOLS),
        Some(b"\"tools/call\"" | b"\"bench/call\"") => call(line, out),
        Some(b"\"ping\"") => result(out, b"{}"),
        _ => out.extend_from_slice(br#","error":{"code":-32601,"message":"Method not found"}"#),
    }
    out.extend_from_slice(b"}\n");
}

fn result(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(value);
}

/// The version asked for is the version spoken: the messages used here are the same in all.
fn initialized(line: &[u8]) -> Vec<u8> {
    let version = member(line, "params").and_then(|params| member(params, "protocolVersion"));
    [
        br#"{"protocolVersion":"#,
        version.unwrap_or(br#""2025-11-25""#),
        br#","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#,
    ]
    .concat()
}

/// A text of `arguments.size` bytes, or the arguments as text when no size is given.
fn call(line: &[u8], out: &mut Vec<u8>) {
    let arguments = member(line, "params")
        .and_then(|params| member(params, "arguments"))
        .unwrap_or(b"{}");
    let size =
        member(arguments, "size").and_then(|size| str::from_utf8(size).ok()?.parse::<usize>().ok());
    out.extend_from_slice(br#","result":{"content":[{"type":"text","text":""#);
    match size {
        Some(size) => out.resize(out.len() + size, b'x'),
        None => escape(arguments, out),
    }
    out.extend_from_slice(br#""}],"isError":false}"#);
}

/// Writes JSON as the inside of a JSON string. JSON on one line holds no raw control characters.
fn escape(json: &[u8], out: &mut Vec<u8>) {
    for &byte in json {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// The raw value of a member of a JSON object, `None` if it is absent or this is no object.
fn member<'a>(object: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut rest = object.trim_ascii().strip_prefix(b"{")?.trim_ascii_start();
    while rest.first() == Some(&b'"') {
        let (name, after) = rest.split_at(value_length(rest)?);
        let after = after
            .trim_ascii_start()
            .strip_prefix(b":")?
            .trim_ascii_start();
        let (value, after) = after.split_at(value_length(after)?);
        let name = name.trim_ascii_end();
        if name[1..name.len() - 1] == *key.as_bytes() {
            return Some(value.trim_ascii_end());
        }
        rest = after.strip_prefix(b",")?.trim_ascii_start();
    }
    None
}

/// Bytes of the JSON value at the start: up to the colon, comma or bracket that ends it.
fn value_length(json: &[u8]) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let end = json.iter().enumerate().try_for_each(|(at, &byte)| {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b'{' | b'[') => depth += 1,
            (false, b':' | b',' | b'}' | b']') if depth == 0 => return ControlFlow::Break(at),
            (false, b'}' | b']') => depth -= 1,
            _ => {}
        }
        ControlFlow::Continue(())
    });
    end.break_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> String {
        let mut out = Vec::new();
        answer(line.as_bytes(), &mut out);
        String::from_utf8(out).expect("answers are made of UTF-8 parts")
    }

    #[test]
    fn a_size_is_answered_with_that_many_bytes() {
        let answer = answered(
            r#"{ "id" : "a\"}" , "params":{"arguments":{"note":"a,b","size": 3 },"name":"echo"},"method":"tools/call"}"#,
        );
        assert_eq!(
            answer,
            "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"}\",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"xxx\"}],\"isError\":false}}\n"
        );
    }

    #[test]
    fn without_a_size_the_arguments_come_back() {
        let answer =
            answered(r#"{"id":1,"method":"tools/call","params":{"arguments":{"a":["\\",{}]}}}"#);
        assert!(
            answer.contains(r#""text":"{\"a\":[\"\\\\\",{}]}""#),
            "{answer}"
        );
    }

    #[test]
    fn a_notification_gets_no_answer() {
        assert_eq!(answered(r#"{"method":"notifications/initialized"}"#), "");
    }

    #[test]
    fn an_unknown_method_is_an_error() {
        assert!(answered(r#"{"id":1,"method":"x"}"#).contains("-32601"));
    }
}

//! Holds the JSON-RPC envelope to a table of messages, and to what must be true of any octets.

mod invariants;
mod table;

use bytes::Bytes;
use countersign::message::{
    Id, IdKind, Kind, LINE_BYTES_MAX, Malformed, Message, Parsed, Splice, SpliceError, salvage_id,
    salvage_id_from_ends,
};
use invariants::{hold_invariants, is_part};

fn parse(line: impl AsRef<[u8]>) -> Result<Parsed, Malformed> {
    Message::parse(Bytes::copy_from_slice(line.as_ref()))
}

fn one(line: impl AsRef<[u8]>) -> Message {
    match parse(line.as_ref()) {
        Ok(Parsed::One(message)) => message,
        other => panic!(
            "{:?} is one message, not {other:?}",
            String::from_utf8_lossy(line.as_ref())
        ),
    }
}

/// One sentence on what a line is.
fn describe(parsed: &Result<Parsed, Malformed>) -> String {
    match parsed {
        Ok(Parsed::Blank) => "blank".into(),
        Ok(Parsed::One(message)) => describe_message(message),
        Ok(Parsed::Batch(batch)) => {
            let member = |member: &Result<Message, Malformed>| match member {
                Ok(message) => describe_message(message),
                Err(malformed) => describe_malformed(malformed),
            };
            format!(
                "batch of [{}]",
                batch
                    .members
                    .iter()
                    .map(member)
                    .collect::<Vec<_>>()
                    .join("; ")
            )
        }
        Err(malformed) => describe_malformed(malformed),
    }
}

fn describe_malformed(malformed: &Malformed) -> String {
    let id = malformed
        .id()
        .map_or(String::new(), |id| format!(" id={id}"));
    format!("malformed {}{id}: {malformed}", malformed.code())
}

fn describe_message(message: &Message) -> String {
    let mut words = match message.kind() {
        Kind::Request => "request".to_string(),
        Kind::Notification => "notification".into(),
        Kind::Response => "response".into(),
    };
    if let Some(method) = message.method() {
        words.push_str(&format!(" {method}"));
    }
    match message.id() {
        Some(id) if id.raw().len() > 60 => {
            words.push_str(&format!(" id=({} bytes)", id.raw().len()))
        }
        Some(id) => words.push_str(&format!(" id={id}")),
        None => {}
    }
    if message.governed() {
        words.push_str(" governed");
    }
    if let Some(ambiguity) = message.ambiguity() {
        words.push_str(&format!(", but {ambiguity}"));
    }
    words
}

#[test]
fn each_message_of_the_table_is_what_it_says_and_keeps_its_octets() {
    let rows = table::rows();
    assert!(rows.len() >= 54, "the table has {} rows", rows.len());
    for row in rows {
        let line = Bytes::from(row.line);
        let shown: String = String::from_utf8_lossy(&line).chars().take(200).collect();
        assert_eq!(describe(&Message::parse(line.clone())), row.is, "{shown}");
        hold_invariants(&line);
    }
}

#[test]
fn mutated_messages_never_panic_and_keep_their_octets() {
    let seeds: Vec<Vec<u8>> = table::rows()
        .into_iter()
        .map(|row| row.line)
        .filter(|line| line.len() < 600)
        .collect();
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for _ in 0..50_000 {
        let mut line = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(3) {
            mutate(&mut line, &seeds, &mut random);
        }
        hold_invariants(&Bytes::from(line));
    }
}

/// A small generator of Marsaglia's, so that each run tries the same lines.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % bound
    }
}

fn mutate(line: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Xorshift) {
    const TOKENS: &[&[u8]] = &[
        b"\"method\":\"tools/call\",",
        b"\"id\":1,",
        b"\"params\":",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\\u006d",
        b"\\ud800",
        b"null",
        b"NaN",
        b"1e400",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\n",
        b" ",
    ];
    let at = random.below(line.len() + 1);
    match random.below(6) {
        0 => line.truncate(at),
        1 if at < line.len() => drop(line.remove(at)),
        2 if at < line.len() => line[at] = u8::try_from(random.below(256)).expect("below 256"),
        3 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            line.truncate(at);
            line.extend_from_slice(&other[from..]);
        }
        _ => drop(line.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
    }
}

#[test]
fn two_million_levels_do_not_overflow_the_stack() {
    let (open, close) = ("[".repeat(2_000_000), "]".repeat(2_000_000));
    let response = one(format!(r#"{{"id":1,"result":{open}{close}}}"#));
    assert_eq!(describe_message(&response), "response id=1");
    let call = one(format!(
        r#"{{"id":1,"method":"tools/call","params":{{"name":"t","arguments":{{"v":{open}{close}}}}}}}"#
    ));
    assert_eq!(
        describe_message(&call),
        "request tools/call id=1 governed, but it nests deeper than 1000 levels"
    );
    assert!(
        salvage_id(
            format!(r#"{{"result":{open}{close},"id":1"#).as_bytes(),
            Kind::Response
        )
        .is_none()
    );
}

#[test]
fn a_governed_message_names_its_call_with_the_last_key_even_when_it_is_ambiguous() {
    let rows = [
        (
            r#"{"id":1,"method":"tools/call","params":{"name":"a","name":"b","arguments":1,"arguments":{"x":2}}}"#,
            Some("\"b\""),
            Some("{\"x\":2}"),
        ),
        (
            r#"{"id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
            Some("\"b\""),
            None,
        ),
        (
            r#"{"id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
            Some("\"a\""),
            None,
        ),
        (
            r#"{"id":1,"method":"tools/call","params":{"Name":"b"}}"#,
            Some("\"b\""),
            None,
        ),
        (
            r#"{"id":1,"method":"tools/call","method":"ping","params":{"name":5,"arguments":[]}}"#,
            Some("5"),
            Some("[]"),
        ),
        (
            r#"{"id":1,"method":"tools/call","params":["a"]}"#,
            None,
            None,
        ),
        (r#"{"id":1,"method":"tools/call","params":"a"}"#, None, None),
        (r#"{"id":1,"method":"tools/call","params":0}"#, None, None),
        (r#"{"id":1,"method":"tools/call"}"#, None, None),
        (
            r#"{"id":1,"method":"prompts/get","params":{"name":"a"}}"#,
            None,
            None,
        ),
    ];
    for (line, name, arguments) in rows {
        let call = one(line).tool_call();
        assert_eq!(call.name_raw.as_deref(), name.map(str::as_bytes), "{line}");
        assert_eq!(
            call.arguments_raw.as_deref(),
            arguments.map(str::as_bytes),
            "{line}"
        );
    }
    let variant = one(r#"{"id":1,"method":"tools/call","Params":{"name":"b"}}"#);
    assert_eq!(variant.tool_call().name().as_deref(), Some("b"));
    assert_eq!(variant.params(), None);
    let escaped =
        one(r#"{"id":1,"method":"tools/call","params":{"name":"fs.\u0072ead \ud83d\ude00\/\n"}}"#);
    assert_eq!(
        escaped.tool_call().name().as_deref(),
        Some("fs.read \u{1f600}/\n")
    );
}

#[test]
fn ids_are_compared_by_type_and_text() {
    let distinct = [
        "1",
        "1.0",
        "1e0",
        "\"1\"",
        "-0",
        "0",
        "\"\"",
        "null",
        "true",
        "[1]",
        r#""\ud800""#,
        r#""\ud801""#,
        r#""\"\\ud800\"""#,
    ];
    for (row, one) in distinct.iter().enumerate() {
        for (column, two) in distinct.iter().enumerate() {
            let same = Id::parse(one.as_bytes()) == Id::parse(two.as_bytes());
            assert_eq!(same, row == column, "{one} and {two}");
        }
    }
    let escaped = Id::parse(br#""\u0061\/""#).expect("an id");
    assert_eq!(Some(&escaped), Id::parse(b"\"a/\"").as_ref());
    assert_eq!(&escaped.raw()[..], br#""\u0061\/""#);
    let set = std::collections::HashSet::from([escaped, Id::from(7)]);
    assert!(
        set.contains(&Id::parse(b"\"a/\"").expect("an id"))
            && set.contains(&Id::parse(b"7").expect("an id"))
    );
    for none in ["", " 1", "1 ", "01", "1,2", "\"", "nul"] {
        assert!(Id::parse(none.as_bytes()).is_none(), "{none:?} is no id");
    }
}

#[test]
fn ids_that_a_peer_rewrote_are_alike_but_not_equal() {
    let id = |text: &str| Id::parse(text.as_bytes()).expect("an id");
    for (sent, echoed, alike) in [
        ("1e2", "100", true),
        ("1.0", "1", true),
        ("\"0\"", "0", true),
        ("9223372036854775807", "9223372036854775808", true),
        ("1", "2", false),
        ("1e400", "2e400", false),
        ("\"1.0\"", "1", false),
        ("\"a\"", "\"A\"", false),
        ("null", "\"null\"", false),
        ("true", "1", false),
    ] {
        assert_eq!(id(sent).is_like(&id(echoed)), alike, "{sent} {echoed}");
        assert_eq!(id(echoed).is_like(&id(sent)), alike, "{echoed} {sent}");
        assert_ne!(id(sent), id(echoed));
    }
}

#[test]
fn an_id_of_null_is_not_an_absent_id() {
    assert_eq!(
        one(r#"{"id":null,"method":"x"}"#).id().map(Id::kind),
        Some(IdKind::Null)
    );
    assert!(one(r#"{"method":"x"}"#).id().is_none());
    assert_eq!(one(r#"{"id":null,"method":"x"}"#).kind(), Kind::Request);
}

#[test]
fn accessors_read_what_other_parts_ask_for() {
    let modern = one(
        r#"{"id":1,"method":"tools/list","params":{"cursor":"p\u0032","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"t"}}}"#,
    );
    assert_eq!(modern.modern_version().as_deref(), Some("2026-07-28"));
    assert_eq!(modern.cursor().as_deref(), Some("p2"));
    assert_eq!(modern.progress_token(), Id::parse(b"\"t\""));
    let progress =
        one(r#"{"method":"notifications/progress","params":{"progressToken":0,"progress":1}}"#);
    assert_eq!(progress.progress_token(), Some(Id::from(0)));
    let cancel = one(r#"{"method":"notifications/cancelled","params":{"requestId":"7"}}"#);
    assert_eq!(cancel.cancel_target(), Id::parse(b"\"7\""));
    let initialize =
        one(r#"{"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#);
    assert_eq!(
        initialize.requested_version().as_deref(),
        Some("2025-11-25")
    );
    assert_eq!(
        (
            initialize.modern_version(),
            initialize.cancel_target(),
            initialize.progress_token()
        ),
        (None, None, None)
    );
    let odd = one(r#"{"id":0,"method":"initialize","params":{"protocolVersion":5,"_meta":[]}}"#);
    assert_eq!(
        (odd.requested_version(), odd.modern_version(), odd.cursor()),
        (None, None, None)
    );
}

#[test]
fn parts_are_slices_of_the_line_and_not_copies() {
    let message = one(r#"{"id":1, "result" : {"tools" : [ 1 ]} }"#);
    assert_eq!(
        message.result().as_deref(),
        Some(&br#"{"tools" : [ 1 ]}"#[..])
    );
    assert!(is_part(
        message.raw(),
        &message.result().expect("it has a result")
    ));
    assert_eq!(
        message
            .member(&["result", "tools"])
            .map(|at| &message.raw()[at]),
        Some(&b"[ 1 ]"[..])
    );
    assert_eq!(
        message.member(&["id"]).map(|at| &message.raw()[at]),
        Some(&b"1"[..])
    );
    assert_eq!(message.member(&["result", "tools", "x"]), None);
    assert_eq!(message.member(&[]), None);
    let doubled = one(r#"{"id":1,"result":{"t":1,"\u0074":2},"x":{"y":"z"}}"#);
    assert_eq!(
        doubled
            .member(&["result", "t"])
            .map(|at| &doubled.raw()[at]),
        Some(&b"2"[..])
    );
    assert_eq!(doubled.string(&["x", "y"]).as_deref(), Some("z"));
}

#[test]
fn a_splice_changes_the_named_octets_and_no_other() {
    let message = one(r#"{"id":1e2, "result" : {"tools" : [ {"a":-0} ], "_meta":{ } } , "x":1E5}"#);
    let (raw, at) = (message.raw(), |path: &[&str]| {
        message.member(path).expect("the member is there")
    });
    let spliced = Splice::new(raw)
        .replace(at(&["id"]), b"\"c-7\"")
        .append(at(&["result", "tools"]), &[b"{\"b\":1}", b"2"])
        .and_then(|splice| splice.append(at(&["result", "_meta"]), &[b"\"k\":1"]))
        .and_then(Splice::finish)
        .expect("the edits do not touch each other");
    assert_eq!(spliced, &br#"{"id":"c-7", "result" : {"tools" : [ {"a":-0} ,{"b":1},2], "_meta":{ "k":1} } , "x":1E5}"#[..]);
}

#[test]
fn a_splice_that_does_not_fit_is_an_error() {
    let raw = Bytes::from_static(b"{\"a\":[1]}");
    let outside = Splice::new(&raw).replace(3..100, b"").finish();
    assert_eq!(outside, Err(SpliceError::Outside(3..100)));
    let overlap = Splice::new(&raw)
        .replace(1..4, b"x")
        .replace(3..5, b"y")
        .finish();
    assert_eq!(overlap, Err(SpliceError::Overlap(3..5)));
    let container = Splice::new(&raw).append(1..4, &[b"1"]).map(|_| ());
    assert_eq!(container, Err(SpliceError::NoContainer(1..4)));
    let inserts = Splice::new(&raw)
        .replace(1..1, b"\"x\":1,")
        .replace(1..1, b"\"y\":2,")
        .finish();
    assert_eq!(inserts.as_deref(), Ok(&b"{\"x\":1,\"y\":2,\"a\":[1]}"[..]));
}

#[test]
fn a_broken_line_gives_its_id_only_when_it_is_certain() {
    use Kind::{Notification, Request, Response};
    for (line, kind, id) in [
        (
            &br#"{"jsonrpc":"2.0","id":3,"result":{"x":NaN}}"#[..],
            Response,
            Some("3"),
        ),
        (br#"{"id":"x","result":{"y":[1,"#, Response, Some("\"x\"")),
        (
            br#"{"result":{"id":9,"x":Infinity},"id":4}"#,
            Response,
            Some("4"),
        ),
        (
            b"{\"id\":5,\"result\":{\"t\":\"\xff\"}}",
            Response,
            Some("5"),
        ),
        (
            b"\xef\xbb\xbf{\"id\":6,\"method\":\"ping\"}",
            Request,
            Some("6"),
        ),
        (br#"{"id":7,"result":{}} trailing"#, Response, Some("7")),
        (br#"{"\u0069d":8,"result":NaN}"#, Response, Some("8")),
        (
            br#"{"result":{"t":"a\"b\\"},"id":4,"x":NaN}"#,
            Response,
            Some("4"),
        ),
        (br#"{"id":1,"method":"x","result":NaN}"#, Response, None),
        (br#"{"result":{"id":9,"x":NaN"#, Response, None),
        (br#"{"id":1"#, Response, None),
        (br#"{"result":1,"id":12"#, Response, None),
        (br#"{"result":NaN,"id":"cut"#, Response, None),
        (
            br#"{"id":1,"method":"sampling/createMessage","params":{"x":NaN}}"#,
            Response,
            None,
        ),
        (br#"{"id":1,"params":NaN}"#, Response, None),
        (br#"{"id":1,"id":2,"result":NaN}"#, Response, None),
        (br#"{"id":null,"result":NaN}"#, Response, None),
        (br#"{"id":{"a":1},"result":NaN}"#, Response, None),
        (br#"{"id":1x,"result":{}}"#, Response, None),
        (br#"{"a":[1},"id":1,"result":{}}"#, Response, None),
        (br#"sent {"id":1,"result":{}}"#, Response, None),
        (br#"[{"id":1,"result":NaN}]"#, Response, None),
        (br#"{"id":1,"result":NaN}"#, Request, None),
        (br#"{"id":1,"method":"x","params":NaN}"#, Notification, None),
        (
            br#"{"id":1,"method":"tools/call","params":{"a":NaN}}"#,
            Request,
            Some("1"),
        ),
        (b"", Response, None),
        (b"{", Response, None),
        (b"{}", Request, None),
    ] {
        let expected = id.and_then(|id| Id::parse(id.as_bytes()));
        assert_eq!(
            salvage_id(line, kind),
            expected,
            "{}",
            String::from_utf8_lossy(line)
        );
    }
}

#[test]
fn an_over_long_line_gives_its_id_from_either_end() {
    for (head, tail, id) in [
        (r#"{"id":1,"result":{"t":"aaa"#, r#"aaa"}}"#, Some("1")),
        (
            r#"{"jsonrpc":"2.0","result":{"t":"aaa"#,
            "aaa\"},\"id\":\"q\" }\r",
            Some("\"q\""),
        ),
        (
            r#"{"jsonrpc":"2.0","result":{"t":"aaa"#,
            r#"aaa"},"id":2}"#,
            Some("2"),
        ),
        (
            r#"{"jsonrpc":"2.0","result":{"t":"aaa"#,
            r#"aaa,\"id\":2}"#,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","result":{"t":"aaa"#,
            r#"aaa","id":2}}"#,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"x","params":"aaa"#,
            r#"aaa","id":2}"#,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","result":{},"vendor":"aaa"#,
            r#"aaa","id":null}"#,
            None,
        ),
        (r#"noise {"result":{"t":"aaa"#, r#"aaa"},"id":2}"#, None),
        (r#"{"result":{}} "#, r#"{"result":{},"id":2}"#, None),
    ] {
        let expected = id.and_then(|id| Id::parse(id.as_bytes()));
        assert_eq!(
            salvage_id_from_ends(head.as_bytes(), tail.as_bytes(), Kind::Response),
            expected,
            "{head} {tail}"
        );
    }
}

#[test]
fn a_governed_call_with_too_many_arguments_is_refused_and_not_held() {
    let arguments = |count: usize| {
        (0..count)
            .map(|key| format!("\"{key}\":0"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let call = |count| {
        one(format!(
            r#"{{"id":1,"method":"tools/call","params":{{"name":"t","arguments":{{{}}}}}}}"#,
            arguments(count)
        ))
    };
    assert!(call(65_536).ambiguity().is_none());
    let reason = call(65_537).ambiguity().map(ToString::to_string);
    assert_eq!(
        reason.as_deref(),
        Some("more than 65536 members stand in params.arguments")
    );
    const { assert!(LINE_BYTES_MAX == 64 * 1024 * 1024) };
}

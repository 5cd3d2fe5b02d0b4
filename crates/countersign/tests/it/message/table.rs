//! Messages that peers send or could send, and what each of them is.
//!
//! The one idea: one row, one line as it arrives, and a sentence about it. Rows hold octets, since some are no text.

/// A line and what it is, as `describe` of the parent module puts it.
pub(super) struct Row {
    pub(super) line: Vec<u8>,
    pub(super) is: &'static str,
}

fn row(line: impl AsRef<[u8]>, is: &'static str) -> Row {
    Row {
        line: line.as_ref().to_vec(),
        is,
    }
}

/// A `tools/call` with id 1 whose params have these members.
fn call(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#)
}

/// A `tools/call` to `t` with this id.
fn with_id(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#)
}

pub(super) fn rows() -> Vec<Row> {
    [
        plain(),
        unknown_members(),
        numbers_and_text(),
        ids(),
        doubled(),
        variants(),
        shapes(),
        depths(),
        batches(),
        malformed(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn plain() -> Vec<Row> {
    vec![
        row(
            call(r#""name":"t","arguments":{"a":1}"#),
            "request tools/call id=1 governed",
        ),
        row(
            r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#,
            "request ping id=0",
        ),
        row(
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "notification notifications/initialized",
        ),
        row(
            r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[]}}"#,
            "response id=7",
        ),
        row(
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#,
            "response id=7",
        ),
        row(
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"no id"}}"#,
            "response",
        ),
        row(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}"#,
            "response id=null",
        ),
        row(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, "response id=1"),
        row(r#"{"id":1,"method":"vendor/x"}"#, "request vendor/x id=1"),
        row(
            " { \"id\" : 1 ,\t\"method\" : \"ping\" } \r",
            "request ping id=1",
        ),
        row("{\"id\":1,\n\"method\":\"ping\"}", "request ping id=1"),
        row(
            call(r#""name":"t","task":{"ttl":60000}"#),
            "request tools/call id=1 governed",
        ),
        row(
            call(
                r#""name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1}"#,
            ),
            "request tools/call id=1 governed",
        ),
    ]
}

fn unknown_members() -> Vec<Row> {
    vec![
        row(
            r#"{"id":1,"method":"tools/call","x":{"y":[1]},"params":{"name":"t"}}"#,
            "request tools/call id=1 governed",
        ),
        row(
            call(r#""name":"t","vendor":{"a":1,"a":2}"#),
            "request tools/call id=1 governed",
        ),
        row(
            call(r#""name":"t","_meta":{"vendor/x":1,"vendor/x":2}"#),
            "request tools/call id=1 governed",
        ),
        row(
            call(r#""name":"t","arguments":{"Name":1,"name":2,"NAME":3}"#),
            "request tools/call id=1 governed",
        ),
        row(
            call(r#""name":"t","arguments":{"o":{"a":1,"a":2}}"#),
            "request tools/call id=1 governed",
        ),
        row(
            r#"{"id":1,"result":{"x":1,"x":2},"y":3,"y":4}"#,
            "response id=1",
        ),
        row(
            r#"{"id":1,"method":"ping","\ud800":1,"\ud800":2}"#,
            "request ping id=1",
        ),
        row(
            r#"{"id":1,"method":"vendor/x","params":{"name":1,"Name":2,"name":3}}"#,
            "request vendor/x id=1",
        ),
        row(
            r#"{"id":1,"method":"vendor/x","params":[1,2]}"#,
            "request vendor/x id=1",
        ),
        row(
            call(r#""name":"t","methods":1,"uri":2,"Uri":3"#),
            "request tools/call id=1 governed",
        ),
    ]
}

fn numbers_and_text() -> Vec<Row> {
    let governed = "request tools/call id=1 governed";
    let mut rows: Vec<Row> = [
        "123456789012345678901234567890",
        "18446744073709551616",
        "-0",
        "1e2",
        "1e400",
        "0.1000000000000000055511151231257827",
        r#""\ud800""#,
        r#""\u0000""#,
        "\"before\u{2028}after\u{2029}\u{85}\"",
        "\"\u{1f600}\\ud83d\\ude00\"",
    ]
    .iter()
    .map(|value| {
        row(
            call(&format!(r#""name":"t","arguments":{{"v":{value}}}"#)),
            governed,
        )
    })
    .collect();
    rows.push(row(
        call(&format!(
            r#""name":"t","arguments":{{"n":{}}}"#,
            "9".repeat(4301)
        )),
        governed,
    ));
    rows
}

fn ids() -> Vec<Row> {
    vec![
        row(with_id("0"), "request tools/call id=0 governed"),
        row(with_id(r#""0""#), r#"request tools/call id="0" governed"#),
        row(with_id("1.0"), "request tools/call id=1.0 governed"),
        row(with_id("1.5"), "request tools/call id=1.5 governed"),
        row(with_id("1e2"), "request tools/call id=1e2 governed"),
        row(with_id("-1"), "request tools/call id=-1 governed"),
        row(with_id("-0"), "request tools/call id=-0 governed"),
        row(
            with_id("9223372036854775808"),
            "request tools/call id=9223372036854775808 governed",
        ),
        row(
            with_id("725653563933458432"),
            "request tools/call id=725653563933458432 governed",
        ),
        row(with_id(r#""""#), r#"request tools/call id="" governed"#),
        row(
            with_id(r#""\u0061""#),
            r#"request tools/call id="\u0061" governed"#,
        ),
        row(
            with_id(&format!("\"{}\"", "i".repeat(300))),
            "request tools/call id=(302 bytes) governed",
        ),
        row(
            with_id(&format!("\"{}\"", "i".repeat(4094))),
            "request tools/call id=(4096 bytes) governed",
        ),
        row(
            with_id(&format!("\"{}\"", "i".repeat(4095))),
            "malformed -32600: id is longer than 4096 bytes",
        ),
        row(
            with_id("null"),
            "request tools/call id=null governed, but its id is null; use a number or a string",
        ),
        row(
            with_id("true"),
            "request tools/call id=true governed, but its id is neither a number nor Unicode text",
        ),
        row(
            with_id("{}"),
            "request tools/call id={} governed, but its id is neither a number nor Unicode text",
        ),
        row(
            with_id("[1]"),
            "request tools/call id=[1] governed, but its id is neither a number nor Unicode text",
        ),
        row(
            with_id(r#""\udc00""#),
            r#"request tools/call id="\udc00" governed, but its id is neither a number nor Unicode text"#,
        ),
        row(
            r#"{"method":"tools/call","params":{"name":"t"}}"#,
            "notification tools/call governed, but it has no id, so its outcome could not be answered",
        ),
        row(r#"{"id":null,"method":"ping"}"#, "request ping id=null"),
        row(r#"{"id":[1],"method":"ping"}"#, "request ping id=[1]"),
    ]
}

fn doubled() -> Vec<Row> {
    vec![
        row(
            r#"{"id":1,"method":"tools/call","method":"ping"}"#,
            r#"request ping id=1 governed, but the key "method" stands twice at the top level"#,
        ),
        row(
            r#"{"id":1,"method":"ping","\u006dethod":"tools/call"}"#,
            r#"request tools/call id=1 governed, but the key "method" stands twice at the top level"#,
        ),
        row(
            r#"{"id":1,"method":"tools/call","method":5}"#,
            r#"request tools/call id=1 governed, but the key "method" stands twice at the top level"#,
        ),
        row(
            r#"{"id":1,"id":2,"method":"tools/call"}"#,
            r#"request tools/call id=2 governed, but the key "id" stands twice at the top level"#,
        ),
        row(
            r#"{"id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#,
            r#"request tools/call id=1 governed, but the key "params" stands twice at the top level"#,
        ),
        row(
            r#"{"id":1,"method":"ping","id":2}"#,
            r#"request ping id=2, but the key "id" stands twice at the top level"#,
        ),
        row(
            r#"{"id":1,"result":{},"result":{"isError":true}}"#,
            r#"response id=1, but the key "result" stands twice at the top level"#,
        ),
        row(
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"request ping id=1, but the key "jsonrpc" stands twice at the top level"#,
        ),
        row(
            call(r#""name":"a","name":"b""#),
            r#"request tools/call id=1 governed, but the key "name" stands twice in params"#,
        ),
        row(
            call(r#""name":"a","arguments":{},"arguments":{"x":1}"#),
            r#"request tools/call id=1 governed, but the key "arguments" stands twice in params"#,
        ),
        row(
            call(r#""name":"a","arguments":{"x":1,"y":2,"\u0078":3}"#),
            r#"request tools/call id=1 governed, but the key "x" stands twice in params.arguments"#,
        ),
        row(
            call(r#""name":"a","arguments":{"\ud800":1,"\ud801":2}"#),
            "request tools/call id=1 governed, but the key \"\u{fffd}\" stands twice in params.arguments",
        ),
        row(
            call(r#""name":"a","_meta":{"progressToken":1,"progressToken":2}"#),
            r#"request tools/call id=1 governed, but the key "progressToken" stands twice in params._meta"#,
        ),
        row(
            call(
                r#""name":"a","_meta":{"io.modelcontextprotocol/new":1,"io.modelcontextprotocol/new":2}"#,
            ),
            r#"request tools/call id=1 governed, but the key "io.modelcontextprotocol/new" stands twice in params._meta"#,
        ),
        row(
            r#"{"method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}"#,
            r#"notification notifications/cancelled, but the key "requestId" stands twice in params"#,
        ),
    ]
}

fn variants() -> Vec<Row> {
    vec![
        row(
            r#"{"id":1,"Method":"tools/call"}"#,
            r#"request tools/call id=1 governed, but the key "Method" at the top level can be taken for "method""#,
        ),
        row(
            r#"{"id":1,"method":"ping","METHOD":"tools/call"}"#,
            r#"request ping id=1 governed, but the key "METHOD" at the top level can be taken for "method""#,
        ),
        row(
            r#"{"id":1,"result":{},"Method":"tools/call"}"#,
            r#"response id=1 governed, but the key "Method" at the top level can be taken for "method""#,
        ),
        row(
            "{\"id\":1,\"method\":\"tools/call\",\"param\u{17f}\":{\"name\":\"b\"}}",
            "request tools/call id=1 governed, but the key \"param\u{17f}\" at the top level can be taken for \"params\"",
        ),
        row(
            r#"{"id":1,"method":"tools/call","params\u0000x":{"name":"b"}}"#,
            r#"request tools/call id=1 governed, but the key "params\0x" at the top level can be taken for "params""#,
        ),
        row(
            call(r#""name":"greet","Name":"secretTool","arguments":{}"#),
            r#"request tools/call id=1 governed, but the key "Name" in params can be taken for "name""#,
        ),
        row(
            call(r#""Name":"secretTool""#),
            r#"request tools/call id=1 governed, but the key "Name" in params can be taken for "name""#,
        ),
        row(
            call(r#""name":"t","Arguments":{}"#),
            r#"request tools/call id=1 governed, but the key "Arguments" in params can be taken for "arguments""#,
        ),
        row(
            call("\"name\":\"t\",\"ta\u{17f}\u{212a}\":{}"),
            "request tools/call id=1 governed, but the key \"ta\u{17f}\u{212a}\" in params can be taken for \"task\"",
        ),
        row(
            call(r#""name":"t","_meta":{"io.modelcontextprotocol/ProtocolVersion":"x"}"#),
            r#"request tools/call id=1 governed, but the key "io.modelcontextprotocol/ProtocolVersion" in params._meta can be taken for "io.modelcontextprotocol/protocolVersion""#,
        ),
        row(
            call(r#""name":"t","_meta":{"IO.modelcontextprotocol/new":"x"}"#),
            r#"request tools/call id=1 governed, but the key "IO.modelcontextprotocol/new" in params._meta can be taken for "io.modelcontextprotocol/""#,
        ),
        row(
            r#"{"id":1,"method":"tools/call\u0000"}"#,
            "request tools/call\0 id=1 governed, but method holds the character U+0000",
        ),
        row(
            r#"{"id":1,"method":"tools/\ud800call"}"#,
            "request tools/\u{fffd}call id=1 governed, but method holds half of a surrogate pair",
        ),
        row(
            r#"{"id":1,"method":"Tools/Call"}"#,
            r#"request Tools/Call id=1 governed, but method can be taken for "tools/call""#,
        ),
        row(
            r#"{"id":1,"method":"tools\/call"}"#,
            "request tools/call id=1 governed",
        ),
        row(
            r#"{"id":1,"method":"tools/call2"}"#,
            "request tools/call2 id=1",
        ),
        row(
            call(r#""name":"t\u0000u""#),
            "request tools/call id=1 governed, but name holds the character U+0000",
        ),
        row(
            call(r#""name":"t\udfff""#),
            "request tools/call id=1 governed, but name holds half of a surrogate pair",
        ),
    ]
}

fn shapes() -> Vec<Row> {
    let not_an_object = "request tools/call id=1 governed, but params is not an object";
    vec![
        row(
            r#"{"id":1,"method":"tools/call","params":["t"]}"#,
            not_an_object,
        ),
        row(
            r#"{"id":1,"method":"tools/call","params":"t"}"#,
            not_an_object,
        ),
        row(
            r#"{"id":1,"method":"tools/call","params":5}"#,
            not_an_object,
        ),
        row(
            r#"{"id":1,"method":"tools/call"}"#,
            "request tools/call id=1 governed",
        ),
        row(call(""), "request tools/call id=1 governed"),
        row(
            call(r#""name":["t"]"#),
            "request tools/call id=1 governed, but params.name is not a string",
        ),
        row(
            call(r#""name":"t","arguments":[1]"#),
            "request tools/call id=1 governed",
        ),
        row(
            call(r#""name":"t","_meta":[1]"#),
            "request tools/call id=1 governed",
        ),
        row(
            r#"{"id":1,"method":"tools/call","result":{}}"#,
            "request tools/call id=1 governed, but it has a method and also a result or an error",
        ),
        row(
            r#"{"id":1,"method":"sampling/createMessage","result":{}}"#,
            "request sampling/createMessage id=1, but it has a method and also a result or an error",
        ),
        row(
            r#"{"id":1,"result":{},"error":{"code":1,"message":"m"}}"#,
            "malformed -32600 id=1: it has both a result and an error",
        ),
        row(
            r#"{"id":1,"result":{},"error":null}"#,
            "malformed -32600 id=1: it has both a result and an error",
        ),
        row(
            r#"{"jsonrpc":"2.0","id":1}"#,
            "malformed -32600 id=1: it has no method, no result and no error",
        ),
        row(
            "{}",
            "malformed -32600: it has no method, no result and no error",
        ),
        row(
            r#"{"result":{}}"#,
            "malformed -32600: it has a result but no id",
        ),
        row(
            r#"{"id":1,"method":5}"#,
            "malformed -32600 id=1: method is not a string",
        ),
        row(
            r#"{"id":1,"method":["tools/call"],"method":"ping"}"#,
            "malformed -32600 id=1: method is not a string",
        ),
        row(
            format!(r#"{{"id":1,"method":"{}"}}"#, "m".repeat(4097)),
            "malformed -32600 id=1: method is longer than 4096 bytes",
        ),
    ]
}

fn depths() -> Vec<Row> {
    let nested = |levels: usize| {
        format!(
            r#""name":"t","arguments":{{"v":{}{}}}"#,
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    // The message, its params and its arguments are three levels.
    let response = format!(
        r#"{{"id":1,"result":{{"v":{}{}}}}}"#,
        "[".repeat(2000),
        "]".repeat(2000)
    );
    let request = format!(
        r#"{{"id":1,"method":"x","params":{}{}}}"#,
        "[".repeat(2000),
        "]".repeat(2000)
    );
    vec![
        row(call(&nested(997)), "request tools/call id=1 governed"),
        row(
            call(&nested(998)),
            "request tools/call id=1 governed, but it nests deeper than 1000 levels",
        ),
        row(
            call(&nested(2000)),
            "request tools/call id=1 governed, but it nests deeper than 1000 levels",
        ),
        row(
            call(&format!(
                r#""name":"t","arguments":{{"v":"{}\\\"["}}"#,
                "[".repeat(2000)
            )),
            "request tools/call id=1 governed",
        ),
        row(response, "response id=1"),
        row(request, "request x id=1"),
    ]
}

fn batches() -> Vec<Row> {
    vec![
        row(
            r#"[{"id":1,"method":"tools/call","params":{"name":"t"}}]"#,
            "batch of [request tools/call id=1 governed]",
        ),
        row(
            r#" [ {"id":1,"method":"ping"} , {"id":1,"result":{}}, 5, [], {}, {"method":"x"} ] "#,
            "batch of [request ping id=1; response id=1; malformed -32600: not a message: neither an object nor a batch of objects; \
             malformed -32600: a batch inside a batch; malformed -32600: it has no method, no result and no error; notification x]",
        ),
        row("[]", "malformed -32600: the batch is empty"),
        row(" [ ] ", "malformed -32600: the batch is empty"),
        row(
            format!("[1{}]", ",1".repeat(1024)),
            "malformed -32600: the batch has more than 1024 members",
        ),
        row(
            r#"[{"id":1,"method":"ping"}"#,
            "malformed -32700: not JSON at column 25: EOF while parsing a list",
        ),
        row(
            r#"[{"id":1,"method":"ping"},]"#,
            "malformed -32700: not JSON at column 27: trailing comma",
        ),
    ]
}

fn malformed() -> Vec<Row> {
    vec![
        row("", "blank"),
        row(" \t\r", "blank"),
        row(
            "\u{feff}{\"id\":1,\"method\":\"ping\"}",
            "malformed -32700: not JSON: it starts with a byte order mark",
        ),
        row(
            b"{\"id\":1,\"method\":\"p\xffng\"}",
            "malformed -32700: not UTF-8 at byte 19",
        ),
        row(
            b"{\"id\":1,\"method\":\"p\xed\xa0\x80ng\"}",
            "malformed -32700: not UTF-8 at byte 19",
        ),
        row(
            r#"{"id":1,"result":NaN}"#,
            "malformed -32700: not JSON at column 18: expected value",
        ),
        row(
            r#"{"id":1,"method":"ping"} x"#,
            "malformed -32700: not JSON at column 26: trailing characters",
        ),
        row(
            r#"{"id":1,"method":"ping"}{}"#,
            "malformed -32700: not JSON at column 25: trailing characters",
        ),
        row(
            "[INFO] ready",
            "malformed -32700: not JSON at column 2: expected value",
        ),
        row(
            "hello",
            "malformed -32700: not JSON at column 1: expected value",
        ),
        row(
            "5",
            "malformed -32600: not a message: neither an object nor a batch of objects",
        ),
        row(
            r#""tools/call""#,
            "malformed -32600: not a message: neither an object nor a batch of objects",
        ),
        row(
            "{\"id\":1,\"method\":\"a\tb\"}",
            "malformed -32700: not JSON at column 19: control character (\\u0000-\\u001F) found while parsing a string",
        ),
        row(
            r#"{"id":"x","result":"#,
            "malformed -32700: not JSON at column 19: EOF while parsing a value",
        ),
        row(
            r#"{"id":01,"method":"ping"}"#,
            "malformed -32700: not JSON at column 8: invalid number",
        ),
        row(
            r#"{'id':1}"#,
            "malformed -32700: not JSON at column 2: key must be a string",
        ),
        row(
            r#"{"id":1,"method":"\x"}"#,
            "malformed -32700: not JSON at column 20: invalid escape",
        ),
    ]
}

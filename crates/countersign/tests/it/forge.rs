//! What the types do not let anyone do: forge a permit, use it twice, or pass a governed call by it.
//!
//! Each file of `forge/` breaks one rule, and must not compile for exactly that reason.

use countersign::upstream::Ungoverned;

use crate::peers::message;

#[test]
fn what_would_break_the_rings_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/it/forge/*.rs");
}

#[test]
fn a_message_that_anyone_could_take_for_a_call_never_passes_ungoverned() {
    let governed = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"tools\/call"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"Tools/Call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call\u0000"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","result":{}}"#,
    ];
    for line in governed {
        let back = Ungoverned::new(message(line)).expect_err(line);
        assert_eq!(&back.raw()[..], line.as_bytes());
    }
    let others = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"method":"tools/call"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"method":"tools/call"}}"#,
    ];
    for line in others {
        let passes = Ungoverned::new(message(line)).expect(line);
        assert_eq!(&passes.message().raw()[..], line.as_bytes());
    }
}

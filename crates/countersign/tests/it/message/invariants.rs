//! What must be true of a message whatever its octets are; shared with the fuzz target.
//!
//! The one idea: the property is written once, and driven by a table, by mutations and by a fuzzer.

use bytes::Bytes;
use countersign::message::{Kind, Message, Parsed, Splice, salvage_id, salvage_id_from_ends};

/// What is true of any octets: nothing panics, octets stay as they are, and every part lies inside the line.
pub(crate) fn hold_invariants(line: &Bytes) {
    for kind in [Kind::Request, Kind::Notification, Kind::Response] {
        let middle = line.len() / 2;
        let _ids = (
            salvage_id(line, kind),
            salvage_id_from_ends(&line[..middle], &line[middle..], kind),
        );
    }
    match Message::parse(line.clone()) {
        Ok(Parsed::Blank) => assert!(line.trim_ascii().is_empty()),
        Ok(Parsed::One(message)) => {
            assert_eq!(message.raw(), line);
            hold_message(&message);
        }
        Ok(Parsed::Batch(batch)) => {
            assert_eq!(&batch.raw, line);
            assert!(!batch.members.is_empty());
            for member in batch.members {
                match member {
                    Ok(message) => hold_message(&message),
                    Err(malformed) => assert!(is_part(line, malformed.raw())),
                }
            }
        }
        Err(malformed) => assert_eq!(malformed.raw(), line),
    }
}

fn hold_message(message: &Message) {
    let raw = message.raw();
    let call = message.tool_call();
    let parts = [
        message.params(),
        message.result(),
        message.error(),
        call.name_raw.clone(),
        call.arguments_raw.clone(),
    ];
    for part in parts.into_iter().flatten() {
        assert!(is_part(raw, &part));
        assert!(
            serde_json::from_slice::<&serde_json::value::RawValue>(&part).is_ok(),
            "a part is one JSON value"
        );
    }
    let paths: [&[&str]; 4] = [
        &["id"],
        &["params", "arguments"],
        &["result", "tools"],
        &["x", "y"],
    ];
    for range in paths.into_iter().filter_map(|path| message.member(path)) {
        assert!(range.start < range.end && range.end <= raw.len());
        let same = Splice::new(raw)
            .replace(range.clone(), &raw[range])
            .finish()
            .expect("the range lies inside");
        assert_eq!(&same, raw);
    }
    assert_eq!(
        &Splice::new(raw).finish().expect("no edits cannot clash"),
        raw
    );
    let _accessors = (
        call.name(),
        message.modern_version(),
        message.progress_token(),
        message.cancel_target(),
        message.cursor(),
        message.requested_version(),
    );
}

/// Whether `part` is a slice of the memory of `whole`, not a copy.
pub(crate) fn is_part(whole: &Bytes, part: &Bytes) -> bool {
    whole.as_ptr_range().start <= part.as_ptr_range().start
        && part.as_ptr_range().end <= whole.as_ptr_range().end
}

//! The journal as an auditor reads it: from the files alone, with the salts at hand.
//!
//! Leaves are opened with their salts, and what they commit to is made anew from the transcript: what is
//! recorded is shown to be right, not only to be there.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use countersign_log::canonical::{Mode, canonical};
use countersign_log::commitment::commit;
use countersign_log::hash::Hash;
use countersign_log::hex;
use countersign_log::leaf::{Kind, Leaf};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::client::SERVER;

/// The members of a JSON object, as raw JSON.
pub(crate) fn members(object: &str) -> HashMap<String, String> {
    let members: HashMap<String, Box<RawValue>> = serde_json::from_str(object).unwrap_or_default();
    members
        .into_iter()
        .map(|(name, value)| (name, value.get().to_owned()))
        .collect()
}

/// A call as the transcript has it.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    /// The tool's name as it must stand in the record.
    tool: String,
    /// Raw JSON of the arguments.
    arguments: String,
    /// X: raw JSON of what the client got.
    got: String,
    is_error: bool,
}

/// A call of `tool` and the line that answered it.
pub(crate) fn called(tool: &str, arguments: &str, answer: &str) -> Called {
    let answer = members(answer);
    let (got, is_error) = match (answer.get("error"), answer.get("result")) {
        (Some(error), _) => (format!("{{\"error\":{error}}}"), true),
        (None, Some(result)) => {
            let is_error = members(result)
                .get("isError")
                .is_some_and(|flag| flag == "true");
            (result.clone(), is_error)
        }
        (None, None) => panic!("neither a result nor an error: {answer:?}"),
    };
    Called {
        tool: tool.to_owned(),
        arguments: arguments.to_owned(),
        got,
        is_error,
    }
}

/// A call that ended with an error that the client was not told of by its id.
pub(crate) fn called_with_error(tool: &str, arguments: &str, code: i64, message: &str) -> Called {
    let error = json!({ "error": { "code": code, "message": message } });
    called(tool, arguments, &error.to_string())
}

/// A call that the client took back.
pub(crate) fn cancelled(tool: &str, arguments: &str) -> Called {
    called_with_error(
        tool,
        arguments,
        -32000,
        "countersign: cancelled by the client",
    )
}

/// A journal with its sidecars.
pub(crate) struct Journal {
    path: PathBuf,
    pub(crate) header: Value,
    pub(crate) leaves: Vec<Leaf>,
    /// Results by their intents.
    results: BTreeMap<u64, Vec<u64>>,
    salts: HashMap<u64, [u8; 32]>,
}

impl Journal {
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let mut lines = text.lines();
        let header = lines.next().expect("a journal has a header");
        let leaves = lines
            .filter(|line| line.contains("\"leaf_type\""))
            .map(|line| Leaf::read(line.as_bytes()).expect("a leaf"))
            .collect();
        let number = |value: &Value| value.as_u64().expect("a number");
        let salts = sidecar(path, "salts").into_iter().map(|line| {
            let salt = hex::decode(line["s"].as_str().expect("a salt").as_bytes());
            (number(&line["i"]), salt.expect("64 hex digits"))
        });
        let mut results = BTreeMap::<u64, Vec<u64>>::new();
        for pair in sidecar(path, "calls")
            .iter()
            .filter(|line| !line["r"].is_null())
        {
            results
                .entry(number(&pair["i"]))
                .or_default()
                .push(number(&pair["r"]));
        }
        Self {
            path: path.to_owned(),
            header: serde_json::from_str(header).expect("a header is JSON"),
            leaves,
            results,
            salts: salts.collect(),
        }
    }

    /// One letter for each leaf: Intent, Result, Memory.
    pub(crate) fn kinds(&self) -> String {
        self.leaves.iter().map(|leaf| letter(leaf.kind())).collect()
    }

    pub(crate) fn count(&self, kind: char) -> usize {
        self.kinds().matches(kind).count()
    }

    /// Whether the leaf commits to exactly this payload.
    pub(crate) fn commits(&self, index: u64, payload: &[u8]) -> bool {
        let leaf = &self.leaves[usize::try_from(index).expect("leaves fit in memory")];
        let salt = self
            .salts
            .get(&index)
            .expect("every payload leaf has its salt");
        leaf.payload_hash == commit(payload, salt, index).to_hex()
    }

    /// Demands that the journal holds exactly these calls, in the order of their intents: each intent
    /// once, with one result, and both commit to what the transcript says.
    #[track_caller]
    pub(crate) fn assert_calls(&self, calls: &[Called]) {
        let intents: Vec<u64> = self
            .leaves
            .iter()
            .filter(|leaf| letter(leaf.kind()) == 'I')
            .map(|leaf| leaf.index)
            .collect();
        assert_eq!(
            intents.len(),
            calls.len(),
            "{}: {}",
            self.path.display(),
            self.kinds()
        );
        assert_eq!(self.count('R'), calls.len(), "{}", self.kinds());
        for (intent, call) in intents.into_iter().zip(calls) {
            assert!(
                self.commits(intent, &intent_payload(call)),
                "leaf {intent} is not the intent of {call:?}"
            );
            let [result] = self.results.get(&intent).map_or(&[][..], Vec::as_slice) else {
                panic!(
                    "intent {intent} has not one result: {:?}",
                    self.results.get(&intent)
                );
            };
            assert!(
                self.commits(*result, &result_payload(call, intent)),
                "leaf {result} is not the result of {call:?}"
            );
        }
    }
}

fn letter(kind: Option<Kind>) -> char {
    match kind {
        Some(Kind::Intent) => 'I',
        Some(Kind::Result) => 'R',
        Some(Kind::Memory) => 'M',
        _ => '?',
    }
}

fn sidecar(path: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(format!("{}.{name}", path.display())).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

fn digest(text: &str) -> String {
    let canonical = canonical(text.as_bytes(), Mode::Recorder).expect("the recorder takes all");
    Hash::of(&[&canonical]).to_hex()
}

fn intent_payload(call: &Called) -> Vec<u8> {
    let arguments = if call.arguments == "null" {
        "{}"
    } else {
        &call.arguments
    };
    payload(&json!({
        "args_sha256": digest(arguments),
        "profile": "mcp.tools/call v1",
        "server": SERVER,
        "tool": call.tool,
    }))
}

fn result_payload(call: &Called, intent: u64) -> Vec<u8> {
    payload(&json!({
        "intent_index": intent,
        "is_error": call.is_error,
        "profile": "mcp.tools/call v1",
        "result_sha256": digest(&call.got),
        "server": SERVER,
        "tool": call.tool,
    }))
}

/// `countersign.exact v1` for a line that was forwarded as it came, or not at all.
pub(crate) fn exact_payload(intent: u64, received: &str, was_forwarded: bool) -> Vec<u8> {
    let received = Hash::of(&[received.as_bytes()]).to_hex();
    payload(&json!({
        "forwarded_sha256": was_forwarded.then_some(&received),
        "intent_index": intent,
        "profile": "countersign.exact v1",
        "received_sha256": received,
    }))
}

/// `countersign.lost v1` for intents of this journal's own sessions.
pub(crate) fn lost_payload(intents: &[u64]) -> Vec<u8> {
    payload(&json!({ "intents": intents, "profile": "countersign.lost v1" }))
}

fn payload(value: &Value) -> Vec<u8> {
    canonical(value.to_string().as_bytes(), Mode::Recorder).expect("the recorder takes all")
}

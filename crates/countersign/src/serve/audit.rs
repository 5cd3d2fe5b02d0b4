//! The two tools that we add to the server's own: `audit__status` and `audit__export`.
//!
//! They look at the journal and leave no leaf: looking must not move the head. Where the server has a
//! tool of the same name, the name is the server's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_log::export;
use serde_json::{Value, json};

use crate::call::{Era, Reply};
use crate::message::{Message, Parsed, Splice};
use crate::recorder::Recorder;
use crate::stderr::note;
use crate::upstream::child::ChildUpstream;

/// One of our tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Where the journal stands.
    Status,
    /// Writes the dossier.
    Export,
}

const TOOLS: [(Tool, &str, &str); 2] = [
    (
        Tool::Status,
        "audit__status",
        "Tells how this session is being recorded: the journal, its size and root, its identity.",
    ),
    (
        Tool::Export,
        "audit__export",
        "Writes the evidence so far to a dossier file that anyone can verify, and tells where it is.",
    ),
];

/// Answers for the journal.
pub struct Audit {
    server: String,
    recorder: Recorder,
    upstream: ChildUpstream,
    /// Which names the server uses itself, in the order of [`TOOLS`].
    taken: [AtomicBool; 2],
    last_verdict: Mutex<Option<&'static str>>,
    /// One export at a time: they write the same file.
    exporting: tokio::sync::Mutex<()>,
}

impl Audit {
    /// Answers for what `recorder` writes about `server`.
    pub fn new(server: &str, recorder: Recorder, upstream: ChildUpstream) -> Self {
        Self {
            server: server.to_owned(),
            recorder,
            upstream,
            taken: [AtomicBool::new(false), AtomicBool::new(false)],
            last_verdict: Mutex::new(None),
            exporting: tokio::sync::Mutex::default(),
        }
    }

    /// The tool of ours that an unambiguous call names.
    pub fn claims(&self, call: &Message) -> Option<Tool> {
        let name = call.tool_call().name()?;
        let at = TOOLS.iter().position(|(_, ours, _)| *ours == name)?;
        (!self.taken[at].load(Ordering::Relaxed)).then_some(TOOLS[at].0)
    }

    /// Adds our tools behind the server's own, on the last page of the list.
    pub fn add_tools(&self, mut reply: Reply) -> Reply {
        let Some(list) = reply.answered() else {
            return reply;
        };
        let Some(tools) = list
            .member(&["result", "tools"])
            .filter(|at| list.raw()[at.start] == b'[')
        else {
            return reply;
        };
        self.yield_names(&list.raw()[tools.clone()]);
        if list
            .member(&["result", "nextCursor"])
            .is_some_and(|at| &list.raw()[at] != b"null")
        {
            return reply;
        }
        let ours: Vec<Vec<u8>> = TOOLS
            .iter()
            .zip(&self.taken)
            .filter(|(_, taken)| !taken.load(Ordering::Relaxed))
            .map(|((_, name, description), _)| definition(name, description))
            .collect();
        let ours: Vec<&[u8]> = ours.iter().map(Vec::as_slice).collect();
        let longer = Splice::new(list.raw())
            .append(tools, &ours)
            .and_then(Splice::finish);
        match longer.map(Message::parse) {
            Ok(Ok(Parsed::One(list))) => reply.replace(list),
            _ => note!("the audit tools could not be added to a list of tools of an unusual form"),
        }
        reply
    }

    /// Answers a call of one of our tools.
    pub async fn answer(&self, tool: Tool, call: &Message) -> Reply {
        let era = Era::of(call);
        let outcome = match unexpected(call) {
            Some(why) => Err(why),
            None => match self.recorder.opened().await {
                Err(why) => Err(why),
                Ok(()) => match tool {
                    Tool::Status => self.status(),
                    Tool::Export => self.export().await,
                },
            },
        };
        result(outcome, era)
    }

    fn status(&self) -> Result<Members, String> {
        let standing = self.recorder.standing()?;
        let verdict = *self
            .last_verdict
            .lock()
            .expect("no code that holds it panics");
        Ok(vec![
            ("server", json!(self.server)),
            ("journal", json!(standing.path)),
            ("leaf_count", json!(standing.leaf_count)),
            ("root", json!(standing.root.to_hex())),
            ("identity", json!(standing.identity)),
            ("calls", json!(standing.outcomes)),
            ("restarts", json!(self.upstream.restarts())),
            ("witnessed", json!(false)),
            ("last_verdict", json!(verdict)),
            ("directory_source", Value::Null),
        ])
    }

    async fn export(&self) -> Result<Members, String> {
        let _alone = self.exporting.lock().await;
        let recorder = self.recorder.clone();
        let written = tokio::task::spawn_blocking(move || {
            let head = recorder.sign_head()?;
            export::dossier(&head.path, &head.checkpoint).map_err(|error| error.to_string())
        });
        let dossier = written.await.map_err(|error| error.to_string())??;
        *self
            .last_verdict
            .lock()
            .expect("no code that holds it panics") = Some(dossier.verdict.name());
        Ok(vec![
            ("path", json!(dossier.path)),
            ("sha256", json!(dossier.sha256.to_hex())),
            ("bytes", json!(dossier.octets)),
            ("verdict", json!(dossier.verdict.name())),
            ("directory_source", Value::Null),
            ("split_view_unsafe", json!(false)),
            ("tamper_alerts", json!([])),
        ])
    }

    /// Leaves to the server the names that it uses itself.
    fn yield_names(&self, tools: &[u8]) {
        let Ok(tools) = serde_json::from_slice::<Vec<Value>>(tools) else {
            return;
        };
        for tool in &tools {
            let ours = TOOLS.iter().position(|(_, name, _)| tool["name"] == *name);
            if let Some(at) = ours
                && !self.taken[at].swap(true, Ordering::Relaxed)
            {
                note!(
                    "the server has a tool named {}: the name stays the server's",
                    TOOLS[at].1
                );
            }
        }
    }
}

/// The members of a result, in their order.
type Members = Vec<(&'static str, Value)>;

/// The reference lists the names of unexpected arguments; none are expected.
fn unexpected(call: &Message) -> Option<String> {
    let arguments = call.tool_call().arguments_raw?;
    match serde_json::from_slice::<Value>(&arguments) {
        Ok(Value::Null | Value::Bool(false)) => None,
        Ok(Value::Object(members)) if members.is_empty() => None,
        Ok(Value::Object(members)) => {
            let names: Vec<&str> = members.keys().map(String::as_str).collect();
            Some(format!(
                "this tool takes no arguments, and was given {}",
                names.join(", ")
            ))
        }
        _ => Some("this tool takes no arguments".into()),
    }
}

/// A tool result, in the dialect of the caller.
fn result(outcome: Result<Members, String>, era: Era) -> Reply {
    let modern = match era {
        Era::Legacy => String::new(),
        Era::Modern => format!(
            ",\"resultType\":\"complete\",\"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{{\"name\":\"countersign\",\"version\":\"{}\"}}}}",
            env!("CARGO_PKG_VERSION")
        ),
    };
    let (text, structured, is_error) = match outcome {
        Ok(members) => {
            let structured = format!(",\"structuredContent\":{}", object(&members, ",", ":"));
            (object(&members, ", ", ": "), structured, false)
        }
        Err(why) => (format!("countersign: {why}"), String::new(), true),
    };
    let text = Value::String(text);
    let body = format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}]{structured},\"isError\":{is_error}{modern}}}"
    );
    Reply::raw_result(body.into())
}

/// A JSON object with its members in their order.
fn object(members: &Members, comma: &str, colon: &str) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\"{colon}{value}"))
        .collect();
    format!("{{{}}}", members.join(comma))
}

/// How one of our tools stands in a list of tools.
fn definition(name: &str, description: &str) -> Vec<u8> {
    format!(
        "{{\"name\":\"{name}\",\"description\":\"{description}\",\
         \"inputSchema\":{{\"type\":\"object\",\"properties\":{{}},\"additionalProperties\":false}}}}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;

//! A server that does what the tests tell it to, right or wrong.
//!
//! It answers the usual methods as a small MCP server does. Any request or notification whose `params`
//! or `arguments` hold a `script` is done step by step instead, on a thread of its own, so that a test
//! can have every misbehaviour that it needs. It writes each line that it gets to the file that `--log`
//! names, before it acts on it. It shares no code with the program under test.
//!
//! Steps, each an array: `["out", TEXT]` a line; `["part", TEXT]` the same without its newline; `["octets", [N, …]]` as they are;
//! `["answer", RESULT]`; `["sleep", MS]`; `["exit", CODE]`; `["kill", SIGNAL]`; `["stderr", TEXT]`;
//! `["await", ID]` until the client has answered question ID; `["fill", OCTETS]` a result of that size;
//! `["deaf"]` no longer reads; `["grandchild"]` starts one; `["once", PATH]` ends the script with the
//! usual answer unless it is the first to make PATH, `["later", PATH]` if it is. In texts `$ID` is the request's id as it came,
//! `$REPLY` the answer awaited last, `$PID` the grandchild's.
//!
//! Flags: `--log FILE`; `--pages N` of tools; `--audit-tool` has a tool named `audit__status`;
//! `--stubborn` ignores the end of its input and SIGTERM.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead as _, Write as _};
use std::process::{Command, Stdio, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Longest that a grandchild, or a server that will not end, stays: no test needs it longer.
const STAY: Duration = Duration::from_secs(60);
/// Longest wait for a client's answer.
const REPLY_WAIT: Duration = Duration::from_secs(30);

type Raw = HashMap<String, Box<RawValue>>;

#[derive(Default)]
struct Server {
    log: Option<String>,
    pages: usize,
    audit_tool: bool,
    deaf: AtomicBool,
    /// The client's answers by the text of their ids.
    replies: Mutex<HashMap<String, String>>,
    replied: Condvar,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if flag("--idle") {
        return thread::sleep(STAY);
    }
    if flag("--stubborn") {
        ignore_sigterm();
    }
    let server = Arc::new(Server {
        log: value("--log"),
        pages: value("--pages").map_or(1, |pages| pages.parse().expect("--pages takes a number")),
        audit_tool: flag("--audit-tool"),
        ..Server::default()
    });
    server.log(format!("# start {}", std::process::id()).as_bytes());
    let mut stdin = std::io::stdin().lock();
    let mut line = Vec::new();
    while let Ok(1..) = stdin.read_until(b'\n', &mut line) {
        line.pop_if(|octet| *octet == b'\n');
        server.log(&line);
        server.take(&line);
        line.clear();
        if server.deaf.load(Ordering::Relaxed) {
            thread::sleep(STAY);
        }
    }
    server.log(b"# end");
    if flag("--stubborn") {
        thread::sleep(STAY);
    }
}

/// A handler of the runtime's replaces the signal's usual effect for as long as the process lives.
fn ignore_sigterm() {
    let (ready, is_ready) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let kind = tokio::signal::unix::SignalKind::terminate();
            let mut terms = tokio::signal::unix::signal(kind).expect("a handler");
            ready.send(()).expect("main waits");
            while terms.recv().await.is_some() {}
        });
    });
    is_ready.recv().expect("the handler is there");
}

impl Server {
    fn log(&self, line: &[u8]) {
        let Some(path) = &self.log else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let line = [line, b"\n"].concat();
        file.and_then(|mut file| file.write_all(&line))
            .expect("the log can be written");
    }

    fn take(self: &Arc<Self>, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Raw>(line) else {
            return;
        };
        let id = message.get("id").map(|id| id.get().to_owned());
        let method = text(member(&message, "method"));
        let Some(method) = method else {
            if let Some(id) = id {
                let line = String::from_utf8_lossy(line).into_owned();
                self.replies.lock().expect("no panics").insert(id, line);
                self.replied.notify_all();
            }
            return;
        };
        let params = object(member(&message, "params"));
        let arguments = object(member(&params, "arguments"));
        let script = arguments.get("script").or(params.get("script"));
        let usual = id.as_ref().map(|id| self.usual(id, &method, &params));
        match script {
            Some(script) => {
                let steps: Vec<Vec<Value>> =
                    serde_json::from_str(script.get()).expect("a script is an array of arrays");
                let (server, id) = (Arc::clone(self), id.unwrap_or_default());
                thread::spawn(move || server.perform(&steps, &id, usual));
            }
            None => usual.into_iter().for_each(|answer| say(&answer)),
        }
    }

    fn usual(&self, id: &str, method: &str, params: &Raw) -> String {
        let param = |name: &str| params.get(name).map_or("null", |raw| raw.get()).to_owned();
        let result = match method {
            "initialize" => format!(
                "{{\"protocolVersion\":{},\"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{{\"name\":\"fake\",\"version\":\"1\"}}}}",
                param("protocolVersion")
            ),
            "server/discover" => {
                "{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}},\
                \"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"}"
                    .to_owned()
            }
            "subscriptions/listen" => {
                return format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{{\
                     \"_meta\":{{\"io.modelcontextprotocol/subscriptionId\":{id}}},\"notifications\":{{}}}}}}"
                );
            }
            "tools/list" => self.tools(&param("cursor")),
            "tools/call" => format!(
                "{{\"content\":[{{\"type\":\"text\",\"text\":\"done\"}}],\"isError\":{},\"echo\":{}}}",
                param("name") == "\"fail\"",
                param("arguments")
            ),
            _ => "{}".to_owned(),
        };
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
    }

    fn tools(&self, cursor: &str) -> String {
        let page: usize = cursor.trim_matches('"').parse().unwrap_or(0);
        let mut tools =
            vec![json!({ "name": format!("tool{page}"), "inputSchema": { "type": "object" } })];
        if self.audit_tool {
            tools.push(json!({ "name": "audit__status", "inputSchema": { "type": "object" } }));
        }
        match page + 1 < self.pages {
            true => json!({ "tools": tools, "nextCursor": (page + 1).to_string() }),
            false => json!({ "tools": tools }),
        }
        .to_string()
    }

    fn perform(&self, steps: &[Vec<Value>], id: &str, usual: Option<String>) {
        let mut reply = String::new();
        let mut grandchild = 0;
        for step in steps {
            let argument = step.get(1).cloned().unwrap_or_default();
            let number = argument.as_u64().unwrap_or(0);
            let filled = argument
                .as_str()
                .unwrap_or("")
                .replace("$ID", id)
                .replace("$REPLY", &Value::from(reply.as_str()).to_string())
                .replace("$PID", &grandchild.to_string());
            match step
                .first()
                .and_then(Value::as_str)
                .expect("a step has a name")
            {
                "out" => say(&filled),
                "part" => write(filled.as_bytes()),
                "octets" => write(&octets(&argument)),
                "answer" => say(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{filled}}}"
                )),
                "sleep" => thread::sleep(Duration::from_millis(number)),
                "exit" => exit(i32::try_from(number).expect("an exit code")),
                "kill" => kill_ourselves(number),
                "stderr" => std::io::stderr()
                    .write_all(format!("{filled}\n").as_bytes())
                    .expect("stderr"),
                "await" => reply = self.reply(&filled),
                "fill" => say(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{}\"}}]}}}}",
                    "x".repeat(usize::try_from(number).expect("a size"))
                )),
                "deaf" => self.deaf.store(true, Ordering::Relaxed),
                "grandchild" => grandchild = start_grandchild(),
                kind @ ("once" | "later") => {
                    let first = OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .open(&filled)
                        .is_ok();
                    if first != (kind == "once") {
                        return usual.into_iter().for_each(|answer| say(&answer));
                    }
                }
                unknown => panic!("no step {unknown}"),
            }
        }
    }

    fn reply(&self, id: &str) -> String {
        let replies = self.replies.lock().expect("no panics");
        let (mut replies, _) = self
            .replied
            .wait_timeout_while(replies, REPLY_WAIT, |replies| !replies.contains_key(id))
            .expect("no panics");
        replies.remove(id).unwrap_or_else(|| "no reply".to_owned())
    }
}

fn start_grandchild() -> u32 {
    let ourselves = std::env::current_exe().expect("a path");
    Command::new(ourselves)
        .arg("--idle")
        .stdin(Stdio::null())
        .spawn()
        .expect("a grandchild")
        .id()
}

fn kill_ourselves(signal: u64) {
    let signal = i32::try_from(signal).expect("a signal");
    let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal's number");
    rustix::process::kill_process(rustix::process::getpid(), signal)
        .expect("a signal to ourselves");
    thread::sleep(STAY);
}

fn octets(list: &Value) -> Vec<u8> {
    serde_json::from_value(list.clone()).expect("a list of octets")
}

fn say(line: &str) {
    write(format!("{line}\n").as_bytes());
}

fn write(text: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    // A reader that is gone needs nothing.
    let _ = stdout.write_all(text).and_then(|()| stdout.flush());
}

fn member<'a>(object: &'a Raw, name: &str) -> Option<&'a RawValue> {
    object.get(name).map(AsRef::as_ref)
}

fn object(raw: Option<&RawValue>) -> Raw {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default()
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

//! `countersign demo`: the whole story in a few seconds, with the program itself and a built-in server.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::Demo;
use crate::commands::verify::judge_files;
use crate::say::data;

/// The demo's time limit for a call, in seconds.
const TIMEOUT_S: &str = "1";

/// What the server sleeps on after the time limit: the nap is half a second longer.
const NAP_REST: Duration = Duration::from_millis(700);

pub(crate) fn run(args: &Demo) -> ExitCode {
    match story(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("countersign demo: {why}");
            ExitCode::FAILURE
        }
    }
}

fn story(args: &Demo) -> Result<(), String> {
    let folder =
        folder(args.keep.as_deref()).map_err(|error| format!("no folder for the demo: {error}"))?;
    let journal = folder.join("sample.wlog");
    data(&format!(
        "countersign stands between a client and an MCP server.\n\
         The client here is this program, the server a built-in one; the journal is {}\n\n",
        journal.display()
    ));
    let mut client = Client::start(&folder, &journal)
        .map_err(|error| format!("cannot start `wrap`: {error}"))?;
    calls(&mut client)?;
    client.end()?;
    data(
        "\nThe client has hung up. What a stranger can check of the journal, with no trust in us:\n\n",
    );
    judge(&journal, true)?;
    forge(&journal)?;
    data("\nNow one digit in one recorded leaf is changed, as somebody with the disk could:\n\n");
    judge(&journal, false)?;
    data(
        "\nThe forgery is caught. Put `countersign wrap --name NAME --` in front of a server of yours.\n",
    );
    Ok(())
}

fn folder(wanted: Option<&Path>) -> io::Result<PathBuf> {
    let folder = match wanted {
        Some(folder) => folder.to_owned(),
        None => std::env::temp_dir().join(format!(
            "countersign-demo-{}-{}",
            std::process::id(),
            countersign::clock::now_ms()
        )),
    };
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn calls(client: &mut Client) -> Result<(), String> {
    client.ask("initialize", &json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "demo", "version": "1" },
    }))?;
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
    let tools = client.ask("tools/list", &json!({}))?;
    let names: Vec<&str> = tools["result"]["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    data(&format!(
        "The server's tools, and two of ours: {}\n",
        names.join(", ")
    ));
    client.show("a call", "add", &json!({ "a": 2, "b": 40 }))?;
    client.show("a call that fails", "add", &json!({ "a": "two" }))?;
    client.show("a call over the time limit", "nap", &json!({ "ms": 1500 }))?;
    // The server still sleeps, and answers nobody until it wakes.
    std::thread::sleep(NAP_REST);
    client.show("a call that ends the server", "crash", &json!({}))?;
    client.show(
        "the next one, on a new server",
        "add",
        &json!({ "a": 1, "b": 1 }),
    )?;
    client.show("what is recorded", "audit__status", &json!({}))?;
    client.show("the evidence as one file", "audit__export", &json!({}))
}

/// Verifies, and says how that went; an error unless it went as the story wants.
fn judge(journal: &Path, holds: bool) -> Result<(), String> {
    if judge_files(&[journal.to_owned()], None, false)? == holds {
        Ok(())
    } else {
        Err("the verdict is not the one that this story ends with".into())
    }
}

/// Changes one hex digit of the first leaf's commitment.
fn forge(journal: &Path) -> Result<(), String> {
    let mut octets = fs::read(journal).map_err(|error| error.to_string())?;
    let key = b"\"leaf_type\":1,";
    let leaf = octets
        .windows(key.len())
        .position(|window| window == key)
        .ok_or("the journal has no intent")?;
    let member = b"\"payload_hash\":\"";
    let at = leaf
        + octets[leaf..]
            .windows(member.len())
            .position(|window| window == member)
            .ok_or("the leaf has no commitment")?;
    let digit = &mut octets[at + member.len()];
    *digit = if *digit == b'0' { b'1' } else { b'0' };
    fs::write(journal, octets).map_err(|error| error.to_string())
}

/// A client that talks to `countersign wrap`.
struct Client {
    wrap: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Client {
    fn start(folder: &Path, journal: &Path) -> io::Result<Self> {
        let ourselves = std::env::current_exe()?;
        let mut wrap = Command::new(&ourselves)
            .args([
                "wrap",
                "--name",
                "sample",
                "--timeout",
                TIMEOUT_S,
                "--journal",
            ])
            .arg(journal)
            .arg("--")
            .arg(&ourselves)
            .arg("sample-server")
            .env("XDG_STATE_HOME", folder.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(output)) = (wrap.stdin.take(), wrap.stdout.take()) else {
            return Err(io::Error::other("no pipes"));
        };
        Ok(Self {
            wrap,
            input,
            output: BufReader::new(output),
            last_id: 0,
        })
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        writeln!(self.input, "{message}").map_err(|error| format!("`wrap` does not read: {error}"))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.last_id += 1;
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }),
        )?;
        let mut line = String::new();
        let length = self
            .output
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        if length == 0 {
            return Err("`wrap` has ended".into());
        }
        serde_json::from_str(&line).map_err(|error| format!("`wrap` sent no JSON: {error}"))
    }

    fn show(&mut self, what: &str, tool: &str, arguments: &Value) -> Result<(), String> {
        let answer = self.ask(
            "tools/call",
            &json!({ "name": tool, "arguments": arguments }),
        )?;
        let text = match &answer["error"] {
            Value::Null => answer["result"]["content"][0]["text"]
                .as_str()
                .unwrap_or("")
                .to_owned(),
            error => error["message"].as_str().unwrap_or("").to_owned(),
        };
        data(&format!("  {what:<30} {tool} {arguments}\n    -> {text}\n"));
        Ok(())
    }

    fn end(self) -> Result<(), String> {
        let Self {
            mut wrap,
            input,
            output,
            ..
        } = self;
        drop((input, output));
        let status = wrap.wait().map_err(|error| error.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`wrap` ended with {status}"))
        }
    }
}

//! The little MCP server that the demo talks to: three tools, over stdin and stdout.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

/// Exit code of the tool that ends its server.
const CRASH_CODE: u8 = 3;

/// Longest that the slow tool sleeps.
const NAP_MS_MAX: u64 = 60_000;

pub(crate) fn run() -> ExitCode {
    let mut stdout = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(request) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if request["method"] == "tools/call" && request["params"]["name"] == "crash" {
            return ExitCode::from(CRASH_CODE);
        }
        let Some(answer) = answer(&request) else {
            continue;
        };
        // A client that is gone needs no answer.
        if writeln!(stdout, "{answer}")
            .and_then(|()| stdout.flush())
            .is_err()
        {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn answer(request: &Value) -> Option<Value> {
    let id = request.get("id")?;
    let outcome = match request["method"].as_str()? {
        "initialize" => Ok(json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "sample", "version": env!("CARGO_PKG_VERSION") },
        })),
        "ping" => Ok(json!({})),
        "tools/list" => Ok(json!({ "tools": tools() })),
        "tools/call" => call(&request["params"]),
        method => Err(json!({ "code": -32601, "message": format!("no method {method}") })),
    };
    Some(match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    })
}

fn tools() -> Value {
    let numbers = json!({ "type": "object", "properties": { "a": { "type": "number" }, "b": { "type": "number" } } });
    let nap = json!({ "type": "object", "properties": { "ms": { "type": "integer" } } });
    json!([
        { "name": "add", "description": "Adds two numbers.", "inputSchema": numbers },
        { "name": "nap", "description": "Sleeps, then answers.", "inputSchema": nap },
        { "name": "crash", "description": "Ends the server.", "inputSchema": { "type": "object" } },
    ])
}

fn call(params: &Value) -> Result<Value, Value> {
    let arguments = &params["arguments"];
    let (text, is_error) = match params["name"].as_str() {
        Some("add") => match (arguments["a"].as_f64(), arguments["b"].as_f64()) {
            (Some(a), Some(b)) => ((a + b).to_string(), false),
            _ => ("a and b must be numbers".to_owned(), true),
        },
        Some("nap") => {
            std::thread::sleep(Duration::from_millis(
                arguments["ms"].as_u64().unwrap_or(0).min(NAP_MS_MAX),
            ));
            ("awake".to_owned(), false)
        }
        name => return Err(json!({ "code": -32602, "message": format!("no tool {name:?}") })),
    };
    Ok(json!({ "content": [{ "type": "text", "text": text }], "isError": is_error }))
}

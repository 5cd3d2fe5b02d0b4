//! `countersign-verify`: says what holds of journals and dossiers, and needs nothing but the files.
//!
//! Arguments in, the library's words out; every judgement is made there.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use countersign_log::keys::PublicKey;
use countersign_log::report;
use countersign_log::verdict::{self, Verdict};

const USAGE: &str = "usage: countersign-verify FILE|DIR... [--identity HEX] [--json]
  FILE: a journal (.wlog; any segment stands for its set) or a dossier; DIR: all journals in it
  --identity HEX  fail unless this identity wrote it
  --json          one JSON object a file, one a line
exit: 0 fine, 1 something does not hold, 2 usage or unreadable
";

/// What was asked for.
struct Request {
    paths: Vec<PathBuf>,
    identity: Option<String>,
    json: bool,
}

fn main() -> ExitCode {
    let request = match parse(std::env::args_os().skip(1)) {
        Ok(Some(request)) => request,
        Ok(None) => return finish(io::stdout().write_all(USAGE.as_bytes()), ExitCode::SUCCESS),
        Err(why) => return complain(&why),
    };
    match run(&request) {
        Ok(Verdict::Invalid) => ExitCode::from(1),
        Ok(Verdict::Unanchored) => ExitCode::SUCCESS,
        Err(why) => complain(&why),
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Request>, String> {
    let mut request = Request {
        paths: Vec::new(),
        identity: None,
        json: false,
    };
    let mut arguments = arguments;
    let mut options = true;
    while let Some(argument) = arguments.next() {
        match argument.to_str().filter(|_| options) {
            Some("--") => options = false,
            Some("--json") => request.json = true,
            Some("--help" | "-h") => return Ok(None),
            Some("--identity") => {
                let value = arguments.next().unwrap_or_default();
                let value = value.to_string_lossy();
                PublicKey::from_hex(&value)
                    .map_err(|error| format!("--identity: {error}; give 64 hex digits"))?;
                request.identity = Some(value.into_owned());
            }
            Some(option) if option.starts_with('-') => {
                return Err(format!(
                    "{option} is no option; see countersign-verify --help"
                ));
            }
            _ => request.paths.push(argument.into()),
        }
    }
    if request.paths.is_empty() {
        return Err(format!("no file named\n{}", USAGE.trim_end()));
    }
    Ok(Some(request))
}

/// The worst verdict of all that was asked for, each told as soon as it is known.
fn run(request: &Request) -> Result<Verdict, String> {
    let targets = verdict::targets(&request.paths).map_err(|error| error.to_string())?;
    let mut worst = Verdict::Unanchored;
    for target in &targets {
        let reports = verdict::verify(target, request.identity.as_deref())
            .map_err(|error| error.to_string())?;
        for report in &reports {
            let told = if request.json {
                format!("{}\n", report::json(report))
            } else {
                report::text(report)
            };
            io::stdout()
                .write_all(told.as_bytes())
                .map_err(|error| format!("cannot write the report: {error}"))?;
            if report.verdict() == Verdict::Invalid {
                worst = Verdict::Invalid;
            }
        }
    }
    Ok(worst)
}

fn complain(why: &str) -> ExitCode {
    // If even standard error is closed, the exit code says the same.
    finish(
        writeln!(io::stderr(), "countersign-verify: {why}"),
        ExitCode::from(2),
    )
}

fn finish(written: io::Result<()>, code: ExitCode) -> ExitCode {
    match written {
        Ok(()) => code,
        Err(_) => ExitCode::from(2),
    }
}

//! The command lines under test: what stands between the client and the echo server.
//!
//! A contender is a row of [`LINES`]. One whose program is not there, or does not have the options
//! of its line, is left out and named: it never becomes a number.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that Assay must be told to let every call through.
const ASSAY_POLICY: &str = "version: \"2.0\"\nname: bench\ntools:\n  allow: [\"*\"]\nenforcement:\n  unconstrained_tools: allow\n";

/// The method of every call but those of a contender that is to record nothing.
const TOOLS_CALL: &str = "tools/call";
/// A method that the echo server answers like `tools/call`, and that no proxy records.
const UNRECORDED: &str = "bench/call";

/// Name, method, and words before the echo server's own command. `{bench}`, `{product}` and `{peers}` are
/// the folders of programs, `{dir}` is an empty folder of this run.
const LINES: &[(&str, &str, &str)] = &[
    ("direct", TOOLS_CALL, ""),
    ("relay", TOOLS_CALL, "{bench}/relay"),
    (
        "countersign, not recorded",
        UNRECORDED,
        "{product}/countersign wrap --name echo --journal {dir}/j.wlog --",
    ),
    (
        "countersign, interval",
        TOOLS_CALL,
        "{product}/countersign wrap --name echo --journal {dir}/j.wlog --fsync interval --",
    ),
    (
        "countersign, never",
        TOOLS_CALL,
        "{product}/countersign wrap --name echo --journal {dir}/j.wlog --fsync never --",
    ),
    (
        "countersign, always",
        TOOLS_CALL,
        "{product}/countersign wrap --name echo --journal {dir}/j.wlog --fsync always --",
    ),
    (
        "assay mcp wrap",
        TOOLS_CALL,
        "{peers}/assay/bin/assay mcp wrap --policy {dir}/policy.yaml --event-source assay://bench --decision-log {dir}/decisions.ndjson --",
    ),
    (
        "witness-log-mcp-proxy",
        TOOLS_CALL,
        "{peers}/witness-log/bin/witness-log-mcp-proxy --name echo --journal {dir}/j.wlog --",
    ),
];

/// Where the programs are, as absolute paths.
pub(crate) struct Programs {
    /// `echo_server` and `relay`.
    pub(crate) bench: PathBuf,
    /// `countersign`.
    pub(crate) product: PathBuf,
    /// What `bench/peers` installed.
    pub(crate) peers: PathBuf,
}

/// One way from the client to the echo server.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    /// What its calls are called on the wire.
    pub(crate) method: &'static str,
    words: Vec<String>,
}

impl Contender {
    /// Every contender that can run here, and why each of the others cannot.
    ///
    /// `server_options` are for the echo server.
    pub(crate) fn all(programs: &Programs, server_options: &[&str]) -> (Vec<Self>, Vec<String>) {
        let mut present = Vec::new();
        let mut absent = Vec::new();
        for &(name, method, line) in LINES {
            let words = words(line, server_options, programs);
            match missing(&words) {
                None => present.push(Self {
                    name,
                    method,
                    words,
                }),
                Some(reason) => absent.push(format!("{name}: {reason}")),
            }
        }
        (present, absent)
    }

    /// The whole command, its files in `dir`. The policy is written there for the one that needs it.
    pub(crate) fn command(&self, dir: &Path) -> std::io::Result<Command> {
        std::fs::write(dir.join("policy.yaml"), ASSAY_POLICY)?;
        let dir = dir.to_string_lossy();
        let mut words = self.words.iter().map(|word| word.replace("{dir}", &dir));
        let mut command = Command::new(words.next().expect("the echo server ends every command"));
        command.args(words);
        Ok(command)
    }
}

fn words(line: &str, server_options: &[&str], programs: &Programs) -> Vec<String> {
    let place = |word: &str| {
        word.replace("{bench}", &programs.bench.to_string_lossy())
            .replace("{product}", &programs.product.to_string_lossy())
            .replace("{peers}", &programs.peers.to_string_lossy())
    };
    line.split_whitespace()
        .chain(["{bench}/echo_server"])
        .chain(server_options.iter().copied())
        .map(place)
        .collect()
}

/// Why this command cannot run, as far as that shows without running it: the program is not
/// there, or ours does not know an option, which its help would name.
fn missing(words: &[String]) -> Option<String> {
    let program = Path::new(&words[0]);
    if !program.exists() {
        return Some(format!("{} is not there", program.display()));
    }
    if words.get(1).is_none_or(|verb| verb != "wrap") {
        return None;
    }
    let help = Command::new(program)
        .args(["wrap", "--help"])
        .output()
        .ok()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    words
        .iter()
        .take_while(|word| *word != "--")
        .find(|word| word.starts_with("--") && !help.contains(word.as_str()))
        .map(|option| format!("`wrap --help` does not name {option}"))
}

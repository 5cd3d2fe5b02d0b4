//! The command line: what can be written, and what it means.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use countersign::recorder::Fsync;
use countersign_log::hash::Hash;
use countersign_log::tree::TreeHead;

/// The longest time limit: about 30 years, where a double still counts milliseconds.
const TIMEOUT_S_MAX: f64 = 1e9;

/// Puts MCP servers on record: every tool call leaves signed evidence that a stranger can check.
#[derive(Parser)]
#[command(
    name = "countersign",
    version,
    max_term_width = 100,
    infer_long_args = true,
    arg_required_else_help = true
)]
pub(crate) struct Program {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Stand in front of one MCP server and record every tool call
    #[command(after_long_help = WRAP_HELP)]
    Wrap(Wrap),
    /// Say what holds of a journal or a dossier, and what does not
    #[command(after_long_help = VERIFY_HELP)]
    Verify(Verify),
    /// See it work: real calls, a crash, a timeout, a verified journal, a caught forgery
    Demo(Demo),
    /// The little MCP server that the demo talks to
    #[command(name = "sample-server", hide = true)]
    SampleServer,
}

const WRAP_HELP: &str = "\
In a host's configuration, put it in front of the command that was there:

  \"command\": \"countersign\",
  \"args\": [\"wrap\", \"--name\", \"git\", \"--\", \"mcp-server-git\", \"--repository\", \".\"]

A journal given as a folder (with a slash at its end) gets one file for each process, so that several
windows of a host can run the same entry at once. The identity that signs comes from, in this order:
--seed-file; the variable that WITNESS_LOG_IDENTITY_SEED_ENV names; a key of ours in the state folder
($XDG_STATE_HOME/countersign or ~/.local/state/countersign), made at the first start.

Exit codes: 0 the client closed its input or we were told to end; 2 wrong use, or no start; else that
of the server, when it ended and was not started again (1 if it was killed).";

const VERIFY_HELP: &str = "\
FILE is a journal (.wlog; any segment stands for its set), a dossier, or a folder of journals.
Exit codes: 0 all of it holds, 1 something does not, 2 wrong use or unreadable.";

#[derive(Args)]
pub(crate) struct Wrap {
    /// What the server is called in the journal
    #[arg(long)]
    pub(crate) name: String,

    /// The journal: a file, or a folder with a slash at its end [default: a folder of this name in
    /// the state folder]
    #[arg(long, value_name = "FILE|DIR/")]
    pub(crate) journal: Option<PathBuf>,

    /// Seconds that the server may take for a request; `initialize` gets at least 300
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, allow_hyphen_values = true)]
    pub(crate) timeout: Duration,

    /// How often the server is started again when it ends by itself; a quiet minute restores all of them
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        allow_hyphen_values = true
    )]
    pub(crate) max_restarts: i32,

    /// When the journal is forced to the disk: once a second; before each forwarded call and each
    /// answer; or only for exports and at the end
    #[arg(long, value_enum, default_value_t = FsyncArg::Interval)]
    pub(crate) fsync: FsyncArg,

    /// A file with the identity's seed: 64 hex digits
    #[arg(long, value_name = "FILE", conflicts_with = "unsealed")]
    pub(crate) seed_file: Option<PathBuf>,

    /// Keep the seed in a new journal's own header: whoever reads it can sign in its name
    #[arg(long)]
    pub(crate) unsealed: bool,

    /// Go on with a journal that does not reproduce a head that was signed. The refusal prints what to give
    #[arg(long, value_name = "SIZE:ROOT", value_parser = head)]
    pub(crate) accept_head: Option<TreeHead>,

    /// The server's command and its arguments, behind `--`
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Audit proxy for a stdio MCP server, with the command line of witness-log-mcp-proxy.
#[derive(Parser)]
#[command(name = "witness-log-mcp-proxy", version, infer_long_args = true)]
pub(crate) struct Reference {
    /// What the server is called in the journal
    #[arg(long)]
    name: String,

    /// The journal's file
    #[arg(long)]
    journal: PathBuf,

    /// Seconds that the server may take for a call
    #[arg(long, default_value = "60", value_parser = seconds, allow_hyphen_values = true)]
    timeout: Duration,

    /// How often the server is started again
    #[arg(long, default_value_t = 3, allow_hyphen_values = true)]
    max_restarts: i32,

    /// The server's command and its arguments, behind `--`
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl From<Reference> for Wrap {
    fn from(reference: Reference) -> Self {
        Self {
            name: reference.name,
            journal: Some(reference.journal),
            timeout: reference.timeout,
            max_restarts: reference.max_restarts,
            fsync: FsyncArg::Interval,
            seed_file: None,
            unsealed: false,
            accept_head: None,
            command: reference.command,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FsyncArg {
    Interval,
    Always,
    Never,
}

impl From<FsyncArg> for Fsync {
    fn from(mode: FsyncArg) -> Self {
        match mode {
            FsyncArg::Interval => Self::Interval,
            FsyncArg::Always => Self::Always,
            FsyncArg::Never => Self::Never,
        }
    }
}

#[derive(Args)]
pub(crate) struct Verify {
    /// Journals, dossiers, or folders of journals
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Fail unless this identity (64 hex digits) wrote it
    #[arg(long, value_name = "HEX")]
    pub(crate) identity: Option<String>,

    /// One JSON object for each file, one a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Demo {
    /// Where the demo leaves its journal [default: a new folder among the temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    if seconds.is_nan() || seconds <= 0.0 {
        return Err("must be more than 0 seconds".into());
    }
    // Longer than anybody waits is as good as for ever.
    Ok(Duration::from_secs_f64(seconds.min(TIMEOUT_S_MAX)))
}

fn head(text: &str) -> Result<TreeHead, String> {
    let (size, root) = text.split_once(':').ok_or("must be SIZE:ROOT")?;
    let size = size
        .parse()
        .map_err(|_| "SIZE must be a number of leaves")?;
    let root = Hash::from_hex(root).map_err(|error| format!("ROOT: {error}"))?;
    Ok(TreeHead { size, root })
}

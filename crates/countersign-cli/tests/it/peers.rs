//! Real clients drive real servers, once directly and once through the proxy, and see the same.
//!
//! The one idea: a driver prints all that its client saw as one normalised document, so "nothing
//! changed" is one comparison of texts. Then the journal is read as an auditor would: as many
//! intents and results as calls were made, and it verifies. A peer that is not installed fails its
//! tests; none is ever skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program;
use crate::proxy::{self, Proxy, driver, peer, text};

/// The longest scenario takes 8 s on an idle machine; two runs of it stay below a test's deadline.
const SECONDS_MAX: u64 = 55;

/// How many lines before the first difference are shown, and how much of a line that differs.
const CONTEXT: usize = 12;
const SHOWN: usize = 400;

/// A client: the words that start its driver, and how it is told to negotiate.
struct Client {
    driver: fn() -> Vec<String>,
    mode: &'static str,
}

const PYTHON_2_AUTO: Client = Client {
    driver: python_2,
    mode: "auto",
};
const PYTHON_2_LEGACY: Client = Client {
    driver: python_2,
    mode: "legacy",
};
const PYTHON_2_MODERN: Client = Client {
    driver: python_2,
    mode: "2026-07-28",
};
const PYTHON_1: Client = Client {
    driver: python_1,
    mode: "legacy",
};
const TYPESCRIPT_1: Client = Client {
    driver: typescript_1,
    mode: "legacy",
};
const TYPESCRIPT_2_AUTO: Client = Client {
    driver: typescript_2,
    mode: "auto",
};
const TYPESCRIPT_2_LEGACY: Client = Client {
    driver: typescript_2,
    mode: "legacy",
};
const TYPESCRIPT_2_MODERN: Client = Client {
    driver: typescript_2,
    mode: "2026-07-28",
};

fn python_2() -> Vec<String> {
    vec![text(&peer("py2/bin/python")), text(&driver("drive_py2.py"))]
}

fn python_1() -> Vec<String> {
    vec![text(&peer("py1/bin/python")), text(&driver("drive_py1.py"))]
}

fn typescript_1() -> Vec<String> {
    peer("npm/node_modules/@modelcontextprotocol/sdk");
    vec!["node".into(), text(&driver("drive_ts1.mjs"))]
}

fn typescript_2() -> Vec<String> {
    peer("npm/node_modules/@modelcontextprotocol/client");
    vec!["node".into(), text(&driver("drive_ts2.mjs"))]
}

/// A server: the words that start it, given the folder it may use.
type Server = fn(&Path) -> Vec<String>;

fn git(folder: &Path) -> Vec<String> {
    vec![
        text(&peer("py2/bin/mcp-server-git")),
        "--repository".into(),
        text(folder),
    ]
}

fn time(_folder: &Path) -> Vec<String> {
    vec![
        text(&peer("py2/bin/mcp-server-time")),
        "--local-timezone".into(),
        "UTC".into(),
    ]
}

fn everything(_folder: &Path) -> Vec<String> {
    let mut words = npm_server("server-everything");
    words.push("stdio".into());
    words
}

fn filesystem(folder: &Path) -> Vec<String> {
    let mut words = npm_server("server-filesystem");
    words.push(text(folder));
    words
}

fn memory(_folder: &Path) -> Vec<String> {
    npm_server("server-memory")
}

/// Not a published server: it has what those lack, see its own head.
fn paged(_folder: &Path) -> Vec<String> {
    vec![
        text(&peer("py2/bin/python")),
        text(&driver("paged_server.py")),
    ]
}

fn npm_server(name: &str) -> Vec<String> {
    let script = format!("npm/node_modules/@modelcontextprotocol/{name}/dist/index.js");
    vec!["node".into(), text(&peer(&script))]
}

/// One run of a driver: what the client saw, and what the proxy's own tools said.
struct Seen {
    transcript: String,
    audit: Value,
}

/// A folder for one run: `work` for the server, beside it journal and seed.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
        };
        fs::create_dir(place.work()).expect("a temporary folder can be written");
        make_repository(&place.work());
        place
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("j.wlog")
    }
}

/// Names and times of all commits, so that both runs make the same ones.
const GIT_ENVIRONMENT: [(&str, &str); 8] = [
    ("GIT_AUTHOR_NAME", "Ada"),
    ("GIT_AUTHOR_EMAIL", "ada@example.org"),
    ("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z"),
    ("GIT_COMMITTER_NAME", "Ada"),
    ("GIT_COMMITTER_EMAIL", "ada@example.org"),
    ("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
];

/// One commit and one change on top: the git scenario needs both, the others do not mind.
fn make_repository(folder: &Path) {
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(words)
            .current_dir(folder)
            .envs(GIT_ENVIRONMENT);
        program::run(&mut command, SECONDS_MAX).expect_success("git");
    };
    let notes = folder.join("notes.txt");
    git(&["init", "--quiet", "--initial-branch=main"]);
    fs::write(&notes, "one\n").expect("a temporary folder can be written");
    git(&["add", "notes.txt"]);
    git(&["commit", "--quiet", "--message=first"]);
    fs::write(&notes, "one\ntwo\n").expect("a temporary folder can be written");
}

/// Runs `client` through `scenario` against `server`, directly or behind `proxy`.
fn drive(
    place: &Place,
    client: &Client,
    scenario: &str,
    server: Server,
    proxy: Option<Proxy>,
) -> Seen {
    let work = place.work();
    let words = (client.driver)();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["--mode", client.mode]);
    command
        .arg("--scenario")
        .arg(driver(&format!("scenarios/{scenario}.json")));
    command.arg("--dir").arg(&work);
    command
        .envs(GIT_ENVIRONMENT)
        .env("MEMORY_FILE_PATH", work.join("memory.jsonl"));
    // A proxy that kept something outside what it was given would keep it here. Named by way of the
    // work folder, because one server shows its environment.
    command.env("XDG_STATE_HOME", work.join("../state"));
    if let Some(proxy) = proxy {
        command.args(["--without-audit", "--"]);
        command.args(proxy.words(
            scenario,
            &place.journal(),
            &proxy::seed_file(place.folder.path()),
            &[],
        ));
        if proxy == Proxy::Reference {
            command.envs(proxy::environment());
        }
    } else {
        command.arg("--");
    }
    command.args(server(&work));
    let output = program::run(&mut command, SECONDS_MAX).expect_success("the driver");
    let (transcript, audit) = output
        .split_once("=== audit\n")
        .unwrap_or((&output, "null"));
    let audit = serde_json::from_str(audit).expect("a driver prints JSON after its mark");
    Seen {
        transcript: transcript.to_owned(),
        audit,
    }
}

/// The statement of every test here.
fn sees_the_same(client: &Client, scenario: &str, server: Server) {
    let proxy = Proxy::under_test();
    let direct = drive(&Place::new(), client, scenario, server, None);
    let place = Place::new();
    let wrapped = drive(&place, client, scenario, server, Some(proxy));
    if direct.transcript != wrapped.transcript {
        panic!(
            "{}",
            first_difference(&direct.transcript, &wrapped.transcript)
        );
    }
    let seen: Value = serde_json::from_str(&direct.transcript).expect("a driver prints JSON");
    let calls =
        usize::try_from(seen["calls"].as_u64().expect("a driver counts its calls")).expect("few");
    assert_eq!(
        proxy::intents_and_results(&place.journal()),
        (calls, calls),
        "intents and results of {calls} calls"
    );
    let steps = seen["steps"].as_array().expect("a transcript has steps");
    let lists = steps
        .iter()
        .filter(|step| step["step"]["do"] == "tools")
        .count();
    expect_audit_tools(&wrapped.audit, lists, calls);
    proxy::expect_verifies(proxy, &place.journal());
}

/// The two tools are listed once in each list, and answer in a way that the client accepts in its era.
fn expect_audit_tools(audit: &Value, lists: usize, calls: usize) {
    for tool in ["audit__status", "audit__export"] {
        assert_eq!(audit["listed"][tool], lists, "how often {tool} is listed");
        assert_eq!(audit[tool]["isError"], false, "{tool}: {audit}");
    }
    assert_eq!(
        audit["audit__status"]["structuredContent"]["calls"], calls,
        "{audit}"
    );
    let export = &audit["audit__export"]["structuredContent"];
    assert_eq!(export["verdict"], "unanchored", "{audit}");
    let dossier = Path::new(export["path"].as_str().expect("an export names its file"));
    let verdict = proxy::reference_verify(dossier);
    assert_eq!(
        verdict.code,
        Some(20),
        "{}{}",
        verdict.stdout,
        verdict.stderr
    );
}

/// The first line that differs, from shortly before the first character that does.
fn first_difference(direct: &str, wrapped: &str) -> String {
    let (direct, wrapped): (Vec<_>, Vec<_>) = (direct.lines().collect(), wrapped.lines().collect());
    let at = direct
        .iter()
        .zip(&wrapped)
        .take_while(|(one, other)| one == other)
        .count();
    let line = |lines: &[_]| lines.get(at).copied().unwrap_or("(nothing more)");
    let same = line(&direct)
        .chars()
        .zip(line(&wrapped).chars())
        .take_while(|(one, other)| one == other)
        .count();
    let part = |text: &str| {
        text.chars()
            .skip(same.saturating_sub(SHOWN / 4))
            .take(SHOWN)
            .collect::<String>()
    };
    let before = direct[at.saturating_sub(CONTEXT)..at].join("\n");
    format!(
        "line {at} differs, after\n{before}\n--- directly\n{}\n--- through the proxy\n{}",
        part(line(&direct)),
        part(line(&wrapped))
    )
}

#[test]
fn a_python_2_client_in_auto_mode_sees_the_git_server_unchanged() {
    sees_the_same(&PYTHON_2_AUTO, "git", git);
}

#[test]
fn a_python_2_client_in_auto_mode_sees_the_time_server_unchanged() {
    sees_the_same(&PYTHON_2_AUTO, "time", time);
}

#[test]
fn a_python_2_client_in_auto_mode_sees_the_memory_server_unchanged() {
    sees_the_same(&PYTHON_2_AUTO, "memory", memory);
}

#[test]
fn a_python_2_client_in_legacy_mode_sees_the_git_server_unchanged() {
    sees_the_same(&PYTHON_2_LEGACY, "git", git);
}

#[test]
fn a_python_2_client_in_legacy_mode_sees_the_time_server_unchanged() {
    sees_the_same(&PYTHON_2_LEGACY, "time", time);
}

#[test]
fn a_python_2_client_in_legacy_mode_sees_the_everything_server_unchanged() {
    sees_the_same(&PYTHON_2_LEGACY, "everything", everything);
}

#[test]
fn a_python_2_client_in_legacy_mode_sees_the_filesystem_server_unchanged() {
    sees_the_same(&PYTHON_2_LEGACY, "filesystem", filesystem);
}

#[test]
fn a_python_2_client_in_legacy_mode_cancels_calls_of_the_everything_server() {
    sees_the_same(&PYTHON_2_LEGACY, "cancel", everything);
}

#[test]
fn a_python_2_client_in_modern_mode_sees_the_git_server_unchanged() {
    sees_the_same(&PYTHON_2_MODERN, "git", git);
}

#[test]
fn a_python_2_client_in_modern_mode_sees_the_time_server_unchanged() {
    sees_the_same(&PYTHON_2_MODERN, "time", time);
}

#[test]
fn a_python_1_client_sees_the_git_server_unchanged() {
    sees_the_same(&PYTHON_1, "git", git);
}

#[test]
fn a_python_1_client_sees_the_everything_server_unchanged() {
    sees_the_same(&PYTHON_1, "everything", everything);
}

#[test]
fn a_python_1_client_sees_the_memory_server_unchanged() {
    sees_the_same(&PYTHON_1, "memory", memory);
}

#[test]
fn a_python_1_client_cancels_calls_of_the_everything_server() {
    sees_the_same(&PYTHON_1, "cancel", everything);
}

#[test]
fn a_typescript_1_client_sees_the_everything_server_unchanged() {
    sees_the_same(&TYPESCRIPT_1, "everything", everything);
}

#[test]
fn a_typescript_1_client_sees_the_memory_server_unchanged() {
    sees_the_same(&TYPESCRIPT_1, "memory", memory);
}

#[test]
fn a_typescript_1_client_sees_the_time_server_unchanged() {
    sees_the_same(&TYPESCRIPT_1, "time", time);
}

#[test]
fn a_typescript_1_client_cancels_calls_of_the_everything_server() {
    sees_the_same(&TYPESCRIPT_1, "cancel", everything);
}

#[test]
fn a_typescript_1_client_runs_tasks_of_the_everything_server() {
    sees_the_same(&TYPESCRIPT_1, "tasks", everything);
}

#[test]
fn a_typescript_2_client_in_auto_mode_sees_the_time_server_unchanged() {
    sees_the_same(&TYPESCRIPT_2_AUTO, "time", time);
}

#[test]
fn a_typescript_2_client_in_auto_mode_sees_the_filesystem_server_unchanged() {
    sees_the_same(&TYPESCRIPT_2_AUTO, "filesystem", filesystem);
}

#[test]
fn a_typescript_2_client_in_legacy_mode_sees_the_everything_server_unchanged() {
    sees_the_same(&TYPESCRIPT_2_LEGACY, "everything", everything);
}

#[test]
fn a_typescript_2_client_in_legacy_mode_sees_the_filesystem_server_unchanged() {
    sees_the_same(&TYPESCRIPT_2_LEGACY, "filesystem", filesystem);
}

#[test]
fn a_typescript_2_client_in_legacy_mode_cancels_calls_of_the_everything_server() {
    sees_the_same(&TYPESCRIPT_2_LEGACY, "cancel", everything);
}

#[test]
fn a_typescript_2_client_in_modern_mode_sees_the_git_server_unchanged() {
    sees_the_same(&TYPESCRIPT_2_MODERN, "git", git);
}

#[test]
fn a_python_2_client_in_legacy_mode_walks_pages_and_is_asked() {
    sees_the_same(&PYTHON_2_LEGACY, "paged", paged);
}

#[test]
fn a_python_1_client_walks_pages_and_is_asked() {
    sees_the_same(&PYTHON_1, "paged", paged);
}

#[test]
fn a_typescript_1_client_walks_pages_and_is_asked() {
    sees_the_same(&TYPESCRIPT_1, "paged", paged);
}

#[test]
fn a_typescript_2_client_in_legacy_mode_walks_pages_and_is_asked() {
    sees_the_same(&TYPESCRIPT_2_LEGACY, "paged", paged);
}

#[test]
fn a_python_2_client_in_auto_mode_is_asked_by_results_and_listens() {
    sees_the_same(&PYTHON_2_AUTO, "modern", paged);
}

#[test]
fn a_python_2_client_in_modern_mode_is_asked_by_results_and_listens() {
    sees_the_same(&PYTHON_2_MODERN, "modern", paged);
}

#[test]
fn a_typescript_2_client_in_auto_mode_is_asked_by_results_and_listens() {
    sees_the_same(&TYPESCRIPT_2_AUTO, "modern", paged);
}

#[test]
fn a_typescript_2_client_in_modern_mode_is_asked_by_results_and_listens() {
    sees_the_same(&TYPESCRIPT_2_MODERN, "modern", paged);
}

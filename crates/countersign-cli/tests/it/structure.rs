//! How the project is built, held against its own sources: who imports whom, what every file has, and
//! what is nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who may import whom among the crates.
const CRATES: [(&str, &[&str]); 3] = [
    ("countersign-cli", &["countersign", "countersign-log"]),
    ("countersign", &["countersign-log"]),
    ("countersign-log", &[]),
];

/// Who imports whom inside `countersign`, from the top down: an entry imports only what stands below it.
const MODULES: [(&str, &[&str]); 14] = [
    (
        "serve",
        &[
            "gate", "upstream", "recorder", "call", "message", "lines", "outbox", "stderr",
        ],
    ),
    (
        "gate",
        &[
            "upstream", "recorder", "decision", "call", "message", "outbox",
        ],
    ),
    (
        "upstream",
        &[
            "recorder", "call", "message", "process", "lines", "outbox", "stderr", "clock",
        ],
    ),
    (
        "recorder",
        &["decision", "call", "message", "stderr", "clock"],
    ),
    ("decision", &["call"]),
    ("call", &["message", "outbox"]),
    ("message", &[]),
    ("process", &["stderr", "descriptor"]),
    ("seed", &[]),
    ("lines", &[]),
    ("outbox", &[]),
    ("stderr", &["descriptor"]),
    ("descriptor", &[]),
    ("clock", &[]),
];

/// What the root of `countersign` gives to every module.
const OF_THE_ROOT: [&str; 2] = ["BoxFuture", "random"];

/// The longest file: what one can still look through.
const LINES_MAX: usize = 1200;

/// Packages under the verifier, itself included: what an auditor has to trust.
const LOG_PACKAGES_MAX: usize = 30;

/// What a reader finds beside the sources.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "docs/format.md",
    "docs/files.md",
    "docs/faults.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("a crate lies two folders below the project")
        .to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below `folder` that end in `.extension`, with their text.
fn files(folder: &Path, extension: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden && !path.ends_with("target") && !path.ends_with("node_modules")
        {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|own| own == extension) {
            let text = read(&path);
            found.insert(path, text);
        }
    }
    found
}

/// Every source file of the crates and of the fuzz targets.
fn sources() -> BTreeMap<PathBuf, String> {
    let mut found = files(&root().join("crates"), "rs");
    found.extend(files(&root().join("fuzz").join("fuzz_targets"), "rs"));
    assert!(found.len() > 80, "this is not the whole project");
    found
}

/// Lines with their numbers, without those that are only comment.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

fn cargo(arguments: &[&str]) -> String {
    let outcome = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(arguments)
        .args(["--offline", "--locked"])
        .output()
        .expect("the cargo that builds this test can be run");
    assert!(
        outcome.status.success(),
        "{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
    String::from_utf8(outcome.stdout).expect("cargo writes UTF-8")
}

#[test]
fn imports_among_the_crates_go_one_way() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let name = |value: &Value| value["name"].as_str().expect("each has a name").to_owned();
    let names: BTreeSet<String> = packages.iter().map(name).collect();
    for (package, allowed) in CRATES {
        let package = packages.iter().find(|known| known["name"] == package);
        let package = package.unwrap_or_else(|| panic!("there is no crate for {allowed:?}"));
        let dependencies = package["dependencies"].as_array().expect("there is a list");
        let ours: BTreeSet<String> = dependencies
            .iter()
            .map(name)
            .filter(|dependency| names.contains(dependency))
            .collect();
        let allowed = allowed.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(ours, allowed, "{}", package["name"]);
    }
}

/// The module of `countersign` that a file belongs to.
fn module(source: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(source).expect("it was found there");
    let first = inside.iter().next().expect("a file has a name");
    Path::new(first)
        .file_stem()
        .expect("a file has a name")
        .to_string_lossy()
        .into_owned()
}

/// What stands behind each `crate::` of a line.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn imports_inside_the_library_go_downwards() {
    let source = root().join("crates/countersign/src");
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files(&source, "rs") {
        if path.ends_with("tests.rs") {
            // What a test needs is not what its module needs.
            continue;
        }
        let text = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let own = module(&source, &path);
        let is_submodule = path.parent() != Some(source.as_path());
        for (number, line) in code(text) {
            let at = format!("{}:{number}", path.display());
            let detour = if is_submodule {
                "super::super::"
            } else {
                "super::"
            };
            assert!(
                !line.contains(detour) || line.trim() == "use super::*;",
                "{at}: {detour} leads out of the module; name it by `crate::`"
            );
            for name in imported(line) {
                assert!(
                    !name.is_empty(),
                    "{at}: one `use crate::name` a line, so that they can be read"
                );
                if name != own && !OF_THE_ROOT.contains(&name) {
                    imports
                        .entry(own.clone())
                        .or_default()
                        .insert(name.to_owned());
                }
            }
        }
        if own != "lib" {
            imports.entry(own).or_default();
        }
    }
    let table: BTreeMap<String, BTreeSet<String>> = MODULES
        .iter()
        .map(|(module, below)| {
            let below = below.iter().map(|&name| name.to_owned()).collect();
            ((*module).to_owned(), below)
        })
        .collect();
    assert_eq!(imports, table, "the sources, and the table");
    for (at, (module, below)) in MODULES.iter().enumerate() {
        for lower in *below {
            let found = MODULES.iter().position(|(name, _)| name == lower);
            assert!(
                found > Some(at),
                "{lower} must stand below {module} in the table"
            );
        }
    }
}

#[test]
fn every_source_file_says_what_it_is_and_can_be_looked_through() {
    for (path, text) in sources() {
        assert!(
            text.starts_with("//! "),
            "{}: opens without a head",
            path.display()
        );
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{}: {lines} lines", path.display());
    }
}

#[test]
fn nothing_is_left_to_do_and_no_test_is_left_out() {
    // In two parts, so that this file passes its own test.
    let never = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
        concat!("allow(unsafe", "_code"),
    ];
    for (path, text) in sources() {
        // What must not compile may show what nobody may write.
        for (number, line) in (1..).zip(text.lines()) {
            for word in never {
                assert!(!line.contains(word), "{}:{number}: {word}", path.display());
            }
        }
    }
}

#[test]
fn no_file_names_a_home_folder() {
    let homes = [
        concat!("/ho", "me/"),
        concat!("/Use", "rs/"),
        concat!("/ro", "ot/"),
    ];
    for extension in ["rs", "toml", "md", "stderr"] {
        for (path, text) in files(&root(), extension) {
            for home in homes {
                assert!(!text.contains(home), "{}: {home}", path.display());
            }
        }
    }
}

/// The codes `-32xxx` in a line of code.
fn wire_codes(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("-32")
        .filter_map(|(at, _)| line.get(at..at + 6))
        .filter(|code| code[1..].bytes().all(|octet| octet.is_ascii_digit()))
}

#[test]
fn every_wire_code_is_given_in_one_place() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in ["countersign-log", "countersign"] {
        for (path, text) in files(&root().join("crates").join(part).join("src"), "rs") {
            for (number, line) in code(&text) {
                for code in wire_codes(line) {
                    let place = format!("{}:{number}", path.display());
                    places.entry(code.to_owned()).or_default().push(place);
                }
            }
        }
    }
    let codes: Vec<&str> = places.keys().map(String::as_str).collect();
    assert_eq!(codes, ["-32000", "-32600", "-32603", "-32700"]);
    for (code, places) in &places {
        assert_eq!(places.len(), 1, "{code}: {places:?}");
    }
}

/// The string literals of a text that are meant for a client: they begin with a program's name.
fn told(text: &str) -> Vec<String> {
    let prefixes = [
        concat!("\"counter", "sign: "),
        concat!("\"witness-log", "-mcp-proxy: "),
    ];
    let code: String = code(text).flat_map(|(_, line)| [line, "\n"]).collect();
    let literals = prefixes
        .iter()
        .flat_map(|prefix| code.match_indices(prefix));
    literals
        .map(|(at, _)| {
            let literal = &code[at + 1..];
            literal[..literal.find('"').expect("a literal ends")].to_owned()
        })
        .collect()
}

#[test]
fn every_text_for_the_client_is_given_in_one_place() {
    let source = root().join("crates/countersign/src");
    let mut found = 0;
    let mut seen = BTreeSet::new();
    for (path, text) in files(&source, "rs") {
        if path.ends_with("stderr.rs") {
            // What it says is for the operator.
            continue;
        }
        for literal in told(&text) {
            // A frame around a text that is given elsewhere.
            let frame = literal
                .split_once(": ")
                .is_some_and(|(_, text)| text.starts_with('{') && text.ends_with('}'));
            if frame {
                continue;
            }
            found += 1;
            assert_eq!(path, source.join("call.rs"), "{literal}");
            assert!(seen.insert(literal.clone()), "given twice: {literal}");
        }
    }
    assert!(
        found > 8,
        "only {found} texts: this test looks in the wrong place"
    );
}

#[test]
fn the_verifier_stands_on_few_packages() {
    let tree = cargo(&[
        "tree",
        "-p",
        "countersign-log",
        "-e",
        "normal",
        "--prefix",
        "none",
    ]);
    let packages: BTreeSet<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|line| !line.is_empty())
        .collect();
    assert!(
        packages.iter().any(|package| package.starts_with("sha2 ")),
        "{tree}"
    );
    assert!(
        packages.len() <= LOG_PACKAGES_MAX,
        "{} packages:\n{tree}",
        packages.len()
    );
}

#[test]
fn no_crate_may_be_unsafe() {
    let workspace = read(&root().join("Cargo.toml"));
    assert!(workspace.contains("\nunsafe_code = \"forbid\"\n"));
    for (package, _) in CRATES {
        let manifest = read(&root().join("crates").join(package).join("Cargo.toml"));
        assert!(
            manifest.contains("\n[lints]\nworkspace = true\n"),
            "{package}"
        );
    }
}

#[test]
fn the_documents_are_there() {
    for document in DOCUMENTS {
        let text = read(&root().join(document));
        assert!(!text.trim().is_empty(), "{document} is empty");
    }
    let architecture = read(&root().join("ARCHITECTURE.md")).lines().count();
    assert!(
        architecture <= 200,
        "{architecture} lines are more than an overview"
    );
}

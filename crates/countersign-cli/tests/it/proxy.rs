//! The proxy in front of a server, and what an auditor reads of the journal it leaves.
//!
//! The one idea: a test names what it wants (a name, a journal, a seed) and the command line is
//! made here. The reference implementation stands beside ours, for the tests that hand a journal
//! from one to the other; with `COUNTERSIGN_TEST_PROXY=reference` it also takes our place in all
//! others, which shows where the two differ. Journals are read as files, never through our library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::program::{self, Finished};

/// The identity of all journals here: its seed is octets 1 to 32.
pub(crate) const SEED_HEX: &str =
    "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20";

/// The public key of [`SEED_HEX`].
pub(crate) const IDENTITY_HEX: &str =
    "79b5562e8fe654f94078b112e8a98ba7901f853ae695bed7e0e3910bad049664";

/// Verifying, exporting, resuming take far below a second; a loaded machine may be slow.
const SECONDS_MAX: u64 = 60;

/// Which program stands between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Ours,
    Reference,
}

impl Proxy {
    /// Ours, unless the environment puts the reference in its place.
    pub(crate) fn under_test() -> Self {
        match std::env::var("COUNTERSIGN_TEST_PROXY").as_deref() {
            Ok("reference") => Self::Reference,
            Ok(other) => panic!("COUNTERSIGN_TEST_PROXY can be `reference`, not `{other}`"),
            Err(_) => Self::Ours,
        }
    }

    /// The words that go before a server's command: the proxy, its options and `--`.
    ///
    /// `seed` is a file with 64 hex digits. The reference reads its seed from the environment only:
    /// see [`environment`].
    pub(crate) fn words(
        self,
        name: &str,
        journal: &Path,
        seed: &Path,
        options: &[&str],
    ) -> Vec<String> {
        let mut words = match self {
            Self::Ours => vec![env!("CARGO_BIN_EXE_countersign").into(), "wrap".into()],
            Self::Reference => vec![text(&peer("py2/bin/witness-log-mcp-proxy"))],
        };
        words.extend([
            "--name".into(),
            name.into(),
            "--journal".into(),
            text(journal),
        ]);
        if self == Self::Ours {
            words.extend(["--seed-file".into(), text(seed)]);
        }
        words.extend(options.iter().map(|option| (*option).to_owned()));
        words.push("--".into());
        words
    }

    /// A command of [`Proxy::words`] before `server`.
    pub(crate) fn command(
        self,
        name: &str,
        journal: &Path,
        seed: &Path,
        options: &[&str],
        server: &[String],
    ) -> Command {
        let words = self.words(name, journal, seed, options);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(server);
        if self == Self::Reference {
            command.envs(environment());
        }
        command
    }
}

/// Where the reference finds the seed: a variable that names a variable.
pub(crate) fn environment() -> [(&'static str, &'static str); 2] {
    [
        ("WITNESS_LOG_IDENTITY_SEED_ENV", "PEERS_SEED"),
        ("PEERS_SEED", SEED_HEX),
    ]
}

/// The project's root, which holds `.peers` and `tests/peers`.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate lies in the project")
}

/// A file under `.peers`; without it the test fails and says what to run.
pub(crate) fn peer(path: &str) -> PathBuf {
    let path = root().join(".peers").join(path);
    assert!(path.exists(), "run tests/peers/install");
    path
}

/// A file under `tests/peers`.
pub(crate) fn driver(path: &str) -> PathBuf {
    root().join("tests/peers").join(path)
}

/// Writes the seed file and returns its path.
pub(crate) fn seed_file(folder: &Path) -> PathBuf {
    let path = folder.join("identity.seed");
    fs::write(&path, format!("{SEED_HEX}\n")).expect("a temporary folder can be written");
    path
}

/// `countersign verify FILE`, as an auditor would run it.
pub(crate) fn verify(file: &Path) -> Finished {
    program::run(
        Command::new(env!("CARGO_BIN_EXE_countersign"))
            .arg("verify")
            .arg(file),
        SECONDS_MAX,
    )
}

/// The reference's own verification of a dossier, by its program. Its exit code is the verdict:
/// 20 is "consistent, nobody else has seen it", 40 "invalid".
pub(crate) fn reference_verify(dossier: &Path) -> Finished {
    let mut command = Command::new(peer("cargo/bin/witness-log"));
    program::run(
        command
            .arg("verify")
            .arg(dossier)
            .args(["--identity", IDENTITY_HEX]),
        SECONDS_MAX,
    )
}

/// The dossier that the reference's program makes of any journal of [`SEED_HEX`].
pub(crate) fn reference_export(journal: &Path, dossier: &Path) {
    let mut command = Command::new(peer("cargo/bin/witness-log"));
    command
        .args(["log", "export"])
        .arg(journal)
        .arg("--out")
        .arg(dossier);
    command
        .args(["--identity-seed-env", "PEERS_SEED"])
        .envs(environment());
    program::run(&mut command, SECONDS_MAX).expect_success("the reference's export");
}

/// Fails unless whoever wrote `journal` would have it verified: ours by our program and by the
/// reference, the reference's by itself.
pub(crate) fn expect_verifies(proxy: Proxy, journal: &Path) {
    if proxy == Proxy::Ours {
        verify(journal).expect_success("countersign verify");
    }
    let dossier = journal.with_extension("check.json");
    reference_export(journal, &dossier);
    let verdict = reference_verify(&dossier);
    assert_eq!(
        verdict.code,
        Some(20),
        "{}{}",
        verdict.stdout,
        verdict.stderr
    );
}

/// The lines of a journal that are leaves, in order. A torn last line is not one.
pub(crate) fn leaves(journal: &Path) -> Vec<Value> {
    let text = fs::read_to_string(journal).expect("the journal is there and is UTF-8");
    let (whole, torn) = text.rsplit_once('\n').expect("a journal has a header");
    assert!(
        serde_json::from_str::<Value>(torn).is_err(),
        "a whole last line ends in a newline: {torn}"
    );
    let lines = whole
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a journal's line is JSON"));
    lines
        .filter(|line| line.get("leaf_type").is_some())
        .collect()
}

/// How many intents and results a journal holds.
pub(crate) fn intents_and_results(journal: &Path) -> (usize, usize) {
    let leaves = leaves(journal);
    let count = |tag: u64| {
        leaves
            .iter()
            .filter(|leaf| leaf["leaf_type"] == tag)
            .count()
    };
    (count(1), count(2))
}

/// A path as a word of a command line.
pub(crate) fn text(path: &Path) -> String {
    path.to_str()
        .expect("temporary folders have UTF-8 names")
        .to_owned()
}

//! A journal as its auditor reads it, after it was closed: verified first, then opened with its salts.
//!
//! Payloads are put together here from the format's text, not by the recorder's own code.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign::call::Reply;
use countersign::recorder::{Fsync, Recorder};
use countersign_log::canonical::canonical_sha256;
use countersign_log::commitment::{Salt, commit};
use countersign_log::hash::Hash;
use countersign_log::hex;
use countersign_log::journal::{Journal, Limits, Opened, Opening, Seal};
use countersign_log::keys::Identity;
use countersign_log::leaf::{Kind, Leaf};
use countersign_log::verdict::{self, JournalReport, Report, Verdict};
use tempfile::TempDir;

/// The name of the server in every payload.
pub(crate) const SERVER: &str = "time";

/// A journal in a folder of its own, and the recorder that writes it.
pub(crate) struct Desk {
    folder: TempDir,
    pub(crate) recorder: Recorder,
}

impl Desk {
    /// A recorder that has its journal.
    pub(crate) fn new(fsync: Fsync) -> Self {
        let desk = Self::without_journal(fsync);
        desk.open();
        desk
    }

    /// A recorder that still waits for its journal.
    pub(crate) fn without_journal(fsync: Fsync) -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            recorder: Recorder::new(SERVER, fsync),
        }
    }

    /// Brings the journal.
    pub(crate) fn open(&self) {
        let (journal, opened) = open(&self.path());
        self.recorder.open(journal, &opened.open_intents).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("time.wlog")
    }

    /// Octets of the journal so far.
    pub(crate) fn octets(&self) -> u64 {
        std::fs::metadata(self.path()).unwrap().len()
    }

    /// Closes the journal, and verifies it.
    pub(crate) fn close(self) -> Book {
        self.recorder.close().unwrap();
        self.verify()
    }

    /// Verifies the journal, whose recorder could not close it.
    pub(crate) fn verify(self) -> Book {
        Book::read(&self.path())
    }
}

/// Opens the journal at `path`, making it if there is none.
pub(crate) fn open(path: &Path) -> (Journal, Opened) {
    open_within(path, Limits::default())
}

/// As [`open`]; the journal goes on in a new segment at `limits`.
pub(crate) fn open_within(path: &Path, limits: Limits) -> (Journal, Opened) {
    let opening = Opening {
        path,
        seal: Seal::Sealed(Identity::from_seed(&[7; 32])),
        session_seed: countersign::random().unwrap(),
        now_ms: 1_750_000_000_000,
        key_head: None,
        accept_head: None,
        lock_wait: Duration::ZERO,
        locked: None,
        limits,
    };
    Journal::open(opening).unwrap()
}

/// What the journal says, verified.
pub(crate) struct Book {
    leaves: Vec<Leaf>,
    salts: HashMap<u64, Salt>,
    /// The result that answers an intent.
    answers: HashMap<u64, u64>,
    pub(crate) report: JournalReport,
}

impl Book {
    fn read(path: &Path) -> Self {
        let side = |name: &str| {
            let path = format!("{}.{name}", path.display());
            std::fs::read_to_string(path).unwrap_or_default()
        };
        let salt = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let salt = hex::decode(line["s"].as_str().unwrap().as_bytes()).unwrap();
            (line["i"].as_u64().unwrap(), salt)
        };
        let pair = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            Some((line["i"].as_u64()?, line["r"].as_u64()?))
        };
        let book = Self {
            leaves: std::fs::read(path)
                .unwrap()
                .split(|octet| *octet == b'\n')
                .filter_map(|line| Leaf::read(line).ok())
                .collect(),
            salts: side("salts").lines().map(salt).collect(),
            answers: side("calls").lines().filter_map(pair).collect(),
            report: verified(path),
        };
        assert_eq!(book.leaves.len() as u64, book.report.leaf_count);
        book
    }

    /// Asserts that there are `count` calls, each with one intent and one outcome.
    pub(crate) fn assert_calls(&self, count: u64) {
        let calls = self.report.calls.as_ref().unwrap();
        assert_eq!(self.report.intents, count, "intents");
        assert_eq!(self.report.results, count, "results");
        assert_eq!(calls.paired, count, "{calls:?}");
        assert_eq!(calls.open.count, 0, "{calls:?}");
        assert_eq!(calls.doubly_answered.count, 0, "{calls:?}");
        assert_eq!(calls.unpaired + calls.unnamed_open, 0, "{calls:?}");
        assert_eq!(calls.unreadable_lines, 0, "{calls:?}");
    }

    /// The index of the intent of the `at`th call.
    pub(crate) fn intent(&self, at: usize) -> u64 {
        let intents = self
            .leaves
            .iter()
            .filter(|leaf| leaf.kind() == Some(Kind::Intent));
        intents.map(|leaf| leaf.index).nth(at).unwrap()
    }

    /// The index of the outcome of the `at`th call.
    pub(crate) fn outcome(&self, at: usize) -> u64 {
        self.answers[&self.intent(at)]
    }

    /// Asserts that the `at`th call is the one that asked for `tool` with `arguments`, and that `reply`
    /// is what came of it.
    pub(crate) fn assert_call(&self, at: usize, tool: &str, arguments: &str, reply: &Reply) {
        let (x, is_error) = reply.recorded();
        self.assert_outcome(at, tool, arguments, &x, is_error);
    }

    /// As [`Self::assert_call`], from the very object that the client got.
    pub(crate) fn assert_outcome(
        &self,
        at: usize,
        tool: &str,
        arguments: &str,
        x: &[u8],
        is_error: bool,
    ) {
        let digest = |text: &[u8]| hex::encode(&canonical_sha256(text).sha256);
        let tool = serde_json::to_string(tool).unwrap();
        let intent = self.intent(at);
        self.assert_opens(
            intent,
            &format!(
                r#"{{"args_sha256":"{}","profile":"mcp.tools/call v1","server":"{SERVER}","tool":{tool}}}"#,
                digest(arguments.as_bytes())
            ),
        );
        self.assert_opens(
            self.outcome(at),
            &format!(
                r#"{{"intent_index":{intent},"is_error":{is_error},"profile":"mcp.tools/call v1","result_sha256":"{}","server":"{SERVER}","tool":{tool}}}"#,
                digest(x)
            ),
        );
    }

    /// Asserts that a leaf behind the `at`th intent tells the octets that came from those that went on.
    pub(crate) fn assert_exact(&self, at: usize, received: &[u8], forwarded: &[u8]) {
        let intent = self.intent(at);
        let leaf = intent + 1;
        assert_eq!(self.leaf(leaf).kind(), Some(Kind::Memory));
        self.assert_opens(
            leaf,
            &format!(
                r#"{{"forwarded_sha256":"{}","intent_index":{intent},"profile":"countersign.exact v1","received_sha256":"{}"}}"#,
                Hash::of(&[forwarded]),
                Hash::of(&[received])
            ),
        );
    }

    /// Asserts that nothing but intents and outcomes was written.
    pub(crate) fn assert_nothing_else(&self) {
        let others = self.report.leaf_count - self.report.intents - self.report.results;
        assert_eq!(others, 0);
    }

    fn assert_opens(&self, index: u64, payload: &str) {
        let commitment = commit(payload.as_bytes(), &self.salts[&index], index);
        assert_eq!(
            self.leaf(index).payload_hash,
            commitment.to_string(),
            "leaf {index} is not {payload}"
        );
    }

    fn leaf(&self, index: u64) -> &Leaf {
        &self.leaves[usize::try_from(index).unwrap()]
    }
}

fn verified(path: &Path) -> JournalReport {
    let targets = verdict::targets(&[path.to_owned()]).unwrap();
    let mut reports = verdict::verify(&targets[0], None).unwrap();
    assert_eq!((targets.len(), reports.len()), (1, 1));
    match reports.remove(0) {
        Report::Journal { report, .. } => {
            assert_eq!(
                report.failures.verdict(),
                Verdict::Unanchored,
                "{:?}",
                report.failures
            );
            report
        }
        Report::Dossier { .. } => panic!("a journal is no dossier"),
    }
}

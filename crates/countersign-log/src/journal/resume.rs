//! Reading a journal from its first to its last line, changing nothing, in constant memory.
//!
//! One line may be torn: the last. Everything else must be right: the sequence and form of the leaves,
//! the signature of every binding, and every signed head that is known must be reproduced.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::fault::JournalError;
use super::ledger::{Ended, Ledger};
use super::nodes::NodeFile;
use super::seal::read_header;
use crate::hash::Hash;
use crate::header::Header;
use crate::hex;
use crate::keys::{KeyBinding, PublicKey};
use crate::leaf::{Leaf, PlainLeaf};
use crate::lines::{Line, Lines};
use crate::record::Record;
use crate::tree::{Frontier, TreeHead};

/// A signed head that the journal must reproduce, and where it stands.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) head: TreeHead,
    pub(super) kept_in: PathBuf,
}

/// A journal, read.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) frontier: Frontier,
    /// End of the last good line.
    pub(super) kept: u64,
    /// The last good line lacks its newline.
    pub(super) add_newline: bool,
    /// Torn lines behind the last good one: 0 or 1.
    pub(super) dropped_lines: u64,
    pub(super) last_timestamp_ms: u64,
    /// The largest session number so far.
    pub(super) session_number: u64,
    /// Leaves whose salts were destroyed.
    pub(super) redacted: BTreeSet<u64>,
    pub(super) calls: Ended,
    /// The first expected head that the journal does not reproduce.
    pub(super) broken_head: Option<Expected>,
}

/// The journal's header; `None` for an empty file.
pub(super) fn header(file: &File, path: &Path) -> Result<Option<Header>, JournalError> {
    let mut lines = lines_of(file, path)?;
    let Some(line) = lines.next().map_err(JournalError::io("read", path))? else {
        return Ok(None);
    };
    read_header(line.text, path).map(Some)
}

fn lines_of<'a>(mut file: &'a File, path: &Path) -> Result<Lines<&'a File>, JournalError> {
    file.seek(SeekFrom::Start(0))
        .map_err(JournalError::io("read", path))?;
    Ok(Lines::new(file))
}

/// Reads everything behind the header; without a `file`, what is expected of a journal without leaves.
pub(super) fn replay(
    file: Option<&File>,
    path: &Path,
    identity: PublicKey,
    ledger: Ledger,
    nodes: Option<&mut NodeFile>,
    expected: Vec<Expected>,
) -> Result<Replay, JournalError> {
    let mut reader = Reader {
        path,
        identity: identity.to_string(),
        ledger,
        nodes,
        expected,
        frontier: Frontier::default(),
        last_timestamp_ms: 0,
        session_number: 0,
        redacted: BTreeSet::new(),
    };
    reader.expect_here();
    let mut lines = file.map(|file| lines_of(file, path)).transpose()?;
    let (mut kept, mut add_newline, mut torn) = (0, false, None);
    while let Some(lines) = &mut lines
        && let Some(line) = lines
            .next_filled()
            .map_err(JournalError::io("read", path))?
    {
        if let Some(number) = torn {
            return Err(JournalError::Corrupt {
                path: path.to_owned(),
                line: number,
                why: "neither leaf nor key binding, and more follows".into(),
            });
        }
        // The first line is the header, which was read before.
        if kept > 0 && !reader.take(line)? {
            torn = Some(line.number);
            continue;
        }
        kept = line.end;
        add_newline = !line.terminated;
    }
    let calls = reader.ledger.end(reader.frontier.size())?;
    Ok(Replay {
        frontier: reader.frontier,
        kept,
        add_newline,
        dropped_lines: torn.is_some().into(),
        last_timestamp_ms: reader.last_timestamp_ms,
        session_number: reader.session_number,
        redacted: reader.redacted,
        calls,
        broken_head: reader.expected.into_iter().next(),
    })
}

struct Reader<'a> {
    path: &'a Path,
    identity: String,
    ledger: Ledger,
    nodes: Option<&'a mut NodeFile>,
    /// Heads that were not reproduced yet.
    expected: Vec<Expected>,
    frontier: Frontier,
    last_timestamp_ms: u64,
    session_number: u64,
    redacted: BTreeSet<u64>,
}

impl Reader<'_> {
    /// Takes one line in; false if it is neither leaf nor binding.
    fn take(&mut self, line: Line<'_>) -> Result<bool, JournalError> {
        match Record::read(line.text) {
            Ok(Record::Plain(plain)) => self.take_plain(plain, line.number)?,
            Ok(Record::Leaf(leaf)) => self.take_leaf(&leaf, line.number)?,
            Ok(Record::Binding(binding)) => self.take_binding(&binding, line.number)?,
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    fn take_plain(&mut self, plain: PlainLeaf, line: u64) -> Result<(), JournalError> {
        let position = self.frontier.size();
        if plain.index != position {
            // The general check has the words for it.
            return self.take_leaf(&plain.into(), line);
        }
        self.ledger
            .leaf(position, Some(plain.kind), &plain.session)?;
        self.push(plain.hash(), plain.timestamp_ms);
        Ok(())
    }

    fn take_leaf(&mut self, leaf: &Leaf, line: u64) -> Result<(), JournalError> {
        let position = self.frontier.size();
        leaf.check(position)
            .map_err(|fault| self.corrupt(line, fault.to_string()))?;
        let session = hex::decode(leaf.session_pubkey.as_bytes())
            .expect("the check found 64 lowercase hex digits");
        self.ledger.leaf(position, leaf.kind(), &session)?;
        self.redacted.extend(leaf.redacted_index);
        self.push(leaf.hash(), leaf.timestamp_ms);
        Ok(())
    }

    fn take_binding(&mut self, binding: &KeyBinding, line: u64) -> Result<(), JournalError> {
        if !binding.identity_pubkey.eq_ignore_ascii_case(&self.identity) {
            let why = format!(
                "key binding by {}, not by this journal's identity {}",
                binding.identity_pubkey, self.identity
            );
            return Err(self.corrupt(line, why));
        }
        if !binding.verifies() {
            return Err(self.corrupt(line, "the signature of this key binding is wrong".into()));
        }
        self.session_number = self.session_number.max(binding.session_number);
        Ok(())
    }

    fn push(&mut self, leaf: Hash, timestamp_ms: u64) {
        let Self {
            frontier, nodes, ..
        } = self;
        match nodes {
            Some(nodes) => {
                nodes.push(leaf);
                frontier.push_with(leaf, |_, node| nodes.push(node));
            }
            None => frontier.push(leaf),
        }
        self.last_timestamp_ms = self.last_timestamp_ms.max(timestamp_ms);
        self.expect_here();
    }

    /// Strikes out the heads that the journal reproduces at its present size.
    fn expect_here(&mut self) {
        let size = self.frontier.size();
        if self
            .expected
            .iter()
            .any(|expected| expected.head.size == size)
        {
            let head = self.frontier.head();
            self.expected.retain(|expected| expected.head != head);
        }
    }

    fn corrupt(&self, line: u64, why: String) -> JournalError {
        JournalError::Corrupt {
            path: self.path.to_owned(),
            line,
            why,
        }
    }
}

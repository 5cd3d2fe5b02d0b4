//! What earlier runs left open: `X.calls`, read once, at a start, beside the journal.
//!
//! Only the open intents are in memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::fault::JournalError;
use crate::calls::{Entry, Place};
use crate::hex;
use crate::leaf::Kind;
use crate::lines::Lines;
use crate::sidecar;

/// Open intents that are tracked: far more than can be in flight (1,024 for each client).
pub(super) const OPEN_MAX: usize = 65_536;

/// Sessions with open intents that are listed by name; a start seldom finds more than one.
const SESSIONS_MAX: usize = 1_024;

/// What earlier runs left without an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenIntents {
    /// Intents of sessions that keep `.calls`, in order.
    pub places: Vec<Place>,
    /// Other sessions (public key, and intents minus results), in order of appearance.
    pub sessions: Vec<(String, u64)>,
    /// There were more than can be tracked: the lists are not complete.
    pub more: bool,
}

impl OpenIntents {
    /// Whether every intent has its outcome.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.sessions.is_empty()
    }

    /// The payload of a `countersign.lost v1` leaf, canonical JSON: `intents`, `profile`, and where
    /// there are any, `earlier` (intents of earlier segments as `[segment, index]`) and `sessions`
    /// (counts by session key).
    pub(super) fn payload(&self, segment: u32) -> Vec<u8> {
        let list = |places: Vec<String>| places.join(",");
        let here = self
            .places
            .iter()
            .filter(|place| place.segment == segment)
            .map(|place| place.index.to_string())
            .collect();
        let earlier: Vec<_> = self
            .places
            .iter()
            .filter(|place| place.segment != segment)
            .map(|place| format!("[{},{}]", place.segment, place.index))
            .collect();
        let mut sessions: Vec<_> = self
            .sessions
            .iter()
            .map(|(key, count)| format!("\"{key}\":{count}"))
            .collect();
        sessions.sort_unstable();
        let mut payload = "{".to_owned();
        if !earlier.is_empty() {
            payload += &format!("\"earlier\":[{}],", list(earlier));
        }
        payload += &format!(
            "\"intents\":[{}],\"profile\":\"countersign.lost v1\"",
            list(here)
        );
        if !sessions.is_empty() {
            payload += &format!(",\"sessions\":{{{}}}", list(sessions));
        }
        payload.push('}');
        payload.into_bytes()
    }
}

/// The file, read beside the journal, and what is open up to the leaf reached.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    segment: u32,
    lines: Option<Lines<File>>,
    next: Option<(Entry, u64)>,
    /// End of the lines that hold.
    good: u64,
    add_newline: bool,
    ours: Option<[u8; 32]>,
    open: BTreeSet<Place>,
    /// Results of ours whose pair is not there: the file was not on disk when the power went.
    unpaired: u64,
    /// The session of the leaf before, if it keeps no file, and its intents minus results.
    other: Option<([u8; 32], i64)>,
    others: Vec<([u8; 32], u64)>,
    more: bool,
}

impl Ledger {
    /// Opens the file; a journal without one has only sessions that keep none.
    pub(super) fn open(journal: &Path, segment: u32) -> Result<Self, JournalError> {
        let path = sidecar::path(journal, "calls");
        let file = sidecar::open(&path).map_err(JournalError::io("open", &path))?;
        let mut ledger = Self {
            path,
            segment,
            lines: file.map(Lines::new),
            next: None,
            good: 0,
            add_newline: false,
            ours: None,
            open: BTreeSet::new(),
            unpaired: 0,
            other: None,
            others: Vec::new(),
            more: false,
        };
        ledger.read_next()?;
        Ok(ledger)
    }

    /// Takes note of the journal's next leaf.
    pub(super) fn leaf(
        &mut self,
        index: u64,
        kind: Option<Kind>,
        session: &[u8; 32],
    ) -> Result<(), JournalError> {
        let mut paired = false;
        while let Some((entry, end)) = self.next.take_if(|(entry, _)| entry.leaf() <= index) {
            paired |= matches!(entry, Entry::Pair { result, .. } if result == index);
            self.apply(entry);
            self.good = end;
            self.read_next()?;
        }
        let ours = self.ours.as_ref() == Some(session);
        match kind {
            Some(Kind::Intent) if ours => self.track(Place {
                segment: self.segment,
                index,
            }),
            Some(Kind::Result) if ours && !paired => self.unpaired += 1,
            Some(Kind::Intent) if !ours => self.count(session, 1),
            Some(Kind::Result) if !ours => self.count(session, -1),
            _ => {}
        }
        Ok(())
    }

    /// The journal ended at `size`: what of the file holds, and what is open.
    pub(super) fn end(mut self, size: u64) -> Result<Ended, JournalError> {
        let holds = |entry: &Entry| match entry {
            Entry::Session { from, .. } => *from <= size,
            entry => entry.leaf() < size,
        };
        while let Some((entry, end)) = self.next.take_if(|(entry, _)| holds(entry)) {
            self.apply(entry);
            self.good = end;
            self.read_next()?;
        }
        self.close_other();
        let mut places: Vec<_> = self.open.into_iter().collect();
        let mut sessions: Vec<_> = self
            .others
            .iter()
            .map(|(key, count)| (hex::encode(key), *count))
            .collect();
        if let (1.., Some(key)) = (self.unpaired, self.ours) {
            // Which of the intents they answered cannot be known: only the count can be told.
            let count = (places.len() as u64).saturating_sub(self.unpaired);
            places.clear();
            if count > 0 {
                sessions.push((hex::encode(&key), count));
            }
        }
        Ok(Ended {
            good: self.good,
            add_newline: self.add_newline,
            open: OpenIntents {
                places,
                sessions,
                more: self.more,
            },
        })
    }

    fn read_next(&mut self) -> Result<(), JournalError> {
        let Some(lines) = &mut self.lines else {
            return Ok(());
        };
        let mut bad = None;
        while let Some(line) = lines
            .next_filled()
            .map_err(JournalError::io("read", &self.path))?
        {
            if let Some(line) = bad {
                return Err(JournalError::Sidecar {
                    path: self.path.clone(),
                    line,
                    why: "this is no pair of calls, and more follows; remove the file to go on without knowing which earlier calls were lost",
                });
            }
            match Entry::read(line.text, self.segment) {
                Some(entry) => {
                    self.add_newline = !line.terminated;
                    self.next = Some((entry, line.end));
                    return Ok(());
                }
                None => bad = Some(line.number),
            }
        }
        Ok(())
    }

    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Session { key, .. } => self.ours = Some(key),
            Entry::Pair { intent, .. } => {
                self.open.remove(&intent);
            }
            Entry::Carried { intent, .. } => self.track(intent),
            Entry::Lost { .. } => self.close_lost(),
        }
    }

    /// A `countersign.lost` leaf is the first of its session and reports all that was open then, so
    /// nothing of it is reported again.
    fn close_lost(&mut self) {
        self.open.clear();
        self.unpaired = 0;
        self.other = None;
        self.others.clear();
        self.more = false;
    }

    fn track(&mut self, intent: Place) {
        if self.open.len() < OPEN_MAX {
            self.open.insert(intent);
        } else {
            self.more = true;
        }
    }

    fn count(&mut self, session: &[u8; 32], change: i64) {
        if self.other.as_ref().is_none_or(|(key, _)| key != session) {
            self.close_other();
            self.other = Some((*session, 0));
        }
        if let Some((_, count)) = &mut self.other {
            *count += change;
        }
    }

    fn close_other(&mut self) {
        if let Some((key, count @ 1..)) = self.other.take() {
            if self.others.len() < SESSIONS_MAX {
                self.others.push((key, count as u64));
            } else {
                self.more = true;
            }
        }
    }
}

/// What a start makes of the file.
#[derive(Debug)]
pub(super) struct Ended {
    /// Octets that hold.
    pub(super) good: u64,
    /// The last line lacks its newline.
    pub(super) add_newline: bool,
    /// What is open.
    pub(super) open: OpenIntents,
}

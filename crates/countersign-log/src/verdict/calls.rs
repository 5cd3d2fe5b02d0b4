//! Which call got which outcome, as the file of pairs beside a journal tells it.
//!
//! The leaves hide it behind their salts. The file is not signed, so nothing here is a failure: it
//! says what its writer knew. It is read beside the journal; only open intents are in memory.

use std::collections::BTreeSet;
use std::io::{self, Read};

use crate::calls::{Entry, Place};
use crate::leaf::Kind;
use crate::lines::Lines;

/// Open intents that are told apart: far more than are in flight (1,024 per client) and than crashes leave.
const OPEN_MAX: usize = 65_536;

/// Intents that a report lists by place; more are only counted.
const LISTED_MAX: usize = 100;

/// Some intents: how many, and where the first of them stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intents {
    /// How many there are.
    pub count: u64,
    /// The first of them, at most 100.
    pub places: Vec<Place>,
}

impl Intents {
    fn add(&mut self, place: Place) {
        self.count += 1;
        if self.places.len() < LISTED_MAX {
            self.places.push(place);
        }
    }
}

/// What the file of pairs says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsReport {
    /// Results whose intent it names.
    pub paired: u64,
    /// Intents that have neither outcome nor loss: in flight when the journal is live.
    pub open: Intents,
    /// Results for which it names an intent that was answered before, or that is none.
    pub doubly_answered: Intents,
    /// Intents that a crash left open, as said at the start after it.
    pub lost: Intents,
    /// Results of sessions that keep the file, without a line: it was not on disk when power went.
    pub unpaired: u64,
    /// Intents minus results of sessions that keep no file: nobody can say which.
    pub unnamed_open: u64,
    /// Intents of earlier segments that were open when this segment began.
    pub carried_in: Intents,
    /// Intents that were open when this segment ended and that the next one took over.
    pub carried_on: u64,
    /// Lines that are none of the above; a torn last line is not counted.
    pub unreadable_lines: u64,
}

impl CallsReport {
    /// What the next segment took over is for that segment to account for.
    pub(super) fn hand_over(&mut self, taken: &Intents) {
        self.carried_on = taken.count.min(self.open.count);
        self.open.count -= self.carried_on;
        self.open
            .places
            .retain(|place| !taken.places.contains(place));
    }
}

/// Whether a session keeps the file. Until its first result it may be too early to say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Unknown,
    Yes,
    No,
}

/// The file, read beside the journal.
pub(super) struct Calls<'r> {
    lines: Lines<&'r mut dyn Read>,
    segment: u32,
    next: Option<Entry>,
    torn: bool,
    open: BTreeSet<Place>,
    keeper: Option<[u8; 32]>,
    session: Option<[u8; 32]>,
    session_from: u64,
    keeps: Keeps,
    /// Intents minus results of the session, while it may turn out to keep no file.
    balance: i64,
    report: CallsReport,
}

impl<'r> Calls<'r> {
    pub(super) fn new(file: &'r mut dyn Read, segment: u32) -> io::Result<Self> {
        let mut calls = Self {
            lines: Lines::new(file),
            segment,
            next: None,
            torn: false,
            open: BTreeSet::new(),
            keeper: None,
            session: None,
            session_from: 0,
            keeps: Keeps::Unknown,
            balance: 0,
            report: CallsReport::default(),
        };
        calls.advance()?;
        Ok(calls)
    }

    /// Takes note of the journal's next leaf.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn leaf(
        &mut self,
        index: u64,
        kind: Option<Kind>,
        session: &[u8; 32],
    ) -> io::Result<()> {
        let mut pair = None;
        while let Some(entry) = self.next.take_if(|entry| entry.leaf() <= index) {
            match entry {
                Entry::Pair { result, intent } if result == index => pair = Some(intent),
                entry => self.apply(entry),
            }
            self.advance()?;
        }
        if self.session.as_ref() != Some(session) {
            self.begin_session(index, *session);
        }
        match kind {
            Some(Kind::Intent) => self.intent(index),
            Some(Kind::Result) => self.result(pair),
            // A pair for a leaf that is no result answers nothing.
            _ => pair
                .into_iter()
                .for_each(|intent| self.report.doubly_answered.add(intent)),
        }
        Ok(())
    }

    /// The journal ended at `size` leaves; lines that speak of later ones were written meanwhile.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn end(mut self, size: u64) -> io::Result<CallsReport> {
        while let Some(entry) = self.next.take_if(|entry| entry.leaf() < size) {
            self.apply(entry);
            self.advance()?;
        }
        self.end_session();
        self.open
            .iter()
            .for_each(|place| self.report.open.add(*place));
        Ok(self.report)
    }

    fn advance(&mut self) -> io::Result<()> {
        self.next = None;
        while let Some(line) = self.lines.next_filled()? {
            // What looked torn was not the last line.
            self.report.unreadable_lines += u64::from(std::mem::take(&mut self.torn));
            self.next = Entry::read(line.text, self.segment);
            if self.next.is_some() {
                break;
            }
            self.torn = true;
        }
        Ok(())
    }

    fn begin_session(&mut self, index: u64, session: [u8; 32]) {
        self.end_session();
        self.session = Some(session);
        self.session_from = index;
        self.keeps = if self.keeper == Some(session) {
            Keeps::Yes
        } else {
            Keeps::Unknown
        };
    }

    /// A session without results may keep the file or not; its intents are open in either case.
    fn end_session(&mut self) {
        let balance = std::mem::take(&mut self.balance);
        if self.keeps == Keeps::No {
            self.report.unnamed_open += u64::try_from(balance).unwrap_or(0);
        }
    }

    fn place(&self, index: u64) -> Place {
        Place {
            segment: self.segment,
            index,
        }
    }

    fn intent(&mut self, index: u64) {
        self.balance += 1;
        if self.keeps != Keeps::No {
            self.open.insert(self.place(index));
        }
        if self.open.len() > OPEN_MAX {
            self.open.pop_first();
            self.report.unnamed_open += 1;
        }
    }

    fn result(&mut self, pair: Option<Place>) {
        self.balance -= 1;
        if self.keeps == Keeps::Unknown {
            self.keeps = if pair.is_some() {
                Keeps::Yes
            } else {
                Keeps::No
            };
            if self.keeps == Keeps::No {
                self.open.split_off(&self.place(self.session_from));
            }
        }
        match pair {
            Some(intent) if self.open.remove(&intent) => self.report.paired += 1,
            Some(intent) => self.report.doubly_answered.add(intent),
            None if self.keeps == Keeps::Yes => self.report.unpaired += 1,
            None => {}
        }
    }

    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Session { key, .. } => self.keeper = Some(key),
            Entry::Carried { intent, .. } => {
                self.report.carried_in.add(intent);
                self.open.insert(intent);
            }
            Entry::Lost { intents, .. } => {
                for intent in intents {
                    self.open.remove(&intent);
                    self.report.lost.add(intent);
                }
            }
            // Its leaf went by without being a result.
            Entry::Pair { intent, .. } => self.report.doubly_answered.add(intent),
        }
    }
}

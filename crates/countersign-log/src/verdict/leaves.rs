//! The leaves so far: their tree, their sequence, and how many there are of the two kinds that make a
//! call.

use super::{Failures, Fault, Place};
use crate::hash::Hash;
use crate::leaf::{Kind, LeafFault};
use crate::tree::Frontier;

/// The leaves of a journal or dossier as far as it is read.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    pub(super) frontier: Frontier,
    pub(super) intents: u64,
    pub(super) results: u64,
    /// Index that the next leaf continues. One leaf too few or too many is one fault, not one per
    /// leaf that follows.
    next: u64,
}

impl Leaves {
    /// Where the next leaf stands; `line` is that of a journal.
    pub(super) fn place(&self, line: Option<u64>) -> Place {
        Place::Leaf {
            position: self.frontier.size(),
            line,
        }
    }

    /// Checks that the next leaf has the index that follows.
    pub(super) fn follow(&mut self, index: u64, line: Option<u64>, failures: &mut Failures) {
        if index != self.next {
            let position = self.frontier.size();
            let fault = LeafFault::Position { index, position };
            failures.add(self.place(line), Fault::Structure(fault));
        }
        self.next = index.wrapping_add(1);
    }

    /// Takes the next leaf in.
    pub(super) fn push(&mut self, kind: Option<Kind>, hash: Hash) {
        match kind {
            Some(Kind::Intent) => self.intents += 1,
            Some(Kind::Result) => self.results += 1,
            _ => {}
        }
        self.frontier.push(hash);
    }
}

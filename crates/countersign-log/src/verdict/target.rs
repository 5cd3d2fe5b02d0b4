//! Files and folders to verify: a dossier, a journal, or the set that a rotated journal is.
//!
//! Any segment stands for its set, and a folder for all journals in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::{
    DossierReport, Fault, JournalReport, Place, Sidecars, Verdict, verify_dossier, verify_journal,
};
use crate::commitment::commit;
use crate::dossier::DossierError;
use crate::json::Members;
use crate::lines::Lines;
use crate::segments::{has_journal_name, journals_in, later_segments, segment_of, segment_payload};
use crate::sidecar::{self, read_salt};
use crate::tree::TreeHead;

/// Octets of signed heads that are read: tens of thousands, where a journal keeps 1,000 and one a day.
const HEADS_OCTETS_MAX: u64 = 64 << 20;

/// Octets of salts that are searched for the first payload's, which stands first.
const SALTS_OCTETS_MAX: u64 = 4096;

/// Octets that tell a journal from a dossier: more than a header has.
const HEADER_OCTETS_MAX: u64 = 4096;

/// One thing to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A dossier.
    Dossier(PathBuf),
    /// A journal: its segments by number, from 0; one if it never rotated.
    Journal(BTreeMap<u32, PathBuf>),
}

impl Target {
    /// Its first file, which stands for it.
    fn first(&self) -> &Path {
        match self {
            Self::Dossier(path) => path,
            Self::Journal(segments) => segments.values().next().expect("a journal is a file"),
        }
    }
}

/// Why there is no verdict.
#[derive(Debug)]
pub struct Unreadable {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    Dossier(DossierError),
    NoJournals,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match &self.why {
            Why::Io(error) => write!(
                f,
                "{path} cannot be read: {error}; name a journal, a dossier, or a folder of journals that you may read"
            ),
            Why::Dossier(error) => write!(
                f,
                "{path} {error}; name a journal (.wlog) or a dossier (.dossier.json)"
            ),
            Why::NoJournals => write!(
                f,
                "{path} holds no journal; name a folder with .wlog files in it"
            ),
        }
    }
}

impl std::error::Error for Unreadable {}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Unreadable {
    let path = path.to_owned();
    move |error| Unreadable {
        path,
        why: Why::Io(error),
    }
}

/// What there is to verify under `paths`, each thing once.
///
/// # Errors
/// A path cannot be read, or is a folder without journals.
pub fn targets(paths: &[PathBuf]) -> Result<Vec<Target>, Unreadable> {
    let mut targets = Vec::new();
    let mut known = BTreeSet::new();
    let mut add = |target: Target| {
        let first = target.first();
        let file = fs::canonicalize(first).map_err(unreadable(first))?;
        if known.insert(file) {
            targets.push(target);
        }
        Ok(())
    };
    for path in paths {
        let kind = fs::metadata(path).map_err(unreadable(path))?;
        if kind.is_dir() {
            let journals = journals_in(path).map_err(unreadable(path))?;
            if journals.is_empty() {
                let (path, why) = (path.clone(), Why::NoJournals);
                return Err(Unreadable { path, why });
            }
            for journal in journals {
                add(set_of(&journal).map_err(unreadable(&journal))?)?;
            }
        } else if is_journal(path).map_err(unreadable(path))? {
            add(set_of(path).map_err(unreadable(path))?)?;
        } else {
            add(Target::Dossier(path.clone()))?;
        }
    }
    Ok(targets)
}

/// By name; under other names, by whether the first line is a header.
fn is_journal(path: &Path) -> io::Result<bool> {
    const FIELDS: [&str; 1] = ["format_version"];
    if has_journal_name(path) {
        return Ok(true);
    }
    let mut lines = Lines::new(File::open(path)?.take(HEADER_OCTETS_MAX));
    let is_header = |text| Members::read(text, &FIELDS).is_ok_and(|first| first.raw(0).is_some());
    Ok(lines.next()?.is_some_and(|line| is_header(line.text)))
}

/// The set that `path` belongs to. `X.0001.wlog` is a segment only where `X.wlog` stands beside it.
fn set_of(path: &Path) -> io::Result<Target> {
    let base = segment_of(path)
        .map(|(base, _)| base)
        .filter(|base| base.is_file())
        .unwrap_or_else(|| path.to_owned());
    let mut segments = later_segments(&base)?;
    segments.insert(0, base);
    Ok(Target::Journal(segments))
}

/// Where a journal stands in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, above 0.
    pub number: u32,
    /// Whether its first payload was opened, and names the end of the segment before. Without its
    /// salt it cannot be opened.
    pub link_checked: bool,
}

/// What was found in one file.
#[derive(Clone, Debug)]
pub enum Report {
    /// In a dossier.
    Dossier {
        /// Its file.
        path: PathBuf,
        /// What was found.
        report: DossierReport,
    },
    /// In a journal, or a segment of one.
    Journal {
        /// Its file.
        path: PathBuf,
        /// What was found.
        report: JournalReport,
        /// Where it stands in its set, unless it is the first.
        segment: Option<Segment>,
    },
}

impl Report {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Dossier { report, .. } => report.failures.verdict(),
            Self::Journal { report, .. } => report.failures.verdict(),
        }
    }
}

/// Verifies one target: one report for each of its files. `pinned` is the hex of the identity that
/// must have written it.
///
/// # Errors
/// A file cannot be read, or is not a dossier.
pub fn verify(target: &Target, pinned: Option<&str>) -> Result<Vec<Report>, Unreadable> {
    match target {
        Target::Dossier(path) => {
            let mut file = File::open(path).map_err(unreadable(path))?;
            match verify_dossier(&mut file, pinned) {
                Ok(report) => Ok(vec![Report::Dossier {
                    path: path.clone(),
                    report,
                }]),
                Err(error) => Err(Unreadable {
                    path: path.clone(),
                    why: Why::Dossier(error),
                }),
            }
        }
        Target::Journal(segments) => verify_set(segments, pinned),
    }
}

fn verify_set(
    segments: &BTreeMap<u32, PathBuf>,
    pinned: Option<&str>,
) -> Result<Vec<Report>, Unreadable> {
    let mut reports: Vec<Report> = Vec::new();
    let mut last = 0;
    for (&number, path) in segments {
        let mut report = verify_segment(path, number, pinned).map_err(unreadable(path))?;
        let segment = match reports.last_mut() {
            Some(Report::Journal { report: before, .. }) => {
                let joined = join(path, last, before, number, &mut report);
                Some(joined.map_err(unreadable(path))?)
            }
            _ => None,
        };
        last = number;
        reports.push(Report::Journal {
            path: path.clone(),
            report,
            segment,
        });
    }
    Ok(reports)
}

/// Compares a segment with the one `before` it, which has the number `last`.
fn join(
    path: &Path,
    last: u32,
    before: &mut JournalReport,
    number: u32,
    report: &mut JournalReport,
) -> io::Result<Segment> {
    let follows = last + 1 == number;
    if !follows {
        let missing = Fault::SegmentMissing(last + 1);
        report.failures.add(Place::Whole, missing);
    }
    if before.identity != report.identity {
        report.failures.add(Place::Whole, Fault::SegmentOfAnother);
    }
    if let (Some(before), Some(calls)) = (&mut before.calls, &report.calls) {
        before.hand_over(&calls.carried_in);
    }
    Ok(Segment {
        number,
        link_checked: follows && check_link(path, number, before, report)?,
    })
}

fn verify_segment(path: &Path, number: u32, pinned: Option<&str>) -> io::Result<JournalReport> {
    let heads = sidecar::open(&sidecar::path(path, "heads"))?;
    let heads = match heads {
        None => None,
        Some(file) => {
            let mut text = Vec::new();
            let length = file.take(HEADS_OCTETS_MAX + 1).read_to_end(&mut text)?;
            if length as u64 > HEADS_OCTETS_MAX {
                // Reading only the first of them would miss the newest, and with it a cut.
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "its file of signed heads is larger than 64 MiB",
                ));
            }
            Some(text)
        }
    };
    let mut journal = File::open(path)?;
    let mut calls = sidecar::open(&sidecar::path(path, "calls"))?;
    let sidecars = Sidecars {
        heads,
        calls: calls.as_mut().map(|file| file as &mut dyn io::Read),
        segment: number,
    };
    verify_journal(&mut journal, sidecars, pinned)
}

/// Opens a segment's first payload with its salt, where that is there, and compares it with what it
/// must say. Says whether it could.
fn check_link(
    path: &Path,
    number: u32,
    before: &JournalReport,
    report: &mut JournalReport,
) -> io::Result<bool> {
    let (Some((index, commitment)), Some(salts)) = (
        report.first_payload,
        sidecar::open(&sidecar::path(path, "salts"))?,
    ) else {
        return Ok(false);
    };
    let previous = TreeHead {
        size: before.leaf_count,
        root: before.root,
    };
    let payload = segment_payload(number, previous);
    let mut lines = Lines::new(salts.take(SALTS_OCTETS_MAX));
    let mut salt = None;
    while let Some(line) = lines.next_filled()? {
        // The last record of an index is the one that counts.
        salt = read_salt(line.text).filter(|(at, _)| *at == index).or(salt);
    }
    let Some((_, salt)) = salt else {
        return Ok(false);
    };
    if commit(&payload, &salt, index) != commitment {
        let place = Place::Leaf {
            position: index,
            line: None,
        };
        report.failures.add(place, Fault::SegmentLink(number));
    }
    Ok(true)
}

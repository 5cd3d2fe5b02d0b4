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
use crate::hex;
use crate::json::Members;
use crate::lines::Lines;
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

fn journals_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if has_journal_name(&path) && path.is_file() {
            journals.push(path);
        }
    }
    journals.sort();
    Ok(journals)
}

fn has_journal_name(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "wlog")
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
    let folder = match base.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut segments = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let sibling = base.with_file_name(entry?.file_name());
        if let Some((of, number)) = segment_of(&sibling)
            && of == base
        {
            segments.insert(number, sibling);
        }
    }
    segments.insert(0, base);
    Ok(Target::Journal(segments))
}

/// `X.0001.wlog` is segment 1 of `X.wlog`.
fn segment_of(path: &Path) -> Option<(PathBuf, u32)> {
    let stem = path.file_stem()?.to_str()?;
    let (name, digits) = stem.rsplit_once('.')?;
    let is_number = digits.len() >= 4 && digits.bytes().all(|digit| digit.is_ascii_digit());
    let number: u32 = digits.parse().ok().filter(|_| is_number)?;
    let mut base = path.with_file_name(name).into_os_string();
    base.push(".");
    base.push(path.extension()?);
    (number > 0).then(|| (base.into(), number))
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
    let heads = open_sidecar(path, "heads")?;
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
    let mut calls = open_sidecar(path, "calls")?;
    let sidecars = Sidecars {
        heads,
        calls: calls.as_mut().map(|file| file as &mut dyn io::Read),
        segment: number,
    };
    verify_journal(&mut journal, sidecars, pinned)
}

fn open_sidecar(journal: &Path, suffix: &str) -> io::Result<Option<File>> {
    let mut path = journal.as_os_str().to_owned();
    path.push(".");
    path.push(suffix);
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a segment's first payload with its salt, where that is there, and compares it with what it
/// must say. Says whether it could.
fn check_link(
    path: &Path,
    number: u32,
    before: &JournalReport,
    report: &mut JournalReport,
) -> io::Result<bool> {
    const FIELDS: [&str; 2] = ["i", "s"];
    let (Some((index, commitment)), Some(salts)) =
        (report.first_payload, open_sidecar(path, "salts")?)
    else {
        return Ok(false);
    };
    let previous = TreeHead {
        size: before.leaf_count,
        root: before.root,
    };
    let payload = segment_payload(number, previous);
    let mut lines = Lines::new(salts.take(SALTS_OCTETS_MAX));
    while let Some(line) = lines.next_filled()? {
        let read = || {
            let members = Members::read(line.text, &FIELDS).ok()?;
            let salt = hex::decode(members.string(1).ok()?.as_bytes()).ok()?;
            (members.u64(0).ok()? == index).then_some(salt)
        };
        if let Some(salt) = read() {
            if commit(&payload, &salt, index) != commitment {
                let place = Place::Leaf {
                    position: index,
                    line: None,
                };
                report.failures.add(place, Fault::SegmentLink(number));
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// The payload by which segment `number` names the end of the one before it: canonical JSON.
pub fn segment_payload(number: u32, previous: TreeHead) -> Vec<u8> {
    format!(
        "{{\"number\":{number},\"previous_head\":{{\"root\":\"{}\",\"size\":{}}},\"profile\":\"countersign.segment v1\"}}",
        previous.root, previous.size
    )
    .into_bytes()
}

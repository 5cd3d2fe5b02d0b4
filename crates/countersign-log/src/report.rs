//! How a verdict is told: three plain lines and details for people, one JSON object for programs.
//!
//! The first line says what it is and whether it holds, the second what holds, the third what does
//! not, or what nobody can know from the files alone. Members of the JSON have the reference's names
//! where it has them.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::calls::Place;
use crate::verdict::{
    CallsReport, Check, DossierReport, Ending, Failures, Intents, JournalReport, Report, Segment,
    Verdict,
};

/// The lines about one report, each with its newline.
pub fn text(report: &Report) -> String {
    match report {
        Report::Dossier { path, report } => dossier_text(path, report),
        Report::Journal {
            path,
            report,
            segment,
        } => journal_text(path, report, *segment),
    }
}

/// The same for programs: a JSON object.
pub fn json(report: &Report) -> Value {
    match report {
        Report::Dossier { path, report } => dossier_json(path, report),
        Report::Journal {
            path,
            report,
            segment,
        } => journal_json(path, report, *segment),
    }
}

fn dossier_text(path: &Path, report: &DossierReport) -> String {
    let mut claims = vec![
        (Check::Structure, "structure"),
        (Check::Identity, "identity"),
        (Check::CheckpointSignature, "checkpoint signature"),
        (Check::Merkle, "size and root"),
    ];
    if report.bindings_asserted {
        claims.push((Check::Bindings, "key bindings"));
    }
    let mut text = first_line(path, "dossier", &report.failures);
    let _ = writeln!(
        text,
        "  holds: {}; {} ({} intents, {} results) of {}",
        holding(&report.failures, &claims),
        count(report.leaf_count, "leaf", "leaves"),
        report.intents,
        report.results,
        // Any text can stand there, and a terminal would obey it.
        report.cover.identity_pubkey.escape_debug(),
    );
    text += &last_line(&report.failures, unknown_of_dossier(report).to_owned());
    let _ = writeln!(
        text,
        "  root {} over {}, signed at {} ms; {}",
        report.root,
        count(report.leaf_count, "leaf", "leaves"),
        report.cover.checkpoint.timestamp_ms,
        count(report.sessions, "session", "sessions"),
    );
    text += &failures_text(&report.failures);
    text
}

fn journal_text(path: &Path, report: &JournalReport, segment: Option<Segment>) -> String {
    let what = match segment {
        Some(segment) => format!("segment {}", segment.number),
        None => "journal".to_owned(),
    };
    let identity = report
        .identity
        .map_or_else(|| "nobody".to_owned(), |identity| identity.to_string());
    let mut claims = vec![
        (Check::Structure, "structure"),
        (Check::Identity, "identity"),
        (Check::Bindings, "key bindings"),
    ];
    if report.heads.as_ref().is_some_and(|heads| heads.count > 0) {
        claims.push((Check::Merkle, "signed heads"));
    }
    let mut text = first_line(path, &what, &report.failures);
    let _ = writeln!(
        text,
        "  holds: {}; {} ({} intents, {} results) of {identity}",
        holding(&report.failures, &claims),
        count(report.leaf_count, "leaf", "leaves"),
        report.intents,
        report.results,
    );
    text += &last_line(&report.failures, unknown(report));
    let _ = writeln!(
        text,
        "  root {} over {}; {}",
        report.root,
        count(report.leaf_count, "leaf", "leaves"),
        count(report.sessions, "session", "sessions"),
    );
    for detail in journal_details(report, segment) {
        let _ = writeln!(text, "  {detail}");
    }
    text += &failures_text(&report.failures);
    text
}

fn first_line(path: &Path, what: &str, failures: &Failures) -> String {
    let verdict = match failures.verdict() {
        Verdict::Invalid => "INVALID",
        Verdict::Unanchored => "fine, unanchored",
    };
    format!("{}: {what}, {verdict}\n", path.display())
}

/// The claims that nothing denies, in words.
fn holding(failures: &Failures, claims: &[(Check, &str)]) -> String {
    let holding: Vec<_> = claims
        .iter()
        .filter_map(|(check, name)| failures.allow(*check).then_some(*name))
        .collect();
    match holding.is_empty() {
        true => "nothing".to_owned(),
        false => holding.join(", "),
    }
}

fn last_line(failures: &Failures, open: String) -> String {
    match failures.listed() {
        [] => format!("  not shown: {open}\n"),
        [first, ..] if failures.count() > 1 => {
            let more = count(failures.count() - 1, "fault", "faults");
            format!("  does not hold: {first} (and {more} more)\n")
        }
        [first, ..] => format!("  does not hold: {first}\n"),
    }
}

/// What a dossier cannot show.
fn unknown_of_dossier(report: &DossierReport) -> &'static str {
    if report.bindings_asserted {
        "no witness was asked: the identity could have signed another history as well"
    } else {
        "no witness was asked, and no key binding says which sessions may write"
    }
}

/// What the files of a journal cannot show.
fn unknown(report: &JournalReport) -> String {
    if report.heads.as_ref().is_none_or(|heads| heads.count == 0) {
        return "no head was signed: changed, cut or exchanged leaves would not show".to_owned();
    }
    match report.unsigned_so_far() {
        0 => "who holds the key could have signed another history".to_owned(),
        unsigned => format!(
            "{} after the newest signed head: unsigned so far",
            count(unsigned, "leaf stands", "leaves stand")
        ),
    }
}

fn journal_details(report: &JournalReport, segment: Option<Segment>) -> Vec<String> {
    let mut details = Vec::new();
    if report.identity.is_some() && !report.sealed {
        details.push("unsealed: whoever can read this journal can sign in its name".to_owned());
    }
    if let Some(heads) = &report.heads {
        details.push(format!(
            "{}, reproduced over the first {} leaves; {} unsigned so far",
            count(heads.count, "signed head", "signed heads"),
            heads.reproduced,
            report.unsigned_so_far()
        ));
    }
    details.extend(ending_text(report.ending).map(str::to_owned));
    if let Some(segment) = segment {
        details.push(
            match segment.link_checked {
                true => "its first payload was opened and compared with the segment before",
                false => "its first payload, which names the segment before, is hidden: its salt is not here",
            }
            .to_owned(),
        );
    }
    details.extend(report.calls.iter().flat_map(calls_text));
    details
}

fn ending_text(ending: Ending) -> Option<&'static str> {
    match ending {
        Ending::Whole => None,
        Ending::NoNewline => Some("the last line has no newline yet"),
        Ending::BeingWritten => Some("the last line is being written, or its writer died"),
        Ending::TornTail => Some("torn tail: the last line is nothing; a writer will cut it off"),
    }
}

fn calls_text(calls: &CallsReport) -> Vec<String> {
    let place = |place: &Place| match place.segment {
        0 => place.index.to_string(),
        segment => format!("segment {segment} {}", place.index),
    };
    let places = |intents: &[Place]| {
        let places: Vec<_> = intents.iter().map(place).collect();
        places.join(", ")
    };
    let named = [
        (&calls.open, "open"),
        (&calls.lost, "lost by a crash"),
        (&calls.doubly_answered, "answered twice, or no intent"),
    ];
    let mut lines: Vec<_> = named
        .into_iter()
        .filter(|(intents, _)| intents.count > 0)
        .map(|(intents, what)| {
            let many = count(intents.count, "intent", "intents");
            format!("{many} {what}: {}", places(&intents.places))
        })
        .collect();
    let counted = [
        (calls.carried_on, "intents that the next segment took over"),
        (calls.unnamed_open, "intents open that nobody named"),
        (calls.unpaired, "results whose intent nobody named"),
        (calls.unreadable_lines, "unreadable lines about calls"),
    ];
    let counted = counted.into_iter().filter(|(number, _)| *number > 0);
    lines.extend(counted.map(|(number, what)| format!("{what}: {number}")));
    lines
}

fn failures_text(failures: &Failures) -> String {
    let mut text: String = failures
        .listed()
        .iter()
        .map(|failure| format!("  ! {failure}\n"))
        .collect();
    let rest = failures.count() - failures.listed().len() as u64;
    if rest > 0 {
        let _ = writeln!(text, "  ! {} more", count(rest, "fault", "faults"));
    }
    text
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn dossier_json(path: &Path, report: &DossierReport) -> Value {
    let mut object = shared_json(path, &report.failures);
    object["checkpoint_signature_valid"] = json!(report.failures.allow(Check::CheckpointSignature));
    object["bindings_asserted"] = json!(report.bindings_asserted);
    object["claimed_tree_size"] = json!(report.cover.checkpoint.tree_size);
    object["identity_pinned"] = json!(report.identity_pinned);
    object["identity_pubkey"] = json!(report.cover.identity_pubkey);
    object["leaf_count"] = json!(report.leaf_count);
    object["root"] = json!(report.root.to_hex());
    object["intents"] = json!(report.intents);
    object["results"] = json!(report.results);
    object["sessions"] = json!(report.sessions);
    object
}

fn journal_json(path: &Path, report: &JournalReport, segment: Option<Segment>) -> Value {
    let mut object = shared_json(path, &report.failures);
    let identity = report.identity.map(|identity| identity.to_string());
    object["bindings_asserted"] = json!(report.sessions > 0);
    object["identity_pinned"] = json!(report.identity_pinned);
    object["identity_pubkey"] = json!(identity);
    object["sealed"] = json!(report.sealed);
    object["leaf_count"] = json!(report.leaf_count);
    object["root"] = json!(report.root.to_hex());
    object["intents"] = json!(report.intents);
    object["results"] = json!(report.results);
    object["sessions"] = json!(report.sessions);
    object["ending"] = json!(match report.ending {
        Ending::Whole => "whole",
        Ending::NoNewline => "no-newline",
        Ending::BeingWritten => "being-written",
        Ending::TornTail => "torn-tail",
    });
    object["unsigned_so_far"] = json!(report.unsigned_so_far());
    object["heads"] = report.heads.as_ref().map_or(Value::Null, |heads| {
        json!({
            "count": heads.count,
            "newest": heads.newest.map(|head| format!("{}:{}", head.size, head.root)),
            "reproduced": heads.reproduced,
        })
    });
    object["calls"] = report.calls.as_ref().map_or(Value::Null, calls_json);
    object["segment"] = segment.map_or(
        Value::Null,
        |segment| json!({"number": segment.number, "link_checked": segment.link_checked}),
    );
    object
}

fn calls_json(calls: &CallsReport) -> Value {
    let intents = |intents: &Intents| {
        let pair = |place: &Place| json!([place.segment, place.index]);
        let places: Vec<_> = intents.places.iter().map(pair).collect();
        json!({"count": intents.count, "places": places})
    };
    json!({
        "paired": calls.paired,
        "open": intents(&calls.open),
        "doubly_answered": intents(&calls.doubly_answered),
        "lost": intents(&calls.lost),
        "carried_in": intents(&calls.carried_in),
        "carried_on": calls.carried_on,
        "unpaired": calls.unpaired,
        "unnamed_open": calls.unnamed_open,
        "unreadable_lines": calls.unreadable_lines,
    })
}

/// The members that the reference has for every dossier. What needs witnesses is as it is without.
fn shared_json(path: &Path, failures: &Failures) -> Value {
    let listed: Vec<_> = failures.listed().iter().map(ToString::to_string).collect();
    json!({
        "path": path.display().to_string(),
        "verdict": failures.verdict().name(),
        "internally_consistent": failures.count() == 0,
        "identity_bound": failures.allow(Check::Identity),
        "leaves_structurally_valid": failures.allow(Check::Structure),
        "bindings_valid": failures.allow(Check::Bindings),
        "merkle_continuity_valid": failures.allow(Check::Merkle),
        "externally_anchored": false,
        "quorum": null,
        "split_view_unsafe": false,
        "contradictions": [],
        "known_heads_unchecked": [],
        "failures": listed,
        "failure_count": failures.count(),
    })
}

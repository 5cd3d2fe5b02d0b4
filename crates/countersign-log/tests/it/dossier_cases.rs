//! Good and tampered dossiers: verdict, exit code and findings against the reference's.

use std::process::Command;

use serde_json::Value;

use crate::data::{json, list, path, text};

fn run(case: &Value) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_countersign-verify"))
        .arg(text(&case["dossier"]))
        .args(list(&case["args"]).iter().map(text))
        .arg("--json")
        .current_dir(path("journals"))
        .output()
        .expect("the program runs")
}

/// What both programs report. The words of failures are our own.
const COMPARED: [&str; 14] = [
    "bindings_asserted",
    "bindings_valid",
    "checkpoint_signature_valid",
    "claimed_tree_size",
    "contradictions",
    "externally_anchored",
    "identity_bound",
    "identity_pinned",
    "internally_consistent",
    "known_heads_unchecked",
    "leaf_count",
    "leaves_structurally_valid",
    "quorum",
    "split_view_unsafe",
];

#[test]
fn every_dossier_without_directory_is_judged_as_the_reference_does() {
    let cases = json("dossier_cases.json");
    assert_eq!(list(&cases).len(), 108);
    let mut wrong = Vec::new();
    for case in list(&cases) {
        let name = format!("{} {}", text(&case["case"]), case["args"]);
        let output = run(case);
        let expected = match crate::data::number(&case["exit"]) {
            20 => 0,
            40 => 1,
            exit => exit as i32,
        };
        if output.status.code() != Some(expected) {
            wrong.push(format!("{name}: exit {:?}", output.status.code()));
            continue;
        }
        if expected == 2 {
            let complaint = String::from_utf8(output.stderr).expect("UTF-8");
            assert_eq!(complaint.lines().count(), 1, "{name}: {complaint}");
            assert!(output.stdout.is_empty(), "{name}");
            continue;
        }
        let ours: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        let theirs = &case["report"];
        for member in COMPARED
            .into_iter()
            .chain(["merkle_continuity_valid", "verdict"])
        {
            if ours[member] != theirs[member] {
                wrong.push(format!(
                    "{name}: {member} {} / {}",
                    ours[member], theirs[member]
                ));
            }
        }
        let failed = !list(&theirs["failures"]).is_empty();
        assert_eq!(!list(&ours["failures"]).is_empty(), failed, "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! The identity seed: where it arrives, and that nobody else finds it.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use crate::program::shim;

const NAME: &str = "WITNESS_LOG_IDENTITY_SEED_ENV";
const SEED: &str = "000102030405060708090A0b0c0d0e0f101112131415161718191a1b1c1d1eFF";

fn show(variables: &[(&str, &str)]) -> Output {
    Command::new(shim())
        .args(["seed", "an argument", ""])
        .env_remove(NAME)
        .envs(variables.iter().copied())
        .output()
        .expect("the example program starts")
}

fn shown(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("it is text")
}

#[test]
fn without_the_variable_there_is_no_seed() {
    let text = shown(&show(&[("MY_SEED", SEED)]));
    assert!(text.starts_with("no seed\n"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_seed_arrives_and_is_in_no_environment_and_no_descriptor() {
    let output = show(&[(NAME, "MY_SEED"), ("MY_SEED", SEED), ("OTHER", "kept")]);
    let text = shown(&output);
    assert!(output.status.success(), "{output:?}");
    let expected = "seed [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, \
                    20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 255]\n";
    assert!(text.starts_with(expected), "{text}");
    // Of the two environments shown, ours and our child's, neither has the variables.
    assert!(!text.contains("MY_SEED") && !text.contains(NAME), "{text}");
    assert!(!text.contains("1c1d1e"), "{text}");
    assert_eq!(text.matches("OTHER=kept").count(), 2, "{text}");
    // The marker of the second image is no business of a child.
    assert_eq!(
        text.matches("COUNTERSIGN_SEED_DESCRIPTOR=").count(),
        1,
        "{text}"
    );
    let arguments = text.lines().find(|line| line.starts_with("arguments"));
    let expected = format!("arguments [{:?}, \"seed\", \"an argument\", \"\"]", shim());
    assert_eq!(arguments, Some(expected.as_str()));
    let inherited: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("descriptor"))
        .collect();
    assert_eq!(
        inherited,
        ["descriptor 0", "descriptor 1", "descriptor 2"],
        "{text}"
    );
    assert!(text.ends_with("dumps NotDumpable\n"), "{text}");
}

/// The ban on dumps makes our entries in `/proc` root's, and we open pipes through them.
#[cfg(target_os = "linux")]
#[test]
fn pipes_are_still_opened_anew_after_the_seed_was_taken() {
    let mut child = Command::new(shim())
        .arg("echo")
        .envs([(NAME, "MY_SEED"), ("MY_SEED", SEED)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example program starts");
    let errors = child.stderr.as_mut().expect("it is piped");
    let mut kinds = [0; 10];
    errors.read_exact(&mut kinds).expect("it says its kinds");
    assert_eq!(&kinds, b"pipe pipe\n");
    let done = child.wait_with_output().expect("it can be waited for");
    assert!(done.status.success());
}

#[test]
fn a_bad_seed_is_refused_by_name_and_never_shown() {
    let long = format!("{SEED}0");
    let not_hex = SEED.replace('F', "G");
    let cases = [
        (
            "MY_SEED",
            None,
            "names the variable \"MY_SEED\", which is not set",
        ),
        ("", None, "names the variable \"\", which is not set"),
        ("A=B", None, "names the variable \"A=B\", which is not set"),
        ("MY_SEED", Some(""), "found 0 bytes"),
        ("MY_SEED", Some(&SEED[..63]), "found 63 bytes"),
        ("MY_SEED", Some(long.as_str()), "found 65 bytes"),
        ("MY_SEED", Some(not_hex.as_str()), "found 64 bytes"),
        (SEED, None, "must hold the name of the variable"),
    ];
    for (name, value, said) in cases {
        let mut variables = vec![(NAME, name)];
        variables.extend(value.map(|value| ("MY_SEED", value)));
        let output = show(&variables);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        assert!(text.contains(said) && text.contains(NAME), "{text}");
        assert!(!text.contains("0203040506"), "{text}");
    }
}

#[test]
fn a_marker_that_leads_nowhere_is_refused() {
    for number in ["99", "0", "x", "-1", "../../etc/passwd"] {
        let output = show(&[("COUNTERSIGN_SEED_DESCRIPTOR", number)]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        assert!(text.contains("COUNTERSIGN_SEED_DESCRIPTOR"), "{text}");
    }
}

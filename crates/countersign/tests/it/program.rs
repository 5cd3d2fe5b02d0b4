//! The example program `shim`, which some tests drive from outside.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Its path. Built here where the test runner was told to build this test binary alone.
pub(crate) fn shim() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let tests = std::env::current_exe().expect("a running test has a path");
        // target/PROFILE/deps/it-HASH stands beside target/PROFILE/examples/shim.
        let profile = tests.ancestors().nth(2).expect("tests stand in deps");
        let path = profile.join("examples/shim");
        if !path.exists() {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--package", "countersign", "--example", "shim"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo runs, since it started this test");
            assert!(built.success());
        }
        path
    })
    .clone()
}

/// Waits for a condition that another process brings about; fails after five seconds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !condition() {
        assert!(Instant::now() < end, "not within five seconds: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there and is not merely waiting to be reaped.
pub(crate) fn is_alive(id: u32) -> bool {
    let state = if cfg!(target_os = "linux") {
        let line = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        line.rsplit(") ").next().map(str::to_owned)
    } else {
        let told = Command::new("ps")
            .args(["-o", "stat=", "-p", &id.to_string()])
            .output();
        told.ok()
            .and_then(|told| String::from_utf8(told.stdout).ok())
    };
    let state = state.unwrap_or_default();
    !state.trim().is_empty() && !state.starts_with(['Z', 'X'])
}

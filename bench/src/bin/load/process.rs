//! What the kernel says of a process tree: CPU time, peak memory, and on which cores it may run.
//!
//! The server is told apart by its program file, everything else under the direct child is the
//! proxy. A proxy that is a script with an interpreter, or that has helpers, is counted whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processes of one running contender.
pub(crate) struct Tree {
    proxy: Vec<u32>,
    server: Vec<u32>,
}

/// CPU time spent since the processes started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) proxy: Duration,
    pub(crate) server: Duration,
}

impl Tree {
    /// The process `root` and all below it, as they are now.
    pub(crate) fn of(root: u32) -> Self {
        let mut tree = Self {
            proxy: Vec::new(),
            server: Vec::new(),
        };
        let mut unvisited = vec![root];
        while let Some(process) = unvisited.pop() {
            let program = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            let is_server = program
                .file_name()
                .is_some_and(|name| name == "echo_server");
            if is_server {
                &mut tree.server
            } else {
                &mut tree.proxy
            }
            .push(process);
            for thread in threads(process) {
                let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
                unvisited.extend(
                    children
                        .split_whitespace()
                        .filter_map(|id| id.parse::<u32>().ok()),
                );
            }
        }
        tree
    }

    /// Time on a core of all threads alive. The scheduler's own count, in nanoseconds: the ticks
    /// of `/proc/PID/stat` are 10 ms, as much as a whole round of a fast contender takes.
    pub(crate) fn cpu(&self) -> Cpu {
        let sum = |processes: &[u32]| {
            processes
                .iter()
                .flat_map(|&id| threads(id))
                .map(|thread| time_on_core(&thread))
                .sum()
        };
        Cpu {
            proxy: sum(&self.proxy),
            server: sum(&self.server),
        }
    }

    /// Peak resident memory of the proxy, in KiB; of the server when there is no proxy.
    pub(crate) fn rss_peak_kib(&self) -> u64 {
        let processes = if self.proxy.is_empty() {
            &self.server
        } else {
            &self.proxy
        };
        processes
            .iter()
            .filter_map(|&id| high_water_mark_kib(id))
            .sum()
    }
}

/// The folders of a process's threads; none once it has gone.
fn threads(process: u32) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// The first field of `schedstat`: nanoseconds spent running.
fn time_on_core(thread: &Path) -> Duration {
    let line = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let nanoseconds = line
        .split_whitespace()
        .next()
        .and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

fn high_water_mark_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The cores this process may use; what it starts inherits them.
pub(crate) fn cores() -> io::Result<CpuSet> {
    Ok(sched_getaffinity(None)?)
}

/// Confines this process, and what it starts from now on, to `cores`.
pub(crate) fn confine(cores: &CpuSet) -> io::Result<()> {
    Ok(sched_setaffinity(None, cores)?)
}

/// The last core of a set: the first one is where most machines take their interrupts.
pub(crate) fn last_of(cores: &CpuSet) -> CpuSet {
    let mut one = CpuSet::new();
    if let Some(core) = (0..CpuSet::MAX_CPU).rev().find(|&core| cores.is_set(core)) {
        one.set(core);
    }
    one
}

/// Bytes of all files below a folder.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let bytes_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0, // gone between listing and looking: a temporary file, no bytes left
    };
    entries.flatten().map(bytes_of).sum()
}

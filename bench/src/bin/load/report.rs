//! Measures as Markdown. Every value that has one carries its ratio to the direct connection of
//! the same run, because only the ratios travel from one machine to another.

use std::fs;
use std::time::Duration;

use rustix::thread::CpuSet;

use crate::rounds::{Measure, Row};

/// The machine, and which contenders are not in the tables.
pub(crate) fn heading(cores: &CpuSet, absent: &[String]) -> String {
    let model = first_value_of("/proc/cpuinfo", "model name");
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?");
    let mut text = format!(
        "Machine: {} cores ({model}), load at the start {load}. Medians over interleaved rounds; (n×) is the ratio to direct.\n",
        cores.count()
    );
    for reason in absent {
        text += &format!("\nLeft out: {reason}.");
    }
    text
}

fn first_value_of(file: &str, key: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text
        .lines()
        .find(|line| line.starts_with(key))
        .and_then(|line| line.split_once(": "));
    value.map_or("?", |(_, value)| value).to_owned()
}

fn placement(pinned: bool) -> &'static str {
    if pinned {
        "all processes on one core"
    } else {
        "not pinned"
    }
}

/// The table of start-up times.
pub(crate) fn startup(pinned: bool, times: &[Row<Duration>]) -> String {
    let mut text = format!(
        "\n### Start to `initialize` answered, {}\n\n| contender | ms | over direct |\n| --- | ---: | ---: |\n",
        placement(pinned)
    );
    let direct = times
        .iter()
        .find(|(name, _)| *name == "direct")
        .and_then(|(_, time)| time.as_ref().ok());
    for (name, time) in times {
        text += &match (time, direct) {
            (Ok(time), Some(direct)) => {
                format!(
                    "| {name} | {:.1} | {:+.1} |\n",
                    millis(*time),
                    millis(*time) - millis(*direct)
                )
            }
            (Ok(time), None) => format!("| {name} | {:.1} | |\n", millis(*time)),
            (Err(reason), _) => format!("| {name} | {} | |\n", cell(reason)),
        };
    }
    text
}

/// The head of one placement's table.
pub(crate) fn table_heading(pinned: bool, in_flight: usize) -> String {
    format!(
        "\n### {in_flight} in flight, {}\n\n| result | contender | p50 | p99 | calls/s | CPU/call proxy | CPU/call proxy + server | peak RSS | disk/call |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        placement(pinned)
    )
}

/// The rows of one result size.
pub(crate) fn rows(result_bytes: usize, measured: &[Row<Measure>]) -> String {
    let direct = measured
        .iter()
        .find(|(name, _)| *name == "direct")
        .and_then(|(_, measure)| measure.as_ref().ok());
    measured
        .iter()
        .map(|(name, measure)| row(result_bytes, name, measure, direct))
        .collect()
}

fn row(
    result_bytes: usize,
    name: &str,
    measure: &Result<Measure, String>,
    direct: Option<&Measure>,
) -> String {
    let result = match result_bytes {
        1_000_000.. => format!("{} MB", result_bytes / 1_000_000),
        1_000.. => format!("{} kB", result_bytes / 1_000),
        _ => format!("{result_bytes} B"),
    };
    let it = match measure {
        Ok(measure) => measure,
        Err(reason) => {
            return format!("| {result} | {name} | {} | | | | | | |\n", cell(reason));
        }
    };
    let times =
        |of: fn(&Measure) -> f64| direct.map_or(String::new(), |direct| ratio(of(it) / of(direct)));
    format!(
        "| {result} | {name} | {}{} | {}{} | {}{} | {} | {} | {:.1} MiB | {:.0} B |\n",
        time(it.p50),
        times(|it| it.p50.as_secs_f64()),
        time(it.p99),
        times(|it| it.p99.as_secs_f64()),
        figures(it.calls_per_second),
        times(|it| it.calls_per_second),
        time(it.cpu.proxy),
        time(it.cpu.proxy + it.cpu.server),
        it.rss_peak_kib as f64 / 1024.0,
        it.disk_bytes_per_call,
    )
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Three figures, or the whole number when it has more.
fn figures(value: f64) -> String {
    let decimals = match value {
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ if value >= 0.01 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

fn ratio(value: f64) -> String {
    format!(" ({}×)", figures(value))
}

/// Microseconds below 10 ms, for most values to be in one unit.
fn time(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        0.0 => "-".to_owned(),
        micros if micros < 10_000.0 => format!("{} µs", figures(micros)),
        micros => format!("{} ms", figures(micros / 1e3)),
    }
}

/// Text that cannot break a table.
fn cell(text: &str) -> String {
    text.replace('|', "/").replace('\n', " ")
}

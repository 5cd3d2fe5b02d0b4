//! Contenders taking turns: all are open at once, and each round begins with the next one.
//!
//! What comes out are medians over the rounds for what a clock measured, and sums divided by the
//! calls for what the kernel counted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::contender::Contender;
use crate::process::{self, Cpu};
use crate::session::{Failure, Plan, Round, Session};

/// A contender that by its warm-up would need longer than this to answer all calls in flight once
/// is not asked to.
const WINDOW_TIME_MAX: Duration = Duration::from_secs(20);

/// A contender that has used this much time sits out the rest of a setting's rounds.
const CONTENDER_TIME_MAX: Duration = Duration::from_secs(8);

/// One line of a table: a contender's name and its value, or why there is none.
pub(crate) type Row<T> = (&'static str, Result<T, String>);

/// What a contender needed in one setting.
pub(crate) struct Measure {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) calls_per_second: f64,
    /// Per call.
    pub(crate) cpu: Cpu,
    pub(crate) rss_peak_kib: u64,
    pub(crate) disk_bytes_per_call: f64,
}

/// Time from start to the answer to `initialize`: the median of several starts, taken in turns.
pub(crate) fn startup(
    contenders: &[Contender],
    work: &Path,
    starts: usize,
) -> io::Result<Vec<Row<Duration>>> {
    let mut times: Vec<Result<Vec<Duration>, String>> =
        contenders.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..starts {
        for at in turns(contenders.len(), round) {
            let Ok(taken) = &mut times[at] else { continue };
            let dir = fresh_folder(work, at)?;
            match Session::open(&contenders[at], &dir) {
                Ok(session) => taken.push(session.startup),
                Err(failure) => times[at] = Err(failed(&failure)),
            }
        }
    }
    Ok(contenders
        .iter()
        .zip(times)
        .map(|(contender, times)| (contender.name, times.map(median)))
        .collect())
}

/// Measures all contenders in one setting.
pub(crate) fn setting(
    contenders: &[Contender],
    work: &Path,
    plan: Plan,
    rounds: usize,
) -> io::Result<Vec<Row<Measure>>> {
    let mut entrants = Vec::new();
    for (at, contender) in contenders.iter().enumerate() {
        let dir = fresh_folder(work, at)?;
        entrants.push((contender.name, Entrant::enter(contender, dir, plan)));
    }
    for round in 0..rounds {
        for at in turns(entrants.len(), round) {
            let entrant = &mut entrants[at].1;
            if let Ok(running) = entrant
                && let Err(failure) = running.take_turn(plan)
            {
                *entrant = Err(failed(&failure));
            }
        }
    }
    Ok(entrants
        .into_iter()
        .map(|(name, entrant)| (name, entrant.map(Entrant::leave)))
        .collect())
}

/// A contender in a setting, and what its rounds have shown so far.
struct Entrant {
    session: Session,
    dir: PathBuf,
    disk_bytes_before: u64,
    rounds: Vec<Round>,
    cpu: Cpu,
}

impl Entrant {
    /// Starts a contender and warms it up with single calls, for a quarter of a round.
    fn enter(contender: &Contender, dir: PathBuf, plan: Plan) -> Result<Self, String> {
        let mut session = Session::open(contender, &dir).map_err(|failure| failed(&failure))?;
        let disk_bytes_before = process::bytes_below(&dir);
        let warm_up = Plan {
            calls: plan.calls.div_ceil(4),
            in_flight: 1,
            time_max: plan.time_max / 2,
            ..plan
        };
        let round = session.run(warm_up).map_err(|failure| failed(&failure))?;
        let a_call = median(round.latencies);
        if plan.in_flight > 1 && a_call.saturating_mul(plan.in_flight as u32) > WINDOW_TIME_MAX {
            return Err(format!(
                "too slow to be asked: one call takes {:.1} s",
                a_call.as_secs_f64()
            ));
        }
        Ok(Self {
            session,
            dir,
            disk_bytes_before,
            rounds: Vec::new(),
            cpu: Cpu::default(),
        })
    }

    fn take_turn(&mut self, plan: Plan) -> Result<(), Failure> {
        if self
            .rounds
            .iter()
            .map(|round| round.elapsed)
            .sum::<Duration>()
            > CONTENDER_TIME_MAX
        {
            return Ok(());
        }
        let processes = self.session.processes();
        let before = processes.cpu();
        let round = self.session.run(plan)?;
        let after = processes.cpu();
        self.cpu.proxy += after.proxy.saturating_sub(before.proxy);
        self.cpu.server += after.server.saturating_sub(before.server);
        self.rounds.push(round);
        Ok(())
    }

    fn leave(self) -> Measure {
        let rss_peak_kib = self.session.processes().rss_peak_kib();
        let calls_since_start = self.session.calls();
        self.session.close();
        let disk_bytes = process::bytes_below(&self.dir).saturating_sub(self.disk_bytes_before);
        let calls: usize = self.rounds.iter().map(|round| round.latencies.len()).sum();
        let per_round = |percent| {
            median(
                self.rounds
                    .iter()
                    .map(|round| percentile(&round.latencies, percent))
                    .collect(),
            )
        };
        let rates = self
            .rounds
            .iter()
            .map(|round| round.latencies.len() as f64 / round.elapsed.as_secs_f64());
        Measure {
            p50: per_round(50),
            p99: per_round(99),
            calls_per_second: median_rate(rates.collect()),
            cpu: Cpu {
                proxy: self.cpu.proxy / calls as u32,
                server: self.cpu.server / calls as u32,
            },
            rss_peak_kib,
            disk_bytes_per_call: disk_bytes as f64 / calls_since_start as f64,
        }
    }
}

/// What stands in place of a number.
fn failed(failure: &Failure) -> String {
    format!("failed: {failure}")
}

/// Every contender once, each round beginning with the next one.
fn turns(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + round) % count)
}

fn fresh_folder(work: &Path, at: usize) -> io::Result<PathBuf> {
    let dir = work.join(at.to_string());
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn median(values: Vec<Duration>) -> Duration {
    percentile(&values, 50)
}

/// The smallest value that at least this share of the values does not exceed.
fn percentile(values: &[Duration], percent: usize) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn median_rate(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        for (percent, millis) in [(50, 100), (99, 198), (100, 200), (0, 1)] {
            assert_eq!(percentile(&values, percent), Duration::from_millis(millis));
        }
    }

    #[test]
    fn each_round_begins_with_another_contender() {
        assert_eq!(turns(3, 0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(3, 4).collect::<Vec<_>>(), [1, 2, 0]);
    }
}

//! The load client: measures every contender in one interleaved run and prints a Markdown table.
//!
//! All contenders of a setting are open at once and take turns in short rounds, so that a noisy
//! machine disturbs all alike. It measures from outside: it never looks into what a contender
//! wrote, only at how much.

mod contender;
mod options;
mod process;
mod report;
mod rounds;
mod session;

use std::io;
use std::process::ExitCode;

use contender::Contender;
use options::{Effort, Options, USAGE, options};
use session::Plan;

/// Bytes of a result, and the calls of a round: one at a time and with many in flight.
const SIZES: [(usize, usize, usize); 4] = [
    (200, 2000, 20_000),
    (10_000, 1000, 5000),
    (100_000, 200, 600),
    (1_000_000, 50, 128),
];

const IN_FLIGHT_MANY: usize = 64;

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("load: {fault}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures every setting; prints each as soon as it is done. `Err` when this program's own files
/// or placement fail: what a contender does wrong stands in the table.
fn measure(options: &Options) -> io::Result<()> {
    let (contenders, absent) = chosen(options);
    let cores = process::cores()?;
    println!("{}", report::heading(&cores, &absent));
    for (pinned, cores) in [(false, cores), (true, process::last_of(&cores))] {
        process::confine(&cores)?;
        let startup = rounds::startup(&contenders, &options.work, options.effort.starts)?;
        println!("{}", report::startup(pinned, &startup));
        for in_flight in [1, IN_FLIGHT_MANY] {
            println!("{}", report::table_heading(pinned, in_flight));
            for plan in plans(in_flight, &options.effort) {
                eprintln!("pinned: {pinned}, {plan:?}");
                let measured =
                    rounds::setting(&contenders, &options.work, plan, options.effort.rounds)?;
                print!("{}", report::rows(plan.result_bytes, &measured));
            }
        }
    }
    Ok(())
}

/// The contenders of this run, and a line for each that is not in it.
fn chosen(options: &Options) -> (Vec<Contender>, Vec<String>) {
    let (mut contenders, mut absent) = Contender::all(&options.programs, &options.server_options);
    if let Some(word) = &options.only {
        // Without the direct connection there are no ratios.
        contenders.retain(|it| it.name == "direct" || it.name.contains(word.as_str()));
        absent.push(format!("all but those with `{word}` in their name"));
    }
    (contenders, absent)
}

fn plans(in_flight: usize, effort: &Effort) -> impl Iterator<Item = Plan> {
    SIZES.into_iter().map(move |(result_bytes, single, many)| {
        let calls = if in_flight == 1 { single } else { many };
        Plan {
            // At least two windows, or not all of one would be in flight.
            calls: (calls / effort.divisor).max(2 * in_flight),
            in_flight,
            result_bytes,
            time_max: effort.round_time_max,
        }
    })
}

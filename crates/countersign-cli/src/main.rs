//! The program `countersign`: parses its command line and hands over to one command.

mod args;
mod commands;
mod keyring;
mod say;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use countersign::{process, seed};

use crate::args::{Command, Program, Reference};

/// Wrong use, or nothing could be started or read.
const USAGE: u8 = 2;

/// The reference's name: linked to it, we take its command line.
const REFERENCE_NAME: &str = "witness-log-mcp-proxy";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments
        .get(1)
        .is_some_and(|first| first == process::SHIM_ARGUMENT)
    {
        return process::shim_main(arguments.into_iter().skip(2));
    }
    let name = arguments.first().map(|name| {
        std::path::Path::new(name)
            .file_name()
            .unwrap_or_default()
            .to_owned()
    });
    let command = if name.is_some_and(|name| name == REFERENCE_NAME) {
        Reference::try_parse_from(&arguments).map(|reference| Command::Wrap(reference.into()))
    } else {
        Program::try_parse_from(&arguments).map(|program| program.command)
    };
    match command {
        // While there is one thread: this may start the program anew, without the seed in its environment.
        Ok(Command::Wrap(wrap)) => match seed::take() {
            Ok(seed) => commands::wrap::run(wrap, seed),
            Err(error) => commands::wrap::refuse(&error.to_string()),
        },
        Ok(Command::Verify(verify)) => commands::verify::run(&verify),
        Ok(Command::Demo(demo)) => commands::demo::run(&demo),
        Ok(Command::SampleServer) => commands::sample_server::run(),
        Err(error) => {
            // Help and version go to stdout with 0, mistakes to stderr; there is nobody else to tell.
            let _ = error.print();
            if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            }
        }
    }
}

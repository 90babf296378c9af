//! The flashyard program: the target, its tools and its demonstration in one binary. Exit status 0
//! on success, 1 on failure, 2 on bad usage.

mod api;
mod audit;
mod check;
mod cli;
mod commands;
mod control;
mod cores;
mod demo;
mod discover;
mod failure;
mod generate;
mod graph;
mod host_stats;
mod iostat;
mod json;
mod lab;
mod listening;
mod live;
mod log;
mod metrics;
#[cfg(test)]
mod mutations;
mod nodes;
mod notify;
mod options;
mod out;
mod perf;
mod preflight;
mod printable;
mod protobuf;
mod published;
mod rights;
mod serve;
mod service;
mod sim;
mod sockets;
mod spec;
mod state;
mod table;
mod takeover;
mod top;
mod units;
mod why;

use std::process::ExitCode;

use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    match Cli::typed().and_then(|cli| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(json::is_wanted()),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Perf(args) => perf::run(*args),
        Command::Lab(args) => lab::run(args),
        Command::Sim(args) => sim::run(&args),
        Command::Discover(args) => discover::run(&args),
        Command::Device(args) => commands::device(args),
        Command::Partition(args) => commands::partition(args),
        Command::Pool(args) => commands::pool(args),
        Command::Volume(args) => commands::volume(args),
        Command::Snapshot(args) => commands::snapshot(args),
        Command::Tenant(args) => commands::tenant(args),
        Command::Function(args) => commands::function(args),
        Command::Target(args) => commands::target(args),
        Command::Status(args) => commands::status(&args),
        Command::Health(args) => commands::health(&args),
        Command::Metrics(reach) => commands::metrics(&reach),
        Command::Iostat(args) => iostat::run(&args),
        Command::Top(args) => top::run(&args),
        Command::HostStats(args) => host_stats::run(&args),
        Command::Events(args) => commands::events(&args),
        Command::Audit(args) => commands::audit(&args),
        Command::Why(args) => commands::why(args),
        Command::Apply(args) => commands::apply(&args),
        Command::Export(args) => commands::export(&args),
        Command::Backup(args) => commands::backup(&args),
        Command::Restore(args) => commands::restore(&args),
        Command::Check(args) => check::run(&args),
        Command::Generate(args) => generate::run(&args),
    }
}

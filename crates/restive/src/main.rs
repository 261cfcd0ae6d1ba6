//! The binary: parses arguments and runs one sub-command. Only this crate reads the environment,
//! files and clocks.

mod accounts;
mod args;
mod backup;
mod check;
mod cluster;
mod completions;
mod control;
mod data;
mod deliver;
mod doctor;
mod edge;
mod edge_secret;
mod event_id;
mod events;
mod generate;
mod init;
mod keys;
mod listen;
mod listeners;
mod log_writer;
mod logging;
mod memory;
mod migrate;
mod moment;
mod openapi;
mod operator;
mod output;
mod outside;
mod plan;
mod private;
mod process;
mod proxy;
mod receive;
mod redirect;
mod remote;
mod replay;
mod restore;
mod route;
mod serve;
mod site;
mod stop;
mod takeover;
mod text;
mod tls;
mod trigger;
mod verify;

use args::{Args, Command};
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = Args::parse().command.unwrap_or_else(Command::default_serve);
    if let Command::Serve(_) | Command::Proxy(_) = command {
        memory::configure();
    }
    // Schemas and documents are not secret, so files of these commands get the default mode.
    let is_public = matches!(
        command,
        Command::Init(_)
            | Command::Openapi(_)
            | Command::Asyncapi(_)
            | Command::Generate(_)
            | Command::Completions(_)
    );
    if !is_public {
        private::make_private();
    }
    let result = match command {
        Command::Serve(serve) => match serve::run(*serve) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Proxy(proxy) => match proxy::run(*proxy) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Receive(receive) => match receive::run(*receive) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Verify(verify) => match verify::run(verify) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Init(init) => init::run(&init),
        Command::Check(check) => return check::run(&check),
        Command::Plan(plan) => match plan::run(&plan) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Accounts(accounts) => accounts::run(accounts),
        Command::Keys(keys) => keys::run(keys),
        Command::Cluster(cluster) => cluster::run(&cluster),
        Command::Openapi(openapi) => openapi::run(&openapi),
        Command::Asyncapi(asyncapi) => openapi::run_asyncapi(&asyncapi),
        Command::Generate(generate) => generate::run(&generate),
        Command::Backup(backup) => backup::run(&backup),
        Command::Restore(restore) => restore::run(&restore),
        Command::Migrate(migrate) => migrate::run(&migrate),
        Command::Completions(completions) => completions::run(&completions),
        Command::Doctor(doctor) => match doctor::run(&doctor) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Events(events) => events::run(events),
        Command::Replay(replay) => replay::run(&replay),
        Command::Listen(listen) => listen::run(&listen),
        Command::Trigger(trigger) => trigger::run(&trigger),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&error);
            ExitCode::FAILURE
        }
    }
}

/// Prints the chain of causes, one per line; the root cause is last. Some errors show their cause
/// themselves.
fn print(error: &anyhow::Error) {
    let mut shown = error.to_string();
    eprintln!("restive: {shown}");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !shown.ends_with(&cause) {
            eprintln!("  because: {cause}");
        }
        shown = cause;
    }
}

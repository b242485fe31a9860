//! The binary: one verb a file. `main` is synchronous: it parses and dispatches; each daemon builds
//! its own runtime.

mod admission;
mod agent;
mod agents;
mod api_tls;
mod client;
mod config;
mod controller;
mod ground;
mod guard;
mod journal;
mod leading;
mod listing;
mod logging;
mod output;
mod sense;
mod table;
mod terminal;
mod values;
mod verbs;

use std::process::ExitCode;

use crate::output::FAILED;

#[global_allocator]
static ALLOCATOR: kernel::heap::Allocator = kernel::heap::Allocator;

fn main() -> ExitCode {
    match verbs::dispatch(&verbs::parse()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(FAILED)
        }
    }
}

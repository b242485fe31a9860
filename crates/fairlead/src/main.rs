//! The binary: [`cli`] has one verb a file, [`daemon`] what a process starts. `main` is synchronous:
//! it parses and dispatches; each daemon builds its own runtime.

mod cli;
mod config;
mod daemon;
mod output;
mod values;

use std::process::ExitCode;

use crate::cli::verbs;
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

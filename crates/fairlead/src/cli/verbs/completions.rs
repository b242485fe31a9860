use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::cli::verbs::{command, man};
use crate::output::Verdict;

/// Print shell completions
///
/// Examples:
///   source <(fairlead completions bash)
///   fairlead completions zsh > "${fpath[1]}/_fairlead"
///   fairlead completions fish > ~/.config/fish/completions/fairlead.fish
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Verdict {
    // Rendered first: clap_complete panics when stdout has gone away.
    let mut script = Vec::new();
    let mut command = man::of_any_machine(command());
    clap_complete::generate(args.shell, &mut command, "fairlead", &mut script);
    match std::io::stdout().write_all(&script) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

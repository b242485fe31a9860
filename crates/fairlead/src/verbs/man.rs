use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::output::{Failure, Verdict};
use crate::verbs::Cli;

/// Write man pages, one a verb
///
/// Examples:
///   fairlead man ./man && man ./man/fairlead.1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, hide = true)]
pub(crate) struct Args {
    /// The directory to write to; it must be there
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Verdict {
    // Replayed incidents are not part of what is released, and hidden verbs are for packagers.
    clap_mangen::generate_to(Cli::command(), &args.directory).map_err(|e| {
        let shown = args.directory.display();
        Failure(format!("man pages cannot be written to {shown}: {e}; make the directory first"))
    })?;
    Ok(ExitCode::SUCCESS)
}

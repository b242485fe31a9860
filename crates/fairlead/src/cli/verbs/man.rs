use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;

use crate::cli::verbs::command;
use crate::output::{Failure, Verdict};

/// Settings whose default depends on the machine, and the words for it elsewhere.
const OF_THE_MACHINE: [(&str, &str); 4] = [
    ("data", "/var/lib/fairlead for root, else ~/.local/share/fairlead"),
    ("workers", "the number of cores"),
    ("fleet.kubeconfig", "$KUBECONFIG, else ~/.kube/config"),
    ("net.node", "the name of the host"),
];

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
    clap_mangen::generate_to(of_any_machine(command()), &args.directory).map_err(|e| {
        let shown = args.directory.display();
        Failure(format!("man pages cannot be written to {shown}: {e}; make the directory first"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The command line without defaults that are true on this machine alone.
pub(crate) fn of_any_machine(command: Command) -> Command {
    let command = command.mut_subcommands(of_any_machine);
    OF_THE_MACHINE.iter().fold(command, |command, (setting, default)| {
        if !command.get_arguments().any(|arg| arg.get_id() == *setting) {
            return command;
        }
        command.mut_arg(*setting, |arg| {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help.split(" [default:").next().unwrap_or_default();
            arg.help(format!("{help} [default: {default}]"))
        })
    })
}

#[cfg(test)]
mod tests;

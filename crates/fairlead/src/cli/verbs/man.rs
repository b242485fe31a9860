use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Command, CommandFactory};

use crate::cli::verbs::Cli;
use crate::output::{Failure, Verdict};

/// Settings whose default is the machine's own, and what is said of it elsewhere.
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
    clap_mangen::generate_to(of_any_machine(Cli::command()), &args.directory).map_err(|e| {
        let shown = args.directory.display();
        Failure(format!("man pages cannot be written to {shown}: {e}; make the directory first"))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The command line as it is told to others: without what is true of this machine alone.
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
mod tests {
    use super::*;

    #[test]
    fn what_is_told_to_others_says_nothing_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        run(&Args { directory: dir.path().to_owned() }).unwrap();
        let page = std::fs::read_to_string(dir.path().join("fairlead-up.1")).unwrap();
        let host = crate::config::Config::default().net.node;
        assert!(!page.contains(&format!("[default: {host}]")), "{page}");
        assert!(page.contains("[default: the number of cores]"), "{page}");
        assert!(page.contains("[default: 127.0.0.1:7680]"), "{page}");
    }
}

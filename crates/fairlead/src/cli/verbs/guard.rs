mod import;
mod quarantine;

use std::process::ExitCode;

use crate::cli::client::ClientResult;

/// Put workloads apart; move over from NeuVector
///
/// Groups, rules, conversations and violations have verbs of their own.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Quarantine(quarantine::Args),
    Import(import::Args),
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        Verb::Quarantine(args) => quarantine::run(args).await,
        Verb::Import(args) => import::run(args).await,
    }
}

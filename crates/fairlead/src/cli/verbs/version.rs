use std::process::ExitCode;

use serde::Serialize;

use crate::output::{Output, Verdict};

/// Print the version
///
/// Examples:
///   fairlead version
///   fairlead version -o json | jq -r .version
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    commit: &'static str,
    rustc: &'static str,
    target: &'static str,
    profile: &'static str,
}

pub(crate) fn run(args: &Args) -> Verdict {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        commit: env!("FAIRLEAD_COMMIT"),
        rustc: env!("FAIRLEAD_RUSTC"),
        target: env!("FAIRLEAD_TARGET"),
        profile: env!("FAIRLEAD_PROFILE"),
    };
    args.output.print(&version, || format!("fairlead {} ({})", version.version, version.commit))?;
    Ok(ExitCode::SUCCESS)
}

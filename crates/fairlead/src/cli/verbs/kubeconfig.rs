use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, Route, ServerFlags};
use crate::cli::files;
use crate::cli::listing::field;
use crate::cli::table::moment;
use crate::output::{Format, Output};

/// Make a kubeconfig of your own login, for kubectl
///
/// kubectl then asks Fairlead, which decides by your roles, request by request, and keeps the audit. The token in
/// it is good for the clusters' Kubernetes API alone: for eight hours at most, and no longer than the login that
/// made it. Each cluster is a context, fairlead-NAME.
///
/// Examples:
///   fairlead kubeconfig --file ~/.kube/fairlead
///   kubectl --kubeconfig ~/.kube/fairlead --context fairlead-prod get pods -n shop
///   fairlead kubeconfig prod > prod.kubeconfig
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The clusters [default: all that you may see]
    clusters: Vec<String>,
    /// Write it to this file, which only you may read, instead of printing it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let mut ask = json!({ "server": server.link(""), "clusters": args.clusters });
    if let Some(authorities) = server.authorities()? {
        ask["ca"] = authorities.into();
    }
    let made: Value = server.post(&Route::to(["me", "kubeconfig"]), Body::Json(&ask)).await?;
    let text = field(&made, "kubeconfig");
    match &args.file {
        Some(file) => {
            files::write_private(file, &text)?;
            let mut said = made.clone();
            said["kubeconfig"] = file.display().to_string().into();
            args.output.print(&said, || format!("kubeconfig written to {}", file.display()))?;
        }
        None => args.output.print(&made, || text.trim_end().to_owned())?,
    }
    if args.output.output == Format::Table {
        eprintln!("it is good until {}, or until you log out", moment(&field(&made, "expires")));
    }
    Ok(ExitCode::SUCCESS)
}

use std::process::ExitCode;

use serde_json::Value;

use crate::cli::client::{Body, ClientResult, Route, ServerFlags};
use crate::cli::listing::field;
use crate::output::Output;

/// Make a link that logs a browser in, once
///
/// As whoever the token belongs to: on the machine that runs Fairlead, its owner. The link is good for a quarter
/// of an hour, and whoever opens it first is logged in: give it to nobody, and keep it out of logs. An API token
/// makes none.
///
/// Examples:
///   fairlead login-link
///   kubectl -n fairlead exec deploy/fairlead-controller -- fairlead login-link --server https://127.0.0.1:7680
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let mut made: Value = server.post(&Route::to(["login-links"]), Body::None).await?;
    made["link"] = server.link(&field(&made, "path")).into();
    args.output.print(&made, || field(&made, "link"))?;
    Ok(ExitCode::SUCCESS)
}

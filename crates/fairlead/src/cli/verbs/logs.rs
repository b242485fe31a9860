use std::process::ExitCode;

use futures::StreamExt;
use http::Method;
use serde_json::Value;

use crate::cli::client::{Access, Body, ClientResult, Route, Server, Target};
use crate::output::{self, Failure};
use crate::values;

/// Print the log of a pod
///
/// Examples:
///   fairlead logs web-0 -n shop
///   fairlead logs web-0 -c app --tail 100 -f
///   fairlead logs web-0 --previous --since 5m --timestamps
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Name of the pod
    pod: String,
    /// Which container [default: the pod's default one]
    #[arg(short, long)]
    container: Option<String>,
    /// Go on with every new line of the log
    #[arg(short, long)]
    follow: bool,
    /// The log of the container before its last restart
    #[arg(short, long)]
    previous: bool,
    /// Print only so many of the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Print only lines since so long ago, such as 30s, 5m, 2h
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<String>,
    /// Begin each line with its time
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    target: Target,
}

fn since(text: &str) -> Result<String, String> {
    values::duration(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "expected a time such as 30s, 5m, 2h".to_owned())
}

/// The name of a pod, with or without its kind.
pub(super) fn pod(name: &str) -> &str {
    name.split_once('/')
        .filter(|(kind, _)| matches!(*kind, "pod" | "pods" | "po"))
        .map_or(name, |(_, name)| name)
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Access::Read).await?;
    let route = Route::to(["clusters", &cluster, "resources", "pods", pod(&args.pod), "log"])
        .with("namespace", args.target.namespace())
        .maybe("container", args.container.as_deref())
        .when("follow", args.follow)
        .when("previous", args.previous)
        .maybe("tail", args.tail)
        .maybe("since", args.since.as_deref())
        .when("timestamps", args.timestamps);
    if args.follow { follow(&server, &route).await } else { print(&server, &route).await }
}

/// Prints what the container wrote, byte for byte.
async fn print(server: &Server, route: &Route) -> ClientResult<ExitCode> {
    let mut log = server.text(route).await?;
    while let Some(chunk) = log.next().await {
        let chunk = chunk.map_err(|why| Failure(format!("the log breaks off here: {why}")))?;
        if !output::write_part(chunk)? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Follows the log as events, which also say that nothing happens, and why the log ends.
async fn follow(server: &Server, route: &Route) -> ClientResult<ExitCode> {
    let mut events = server.events(Method::GET, route, Body::None).await?;
    loop {
        let event = events.next_before("the log did").await?;
        match event.name.as_str() {
            "line" => {
                let data: Value = event.json()?;
                let line = data["line"].as_str().unwrap_or_default();
                if !output::write_part(format!("{line}\n"))? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            "end" => {
                let data: Value = event.json()?;
                if let Some(reason) = data["reason"].as_str().filter(|reason| !reason.is_empty()) {
                    eprintln!("{reason}");
                }
                return Ok(ExitCode::SUCCESS);
            }
            _ => {}
        }
    }
}

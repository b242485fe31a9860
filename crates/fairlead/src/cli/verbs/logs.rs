use std::io::Read;
use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use crate::cli::client::{Answer, Body, Change, Route, Server, Target};
use crate::cli::values;
use crate::output::{self, Failure};

/// Print the log of a pod
///
/// Examples:
///   fairlead logs web-0 -n shop
///   fairlead logs web-0 -c app --tail 100 -f
///   fairlead logs web-0 --previous --since 5m --timestamps
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Its name
    pod: String,
    /// Which container [default: the pod's default one]
    #[arg(short, long)]
    container: Option<String>,
    /// Go on with every new line
    #[arg(short, long)]
    follow: bool,
    /// The log of the container before its last restart
    #[arg(short, long)]
    previous: bool,
    /// Begin with the last so many lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
    /// Begin so long ago, such as 30s, 5m, 2h
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

/// A pod as people name it.
pub(super) fn pod(name: &str) -> &str {
    name.split_once('/')
        .filter(|(kind, _)| matches!(*kind, "pod" | "pods" | "po"))
        .map_or(name, |(_, name)| name)
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Change::No)?;
    let route = Route::to(["clusters", &cluster, "resources", "pods", pod(&args.pod), "log"])
        .with("namespace", args.target.namespace())
        .maybe("container", args.container.as_deref())
        .when("follow", args.follow)
        .when("previous", args.previous)
        .maybe("tail", args.tail)
        .maybe("since", args.since.as_deref())
        .when("timestamps", args.timestamps);
    if args.follow { follow(&server, &route) } else { print(&server, &route) }
}

/// As it is: what a container wrote is passed on byte for byte.
fn print(server: &Server, route: &Route) -> Answer<ExitCode> {
    let mut log = server.text(route)?;
    let mut chunk = [0; 32 << 10];
    loop {
        match log.read(&mut chunk) {
            Ok(0) => return Ok(ExitCode::SUCCESS),
            Ok(count) if output::heard(&chunk[..count])? => {}
            Ok(_) => return Ok(ExitCode::SUCCESS),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Failure(format!("the log breaks off here: {e}")).into()),
        }
    }
}

/// As events, which also tell that nothing happens, and why the log ends.
fn follow(server: &Server, route: &Route) -> Answer<ExitCode> {
    let mut events = server.events(&Method::GET, route, &Body::None)?;
    loop {
        let event = events.expect("the log did")?;
        match event.name.as_str() {
            "line" => {
                let told: Value = event.json()?;
                let line = told["line"].as_str().unwrap_or_default();
                if !output::heard(format!("{line}\n").as_bytes())? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            "end" => {
                let told: Value = event.json()?;
                if let Some(reason) = told["reason"].as_str().filter(|reason| !reason.is_empty()) {
                    eprintln!("{reason}");
                }
                return Ok(ExitCode::SUCCESS);
            }
            _ => {}
        }
    }
}

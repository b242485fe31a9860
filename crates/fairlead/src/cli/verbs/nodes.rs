//! `cordon`, `uncordon` and `drain`: the same node, three verbs.

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::client::{Answer, Body, Change, Route, Target};
use crate::cli::table::printable;
use crate::output::{self, NO};

/// Pods take their time to stop; the server takes no longer deadline than this.
const PATIENCE: Duration = Duration::from_secs(300);

/// Let no new pods onto a node
///
/// Example:
///   fairlead cordon worker-1 --cluster prod
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Cordon {
    /// Its name
    node: String,
    #[command(flatten)]
    target: Target,
}

/// Let new pods onto a node again
///
/// Example:
///   fairlead uncordon worker-1 --cluster prod
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Uncordon {
    /// Its name
    node: String,
    #[command(flatten)]
    target: Target,
}

/// Cordon a node and evict its pods, as their disruption budgets allow
///
/// Examples:
///   fairlead drain worker-1 --cluster prod --ignore-daemonsets
///   fairlead drain worker-1 --cluster prod --ignore-daemonsets --delete-emptydir-data --timeout 1m
///
/// Pods of DaemonSets, pods with emptyDir volumes and pods that nobody makes anew are in the way
/// until a flag allows them; then nothing is done, and each is named with the flag.
/// Exit 1 when pods are left; they are named.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Drain {
    /// Its name
    node: String,
    /// Leave pods of DaemonSets where they are: they would come back at once
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Evict pods with emptyDir volumes, whose data is lost
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Evict pods that nobody makes anew
    #[arg(long)]
    force: bool,
    /// Seconds that pods may take to stop [default: their own]
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn cordon(args: &Cordon) -> Answer<ExitCode> {
    mark(&args.node, &args.target, "cordon")
}

pub(crate) fn uncordon(args: &Uncordon) -> Answer<ExitCode> {
    mark(&args.node, &args.target, "uncordon")
}

fn route(cluster: &str, node: &str, verb: &str) -> Route {
    let node = node.strip_prefix("node/").unwrap_or(node);
    Route::to(["clusters", cluster, "resources", "nodes", node, verb])
}

fn mark(node: &str, target: &Target, verb: &str) -> Answer<ExitCode> {
    let server = target.open()?;
    let cluster = target.one(&server, Change::Yes)?;
    server.ask::<Value>(&Method::POST, &route(&cluster, node, verb), &Body::None)?;
    output::line(&format!("node {node} {verb}ed"))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    namespace: String,
    name: String,
    outcome: String,
    why: Option<String>,
    /// Why it may not be evicted.
    reasons: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Drained {
    drained: bool,
    /// None from a server that does not tell.
    cordoned: Option<bool>,
    gone: u64,
    skipped: u64,
    left: Vec<Pod>,
}

pub(crate) fn drain(args: &Drain) -> Answer<ExitCode> {
    let server = args.target.open_for(PATIENCE)?;
    let cluster = args.target.one(&server, Change::Yes)?;
    let mut body = json!({
        "ignoreDaemonSets": args.ignore_daemonsets,
        "deleteEmptyDirData": args.delete_emptydir_data,
        "force": args.force,
    });
    if let Some(seconds) = args.grace_period {
        body["gracePeriod"] = seconds.into();
    }
    let route = route(&cluster, &args.node, "drain");
    let mut events = server.events(&Method::POST, &route, &Body::Json(&body))?;
    loop {
        let event = events.expect("the node was drained")?;
        match event.name.as_str() {
            "pod" => output::line(&line(&event.json()?))?,
            "done" => return done(&args.node, &event.json()?),
            _ => {}
        }
    }
}

fn line(pod: &Pod) -> String {
    let why = pod.why.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    printable(&format!("pod {}/{} {}{why}", pod.namespace, pod.name, pod.outcome))
}

/// What is in the way of a drain, and the flag that is for it, in the order of kubectl.
const IN_THE_WAY: [(&str, &str); 3] = [
    ("daemonSet", "pods of DaemonSets (--ignore-daemonsets leaves them where they are)"),
    ("emptyDir", "pods with emptyDir volumes (--delete-emptydir-data evicts them; data is lost)"),
    ("unmanaged", "pods that nobody makes anew (--force evicts them)"),
];

fn done(node: &str, drained: &Drained) -> Answer<ExitCode> {
    if drained.drained {
        let (gone, skipped) = (drained.gone, drained.skipped);
        output::line(&format!("node {node} drained: {gone} gone, {skipped} skipped"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_refused = |pod: &Pod| !pod.reasons.is_empty();
    for pod in drained.left.iter().filter(|pod| !is_refused(pod)) {
        let why = pod.why.as_deref().unwrap_or("it is still there");
        eprintln!("left: {}/{}: {}", pod.namespace, pod.name, printable(why));
    }
    let cordoned = match drained.cordoned {
        Some(true) => "it is cordoned",
        Some(false) => "it is not cordoned",
        None => "`fairlead get nodes` shows whether it is cordoned",
    };
    if drained.left.iter().any(is_refused) {
        eprintln!("node {node} is not drained, and nothing was changed ({cordoned}). In the way:");
        for (reason, what) in IN_THE_WAY {
            let of = drained.left.iter().filter(|pod| pod.reasons.iter().any(|it| it == reason));
            let names: Vec<_> = of.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
            if !names.is_empty() {
                eprintln!("  {what}: {}", printable(&names.join(", ")));
            }
        }
    } else {
        eprintln!("node {node} is not drained ({cordoned}): {} pods are left", drained.left.len());
    }
    Ok(ExitCode::from(NO))
}

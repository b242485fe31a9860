//! `cordon`, `uncordon` and `drain`: the same node, three verbs.

use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::client::{Access, Body, ClientResult, Route, Target};
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
    #[command(flatten)]
    node: NodeFlags,
}

/// Let new pods onto a node again
///
/// Example:
///   fairlead uncordon worker-1 --cluster prod
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Uncordon {
    #[command(flatten)]
    node: NodeFlags,
}

#[derive(Debug, clap::Args)]
struct NodeFlags {
    /// Name of the node
    #[arg(value_name = "NODE")]
    name: String,
    #[command(flatten)]
    target: Target,
}

/// Cordon a node and evict its pods, as their disruption budgets allow
///
/// Examples:
///   fairlead drain worker-1 --cluster prod --ignore-daemonsets
///   fairlead drain worker-1 --ignore-daemonsets --delete-emptydir-data --timeout 1m
///
/// Pods of DaemonSets, pods with emptyDir volumes and pods without a controller are in the way until
/// a flag allows them: nothing is done then, and each is named with its flag. Exit 1 when pods are
/// left; they are named.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Drain {
    /// Leave pods of DaemonSets where they are: they would come back at once
    #[arg(long)]
    ignore_daemonsets: bool,
    /// Evict pods with emptyDir volumes, whose data is lost
    #[arg(long)]
    delete_emptydir_data: bool,
    /// Evict pods without a controller, which nobody makes anew
    #[arg(long)]
    force: bool,
    /// Seconds that pods may take to stop [default: their own]
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    #[command(flatten)]
    node: NodeFlags,
}

pub(crate) async fn cordon(args: &Cordon) -> ClientResult<ExitCode> {
    mark(&args.node, "cordon").await
}

pub(crate) async fn uncordon(args: &Uncordon) -> ClientResult<ExitCode> {
    mark(&args.node, "uncordon").await
}

fn route(cluster: &str, node: &str, verb: &str) -> Route {
    let node = node.strip_prefix("node/").unwrap_or(node);
    Route::to(["clusters", cluster, "resources", "nodes", node, verb])
}

async fn mark(NodeFlags { name, target }: &NodeFlags, verb: &str) -> ClientResult<ExitCode> {
    let server = target.open()?;
    let cluster = target.one(&server, Access::Write).await?;
    server.post::<Value>(&route(&cluster, name, verb), Body::None).await?;
    Ok(output::done(&format!("node {name} {verb}ed"))?)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    namespace: String,
    name: String,
    outcome: String,
    why: Option<String>,
    /// Why the pod may not be evicted.
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

pub(crate) async fn drain(args: &Drain) -> ClientResult<ExitCode> {
    let NodeFlags { name, target } = &args.node;
    let server = target.open_for(PATIENCE)?;
    let cluster = target.one(&server, Access::Write).await?;
    let mut body = json!({
        "ignoreDaemonSets": args.ignore_daemonsets,
        "deleteEmptyDirData": args.delete_emptydir_data,
        "force": args.force,
    });
    if let Some(seconds) = args.grace_period {
        body["gracePeriod"] = seconds.into();
    }
    let route = route(&cluster, name, "drain");
    let mut events = server.events(Method::POST, &route, Body::Json(&body)).await?;
    loop {
        let event = events.next_before("the node was drained").await?;
        match event.name.as_str() {
            "pod" => output::line(&line(&event.json()?))?,
            "done" => return finish(name, &event.json()?),
            _ => {}
        }
    }
}

fn line(pod: &Pod) -> String {
    let why = pod.why.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    printable(&format!("pod {}/{} {}{why}", pod.namespace, pod.name, pod.outcome))
}

/// The reasons why pods are in the way of a drain, with the flag for each, in the order of kubectl.
const IN_THE_WAY: [(&str, &str); 3] = [
    ("daemonSet", "pods of DaemonSets (--ignore-daemonsets leaves them where they are)"),
    ("emptyDir", "pods with emptyDir volumes (--delete-emptydir-data evicts them; data is lost)"),
    ("unmanaged", "pods that nobody makes anew (--force evicts them)"),
];

fn finish(node: &str, drained: &Drained) -> ClientResult<ExitCode> {
    if drained.drained {
        let (gone, skipped) = (drained.gone, drained.skipped);
        return Ok(output::done(&format!("node {node} drained: {gone} gone, {skipped} skipped"))?);
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

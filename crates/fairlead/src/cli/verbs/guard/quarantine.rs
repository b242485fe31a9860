use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::client::{ClientResult, Route, ServerFlags};
use crate::cli::listing::items;
use crate::output::{self, Failure};

/// Put a workload apart: only its node reaches it, and it reaches nobody
///
/// All pods of the workload are put apart, those that start later too, on every node whose agent
/// enforces policies; `fairlead policy status` shows when. Connections that they have end. It is a
/// Group with `quarantine: true`, which `fairlead groups` shows. A pod or a namespace with the label
/// fairlead.dev/quarantine is put apart as well, without this command.
///
/// Examples:
///   fairlead guard quarantine shop/Deployment/web
///   fairlead guard quarantine shop/web              if no other kind has that name there
///   fairlead guard quarantine shop/web --release
///   kubectl label pod web-0 fairlead.dev/quarantine=yes
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// NAMESPACE/KIND/NAME, or NAMESPACE/NAME
    workload: String,
    /// Let it back
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) async fn run(args: &Args) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let (namespace, owner) = match args.workload.split('/').collect::<Vec<_>>()[..] {
        [namespace, kind, name] => (namespace.to_owned(), format!("{kind}/{name}")),
        [namespace, name] => {
            let known: Value = server.get(&Route::to(["guard", "groups"])).await?;
            (namespace.to_owned(), find(&known, namespace, name)?)
        }
        _ => {
            let why = format!("{:?} is no NAMESPACE/KIND/NAME", args.workload);
            return Err(Failure(why).into());
        }
    };
    let (kind, name) = owner.split_once('/').unwrap_or_default();
    let group = format!("quarantine.{namespace}.{}.{name}", kind.to_lowercase());
    let shown = format!("{namespace}/{owner}");
    let route = Route::to(["guard", "groups", &group]);
    if args.release {
        server.delete(&route).await?;
        return Ok(output::done(&format!("{shown} is let back; group {group} deleted"))?);
    }
    let criterion = |key: &str, value: &str| json!({"key": key, "op": "=", "value": value});
    let spec = json!({
        "comment": format!("{shown} is put apart"),
        "quarantine": true,
        "criteria": [criterion("namespace", &namespace), criterion("workload", &owner)],
    });
    server.put(&route, &json!({ "spec": spec })).await?;
    output::line(&format!("{shown} is put apart by group {group}"))?;
    eprintln!("`fairlead policy status` shows on which nodes that is in force");
    Ok(ExitCode::SUCCESS)
}

/// The one workload of a namespace that has this name.
fn find(known: &Value, namespace: &str, name: &str) -> Result<String, Failure> {
    let owners = items(known, "groups").iter().filter_map(|group| {
        let learned = group["name"].as_str().filter(|_| group["origin"] == "learned")?;
        let (of, owner) = learned.split_once('/')?;
        (of == namespace && owner.split_once('/')?.1 == name).then(|| owner.to_owned())
    });
    let owners: Vec<String> = owners.collect();
    match &owners[..] {
        [owner] => Ok(owner.clone()),
        [] => Err(Failure(format!(
            "no workload {name} is known in namespace {namespace}: say NAMESPACE/KIND/NAME"
        ))),
        several => Err(Failure(format!(
            "{namespace} has {}: say NAMESPACE/KIND/NAME",
            several.join(" and ")
        ))),
    }
}

use std::process::ExitCode;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::{Access, ClientResult, Object, Target, decode};
use crate::cli::listing::field;
use crate::cli::table::{Table, age, printable};
use crate::cli::terminal::Paint;
use crate::cli::verbs::events::{self, KubeEvent};
use crate::output::{Failure, Output, yaml};

/// Show everything about one object: its fields, its owners, what it owns, its events
///
/// Examples:
///   fairlead describe pod web-0 -n shop
///   fairlead describe node/worker-1 --cluster prod
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    object: Object,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: Target,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Description {
    object: Value,
    events: Vec<KubeEvent>,
    owners: Vec<Value>,
    owned: Vec<Value>,
    /// What could not be found out.
    problems: Vec<String>,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    args.object.named()?;
    let server = args.target.open()?;
    let cluster = args.target.one(&server, Access::Read).await?;
    let route = args.object.route(&cluster)?.and("describe");
    let route = route.with("namespace", args.target.namespace());
    let answer: Value = server.get(&route).await?;
    let found: Description = decode(&answer)?;
    let text = text(&found, &cluster, Timestamp::now(), Paint::stdout())?;
    args.output.print(&answer, || text)?;
    for problem in &found.problems {
        eprintln!("not known: {problem}");
    }
    Ok(ExitCode::SUCCESS)
}

fn text(
    found: &Description,
    cluster: &str,
    now: Timestamp,
    paint: Paint,
) -> Result<String, Failure> {
    let object = &found.object;
    let meta = &object["metadata"];
    let mut text = String::new();
    let mut fact = |name: &str, value: &str| {
        let title = if name.is_empty() { String::new() } else { format!("{name}:") };
        text.push_str(&format!("{title:<14}{}\n", printable(value)));
    };
    fact("Name", &field(meta, "name"));
    if let Some(namespace) = meta["namespace"].as_str() {
        fact("Namespace", namespace);
    }
    fact("Cluster", cluster);
    fact("Kind", &format!("{} ({})", field(object, "kind"), field(object, "apiVersion")));
    let created = meta["creationTimestamp"].as_str();
    if let Some(at) = created {
        fact("Created", &format!("{at} ({} ago)", age(created, now)));
    }
    if let Some(at) = meta["deletionTimestamp"].as_str() {
        fact("Deleted", &format!("{at}, held by {}", field(meta, "finalizers")));
    }
    for (name, key) in [("Labels", "labels"), ("Annotations", "annotations")] {
        let pairs = meta[key].as_object().into_iter().flatten();
        for (at, (label, value)) in pairs.enumerate() {
            let value = value.as_str().unwrap_or_default();
            // What kubectl keeps there is the whole object once more.
            if label != "kubectl.kubernetes.io/last-applied-configuration" {
                fact(if at == 0 { name } else { "" }, &format!("{label}={value}"));
            }
        }
    }
    for (at, owner) in found.owners.iter().enumerate() {
        let owner = format!("{}/{}", field(owner, "kind"), field(owner, "name"));
        fact(if at == 0 { "Owned by" } else { "" }, &owner);
    }
    let rest = object.as_object().into_iter().flatten();
    for (key, value) in rest {
        if matches!(key.as_str(), "apiVersion" | "kind" | "metadata") || empty(value) {
            continue;
        }
        let title = key[..1].to_uppercase() + &key[1..];
        text.push_str(&format!("{title}:\n"));
        for line in yaml(value)?.trim_end().lines() {
            text.push_str(&format!("  {}\n", printable(line)));
        }
    }
    if !found.owned.is_empty() {
        let mut table = Table::new(["KIND", "NAMESPACE", "NAME", "STATUS"]);
        for owned in &found.owned {
            table.row(["kind", "namespace", "name", "status"].map(|name| field(owned, name)));
        }
        indented(&mut text, "Owns", &table, paint);
    }
    if found.events.is_empty() {
        text.push_str("Events:       none\n");
    } else {
        indented(&mut text, "Events", &events::table(&found.events, false, false, now), paint);
    }
    Ok(text)
}

fn indented(text: &mut String, title: &str, table: &Table, paint: Paint) {
    text.push_str(&format!("{title}:\n"));
    for line in table.render(paint).lines() {
        text.push_str(&format!("  {line}\n"));
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;

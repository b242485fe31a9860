//! Policies in force, as a running server has them.

use std::process::ExitCode;

use policy::Inputs;
use serde_json::Value;

use super::{Explain, List, print_explained, print_rows};
use crate::cli::client::{ClientResult, Route, ServerFlags};
use crate::cli::listing::{fields, items};
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Output, yes_or_no};

#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// Also list each node that a policy is not in force on
    #[arg(long)]
    nodes: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) async fn status(args: &Status) -> ClientResult<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["policies", "status"])).await?;
    let policies = items(&answer, "policies");
    let is_right =
        |policy: &Value| policy["applied"] == policy["nodes"] && policy["problem"].is_null();
    args.output.print(&answer, || {
        let rows = items(&answer, "nodes").iter().map(|node| {
            let [name, generation, acknowledged] =
                fields(node, ["node", "generation", "acknowledged"]);
            let state = node["state"].as_str().unwrap_or_default();
            let state = match state {
                "applied" => Cell::from(state),
                _ => Cell::coloured(state, Colour::Yellow),
            };
            [name, state, generation, acknowledged, node["waitingFor"].as_str().into()]
        });
        let titles = ["NODE", "STATE", "GENERATION", "ACKNOWLEDGED", "WAITING FOR"];
        let mut text = output::table(titles, rows);
        let rows = policies.iter().map(|policy| {
            let [kind, name, pods] = fields(policy, ["kind", "policy", "pods"]);
            let (applied, nodes) = (&policy["applied"], &policy["nodes"]);
            let force = format!("{applied} of {nodes} nodes");
            let force = match is_right(policy) {
                true => Cell::from(force.as_str()),
                false => Cell::coloured(&force, Colour::Yellow),
            };
            [kind, name, pods, force, why(policy).as_str().into()]
        });
        text.push('\n');
        text + &output::table(["KIND", "POLICY", "PODS", "IN FORCE ON", "WHY NOT"], rows)
    })?;
    if args.nodes {
        for policy in policies {
            for waiting in items(policy, "waiting") {
                let [name, node, what] =
                    [&policy["policy"], &waiting["node"], &waiting["waitingFor"]]
                        .map(|it| it.as_str().unwrap_or_default());
                eprintln!("{name} on {node} waits for {what}");
            }
        }
    }
    Ok(yes_or_no(policies.iter().all(is_right)))
}

/// Why a policy is not in force somewhere: its own problem, or the first node's.
fn why(policy: &Value) -> String {
    if let Some(problem) = policy["problem"].as_str() {
        return problem.to_owned();
    }
    let waiting = items(policy, "waiting");
    let Some(first) = waiting.first() else { return String::new() };
    let text = |field: &str| first[field].as_str().unwrap_or_default().to_owned();
    let more = match waiting.len() {
        1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    format!("{} waits for {}{more}", text("node"), text("waitingFor"))
}

pub(super) async fn list(args: &List) -> ClientResult<ExitCode> {
    if args.rules {
        return rules(args).await;
    }
    let answer: Value = args.files.server.open()?.get(&Route::to(["policies"])).await?;
    Ok(print_rows(&args.output, &answer["policies"])?)
}

/// What each rule has counted.
async fn rules(args: &List) -> ClientResult<ExitCode> {
    let server = args.files.server.open()?;
    let answer: Value = server.get(&Route::to(["policies", "rules"])).await?;
    args.output.print(&answer, || {
        let rows = items(&answer, "rules").iter().map(|rule| {
            let [tier, direction, verdict, packets, bytes, nodes] =
                fields(rule, ["tier", "direction", "verdict", "packets", "bytes", "nodes"]);
            let sources = items(rule, "rules");
            let name = sources.first().map_or_else(String::new, |first| {
                let text = |field: &str| first[field].as_str().unwrap_or_default().to_owned();
                format!("{} {} {}", text("kind"), text("policy"), text("rule"))
            });
            let name = match sources.len() {
                0 | 1 => name,
                many => format!("{name} and {} more", many - 1),
            };
            [tier, direction, verdict, name.as_str().into(), packets, bytes, nodes]
        });
        let titles = ["TIER", "DIRECTION", "VERDICT", "RULE", "PACKETS", "BYTES", "NODES"];
        output::table(titles, rows)
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn explain(args: &Explain) -> ClientResult<ExitCode> {
    let route = Route::to(["policies", "explain"])
        .with("from", &args.from)
        .with("to", &args.to)
        .maybe("port", args.port.as_ref())
        .with("protocol", &args.protocol)
        .maybe("toName", args.to_name.as_ref());
    let answer: Value = args.files.server.open()?.get(&route).await?;
    Ok(print_explained(&args.output, &answer)?)
}

/// The cluster and the policies that the server decides from.
pub(super) async fn inputs(server: &ServerFlags) -> ClientResult<Inputs> {
    let answer: Value = server.open()?.get(&Route::to(["policies", "objects"])).await?;
    let wrong = |wrong: &dyn std::fmt::Display| {
        Failure(format!(
            "what the server has cannot be read here; is it of another version? {wrong}"
        ))
    };
    let mode = match answer["mode"].as_str() {
        Some("monitor") => super::Mode::Monitor,
        Some("protect") => super::Mode::Protect,
        _ => super::Mode::Discover,
    };
    let mut inputs = Inputs::new(mode.settings());
    for document in items(&answer, "cluster") {
        inputs.add_cluster(document).map_err(|error| wrong(&error))?;
    }
    for document in items(&answer, "policies") {
        // What cannot be read is in `fairlead policy status`.
        let _ = inputs.add_policy(document);
    }
    inputs.complete();
    Ok(inputs)
}

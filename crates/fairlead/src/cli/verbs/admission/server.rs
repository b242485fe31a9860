//! The rules and the decisions of a running server.

use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{ClientResult, ListFlags, Route, ServerFlags};
use crate::cli::event_tail::EventTail;
use crate::cli::listing::{field, fields, items, joined, rule_state};
use crate::cli::table::{Cell, moment};
use crate::cli::terminal::Colour;
use crate::cli::verbs::audit::export;
use crate::output::{Output, yes_or_no};
use crate::values;

#[derive(Debug, clap::Args)]
pub(super) struct Audit {
    /// Go on with every change
    #[arg(short, long)]
    watch: bool,
    /// Print all that is kept as JSON lines, the oldest first: a line for each second in which the same was
    /// decided, with how often so far
    #[arg(long, conflicts_with_all = ["watch", "outcome", "cluster", "namespace", "rule"])]
    export: bool,
    /// Only decisions that allowed, denied or monitored (admitted although a rule matched)
    #[arg(long, value_parser = ["allowed", "denied", "monitored"])]
    outcome: Option<String>,
    /// Only of this cluster; `local` is the cluster that the store is in
    #[arg(long)]
    cluster: Option<String>,
    /// Only of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only by this rule
    #[arg(long)]
    rule: Option<String>,
    /// Only decisions since so long ago, such as 10m, 24h
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    since: Option<Duration>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Running {
    /// Only of this cluster; `local` is the cluster that the store is in
    #[arg(long)]
    cluster: Option<String>,
    /// Only of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only against this rule
    #[arg(long)]
    rule: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(super) async fn running(args: &Running) -> ClientResult<ExitCode> {
    let route = Route::to(["admission", "running"])
        .with("limit", args.limit)
        .maybe("cluster", args.cluster.as_deref())
        .maybe("namespace", args.namespace.as_deref())
        .maybe("rule", args.rule.as_deref());
    let answer: Value = args.server.open()?.get(&route).await?;
    let titles = [
        "SINCE",
        "CLUSTER",
        "NAMESPACE",
        "OWNER",
        "CONTAINER",
        "IMAGE",
        "PODS",
        "RULE",
        "NOW",
        "WHY",
    ];
    args.output.print_list(&answer, "lines", &titles, |line| {
        let outcome = field(line, "outcome");
        let outcome = match outcome.as_str() {
            "denied" => Cell::coloured("denied", Colour::Red),
            _ => Cell::coloured(&outcome, Colour::Yellow),
        };
        let names = ["cluster", "namespace", "owner", "container", "image", "pods", "rule"];
        let [cluster, namespace, owner, container, image, pods, rule] = fields(line, names);
        let since = moment(&field(line, "since")).into();
        let why = field(line, "why").into();
        [since, cluster, namespace, owner, container, image, pods, rule, outcome, why]
    })?;
    for cluster in items(&answer, "clusters") {
        let [name, pods, found] = ["cluster", "pods", "findings"].map(|name| field(cluster, name));
        eprintln!("{name}: {pods} pods judged, {found} findings");
    }
    if items(&answer, "clusters").is_empty() {
        eprintln!(
            "no cluster has been looked through; admission.webhook and admission.clusters say which are"
        );
    }
    Ok(yes_or_no(items(&answer, "lines").is_empty()))
}

pub(super) async fn rules(args: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["admission", "rules"])).await?;
    let titles = ["NAME", "ACTION", "MODE", "ORIGIN", "STATE", "CRITERIA", "WHY"];
    args.output.print_list(&answer, "rules", &titles, |rule| {
        let origin = field(rule, "origin");
        let origin = if rule["critical"] == true { format!("{origin}, critical") } else { origin };
        let [name, action, mode, why] = fields(rule, ["name", "action", "mode", "why"]);
        let criteria = joined(rule, "criteria", "; ").into();
        [name, action, mode, origin.into(), rule_state(rule), criteria, why]
    })?;
    Ok(yes_or_no(!items(&answer, "rules").iter().any(|rule| rule["state"] == "invalid")))
}

pub(super) async fn audit(args: &Audit) -> ClientResult<ExitCode> {
    let server = args.server.open()?;
    let since = args.since.map(|since| Timestamp::now() - since);
    if args.export {
        let route = Route::to(["admission", "audit", "export"]).maybe("since", since);
        return export(&server, &route).await;
    }
    let route = Route::to(["admission", "audit"])
        .with("limit", args.limit)
        .maybe("outcome", args.outcome.as_deref())
        .maybe("cluster", args.cluster.as_deref())
        .maybe("namespace", args.namespace.as_deref())
        .maybe("rule", args.rule.as_deref())
        .maybe("since", since);
    if args.watch {
        return AUDIT.follow(&server, &route, args.output).await;
    }
    AUDIT.show(&server, &route, args.output).await?;
    Ok(ExitCode::SUCCESS)
}

const AUDIT: EventTail = EventTail {
    event: "audit",
    lines: "lines",
    titles: &[
        "LAST",
        "COUNT",
        "OUTCOME",
        "CLUSTER",
        "NAMESPACE",
        "OWNER",
        "IMAGE",
        "RULE",
        "USER",
        "WHY",
    ],
    row,
    missing: [
        ("forgotten", "older lines made room for others"),
        ("dropped", "decisions came faster than they were written down"),
    ],
};

fn row(line: &Value) -> Vec<Cell> {
    let outcome = field(line, "outcome");
    let shown =
        if line["dryRun"] == true { format!("{outcome} (dry run)") } else { outcome.clone() };
    let outcome = match outcome.as_str() {
        "denied" => Cell::coloured(&shown, Colour::Red),
        "monitored" => Cell::coloured(&shown, Colour::Yellow),
        _ => shown.into(),
    };
    let mut cells = vec![moment(&field(line, "last")).into(), field(line, "count").into(), outcome];
    let names = ["cluster", "namespace", "owner", "image", "rule", "user", "why"];
    cells.extend(fields(line, names));
    cells
}

use std::process::ExitCode;

use kube::ResourceExt;
use objects::kinds::ResponseRule;
use serde_json::Value;

use crate::cli::client::{ClientResult, ListFlags, NamedFlags, Route};
use crate::cli::listing::{fields, items, joined};
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::cli::verbs::groups::{self, ApplyFlags};
use crate::output::{self, yes_or_no};

/// Manage what is done about events: whom to tell, what to keep quiet about, what to quarantine
///
/// Rules are looked at by priority, then by name. Every rule that matches an event acts on it; one that
/// suppresses it is the last.
///
/// Examples:
///   fairlead responses                     every rule, in the order in which they are looked at
///   fairlead responses apply rules.yaml
///   fairlead responses delete quiet-tests
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: ListFlags,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List every response rule; exit 1 if one is invalid
    List(ListFlags),
    /// Create or change response rules from a file
    Apply(ApplyFlags),
    /// Delete a response rule
    Delete(NamedFlags),
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        None => list(&args.list).await,
        Some(Verb::List(args)) => list(args).await,
        Some(Verb::Apply(args)) => {
            let route = |rule: &ResponseRule| Route::to(["responses", &rule.name_any()]);
            groups::apply(args, route, |rule| format!("response rule {} applied", rule.name_any()))
                .await
        }
        Some(Verb::Delete(NamedFlags { name, server })) => {
            server.open()?.delete(&Route::to(["responses", name])).await?;
            Ok(output::done(&format!("response rule {name} deleted"))?)
        }
    }
}

async fn list(args: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["responses"])).await?;
    let titles =
        ["NAME", "PRIORITY", "EVENT", "CONDITIONS", "ACTIONS", "RECEIVERS", "STATE", "WHY"];
    args.output.print_list(&answer, "responses", &titles, |rule| {
        let spec = &rule["spec"];
        let [name, why] = fields(rule, ["name", "why"]);
        let [priority, event] = fields(spec, ["priority", "event"]);
        let state = match rule["state"].as_str() {
            Some(state @ "invalid") => Cell::coloured(state, Colour::Red),
            state => state.into(),
        };
        let conditions: Cell = conditions(&spec["conditions"]).into();
        let [actions, receivers] =
            ["actions", "receivers"].map(|name| joined(spec, name, ",").into());
        [name, priority, event, conditions, actions, receivers, state, why]
    })?;
    let wrong = |rule: &Value| rule["state"] == "invalid";
    Ok(yes_or_no(!items(&answer, "responses").iter().any(wrong)))
}

fn conditions(conditions: &Value) -> String {
    let mut said = Vec::new();
    if let Some(level) = conditions["level"].as_str() {
        said.push(format!("level>={level}"));
    }
    for name in ["names", "groups", "workloads", "clusters"] {
        let globs = joined(conditions, name, ",");
        if !globs.is_empty() {
            said.push(format!("{name}={globs}"));
        }
    }
    if let Some(count) = conditions["frequency"]["count"].as_u64() {
        said.push(format!("{count} in {}s", conditions["frequency"]["seconds"]));
    }
    said.join("; ")
}

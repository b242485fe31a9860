use std::process::ExitCode;

use kube::ResourceExt;
use objects::kinds::NetworkRule;
use serde_json::{Value, json};

use super::groups::{ApplyFlags, apply, note_enforcement};
use crate::cli::client::{Body, ClientResult, ListFlags, Route, ServerFlags};
use crate::cli::listing::{field, fields, items, joined, rule_state};
use crate::cli::table::Cell;
use crate::output::{self, Output, texts, yes_or_no};

/// Manage network rules: who may talk to whom, written or learned
///
/// Connections that the rules deny or do not allow are reported, and stopped where both ends are in
/// protect and their nodes enforce policies (`fairlead policy status`). Export makes the rules
/// Kubernetes' own network policies.
///
/// Examples:
///   fairlead rules list
///   fairlead rules promote --all   write down what was learned, to be edited
///   fairlead rules export > policies.yaml
///   fairlead rules apply rules.yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the rules in the order in which they are looked at; exit 1 if one is invalid
    List(ListFlags),
    /// Write learned rules down, so that they can be edited and outlive what was seen
    Promote(Promote),
    /// Print NetworkPolicy YAML; exit 1 if a policy cannot say all of it, which is then on stderr
    Export(Export),
    /// Create or change rules from a file
    Apply(ApplyFlags),
    /// Delete rules; a learned one is learned again if it is seen again
    Delete(Delete),
}

#[derive(Debug, clap::Args)]
struct Promote {
    /// Names of learned rules
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// Write down every learned rule
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Export {
    /// Leave out rules that were only learned
    #[arg(long)]
    written: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// Names of rules
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        Verb::List(args) => list(args).await,
        Verb::Promote(args) => promote(args).await,
        Verb::Export(args) => export(args).await,
        Verb::Apply(args) => {
            let route = |rule: &NetworkRule| Route::to(["guard", "rules", &rule.name_any()]);
            apply(args, route, |rule| format!("rule {} applied", rule.name_any())).await
        }
        Verb::Delete(args) => {
            let server = args.server.open()?;
            for name in &args.names {
                server.delete(&Route::to(["guard", "rules", name])).await?;
                output::line(&format!("rule {name} deleted"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(args: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["guard", "rules"])).await?;
    let titles = ["NAME", "ORIGIN", "PRIORITY", "FROM", "TO", "ACTION", "PORTS", "STATE", "WHY"];
    args.output.print_list(&answer, "rules", &titles, row)?;
    note_enforcement(&answer);
    Ok(yes_or_no(!items(&answer, "rules").iter().any(|rule| rule["state"] == "invalid")))
}

fn row(rule: &Value) -> [Cell; 9] {
    let ports = match (joined(rule, "ports", ","), joined(rule, "applications", ",")) {
        (ports, none) if none.is_empty() && ports.is_empty() => "all".to_owned(),
        (ports, none) if none.is_empty() => ports,
        (ports, applications) => format!("{ports} {applications}"),
    };
    let [name, origin, priority, from, to, action, why] =
        fields(rule, ["name", "origin", "priority", "from", "to", "action", "why"]);
    [name, origin, priority, from, to, action, ports.into(), rule_state(rule), why]
}

async fn promote(args: &Promote) -> ClientResult<ExitCode> {
    let body = json!({"names": args.names, "all": args.all});
    let route = Route::to(["guard", "rules", "promote"]);
    let answer: Value = args.server.open()?.post(&route, Body::Json(&body)).await?;
    for name in texts(&answer["promoted"]) {
        output::line(&format!("rule {name} written"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn export(args: &Export) -> ClientResult<ExitCode> {
    let route = Route::to(["guard", "rules", "export"]).when("written", args.written);
    let answer: Value = args.server.open()?.get(&route).await?;
    let notes = items(&answer, "notes");
    for note in notes {
        eprintln!("note: {}: {}", field(note, "rule"), field(note, "why"));
    }
    args.output.print_objects(&answer, items(&answer, "policies"))?;
    Ok(yes_or_no(notes.is_empty()))
}

use std::path::PathBuf;
use std::process::ExitCode;

use kube::ResourceExt;
use objects::Kind;
use objects::kinds::Group;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cli::client::{ClientResult, ListFlags, NamedFlags, Route, ServerFlags};
use crate::cli::files;
use crate::cli::listing::{field, fields, items, joined};
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Output, yes_or_no};

/// Manage groups of workloads and of networks, made or learned
///
/// The mode of a group says what happens when no rule allows a connection: discover learns a rule
/// from it, monitor reports it, protect stops it on nodes whose agents enforce policies (`fairlead policy
/// status` shows which) and reports it elsewhere.
///
/// Examples:
///   fairlead groups                            every group
///   fairlead groups show shop/Deployment/web   its members, and the rules about it
///   fairlead groups apply groups.yaml
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
    /// List every group, made and learned; exit 1 if one is invalid
    List(ListFlags),
    /// Show the members of a group, and the rules about it
    Show(Show),
    /// Create or change groups from a file
    Apply(ApplyFlags),
    /// Delete a group that somebody made
    Delete(NamedFlags),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// A name, or namespace/Kind/name
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

/// The flags of a verb that applies objects of one kind.
#[derive(Debug, clap::Args)]
pub(super) struct ApplyFlags {
    /// The objects as YAML or JSON, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        None => list(&args.list).await,
        Some(Verb::List(args)) => list(args).await,
        Some(Verb::Show(args)) => show(args).await,
        Some(Verb::Apply(args)) => {
            let route = |group: &Group| Route::to(["guard", "groups", &group.name_any()]);
            apply(args, route, |group| format!("group {} applied", group.name_any())).await
        }
        Some(Verb::Delete(NamedFlags { name, server })) => {
            server.open()?.delete(&Route::to(["guard", "groups", name])).await?;
            Ok(output::done(&format!("group {name} deleted"))?)
        }
    }
}

async fn list(args: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["guard", "groups"])).await?;
    let titles = ["NAME", "ORIGIN", "MODE", "MEMBERS", "CRITERIA"];
    args.output.print_list(&answer, "groups", &titles, |group| {
        let criteria = match group["wrong"].as_str() {
            Some(wrong) => Cell::coloured(wrong, Colour::Red),
            None => joined(group, "criteria", "; ").into(),
        };
        let [name, origin, members] = fields(group, ["name", "origin", "members"]);
        [name, origin, mode(group), members, criteria]
    })?;
    note_enforcement(&answer);
    Ok(yes_or_no(!items(&answer, "groups").iter().any(|group| group["wrong"].is_string())))
}

fn mode(group: &Value) -> Cell {
    match group["mode"].as_str() {
        Some("protect") => Cell::coloured("protect", Colour::Yellow),
        mode => mode.into(),
    }
}

/// Prints on stderr what the server says of enforcement.
pub(super) fn note_enforcement(answer: &Value) {
    if let Some(enforcement) = answer["enforcement"].as_str() {
        eprintln!("{enforcement}");
    }
}

async fn show(args: &Show) -> ClientResult<ExitCode> {
    let route = Route::to(["guard", "groups", &args.name]);
    let answer: Value = args.server.open()?.get(&route).await?;
    args.output.print(&answer, || {
        let mut text = String::new();
        for (title, name) in [("Name", "name"), ("Origin", "origin"), ("Comment", "comment")] {
            if let Some(value) = answer[name].as_str() {
                text += &format!("{title}:  {value}\n");
            }
        }
        let [criteria, rules] = ["criteria", "rules"].map(|name| joined(&answer, name, "; "));
        let mode_of_group = field(&answer, "mode");
        text += &format!("Mode:  {mode_of_group}\nCriteria:  {criteria}\nRules:  {rules}\n\n");
        let titles = ["NAMESPACE", "NAME", "OWNER", "NODE", "ADDRESSES", "MODE"];
        let rows = items(&answer, "workloads").iter().map(|member| {
            let [namespace, name, owner, node] =
                fields(member, ["namespace", "name", "owner", "node"]);
            [namespace, name, owner, node, joined(member, "addresses", ",").into(), mode(member)]
        });
        text + &output::table(titles, rows)
    })?;
    note_enforcement(&answer);
    Ok(ExitCode::SUCCESS)
}

/// Applies the objects of a file one after the other, each at its own route, and says so.
pub(super) async fn apply<K: Kind + DeserializeOwned>(
    args: &ApplyFlags,
    route: impl Fn(&K) -> Route,
    applied: impl Fn(&K) -> String,
) -> ClientResult<ExitCode> {
    let objects: Vec<K> = files::valid_objects(&args.file)?;
    let server = args.server.open()?;
    for object in &objects {
        server.put(&route(object), &json!({ "spec": json!(object)["spec"] })).await?;
        output::line(&applied(object))?;
    }
    Ok(ExitCode::SUCCESS)
}

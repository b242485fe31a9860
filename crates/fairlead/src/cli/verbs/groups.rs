use std::path::{Path, PathBuf};
use std::process::ExitCode;

use http::Method;
use kube::ResourceExt;
use objects::Kind;
use objects::kinds::Group;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::admission::files;
use crate::cli::client::{Answer, Body, Route, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Failure, NO, Output};

/// Groups of workloads and of networks: made by somebody, or learned
///
/// A mode says what becomes of what no rule allows: discover learns a rule from it, monitor reports
/// it, protect reports it too: protect is not enforced yet, and nothing is stopped.
///
/// Examples:
///   fairlead groups                              every group
///   fairlead groups show shop/Deployment/web     who is in it, and which rules speak of it
///   fairlead groups apply groups.yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Every group, made and learned; exit 1 if one is not right
    List(List),
    /// Who is in a group, and which rules speak of it
    Show(Show),
    /// Make groups what a file says
    Apply(Apply),
    /// Remove a group that somebody made
    Delete(Delete),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
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

#[derive(Debug, clap::Args)]
struct Apply {
    /// Groups as YAML or JSON, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Delete {
    name: String,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        None => list(&args.list),
        Some(Verb::List(args)) => list(args),
        Some(Verb::Show(args)) => show(args),
        Some(Verb::Apply(args)) => apply(args),
        Some(Verb::Delete(args)) => delete(args),
    }
}

fn list(args: &List) -> Answer<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["guard", "groups"]))?;
    let groups = answer["groups"].as_array().map_or(&[][..], Vec::as_slice);
    args.output.print(&answer, || {
        let mut table = Table::new(["NAME", "ORIGIN", "MODE", "MEMBERS", "CRITERIA"]);
        for group in groups {
            let criteria = group["criteria"].as_array().into_iter().flatten();
            let criteria: Vec<_> = criteria.filter_map(Value::as_str).collect();
            let about = match group["wrong"].as_str() {
                Some(wrong) => Cell::coloured(wrong, Colour::Red),
                None => criteria.join("; ").into(),
            };
            table.row([
                field(group, "name").into(),
                field(group, "origin").into(),
                mode(group),
                field(group, "members").into(),
                about,
            ]);
        }
        table.render(Paint::stdout())
    })?;
    say(&answer);
    let wrong = groups.iter().any(|group| group["wrong"].is_string());
    Ok(if wrong { NO.into() } else { ExitCode::SUCCESS })
}

fn mode(group: &Value) -> Cell {
    match group["mode"].as_str() {
        Some("protect") => Cell::coloured("protect (not enforced)", Colour::Yellow),
        mode => mode.into(),
    }
}

/// What somebody could think otherwise.
pub(super) fn say(answer: &Value) {
    if let Some(enforcement) = answer["enforcement"].as_str() {
        eprintln!("{enforcement}");
    }
}

fn show(args: &Show) -> Answer<ExitCode> {
    let route = Route::to(["guard", "groups", &args.name]);
    let answer: Value = args.server.open()?.get(&route)?;
    args.output.print(&answer, || {
        let mut text = String::new();
        for (title, name) in [("Name", "name"), ("Origin", "origin"), ("Comment", "comment")] {
            if let Some(value) = answer[name].as_str() {
                text += &format!("{title}:  {value}\n");
            }
        }
        let words = |name: &str| {
            let all = answer[name].as_array().into_iter().flatten().filter_map(Value::as_str);
            all.collect::<Vec<_>>().join("; ")
        };
        text += &format!("Mode:  {}\n", field(&answer, "mode"));
        text += &format!("Criteria:  {}\nRules:  {}\n\n", words("criteria"), words("rules"));
        let mut table = Table::new(["NAMESPACE", "NAME", "OWNER", "NODE", "ADDRESSES", "MODE"]);
        for member in answer["workloads"].as_array().into_iter().flatten() {
            let addresses = member["addresses"].as_array().into_iter().flatten();
            let addresses: Vec<_> = addresses.filter_map(Value::as_str).collect();
            let [namespace, name, owner, node] =
                ["namespace", "name", "owner", "node"].map(|it| Cell::from(field(member, it)));
            table.row([namespace, name, owner, node, addresses.join(",").into(), mode(member)]);
        }
        text + &table.render(Paint::stdout())
    })?;
    say(&answer);
    Ok(ExitCode::SUCCESS)
}

fn apply(args: &Apply) -> Answer<ExitCode> {
    let groups: Vec<Group> = read(&args.file)?;
    let server = args.server.open()?;
    for group in groups {
        let name = group.name_any();
        let body = json!({"spec": group.spec});
        let route = Route::to(["guard", "groups", &name]);
        server.ask::<Value>(&Method::PUT, &route, &Body::Json(&body))?;
        output::line(&format!("group {name} applied"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The objects of a file, all of one kind and each of them right; at least one.
pub(super) fn read<K: Kind + DeserializeOwned>(file: &Path) -> Result<Vec<K>, Failure> {
    let failed = |why: String| Failure(format!("{}: {why}", file.display()));
    let mut objects = Vec::new();
    for document in files::documents(file)? {
        let kind = document["kind"].as_str().unwrap_or("nothing that has a kind");
        if kind != K::NAME {
            return Err(failed(format!("expected only {}, found {kind}", K::NAME)));
        }
        let object: K =
            serde_json::from_value(document).map_err(|error| failed(error.to_string()))?;
        object.check().map_err(|problems| failed(problems.to_string()))?;
        objects.push(object);
    }
    if objects.is_empty() {
        return Err(failed(format!("there is no {} in it", K::NAME)));
    }
    Ok(objects)
}

fn delete(args: &Delete) -> Answer<ExitCode> {
    let route = Route::to(["guard", "groups", &args.name]);
    args.server.open()?.ask::<Value>(&Method::DELETE, &route, &Body::None)?;
    output::line(&format!("group {} deleted", args.name))?;
    Ok(ExitCode::SUCCESS)
}

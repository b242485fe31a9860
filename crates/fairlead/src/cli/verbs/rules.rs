use std::path::PathBuf;
use std::process::ExitCode;

use http::Method;
use kube::ResourceExt;
use objects::kinds::NetworkRule;
use serde_json::{Value, json};

use super::groups::{read, say};
use crate::cli::client::{Answer, Body, Route, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::{Colour, Paint};
use crate::output::{self, Format, NO, Output};

/// Network rules: who may talk to whom, written and learned
///
/// What they deny, or do not allow, is reported: nothing is stopped yet. Export makes them Kubernetes'
/// own network policies, which a CNI plugin may enforce.
///
/// Examples:
///   fairlead rules list
///   fairlead rules promote --all            write down what was learned, to be edited
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
    /// In the order in which they are looked at; exit 1 if one is not right
    List(List),
    /// Write learned rules down, so that they may be edited and outlive what was seen
    Promote(Promote),
    /// As NetworkPolicy YAML; what a policy cannot say on stderr, and exit 1 for it
    Export(Export),
    /// Make rules what a file says
    Apply(Apply),
    /// Remove rules; a learned one is learned again if it is seen again
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
struct Promote {
    /// Learned rules
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// All that were learned
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Export {
    /// Without what was only learned
    #[arg(long)]
    written: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Apply {
    /// NetworkRules as YAML or JSON, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Delete {
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        Verb::List(args) => list(args),
        Verb::Promote(args) => promote(args),
        Verb::Export(args) => export(args),
        Verb::Apply(args) => apply(args),
        Verb::Delete(args) => delete(args),
    }
}

fn list(args: &List) -> Answer<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["guard", "rules"]))?;
    let rules = answer["rules"].as_array().map_or(&[][..], Vec::as_slice);
    args.output.print(&answer, || {
        let titles =
            ["NAME", "ORIGIN", "PRIORITY", "FROM", "TO", "ACTION", "PORTS", "STATE", "WHY"];
        let mut table = Table::new(titles);
        for rule in rules {
            let words = |name: &str| {
                let all = rule[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                all.collect::<Vec<_>>().join(",")
            };
            let ports = match (words("ports"), words("applications")) {
                (ports, none) if none.is_empty() && ports.is_empty() => "all".to_owned(),
                (ports, none) if none.is_empty() => ports,
                (ports, applications) => format!("{ports} {applications}"),
            };
            let state = field(rule, "state");
            let state = match state.as_str() {
                "invalid" => Cell::coloured(&state, Colour::Red),
                "disabled" => Cell::coloured(&state, Colour::Dim),
                _ => state.into(),
            };
            let [name, origin, priority, from, to, action, why] =
                ["name", "origin", "priority", "from", "to", "action", "why"]
                    .map(|name| Cell::from(field(rule, name)));
            table.row([name, origin, priority, from, to, action, ports.into(), state, why]);
        }
        table.render(Paint::stdout())
    })?;
    say(&answer);
    let invalid = rules.iter().any(|rule| rule["state"] == "invalid");
    Ok(if invalid { NO.into() } else { ExitCode::SUCCESS })
}

fn promote(args: &Promote) -> Answer<ExitCode> {
    let body = json!({"names": args.names, "all": args.all});
    let route = Route::to(["guard", "rules", "promote"]);
    let answer: Value = args.server.open()?.ask(&Method::POST, &route, &Body::Json(&body))?;
    for name in answer["promoted"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output::line(&format!("rule {name} written"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn export(args: &Export) -> Answer<ExitCode> {
    let route = Route::to(["guard", "rules", "export"]).when("written", args.written);
    let answer: Value = args.server.open()?.get(&route)?;
    let notes = answer["notes"].as_array().map_or(&[][..], Vec::as_slice);
    for note in notes {
        eprintln!("note: {}: {}", field(note, "rule"), field(note, "why"));
    }
    match args.output.output {
        Format::Json => output::line(&output::json(&answer)?)?,
        // The policies alone, to be applied.
        Format::Table | Format::Yaml => {
            for policy in answer["policies"].as_array().into_iter().flatten() {
                output::line(&format!("---\n{}", output::yaml(policy)?.trim_end()))?;
            }
        }
    }
    Ok(if notes.is_empty() { ExitCode::SUCCESS } else { NO.into() })
}

fn apply(args: &Apply) -> Answer<ExitCode> {
    let rules: Vec<NetworkRule> = read(&args.file)?;
    let server = args.server.open()?;
    for rule in rules {
        let name = rule.name_any();
        let body = json!({"spec": rule.spec});
        let route = Route::to(["guard", "rules", &name]);
        server.ask::<Value>(&Method::PUT, &route, &Body::Json(&body))?;
        output::line(&format!("rule {name} applied"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn delete(args: &Delete) -> Answer<ExitCode> {
    let server = args.server.open()?;
    for name in &args.names {
        let route = Route::to(["guard", "rules", name]);
        server.ask::<Value>(&Method::DELETE, &route, &Body::None)?;
        output::line(&format!("rule {name} deleted"))?;
    }
    Ok(ExitCode::SUCCESS)
}

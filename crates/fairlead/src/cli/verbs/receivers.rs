use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use kube::ResourceExt;
use objects::kinds::Receiver;
use serde_json::{Value, json};

use crate::cli::client::{Body, ClientResult, ListFlags, NamedFlags, Route, ServerFlags};
use crate::cli::event_tail::report_missing_replicas;
use crate::cli::files;
use crate::cli::listing::{field, fields, items};
use crate::cli::table::Cell;
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, Output, yes_or_no};

/// Manage who is told of events
///
/// A receiver is a webhook, a syslog server, a Slack or Teams channel, an Alertmanager, a mailbox or a collector
/// of OpenTelemetry's logs. Response
/// rules say which events it is told of (`fairlead responses`). Each receiver has a queue of its own on disk:
/// one that is away is told when it is back, and holds up no other.
///
/// Examples:
///   fairlead receivers                       every receiver, and how it fares
///   fairlead receivers apply oncall.yaml
///   fairlead receivers apply slack.yaml --secret-file url=slack-url.txt
///   fairlead receivers test oncall           send it a notification now; exit 1 if it is not taken
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
    /// List every receiver; exit 1 if one is failing or invalid
    List(ListFlags),
    /// Create or change receivers from a file
    Apply(Apply),
    /// Delete a receiver, and what waits for it
    Delete(NamedFlags),
    /// Send a receiver a test notification at once; exit 1 if it is not taken
    Test(Test),
}

#[derive(Debug, clap::Args)]
struct Apply {
    /// The receivers as YAML or JSON, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keep the content of a file as this key of the receiver's Secret: `hmac-key`, `authorization`, `url`,
    /// `username`, `password`, `token`, `tls.crt`, `tls.key`; for a file with one receiver
    #[arg(long, value_name = "KEY=FILE")]
    secret_file: Vec<String>,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Args)]
struct Test {
    /// The receiver
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        None => list(&args.list).await,
        Some(Verb::List(args)) => list(args).await,
        Some(Verb::Apply(args)) => apply(args).await,
        Some(Verb::Delete(NamedFlags { name, server })) => {
            server.open()?.delete(&Route::to(["receivers", name])).await?;
            Ok(output::done(&format!("receiver {name} deleted"))?)
        }
        Some(Verb::Test(args)) => test(args).await,
    }
}

async fn list(args: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = args.server.open()?.get(&Route::to(["receivers"])).await?;
    let titles = ["NAME", "TYPE", "STATE", "QUEUED", "DELIVERED", "DROPPED", "LAST", "WHY"];
    args.output.print_list(&answer, "receivers", &titles, |receiver| {
        let [name, kind, queued, delivered, last, why] =
            fields(receiver, ["name", "type", "queued", "delivered", "lastDelivery", "why"]);
        let state = match receiver["state"].as_str() {
            Some(state @ ("failing" | "invalid")) => Cell::coloured(state, Colour::Red),
            state => state.into(),
        };
        let dropped = match receiver["dropped"].as_u64() {
            Some(dropped) if dropped > 0 => Cell::coloured(&dropped.to_string(), Colour::Yellow),
            _ => field(receiver, "dropped").into(),
        };
        [name, kind, state, queued, delivered, dropped, last, why]
    })?;
    report_missing_replicas(&answer);
    let is_well =
        |receiver: &Value| !matches!(receiver["state"].as_str(), Some("failing" | "invalid"));
    Ok(yes_or_no(items(&answer, "receivers").iter().all(is_well)))
}

async fn apply(args: &Apply) -> ClientResult<ExitCode> {
    let receivers: Vec<Receiver> = files::valid_objects(&args.file)?;
    let secret = secret(&args.secret_file)?;
    if !secret.is_empty() && receivers.len() != 1 {
        let why = "--secret-file is for a file with one receiver; apply them one by one".to_owned();
        return Err(Failure(why).into());
    }
    let server = args.server.open()?;
    for receiver in &receivers {
        let name = receiver.name_any();
        let mut body = json!({ "spec": json!(receiver)["spec"] });
        if !secret.is_empty() {
            body["secret"] = json!(secret);
        }
        server.put(&Route::to(["receivers", &name]), &body).await?;
        output::line(&format!("receiver {name} applied"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn secret(flags: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut secret = BTreeMap::new();
    for flag in flags {
        let (key, file) = flag
            .split_once('=')
            .ok_or_else(|| Failure(format!("--secret-file {flag}: is not as password=FILE")))?;
        let value = std::fs::read_to_string(file)
            .map_err(|error| Failure(format!("--secret-file {flag}: {error}")))?;
        secret.insert(key.to_owned(), value);
    }
    Ok(secret)
}

async fn test(args: &Test) -> ClientResult<ExitCode> {
    let route = Route::to(["receivers", &args.name, "test"]);
    let answer: Value = args.server.open()?.post(&route, Body::None).await?;
    args.output.print(&answer, || match answer["why"].as_str() {
        None => format!("{} took the notification\n", args.name),
        Some(why) => format!("{why}\n"),
    })?;
    Ok(yes_or_no(answer["taken"] == true))
}

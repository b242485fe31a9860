use std::process::ExitCode;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::client::{ClientResult, ListFlags, Route, Server, ServerFlags};
use crate::cli::event_tail::report_missing_replicas;
use crate::cli::listing::{field, fields, joined};
use crate::cli::table::{Cell, moment};
use crate::cli::terminal::Colour;
use crate::output::{self, Failure, NO, Output};
use crate::values;

/// Show who did what, newest first; export it; play back shells
///
/// Every change with what was before and after, logins and failed logins, shells and port-forwards, reads of
/// Secrets and logs. `-o json` has all that is known of each.
///
/// Examples:
///   fairlead audit --since 1h
///   fairlead audit --resource users.fairlead.dev -o json     who became admin?
///   fairlead audit --verb login --outcome wrong
///   fairlead audit export --since 24h > audit.jsonl
///   fairlead audit recordings
///   fairlead audit recordings play ID > shell.cast; asciinema play shell.cast
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    filter: Filter,
    /// Only what was done to this
    #[arg(long)]
    name: Option<String>,
    /// Only with this outcome: ok, or the code of a refusal
    #[arg(long)]
    outcome: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print all of the audit that is kept as JSON lines, the oldest first
    ///
    /// A change has two lines with one id: begun and ended. Exit 1 if a replica could not be asked.
    #[command(verbatim_doc_comment)]
    Export {
        #[command(flatten)]
        filter: Filter,
        /// Only what was begun longer ago than this, such as 10m, 24h
        #[arg(long, value_name = "TIME", value_parser = values::since)]
        until: Option<Duration>,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// List recordings of shells (audit.record-shells), newest first; print one
    #[command(args_conflicts_with_subcommands = true)]
    Recordings {
        #[command(subcommand)]
        verb: Option<RecordingVerb>,
        #[command(flatten)]
        flags: ListFlags,
    },
}

#[derive(Debug, clap::Subcommand)]
enum RecordingVerb {
    /// Print a recording as asciicast v2, which asciinema plays
    #[command(visible_alias = "get")]
    Play {
        /// Its id, as the list and the audit have it
        id: String,
        #[command(flatten)]
        server: ServerFlags,
    },
}

#[derive(Debug, clap::Args)]
struct Filter {
    /// Only by this user
    #[arg(long)]
    user: Option<String>,
    /// Only in this cluster; `-` for the fleet's own matters
    #[arg(long)]
    cluster: Option<String>,
    /// Only this verb, such as create, exec, log, login
    #[arg(long)]
    verb: Option<String>,
    /// Only on this resource, such as secrets, users.fairlead.dev, sessions
    #[arg(long)]
    resource: Option<String>,
    /// Only what was done since so long ago, such as 10m, 24h
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    since: Option<Duration>,
}

impl Filter {
    fn of(&self, route: Route) -> Route {
        route
            .maybe("user", self.user.as_deref())
            .maybe("cluster", self.cluster.as_deref())
            .maybe("verb", self.verb.as_deref())
            .maybe("resource", self.resource.as_deref())
            .maybe("since", self.since.map(|since| Timestamp::now() - since))
    }
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        None => list(args).await,
        Some(Verb::Export { filter, until, server }) => {
            let route = filter.of(Route::to(["audit", "export"]));
            let route = route.maybe("until", until.map(|until| Timestamp::now() - until));
            export(&server.open()?, &route).await
        }
        Some(Verb::Recordings { verb: None, flags }) => recordings(flags).await,
        Some(Verb::Recordings { verb: Some(RecordingVerb::Play { id, server }), .. }) => {
            print(&server.open()?, &Route::to(["audit", "recordings", id])).await
        }
    }
}

async fn list(args: &Args) -> ClientResult<ExitCode> {
    let route = args.filter.of(Route::to(["audit"]).with("limit", args.limit));
    let route = route.maybe("name", args.name.as_deref()).maybe("outcome", args.outcome.as_deref());
    let answer: Value = args.server.open()?.get(&route).await?;
    let titles =
        ["TIME", "USER", "VERB", "CLUSTER", "NAMESPACE", "RESOURCE", "NAME", "OUTCOME", "DETAILS"];
    args.output.print_list(&answer, "entries", &titles, row)?;
    report_missing_replicas(&answer);
    Ok(ExitCode::SUCCESS)
}

/// Prints lines as they come. The last may name replicas that could not be asked.
pub(crate) async fn export(server: &Server, route: &Route) -> ClientResult<ExitCode> {
    let mut lines = server.lines(route).await?;
    let mut last = Vec::new();
    while let Some(chunk) = lines.next().await {
        let chunk = chunk.map_err(|why| Failure(format!("the export breaks off here: {why}")))?;
        // Lines come whole: one without its end is the beginning of the next chunk's.
        last.extend_from_slice(&chunk);
        let whole = last.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = last.split_off(whole);
        let lines = std::mem::replace(&mut last, rest);
        if let Some(missing) = missing(&lines) {
            report_missing_replicas(&missing);
            return Ok(ExitCode::from(NO));
        }
        if !output::write_part(lines)? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The line that names replicas that could not be asked, which comes alone.
fn missing(lines: &[u8]) -> Option<Value> {
    lines.starts_with(b"{\"missing\"").then(|| serde_json::from_slice(lines).ok()).flatten()
}

async fn recordings(flags: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = flags.server.open()?.get(&Route::to(["audit", "recordings"])).await?;
    let titles = ["ID", "TIME", "USER", "CLUSTER", "NAMESPACE", "POD", "BYTES", "COMMAND"];
    flags.output.print_list(&answer, "recordings", &titles, |one| {
        let [id, user, cluster, namespace, pod, bytes] =
            ["id", "user", "cluster", "namespace", "pod", "bytes"].map(|key| field(one, key));
        let (at, command) = (moment(&field(one, "began")), joined(one, "command", " "));
        [id, at, user, cluster, namespace, pod, bytes, command]
    })?;
    if answer["recording"] == false {
        eprintln!("shells are not recorded at the moment; audit.record-shells turns it on");
    }
    report_missing_replicas(&answer);
    Ok(ExitCode::SUCCESS)
}

async fn print(server: &Server, route: &Route) -> ClientResult<ExitCode> {
    let mut cast = server.text(route).await?;
    while let Some(chunk) = cast.next().await {
        let chunk =
            chunk.map_err(|why| Failure(format!("the recording breaks off here: {why}")))?;
        if !output::write_part(chunk)? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(entry: &Value) -> [Cell; 9] {
    let outcome = field(entry, "outcome");
    // Details follow a colon.
    let outcome = match outcome.split(':').next() {
        Some("ok" | "opened" | "begun") => outcome.into(),
        _ => Cell::coloured(&outcome, Colour::Yellow),
    };
    let [user, verb, cluster, namespace, resource, name] =
        fields(entry, ["user", "verb", "cluster", "namespace", "resource", "name"]);
    let at = moment(&field(entry, "at")).into();
    [at, user, verb, cluster, namespace, resource, name, outcome, details(entry).into()]
}

/// What a line has room for: the command of a shell, the roles of a user, how often.
fn details(entry: &Value) -> String {
    let mut said = Vec::new();
    if let Some(count) = entry["count"].as_u64().filter(|count| *count > 1) {
        said.push(format!("{count} times"));
    }
    let command = joined(&entry["details"], "command", " ");
    if !command.is_empty() {
        said.push(command);
    }
    let roles =
        |side: &str| entry[side]["roles"].is_array().then(|| joined(&entry[side], "roles", ","));
    match (roles("before"), roles("after")) {
        (Some(before), Some(after)) if before != after => {
            said.push(format!("roles {} -> {}", or_none(&before), or_none(&after)));
        }
        (None, Some(after)) => said.push(format!("roles {}", or_none(&after))),
        _ => {}
    }
    said.join("; ")
}

fn or_none(roles: &str) -> &str {
    if roles.is_empty() { "none" } else { roles }
}

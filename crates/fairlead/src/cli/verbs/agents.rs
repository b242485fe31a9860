use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::cli::client::{Answer, Body, Route, Server, ServerFlags};
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table, moment};
use crate::cli::terminal::{Colour, Paint};
use crate::cli::values;
use crate::output::{self, Failure, Format, Output};

/// Agents of nodes: list them, let one in, shut one out
///
/// An agent reports the connections that its node sees. It enrols once with a token, gets a
/// certificate that says which node it is, and renews that by itself.
///
/// Examples:
///   fairlead agents
///   (umask 077; fairlead agents token --node node-1 > node-1.token)
///   fairlead agents token --ttl 15m
///   fairlead agents revoke node-1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    server: ServerFlags,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Every agent that joined, and how it is doing
    #[command(visible_alias = "ls")]
    List(List),
    /// Make a token with which a node enrols, and print it, this once
    Token {
        /// The one node that may use it [default: any]
        #[arg(long)]
        node: Option<String>,
        /// For how long it may be used, at most 168h
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = ttl)]
        ttl: Duration,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        server: ServerFlags,
    },
    /// Refuse what a node was given until now, certificate and tokens, at once
    ///
    /// A token that is made later lets it in again.
    Revoke {
        node: String,
        #[command(flatten)]
        server: ServerFlags,
    },
}

fn ttl(text: &str) -> Result<Duration, String> {
    values::time(text, "1s", "168h")
        .ok_or_else(|| "expected a time from 1s to 168h, such as 15m, 1h".to_owned())
}

pub(crate) fn run(args: &Args) -> Answer<ExitCode> {
    match &args.verb {
        None => list(&args.list),
        Some(Verb::List(args)) => list(args),
        Some(Verb::Token { node, ttl, output, server }) => {
            let mut body = json!({"ttlSeconds": ttl.as_secs().max(1)});
            if let Some(node) = node {
                body["node"] = node.as_str().into();
            }
            token(&server.open()?, &body, *output)
        }
        Some(Verb::Revoke { node, server }) => {
            let route = Route::to(["guard", "agents", node, "revoke"]);
            server.open()?.ask::<Value>(&Method::POST, &route, &Body::None)?;
            output::line(&format!(
                "agent {node} revoked: its certificate and tokens made until now are refused"
            ))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(List { output, server }: &List) -> Answer<ExitCode> {
    let answer: Value = server.open()?.get(&Route::to(["guard", "agents"]))?;
    output.print(&answer, || {
        let titles = [
            "NODE", "STATE", "HEARD", "VERSION", "KERNEL", "BATCHES", "RECORDS", "REFUSED",
            "DROPPED",
        ];
        let mut table = Table::new(titles);
        for agent in answer["agents"].as_array().into_iter().flatten() {
            table.row(row(agent));
        }
        table.render(Paint::stdout())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn row(agent: &Value) -> Vec<Cell> {
    let state = field(agent, "state");
    let state = match state.as_str() {
        "silent" => Cell::coloured(&state, Colour::Red),
        "away" => Cell::coloured(&state, Colour::Yellow),
        "left" => Cell::coloured(&state, Colour::Dim),
        _ => state.into(),
    };
    let mut cells = vec![field(agent, "node").into(), state, moment(&field(agent, "heard")).into()];
    let names = ["version", "kernel", "batches", "records", "refused", "droppedTotals"];
    cells.extend(names.map(|name| Cell::from(field(agent, name))));
    cells
}

fn token(server: &Server, body: &Value, output: Output) -> Answer<ExitCode> {
    let route = Route::to(["guard", "agents", "token"]);
    let made: Value = server.ask(&Method::POST, &route, &Body::Json(body))?;
    let token = made["token"].as_str();
    let token = token.ok_or_else(|| Failure("the server did not tell the token".to_owned()))?;
    // Stdout has the token alone, so that it can go into a file.
    output.print(&made, || token.to_owned())?;
    if output.output == Format::Table {
        let whose =
            made["node"].as_str().map_or("any node".to_owned(), |node| format!("node {node}"));
        let until = moment(&field(&made, "expires"));
        eprintln!("for {whose}, until {until}; it is not shown again");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_holds_for_a_week_at_most() {
        assert_eq!(ttl("15m"), Ok(Duration::from_secs(900)));
        assert!(ttl("168h").is_ok());
        for wrong in ["", "0s", "169h", "1w", "-1h"] {
            assert!(ttl(wrong).is_err(), "{wrong}");
        }
    }
}

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::tokens;
use crate::cli::client::{Body, ClientResult, ListFlags, Route, ServerFlags};
use crate::cli::listing::{field, fields};
use crate::cli::table::{Cell, moment};
use crate::cli::terminal::Colour;
use crate::output::{self, Format, Output};
use crate::values;

/// Manage the agents of nodes: list them, let one in, shut one out
///
/// An agent reports the connections of its node. It enrols once with a token, gets a certificate in
/// its node's name, and renews that by itself.
///
/// Examples:
///   fairlead agents
///   (umask 077; fairlead agents token --node node-1 > node-1.token)
///   fairlead agents token --ttl 15m
///   fairlead agents tokens list
///   fairlead agents tokens revoke 5d3c2b1a09f8e7d6
///   fairlead agents revoke node-1
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
    /// List every agent that has enrolled, with its state
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Make a token with which a node enrols, and print it, this once
    Token {
        /// The only node that may use it [default: any]
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
    /// List the tokens that a node may enrol with, or refuse one
    Tokens {
        #[command(subcommand)]
        verb: TokenVerb,
    },
    /// Refuse a node's certificate and the tokens that were made for it, at once
    ///
    /// A token that is made later lets the node in again.
    Revoke {
        node: String,
        #[command(flatten)]
        server: ServerFlags,
    },
}

#[derive(Debug, clap::Subcommand)]
enum TokenVerb {
    /// List the tokens that a node may enrol with; their secrets are not kept
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Refuse a token from now on
    ///
    /// What nodes were given for it holds: `fairlead agents revoke NODE` takes that back.
    Revoke {
        /// As `fairlead agents tokens list` shows it
        id: String,
        #[command(flatten)]
        server: ServerFlags,
    },
}

fn ttl(text: &str) -> Result<Duration, String> {
    values::time(text, "1s", "168h")
        .ok_or_else(|| "expected a time from 1s to 168h, such as 15m, 1h".to_owned())
}

pub(crate) async fn run(args: &Args) -> ClientResult<ExitCode> {
    match &args.verb {
        None => list(&args.list).await,
        Some(Verb::List(args)) => list(args).await,
        Some(Verb::Token { node, ttl, output, server }) => {
            let mut body = json!({"ttlSeconds": ttl.as_secs().max(1)});
            if let Some(node) = node {
                body["node"] = node.as_str().into();
            }
            let route = Route::to(["guard", "agents", "token"]);
            let made = tokens::create(&server.open()?, &route, &body, *output).await?;
            if output.output == Format::Table {
                let node = made["node"].as_str();
                let node = node.map_or("any node".to_owned(), |node| format!("node {node}"));
                let until = moment(&field(&made, "expires"));
                let id = field(&made, "id");
                eprintln!("for {node}, until {until}, id {id}; it is not shown again");
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Verb::Tokens { verb: TokenVerb::List(args) }) => list_tokens(args).await,
        Some(Verb::Tokens { verb: TokenVerb::Revoke { id, server } }) => {
            server.open()?.delete(&Route::to(["guard", "agents", "tokens", id])).await?;
            Ok(output::done(&format!("token {id} revoked: no node can enrol with it any more"))?)
        }
        Some(Verb::Revoke { node, server }) => {
            let route = Route::to(["guard", "agents", node, "revoke"]);
            server.open()?.post::<Value>(&route, Body::None).await?;
            Ok(output::done(&format!(
                "agent {node} revoked: its certificate and tokens made until now are refused"
            ))?)
        }
    }
}

async fn list_tokens(ListFlags { output, server }: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = server.open()?.get(&Route::to(["guard", "agents", "tokens"])).await?;
    output.print_list(&answer, "tokens", &["ID", "NODE", "BY", "MADE", "EXPIRES"], |token| {
        let node = token["node"].as_str().unwrap_or("any").to_owned();
        let times = ["created", "expires"].map(|name| moment(&field(token, name)));
        [field(token, "id"), node, field(token, "createdBy")]
            .into_iter()
            .chain(times)
            .map(Cell::from)
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn list(ListFlags { output, server }: &ListFlags) -> ClientResult<ExitCode> {
    let answer: Value = server.open()?.get(&Route::to(["guard", "agents"])).await?;
    let titles =
        ["NODE", "STATE", "HEARD", "VERSION", "KERNEL", "BATCHES", "RECORDS", "REFUSED", "DROPPED"];
    output.print_list(&answer, "agents", &titles, row)?;
    Ok(ExitCode::SUCCESS)
}

fn row(agent: &Value) -> impl Iterator<Item = Cell> + use<> {
    let state = field(agent, "state");
    let state = match state.as_str() {
        "silent" => Cell::coloured(&state, Colour::Red),
        "away" => Cell::coloured(&state, Colour::Yellow),
        "left" => Cell::coloured(&state, Colour::Dim),
        _ => state.into(),
    };
    let names = ["version", "kernel", "batches", "records", "refused", "droppedTotals"];
    let first = [field(agent, "node").into(), state, moment(&field(agent, "heard")).into()];
    first.into_iter().chain(fields(agent, names))
}

#[cfg(test)]
mod tests;

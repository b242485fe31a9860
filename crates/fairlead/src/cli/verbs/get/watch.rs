//! `get -w`: one stream for each cluster, one table for all. A row is printed when it is new or has
//! changed; a cluster whose stream ends costs its own line.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Args, Format};
use crate::cli::client::{Access, Body, ClientResult, Event, Route, Server};
use crate::cli::listing::{self, Column, ResourceList, ResourceTable, Row, items};
use crate::cli::terminal::Paint;
use crate::output::{self, FAILED};

/// Events that wait to be printed: the slow side is the terminal, and the server buffers too.
const WAITING: usize = 64;

pub(super) async fn run(args: &Args, server: Server) -> ClientResult<ExitCode> {
    let names = args.target.names(&server, Access::Read).await?;
    let kind = args.object.parts().0;
    let server = Arc::new(server);
    // The name of a cluster, with its next event; or with None or an error, at its stream's end.
    let (sender, mut events) = mpsc::channel(WAITING);
    for name in &names {
        let (server, sender, name) = (server.clone(), sender.clone(), name.clone());
        let route = args.query(Route::to(["clusters", &name, "resources", kind]));
        tokio::spawn(async move {
            let events = async {
                let mut events = server.events(Method::GET, &route, Body::None).await?;
                while let Some(event) = events.next().await? {
                    if sender.send((name.clone(), Ok(Some(event)))).await.is_err() {
                        break;
                    }
                }
                Ok(None)
            };
            let end = events.await;
            let _ = sender.send((name, end)).await;
        });
    }
    drop(sender);
    let mut printed = PrintedRows::new(args, names.len() > 1);
    while let Some((name, event)) = events.recv().await {
        match event {
            Ok(Some(event)) => {
                if !output::write_part(printed.take(&name, &event)?)? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Err(error) if names.len() == 1 => return Err(error),
            Err(error) => eprintln!("{name}: {error}"),
            Ok(None) => eprintln!("{name}: the server has ended the watch"),
        }
    }
    Ok(ExitCode::from(FAILED))
}

/// The rows that have been printed, so that a restart of the watch does not print them again.
struct PrintedRows<'a> {
    args: &'a Args,
    across: bool,
    table: Option<ResourceTable>,
    /// By cluster, then by namespace and name.
    rows: BTreeMap<String, BTreeMap<(String, String), Vec<String>>>,
    /// The columns of each cluster, as it last sent them.
    columns: BTreeMap<String, Vec<Column>>,
}

impl<'a> PrintedRows<'a> {
    fn new(args: &'a Args, across: bool) -> Self {
        Self { args, across, table: None, rows: BTreeMap::new(), columns: BTreeMap::new() }
    }

    /// The text to print for an event.
    fn take(&mut self, cluster: &str, event: &Event) -> ClientResult<String> {
        match event.name.as_str() {
            "interrupted" => {
                let why = event.json::<Value>()?;
                eprintln!("interrupted: {cluster}: {}", listing::field(&why, "why"));
                Ok(String::new())
            }
            "restarted" | "applied" | "deleted" => match self.args.output {
                Format::Table | Format::Wide => Ok(self.rows(cluster, &event.name, event.json()?)),
                _ => self.object(cluster, &event.name, &event.json()?),
            },
            _ => Ok(String::new()),
        }
    }

    fn rows(&mut self, cluster: &str, event: &str, mut part: ResourceList) -> String {
        if part.columns.is_empty() {
            part.columns = self.columns.get(cluster).cloned().unwrap_or_default();
        } else {
            self.columns.insert(cluster.to_owned(), part.columns.clone());
        }
        for row in &mut part.rows {
            row.cluster = Some(cluster.to_owned());
        }
        let known = self.rows.entry(cluster.to_owned()).or_default();
        if event == "restarted" {
            known.retain(|key, _| part.rows.iter().any(|row| key_of(row) == *key));
        }
        if part.rows.is_empty() {
            return String::new();
        }
        let extra = self.args.extra_columns(self.across);
        let table = self.table.get_or_insert_with(|| part.empty_table(extra));
        for row in &part.rows {
            let cells = table.cells(&part.columns, row);
            let key = key_of(row);
            if event == "deleted" {
                known.remove(&key);
            } else if known.get(&key) == Some(&cells) {
                continue;
            } else {
                known.insert(key, cells.clone());
            }
            table.table.row(cells);
        }
        table.table.unprinted(Paint::stdout())
    }

    fn object(&self, cluster: &str, event: &str, data: &Value) -> ClientResult<String> {
        if self.args.output == Format::Name {
            if event == "deleted" {
                return Ok(String::new());
            }
            let word = self.args.object.parts().0;
            let prefix = if self.across { format!("{cluster} ") } else { String::new() };
            let objects = if event == "restarted" {
                items(data, "items")
            } else {
                std::slice::from_ref(data)
            };
            let line = |object| format!("{prefix}{}\n", listing::name(object, word));
            return Ok(objects.iter().map(line).collect());
        }
        let mut document = json!({ "event": event, "cluster": cluster });
        if event == "restarted" {
            document["items"] = data["items"].clone();
        } else {
            document["object"] = data.clone();
        }
        Ok(match self.args.output {
            Format::Yaml => output::yaml_document(&document)?,
            _ => format!("{document}\n"),
        })
    }
}

fn key_of(row: &Row) -> (String, String) {
    (row.namespace.clone().unwrap_or_default(), row.name.clone())
}

#[cfg(test)]
mod tests;

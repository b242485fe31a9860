//! `get -w`: one stream for each cluster, one table for all. A row is printed when it is new or has
//! changed; a cluster whose stream ends costs its own line.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use http::Method;
use serde_json::{Value, json};

use super::{Args, Format};
use crate::cli::client::{Answer, Body, Change, Event, Route, Server};
use crate::cli::listing::{self, Column, Listing, Row, Sheet};
use crate::cli::terminal::Paint;
use crate::output::{self, FAILED};

/// Events that wait to be printed: the slow side is the terminal, and the server buffers too.
const WAITING: usize = 64;

/// What a stream's thread tells.
enum Heard {
    Event(Event),
    Ended(Answer<()>),
}

pub(super) fn run(args: &Args, server: Server) -> Answer<ExitCode> {
    let names = args.target.names(&server, Change::No)?;
    let kind = args.object.parts().0;
    let server = Arc::new(server);
    let (sender, heard) = mpsc::sync_channel(WAITING);
    for name in &names {
        let (server, sender, name) = (server.clone(), sender.clone(), name.clone());
        let route = args.query(Route::to(["clusters", &name, "resources", kind]));
        // These wait for a server that may say nothing for long; they end with the process.
        std::thread::spawn(move || {
            let told = |event| sender.send((name.clone(), Heard::Event(event))).is_ok();
            let ended = follow(&server, &route, told);
            let _ = sender.send((name, Heard::Ended(ended)));
        });
    }
    drop(sender);
    let mut shown = Shown::new(args, names.len() > 1);
    for (name, heard) in heard {
        match heard {
            Heard::Event(event) => {
                if !shown.take(&name, &event)? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Heard::Ended(Err(trouble)) if names.len() == 1 => return Err(trouble),
            Heard::Ended(Err(trouble)) => eprintln!("{name}: {trouble}"),
            Heard::Ended(Ok(())) => eprintln!("{name}: the server has ended the watch"),
        }
    }
    Ok(ExitCode::from(FAILED))
}

fn follow(server: &Server, route: &Route, mut told: impl FnMut(Event) -> bool) -> Answer<()> {
    let mut events = server.events(&Method::GET, route, &Body::None)?;
    while let Some(event) = events.next()? {
        if !told(event) {
            break;
        }
    }
    Ok(())
}

/// What has been printed, so that a restart of the watch does not print it again.
struct Shown<'a> {
    args: &'a Args,
    across: bool,
    sheet: Option<Sheet>,
    /// By cluster, then by namespace and name.
    rows: BTreeMap<String, BTreeMap<(String, String), Vec<String>>>,
    /// The columns of each cluster, as it last told them.
    columns: BTreeMap<String, Vec<Column>>,
}

impl<'a> Shown<'a> {
    fn new(args: &'a Args, across: bool) -> Self {
        Self { args, across, sheet: None, rows: BTreeMap::new(), columns: BTreeMap::new() }
    }

    /// False when nobody reads any more.
    fn take(&mut self, cluster: &str, event: &Event) -> Answer<bool> {
        if event.name == "interrupted" {
            let why = event.json::<Value>()?;
            eprintln!("interrupted: {cluster}: {}", listing::field(&why, "why"));
            return Ok(true);
        }
        if !matches!(event.name.as_str(), "restarted" | "applied" | "deleted") {
            return Ok(true);
        }
        let text = match self.args.output {
            Format::Table | Format::Wide => self.rows(cluster, &event.name, event.json()?),
            _ => self.object(cluster, &event.name, &event.json()?)?,
        };
        if text.is_empty() { Ok(true) } else { Ok(output::heard(text.as_bytes())?) }
    }

    fn rows(&mut self, cluster: &str, event: &str, mut part: Listing) -> String {
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
        let mut text = String::new();
        if part.rows.is_empty() {
            return text;
        }
        let mut shape = self.args.shape(self.across);
        shape.namespaces &= part.rows.iter().any(|row| row.namespace.is_some());
        let begins = self.sheet.is_none();
        let sheet = self.sheet.get_or_insert_with(|| Sheet::new(shape, part.columns.clone()));
        for row in &part.rows {
            let cells = sheet.cells(&part.columns, row);
            let key = key_of(row);
            if event == "deleted" {
                known.remove(&key);
            } else if known.get(&key) == Some(&cells) {
                continue;
            } else {
                known.insert(key, cells.clone());
            }
            sheet.table.row(cells);
        }
        let paint = Paint::stdout();
        if begins {
            text.push_str(&sheet.table.render(paint));
            text.push('\n');
            sheet.table.take(paint);
        }
        for line in sheet.table.take(paint) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn object(&self, cluster: &str, event: &str, data: &Value) -> Answer<String> {
        let word = self.args.object.parts().0;
        if self.args.output == Format::Name {
            let objects =
                data["items"].as_array().map_or(std::slice::from_ref(data), Vec::as_slice);
            let prefix = if self.across { format!("{cluster} ") } else { String::new() };
            let line = |object| format!("{prefix}{}\n", listing::name(object, word));
            return Ok(if event == "deleted" {
                String::new()
            } else {
                objects.iter().map(line).collect()
            });
        }
        let mut told = json!({ "event": event, "cluster": cluster });
        if event == "restarted" {
            told["items"] = data["items"].clone();
        } else {
            told["object"] = data.clone();
        }
        Ok(match self.args.output {
            Format::Yaml => format!("---\n{}", output::yaml(&told)?),
            _ => format!("{told}\n"),
        })
    }
}

fn key_of(row: &Row) -> (String, String) {
    (row.namespace.clone().unwrap_or_default(), row.name.clone())
}

#[cfg(test)]
mod tests;

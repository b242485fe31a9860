//! `EventTail`: lines that a server keeps the latest of, shown as they are or followed.

use std::process::ExitCode;

use http::Method;
use serde_json::Value;

use crate::cli::client::{Answer, Body, Route, Server};
use crate::cli::listing::field;
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Paint;
use crate::output::{self, Format, Output};

/// How the lines of one kind are found in an answer, and shown.
#[derive(Debug)]
pub(crate) struct EventTail {
    /// Of the events that bring what changed.
    pub(crate) event: &'static str,
    /// Where the lines are in an answer, the latest first.
    pub(crate) lines: &'static str,
    pub(crate) titles: &'static [&'static str],
    pub(crate) row: fn(&Value) -> Vec<Cell>,
    /// Counters of what is not in the lines, and what to say after the number.
    pub(crate) missing: [(&'static str, &'static str); 2],
}

/// Names on stderr the replicas whose part is not in an answer.
pub(crate) fn say_missing_replicas(answer: &Value) {
    for missing in answer["missing"].as_array().into_iter().flatten() {
        let [replica, why] = ["replica", "why"].map(|name| field(missing, name));
        let replica = match replica.as_str() {
            "-" => "other replicas".to_owned(),
            _ => format!("the replica {replica}"),
        };
        eprintln!("note: what {replica} has is not in this: {why}");
    }
}

impl EventTail {
    /// As it is now, the latest first.
    pub(crate) fn show(&self, server: &Server, route: &Route, output: Output) -> Answer<Value> {
        let answer: Value = server.get(route)?;
        output.print(&answer, || {
            let mut table = self.table();
            self.lines(&answer).iter().for_each(|line| table.row((self.row)(line)));
            table.render(Paint::stdout())
        })?;
        self.say_missing(&answer, &Value::Null);
        Ok(answer)
    }

    /// The table in the order of time, then a row for every line that changes.
    pub(crate) fn follow(
        &self,
        server: &Server,
        route: &Route,
        output: Output,
    ) -> Answer<ExitCode> {
        let mut events = server.events(&Method::GET, route, &Body::None)?;
        let mut table: Option<Table> = None;
        let mut before = Value::Null;
        loop {
            let event = events.expect("you left")?;
            if event.name != self.event {
                continue;
            }
            let told: Value = event.json()?;
            let text = match output.output {
                Format::Table => {
                    let begins = table.is_none();
                    let table = table.get_or_insert_with(|| self.table());
                    self.lines(&told).iter().rev().for_each(|line| table.row((self.row)(line)));
                    let paint = Paint::stdout();
                    let titles = begins.then(|| table.render(paint));
                    let rows = table.take(paint);
                    titles.unwrap_or_else(|| rows.join("\n")) + "\n"
                }
                Format::Json => format!("{told}\n"),
                Format::Yaml => format!("---\n{}", output::yaml(&told)?),
            };
            if !output::heard(text.as_bytes())? {
                return Ok(ExitCode::SUCCESS);
            }
            self.say_missing(&told, &before);
            before = told;
        }
    }

    fn table(&self) -> Table {
        Table::new(self.titles.iter().copied())
    }

    fn lines<'a>(&self, answer: &'a Value) -> &'a [Value] {
        answer[self.lines].as_array().map_or(&[][..], Vec::as_slice)
    }

    /// What is not in the lines, when that grows.
    fn say_missing(&self, answer: &Value, before: &Value) {
        for (counter, says) in self.missing {
            let (now, before) = (answer[counter].as_u64(), before[counter].as_u64());
            if let Some(now) = now.filter(|now| *now > before.unwrap_or_default()) {
                eprintln!("{now} {says}");
            }
        }
        say_missing_replicas(answer);
    }
}

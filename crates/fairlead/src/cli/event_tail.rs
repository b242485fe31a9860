//! `EventTail`: the latest lines that a server keeps of something, printed once or followed.

use std::process::ExitCode;

use serde_json::Value;

use crate::cli::client::{ClientResult, Route, Server};
use crate::cli::listing::{field, items};
use crate::cli::table::{Cell, Table};
use crate::cli::terminal::Paint;
use crate::output::Output;

/// How the lines of one kind are found in an answer, and printed.
#[derive(Debug)]
pub(crate) struct EventTail {
    /// The name of the events that bring lines which are new or have changed.
    pub(crate) event: &'static str,
    /// The name of the list of lines in an answer, the latest first.
    pub(crate) lines: &'static str,
    pub(crate) titles: &'static [&'static str],
    pub(crate) row: fn(&Value) -> Vec<Cell>,
    /// The counters of lines that are missing, and the words after each number.
    pub(crate) missing: [(&'static str, &'static str); 2],
}

/// Names on stderr the replicas whose part is not in an answer.
pub(crate) fn report_missing_replicas(answer: &Value) {
    for missing in items(answer, "missing") {
        let [replica, why] = ["replica", "why"].map(|name| field(missing, name));
        let replica = match replica.as_str() {
            "-" => "other replicas".to_owned(),
            _ => format!("the replica {replica}"),
        };
        eprintln!("note: what {replica} has is not in this: {why}");
    }
}

impl EventTail {
    /// Prints the lines as they are now, the latest first.
    pub(crate) async fn show(
        &self,
        server: &Server,
        route: &Route,
        output: Output,
    ) -> ClientResult<Value> {
        let answer: Value = server.get(route).await?;
        output.print_list(&answer, self.lines, self.titles, self.row)?;
        self.report_missing(&answer, &Value::Null);
        Ok(answer)
    }

    /// Prints the lines in the order of time, then every line that is new or has changed.
    pub(crate) async fn follow(
        &self,
        server: &Server,
        route: &Route,
        output: Output,
    ) -> ClientResult<ExitCode> {
        let mut table = Table::new(self.titles.iter().copied());
        let mut before = Value::Null;
        let show = |answer: &Value| {
            let text = output.event(answer, || {
                let lines = items(answer, self.lines).iter().rev();
                lines.for_each(|line| table.row((self.row)(line)));
                table.unprinted(Paint::stdout())
            })?;
            self.report_missing(answer, &before);
            before = answer.clone();
            Ok(text)
        };
        server.follow(route, self.event, show).await
    }

    /// Says on stderr how many lines are missing, whenever they become more.
    fn report_missing(&self, answer: &Value, before: &Value) {
        for (counter, words) in self.missing {
            let (now, before) = (answer[counter].as_u64(), before[counter].as_u64());
            if let Some(now) = now.filter(|now| *now > before.unwrap_or_default()) {
                eprintln!("{now} {words}");
            }
        }
        report_missing_replicas(answer);
    }
}

//! What verbs print: a table for people, JSON or YAML for scripts. JSON is a contract.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::table::{Table, printable};
use crate::cli::terminal::Paint;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// The `-o` of every verb that prints.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Output {
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
}

/// A verb could not do what was asked: the sentence that says why, and what to do next. Exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

pub(crate) type Verdict = Result<ExitCode, Failure>;

/// Exit 1: the answer is no, or something was found.
pub(crate) const NO: u8 = 1;
/// Exit 2: it could not be done.
pub(crate) const FAILED: u8 = 2;

impl Output {
    /// Prints `value` for a script, or `table` for a person.
    pub(crate) fn print<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let text = match self.output {
            Format::Table => table(),
            Format::Json => json(value)?,
            Format::Yaml => yaml(value)?,
        };
        line(text.trim_end())
    }
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map_err(|e| Failure(format!("cannot be written as JSON: {e}")))
}

pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(|e| Failure(format!("cannot be written as YAML: {e}")))
}

/// Writes to stdout. A reader that has gone away (`| head`) is not an error.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// A list of texts in an answer, which may not be there.
pub(crate) fn texts(list: &serde_json::Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(ToOwned::to_owned)).collect()
}

/// Tells on stderr what an API server warned of, as kubectl does. `before` names the cluster, where
/// there are several.
pub(crate) fn warn(before: &str, warnings: &[String]) {
    for warning in warnings {
        eprintln!("Warning: {before}{}", printable(warning));
    }
}

/// Writes to stdout in the course of something endless. False once the reader has gone away.
pub(crate) fn heard(bytes: &[u8]) -> Result<bool, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// A plain table under its titles.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let mut table = Table::new(titles);
    for row in rows {
        table.row(row.each_ref().map(String::as_str));
    }
    table.render(Paint::stdout())
}

//! Printing: a table for people, JSON or YAML for scripts. JSON is a contract.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use crate::cli::listing::items;
use crate::cli::table::{Cell, Table, printable};
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

/// Exit 1: the answer is no, or something was found. Exit 2: it could not be done.
pub(crate) use edge::error_code::{FAILED, NO};

/// The exit code of a verb that answers a question.
pub(crate) fn yes_or_no(yes: bool) -> ExitCode {
    if yes { ExitCode::SUCCESS } else { ExitCode::from(NO) }
}

/// Prints what was done, which is all that a verb has to say.
pub(crate) fn done(text: &str) -> Verdict {
    line(text)?;
    Ok(ExitCode::SUCCESS)
}

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

    /// Prints an answer for a script, or for a person a table with a row for each item of its list
    /// `name`.
    pub(crate) fn print_list<R: IntoIterator<Item: Into<Cell>>>(
        self,
        answer: &Value,
        name: &str,
        titles: &[&str],
        row: impl FnMut(&Value) -> R,
    ) -> Result<(), Failure> {
        self.print(answer, || table(titles.iter().copied(), items(answer, name).iter().map(row)))
    }

    /// One event of a stream: a line of JSON, a document of YAML, or what `table` has for a person.
    pub(crate) fn event(
        self,
        value: &Value,
        table: impl FnOnce() -> String,
    ) -> Result<String, Failure> {
        Ok(match self.output {
            Format::Table => table(),
            Format::Json => format!("{value}\n"),
            Format::Yaml => yaml_document(value)?,
        })
    }

    /// Prints objects to be applied, as documents of YAML; for `-o json`, prints `value`.
    pub(crate) fn print_objects<T: Serialize>(
        self,
        value: &Value,
        objects: &[T],
    ) -> Result<(), Failure> {
        if self.output == Format::Json {
            return line(&json(value)?);
        }
        objects.iter().try_for_each(|object| line(yaml_document(object)?.trim_end()))
    }
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string_pretty(value)
        .map_err(|e| Failure(format!("cannot be written as JSON: {e}")))
}

pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(|e| Failure(format!("cannot be written as YAML: {e}")))
}

/// YAML that may follow other documents in one stream.
pub(crate) fn yaml_document<T: Serialize>(value: &T) -> Result<String, Failure> {
    Ok(format!("---\n{}", yaml(value)?))
}

/// Writes a line to stdout. A reader that has gone away (`| head`) is not an error.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// The texts of a list in an answer; none where there is no list.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(ToOwned::to_owned)).collect()
}

/// Prints on stderr what an API server warned of, as kubectl does. `prefix` names the cluster, where
/// there are several.
pub(crate) fn warn(prefix: &str, warnings: &[String]) {
    for warning in warnings {
        eprintln!("Warning: {prefix}{}", printable(warning));
    }
}

/// Writes a part of something endless to stdout. False once the reader has gone away.
pub(crate) fn write_part(part: impl AsRef<[u8]>) -> Result<bool, Failure> {
    let part = part.as_ref();
    if part.is_empty() {
        return Ok(true);
    }
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(part).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// A table for stdout.
pub(crate) fn table<'a, R: IntoIterator<Item: Into<Cell>>>(
    titles: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new(titles);
    rows.into_iter().for_each(|row| table.row(row));
    table.render(Paint::stdout())
}

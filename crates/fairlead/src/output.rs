//! What verbs print: a table for people, JSON or YAML for scripts. JSON is a contract.

use std::io::Write;
use std::process::ExitCode;

use serde::Serialize;

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
            Format::Json => serde_json::to_string_pretty(value)
                .map_err(|e| Failure(format!("cannot be written as JSON: {e}")))?,
            Format::Yaml => serde_saphyr::to_string(value)
                .map_err(|e| Failure(format!("cannot be written as YAML: {e}")))?,
        };
        line(text.trim_end())
    }
}

/// Writes to stdout. A reader that has gone away (`| head`) is not an error.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// Left-aligned columns, two spaces apart, under their titles.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = titles.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let render = |cells: [&str; N]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            text.push_str(&format!("{cell:width$}  "));
        }
        text.trim_end().to_owned()
    };
    std::iter::once(render(titles))
        .chain(rows.iter().map(|row| render(row.each_ref().map(String::as_str))))
        .collect::<Vec<_>>()
        .join("\n")
}

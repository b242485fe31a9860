//! Tables for people: columns as wide as their widest cell on a terminal, three spaces apart, as
//! kubectl has them. What comes from a cluster is text, whatever bytes it has: nothing in a cell
//! can move the cursor or begin another line.

use jiff::Timestamp;
use unicode_width::UnicodeWidthStr;

use crate::cli::terminal::{Colour, Paint};

const GAP: usize = 3;

/// One cell: its text, safe to print, and perhaps a colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    pub(crate) fn coloured(text: &str, colour: Colour) -> Self {
        Self { text: printable(text), colour: Some(colour) }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: printable(text), colour: None }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

/// A cell that may be empty.
impl From<Option<&str>> for Cell {
    fn from(text: Option<&str>) -> Self {
        text.unwrap_or("-").into()
    }
}

/// Titles and rows; columns keep their width when rows are added later (a watch goes on printing).
#[derive(Clone, Debug)]
pub(crate) struct Table {
    titles: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
    /// Whether [`Self::unprinted`] has returned the titles.
    begun: bool,
}

impl Table {
    pub(crate) fn new<T: Into<Cell>>(titles: impl IntoIterator<Item = T>) -> Self {
        let titles: Vec<Cell> = titles.into_iter().map(Into::into).collect();
        let mut table =
            Self { titles: Vec::new(), rows: Vec::new(), widths: Vec::new(), begun: false };
        table.widen(&titles);
        table.titles = titles;
        table
    }

    pub(crate) fn row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        self.widen(&cells);
        self.rows.push(cells);
    }

    /// Titles and all rows.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let titles = self.line(&self.titles, paint);
        let rows = self.rows.iter().map(|row| self.line(row, paint));
        std::iter::once(titles).chain(rows).collect::<Vec<_>>().join("\n")
    }

    /// The lines since the last time: the titles once, then the rows, in the columns there are.
    pub(crate) fn unprinted(&mut self, paint: Paint) -> String {
        let rows = std::mem::take(&mut self.rows);
        let titles = (!std::mem::replace(&mut self.begun, true)).then_some(&self.titles);
        titles.into_iter().chain(&rows).map(|row| self.line(row, paint) + "\n").collect()
    }

    fn widen(&mut self, cells: &[Cell]) {
        self.widths.resize(self.widths.len().max(cells.len()), 0);
        for (width, cell) in self.widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.text.width());
        }
    }

    fn line(&self, cells: &[Cell], paint: Paint) -> String {
        let mut line = String::new();
        let mut blanks = 0;
        for (cell, width) in cells.iter().zip(&self.widths) {
            if !cell.text.is_empty() {
                line.extend(std::iter::repeat_n(' ', blanks));
                blanks = 0;
                match cell.colour {
                    Some(colour) => line.push_str(&paint.paint(colour, &cell.text)),
                    None => line.push_str(&cell.text),
                }
            }
            blanks += width - cell.text.width() + GAP;
        }
        line
    }
}

/// One line of text without control characters: what a cluster sends must not drive a terminal.
pub(crate) fn printable(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() || is_bidi(c) => '\u{fffd}',
        c => c,
    };
    text.trim_end_matches(['\n', '\r']).chars().map(plain).collect()
}

/// Marks that turn the rest of a line around.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How long ago, as kubectl says it; `-` when that is unknown.
pub(crate) fn age(since: Option<&str>, now: Timestamp) -> String {
    let since = since.and_then(|text| text.parse::<Timestamp>().ok());
    since.map_or_else(|| "-".to_owned(), |since| human(now.as_second() - since.as_second()))
}

/// A moment to the second, which is what a person reads; other text is left alone.
pub(crate) fn moment(text: &str) -> String {
    let to_second = |at: Timestamp| Timestamp::from_second(at.as_second()).ok();
    text.parse().ok().and_then(to_second).map_or_else(|| text.to_owned(), |at| at.to_string())
}

/// Two units while the smaller one still matters.
fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |big: i64, b: char, small: i64, s: char| {
        let (whole, rest) = (seconds / big, seconds % big / small);
        if rest == 0 { format!("{whole}{b}") } else { format!("{whole}{b}{rest}{s}") }
    };
    match seconds {
        // A clock that is a little ahead of ours.
        ..0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        s => format!("{}y", s / YEAR),
    }
}

#[cfg(test)]
mod tests;

//! A page for a terminal.

use super::facts::facts;
use super::words;
use crate::figures::{bytes, count};
use crate::report::{EventKind, Finding, Report, Severity, TimelineEvent};
use crate::timeline;

/// How the page is set.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether it shows colours.
    pub colour: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 100,
            colour: false,
        }
    }
}

/// Findings told in full; the rest, and what only follows from the first, get a few lines.
const IN_FULL: usize = 3;
const EVENTS: usize = 16;
/// Events of each kind that come before more of another kind.
const OF_A_KIND: usize = 3;
const EVIDENCE: usize = 3;
const INPUTS: usize = 12;
const NOTES: usize = 6;
const LABEL: usize = 9;

/// The report as a page of text.
pub fn text(report: &Report, style: Style) -> String {
    let mut page = Page {
        out: String::new(),
        width: style.width.clamp(40, 240),
        colour: style.colour,
    };
    let verdict = words::verdict(report.findings.len());
    let paint = if report.findings.is_empty() {
        Paint::Good
    } else {
        Paint::Bold
    };
    page.line(0, &[(paint, &verdict)]);
    for (n, finding) in (1..).zip(&report.findings) {
        page.blank();
        let follows = timeline::is_consequence(finding.class);
        page.finding(n, finding, n == 1 || (n <= IN_FULL && !follows));
    }
    page.comparisons(report);
    page.timeline(&report.timeline);
    page.inputs(report);
    let mut told = std::collections::HashSet::new();
    for note in report
        .notes
        .iter()
        .filter(|n| told.insert(n.text.as_str()))
        .take(NOTES)
    {
        page.wrapped("note", &note.text);
    }
    page.out
}

#[derive(Clone, Copy)]
enum Paint {
    Plain,
    Bold,
    Dim,
    Bad,
    Warn,
    Good,
}

struct Page {
    out: String,
    width: usize,
    colour: bool,
}

impl Page {
    fn blank(&mut self) {
        self.out.push('\n');
    }

    fn line(&mut self, indent: usize, parts: &[(Paint, &str)]) {
        self.out.extend(std::iter::repeat_n(' ', indent));
        for (paint, part) in parts {
            let code = match paint {
                Paint::Plain => "",
                Paint::Bold => "\x1b[1m",
                Paint::Dim => "\x1b[2m",
                Paint::Bad => "\x1b[1;31m",
                Paint::Warn => "\x1b[33m",
                Paint::Good => "\x1b[32m",
            };
            let painted = self.colour && !code.is_empty();
            if painted {
                self.out.push_str(code);
            }
            self.out.push_str(&safe(part));
            if painted {
                self.out.push_str("\x1b[0m");
            }
        }
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
    }

    /// A label, and text beside it that keeps its column.
    fn wrapped(&mut self, label: &str, text: &str) {
        let left = 3 + LABEL;
        let label = format!("{label:<LABEL$}");
        for (i, line) in wrap(text, self.width.saturating_sub(left))
            .iter()
            .enumerate()
        {
            if i == 0 {
                self.line(3, &[(Paint::Dim, &label), (Paint::Plain, line)]);
            } else {
                self.line(left, &[(Paint::Plain, line)]);
            }
        }
    }

    fn finding(&mut self, n: usize, finding: &Finding, in_full: bool) {
        let (paint, number) = match finding.severity {
            Severity::Critical => (Paint::Bad, format!("{n:<3}")),
            Severity::Serious => (Paint::Warn, format!("{n:<3}")),
            Severity::Minor => (Paint::Plain, format!("{n:<3}")),
        };
        let title = wrap(&finding.title, self.width - 3);
        for (i, line) in title.iter().enumerate() {
            if i == 0 {
                self.line(0, &[(paint, &number), (Paint::Bold, line)]);
            } else {
                self.line(3, &[(Paint::Bold, line)]);
            }
        }
        let class = words::class(finding.class);
        let severity = words::severity(finding.severity);
        self.line(3, &[(Paint::Dim, &format!("{severity}; {class}"))]);
        for fact in facts(finding) {
            // Short findings keep what tells them apart.
            if !in_full && !matches!(fact.label, "since" | "facts" | "waiting" | "holder") {
                continue;
            }
            let lines = if in_full { fact.lines.len() } else { 2 };
            for (i, line) in fact.lines.iter().take(lines).enumerate() {
                self.wrapped(if i == 0 { fact.label } else { "" }, line);
            }
        }
        let shown = if in_full { EVIDENCE } else { 1 };
        for (i, evidence) in finding.evidence.iter().take(shown).enumerate() {
            let place = words::place(evidence);
            let room = self
                .width
                .saturating_sub(3 + LABEL + place.chars().count() + 2);
            let text = cut(&evidence.text, room.max(20));
            let label = format!("{:<LABEL$}", if i == 0 { "evidence" } else { "" });
            self.line(
                3,
                &[
                    (Paint::Dim, &label),
                    (Paint::Plain, &place),
                    (Paint::Dim, "  "),
                    (Paint::Dim, &text),
                ],
            );
        }
    }

    fn comparisons(&mut self, report: &Report) {
        for two in &report.comparisons {
            self.blank();
            self.line(0, &[(Paint::Bold, "two dumps")]);
            self.wrapped("of", &format!("{} and {}", two.first, two.second));
            let moved = if two.by_goroutine {
                format!("{} moved, ", count(two.moved))
            } else {
                String::new()
            };
            self.wrapped(
                "who",
                &format!(
                    "{} did not move, {moved}{} came, {} went",
                    count(two.stuck),
                    count(two.arrived),
                    count(two.left)
                ),
            );
            for path in two.stuck_paths.iter().take(4) {
                let frames: Vec<&str> = path.frames.iter().take(3).map(String::as_str).collect();
                self.wrapped(
                    "",
                    &format!("{} × {}", count(path.count), frames.join(" ← ")),
                );
            }
        }
    }

    fn timeline(&mut self, events: &[TimelineEvent]) {
        if events.is_empty() {
            return;
        }
        self.blank();
        self.line(0, &[(Paint::Bold, "timeline")]);
        let mut day = String::new();
        for event in select(events) {
            let at = event.at.map(|at| format!("{at:.3}"));
            let (date, time) = match at.as_deref().and_then(|at| at.split_once('T')) {
                Some((date, time)) => (date.to_owned(), time.trim_end_matches('Z').to_owned()),
                None => ("at a time not said".to_owned(), String::new()),
            };
            if date != day {
                self.line(3, &[(Paint::Dim, &date)]);
                day = date;
            }
            let times = if event.count > 1 {
                format!(" ({} times)", count(event.count))
            } else {
                String::new()
            };
            let kind = words::event(event.kind);
            let room = self.width.saturating_sub(3 + 13 + 9 + times.len());
            let text = cut(&event.text, room.max(20));
            let paint = match event.kind {
                EventKind::Onset => Paint::Bad,
                _ => Paint::Plain,
            };
            self.line(
                3,
                &[
                    (Paint::Plain, &format!("{time:<13}")),
                    (Paint::Dim, &format!("{kind:<9}")),
                    (paint, &text),
                    (Paint::Bold, &times),
                ],
            );
        }
        if events.len() > EVENTS {
            self.line(
                3,
                &[(Paint::Dim, &format!("and {} more", events.len() - EVENTS))],
            );
        }
    }

    fn inputs(&mut self, report: &Report) {
        self.blank();
        self.line(0, &[(Paint::Bold, "read")]);
        for input in report.inputs.iter().take(INPUTS) {
            let taken = if input.taken_for.is_empty() {
                "not read".to_owned()
            } else {
                input.taken_for.join("; ")
            };
            let size = if input.size > 0 {
                format!(", {}", bytes(input.size as f64))
            } else {
                String::new()
            };
            for line in wrap(&format!("{}: {taken}{size}", input.name), self.width - 3) {
                self.line(3, &[(Paint::Plain, &line)]);
            }
            if !input.read.is_empty() {
                for line in wrap(&input.read.join(", "), self.width - 5) {
                    self.line(5, &[(Paint::Dim, &line)]);
                }
            }
            for refusal in input.refused.iter().take(3) {
                let place = refusal
                    .line
                    .map_or_else(String::new, |line| format!("line {line}: "));
                for line in wrap(&format!("{place}{}", refusal.why), self.width - 5) {
                    self.line(5, &[(Paint::Warn, &line)]);
                }
            }
        }
        if report.inputs.len() > INPUTS {
            self.line(
                3,
                &[(
                    Paint::Dim,
                    &format!("and {} more", report.inputs.len() - INPUTS),
                )],
            );
        }
    }
}

/// The events for a page, in order: some of every kind before many of one.
fn select(events: &[TimelineEvent]) -> Vec<&TimelineEvent> {
    let mut ranked: Vec<(usize, usize)> = Vec::with_capacity(events.len());
    let mut seen = std::collections::HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let nth: &mut usize = seen.entry(event.kind).or_default();
        ranked.push((*nth / OF_A_KIND, at));
        *nth += 1;
    }
    ranked.sort_unstable();
    ranked.truncate(EVENTS);
    let mut chosen: Vec<usize> = ranked.into_iter().map(|(_, at)| at).collect();
    chosen.sort_unstable();
    chosen.into_iter().map(|at| &events[at]).collect()
}

/// Without control characters: a log must not move the cursor of who reads about it.
pub(super) fn safe(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '·' } else { c })
        .collect()
}

/// The start of a text, in so many columns.
pub(super) fn cut(text: &str, room: usize) -> String {
    match text.char_indices().nth(room) {
        Some(_) => {
            let end = text
                .char_indices()
                .nth(room.saturating_sub(1))
                .map_or(0, |(at, _)| at);
            format!("{}…", &text[..end])
        }
        None => text.to_owned(),
    }
}

/// Lines of at most so many columns, broken at blanks; leading blanks are kept.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(20);
    let mut lines = Vec::new();
    let indent: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut line = indent.clone();
    let mut length = indent.len();
    for word in text.split_whitespace() {
        let mut word = word;
        let mut size = word.chars().count();
        if length > indent.len() && length + 1 + size > width {
            lines.push(std::mem::replace(&mut line, indent.clone()));
            length = indent.len();
        } else if length > indent.len() {
            // Columns within a line keep their blanks.
            line.push(' ');
            length += 1;
        }
        while length + size > width && size > 1 {
            let room = (width - length).max(1);
            let at = word
                .char_indices()
                .nth(room)
                .map_or(word.len(), |(at, _)| at);
            line.push_str(&word[..at]);
            lines.push(std::mem::replace(&mut line, indent.clone()));
            length = indent.len();
            word = &word[at..];
            size = word.chars().count();
        }
        line.push_str(word);
        length += size;
    }
    lines.push(line);
    lines
}

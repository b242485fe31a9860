//! Reads one text, however mixed: each line goes to the reader that understands it.
//!
//! Profiles are cut out whole, with what stands before and after, and parsed at once: the parser
//! knows their forms, prefixes and orders better than a line can tell. Everything else is taken
//! line by line and forgotten.

use std::collections::BTreeSet;
use std::io::Read;

use super::Gathered;
use super::kept::Kept;
use super::lines::{LONGEST, Lines};
use crate::figures::{count, many};
use crate::goroutine;
use crate::log::At;
use crate::log::stamp::Millis;
use crate::metrics::Table;
use crate::own::{self, Ledger};
use crate::report::{InputSummary, Refusal};
use crate::threads;

/// What is kept before a profile's first line: its head, or in reversed order its frames.
const BEFORE: usize = 64 << 10;
/// A profile has ended when so much came that is not part of one.
const AFTER: usize = 256 << 10;
/// More than this is no profile that anybody could have taken.
const MOST_KEPT: usize = 2 << 30;
/// A JSON document of ours is smaller.
const MOST_JSON: usize = 64 << 20;
/// Lines of a JSON record that was pretty-printed.
const MOST_JOINED: usize = 40;
/// So many lines that nothing understands, and the text is somebody's report.
const REPORT: u64 = 8;
/// Report progress every so many bytes.
const STRIDE: u64 = 8 << 20;

/// Reads `reader` to its end into `gathered`, and says in `summary` what it was.
pub(super) fn read(
    gathered: &mut Gathered,
    summary: &mut InputSummary,
    reader: impl Read,
    reference: Option<Millis>,
    progress: &mut dyn FnMut(u64),
) {
    let kept = Kept::Copied(Vec::new());
    recognise(gathered, summary, kept, reference, |text| {
        let mut lines = Lines::new(reader);
        let mut told = 0;
        loop {
            let (number, line) = match lines.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                // A truncated archive: what was read up to here still counts.
                Err(e) => {
                    let why = format!("reading stopped here: {e}");
                    let line = Some(text.line);
                    text.summary.refused.push(Refusal { line, why });
                    break;
                }
            };
            text.take(number, line, 0);
            if lines.read - told >= STRIDE {
                told = lines.read;
                progress(told);
            }
        }
        text.summary.size = lines.read;
    });
}

/// Reads a text that is in memory, without copying it.
pub(super) fn read_whole(
    gathered: &mut Gathered,
    summary: &mut InputSummary,
    whole: &[u8],
    reference: Option<Millis>,
    progress: &mut dyn FnMut(u64),
) {
    let head = whole.get(..LONGEST).unwrap_or(whole);
    if own::begins(head) || threads::begins_document(head) {
        return read(gathered, summary, whole, reference, progress);
    }
    recognise(gathered, summary, Kept::Borrowed { whole, range: 0..0 }, reference, |text| {
        let (mut start, mut told) = (0, 0);
        let ends = memchr::memchr_iter(b'\n', whole).map(|at| at + 1);
        let last = (!whole.ends_with(b"\n") && !whole.is_empty()).then_some(whole.len());
        for (number, end) in (1..).zip(ends.chain(last)) {
            let line = &whole[start..end];
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            text.take(number, line.get(..LONGEST).unwrap_or(line), end);
            start = end;
            if (end - told) as u64 >= STRIDE {
                told = end;
                progress(told as u64);
            }
        }
        text.summary.size = whole.len() as u64;
    });
}

fn recognise<'a>(
    gathered: &'a mut Gathered,
    summary: &'a mut InputSummary,
    kept: Kept<'a>,
    reference: Option<Millis>,
    read: impl FnOnce(&mut Text<'_>),
) {
    gathered.logs.begin(reference);
    let before = (
        gathered.logs.lines(),
        gathered.metrics.samples(),
        gathered.metrics.rows(),
        gathered.pods.seen(),
    );
    let mut text = Text::new(gathered, summary, kept);
    read(&mut text);
    text.finish();
    let after = (
        gathered.logs.lines(),
        gathered.metrics.samples(),
        gathered.metrics.rows(),
        gathered.pods.seen(),
    );
    let mut say = |n: u64, one, more| {
        if n > 0 {
            summary.read.push(many(n, one, more));
        }
    };
    say(after.0 - before.0, "log line", "log lines");
    say(after.1 - before.1, "sample", "samples");
    say((after.2 - before.2) as u64, "row of latencies", "rows of latencies");
    say((after.3 - before.3) as u64, "pod", "pods");
}

/// A stretch of the text that holds a profile, or may turn out to stand before one.
#[derive(Debug)]
struct Profile<'a> {
    kept: Kept<'a>,
    /// The number of the line with which `kept` begins.
    first: u64,
    /// Whether a line of a profile is in it.
    live: bool,
    /// Where the last such line ends.
    sure: usize,
}

struct Text<'a> {
    gathered: &'a mut Gathered,
    summary: &'a mut InputSummary,
    profile: Profile<'a>,
    threads: threads::Reader,
    /// The table of latencies whose rows are being read.
    table: Option<Table>,
    /// A JSON record over several lines: where it began, and how many there are.
    joined: Option<(u64, usize, Vec<u8>)>,
    /// The whole input is one JSON document.
    document: Option<Vec<u8>>,
    /// The whole input is for people to read.
    for_people: bool,
    kinds: BTreeSet<&'static str>,
    prose: u64,
    line: u64,
    /// Where the line ends in a text that is in memory.
    end: usize,
    /// Lines since one that surely belongs to a profile.
    since_frame: u64,
}

impl<'a> Text<'a> {
    fn new(gathered: &'a mut Gathered, summary: &'a mut InputSummary, kept: Kept<'a>) -> Self {
        Self {
            gathered,
            summary,
            profile: Profile { kept, first: 1, live: false, sure: 0 },
            threads: threads::Reader::default(),
            table: None,
            joined: None,
            document: None,
            for_people: false,
            kinds: BTreeSet::new(),
            prose: 0,
            line: 0,
            end: 0,
            since_frame: 0,
        }
    }

    fn take(&mut self, number: u64, line: &[u8], end: usize) {
        let blank = line.trim_ascii().is_empty();
        (self.line, self.end) = (number, end);
        if self.line == 1 && (own::begins(line) || threads::begins_document(line)) {
            self.document = Some(Vec::new());
        }
        if self.line == 1
            && let Some(kind) = own::for_people(line)
        {
            self.for_people = true;
            self.kinds.insert(kind);
        }
        if self.for_people {
            return;
        }
        if let Some(document) = &mut self.document {
            document.extend_from_slice(line);
            document.push(b'\n');
            if document.len() > MOST_JSON {
                self.not_a_document();
            }
            return;
        }
        if self.threads.line(&self.summary.name, number, line) {
            return;
        }
        if self.profile_line(line) || blank {
            return;
        }
        self.dispatch(number, line);
    }

    /// Keeps the line where a profile is or may be; tells whether it is part of one.
    fn profile_line(&mut self, line: &[u8]) -> bool {
        // Most lines of a dump are calls, each after a position: they begin nothing.
        let is_call = self.profile.live && self.since_frame == 0 && line.ends_with(b")");
        let sure = !is_call && (is_location(line) || goroutine::begins(line));
        let profile = &mut self.profile;
        if profile.kept.len() < MOST_KEPT {
            profile.kept.push(line, self.end);
        }
        if sure {
            profile.live = true;
            profile.sure = profile.kept.len();
            self.since_frame = 0;
            return true;
        }
        self.since_frame += 1;
        if profile.live {
            if profile.kept.len() - profile.sure > AFTER {
                self.cut_profile();
                return false;
            }
            // Between two positions stands the name of a function, or a blank.
            return self.since_frame == 1;
        }
        if profile.kept.len() > 2 * BEFORE {
            let bytes = profile.kept.bytes();
            let from = bytes.len() - BEFORE;
            let cut = memchr::memchr(b'\n', &bytes[from..]).map_or(from, |at| from + at + 1);
            profile.first += memchr::memchr_iter(b'\n', &bytes[..cut]).count() as u64;
            profile.kept.drop_front(cut);
        }
        false
    }

    /// Parses what was kept, and begins anew.
    fn cut_profile(&mut self) {
        let kept = self.profile.kept.take(self.end);
        let first = std::mem::replace(&mut self.profile.first, self.line + 1);
        let live = std::mem::take(&mut self.profile.live);
        self.profile.sure = 0;
        if !live {
            return;
        }
        for mut dump in goroutine::parse(&self.summary.name, kept.bytes()) {
            shift(&mut dump, first - 1);
            self.gathered.take_dump(self.summary, dump);
        }
    }

    fn dispatch(&mut self, number: u64, line: &[u8]) {
        let name = std::mem::take(&mut self.summary.name);
        self.dispatch_named(At { input: &name, line: number, bytes: line });
        self.summary.name = name;
    }

    fn dispatch_named(&mut self, at: At<'_>) {
        let line = at.bytes;
        if line.starts_with(b"```") {
            // What is quoted in a report may be quoted twice.
            self.gathered.logs.quoting();
            self.table = None;
            return;
        }
        if let Some((first, lines, mut record)) = self.joined.take() {
            record.extend_from_slice(line);
            if !line.trim_ascii_end().ends_with(b"}") && lines < MOST_JOINED {
                self.joined = Some((first, lines + 1, record));
                return;
            }
            self.log(At { line: first, bytes: &record, ..at });
            return;
        }
        if line.starts_with(b"{") && !line.trim_ascii_end().ends_with(b"}") {
            self.joined = Some((at.line, 1, line.to_vec()));
            return;
        }
        if self.log(at) {
            return;
        }
        if self.gathered.pods.line(at) {
            self.kinds.insert("kubectl get pods");
            return;
        }
        if let Some(row) = self.table.as_ref().and_then(|table| table.row(at)) {
            self.kinds.insert("table of latencies");
            self.gathered.metrics.row(row);
            return;
        }
        if self.gathered.metrics.line(at)
            || line.starts_with(b"# HELP ")
            || line.starts_with(b"# TYPE ")
        {
            self.kinds.insert("Prometheus text");
            return;
        }
        // A rule under a table's head is no row and does not end it.
        if !line.iter().all(|b| b"|-: +".contains(b)) {
            self.table = Table::head(line);
        }
        // Within a profile, what no line tells apart is most likely part of it.
        self.prose += u64::from(!self.profile.live);
        if self.prose == REPORT {
            self.gathered.logs.quoting();
        }
        self.gathered.logs.remark(at);
        self.gathered.excerpts.line(at);
    }

    fn log(&mut self, at: At<'_>) -> bool {
        let dialect = self.gathered.logs.line(at);
        if let Some(dialect) = dialect {
            self.kinds.insert(dialect.name());
        }
        dialect.is_some()
    }

    /// It was taken for a JSON document, and is none: its lines are read like others.
    fn not_a_document(&mut self) {
        let document = self.document.take().unwrap_or_default();
        for (number, line) in (1..).zip(document.split(|b| *b == b'\n')) {
            let threads = self.threads.line(&self.summary.name, number, line);
            if !threads && !line.trim_ascii().is_empty() && !self.profile_line(line) {
                self.dispatch(number, line);
            }
        }
    }

    fn finish(mut self) {
        if let Some(document) = self.document.take() {
            if let Some(ledger) = Ledger::parse(&self.summary.name, &document) {
                self.kinds.insert("Fairlead ledger");
                self.summary.read.push(ledger.summary());
                self.gathered.ledgers.push(ledger);
            } else if let Some(dump) = threads::parse_document(&self.summary.name, &document) {
                self.gathered.take_threads(self.summary, dump);
            } else {
                self.document = Some(document);
                self.not_a_document();
            }
        }
        if let Some((first, _, record)) = self.joined.take() {
            let name = self.summary.name.clone();
            self.log(At { input: &name, line: first, bytes: &record });
        }
        self.cut_profile();
        for dump in std::mem::take(&mut self.threads).finish() {
            self.gathered.take_threads(self.summary, dump);
        }
        let kinds = self.kinds.len() + self.summary.taken_for.len();
        if kinds > 0 && self.prose >= REPORT {
            self.summary.taken_for.insert(0, "report with excerpts".into());
        }
        self.summary.taken_for.extend(self.kinds.iter().map(|k| (*k).to_owned()));
        if kinds == 0 && self.summary.refused.is_empty() {
            self.summary.refused.push(Refusal {
                line: (self.line > 0).then_some(1),
                why: if self.line == 0 {
                    "it is empty".into()
                } else {
                    format!(
                        "none of its {} lines is of a goroutine profile, a thread dump, a log, \
                         Prometheus text or a ledger of ours: give the file as the tool wrote it",
                        count(self.line)
                    )
                },
            });
        }
    }
}

/// `…/file.go:12 +0x1d`, `…/file.go:12`: a position in a stack. klog's `file.go:12] text` is none.
fn is_location(line: &[u8]) -> bool {
    let Some(colon) = memchr::memrchr(b':', line) else {
        return false;
    };
    if !line[..colon].ends_with(b".go") {
        return false;
    }
    let digits = line[colon + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = &line[colon + 1 + digits..];
    digits > 0
        && (rest.starts_with(b" +0x") || (rest.is_empty() && memchr::memchr(b'\t', line).is_some()))
}

/// The parser counts lines from where its text begins.
fn shift(dump: &mut goroutine::Dump, by: u64) {
    let by = u32::try_from(by).unwrap_or(u32::MAX);
    if by == 0 {
        return;
    }
    dump.first_line = dump.first_line.saturating_add(by);
    for stack in &mut dump.stacks {
        stack.line = stack.line.map(|line| line.saturating_add(by));
        for line in &mut stack.lines {
            *line = line.saturating_add(by);
        }
    }
    for goroutine in &mut dump.goroutines {
        goroutine.line = goroutine.line.saturating_add(by);
    }
    for row in &mut dump.rows {
        row.line = row.line.saturating_add(by);
    }
}

#[cfg(test)]
mod tests;

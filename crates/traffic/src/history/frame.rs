//! `Frame`: what conversations grew by in one stretch of time, and its bytes.
//!
//! Ends and names are written once for each frame, then lines that point at them; all of it is deflated.
//! Reading never panics, and never makes more of the bytes than [`LARGEST`].

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::conversations::codec::{Reader, Writer};
use crate::conversations::{
    End, Growth, Moment, Protocol, Torn, Totals, Verdict, load_end, save_end,
};

/// Lines of one frame: some megabytes, however many conversations there are.
pub(super) const MOST_LINES: usize = 10_000;
/// The most bytes of a frame before compression. A line with two ends of its own has some two hundred.
const LARGEST: u64 = 64 << 20;
const VERSION: u8 = 1;

/// What conversations grew by in one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub from: Moment,
    pub until: Moment,
    pub lines: Vec<HistoryLine>,
}

/// What one conversation grew by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLine {
    pub client: End,
    pub server: End,
    /// None for what was folded of the two ends.
    pub service: Option<(Protocol, u16)>,
    pub application: Option<Arc<str>>,
    pub verdict: Option<Verdict>,
    /// The rule that decided, if one did.
    pub rule: Option<Arc<str>>,
    pub totals: Totals,
    /// Not before this: when the conversation or the frame began.
    pub first: Moment,
    pub last: Moment,
}

impl HistoryLine {
    fn of(growth: Growth, from: Moment) -> Self {
        let Growth { client, server, service, application, verdict, rule, totals, first, last } =
            growth;
        let first = first.unwrap_or(from).min(last);
        Self { client, server, service, application, verdict, rule, totals, first, last }
    }
}

impl Frame {
    /// The growth between two moments, in as many frames as it takes.
    pub fn split(from: Moment, until: Moment, grown: Vec<Growth>) -> Vec<Self> {
        let from = from.min(until);
        let mut frames = Vec::new();
        let mut lines = grown.into_iter().map(|growth| HistoryLine::of(growth, from)).peekable();
        while lines.peek().is_some() {
            let lines = lines.by_ref().take(MOST_LINES).collect();
            frames.push(Self { from, until, lines });
        }
        frames
    }

    pub(super) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut out = Writer::default();
        out.byte(VERSION);
        out.number(self.from.0);
        out.number(self.until.0);
        let (mut ends, mut names) = (Table::<End>::default(), Table::<Arc<str>>::default());
        let mut lines = Writer::default();
        for line in &self.lines {
            lines.number(ends.place(&line.client));
            lines.number(ends.place(&line.server));
            match line.service {
                Some((protocol, port)) => {
                    lines.byte(1);
                    lines.byte(protocol.0);
                    lines.number(u64::from(port));
                }
                None => lines.byte(0),
            }
            for name in [&line.application, &line.rule] {
                lines.number(name.as_ref().map_or(0, |name| names.place(name) + 1));
            }
            lines.byte(line.verdict.map_or(0, |verdict| verdict.number() + 1));
            lines.totals(line.totals);
            lines.number(line.first.0);
            lines.number(line.last.0);
        }
        out.count(ends.all.len());
        ends.all.iter().for_each(|end| save_end(end, &mut out));
        out.count(names.all.len());
        names.all.iter().for_each(|name| out.text(name));
        out.count(self.lines.len());
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&out.0)?;
        packed.write_all(&lines.0)?;
        packed.finish()
    }

    pub(super) fn decode(packed: &[u8]) -> Result<Self, Torn> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(packed).take(LARGEST).read_to_end(&mut bytes).map_err(|_| Torn)?;
        let mut from_bytes = Reader(&bytes);
        let input = &mut from_bytes;
        if input.byte()? != VERSION {
            return Err(Torn);
        }
        let (from, until) = (Moment(input.number()?), Moment(input.number()?));
        let count = input.count()?;
        let ends =
            (0..count).map(|_| load_end(input)?.ok_or(Torn)).collect::<Result<Vec<_>, _>>()?;
        let count = input.count()?;
        let names = (0..count)
            .map(|_| input.text().map(Arc::<str>::from))
            .collect::<Result<Vec<_>, _>>()?;
        let count = input.count()?;
        let lines = (0..count).map(|_| line(input, &ends, &names)).collect::<Result<_, _>>()?;
        Ok(Self { from, until, lines })
    }
}

fn line(input: &mut Reader<'_>, ends: &[End], names: &[Arc<str>]) -> Result<HistoryLine, Torn> {
    let end = |place: usize| ends.get(place).cloned().ok_or(Torn);
    let (client, server) = (end(input.small()?)?, end(input.small()?)?);
    let service = match input.byte()? {
        0 => None,
        1 => Some((Protocol(input.byte()?), input.small()?)),
        _ => return Err(Torn),
    };
    let mut name = || match input.small::<usize>()?.checked_sub(1) {
        None => Ok(None),
        Some(place) => names.get(place).cloned().map(Some).ok_or(Torn),
    };
    let (application, rule) = (name()?, name()?);
    let verdict = match input.byte()?.checked_sub(1) {
        None => None,
        Some(number) => Some(Verdict::from_number(number).ok_or(Torn)?),
    };
    let totals = input.totals()?;
    let (first, last) = (Moment(input.number()?), Moment(input.number()?));
    Ok(HistoryLine { client, server, service, application, verdict, rule, totals, first, last })
}

/// What lines point at, each once.
struct Table<T> {
    all: Vec<T>,
    places: HashMap<T, u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { all: Vec::new(), places: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Table<T> {
    fn place(&mut self, it: &T) -> u64 {
        if let Some(place) = self.places.get(it) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(it.clone());
        self.places.insert(it.clone(), place);
        place
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
pub(in crate::history) mod tests;

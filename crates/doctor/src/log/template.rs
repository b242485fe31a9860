//! Lines that differ only in numbers, addresses and ids are one template.
//!
//! A token with a digit in it is a hole; holes with nothing but punctuation between them are one
//! hole. Hashing needs no allocation, so a line that was seen before costs one look-up. At most
//! [`MOST`] templates are kept; lines beyond that are only counted.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use super::line::{Level, Record};
use super::signs::{Sign, Traits};
use super::stamp::Millis;
use crate::report::Evidence;

const MOST: usize = 8192;
/// How much of a message tells it from others.
const SIGNIFICANT: usize = 400;

/// Where and when something was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) at: Option<Millis>,
    pub(crate) evidence: Evidence,
}

#[derive(Debug)]
pub(crate) struct Template {
    /// The source and the message, with `…` for holes.
    pub(crate) text: String,
    pub(crate) level: Level,
    pub(crate) traits: Traits,
    pub(crate) count: u64,
    /// How often, where the input says that lines were left out: `(28034 hits)`.
    pub(crate) told: Option<(u64, Evidence)>,
    pub(crate) first: Seen,
    pub(crate) last: Option<Millis>,
    /// The template that most often comes next, by majority vote: candidate and lead.
    next: (u32, u32),
}

impl Template {
    pub(crate) fn sign(&self) -> Option<Sign> {
        self.traits.sign
    }

    /// What was counted, or what the input says was counted before it was cut.
    pub(crate) fn total(&self) -> u64 {
        self.count
            .max(self.told.as_ref().map_or(0, |(told, _)| *told))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Templates {
    by_hash: FxHashMap<u64, u32>,
    all: Vec<Template>,
    previous: Option<u32>,
    /// Lines whose template was not kept.
    pub(crate) beyond: u64,
}

impl Templates {
    /// Counts the record; gives its template's number. `evidence` is called only where it is kept.
    pub(crate) fn count(
        &mut self,
        record: &Record<'_>,
        evidence: impl FnOnce() -> Evidence,
    ) -> Option<u32> {
        let mut hasher = FxHasher::default();
        hasher.write(record.source);
        hasher.write_u8(record.level as u8);
        walk(record, |part| hasher.write(part));
        let hash = hasher.finish();
        let known = self.by_hash.get(&hash).copied();
        let number = match known {
            Some(number) => number,
            None if self.all.len() >= MOST => {
                self.beyond += 1;
                return None;
            }
            None => {
                let number = self.all.len() as u32;
                self.by_hash.insert(hash, number);
                let text = text(record);
                let traits = Traits::of(&text, record);
                self.all.push(Template {
                    text,
                    level: record.level,
                    traits,
                    count: 0,
                    told: None,
                    first: Seen::default(),
                    last: None,
                    next: (number, 0),
                });
                number
            }
        };
        let template = &mut self.all[number as usize];
        if template.count == 0 || (record.at.is_some() && record.at < template.first.at) {
            template.first = Seen {
                at: record.at,
                evidence: evidence(),
            };
        }
        template.count += 1;
        template.last = template.last.max(record.at);
        if let Some(previous) = self.previous.replace(number) {
            self.all[previous as usize].vote(number);
        }
        Some(number)
    }

    pub(crate) fn get(&self, number: u32) -> &Template {
        &self.all[number as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Template)> {
        (0..).zip(&self.all)
    }

    /// The input says how often lines like these stood there. Without a quotation, the line before
    /// is meant.
    pub(crate) fn told(&mut self, quotation: Option<&str>, count: u64, evidence: Evidence) {
        let number = match quotation {
            Some(quoted) => {
                let wanted: String = mask(quoted);
                self.all
                    .iter()
                    .position(|t| t.text.contains(&wanted))
                    .map(|n| n as u32)
            }
            None => self.previous,
        };
        if let Some(number) = number {
            let told = &mut self.all[number as usize].told;
            if told.as_ref().is_none_or(|(known, _)| *known < count) {
                *told = Some((count, evidence));
            }
        }
    }

    /// Templates that follow each other round and round, each with the number of rounds.
    pub(crate) fn loops(&self) -> Vec<(Vec<u32>, u64)> {
        const LONGEST: usize = 8;
        let mut taken = vec![false; self.all.len()];
        let mut loops = Vec::new();
        for start in 0..self.all.len() {
            if taken[start] {
                continue;
            }
            let mut path = vec![start as u32];
            let mut at = start;
            while let Some(next) = self.all[at].follower() {
                if next as usize == start {
                    for n in &path {
                        taken[*n as usize] = true;
                    }
                    let rounds = path.iter().map(|n| self.get(*n).total()).max().unwrap_or(0);
                    loops.push((path, rounds));
                    break;
                }
                if path.len() == LONGEST || path.contains(&next) || taken[next as usize] {
                    break;
                }
                path.push(next);
                at = next as usize;
            }
        }
        loops.sort_by_key(|(_, rounds)| std::cmp::Reverse(*rounds));
        loops
    }
}

impl Template {
    fn vote(&mut self, next: u32) {
        match &mut self.next {
            (candidate, lead) if *candidate == next => *lead = lead.saturating_add(1),
            (candidate, lead @ 0) => (*candidate, *lead) = (next, 1),
            (_, lead) => *lead -= 1,
        }
    }

    /// Who follows, where it is so more often than not and not by chance.
    fn follower(&self) -> Option<u32> {
        let (next, lead) = self.next;
        let told = self.told.as_ref().map_or(0, |(told, _)| *told);
        let often = told >= 10 && lead >= 1;
        (often || (lead >= 5 && u64::from(lead) * 4 >= self.count)).then_some(next)
    }
}

/// The template's text: the source, then the message with its holes.
fn text(record: &Record<'_>) -> String {
    let mut bytes = Vec::with_capacity(128);
    if !record.source.is_empty() {
        bytes.extend_from_slice(record.source);
        bytes.extend_from_slice(b": ");
    }
    walk(record, |part| bytes.extend_from_slice(part));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn mask(text: &str) -> String {
    let mut bytes = Vec::new();
    holes(text.as_bytes(), &mut |part| bytes.extend_from_slice(part));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What distinguishes a record, piece by piece. A JSON message is short and general, so what it
/// says of the error and of the call counts as well.
fn walk(record: &Record<'_>, mut emit: impl FnMut(&[u8])) {
    let cut = |text: &'_ [u8]| text.len().min(SIGNIFICANT);
    holes(&record.message[..cut(record.message)], &mut emit);
    if matches!(
        record.dialect,
        super::line::Dialect::Json | super::line::Dialect::Logfmt
    ) {
        for (key, value) in record.fields {
            if matches!(
                key,
                b"error" | b"err" | b"grpc.error" | b"grpc.code" | b"grpc.method" | b"method"
            ) {
                emit(b" ");
                emit(key);
                emit(b"=");
                holes(&value[..cut(value)], &mut emit);
            }
        }
    }
}

fn holes(text: &[u8], emit: &mut impl FnMut(&[u8])) {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.') || b >= 0x80;
    let mut at = 0;
    let mut between = 0..0;
    let mut after_hole = false;
    while at < text.len() {
        let start = at;
        let mut digit = false;
        while at < text.len() && is_word(text[at]) {
            digit |= text[at].is_ascii_digit();
            at += 1;
        }
        if start == at {
            at += 1;
            between.end = at;
            continue;
        }
        if digit {
            if !after_hole {
                emit(&text[between.clone()]);
                emit("…".as_bytes());
            }
        } else {
            emit(&text[between.clone()]);
            emit(&text[start..at]);
        }
        after_hole = digit;
        between = at..at;
    }
    emit(&text[between]);
}

#[cfg(test)]
mod tests;

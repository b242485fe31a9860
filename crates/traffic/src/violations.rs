//! `Violations`: the latest conversations against the rules.
//!
//! Contract:
//! - Bounded: one line for the same two endpoints, service and rule, however often it comes. When a
//!   new line finds no room the oldest goes, and is counted.
//! - Each line has the number of its last change; numbers only grow. Whoever watches asks for what
//!   changed since the greatest number it saw.
//! - Survives a restart with the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::conversations::codec::{Reader, Writer};
use crate::conversations::{
    Conversation, End, Endpoint, Moment, Protocol, Torn, Verdict, load_end, save_end,
};

#[derive(Debug)]
pub struct Violations {
    most: usize,
    /// By the number of the line's making: the first is the oldest.
    lines: BTreeMap<u64, Arc<Violation>>,
    index: FxHashMap<Key, u64>,
    changes: u64,
    let_go: u64,
}

type Key = (Arc<Endpoint>, Arc<Endpoint>, Protocol, u16, Option<Arc<str>>, Option<Arc<str>>);

/// A conversation against the rules. Its ends and its verdict are those of the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of its last change.
    pub change: u64,
    pub conversation: Conversation,
}

/// The violations as they were published. Readers never wait for the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationsView {
    /// Oldest line first.
    pub lines: Arc<[Arc<Violation>]>,
    /// Lines that went to make room, ever.
    pub let_go: u64,
}

impl Violations {
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            lines: BTreeMap::new(),
            index: FxHashMap::default(),
            changes: 0,
            let_go: 0,
        }
    }

    /// Adds what came of a conversation since the last time.
    pub fn add(&mut self, seen: &Conversation) {
        self.changes += 1;
        let number = self.index.get(&key(seen));
        let Some(line) = number.and_then(|number| self.lines.get_mut(number)) else {
            return self.insert(Violation { change: self.changes, conversation: seen.clone() });
        };
        let Violation { change, conversation } = Arc::make_mut(line);
        *change = self.changes;
        let (first, mut totals) = (conversation.first.min(seen.first), conversation.totals);
        let last = conversation.last.max(seen.last);
        totals += seen.totals;
        *conversation = Conversation { first, last, totals, ..seen.clone() };
    }

    /// Costs a pointer for each line.
    pub fn view(&self) -> ViolationsView {
        ViolationsView { lines: self.lines.values().cloned().collect(), let_go: self.let_go }
    }

    /// Its part of a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.number(self.changes);
        out.number(self.let_go);
        out.count(self.lines.len());
        for line in self.lines.values() {
            let Violation { change, conversation: line } = &**line;
            out.number(*change);
            save_end(&line.client, &mut out);
            save_end(&line.server, &mut out);
            out.byte(line.protocol.0);
            out.number(line.port.into());
            for name in [&line.application, &line.rule] {
                // An empty name is none.
                out.text(name.as_deref().unwrap_or_default());
            }
            out.byte(line.verdict.number());
            out.number(line.first.0);
            out.number(line.last.0);
            out.totals(line.totals);
        }
        out.0
    }

    /// With room for `most`: the oldest of too many go.
    pub fn load(bytes: &[u8], most: usize) -> Result<Self, Torn> {
        let mut from = Reader(bytes);
        let mut violations = Self::new(most);
        violations.changes = from.number()?;
        violations.let_go = from.number()?;
        for _ in 0..from.count()? {
            let change = from.number()?;
            let (client, server) =
                (load_end(&mut from)?.ok_or(Torn)?, load_end(&mut from)?.ok_or(Torn)?);
            let (protocol, port) = (Protocol(from.byte()?), from.small()?);
            let mut name = || {
                let text = from.text()?;
                Ok((!text.is_empty()).then(|| Arc::from(text)))
            };
            let (application, rule) = (name()?, name()?);
            let verdict = Verdict::from_number(from.byte()?).ok_or(Torn)?;
            let (first, last) = (Moment(from.number()?), Moment(from.number()?));
            let totals = from.totals()?;
            let conversation = Conversation {
                client,
                server,
                protocol,
                port,
                application,
                verdict,
                rule,
                totals,
                first,
                last,
            };
            violations.insert(Violation { change, conversation });
        }
        Ok(violations)
    }

    fn insert(&mut self, line: Violation) {
        while self.lines.len() >= self.most
            && let Some((number, oldest)) = self.lines.pop_first()
        {
            let key = key(&oldest.conversation);
            if self.index.get(&key) == Some(&number) {
                self.index.remove(&key);
            }
            self.let_go = self.let_go.saturating_add(1);
        }
        let number = self.lines.last_key_value().map_or(0, |(last, _)| last + 1);
        self.index.insert(key(&line.conversation), number);
        self.lines.insert(number, Arc::new(line));
    }
}

fn key(seen: &Conversation) -> Key {
    let Conversation { client, server, protocol, port, application, rule, .. } = seen;
    let (client, server) = (Arc::clone(&client.endpoint), Arc::clone(&server.endpoint));
    (client, server, *protocol, *port, application.clone(), rule.clone())
}

impl ViolationsView {
    /// Newest line first: those with an end that `wanted` picks, last seen at `since` or after.
    pub fn query<'a>(
        &'a self,
        wanted: impl Fn(&End) -> bool + 'a,
        since: Moment,
    ) -> impl Iterator<Item = &'a Violation> {
        let lines = self.lines.iter().rev().map(|line| &**line);
        lines.filter(move |Violation { conversation: line, .. }| {
            line.last >= since && (wanted(&line.client) || wanted(&line.server))
        })
    }

    /// The number of the last change; zero if there is none.
    pub fn newest(&self) -> u64 {
        self.lines.iter().map(|line| line.change).max().unwrap_or_default()
    }

    /// Those that changed after `change`, in the order of their changes.
    pub fn changed_since(&self, change: u64) -> Vec<&Violation> {
        let lines = self.lines.iter().map(|line| &**line);
        let mut changed: Vec<_> = lines.filter(|line| line.change > change).collect();
        changed.sort_by_key(|line| line.change);
        changed
    }
}

#[cfg(test)]
mod tests;

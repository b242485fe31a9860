//! Requests begun and never ended, matched by id.
//!
//! A line whose words begin something opens its id; any later line of another template with the
//! same id closes it, and is thereby learned as what ends lines like the first. At most [`MOST`]
//! ids are open at a time; what comes on top is counted as untracked and never called unanswered.

use std::hash::Hasher;

use rustc_hash::{FxHashMap, FxHasher};

use super::signs::Begins;
use super::stamp::Millis;

const MOST: usize = 1 << 19;

#[derive(Debug, Clone, Copy)]
struct Open {
    template: u32,
    at: Option<Millis>,
}

/// What became of the requests that one template began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    /// The longest that one took and did end.
    pub(crate) longest: Millis,
    /// The template that ended one, as an example.
    pub(crate) ended_by: Option<u32>,
    pub(crate) untracked: u64,
    pub(crate) open: u64,
    /// When the first of those that never ended was begun.
    pub(crate) open_since: Option<Millis>,
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: FxHashMap<u64, Open>,
    by_template: FxHashMap<u32, Begun>,
}

impl Requests {
    /// A line of `template` carries `id`.
    pub(crate) fn line(&mut self, template: u32, begins: Begins, id: &[u8], at: Option<Millis>) {
        // Words such as `<nil>` or `0` are no ids.
        if id.len() < 3 {
            return;
        }
        let mut hasher = FxHasher::default();
        hasher.write(id);
        let id = hasher.finish();
        if let Some(open) = self.open.get(&id).copied()
            && open.template != template
        {
            self.open.remove(&id);
            let begun = self.by_template.entry(open.template).or_default();
            begun.ended += 1;
            begun.ended_by.get_or_insert(template);
            if let (Some(from), Some(to)) = (open.at, at) {
                begun.longest = begun.longest.max(to - from);
            }
        }
        if begins == Begins::No {
            return;
        }
        let begun = self.by_template.entry(template).or_default();
        begun.begun += 1;
        if self.open.len() < MOST {
            self.open.entry(id).or_insert(Open { template, at });
        } else if !self.open.contains_key(&id) {
            begun.untracked += 1;
        }
    }

    /// What never ended, by template. Requests begun shortly before the log ends may still be well.
    pub(crate) fn finish(mut self, log_ends: Option<Millis>) -> Vec<(u32, Begun)> {
        for open in self.open.into_values() {
            let Some(begun) = self.by_template.get_mut(&open.template) else {
                continue;
            };
            let patience = (2 * begun.longest).max(5_000);
            if let (Some(at), Some(end)) = (open.at, log_ends)
                && end - at < patience
            {
                continue;
            }
            begun.open += 1;
            if open.at.is_some() && (begun.open_since.is_none() || open.at < begun.open_since) {
                begun.open_since = open.at;
            }
        }
        let mut all: Vec<_> = self
            .by_template
            .into_iter()
            .filter(|(_, b)| b.open > 0)
            .collect();
        all.sort_by_key(|(number, begun)| (std::cmp::Reverse(begun.open), *number));
        all
    }
}

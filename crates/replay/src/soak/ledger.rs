//! `Names`: a ledger must name what was made to hang, soon, and nothing else.
//!
//! Contract: while a fault lasts, and for [`AFTER`] (what it held up has to end), only what the fault
//! explains may be late; at any other time nothing may. A hang that lasts must be named within
//! [`WITHIN`].

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stallproof::Ledger;

/// The promise.
const WITHIN: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(10);

/// An operation that is late, as the ledger told it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Late {
    pub(super) kind: String,
    pub(super) key: String,
    pub(super) tenant: String,
    pub(super) step: String,
}

/// Those that have become late since it was last asked.
pub(super) fn late(ledger: &Ledger) -> Vec<Late> {
    let named = ledger.name_late(Instant::now().into());
    let named = named.into_iter().map(|op| Late {
        kind: op.kind.to_owned(),
        key: op.key,
        tenant: op.tenant,
        step: op.step.to_owned(),
    });
    named.collect()
}

pub(super) type Is = Box<dyn Fn(&Late) -> bool + Send>;

/// A fault, as the ledger may see it.
pub(super) struct Explained {
    /// What may be late because of it.
    pub(super) may: Is,
    /// What must be named, if it hangs.
    pub(super) must: Option<Is>,
}

impl Explained {
    /// Everything may be late.
    pub(super) fn anything() -> Self {
        Self { may: Box::new(|_| true), must: None }
    }

    /// It holds up nobody.
    pub(super) fn nothing() -> Self {
        Self { may: Box::new(|_| false), must: None }
    }
}

#[derive(Default)]
pub(super) struct Names {
    /// The last is the one that is present, if any is; those before it are over.
    faults: Vec<Seen>,
}

struct Seen {
    explained: Explained,
    since: Instant,
    until: Option<Instant>,
    named: bool,
}

impl Names {
    pub(super) fn begin(&mut self, explained: Explained, since: Instant) {
        self.faults.push(Seen { explained, since, until: None, named: false });
    }

    /// Something must be named now, of which that was not certain when the fault began.
    pub(super) fn must(&mut self, must: Is, since: Instant) {
        if let Some(present) = self.faults.last_mut() {
            present.explained.must = Some(must);
            present.since = since;
        }
    }

    pub(super) fn end(&mut self, now: Instant) {
        if let Some(present) = self.faults.last_mut() {
            present.until = Some(now);
        }
    }

    /// What does not hold, given what has become late.
    pub(super) fn check(&mut self, late: &[Late], now: Instant) -> Vec<String> {
        self.faults.retain(|fault| fault.until.is_none_or(|until| now <= until + AFTER));
        let mut broken = Vec::new();
        for late in late {
            if !self.faults.iter().any(|fault| (fault.explained.may)(late)) {
                let Late { kind, key, tenant, step } = late;
                broken.push(format!(
                    "a false alarm: {kind} {key} of {tenant} was called late in its step {step:?}"
                ));
            }
        }
        if let Some(present) = self.faults.last_mut()
            && let Some(must) = &present.explained.must
        {
            present.named |= late.iter().any(must);
            if !present.named && present.until.is_none() && now > present.since + WITHIN {
                // Once is enough.
                present.named = true;
                broken.push(format!("a hang was not named within {} s", WITHIN.as_secs()));
            }
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(key: &str) -> Late {
        let [kind, tenant, step] = ["add", "shop", "configure"].map(str::to_owned);
        Late { kind, key: key.to_owned(), tenant, step }
    }

    fn hang() -> Explained {
        let is = || Box::new(|late: &Late| late.key == "hung") as Is;
        Explained { may: is(), must: Some(is()) }
    }

    #[test]
    fn what_is_late_without_a_fault_is_a_false_alarm() {
        let (mut names, now) = (Names::default(), Instant::now());
        assert_eq!(names.check(&[], now), Vec::<String>::new());
        assert_eq!(names.check(&[op("hung")], now).len(), 1);
    }

    #[test]
    fn a_fault_explains_its_own_victim_alone_and_only_for_a_while_after_it() {
        let (mut names, now) = (Names::default(), Instant::now());
        names.begin(hang(), now);
        assert_eq!(names.check(&[op("hung")], now).len(), 0);
        assert_eq!(names.check(&[op("other")], now).len(), 1);
        names.end(now);
        assert_eq!(names.check(&[op("hung")], now + AFTER).len(), 0);
        assert_eq!(names.check(&[op("hung")], now + AFTER + WITHIN).len(), 1);
    }

    #[test]
    fn a_hang_that_lasts_must_be_named_and_is_missed_once() {
        let now = Instant::now();
        let later = now + WITHIN + Duration::from_millis(1);
        let mut names = Names::default();
        names.begin(hang(), now);
        assert_eq!(names.check(&[], now + WITHIN).len(), 0);
        assert_eq!(names.check(&[], later).len(), 1);
        assert_eq!(names.check(&[], later).len(), 0);

        let mut names = Names::default();
        names.begin(hang(), now);
        assert_eq!(names.check(&[op("hung")], now).len(), 0);
        assert_eq!(names.check(&[], later).len(), 0);
    }
}

//! `Candidate`: what one process knows of a lease, and what follows from it. No I/O, no clock of its
//! own: every method is told what time it is on this host's clock.

use std::time::Duration;

use crate::store::Version;

/// A reading of one host's clock, which only goes forward. Readings of two hosts have nothing to do
/// with each other.
pub(crate) type Moment = Duration;

/// The part of its lease for which a leader leads, counted from before it asked for the lease. The rest
/// is for its work to stop, and for clocks that do not run at one speed.
const TRUSTED: f64 = 0.8;

/// A lease as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// None when the lease was released.
    pub(crate) holder: Option<String>,
    /// How long the holder may be silent.
    pub(crate) duration: Duration,
    /// Counts the terms; it never goes back for one `uid`.
    pub(crate) term: i32,
    /// A lease that was deleted and made again is another lease.
    pub(crate) uid: String,
    pub(crate) version: Version,
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    me: String,
    duration: Duration,
    /// The lease as last seen, and since when it looks like that.
    seen: Option<(Record, Moment)>,
    led: Option<Led>,
}

/// The term that this candidate leads, or led.
#[derive(Clone, Debug)]
struct Led {
    record: Record,
    until: Moment,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is no lease: make one without a holder. It may have been deleted under a leader that does
    /// not know yet, so it must run out like any other before it is taken.
    Make,
    /// The lease is free: write this over `version`.
    Take { term: i32, over: Record },
    /// Another candidate holds the lease.
    Wait,
    /// We hold the lease, and the store has another version of it: renew over that one.
    Renew { over: Record },
    /// We held the lease, and do no longer.
    Lost,
}

impl Candidate {
    pub(crate) fn new(me: String, duration: Duration) -> Self {
        Self { me, duration, seen: None, led: None }
    }

    /// Takes in what the store answered at `now`.
    pub(crate) fn observe(&mut self, found: Option<Record>, now: Moment) -> Next {
        let Some(record) = found else {
            self.seen = None;
            return if self.led.take().is_some() { Next::Lost } else { Next::Make };
        };
        // Whatever changed, its holder was there to change it.
        let since = match &self.seen {
            Some((seen, since)) if (&seen.version, &seen.uid) == (&record.version, &record.uid) => {
                *since
            }
            _ => now,
        };
        self.seen = Some((record.clone(), since));
        if let Some(led) = &mut self.led {
            let same = (&led.record.uid, led.record.term) == (&record.uid, record.term);
            if !same || record.holder.as_ref() != Some(&self.me) {
                self.led = None;
                return Next::Lost;
            }
            led.record = record.clone();
            return Next::Renew { over: record };
        }
        // Ours although we do not lead: the answer was lost, or came too late.
        let free = record.holder.as_ref().is_none_or(|holder| *holder == self.me);
        if free || now.saturating_sub(since) >= record.duration {
            return Next::Take { term: record.term.saturating_add(1), over: record };
        }
        Next::Wait
    }

    /// Takes in that the store accepted what we wrote; `asked` was before we sent it. Says until when we
    /// lead, if we do at `now`: an answer that came too late is no answer, and a term that has run out
    /// stays so.
    pub(crate) fn accepted(
        &mut self,
        record: Record,
        asked: Moment,
        now: Moment,
    ) -> Option<Moment> {
        let until = asked + self.duration.mul_f64(TRUSTED);
        self.seen = Some((record.clone(), now));
        let in_time = now < until && self.led.as_ref().is_none_or(|led| now < led.until);
        self.led = in_time.then_some(Led { record, until });
        self.led.as_ref().map(|led| led.until)
    }

    /// Ends our term, whatever the store says.
    pub(crate) fn resign(&mut self) {
        self.led = None;
    }

    /// The lease of the term that we lead.
    pub(crate) fn led(&self) -> Option<(&Record, Moment)> {
        self.led.as_ref().map(|led| (&led.record, led.until))
    }

    /// Who leads, as far as is known.
    pub(crate) fn leader(&self) -> Option<&str> {
        self.seen.as_ref().and_then(|(record, _)| record.holder.as_deref())
    }
}

#[cfg(test)]
mod tests;

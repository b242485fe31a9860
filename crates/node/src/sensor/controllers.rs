//! `Controllers`: those that a sensor has reported to, by the epochs of what they count.
//!
//! Contract: the [`MOST`] that were joined last are known, each by a place that it keeps while it is. For
//! another one, whoever was joined longest ago is forgotten, and what it has of totals with it.

use traffic::conversations::Moment;

/// Three replicas that each lose their disks five times a day.
pub(super) const MOST: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Controllers {
    /// By place.
    known: Vec<KnownController>,
    current: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownController {
    pub(super) epoch: u64,
    pub(super) joined: Moment,
}

/// Some of the controllers, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holders(pub(super) u16);

/// What came of joining a controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    pub(super) place: usize,
    /// The one that was joined before, if that was another.
    pub(super) left: Option<usize>,
    /// It is not the one that was joined before.
    pub(super) is_another: bool,
    /// Its place was another's, who is forgotten.
    pub(super) has_replaced: bool,
}

impl Controllers {
    pub(super) fn join(&mut self, epoch: u64, now: Moment) -> Joined {
        let left = self.current;
        let found = self.known.iter().position(|it| it.epoch == epoch);
        let has_replaced = found.is_none() && self.known.len() >= MOST;
        let place = found.unwrap_or_else(|| self.room());
        let joined = KnownController { epoch, joined: now };
        match self.known.get_mut(place) {
            Some(known) => *known = joined,
            None => self.known.push(joined),
        }
        self.current = Some(place);
        let is_another = left != Some(place);
        Joined { place, left: left.filter(|_| is_another), is_another, has_replaced }
    }

    /// None is joined any more.
    pub(super) fn leave(&mut self) {
        self.current = None;
    }

    pub(super) fn current(&self) -> Option<usize> {
        self.current
    }

    /// By place.
    pub(super) fn known(&self) -> &[KnownController] {
        &self.known
    }

    pub(super) fn restore(known: Vec<KnownController>, current: Option<usize>) -> Option<Self> {
        let is_whole = known.len() <= MOST && current.is_none_or(|it| it < known.len());
        is_whole.then_some(Self { known, current })
    }

    /// A free place, or that of whoever was joined longest ago.
    fn room(&self) -> usize {
        if self.known.len() < MOST {
            return self.known.len();
        }
        let others = (0..MOST).filter(|place| Some(*place) != self.current);
        others.min_by_key(|place| self.known[*place].joined).unwrap_or_default()
    }
}

impl Holders {
    pub(super) fn has(self, place: Option<usize>) -> bool {
        place.is_some_and(|place| self.0 & (1 << place) != 0)
    }

    pub(super) fn add(&mut self, place: Option<usize>) {
        self.0 |= place.map_or(0, |place| 1 << place);
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.0 &= !(1 << place);
    }

    pub(super) fn add_all(&mut self, others: Self) {
        self.0 |= others.0;
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_joined_longest_ago_makes_room() {
        let mut controllers = Controllers::default();
        for epoch in 0..MOST {
            let joined = controllers.join(epoch as u64, Moment(epoch as u64));
            assert_eq!((joined.place, joined.has_replaced), (epoch, false));
        }
        assert!(!controllers.join(0, Moment(100)).has_replaced);
        let joined = controllers.join(99, Moment(101));
        assert_eq!((joined.place, joined.left, joined.has_replaced), (1, Some(0), true));
        assert!(!controllers.join(99, Moment(102)).is_another);
        controllers.leave();
        assert!(controllers.join(99, Moment(103)).is_another);
    }
}

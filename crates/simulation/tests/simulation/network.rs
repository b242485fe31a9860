//! One process's way to a store: it delays, loses and repeats, and can be cut.
//!
//! What becomes of a request follows from the seed, the process, the request and the time, and not from who asked
//! before: tokio wakes those who watch one channel in an order of its own.

use std::sync::Mutex;
use std::time::Duration;

use fastrand::Rng;
use objects::simulation::{Carried, Wire};
use simulation::World;

/// How long most things are on their way, at most.
const SOON: Duration = Duration::from_millis(40);

/// A process's network.
pub(crate) struct Network {
    world: World,
    who: String,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    calm: bool,
    cut_until: Duration,
    frozen_until: Duration,
    lags_until: Duration,
}

impl Network {
    pub(crate) fn new(world: &World, who: &str) -> Self {
        Self { world: world.clone(), who: who.to_owned(), state: Mutex::default() }
    }

    /// The numbers that decide about one thing now.
    fn dice(&self, what: &str) -> Rng {
        let mut sum = self.world.seed() ^ 0xcbf2_9ce4_8422_2325;
        let now = self.world.now().as_millis().to_le_bytes();
        for byte in self.who.bytes().chain(what.bytes()).chain(now) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Rng::with_seed(sum)
    }

    fn state(&self) -> State {
        *self.state.lock().unwrap()
    }

    /// Nothing arrives for so long.
    pub(crate) fn cut(&self, wait: Duration) {
        self.world.step(format_args!("{} is cut off for {wait:?}", self.who));
        self.state.lock().unwrap().cut_until = self.world.now() + wait;
    }

    /// The process stands still for so long: what it sends and what it is answered waits.
    pub(crate) fn freeze(&self, wait: Duration) {
        self.world.step(format_args!("{} is frozen for {wait:?}", self.who));
        self.state.lock().unwrap().frozen_until = self.world.now() + wait;
    }

    /// Half of what the process sends within so long is on its way for long, and arrives: also when the process
    /// is no more.
    pub(crate) fn lag(&self, wait: Duration) {
        self.world.step(format_args!("{} lags for {wait:?}", self.who));
        self.state.lock().unwrap().lags_until = self.world.now() + wait;
    }

    /// From now on everything arrives at once.
    pub(crate) fn calm(&self) {
        *self.state.lock().unwrap() = State { calm: true, ..State::default() };
    }
}

fn up_to(dice: &mut Rng, most: Duration) -> Duration {
    Duration::from_millis(dice.u64(..u64::try_from(most.as_millis()).unwrap()))
}

impl Wire for Network {
    fn carry(&self, what: &str) -> Carried {
        let (world, state) = (&self.world, self.state());
        if state.calm {
            let at_once = Some(Duration::from_millis(1));
            return Carried { there: at_once, back: at_once, again: None };
        }
        let mut dice = self.dice(what);
        let frozen = state.frozen_until.saturating_sub(world.now());
        let there = Some(frozen + up_to(&mut dice, SOON));
        let back = Some(frozen + up_to(&mut dice, SOON));
        let mut carried = Carried { there, back, again: None };
        if world.now() < state.cut_until {
            carried.back = None;
            carried.there = carried.there.filter(|_| dice.u64(..40) == 0);
        }
        let slow = up_to(&mut dice, Duration::from_secs(30));
        match dice.u64(..20) {
            10..20 if world.now() < state.lags_until => carried.there = Some(frozen + slow),
            0 => carried.there = None,
            1 => carried.back = None,
            2 => carried.there = carried.there.map(|_| frozen + slow),
            3 => carried.back = carried.back.map(|_| frozen + slow),
            4 => carried.again = Some(slow),
            _ => {}
        }
        if carried.there.is_none_or(|there| there > SOON) || carried.back.is_none() {
            world.step(format_args!("{}: {what}: {carried:?}", self.who));
        }
        carried
    }

    fn tell(&self) -> Duration {
        let (world, state) = (&self.world, self.state());
        if state.calm {
            return Duration::from_millis(1);
        }
        let mut dice = self.dice("tell");
        let away = state.cut_until.max(state.frozen_until).saturating_sub(world.now());
        let late = if dice.u64(..20) == 0 { Duration::from_secs(10) } else { SOON };
        // At least a moment: at one time the dice fall one way.
        away + Duration::from_millis(1) + up_to(&mut dice, late)
    }

    fn breaks(&self) -> bool {
        !self.state().calm && self.dice("breaks").u64(..20) == 0
    }
}

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive { caller: Option<&'static str>, priority: usize, within: u64 },
    Leave(prop::sample::Index, LoadSignal),
    Abandon(prop::sample::Index),
    Expire(prop::sample::Index),
    Look(prop::sample::Index),
    Shed(Shedding),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let outcome = prop_oneof![3 => Just(LoadSignal::Done), 1 => Just(LoadSignal::Failed), 1 => Just(LoadSignal::Ignored)];
    let caller =
        prop::option::weighted(0.8, prop_oneof![5 => Just("a"), 2 => Just("b"), 1 => Just("c")]);
    let shedding = prop_oneof![
        6 => Just(Shedding::None),
        1 => Just(Shedding::Low),
        1 => Just(Shedding::Normal),
        1 => Just(Shedding::High),
    ];
    prop_oneof![
        12 => (caller, 0..Priority::COUNT, 0..400u64)
            .prop_map(|(caller, priority, within)| Step::Arrive { caller, priority, within }),
        8 => (index(), outcome).prop_map(|(at, outcome)| Step::Leave(at, outcome)),
        2 => index().prop_map(Step::Abandon),
        2 => index().prop_map(Step::Expire),
        4 => index().prop_map(Step::Look),
        1 => shedding.prop_map(Step::Shed),
        6 => (0..40u64).prop_map(Step::Advance),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    slot: Slot,
    caller: Option<&'static str>,
    priority: Priority,
    deadline: Instant,
}

/// What the test knows, beside the queue.
struct Model {
    queue: Queue,
    bound: usize,
    now: Instant,
    flying: Vec<Started>,
    /// In the order they came; some may have an answer that they have not looked at.
    waiting: Vec<Queued>,
    arrived: usize,
    ended: usize,
    refused: usize,
    abandoned: usize,
}

impl Model {
    fn new(bound: usize) -> Self {
        let now = Instant::now();
        let limits = InFlightLimits { min: 1, initial: 3, max: 6 };
        Self {
            queue: Queue::new(limits, bound, now),
            bound,
            now,
            flying: Vec::new(),
            waiting: Vec::new(),
            arrived: 0,
            ended: 0,
            refused: 0,
            abandoned: 0,
        }
    }

    fn undecided(&self) -> Vec<Queued> {
        let queue = &self.queue;
        let undecided = |known: &&Queued| matches!(queue.slots[known.slot].state, State::Waiting);
        self.waiting.iter().filter(undecided).copied().collect()
    }

    /// How many places count against a caller.
    fn held(&self, caller: Option<&str>) -> usize {
        caller.map_or(0, |name| self.queue.shares.held(name))
    }

    fn waited(&self, caller: Option<&str>) -> usize {
        self.undecided().iter().filter(|known| known.caller == caller).count()
    }

    fn take(&mut self, at: usize, answer: Result<Started, Overloaded>) {
        self.waiting.remove(at);
        match answer {
            Ok(started) => self.flying.push(started),
            Err(_) => self.refused += 1,
        }
    }

    fn apply(&mut self, step: Step) {
        let (mut woken, now) = (Vec::new(), self.now);
        let some = |index: prop::sample::Index, len: usize| (len > 0).then(|| index.index(len));
        match step {
            Step::Arrive { caller, priority, within } => {
                let priority = Priority::ALL[priority];
                let deadline = now + Duration::from_millis(within);
                self.arrived += 1;
                let (held, free) = (self.held(caller), self.queue.free());
                let (waited, room) = (self.waited(caller), self.bound - self.queue.queued);
                match self.queue.arrive(caller, priority, deadline, now, &mut woken) {
                    Ok(Arrival::Admitted(started)) => {
                        assert!(within > 0 && self.queue.in_flight <= self.queue.limit.get());
                        assert!(held < free, "more than its share");
                        self.flying.push(started);
                    }
                    Ok(Arrival::Waits(slot, until)) => {
                        assert!((now..=deadline).contains(&until));
                        assert!(held >= free, "it waits although there is a place for it");
                        assert!(caller.is_none() || waited < room || room == 0);
                        self.waiting.push(Queued { slot, caller, priority, deadline });
                    }
                    Err(_) => self.refused += 1,
                }
            }
            Step::Leave(index, outcome) => {
                let Some(at) = some(index, self.flying.len()) else {
                    return;
                };
                self.ended += 1;
                self.queue.leave(self.flying.remove(at), outcome, now, &mut woken);
            }
            Step::Abandon(index) => {
                let Some(at) = some(index, self.waiting.len()) else {
                    return;
                };
                self.abandoned += 1;
                self.queue.abandon(self.waiting.remove(at).slot, now, &mut woken);
            }
            Step::Expire(index) => {
                let Some(at) = some(index, self.waiting.len()) else {
                    return;
                };
                let answer = self.queue.expire(self.waiting[at].slot, now);
                self.take(at, answer);
            }
            Step::Look(index) => {
                let Some(at) = some(index, self.waiting.len()) else {
                    return;
                };
                if let Poll::Ready(answer) = self.queue.poll(self.waiting[at].slot, Waker::noop()) {
                    self.take(at, answer);
                }
            }
            Step::Shed(shedding) => self.queue.shed(shedding, now, &mut woken),
            Step::Advance(millis) => self.now += Duration::from_millis(millis),
        }
    }

    /// `before`: who waited before the step, in order of arrival.
    fn check(&self, before: &[Queued]) {
        let undecided = self.undecided();
        assert!(undecided.len() <= self.bound);
        assert_eq!(self.queue.queued, undecided.len());
        for waiter in &undecided {
            let held = self.held(waiter.caller);
            assert!(
                held >= self.queue.free(),
                "a place is free and somebody waits who may have it"
            );
        }
        let unseen = self.waiting.len() - undecided.len();
        let unseen_in = self.queue.in_flight - self.flying.len();
        assert!(unseen_in <= unseen);
        assert_eq!(self.queue.slots.len(), self.waiting.len());
        let settled = self.flying.len() + self.ended + self.refused + self.abandoned;
        assert_eq!(self.arrived, settled + self.waiting.len());

        let state = |known: &Queued| self.queue.slots.get(known.slot).map(|waiter| waiter.state);
        for (at, known) in before.iter().enumerate() {
            if !matches!(state(known), Some(State::Admitted(_))) {
                continue;
            }
            assert!(known.deadline > self.now, "let in after its deadline");
            for (other_at, other) in before.iter().enumerate() {
                if !matches!(state(other), Some(State::Waiting)) {
                    continue;
                }
                let same = other.caller == known.caller;
                let first = (other.priority, other_at) < (known.priority, at);
                assert!(!(same && first), "let in before one of its caller that was first");
                // It holds one place more by being let in.
                let held = self.held(known.caller).saturating_sub(1);
                let fewer = self.held(other.caller) < held && other.priority <= known.priority;
                assert!(!fewer, "let in before one whose caller holds fewer");
            }
        }
    }
}

proptest! {
    #[test]
    fn bounds_order_and_conservation_hold_in_any_history(
        bound in 0..8usize,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut model = Model::new(bound);
        for step in steps {
            let before = model.undecided();
            model.apply(step);
            model.check(&before);
        }
        // Everything drains if only those in flight end.
        loop {
            for at in (0..model.waiting.len()).rev() {
                if let Poll::Ready(answer) = model.queue.poll(model.waiting[at].slot, Waker::noop()) {
                    model.take(at, answer);
                }
            }
            let Some(started) = model.flying.pop() else { break };
            model.ended += 1;
            model.queue.leave(started, LoadSignal::Done, model.now, &mut Vec::new());
        }
        prop_assert!(model.waiting.is_empty(), "somebody waits before an empty gate");
        prop_assert!(model.queue.slots.is_empty() && model.queue.in_flight == 0);
        prop_assert!(model.queue.shares.is_empty(), "somebody is known who wants nothing");
    }
}

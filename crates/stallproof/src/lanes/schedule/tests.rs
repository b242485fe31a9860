use std::collections::HashMap;
use std::task::{Poll, Waker};

use proptest::prelude::*;
use tokio::time::Instant;

use super::super::LanesLimits;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Submit { key: u8, tenant: u8, cost: u32 },
    Leave(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..6u8, 0..3u8, 0..6u32).prop_map(|(key, tenant, cost)| Step::Submit { key, tenant, cost }),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
    ]
}

fn limits() -> impl Strategy<Value = LanesLimits> {
    (1..5usize, 1..5usize, 0..12usize, 0..8usize, 0..5usize, 1..5u32).prop_map(
        |(workers, per_tenant, queue, queue_per_tenant, queue_per_key, max_cost)| LanesLimits {
            workers,
            per_tenant,
            queue,
            queue_per_tenant,
            queue_per_key,
            max_cost,
        },
    )
}

/// What the tests know about the jobs, beside the schedule.
struct Model {
    schedule: Schedule<u8>,
    limits: LanesLimits,
    /// In the order they came.
    alive: Vec<(Ticket, u8, u8)>,
    now: Instant,
}

impl Model {
    fn new(limits: LanesLimits) -> Self {
        Self { schedule: Schedule::new(limits), limits, alive: Vec::new(), now: Instant::now() }
    }

    fn submit(&mut self, key: u8, tenant: u8, cost: u32) -> bool {
        let name = tenant.to_string();
        let Ok((ticket, waits_on)) = self.schedule.submit(&key, &name, cost, None, self.now) else {
            return false;
        };
        self.alive.push((ticket, key, tenant));
        assert_eq!(waits_on.is_none(), self.runs(ticket));
        true
    }

    fn leave(&mut self, at: usize) {
        let (ticket, ..) = self.alive.remove(at);
        let waiting: Vec<Ticket> =
            self.alive.clone().iter().map(|job| job.0).filter(|job| !self.runs(*job)).collect();
        let woken = self.schedule.leave(ticket, self.now).len();
        let given = waiting.iter().filter(|job| self.runs(**job)).count();
        assert_eq!(given, woken, "whoever is given a turn is woken, and nobody else");
    }

    fn runs(&mut self, ticket: Ticket) -> bool {
        match self.schedule.poll(ticket, Waker::noop()) {
            Poll::Ready(answer) => {
                answer.expect("open");
                true
            }
            Poll::Pending => false,
        }
    }

    fn check(&mut self) {
        let LanesLimits { workers, per_tenant, queue, queue_per_tenant, queue_per_key, .. } =
            self.limits;
        let mut running_of_key: HashMap<u8, usize> = HashMap::new();
        let mut running_of_tenant: HashMap<u8, usize> = HashMap::new();
        let mut queued_of_key: HashMap<u8, usize> = HashMap::new();
        let mut queued_of_tenant: HashMap<u8, usize> = HashMap::new();
        let mut heads: Vec<(u8, u8)> = Vec::new();
        let (mut running, mut queued) = (0, 0);
        for (ticket, key, tenant) in self.alive.clone() {
            if self.runs(ticket) {
                running += 1;
                *running_of_key.entry(key).or_default() += 1;
                *running_of_tenant.entry(tenant).or_default() += 1;
                assert!(!queued_of_key.contains_key(&key), "an older one of the key still waits");
            } else {
                queued += 1;
                *queued_of_key.entry(key).or_default() += 1;
                *queued_of_tenant.entry(tenant).or_default() += 1;
                if queued_of_key[&key] == 1 {
                    heads.push((key, tenant));
                }
            }
        }
        assert!(running <= workers);
        assert!(running_of_key.values().all(|running| *running == 1));
        assert!(running_of_tenant.values().all(|running| *running <= per_tenant));
        assert!(queued <= queue);
        assert!(queued_of_tenant.values().all(|queued| *queued <= queue_per_tenant));
        assert!(queued_of_key.values().all(|queued| *queued <= queue_per_key));
        assert_eq!((self.schedule.running(), self.schedule.queued()), (running, queued));

        let runnable = heads.iter().any(|(key, tenant)| {
            !running_of_key.contains_key(key)
                && running_of_tenant.get(tenant).is_none_or(|running| *running < per_tenant)
        });
        assert!(!runnable || running == workers, "work is ready and a worker is free");
        assert_eq!(self.schedule.owes(), runnable);
    }
}

proptest! {
    #[test]
    fn bounds_order_and_conservation_hold_in_any_history(
        limits in limits(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut model = Model::new(limits);
        for step in steps {
            match step {
                Step::Submit { key, tenant, cost } => {
                    model.submit(key, tenant, cost);
                }
                Step::Leave(index) if !model.alive.is_empty() => {
                    let at = index.index(model.alive.len());
                    model.leave(at);
                }
                Step::Leave(_) => {}
            }
            model.check();
        }
        // Whatever is left is served to the end if only those that run finish.
        while !model.alive.is_empty() {
            let jobs = model.alive.clone();
            let running = jobs.iter().position(|job| model.runs(job.0));
            model.leave(running.expect("nobody runs and somebody waits"));
            model.check();
        }
        let schedule = &model.schedule;
        prop_assert!(schedule.jobs.is_empty() && schedule.keys.is_empty());
        prop_assert!(schedule.tenants.is_empty() && schedule.ring.is_empty());
        prop_assert!(schedule.key_index.is_empty() && schedule.tenant_index.is_empty());
    }

    #[test]
    fn tenants_that_always_have_work_stay_within_the_quantum_of_each_other(
        workers in 1..4usize,
        max_cost in 1..6u32,
        costs in prop::collection::vec((1..6u32, 1..6u32), 60),
        finish in prop::collection::vec(any::<prop::sample::Index>(), 200),
    ) {
        let limits = LanesLimits {
            workers,
            per_tenant: workers,
            queue: 1000,
            queue_per_tenant: 1000,
            queue_per_key: 1000,
            max_cost,
        };
        let mut model = Model::new(limits);
        let mut cost_of = HashMap::new();
        for (nth, (ones, others)) in costs.into_iter().enumerate() {
            for (tenant, cost) in [(0, ones), (1, others)] {
                let key = (nth * 2) as u8 + tenant;
                model.submit(key, tenant, cost);
                cost_of.insert(key, i64::from(cost.min(max_cost)));
            }
        }
        let mut ahead = 0;
        let (mut lowest, mut highest) = (0, 0);
        for index in finish {
            let running: Vec<usize> =
                (0..model.alive.len()).filter(|at| model.runs(model.alive[*at].0)).collect();
            if running.is_empty() {
                break;
            }
            let before: Vec<_> = model.alive.clone();
            let waiting: Vec<_> =
                before.into_iter().filter(|job| !model.runs(job.0)).collect();
            let backlogged = |tenant| waiting.iter().any(|job| job.2 == tenant);
            if !backlogged(0) || !backlogged(1) {
                break;
            }
            model.leave(running[index.index(running.len())]);
            for (_, key, tenant) in waiting.into_iter().filter(|job| model.runs(job.0)) {
                ahead += if tenant == 0 { cost_of[&key] } else { -cost_of[&key] };
            }
            lowest = lowest.min(ahead);
            highest = highest.max(ahead);
        }
        // Any window of time is the difference of two prefixes: one quantum for where the round
        // stands, and less than one for what each of the two has carried over.
        let quantum = i64::from(max_cost);
        prop_assert!(highest - lowest <= quantum + 2 * (quantum - 1), "{lowest} {highest}");
    }
}

#[test]
fn closing_refuses_what_waits_and_forgets_it_when_its_owner_leaves() {
    let mut model = Model::new(LanesLimits {
        workers: 1,
        per_tenant: 1,
        queue: 9,
        queue_per_tenant: 9,
        queue_per_key: 9,
        max_cost: 1,
    });
    for key in [0, 0, 1] {
        assert!(model.submit(key, 0, 1));
    }
    let tickets: Vec<Ticket> = model.alive.iter().map(|job| job.0).collect();
    assert!(!model.runs(tickets[1]) && !model.runs(tickets[2]));
    assert_eq!(model.schedule.close().len(), 2);
    assert!(!model.schedule.drained());
    for ticket in &tickets[1..] {
        let answer = model.schedule.poll(*ticket, Waker::noop());
        assert_eq!(answer, Poll::Ready(Err(Refused::Closed)));
        assert!(model.schedule.leave(*ticket, model.now).is_empty());
    }
    assert!(model.schedule.leave(tickets[0], model.now).is_empty());
    assert!(model.schedule.drained());
    assert!(model.schedule.jobs.is_empty() && model.schedule.tenants.is_empty());
}

//! The leader's lease, with fencing: three candidates, whose networks and clocks are as bad as may be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use kube::core::DynamicObject;
use objects::simulation::{SimulatedStore, StoreFaults};
use objects::{Election, Expected, Fence, Id, Leader, Objects, Timing};
use simulation::{World, explore, finds};
use stallproof::{Deadline, Tasks};
use tokio::time::sleep;

use crate::network::Network;

const DURATION: Duration = Duration::from_secs(15);

/// What is wrong on purpose.
#[derive(Clone, Copy, Default, PartialEq)]
struct Planted {
    /// Leaders write past the fence.
    unfenced: bool,
    /// The store does not compare versions.
    store: StoreFaults,
    /// The clocks of all but the first run this much faster.
    fast_clocks: Option<f64>,
}

/// One host's clock, which has nothing to do with the others'.
#[derive(Clone)]
struct HostClock(Arc<Mutex<Reading>>);

#[derive(Clone, Copy)]
struct Reading {
    /// What the clock said at `since`.
    at: Duration,
    since: Duration,
    rate: f64,
}

impl HostClock {
    fn now(&self, world: &World) -> Duration {
        let Reading { at, since, rate } = *self.0.lock().unwrap();
        at + world.now().saturating_sub(since).mul_f64(rate)
    }

    /// Runs at another speed from now on, after a jump.
    fn set(&self, world: &World, jump: Duration, rate: f64) {
        let at = self.now(world) + jump;
        *self.0.lock().unwrap() = Reading { at, since: world.now(), rate };
    }
}

struct Process {
    name: &'static str,
    network: Arc<Network>,
    clock: HostClock,
    tasks: Tasks,
    /// Of the terms of this life.
    fences: Arc<Mutex<Vec<Fence>>>,
}

impl Process {
    fn start(&mut self, world: &World, store: &SimulatedStore, planted: Planted) {
        self.tasks = Tasks::new(self.name);
        self.fences = Arc::default();
        let objects = store.through(Arc::clone(&self.network) as _);
        let lease = Id::namespaced("ns", "leader");
        let (clock, own) = (self.clock.clone(), world.clone());
        let election = Election::new(objects.clone(), lease, self.name, Timing::of(DURATION))
            .with_clock(move || clock.now(&own));
        let (tasks, fences) = (self.tasks.clone(), Arc::clone(&self.fences));
        let (world, name) = (world.clone(), self.name);
        self.tasks.spawn("election", async move {
            let lead = |leader: Leader| {
                world.step(format_args!("{name} leads: {}", leader.fence.token()));
                fences.lock().unwrap().push(leader.fence.clone());
                let guarded = if planted.unfenced { &objects } else { &leader.objects };
                let work = work(world.clone(), name, guarded.clone(), leader.fence.clone());
                leader.tasks.spawn("work", work);
            };
            election.run(&tasks, lead).await;
        });
    }
}

/// The term of a token.
fn term(fence: &Fence) -> i64 {
    fence.token().to_string().rsplit('/').next().unwrap().parse().unwrap()
}

/// What a leader does: it writes its term into one object, over and over.
async fn work(world: World, name: &'static str, objects: Objects, fence: Fence) {
    loop {
        sleep(world.up_to(Duration::from_secs(4))).await;
        let metadata = ObjectMeta {
            name: Some("shared".to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectMeta::default()
        };
        let data = BTreeMap::from([("term".to_owned(), term(&fence).to_string())]);
        let object = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        let deadline = Deadline::after(Duration::from_secs(20));
        let wrote = objects.apply(&object, Expected::Any, deadline).await;
        if wrote.is_ok() {
            world.step(format_args!("{name} wrote in term {}", term(&fence)));
        }
    }
}

async fn schedule(world: World, planted: Planted) {
    let store = SimulatedStore::new(planted.store);
    // In a wild world clocks stop and jump, so that two may take themselves for leaders: then only the order
    // of what is written is held.
    let wild = world.one_in(2);
    let mut processes: Vec<Process> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let rate = match planted.fast_clocks {
                Some(rate) if name != "a" => rate,
                _ => 0.96 + 0.08 * (world.below(100) as f64 / 100.0),
            };
            let at = world.up_to(Duration::from_secs(100_000));
            let clock = Reading { at, since: Duration::ZERO, rate };
            Process {
                name,
                network: Arc::new(Network::new(&world, name)),
                clock: HostClock(Arc::new(Mutex::new(clock))),
                tasks: Tasks::new(name),
                fences: Arc::default(),
            }
        })
        .collect();
    processes.iter_mut().for_each(|process| process.start(&world, &store, planted));
    for turn in 0..60 {
        sleep(world.up_to(Duration::from_millis(2500))).await;
        let at = usize::try_from(world.below(3)).unwrap();
        let process = &mut processes[at];
        let long = world.up_to(2 * DURATION);
        match world.below(20) {
            0 => process.network.cut(long),
            1 => process.network.freeze(long),
            2 => {
                world.step(format_args!("{} is killed", process.name));
                process.tasks.kill().await;
                process.start(&world, &store, planted);
            }
            3 => {
                world.step(format_args!("{} stops in order", process.name));
                let tasks = process.tasks.clone();
                tasks.shutdown(2 * DURATION).await;
                process.start(&world, &store, planted);
            }
            4 if wild => {
                let rate = *world.pick(&[0.0, 0.5, 1.0, 2.0]).unwrap();
                world.step(format_args!("the clock of {} jumps, and runs at {rate}", process.name));
                process.clock.set(&world, long, rate);
            }
            _ => {}
        }
        leaders(&world, &processes, wild);
        if turn % 10 == 0 {
            writes(&world, &store);
        }
        if world.is_broken() {
            break;
        }
    }
    // Everything is well again: there is a leader within the time that a lease takes to run out.
    for process in &processes {
        process.network.calm();
        process.clock.set(&world, Duration::ZERO, 1.0);
    }
    let leads = |process: &Process| process.fences.lock().unwrap().iter().any(Fence::is_valid);
    let mut waited = 0;
    while !world.is_broken() && !processes.iter().any(leads) {
        sleep(Duration::from_secs(1)).await;
        waited += 1;
        world.holds(waited < 90, || "nobody leads although all is well".to_owned());
    }
    leaders(&world, &processes, wild);
    writes(&world, &store);
    for process in &processes {
        process.tasks.kill().await;
    }
}

/// The first invariant: one leads.
fn leaders(world: &World, processes: &[Process], wild: bool) {
    let valid = |process: &Process| process.fences.lock().unwrap().iter().any(Fence::is_valid);
    let leaders: Vec<_> = processes.iter().filter(|it| valid(it)).map(|it| it.name).collect();
    world.holds(wild || leaders.len() < 2, || format!("{leaders:?} lead at once"));
}

/// The second: nothing that a later term wrote is undone by an earlier one.
fn writes(world: &World, store: &SimulatedStore) {
    let written = store.written("ConfigMap");
    let term = |it: &DynamicObject| it.data["data"]["term"].as_str()?.parse().ok();
    let terms: Vec<i64> = written.iter().filter_map(term).collect();
    let back = terms.windows(2).find(|terms| terms[0] > terms[1]);
    world.holds(back.is_none(), || format!("a term was overwritten by an earlier one: {back:?}"));
}

#[test]
fn one_leads_at_a_time_and_nothing_of_a_later_term_is_undone() {
    explore("one_leads_at_a_time", 2500, async |world| {
        schedule(world, Planted::default()).await;
    });
}

#[test]
fn a_lease_without_fencing_is_found() {
    let planted = Planted { unfenced: true, ..Planted::default() };
    finds("leaders write past the fence", 500, async |world| schedule(world, planted).await);
}

#[test]
fn a_store_that_does_not_compare_is_found() {
    let store = StoreFaults { no_compare: true, ..StoreFaults::default() };
    let planted = Planted { store, ..Planted::default() };
    finds("the store writes over any version", 500, async |world| schedule(world, planted).await);
}

#[test]
fn a_candidate_that_takes_a_lease_before_it_has_run_out_is_found() {
    let planted = Planted { fast_clocks: Some(4.0), ..Planted::default() };
    finds("a candidate takes a lease that has not run out", 500, async |world| {
        schedule(world, planted).await;
    });
}

//! Receivers' queues: the outbox over a disk that crashes between any two writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use notify::simulation::SimulatedOutbox;
use notify::{Event, OutboxLimits};
use objects::kinds::{EventKind, EventLevel};
use simulation::{Disk, World, explore, finds};

const RECEIVERS: [&str; 2] = ["mail", "syslog"];
const LIMITS: OutboxLimits = OutboxLimits { events: 12, bytes: 5000 };

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// What is said to be synced is not.
    NoSync,
    /// An event is removed before it was delivered.
    RemovedFirst,
    /// A queue takes more than it may.
    Unbounded,
}

/// What is known of one receiver's queue from outside.
#[derive(Default)]
struct Expected {
    /// Accepted and not taken yet, in order.
    waiting: Vec<String>,
    /// Perhaps accepted: the process died before it said so.
    unsure: BTreeSet<String>,
    /// Taken, and perhaps still in the queue: the removal was not written.
    taken: BTreeSet<String>,
    /// Up to this number everything was taken in this life.
    through: u64,
    refused: u64,
}

fn event(number: u64) -> Event {
    let mut event = Event::new(EventKind::Audit, "simulated", EventLevel::Info, "x");
    event.id = format!("e{number}");
    event.at = Timestamp::UNIX_EPOCH;
    event.message = "m".repeat(usize::try_from(number * 37 % 400).unwrap());
    event
}

fn schedule(world: &World, planted: Planted) {
    let disk = if planted == Planted::NoSync { Disk::lying(world) } else { Disk::new(world) };
    let mut expected: BTreeMap<&str, Expected> =
        RECEIVERS.map(|it| (it, Expected::default())).into();
    let mut numbers = 0;
    for life in 0..3 {
        if life > 0 {
            disk.crash_in(world.below(150));
        }
        world.step(format_args!("life {life}"));
        let opened = open(world, &disk, planted);
        let Some(mut outbox) = opened else {
            // It died while it was opened: the next opens what is there.
            disk.crash();
            continue;
        };
        look(world, &outbox, &mut expected);
        for _ in 0..world.below(14) {
            if disk.is_dead() || world.is_broken() {
                break;
            }
            turn(world, &disk, &mut outbox, &mut expected, &mut numbers, planted);
        }
        drop(outbox);
        disk.crash();
        expected.values_mut().for_each(|queue| (queue.through, queue.refused) = (0, 0));
    }
    if let Some(outbox) = open(world, &disk, planted) {
        look(world, &outbox, &mut expected);
    } else {
        world.holds(false, || "the outbox cannot be opened".to_owned());
    }
}

fn open(world: &World, disk: &Disk, planted: Planted) -> Option<SimulatedOutbox> {
    let most = if planted == Planted::Unbounded { 13 } else { LIMITS.events };
    let limits = OutboxLimits { events: most, ..LIMITS };
    let (own, first) = (disk.clone(), disk.is_dead());
    match SimulatedOutbox::open(move || own.clone(), limits) {
        Ok(outbox) => Some(outbox),
        Err(error) => {
            world.step(format_args!("cannot be opened: {error}"));
            world.holds(disk.is_dead() && !first, || format!("a crash damaged it: {error}"));
            None
        }
    }
}

/// One commit: some events are put, and what was delivered is removed.
fn turn(
    world: &World,
    disk: &Disk,
    outbox: &mut SimulatedOutbox,
    expected: &mut BTreeMap<&str, Expected>,
    numbers: &mut u64,
    planted: Planted,
) {
    let mut puts = Vec::new();
    for _ in 0..world.below(4) {
        *numbers += 1;
        let both = world.one_in(2);
        let to: Vec<Arc<str>> =
            RECEIVERS[..if both { 2 } else { 1 }].iter().map(|it| (*it).into()).collect();
        puts.push((to, event(*numbers)));
    }
    let mut took = Vec::new();
    for receiver in RECEIVERS {
        let queue = expected.get_mut(receiver).unwrap();
        if !world.one_in(3) {
            continue;
        }
        let most = usize::try_from(1 + world.below(4)).unwrap();
        let Ok(batch) = outbox.read(receiver, queue.through, most) else { continue };
        let Some((last, _)) = batch.last() else { continue };
        if planted != Planted::RemovedFirst {
            for (_, event) in &batch {
                deliver(world, receiver, queue, &event.id);
            }
        }
        queue.through = *last;
        took.push((Arc::from(receiver), *last));
    }
    let ids: Vec<_> = puts.iter().map(|(to, event)| (to.clone(), event.id.clone())).collect();
    world.step(format_args!("put {ids:?}, took {took:?}"));
    let answers = outbox.write(puts, took);
    let dead = disk.is_dead();
    for ((to, id), answer) in ids.into_iter().zip(answers) {
        match answer {
            Ok(accepted) if !dead => {
                for receiver in &accepted.by {
                    expected.get_mut(&**receiver).unwrap().waiting.push(id.clone());
                }
                for receiver in &accepted.refused {
                    expected.get_mut(&**receiver).unwrap().refused += 1;
                }
            }
            _ => {
                for receiver in &to {
                    expected.get_mut(&**receiver).unwrap().unsure.insert(id.clone());
                }
            }
        }
    }
    if !dead {
        for (receiver, queue) in expected.iter() {
            let (events, dropped) = outbox.counts(receiver);
            world
                .holds(events <= LIMITS.events, || format!("{receiver}: {events} events are kept"));
            world.holds(dropped == queue.refused, || {
                format!(
                    "{receiver}: {dropped} are counted as dropped, {} were refused",
                    queue.refused
                )
            });
        }
    }
}

/// A receiver takes an event: in order, and never one that was not put.
fn deliver(world: &World, receiver: &str, queue: &mut Expected, id: &str) {
    match queue.waiting.iter().position(|it| it == id) {
        // Before it only such that this queue was never sure of.
        Some(0) => _ = queue.waiting.remove(0),
        Some(_) => {
            world.holds(false, || format!("{receiver}: {id} comes before {:?}", queue.waiting[0]));
        }
        None => {
            let known = queue.unsure.contains(id) || queue.taken.contains(id);
            world.holds(known, || format!("{receiver}: {id} was never put"));
        }
    }
    queue.taken.insert(id.to_owned());
}

/// The invariant of a queue that was opened: everything that was accepted and not taken is there, in order, once.
fn look(world: &World, outbox: &SimulatedOutbox, expected: &mut BTreeMap<&str, Expected>) {
    for (receiver, queue) in expected {
        let Ok(found) = outbox.read(receiver, 0, usize::MAX) else { continue };
        let found: Vec<String> = found.into_iter().map(|(_, event)| event.id).collect();
        let once: BTreeSet<_> = found.iter().collect();
        world.holds(once.len() == found.len(), || {
            format!("{receiver}: something is there twice: {found:?}")
        });
        let accepted: Vec<_> =
            found.iter().filter(|id| queue.waiting.contains(id)).cloned().collect();
        world.holds(accepted == queue.waiting, || {
            format!("{receiver}: {:?} were accepted, and {found:?} are there", queue.waiting)
        });
        let others = found.iter().all(|id| {
            queue.waiting.contains(id) || queue.unsure.contains(id) || queue.taken.contains(id)
        });
        world.holds(others, || format!("{receiver}: {found:?} has what nobody put"));
        // What is there now is known to be.
        queue.waiting.clone_from(&found);
        queue.unsure.clear();
    }
}

#[test]
fn what_a_queue_accepted_is_there_after_any_crash() {
    explore("what_a_queue_accepted", 3175, async |world| schedule(&world, Planted::Nothing));
}

#[test]
fn a_queue_that_answers_before_it_is_on_disk_is_found() {
    finds("an answer before the sync", 200, async |world| schedule(&world, Planted::NoSync));
}

#[test]
fn a_queue_that_removes_before_it_delivers_is_found() {
    finds("removed before it was delivered", 200, async |world| {
        schedule(&world, Planted::RemovedFirst);
    });
}

#[test]
fn a_queue_that_takes_one_more_than_it_may_is_found() {
    finds("a bound that is off by one", 200, async |world| {
        schedule(&world, Planted::Unbounded);
    });
}

//! Kernel, network, controllers and operators do anything in any order, and everything is counted once.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use traffic::conversations::SILENCE;

const CONTROLLERS: usize = 3;

/// What the kernel, the network, the controller and the operator may do.
#[derive(Clone, Debug)]
enum Step {
    Open {
        port: u16,
        packets: u64,
    },
    Carry {
        which: usize,
        packets: u64,
    },
    /// `heard`: the event reaches the socket.
    End {
        which: usize,
        heard: bool,
    },
    List,
    Read,
    Report {
        arrives: bool,
        answered: bool,
    },
    Rejoin,
    Wait {
        seconds: u64,
    },
    /// The agent reports for longer than a controller remembers what it is told no more of.
    Attend,
    Kill,
    /// The machine loses its power; `synced`: all that was saved was on disk.
    Reboot {
        synced: bool,
    },
    /// What was saved is on disk.
    Sync,
    LoseState,
    /// Somebody else joins in the node's name.
    Outdated,
    Checkpoint,
    ControllerDies,
    /// Another one leads.
    Lead {
        which: usize,
    },
    /// The disk of one that may not lead is lost.
    ControllerForgets {
        which: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..64usize;
    let step = prop_oneof![
        6 => (0..4u16, 1..9u64).prop_map(|(port, packets)| Step::Open { port, packets }),
        6 => (which.clone(), 1..9u64).prop_map(|(which, packets)| Step::Carry { which, packets }),
        4 => which.clone().prop_map(|which| Step::End { which, heard: true }),
        5 => Just(Step::List),
        4 => Just(Step::Read),
        6 => (prop::bool::weighted(0.8), prop::bool::weighted(0.8))
            .prop_map(|(arrives, answered)| Step::Report { arrives, answered }),
        2 => Just(Step::Rejoin),
        4 => prop_oneof![1..30u64, Just(700)].prop_map(|seconds| Step::Wait { seconds }),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::ControllerDies),
        1 => (0..CONTROLLERS).prop_map(|which| Step::Lead { which }),
        1 => (0..CONTROLLERS).prop_map(|which| Step::ControllerForgets { which }),
        1 => Just(Step::Kill),
        1 => Just(Step::Reboot { synced: true }),
        1 => Just(Step::Sync),
        1 => Just(Step::Attend),
    ];
    let bad = prop_oneof![
        (0..64usize).prop_map(|which| Step::End { which, heard: false }),
        Just(Step::LoseState),
        Just(Step::Reboot { synced: false }),
        Just(Step::Outdated),
    ];
    prop::bool::ANY.prop_flat_map(move |bad_too| {
        let weight = u32::from(bad_too);
        let step = step.clone().boxed();
        let step = prop_oneof![12 => step, weight => bad.clone().boxed()];
        prop::collection::vec(step, 1..120)
    })
}

#[derive(Clone, Debug, Default)]
struct Controller {
    incarnation: u64,
    /// Through here, without gaps: reports come one at a time.
    through: u64,
    heard: Moment,
    /// For how long it was reported to.
    attended: Duration,
    /// By beginning: how far each was counted, and when it was heard of last.
    marks: BTreeMap<(ConversationKey, u32), (Totals, Duration)>,
    counted: BTreeMap<ConversationKey, Totals>,
}

impl Controller {
    fn count(&mut self, report: &Report, now: Moment) {
        assert!(report.incarnation >= self.incarnation);
        if report.incarnation > self.incarnation {
            (self.incarnation, self.through) = (report.incarnation, 0);
            self.marks.clear();
        }
        let silence = now.since(self.heard);
        if silence <= SILENCE {
            self.attended += silence;
        }
        self.heard = now;
        let (attended, idle) = (self.attended, Limits::default().idle);
        self.marks.retain(|_, (_, heard)| attended - *heard < idle * 2);
        // One that came before is not looked at.
        if report.sequence <= self.through {
            return;
        }
        self.through = report.sequence;
        for record in &report.records {
            let Record { client, server, port, protocol, totals, first, .. } = record.clone();
            let key = ConversationKey { client, server, port, protocol };
            let (known, heard) = self.marks.entry((key, first.seconds())).or_default();
            let growth = totals.growth(*known);
            *known += growth;
            *heard = attended;
            *self.counted.entry(key).or_default() += growth;
        }
    }

    fn sum(&self, key: &ConversationKey) -> Totals {
        self.counted.get(key).copied().unwrap_or_default()
    }
}

/// A replica of the controller, and what it has on disk.
#[derive(Clone, Debug, Default)]
struct Replica {
    epoch: u64,
    checkpoint: Controller,
}

struct World {
    sensor: Sensor,
    limits: Limits,
    now: Moment,
    /// Which boot of the machine it is.
    boot: u32,
    live: Vec<Flow>,
    /// Ends that wait to be read.
    ends: Vec<Flow>,
    opened: u32,
    truth: BTreeMap<ConversationKey, Totals>,
    saved: Vec<u8>,
    /// What a power failure leaves of it.
    synced: Vec<u8>,
    /// Connections ended since it was saved: a kill loses what they brought.
    ended_since: bool,
    /// The one that leads.
    controller: Controller,
    leading: usize,
    replicas: [Replica; CONTROLLERS],
    epochs: u64,
    /// Something happened after which less may be counted than there was.
    lost: bool,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut sensor = begin(None, limits, START);
        sensor.joined(0, START);
        let saved = sensor.save("boot 0");
        let replica = |epoch: usize| Replica { epoch: epoch as u64, ..Replica::default() };
        Self {
            sensor,
            limits,
            now: START,
            boot: 0,
            live: Vec::new(),
            ends: Vec::new(),
            opened: 0,
            truth: BTreeMap::new(),
            synced: saved.clone(),
            saved,
            ended_since: false,
            controller: Controller::default(),
            leading: 0,
            replicas: std::array::from_fn(replica),
            epochs: CONTROLLERS as u64,
            lost: false,
        }
    }

    fn carried(&mut self, which: usize, packets: u64, sessions: u64) {
        let flow = &mut self.live[which];
        flow.packets += packets;
        flow.bytes += packets * 100;
        let totals = Totals { bytes: packets * 100, packets, sessions };
        *self.truth.entry(flow.id.conversation()).or_default() += totals;
    }

    fn read(&mut self) {
        for flow in std::mem::take(&mut self.ends) {
            self.sensor.observe(&flow, self.now);
        }
    }

    fn list(&mut self) {
        for flow in &self.live {
            self.sensor.observe(flow, self.now);
        }
        self.sensor.listed();
        self.read();
    }

    fn report(&mut self, arrives: bool, answered: bool) -> bool {
        if let Some(report) = self.sensor.report(false, self.now) {
            self.save();
            assert!(report.records.len() <= self.limits.records);
        }
        let Some(report) = self.sensor.outstanding().cloned() else { return false };
        if arrives && report.incarnation < self.controller.incarnation {
            // It was begun from what was saved before somebody else joined.
            self.lost = true;
            self.sensor.outdated(self.controller.incarnation, self.now);
            self.join();
        } else if arrives {
            self.controller.count(&report, self.now);
            if answered {
                let checkpoint = &self.replicas[self.leading].checkpoint;
                let durable = match checkpoint.incarnation == report.incarnation {
                    true => checkpoint.through,
                    false => 0,
                };
                self.sensor.counted(report.sequence, durable, self.now);
            }
        }
        true
    }

    fn save(&mut self) {
        self.saved = self.sensor.save(&format!("boot {}", self.boot));
        self.ended_since = !self.ends.is_empty();
    }

    fn start(&mut self, saved: Option<&[u8]>) {
        self.lost |= self.ended_since || !self.ends.is_empty() || saved.is_none();
        self.ends.clear();
        let (agent, place) = ("node1".into(), format!("boot {}", self.boot));
        self.sensor = Sensor::begin(agent, &place, saved, self.limits, self.now);
        self.save();
        self.join();
    }

    fn reboot(&mut self, synced: bool) {
        // What was carried since it was looked at last is lost with the machine.
        if synced {
            let unfollowed = self.sensor.counters().unfollowed;
            self.list();
            self.save();
            self.synced.clone_from(&self.saved);
            // One that could not be followed would have been counted at its end.
            self.lost |= self.sensor.counters().unfollowed > unfollowed;
        } else {
            self.lost = true;
        }
        self.boot += 1;
        self.live.clear();
        self.ends.clear();
        self.ended_since = false;
        self.now = Moment(self.now.0 + 1000);
        let synced = self.synced.clone();
        self.start(Some(&synced));
        self.sensor.listed();
    }

    fn join(&mut self) {
        self.sensor.joining(self.now);
        self.sensor.joined(self.replicas[self.leading].epoch, self.now);
    }

    fn lead(&mut self, which: usize) {
        self.leading = which;
        self.controller = self.replicas[which].checkpoint.clone();
        self.controller.heard = self.now;
        // Who has to make room, or was away for so long, does not keep everything for another one.
        self.lost |= self.limits.totals < Limits::default().totals || self.now.since(START) >= KEPT;
        self.join();
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Open { port, packets } => {
                self.opened += 1;
                let mut flow = flow(self.opened, 1000 + port, 0);
                flow.id.begun = Some(self.now);
                self.live.push(flow);
                self.carried(self.live.len() - 1, packets, 1);
            }
            Step::Carry { which, packets } if !self.live.is_empty() => {
                self.carried(which % self.live.len(), packets, 0);
            }
            Step::End { which, heard } if !self.live.is_empty() => {
                let flow = self.live.swap_remove(which % self.live.len());
                self.ended_since = true;
                match heard {
                    true => self.ends.push(ended(flow)),
                    false => self.lost = true,
                }
            }
            Step::Carry { .. } | Step::End { .. } => {}
            Step::List => self.list(),
            Step::Read => self.read(),
            Step::Report { arrives, answered } => {
                self.report(arrives, answered);
            }
            Step::Rejoin => self.join(),
            Step::Wait { seconds } => self.now = Moment(self.now.0 + seconds * 1000),
            Step::Attend => {
                for _ in 0..50 {
                    self.now = Moment(self.now.0 + 29_000);
                    let report = self.sensor.report(true, self.now);
                    report.or_else(|| self.sensor.outstanding().cloned()).unwrap();
                    self.save();
                    self.report(true, true);
                    self.replicas[self.leading].checkpoint = self.controller.clone();
                    // The kernel brings to the disk what was written, within half a minute or so.
                    self.synced.clone_from(&self.saved);
                }
            }
            Step::Kill => {
                let saved = self.saved.clone();
                self.start(Some(&saved));
            }
            Step::Reboot { synced } => self.reboot(synced),
            Step::Sync => self.synced.clone_from(&self.saved),
            Step::LoseState => {
                // No two starts are in one instant.
                self.now = Moment(self.now.0 + 1);
                self.start(None);
            }
            Step::Outdated => {
                self.lost = true;
                let known = self.sensor.incarnation.max(self.controller.incarnation);
                let other = known + 1_000_000;
                self.controller.count(
                    &Report { incarnation: other, sequence: 1, ..Report::default() },
                    self.now,
                );
                self.sensor.outdated(other, self.now);
                self.join();
            }
            Step::Checkpoint => {
                self.replicas[self.leading].checkpoint = self.controller.clone();
            }
            Step::ControllerDies => self.lead(self.leading),
            Step::Lead { which } => self.lead(which),
            Step::ControllerForgets { which } => {
                let epoch = self.epochs;
                self.epochs += 1;
                self.replicas[which] = Replica { epoch, ..Replica::default() };
                if which == self.leading {
                    self.lead(which);
                }
            }
        }
    }

    fn never_above_the_truth(&self) {
        for (key, truth) in &self.truth {
            let counted = self.controller.sum(key);
            let above = counted.growth(*truth);
            assert!(above.is_zero(), "{key:?}: {counted:?} of {truth:?}");
        }
    }

    fn settle(&mut self) {
        self.read();
        self.list();
        while self.report(true, true) {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_counted_once_whatever_happens(steps in steps(), small in any::<bool>()) {
        let small = small.then_some(Limits { totals: 3, flows: 4, records: 2, ..Limits::default() });
        let limits = small.unwrap_or_default();
        let mut world = World::new(limits);
        for step in &steps {
            world.step(step);
            world.never_above_the_truth();
            let counters = world.sensor.counters();
            prop_assert!(counters.flows <= limits.flows && counters.totals <= limits.totals);
        }
        world.settle();
        world.never_above_the_truth();
        if world.lost {
            return Ok(());
        }
        // What cannot be followed any longer has not ended, and is counted when it has.
        for flow in std::mem::take(&mut world.live) {
            world.ends.push(ended(flow));
        }
        world.settle();
        let (mut counted, mut truth) = (Totals::ZERO, Totals::ZERO);
        world.truth.iter().for_each(|(key, totals)| {
            counted += world.controller.sum(key);
            truth += *totals;
        });
        counted += world.sensor.counters().lost;
        prop_assert_eq!(counted, truth);
    }

    #[test]
    fn no_saved_bytes_can_stop_it(bytes in prop::collection::vec(any::<u8>(), 0..256), version in 0..4_u8) {
        let mut saved = vec![b'F', b'L', b'S', b'0' + version];
        saved.extend(bytes);
        begin(Some(&saved), Limits::default(), START);
    }
}

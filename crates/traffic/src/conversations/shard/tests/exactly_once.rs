//! Agents that talk over a bad network to controllers that die, against a model that remembers
//! everything.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Controller, SEED, pod_address};
use crate::conversations::{Checkpoint, Limits, Moment, Protocol, Record, Report, Shard, Totals};

type Key = (IpAddr, IpAddr, u16);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Both ends' agents see it.
    Traffic {
        client: (u8, u8),
        server: (u8, u8),
        port: u16,
        bytes: u64,
    },
    /// The agent begins a key again, as after it was idle.
    Forget {
        node: u8,
    },
    /// Everything that changed since the last send goes on its way.
    Send {
        node: u8,
    },
    /// Some report on its way arrives; if it is `kept`, it will once more.
    Arrive {
        which: prop::sample::Index,
        kept: bool,
    },
    Lost {
        which: prop::sample::Index,
    },
    AgentRestarts {
        node: u8,
    },
    Saves,
    /// The controller begins again from its checkpoint, with another number of shards; the agents
    /// send it all they have.
    ControllerRestarts {
        shards: usize,
    },
    Ages,
    /// An agent is taken for dead, or no longer.
    Liveness {
        node: usize,
        dead: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let pod = || (0_u8..3, 0_u8..3);
    let node = || 0_u8..3;
    prop_oneof![
        8 => (pod(), pod(), 1_u16..4, 1_u64..1000)
            .prop_map(|(client, server, port, bytes)| Step::Traffic { client, server, port, bytes }),
        1 => node().prop_map(|node| Step::Forget { node }),
        4 => node().prop_map(|node| Step::Send { node }),
        6 => (any::<prop::sample::Index>(), any::<bool>())
            .prop_map(|(which, kept)| Step::Arrive { which, kept }),
        1 => any::<prop::sample::Index>().prop_map(|which| Step::Lost { which }),
        1 => node().prop_map(|node| Step::AgentRestarts { node }),
        1 => Just(Step::Saves),
        1 => (1_usize..5).prop_map(|shards| Step::ControllerRestarts { shards }),
        1 => Just(Step::Ages),
    ]
}

/// While liveness changes, totals are not begun again.
fn unsettled_step() -> impl Strategy<Value = Step> {
    let liveness = (0_usize..3, any::<bool>());
    prop_oneof![
        1 => liveness.prop_map(|(node, dead)| Step::Liveness { node, dead }),
        4 => step().prop_map(|step| match step {
            Step::Forget { node } => Step::Send { node },
            step => step,
        }),
    ]
}

#[derive(Debug)]
struct Agent {
    name: Arc<str>,
    incarnation: u64,
    sequence: u64,
    totals: BTreeMap<Key, (Totals, Moment)>,
    changed: Vec<Key>,
}

impl Agent {
    fn send(&mut self, keys: Vec<Key>, now: Moment) -> Report {
        self.sequence += 1;
        let records = keys
            .into_iter()
            .filter_map(|key| {
                let (totals, first) = *self.totals.get(&key)?;
                let (client, server, port) = key;
                let protocol = Protocol::TCP;
                let application = None;
                Some(Record {
                    client,
                    server,
                    port,
                    protocol,
                    application,
                    totals,
                    first,
                    last: now,
                })
            })
            .collect();
        let Agent { name, incarnation, sequence, .. } = self;
        Report {
            agent: Arc::clone(name),
            incarnation: *incarnation,
            sequence: *sequence,
            records,
            ..Report::default()
        }
    }
}

/// What has been counted, in the plainest way.
#[derive(Clone, Debug, Default)]
struct Model {
    incarnations: BTreeMap<Arc<str>, u64>,
    seen: BTreeMap<(Arc<str>, u64, Key, Moment), Totals>,
}

impl Model {
    fn arrives(&mut self, report: &Report) {
        let newest = self.incarnations.entry(Arc::clone(&report.agent)).or_default();
        if report.incarnation < *newest {
            return;
        }
        *newest = report.incarnation;
        for record in &report.records {
            // The server's agent counts.
            let IpAddr::V4(server) = record.server else { continue };
            if *report.agent != *format!("node-{}", server.octets()[2]) {
                continue;
            }
            let key = (record.client, record.server, record.port);
            let id = (Arc::clone(&report.agent), report.incarnation, key, record.first);
            let seen = self.seen.entry(id).or_default();
            seen.bytes = seen.bytes.max(record.totals.bytes);
            seen.packets = seen.packets.max(record.totals.packets);
            seen.sessions = seen.sessions.max(record.totals.sessions);
        }
    }

    fn counted(&self) -> BTreeMap<Key, Totals> {
        let mut counted = BTreeMap::<Key, Totals>::new();
        for ((_, _, key, _), totals) in &self.seen {
            *counted.entry(*key).or_default() += *totals;
        }
        counted
    }
}

struct World {
    agents: Vec<Agent>,
    on_the_way: Vec<Report>,
    controller: Controller,
    model: Model,
    saved: (Checkpoint, Model),
    now: u64,
}

impl World {
    fn new(limits: Limits) -> Self {
        let agents = (0..3).map(|node| Agent {
            name: format!("node-{node}").into(),
            incarnation: 1,
            sequence: 0,
            totals: BTreeMap::new(),
            changed: Vec::new(),
        });
        let controller = Controller::new(3, limits);
        let saved = (save(&controller), Model::default());
        let (on_the_way, model) = (Vec::new(), Model::default());
        Self { agents: agents.collect(), on_the_way, controller, model, saved, now: 1_000_000 }
    }

    fn run(&mut self, step: Step) {
        // Two beginnings of one key lie in different seconds.
        self.now += 1000;
        let now = Moment(self.now);
        match step {
            Step::Traffic { client, server, port, bytes } => {
                let key = (pod_address(client.0, client.1), pod_address(server.0, server.1), port);
                let mut nodes = vec![client.0, server.0];
                nodes.dedup();
                for node in nodes {
                    let agent = &mut self.agents[usize::from(node)];
                    let (totals, _) = agent.totals.entry(key).or_insert((Totals::ZERO, now));
                    *totals += Totals { bytes, packets: bytes / 100, sessions: 1 };
                    agent.changed.push(key);
                }
            }
            Step::Forget { node } => {
                let agent = &mut self.agents[usize::from(node)];
                let keys = std::mem::take(&mut agent.changed);
                let report = agent.send(keys, now);
                self.on_the_way.push(report);
                agent.totals.pop_first();
            }
            Step::Send { node } => {
                let agent = &mut self.agents[usize::from(node)];
                let mut keys = std::mem::take(&mut agent.changed);
                keys.sort_unstable();
                keys.dedup();
                self.on_the_way.push(agent.send(keys, now));
            }
            Step::Arrive { which, kept } if !self.on_the_way.is_empty() => {
                let at = which.index(self.on_the_way.len());
                let report = self.on_the_way[at].clone();
                if !kept {
                    self.on_the_way.swap_remove(at);
                }
                self.arrives(&report);
            }
            Step::Lost { which } if !self.on_the_way.is_empty() => {
                let at = which.index(self.on_the_way.len());
                let report = self.on_the_way.swap_remove(at);
                // Never acknowledged: what it held is sent again.
                let name = &report.agent;
                let agent = self.agents.iter_mut().find(|agent| agent.name == *name).unwrap();
                let keys = report.records.iter().map(|it| (it.client, it.server, it.port));
                agent.changed.extend(keys);
            }
            Step::Arrive { .. } | Step::Lost { .. } => {}
            Step::AgentRestarts { node } => {
                let agent = &mut self.agents[usize::from(node)];
                agent.incarnation += 1;
                agent.sequence = 0;
                agent.totals.clear();
                agent.changed.clear();
            }
            Step::Saves => self.saved = (save(&self.controller), self.model.clone()),
            Step::ControllerRestarts { shards } => {
                let bytes = self.saved.0.to_bytes();
                let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
                let limits = self.controller.limits;
                let (router, shards, readers) = checkpoint.restore(shards, limits).unwrap();
                self.controller.router = router;
                self.controller.shards = shards;
                self.controller.readers = readers;
                self.model = self.saved.1.clone();
                self.everything_is_sent();
            }
            Step::Liveness { node, dead } => {
                let name = ["node-0", "node-1", "node-2"][node];
                self.controller.dead.retain(|other| *other != name);
                if dead {
                    self.controller.dead.push(name);
                }
            }
            Step::Ages => {
                for shard in &mut self.controller.shards {
                    shard.age(now, 4);
                }
            }
        }
    }

    fn arrives(&mut self, report: &Report) {
        let applied = self.controller.apply(report, Moment(self.now));
        assert_eq!(applied.refused, 0);
        self.model.arrives(report);
    }

    fn everything_is_sent(&mut self) {
        let now = Moment(self.now);
        for i in 0..self.agents.len() {
            let keys = self.agents[i].totals.keys().copied().collect();
            let report = self.agents[i].send(keys, now);
            self.arrives(&report);
        }
    }
}

fn save(controller: &Controller) -> Checkpoint {
    Checkpoint {
        seed: SEED,
        progress: Vec::new(),
        shards: controller.shards.iter().map(Shard::save).collect(),
        learned: Vec::new(),
        violations: Vec::new(),
    }
}

fn sum(totals: impl Iterator<Item = Totals>) -> Totals {
    totals.fold(Totals::ZERO, |mut sum, totals| {
        sum += totals;
        sum
    })
}

proptest! {
    #[test]
    fn every_conversation_is_counted_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new(Limits::default());
        for step in steps {
            world.run(step);
        }
        world.everything_is_sent();
        let mut found = BTreeMap::<Key, Totals>::new();
        for conversation in world.controller.conversations() {
            let (client, server) = (conversation.client.address, conversation.server.address);
            let key = (client, server, conversation.port);
            prop_assert!(found.insert(key, conversation.totals).is_none(), "{key:?} is there twice");
        }
        let expected = world.model.counted();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(world.controller.totals(), sum(expected.into_values()));
    }

    #[test]
    fn whoever_stands_in_counts_nothing_twice(
        steps in prop::collection::vec(unsettled_step(), 1..120),
    ) {
        let mut world = World::new(Limits::default());
        let mut sent = BTreeMap::<Key, u64>::new();
        for step in steps {
            if let Step::Traffic { client, server, port, bytes } = &step {
                let ends = (pod_address(client.0, client.1), pod_address(server.0, server.1));
                *sent.entry((ends.0, ends.1, *port)).or_default() += bytes;
            }
            world.run(step);
        }
        world.everything_is_sent();
        for conversation in world.controller.conversations() {
            let (client, server) = (conversation.client.address, conversation.server.address);
            let key = (client, server, conversation.port);
            prop_assert!(conversation.totals.bytes <= sent[&key]);
        }
    }

    #[test]
    fn folding_loses_nothing(
        steps in prop::collection::vec(step(), 1..120),
        rows in 1_usize..30,
        rows_per_pair in 1_u16..4,
    ) {
        let limits = Limits { rows, rows_per_pair, ..Limits::default() };
        let mut world = World::new(limits);
        for step in steps {
            world.run(step);
            let shards = &world.controller.shards;
            let most = rows.div_ceil(shards.len()).max(usize::from(rows_per_pair) + 2);
            prop_assert!(shards.iter().all(|shard| shard.rows() <= most));
            let counted = sum(world.model.counted().into_values());
            prop_assert_eq!(world.controller.totals(), counted);
            // Pairs hold the sums of their rows.
            let mut shown = sum(world.controller.conversations().iter().map(|it| it.totals));
            world.controller.folded().iter().for_each(|(folded, _)| shown += *folded);
            let rest = world.controller.readers.view().folded();
            rest.iter().for_each(|(_, rest)| shown += rest.totals);
            prop_assert_eq!(shown, counted);
        }
    }
}

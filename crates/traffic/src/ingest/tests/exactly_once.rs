//! Agents that talk over a bad network to a controller that is killed, against the truth.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Traffic {
        node: usize,
        pair: (u8, u8),
        port: u16,
        bytes: u64,
    },
    /// Everything that changed goes on its way.
    Send {
        node: usize,
    },
    /// Some batch on its way arrives, and may arrive again. Its answer may be lost.
    Arrive {
        which: prop::sample::Index,
        again: bool,
        answered: bool,
    },
    /// Two at once.
    ArriveTogether {
        which: [prop::sample::Index; 2],
    },
    /// What is on its way may still arrive; the agent expects no answer to it.
    Disconnect {
        node: usize,
    },
    /// What is durable and unchanged, an agent may forget; then it begins again at zero.
    Forget {
        node: usize,
    },
    Save,
    Kill {
        shards: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0_usize..2;
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (node(), (0_u8..3, 0_u8..3), 1_u16..3, 1_u64..1000)
            .prop_map(|(node, pair, port, bytes)| Step::Traffic { node, pair, port, bytes }),
        5 => node().prop_map(|node| Step::Send { node }),
        6 => (index(), any::<bool>(), any::<bool>())
            .prop_map(|(which, again, answered)| Step::Arrive { which, again, answered }),
        2 => [index(), index()].prop_map(|which| Step::ArriveTogether { which }),
        2 => node().prop_map(|node| Step::Disconnect { node }),
        2 => node().prop_map(|node| Step::Forget { node }),
        2 => Just(Step::Save),
        1 => (1_usize..4).prop_map(|shards| Step::Kill { shards }),
    ]
}

type Key = (u8, u8, u16);

#[derive(Clone, Debug)]
struct Held {
    totals: Totals,
    first: Moment,
    /// The batch with its last change; none if that was not sent.
    sent: Option<u64>,
}

/// An agent that keeps to the contract.
#[derive(Debug)]
struct Agent {
    name: Arc<str>,
    sequence: u64,
    held: BTreeMap<Key, Held>,
    unanswered: BTreeSet<u64>,
    durable: u64,
}

impl Agent {
    fn send(&mut self) -> Report {
        self.sequence += 1;
        let mut records = Vec::new();
        for ((client, server, port), held) in &mut self.held {
            if held.sent.is_none() {
                held.sent = Some(self.sequence);
                let seen = record(*client, *server, *port, 0);
                records.push(Record { totals: held.totals, first: held.first, ..seen });
            }
        }
        self.unanswered.insert(self.sequence);
        let (agent, sequence) = (Arc::clone(&self.name), self.sequence);
        Report { agent, incarnation: 1, sequence, records, ..Report::default() }
    }

    fn answered(&mut self, sequence: u64, counted: Counted) {
        self.unanswered.remove(&sequence);
        self.durable = self.durable.max(counted.durable);
        if self.durable >= sequence {
            // A later report may have been counted, and be on disk, before this one came.
            let held = self.held.values_mut().filter(|held| held.sent == Some(sequence));
            held.for_each(|held| held.sent = None);
        }
    }

    /// What was not answered is to be sent again.
    fn disconnect(&mut self) {
        let unanswered = std::mem::take(&mut self.unanswered);
        for held in self.held.values_mut() {
            held.sent = held.sent.filter(|sent| !unanswered.contains(sent));
        }
    }

    fn forget(&mut self) {
        let Self { held, unanswered, durable, .. } = self;
        held.retain(|_, it| {
            !it.sent.is_some_and(|sent| sent <= *durable && !unanswered.contains(&sent))
        });
    }

    /// The same epoch: what is not durable is to be sent again.
    fn rejoin(&mut self) {
        self.disconnect();
        for held in self.held.values_mut() {
            held.sent = held.sent.filter(|sent| *sent <= self.durable);
        }
    }
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let mut controller = Controller::start(dir.path(), 2).await;
    let mut agents: Vec<_> = (0..2)
        .map(|node| Agent {
            name: format!("node-{node}").into(),
            sequence: 0,
            held: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            durable: 0,
        })
        .collect();
    let mut on_the_way: Vec<(usize, Report)> = Vec::new();
    let mut truth = Totals::ZERO;
    let (mut second, mut epoch) = (1000, controller.ingest.epoch());
    let mut saved_once = false;
    for step in steps {
        // Two beginnings of one key lie in different seconds.
        second += 1;
        match step {
            Step::Traffic { node, pair: (client, server), port, bytes } => {
                let more = Totals { bytes, packets: bytes / 100, sessions: 1 };
                truth += more;
                // Ends on no node: each agent counts what it forwards, so theirs are different.
                let key = (client, server + 10 * node as u8, port);
                let fresh = || Held {
                    totals: Totals::ZERO,
                    first: Moment::from_seconds(second),
                    sent: None,
                };
                let held = agents[node].held.entry(key).or_insert_with(fresh);
                held.totals += more;
                held.sent = None;
            }
            Step::Send { node } => {
                let report = agents[node].send();
                on_the_way.push((node, report));
            }
            Step::Arrive { which, again, answered } if !on_the_way.is_empty() => {
                let at = which.index(on_the_way.len());
                let (node, report) = on_the_way[at].clone();
                if !again {
                    on_the_way.swap_remove(at);
                }
                let counted = controller.offer(&report).await.unwrap();
                if answered && agents[node].unanswered.contains(&report.sequence) {
                    agents[node].answered(report.sequence, counted);
                }
            }
            Step::ArriveTogether { which } if on_the_way.len() > 1 => {
                let [a, b] = which.map(|which| on_the_way[which.index(on_the_way.len())].clone());
                let (first, second) = tokio::join!(controller.offer(&a.1), controller.offer(&b.1));
                for ((node, report), counted) in [(a, first.unwrap()), (b, second.unwrap())] {
                    if agents[node].unanswered.contains(&report.sequence) {
                        agents[node].answered(report.sequence, counted);
                    }
                }
            }
            Step::Arrive { .. } | Step::ArriveTogether { .. } => {}
            Step::Disconnect { node } => agents[node].disconnect(),
            Step::Forget { node } => agents[node].forget(),
            Step::Save => {
                prop_assert!(controller.save().await);
                saved_once = true;
            }
            Step::Kill { shards } => {
                drop(controller);
                controller = Controller::start(dir.path(), shards).await;
                if saved_once {
                    prop_assert_eq!(controller.ingest.epoch(), epoch);
                }
                epoch = controller.ingest.epoch();
                agents.iter_mut().for_each(Agent::rejoin);
            }
        }
    }
    for agent in &mut agents {
        agent.disconnect();
        let report = agent.send();
        let counted = controller.offer(&report).await.unwrap();
        agent.answered(report.sequence, counted);
    }
    let patience = soon();
    while controller.ingest.view().totals() != truth {
        prop_assert!(!patience.has_passed(), "{:?} {truth:?}", controller.ingest.view().totals());
        controller.ingest.0.shards.iter().for_each(crate::ingest::ShardHandle::tick);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // Nothing late is still to come.
    prop_assert!(controller.save().await);
    prop_assert_eq!(controller.ingest.view().totals(), truth);
    Ok(())
}

proptest! {
    // Each case starts threads and writes files.
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..Default::default() })]

    #[test]
    fn every_byte_is_counted_once_whatever_the_network_and_kill_do(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps))?;
    }
}

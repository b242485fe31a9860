//! Policy deltas: agents that lose their connections, restart and are slow follow controllers that come and go,
//! and end with exactly the program of a node that began with nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnet::IpNet;
use policy::cluster::{Key, Labels, Pod};
use policy::program::{Fingerprint, Program};
use policy::spec::{AcceptRule, NamespaceSelection, NetworkPolicy, Peer, PodSelection};
use policy::{Change, Compiler, Delta, Publisher};
use programs::simulation::SimulatedNodes;
use programs::{Applied, Follower, Position};
use protocol::program::{ChangeParts, encode_change, parts};
use simulation::{World, explore, finds};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

const NODES: [&str; 2] = ["n1", "n2"];
const NAMESPACES: [&str; 2] = ["a", "b"];

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// An agent applies a change to whatever it has.
    WrongBase,
    /// A controller knows a program by its generation alone.
    TrustsGeneration,
}

/// The objects of the cluster, as every controller reads them.
#[derive(Clone, Default)]
struct Cluster {
    /// By the pod's place: its namespace and node.
    pods: BTreeMap<u32, (usize, usize)>,
    policies: BTreeSet<(usize, u8)>,
}

impl Cluster {
    fn all(&self) -> Vec<Change> {
        let spaces = NAMESPACES.map(|it| Change::Namespace(it.into(), Some(Labels::new())));
        let pods =
            self.pods.iter().map(|(place, (namespace, node))| pod(*place, *namespace, Some(*node)));
        let policies =
            self.policies.iter().map(|(namespace, which)| policy(*namespace, *which, true));
        spaces.into_iter().chain(pods).chain(policies).collect()
    }
}

fn pod(place: u32, namespace: usize, node: Option<usize>) -> Change {
    let key = Key::new(NAMESPACES[namespace], &format!("p{place}"));
    let pod = node.map(|node| {
        Arc::new(Pod {
            key: key.clone(),
            node: NODES[node].into(),
            labels: Labels::from([("app".to_owned(), format!("a{}", place % 3))]),
            addresses: vec![std::net::Ipv4Addr::from(0x0a00_0000 + place).into()],
            host_network: false,
            finished: false,
            ports: Vec::new(),
            images: Vec::new(),
            owner: format!("Pod/p{place}").into(),
            created: 0,
        })
    });
    Change::Pod(key, pod)
}

fn policy(namespace: usize, which: u8, there: bool) -> Change {
    let key = Key::new(NAMESPACES[namespace], &format!("policy-{which}"));
    let policy = there.then(|| {
        let own = Peer::Pods(PodSelection {
            namespaces: NamespaceSelection::Named(NAMESPACES[usize::from(which) % 2].into()),
            pods: objects::Selector::default(),
        });
        let networks = vec![IpNet::new_assert([192, 0, which, 0].into(), 24)];
        let outside = Peer::Networks { networks, except: Vec::new() };
        let rules = vec![AcceptRule { peers: vec![own, outside], ports: Vec::new() }];
        let (ingress, egress) = if which == 2 { (None, Some(rules)) } else { (Some(rules), None) };
        Arc::new(NetworkPolicy {
            key: key.clone(),
            pods: objects::Selector::default(),
            ingress,
            egress,
        })
    });
    Change::NetworkPolicy(key, policy)
}

/// One controller, while it leads.
struct Controller {
    publisher: Publisher,
    newest: BTreeMap<&'static str, watch::Sender<Option<Arc<Program>>>>,
    nodes: SimulatedNodes,
}

/// What was ever published, by node and generation.
type Published = BTreeMap<(&'static str, u64), Vec<Fingerprint>>;

struct Shared {
    controller: Option<Controller>,
    published: Published,
}

type Handle = Arc<Mutex<Shared>>;

impl Shared {
    /// A new leader: its generations begin by its clock, which may be behind.
    fn lead(&mut self, first: u64, cluster: &Cluster) {
        let mut publisher = Publisher::new(Compiler::default(), first);
        cluster.all().into_iter().for_each(|change| publisher.apply(change));
        let newest = NODES.map(|node| {
            let program = publisher.follow(node);
            self.note(node, &program);
            (node, watch::Sender::new(Some(program)))
        });
        let (newest, nodes) = (newest.into(), SimulatedNodes::default());
        self.controller = Some(Controller { publisher, newest, nodes });
    }

    fn note(&mut self, node: &'static str, program: &Program) {
        self.published.entry((node, program.generation)).or_default().push(program.fingerprint());
    }

    fn change(&mut self, change: Change) {
        let Some(controller) = &mut self.controller else { return };
        controller.publisher.apply(change);
        let published = controller.publisher.publish();
        for (node, program) in published {
            let node = NODES.into_iter().find(|it| *it == &*node).unwrap();
            self.note(node, &program);
            self.controller.as_ref().unwrap().newest[node].send_replace(Some(program));
        }
    }

    fn follow(&self, node: &str, mut has: Position, planted: Planted) -> Option<Follower> {
        let controller = self.controller.as_ref()?;
        if planted == Planted::TrustsGeneration {
            has.fingerprint = controller.publisher.newest(node)?.fingerprint();
        }
        Some(controller.nodes.follow(node, controller.newest[node].subscribe(), has))
    }
}

/// What the thread that enforces is asked, one after the other.
enum Asked {
    Apply(Box<Delta>, oneshot::Sender<Result<(), String>>),
    Position(oneshot::Sender<Position>),
}

/// The thread of a node that has the kernel enforce: it may be slow, and goes on whoever asked.
async fn enforce(
    world: World,
    node: &'static str,
    program: Arc<Mutex<Program>>,
    shared: Handle,
    mut asked: mpsc::Receiver<Asked>,
    planted: Planted,
) {
    while let Some(question) = asked.recv().await {
        let slow =
            if world.one_in(4) { Duration::from_secs(20) } else { Duration::from_millis(100) };
        sleep(world.up_to(slow)).await;
        let mut program = program.lock().unwrap();
        match question {
            Asked::Position(answer) => _ = answer.send(position(&program)),
            Asked::Apply(mut delta, answer) => {
                let (from, to, here) = (delta.from, delta.to, program.generation);
                if planted == Planted::WrongBase && delta.from != 0 {
                    delta.from = here;
                }
                let applied = program.apply(&delta).map_err(|gap| gap.to_string());
                world.step(format_args!("{node} at {here}: {from} to {to}: {applied:?}"));
                if applied.is_ok() {
                    let published = &shared.lock().unwrap().published;
                    let known = published
                        .get(&(node, to))
                        .is_some_and(|all| all.contains(&program.fingerprint()));
                    world.holds(known, || {
                        format!("{node} has a program of generation {to} that nobody published")
                    });
                }
                let _ = answer.send(applied);
            }
        }
    }
}

fn position(program: &Program) -> Position {
    Position { generation: program.generation, fingerprint: program.fingerprint() }
}

/// One connection of an agent, until it breaks.
async fn session(
    world: &World,
    node: &'static str,
    program: &Mutex<Program>,
    shared: &Handle,
    enforcing: &mpsc::Sender<Asked>,
    calm: &watch::Receiver<bool>,
    planted: Planted,
) -> Option<()> {
    let pause = |most: u64| world.up_to(Duration::from_millis(most));
    // A careless agent looks while a change is still being made: then the base is checked.
    let has = if world.one_in(2) && !*calm.borrow() {
        position(&program.lock().unwrap())
    } else {
        let (answer, asked) = oneshot::channel();
        enforcing.send(Asked::Position(answer)).await.ok()?;
        asked.await.ok()?
    };
    sleep(pause(300)).await;
    let mut follower = shared.lock().unwrap().follow(node, has, planted)?;
    world.step(format_args!("{node} follows from {}", has.generation));
    let mut received = ChangeParts::default();
    loop {
        if !*calm.borrow() && world.one_in(8) {
            return None;
        }
        let next = timeout(Duration::from_secs(20) + pause(60_000), follower.next()).await;
        let delta = match next {
            Ok(next) => next.ok()?,
            Err(_) if *calm.borrow() => continue,
            // The connection breaks while there is nothing to send.
            Err(_) => return None,
        };
        sleep(pause(400)).await;
        // Lost on the way: the connection is over.
        if !*calm.borrow() && world.one_in(8) {
            return None;
        }
        let mut whole = None;
        for part in parts(encode_change(&delta)) {
            whole = received.take(&part).ok()?;
        }
        let delta = whole?;
        let to = delta.to;
        let (answer, applied) = oneshot::channel();
        enforcing.send(Asked::Apply(Box::new(delta), answer)).await.ok()?;
        // The connection breaks while the change is being made.
        if !*calm.borrow() && world.one_in(4) {
            return None;
        }
        let applied = timeout(Duration::from_secs(45), applied).await.ok()?.ok()?;
        let error = applied.err();
        let failed = error.is_some();
        let lost = !*calm.borrow() && world.one_in(6);
        if !lost {
            sleep(pause(400)).await;
            let shared = shared.lock().unwrap();
            if let Some(controller) = &shared.controller {
                controller.nodes.applied(node, Applied { generation: to, error });
            }
        }
        if failed || lost {
            return None;
        }
        timeout(Duration::from_secs(60), follower.acknowledged()).await.ok()?.ok()?;
    }
}

async fn schedule(world: World, planted: Planted) {
    let shared: Handle =
        Arc::new(Mutex::new(Shared { controller: None, published: Published::new() }));
    let mut cluster = Cluster::default();
    let clock = |world: &World| 1000 + u64::try_from(world.now().as_millis()).unwrap();
    shared.lock().unwrap().lead(clock(&world), &cluster);
    let (calm, is_calm) = watch::channel(false);
    let programs = NODES.map(|_| Arc::new(Mutex::new(Program::default())));
    // An agent: the task that enforces, and the one that follows a controller.
    let begin = |at: usize| {
        let (node, program) = (NODES[at], Arc::clone(&programs[at]));
        let (ask, asked) = mpsc::channel(16);
        let enforcing =
            enforce(world.clone(), node, Arc::clone(&program), Arc::clone(&shared), asked, planted);
        let (own, handle, is_calm) = (world.clone(), Arc::clone(&shared), is_calm.clone());
        let following = async move {
            loop {
                session(&own, node, &program, &handle, &ask, &is_calm, planted).await;
                sleep(own.up_to(Duration::from_secs(3))).await;
            }
        };
        [tokio::spawn(enforcing), tokio::spawn(following)]
    };
    let mut agents = [begin(0), begin(1)];
    for _ in 0..30 {
        sleep(world.up_to(Duration::from_millis(4000))).await;
        match world.below(12) {
            0..=5 => {
                let (place, space, node) = (world.below(12), world.below(2), world.below(2));
                let place = u32::try_from(place).unwrap();
                let (space, node) =
                    (usize::try_from(space).unwrap(), usize::try_from(node).unwrap());
                let change = match cluster.pods.remove(&place) {
                    Some((space, _)) => pod(place, space, None),
                    None => {
                        cluster.pods.insert(place, (space, node));
                        pod(place, space, Some(node))
                    }
                };
                shared.lock().unwrap().change(change);
            }
            6..=8 => {
                let space = usize::try_from(world.below(2)).unwrap();
                let which = u8::try_from(world.below(3)).unwrap();
                let there = cluster.policies.insert((space, which));
                if !there {
                    cluster.policies.remove(&(space, which));
                }
                shared.lock().unwrap().change(policy(space, which, there));
            }
            9 => {
                // The clock of another machine may be behind: the same generations come again.
                let first = clock(&world).saturating_sub(world.below(20_000));
                world.step(format_args!("another controller leads, and counts from {first}"));
                shared.lock().unwrap().lead(first, &cluster);
            }
            10 => {
                world.step("no controller leads");
                shared.lock().unwrap().controller = None;
                sleep(world.up_to(Duration::from_secs(20))).await;
                let first = clock(&world);
                shared.lock().unwrap().lead(first, &cluster);
            }
            _ => {
                let at = usize::try_from(world.below(2)).unwrap();
                agents[at].iter().for_each(tokio::task::JoinHandle::abort);
                // Aborted tasks leave when they are next looked at.
                sleep(Duration::from_millis(1)).await;
                if world.one_in(2) {
                    *programs[at].lock().unwrap() = Program::default();
                }
                let has = programs[at].lock().unwrap().generation;
                world.step(format_args!("{} is killed, and begins with {has}", NODES[at]));
                agents[at] = begin(at);
            }
        }
        if world.is_broken() {
            break;
        }
    }
    calm.send_replace(true);
    // Whatever is under way ends, or is given up after a minute.
    sleep(Duration::from_secs(400)).await;
    for (node, program) in NODES.into_iter().zip(&programs) {
        let mut fresh = Publisher::new(Compiler::default(), 1);
        cluster.all().into_iter().for_each(|change| fresh.apply(change));
        let fresh = fresh.follow(node);
        let mut began_with_nothing = Program::default();
        began_with_nothing.apply(&Delta::whole(&fresh)).unwrap();
        let has = Program {
            generation: began_with_nothing.generation,
            ..program.lock().unwrap().clone()
        };
        world.holds(has == began_with_nothing, || {
            format!(
                "{node} has {} pods and {} sets, and should have {} and {}",
                has.pods.len(),
                has.sets.len(),
                fresh.pods.len(),
                fresh.sets.len()
            )
        });
    }
    agents.iter().flatten().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn a_node_ends_with_the_program_of_one_that_began_with_nothing() {
    explore("a_node_ends_with_the_program", 1800, async |world| {
        schedule(world, Planted::Nothing).await;
    });
}

#[test]
fn a_delta_on_the_wrong_base_is_found() {
    finds("a change is applied to another base", 500, async |world| {
        schedule(world, Planted::WrongBase).await;
    });
}

#[test]
fn a_program_that_is_known_by_its_generation_alone_is_found() {
    finds("a program is known by its generation alone", 500, async |world| {
        schedule(world, Planted::TrustsGeneration).await;
    });
}

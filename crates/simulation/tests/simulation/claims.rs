//! Claims of address blocks: nodes whose agents crash and whose store is far away share a pool, and no address is
//! two pods'.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::addresses::simulation::SimulatedAddresses;
use net::addresses::{AssignRequest, Assignment};
use net::claims::{BlockClaims, NodeIdentity};
use net::{AttachmentKey, NamespaceId};
use objects::kinds::{AddressPool, AddressPoolSpec, Subnet};
use objects::simulation::{SimulatedStore, StoreFaults};
use objects::{Expected, Objects};
use simulation::{World, explore, finds};
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::network::Network;

const NODES: usize = 3;

#[derive(Clone, Copy, Default, PartialEq)]
struct Planted {
    store: StoreFaults,
    /// `kill -9` takes back what was written last, as if it had not been written before it was told.
    lost_write: bool,
    /// A machine that fails takes back what was synced.
    lost_sync: bool,
}

/// Who has an address: the pods that were told theirs, and were not deleted since.
type InUse = Arc<Mutex<BTreeMap<Ipv4Addr, String>>>;

struct Node {
    name: String,
    network: Arc<Network>,
    dir: TempDir,
    /// None while the agent is down.
    life: Option<Life>,
}

struct Life {
    addresses: SimulatedAddresses,
    tasks: Tasks,
    _claims: BlockClaims,
}

impl Node {
    fn start(&mut self, world: &World, store: &SimulatedStore, in_use: &InUse) {
        let tasks = Tasks::new(self.name.clone());
        let own = world.clone();
        let delay = move || own.up_to(Duration::from_millis(20));
        let opened = SimulatedAddresses::open(self.dir.path(), &tasks, delay);
        let addresses = match opened {
            Ok(addresses) => addresses,
            Err(error) => return world.holds(false, || format!("{}: {error}", self.name)),
        };
        // Nothing that a pod was told is lost.
        let known: BTreeMap<_, _> = attachments(&addresses).into_iter().collect();
        for (address, pod) in in_use.lock().unwrap().iter().filter(|(_, pod)| self.has(pod)) {
            world.holds(known.get(address) == Some(pod), || {
                format!("{pod} has {address}, and the journal says {:?}", known.get(address))
            });
        }
        let here = Snapshot::new(vec!["192.0.2.1".parse().unwrap()]);
        let identity = NodeIdentity { name: self.name.clone(), addresses: here };
        let objects = store.through(Arc::clone(&self.network) as _);
        let handle = addresses.addresses.clone();
        let claims = BlockClaims::start(objects, identity, handle, &Ledger::default(), &tasks);
        // As reconciling with the kernel does: what no pod has is released.
        let (handle, in_use) = (addresses.addresses.clone(), Arc::clone(in_use));
        let gone: Vec<_> = known
            .into_iter()
            .filter(|(address, _)| !in_use.lock().unwrap().contains_key(address))
            .collect();
        tasks.spawn("reconcile", async move {
            for (_, pod) in gone {
                let _ = handle.release(&key(&pod), Deadline::after(Duration::from_secs(30))).await;
            }
        });
        self.life = Some(Life { addresses, tasks, _claims: claims });
    }

    fn has(&self, pod: &str) -> bool {
        pod.split('/').next() == Some(self.name.as_str())
    }

    /// `kill -9`: what was written is there. Or the machine fails, and its pods with it: of what was not synced any
    /// part is there.
    async fn crash(&mut self, world: &World, in_use: &InUse, planted: Planted) {
        let Some(life) = self.life.take() else { return };
        life.tasks.kill().await;
        if world.one_in(2) {
            world.step(format_args!("the agent of {} is killed", self.name));
            let lost = if planted.lost_write { 400 } else { 0 };
            life.addresses.crash(|_, bytes| (bytes.saturating_sub(lost), Vec::new())).unwrap();
            return;
        }
        in_use.lock().unwrap().retain(|_, pod| !self.has(pod));
        let left = life.addresses.crash(|synced, bytes| {
            // Times are written with more or fewer digits, so that a part is chosen, not a number of bytes.
            let from = if planted.lost_sync { synced.saturating_sub(400) } else { synced };
            let part = *world.pick(&[0, 0, 1, 2, 4, 4]).unwrap();
            let left = from + (bytes - from) * part / 4;
            let after = (0..world.below(3) * 20).map(|_| u8::try_from(world.below(256)).unwrap());
            let after: Vec<u8> = after.collect();
            let rest = if bytes == synced { "" } else { ", not all of which was synced" };
            world.step(format_args!("{} loses its power{rest}", self.name));
            (left, after)
        });
        left.unwrap();
    }
}

fn key(pod: &str) -> AttachmentKey {
    AttachmentKey { container: pod.to_owned(), ifname: "eth0".to_owned() }
}

fn attachments(addresses: &SimulatedAddresses) -> Vec<(Ipv4Addr, String)> {
    let view = addresses.addresses.view();
    let all = view.attachments().filter_map(|it| Some((it.ipv4?, it.key.container.clone())));
    all.collect()
}

fn request(pod: &str) -> AssignRequest {
    AssignRequest {
        key: key(pod),
        network: "k8s".to_owned(),
        pod: None,
        pool: "default".to_owned(),
        namespace: NamespaceId { device: 4, inode: 1 },
        netns: format!("/run/netns/{}", pod.replace('/', "-")),
        host_interface: format!("fl{}", pod.len()),
        fixed: Default::default(),
    }
}

/// A pod is started: it asks for its address until it has one, or is given up and released.
fn start_pod(world: &World, node: &Node, in_use: &InUse, number: u64) {
    let Some(life) = &node.life else { return };
    let (world, in_use) = (world.clone(), Arc::clone(in_use));
    let (handle, pod) = (life.addresses.addresses.clone(), format!("{}/p{number}", node.name));
    life.tasks.spawn("pod", async move {
        let patience = Duration::from_secs(1) + world.up_to(Duration::from_secs(20));
        let assigned = handle.assign(request(&pod), Deadline::after(patience)).await;
        match assigned.as_ref().map(Assignment::attachment) {
            Ok(attachment) => {
                let address = attachment.ipv4.unwrap();
                world.step(format_args!("{pod} has {address}"));
                let before = in_use.lock().unwrap().insert(address, pod.clone());
                world.holds(before.is_none(), || format!("{address} is {pod}'s and {before:?}'s"));
            }
            Err(error) => {
                world.step(format_args!("{pod} has none: {error}"));
                let _ = handle.release(&key(&pod), Deadline::after(patience)).await;
            }
        }
    });
}

/// A pod of a node that is up is deleted.
fn stop_pod(world: &World, nodes: &[Node], in_use: &InUse) {
    let pods: Vec<_> =
        in_use.lock().unwrap().iter().map(|(address, pod)| (*address, pod.clone())).collect();
    let Some((address, pod)) = world.pick(&pods).cloned() else { return };
    let Some(node) = nodes.iter().find(|node| node.has(&pod)) else { return };
    let Some(life) = &node.life else { return };
    world.step(format_args!("{pod} is deleted"));
    in_use.lock().unwrap().remove(&address);
    let handle = life.addresses.addresses.clone();
    life.tasks.spawn("delete", async move {
        let _ = handle.release(&key(&pod), Deadline::after(Duration::from_secs(30))).await;
    });
}

/// Nearly all pods go: blocks become empty.
fn stop_all(world: &World, nodes: &[Node], in_use: &InUse) {
    for _ in 0..20 {
        stop_pod(world, nodes, in_use);
    }
}

async fn schedule(world: World, planted: Planted) {
    let store = SimulatedStore::new(planted.store);
    let admin = store.through(Arc::new({
        let network = Network::new(&world, "admin");
        network.calm();
        network
    }));
    make_pool(&admin).await;
    let in_use = InUse::default();
    let mut nodes: Vec<Node> = (0..NODES)
        .map(|number| {
            let name = format!("n{number}");
            let network = Arc::new(Network::new(&world, &name));
            Node { name, network, dir: dir(), life: None }
        })
        .collect();
    nodes.iter_mut().for_each(|node| node.start(&world, &store, &in_use));
    let mut number = 0;
    for _ in 0..25 {
        let wait = if world.one_in(20) { Duration::from_secs(700) } else { Duration::from_secs(4) };
        sleep(world.up_to(wait)).await;
        let at = usize::try_from(world.below(NODES as u64)).unwrap();
        match world.below(16) {
            0..=5 => {
                for _ in 0..=world.below(4) {
                    number += 1;
                    start_pod(&world, &nodes[at], &in_use, number);
                }
            }
            6..=9 => {
                for _ in 0..=world.below(4) {
                    stop_pod(&world, &nodes, &in_use);
                }
            }
            10 => nodes[at].network.cut(world.up_to(Duration::from_secs(60))),
            11 => nodes[at].network.freeze(world.up_to(Duration::from_secs(20))),
            12..=14 => {
                // Some crash while they give their blocks back, and what they have sent is still on its way.
                let gives_back = world.one_in(3);
                if gives_back {
                    stop_all(&world, &nodes, &in_use);
                    sleep(Duration::from_secs(597)).await;
                    nodes[at].network.lag(Duration::from_secs(6));
                    sleep(world.up_to(Duration::from_secs(8))).await;
                }
                nodes[at].crash(&world, &in_use, planted).await;
                sleep(world.up_to(Duration::from_secs(10))).await;
                nodes[at].start(&world, &store, &in_use);
                if gives_back {
                    sleep(world.up_to(Duration::from_secs(2))).await;
                    for _ in 0..=world.below(8) {
                        let node = world.pick(&nodes).unwrap();
                        number += 1;
                        start_pod(&world, node, &in_use, number);
                    }
                }
            }
            _ => stop_all(&world, &nodes, &in_use),
        }
        look(&world, &nodes);
        if world.is_broken() {
            break;
        }
    }
    nodes.iter().for_each(|node| node.network.calm());
    if !world.is_broken() {
        quiet(&world, &store, &nodes, &in_use).await;
    }
    for node in &mut nodes {
        if let Some(life) = node.life.take() {
            life.tasks.kill().await;
        }
    }
}

/// The invariant of blocks: none that two nodes assign from.
fn look(world: &World, nodes: &[Node]) {
    let mut owners: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let Some(life) = &node.life else { continue };
        let view = life.addresses.addresses.view();
        for (name, _) in view.blocks().filter(|(_, block)| block.cordoned().is_none()) {
            owners.entry(name.to_owned()).or_default().push(&node.name);
        }
    }
    let twice = owners.iter().find(|(_, owners)| owners.len() > 1);
    world.holds(twice.is_none(), || format!("a block has two owners: {twice:?}"));
}

/// When all is well, store and journals agree, and what nobody uses is given back.
async fn quiet(world: &World, store: &SimulatedStore, nodes: &[Node], in_use: &InUse) {
    sleep(Duration::from_secs(120)).await;
    look(world, nodes);
    let mut held = BTreeSet::new();
    for node in nodes {
        let Some(life) = &node.life else { continue };
        let view = life.addresses.addresses.view();
        held.extend(view.blocks().map(|(block, _)| (block.to_owned(), node.name.clone())));
        for (address, pod) in attachments(&life.addresses) {
            let user = in_use.lock().unwrap().get(&address).cloned();
            world.holds(user.as_ref() == Some(&pod), || {
                format!("{address} is kept for {pod}, and is {user:?}'s")
            });
        }
    }
    let stored: BTreeSet<_> = store
        .now("AddressBlock")
        .iter()
        .map(|block| {
            let node = block.data["spec"]["node"].as_str().unwrap_or_default().to_owned();
            (block.metadata.name.clone().unwrap_or_default(), node)
        })
        .collect();
    world.holds(held == stored, || format!("journals have {held:?}, the store has {stored:?}"));
}

async fn make_pool(objects: &Objects) {
    let subnets = vec![Subnet { ipv4: Some("10.0.0.0/27".to_owned()), ipv6: None }];
    let pool = AddressPool::new("default", AddressPoolSpec::new(2, subnets));
    objects.apply(&pool, Expected::Any, Deadline::after(Duration::from_secs(30))).await.unwrap();
}

/// In memory where there is a place for that: a sync of a real disk takes longer than a whole schedule.
fn dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("simulation").tempdir_in(place).unwrap()
}

#[test]
fn no_address_is_two_pods_and_no_block_two_nodes() {
    explore("no_address_is_two_pods", 400, async |world| {
        schedule(world, Planted::default()).await;
    });
}

#[test]
fn a_claim_without_a_compare_is_found() {
    let store = StoreFaults { create_replaces: true, ..StoreFaults::default() };
    let planted = Planted { store, ..Planted::default() };
    finds("a claim replaces another node's", 300, async |world| schedule(world, planted).await);
}

#[test]
fn a_delete_over_any_version_is_found() {
    let store = StoreFaults { no_compare: true, ..StoreFaults::default() };
    let planted = Planted { store, ..Planted::default() };
    finds("a late delete is made over any version", 1000, async |world| {
        schedule(world, planted).await;
    });
}

#[test]
fn an_address_that_is_told_before_it_is_written_is_found() {
    let planted = Planted { lost_write: true, ..Planted::default() };
    finds("an address is told before it is written", 300, async |world| {
        schedule(world, planted).await;
    });
}

#[test]
fn a_block_that_is_given_back_before_that_is_on_disk_is_found() {
    let planted = Planted { lost_sync: true, ..Planted::default() };
    finds("a block is given back before the sync", 1000, async |world| {
        schedule(world, planted).await;
    });
}

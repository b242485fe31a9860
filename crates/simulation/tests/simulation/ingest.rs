//! Ingest's exactly-once: agents' sensors report over a bad network to controllers that are killed, come back from
//! their checkpoints, and take over from one another, while nodes are rebooted and conversations fall silent.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::sensor::{Flow, FlowId, Limits as SensorLimits, Sensor};
use simulation::{World, explore, finds};
use stallproof::Tasks;
use tokio::time::{Instant, sleep, timeout};
use traffic::conversations::{
    Checkpoint, Directory, Labels, Limits, Moment, PodFacts, Progress, Protocol, Readers, Report,
    Router, Shard, shards,
};
use traffic::ingest::simulation::SimulatedAcks;
use traffic::ingest::{Counted, NotCounted};

const NODES: u8 = 2;
const PODS: u8 = 2;
/// Longer than a total stays open that nothing is added to.
const QUIET: Duration = Duration::from_secs(11 * 60);

type Key = (IpAddr, IpAddr, u16);

#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// A controller calls durable what it has only counted.
    AckBeforeSync,
    /// How far agents have come is taken after the shards were saved.
    ProgressLast,
    /// What was counted is forgotten at a restart, and the epoch stays.
    LosesCheckpoint,
    /// Agents forget what has ended once a controller has it on disk.
    ForgetsEnded,
}

impl Planted {
    fn sensor_limits(self) -> SensorLimits {
        let ended = if self == Self::ForgetsEnded { 0 } else { SensorLimits::default().ended };
        SensorLimits { ended, ..SensorLimits::default() }
    }
}

/// The world's truth: connections with what they have carried.
#[derive(Default)]
struct Kernel(BTreeMap<Key, u64>);

fn address(node: u8, number: u8) -> IpAddr {
    IpAddr::from([10, 0, node, number])
}

fn directory() -> Directory {
    let mut directory = Directory::new();
    directory.set_ranges(&["10.0.0.0/8".parse().unwrap()]);
    for (node, number) in (0..NODES).flat_map(|node| (0..PODS).map(move |number| (node, number))) {
        let pod = PodFacts {
            uid: format!("{node}-{number}").into(),
            namespace: format!("ns-{node}").into(),
            name: format!("pod-{number}").into(),
            owner: Some(format!("Deployment/app-{number}").into()),
            node: format!("node-{node}").into(),
            addresses: vec![address(node, number)],
            images: Vec::new(),
            labels: Labels::new(),
            from: Moment(0),
            until: None,
        };
        directory.apply_pod(&pod, Moment(0));
    }
    directory
}

fn moment(world: &World) -> Moment {
    Moment(1_700_000_000_000 + u64::try_from(world.now().as_millis()).unwrap())
}

/// One life of a controller.
struct Controller {
    epoch: u64,
    acks: SimulatedAcks,
    router: Router,
    shards: Vec<Mutex<Shard>>,
    readers: Readers,
    directory: Directory,
    tasks: Tasks,
    dead: AtomicBool,
}

/// A replica's disk, and its life if it leads.
#[derive(Default)]
struct Replica {
    checkpoint: Option<Vec<u8>>,
}

fn seed_of(world: &World) -> [u64; 2] {
    [world.below(u64::MAX), world.below(u64::MAX)]
}

impl Controller {
    fn start(world: &World, replica: &Replica, planted: Planted) -> Self {
        let count = usize::try_from(1 + world.below(3)).unwrap();
        let limits = Limits::default();
        let saved = replica.checkpoint.as_ref().map(|bytes| Checkpoint::from_bytes(bytes).unwrap());
        let (seed, progress, (router, shards, readers)) = match &saved {
            Some(saved) if planted == Planted::LosesCheckpoint => {
                let router = Router::new(saved.seed, count);
                let (shards, readers) = shards(router, limits);
                (saved.seed, saved.progress.clone(), (router, shards, readers))
            }
            Some(saved) => {
                (saved.seed, saved.progress.clone(), saved.restore(count, limits).unwrap())
            }
            None => {
                let seed = seed_of(world);
                let router = Router::new(seed, count);
                let (shards, readers) = shards(router, limits);
                (seed, Vec::new(), (router, shards, readers))
            }
        };
        Self {
            epoch: seed[0],
            acks: SimulatedAcks::of(&progress, Instant::now().into_std()),
            router,
            shards: shards.into_iter().map(Mutex::new).collect(),
            readers,
            directory: directory(),
            tasks: Tasks::new("controller"),
            dead: AtomicBool::new(false),
        }
    }

    async fn kill(&self) {
        self.dead.store(true, Relaxed);
        self.tasks.kill().await;
    }

    /// Counts a report, shard after shard, while others are counted beside it.
    async fn count(
        &self,
        world: &World,
        report: &Report,
        planted: Planted,
    ) -> Result<Counted, NotCounted> {
        let counting = self.acks.begin(report, Instant::now().into_std())?;
        let routed = self.router.route(report, &self.directory, |_| true);
        let mut outdated = None;
        for (shard, part) in self.shards.iter().zip(&routed.parts) {
            sleep(world.up_to(Duration::from_millis(300))).await;
            let applied = shard.lock().unwrap().apply(part, moment(world));
            world.holds(applied.refused == 0, || "a shard has no room".to_owned());
            outdated = outdated.or(applied.outdated);
        }
        if let Some(known) = outdated {
            return Err(NotCounted::Outdated { known });
        }
        let mut counted = counting.counted();
        if planted == Planted::AckBeforeSync {
            counted.durable = counted.through;
        }
        Ok(counted)
    }

    /// Writes checkpoints, over and over.
    async fn save(self: Arc<Self>, world: World, replica: Arc<Mutex<Replica>>, planted: Planted) {
        loop {
            let mut progress: Vec<Progress> = self.acks.progress(Instant::now().into_std());
            let mut saved = Vec::new();
            for shard in &self.shards {
                sleep(world.up_to(Duration::from_millis(2000))).await;
                saved.push(shard.lock().unwrap().save());
            }
            if planted == Planted::ProgressLast {
                sleep(world.up_to(Duration::from_millis(2000))).await;
                progress = self.acks.progress(Instant::now().into_std());
            }
            let checkpoint =
                Checkpoint::of(self.router, progress.clone(), saved, Vec::new(), Vec::new());
            sleep(world.up_to(Duration::from_millis(3000))).await;
            replica.lock().unwrap().checkpoint = Some(checkpoint.to_bytes());
            world.step("a checkpoint is on disk");
            // The answer of the disk may be late, too.
            sleep(world.up_to(Duration::from_millis(500))).await;
            self.acks.kept(&progress);
            sleep(world.up_to(Duration::from_secs(30))).await;
        }
    }

    fn counted(&self) -> BTreeMap<Key, u64> {
        self.shards.iter().for_each(|shard| shard.lock().unwrap().publish());
        let view = self.readers.view();
        let all = view.conversations(|_| true, Moment(0));
        let all = all.filter_map(|seen| seen.to_conversation());
        all.map(|it| ((it.client.address, it.server.address, it.port), it.totals.bytes)).collect()
    }
}

struct Agent {
    name: Arc<str>,
    node: u8,
    sensor: Sensor,
    /// What survives `kill -9`.
    saved: Vec<u8>,
    /// How far its clock is off, in milliseconds.
    skew: i64,
    limits: SensorLimits,
    /// How often the node was rebooted.
    boots: u32,
    /// What connections had carried when the node was booted: its kernel knows nothing of it.
    before: BTreeMap<Key, u64>,
}

impl Agent {
    fn now(&self, world: &World) -> Moment {
        Moment(moment(world).0.saturating_add_signed(self.skew))
    }

    fn observe(&mut self, world: &World, kernel: &Kernel) {
        let now = self.now(world);
        for ((client, server, port), bytes) in &kernel.0 {
            let here = |it: &IpAddr| matches!(it, IpAddr::V4(it) if it.octets()[2] == self.node);
            let before = self.before.get(&(*client, *server, *port)).copied().unwrap_or_default();
            if !here(client) && !here(server) || *bytes == before {
                continue;
            }
            let bytes = bytes - before;
            let id = FlowId {
                // One connection for each conversation, which lasts.
                number: u32::from(*port),
                zone: 0,
                protocol: Protocol::TCP,
                client: *client,
                client_port: 40_000,
                server: *server,
                port: *port,
                begun: None,
            };
            let flow = Flow { id, bytes, packets: bytes / 100, ended: false };
            self.sensor.observe(&flow, now);
        }
        self.sensor.listed();
    }

    /// Takes in what a controller said of a report; says whether to go on with it.
    fn answered(
        &mut self,
        world: &World,
        report: &Report,
        answer: Result<Counted, NotCounted>,
    ) -> bool {
        let now = self.now(world);
        match answer {
            Ok(counted) if counted.through >= report.sequence => {
                self.sensor.counted(report.sequence, counted.durable, now);
                true
            }
            Ok(_) | Err(NotCounted::Busy { .. }) => true,
            Err(NotCounted::Outdated { known }) => {
                world.holds(false, || format!("{} is outdated by {known}", self.name));
                self.sensor.outdated(known, now);
                false
            }
        }
    }

    fn place(&self) -> String {
        format!("boot {}/netns", self.boots)
    }

    fn save(&mut self) {
        self.saved = self.sensor.save(&self.place());
    }

    fn restart(&mut self, world: &World) {
        let (name, now) = (Arc::clone(&self.name), self.now(world));
        self.sensor = Sensor::begin(name, &self.place(), Some(&self.saved), self.limits, now);
    }

    /// All that connections carried was seen before, and what they carry after is.
    fn reboot(&mut self, world: &World, kernel: &Kernel) {
        self.observe(world, kernel);
        self.save();
        self.boots += 1;
        self.before.clone_from(&kernel.0);
        self.restart(world);
        // As an agent does that has not joined yet.
        self.observe(world, kernel);
        self.save();
    }
}

struct Stage {
    kernel: Kernel,
    /// Who leads; agents are led to it.
    leader: Option<Arc<Controller>>,
    calm: bool,
    /// Nobody says anything for a while.
    quiet: bool,
}

/// An agent's life: it joins whoever leads and reports until that fails.
async fn report(
    world: World,
    agent: Arc<Mutex<Agent>>,
    stage: Arc<Mutex<Stage>>,
    planted: Planted,
) {
    let calm = || stage.lock().unwrap().calm;
    loop {
        sleep(world.up_to(Duration::from_secs(2))).await;
        let Some(controller) = stage.lock().unwrap().leader.clone() else { continue };
        {
            let mut agent = agent.lock().unwrap();
            let now = agent.now(&world);
            agent.sensor.joining(now);
            agent.sensor.joined(controller.epoch, now);
        }
        loop {
            let report = {
                let mut agent = agent.lock().unwrap();
                let now = agent.now(&world);
                agent.observe(&world, &stage.lock().unwrap().kernel);
                let report = agent.sensor.outstanding().cloned();
                let report = report.or_else(|| agent.sensor.report(true, now)).unwrap();
                agent.save();
                report
            };
            let Some(answer) = send(&world, &controller, &report, calm(), planted).await else {
                break;
            };
            if !agent.lock().unwrap().answered(&world, &report, answer) {
                break;
            }
            let ended = {
                let stage = stage.lock().unwrap();
                !stage.leader.as_ref().is_some_and(|it| Arc::ptr_eq(it, &controller))
            };
            if ended || !calm() && world.one_in(15) {
                break;
            }
            let often = if stage.lock().unwrap().quiet { 25 } else { 8 };
            sleep(world.up_to(Duration::from_secs(often))).await;
        }
    }
}

/// Sends a report; it arrives by itself, late, twice or not at all, and its answer may be lost.
async fn send(
    world: &World,
    controller: &Arc<Controller>,
    report: &Arc<Report>,
    calm: bool,
    planted: Planted,
) -> Option<Result<Counted, NotCounted>> {
    let (answer, answered) = tokio::sync::oneshot::channel();
    let (fate, own) = (if calm { 9 } else { world.below(12) }, world.clone());
    let late = if fate < 2 { Duration::from_secs(40) } else { Duration::from_millis(200) };
    let (late, again) =
        (world.up_to(late), (fate == 2).then(|| world.up_to(Duration::from_secs(40))));
    if fate == 3 {
        world.step(format_args!("a report of {} is lost", report.agent));
        sleep(Duration::from_secs(10)).await;
        return None;
    }
    let arrives = |wait: Duration, answer: Option<tokio::sync::oneshot::Sender<_>>| {
        let (world, controller, report) = (own.clone(), Arc::clone(controller), Arc::clone(report));
        let tasks = controller.tasks.clone();
        tasks.spawn("report", async move {
            sleep(wait).await;
            if controller.dead.load(Relaxed) {
                return;
            }
            let counted = controller.count(&world, &report, planted).await;
            world.step(format_args!("{} {}: {counted:?}", report.agent, report.sequence));
            sleep(world.up_to(Duration::from_millis(200))).await;
            if let Some(answer) = answer {
                let _ = answer.send(counted);
            }
        });
    };
    arrives(late, Some(answer).filter(|_| fate != 4));
    if let Some(again) = again {
        arrives(again, None);
    }
    timeout(Duration::from_secs(10), answered).await.ok()?.ok()
}

async fn schedule(world: World, planted: Planted) {
    let replicas = [0, 1].map(|_| Arc::new(Mutex::new(Replica::default())));
    let lead = |at: usize| {
        let controller =
            Arc::new(Controller::start(&world, &replicas[at].lock().unwrap(), planted));
        let saving =
            Arc::clone(&controller).save(world.clone(), Arc::clone(&replicas[at]), planted);
        controller.tasks.spawn("checkpoints", saving);
        world.step(format_args!("replica {at} leads, in epoch {:x}", controller.epoch));
        controller
    };
    let stage =
        Stage { kernel: Kernel::default(), leader: Some(lead(0)), calm: false, quiet: false };
    let stage = Arc::new(Mutex::new(stage));
    let mut agents = Vec::new();
    for node in 0..NODES {
        let (name, now): (Arc<str>, _) = (format!("node-{node}").into(), moment(&world));
        let limits = planted.sensor_limits();
        let mut sensor = Sensor::begin(Arc::clone(&name), "", None, limits, now);
        sensor.count_whole();
        let (saved, before) = (Vec::new(), BTreeMap::new());
        let mut agent = Agent { name, node, sensor, saved, skew: 0, limits, boots: 0, before };
        agent.save();
        let agent = Arc::new(Mutex::new(agent));
        let life = Tasks::new("agent");
        life.spawn(
            "report",
            report(world.clone(), Arc::clone(&agent), Arc::clone(&stage), planted),
        );
        agents.push((agent, life));
    }
    let mut leading = 0;
    for turn in 0..40 {
        sleep(world.up_to(Duration::from_millis(3000))).await;
        match world.below(16) {
            0..=9 => {
                let pod = |world: &World| {
                    let (node, number) = (world.below(NODES.into()), world.below(PODS.into()));
                    address(u8::try_from(node).unwrap(), u8::try_from(number).unwrap())
                };
                let (client, server) = (pod(&world), pod(&world));
                if client != server {
                    let port = u16::try_from(80 + world.below(2)).unwrap();
                    let bytes = 1 + world.below(1000);
                    *stage.lock().unwrap().kernel.0.entry((client, server, port)).or_default() +=
                        bytes;
                }
            }
            at @ (10 | 14) => {
                let is_reboot = at == 14;
                let at = usize::try_from(world.below(NODES.into())).unwrap();
                let (agent, life) = &mut agents[at];
                let what = if is_reboot { "node" } else { "agent of node" };
                world.step(format_args!("the {what} {at} is killed"));
                life.kill().await;
                *life = Tasks::new("agent");
                match is_reboot {
                    true => agent.lock().unwrap().reboot(&world, &stage.lock().unwrap().kernel),
                    false => agent.lock().unwrap().restart(&world),
                }
                life.spawn(
                    "report",
                    report(world.clone(), Arc::clone(agent), Arc::clone(&stage), planted),
                );
            }
            11 => {
                let at = usize::try_from(world.below(NODES.into())).unwrap();
                let mut agent = agents[at].0.lock().unwrap();
                agent.skew += i64::try_from(world.below(200_000)).unwrap() - 100_000;
                world.step(format_args!("the clock of {} is off by {} ms", agent.name, agent.skew));
            }
            12 | 13 => {
                let old = stage.lock().unwrap().leader.take().unwrap();
                if world.one_in(2) {
                    world.step("the controller is killed");
                    old.kill().await;
                } else {
                    // Deposed, and does not know it yet: what is on its way to it is counted there.
                    world.step("the controller is deposed");
                    leading = 1 - leading;
                    let wait = world.up_to(Duration::from_secs(5));
                    tokio::spawn(async move {
                        sleep(wait).await;
                        old.kill().await;
                    });
                    // One process is not two controllers.
                    sleep(wait.max(world.up_to(Duration::from_secs(5)))).await;
                }
                sleep(world.up_to(Duration::from_secs(5))).await;
                let new = lead(leading);
                stage.lock().unwrap().leader = Some(new);
            }
            _ if world.one_in(4) => {
                world.step("nobody says anything");
                stage.lock().unwrap().quiet = true;
                sleep(QUIET).await;
                stage.lock().unwrap().quiet = false;
            }
            _ => {}
        }
        if turn % 4 == 0 {
            look(&world, &stage, false);
        }
        if world.is_broken() {
            break;
        }
    }
    stage.lock().unwrap().calm = true;
    sleep(Duration::from_secs(120)).await;
    look(&world, &stage, true);
    for (_, life) in &agents {
        life.kill().await;
    }
    let leader = stage.lock().unwrap().leader.clone();
    if let Some(leader) = leader {
        leader.kill().await;
    }
}

/// The invariant: nothing is counted that was not carried; when all was told, all of it is, once.
fn look(world: &World, stage: &Mutex<Stage>, all: bool) {
    let stage = stage.lock().unwrap();
    let Some(leader) = &stage.leader else { return };
    let counted = leader.counted();
    for (key, bytes) in &counted {
        let carried = stage.kernel.0.get(key).copied().unwrap_or_default();
        world.holds(*bytes <= carried, || format!("{key:?}: {bytes} counted, {carried} carried"));
    }
    if all {
        world.holds(counted == stage.kernel.0, || {
            format!("carried {:?}\ncounted {counted:?}", stage.kernel.0)
        });
    }
}

#[test]
fn what_connections_carried_is_counted_once() {
    explore("what_connections_carried", 2500, async |world| {
        schedule(world, Planted::Nothing).await;
    });
}

#[test]
fn an_acknowledgement_before_the_checkpoint_is_found() {
    finds("durable is said before it is on disk", 500, async |world| {
        schedule(world, Planted::AckBeforeSync).await;
    });
}

#[test]
fn progress_that_is_taken_after_the_shards_is_found() {
    finds("progress is taken after the shards", 1000, async |world| {
        schedule(world, Planted::ProgressLast).await;
    });
}

#[test]
fn a_checkpoint_that_is_not_taken_up_is_found() {
    finds("a restart forgets what was counted", 500, async |world| {
        schedule(world, Planted::LosesCheckpoint).await;
    });
}

#[test]
fn an_agent_that_forgets_what_has_ended_is_found() {
    finds("agents forget what has ended", 500, async |world| {
        schedule(world, Planted::ForgetsEnded).await;
    });
}

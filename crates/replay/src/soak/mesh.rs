//! Nodes come, change and go; the real mesh controller keeps the peers of two meshes as they should be:
//! each of the home cluster and one tenant, on three real API servers.
//!
//! ```text
//! changes ─► home, east, west ◄─ compared with a plan of what is there
//!              ▲      ▲     ▲
//!              └── controller, which can be gone; its ways to east and west can be black holes
//! ```
//!
//! What must hold: a mesh to whose tenant nothing happens has the peers that are planned, again and
//! again, whatever happens to the other's; while nobody leads nothing is written, and what was
//! written in a later term is not undone in an earlier one; at the end all peers are those planned.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use objects::kinds::ClusterMesh;
use objects::{Expected, Id, Objects};
use stallproof::{Deadline, Tasks};
use testkit::{Fault as Broken, Proxy};
use tokio::runtime::Runtime;

use super::{Drive, Fault, Planned, Ran, Stage, Work};
use crate::incident::Cannot;
use crate::stage::replica::{Replica, terms};
use crate::stage::tenants::{
    NAMESPACE, Tenant, is_ready, joined, otherwise, planned, secret, soon,
};

const TENANTS: [&str; 2] = ["east", "west"];
/// Of each cluster, at the beginning and at most. Fewer than ten: the networks of two never meet.
const FIRST: usize = 3;
const MOST: usize = 6;
/// Between two changes: a controller that follows is done with one before the next, most of the time.
const PAUSE: Duration = Duration::from_millis(700);
/// Between two looks, and for one.
const LOOK: Duration = Duration::from_millis(500);
const LOOKED: Duration = Duration::from_secs(10);
/// A mesh whose tenant is well is as planned at least this often: "seconds", in which a lease may have
/// to run out.
const FOLLOW: Duration = Duration::from_secs(15);
/// A tenant that was away is tried again within half a minute.
const RECOVERY: Duration = Duration::from_secs(45);
/// What was on its way when the leader was gone has arrived.
const LANDED: Duration = Duration::from_secs(1);
/// For the first peers.
const BEGIN: Duration = Duration::from_secs(90);
/// Where the store says in whose term a mesh was last written.
const FENCE: &str = "fairlead.dev/fence";

/// What is changed, and looked at.
struct World {
    home: Tenant,
    tenants: [Tenant; 2],
    changes: AtomicU64,
}

/// The version of each peer everywhere: another one if anybody wrote.
type Versions = BTreeMap<String, Option<String>>;

impl World {
    async fn set() -> Result<Self, Cannot> {
        let [east, west] = TENANTS;
        let (home, east, west) = futures::join!(
            Tenant::start("home", 1),
            Tenant::start(east, 2),
            Tenant::start(west, 3)
        );
        objects::install(home.client.clone(), soon()).await?;
        home.make_namespace().await?;
        let world = Self { home, tenants: [east, west], changes: AtomicU64::new(0) };
        for cluster in world.clusters() {
            cluster.teach().await?;
            for i in 1..=FIRST {
                cluster.add_node(i).await?;
            }
        }
        Ok(world)
    }

    fn clusters(&self) -> [&Tenant; 3] {
        let [east, west] = &self.tenants;
        [&self.home, east, west]
    }

    /// Nodes change until the task ends.
    async fn change(self: Arc<Self>, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        loop {
            let (cluster, i) = (random.usize(..3), random.usize(1..=MOST));
            // One that failed is made good by another: what is there is looked at first.
            if self.change_one(self.clusters()[cluster], i, &mut random).await.is_ok() {
                self.changes.fetch_add(1, Relaxed);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn change_one(
        &self,
        cluster: &Tenant,
        i: usize,
        random: &mut fastrand::Rng,
    ) -> Result<(), Cannot> {
        let nodes = cluster.nodes().await?;
        let name = format!("n{i:03}");
        let network = i + 10 * random.usize(..20);
        if !nodes.iter().any(|node| node.name_any() == name) {
            return cluster.add_node_with(i, network).await;
        }
        match random.u8(..3) {
            0 if nodes.len() > 1 => cluster.remove_node(i).await,
            // What a node has for its pods is never changed: it leaves, and comes back with another.
            1 => {
                cluster.remove_node(i).await?;
                cluster.add_node_with(i, network).await
            }
            _ => cluster.move_node(i, random.u16(50_000..60_000)).await,
        }
    }

    async fn versions(&self) -> Result<Versions, Cannot> {
        let mut all = Versions::new();
        for cluster in self.clusters() {
            let peers = cluster.peers().await.ok_or("peers cannot be listed")?;
            let version = |peer: &mesh::Peer| {
                (format!("{}/{}", cluster.name, peer.name_any()), peer.resource_version())
            };
            all.extend(peers.iter().map(version));
        }
        Ok(all)
    }

    /// A mesh as it is, what is still to be written in it, and whether it is said to be ready and is.
    async fn mesh(&self, objects: &Objects, number: usize) -> Result<Mesh, Cannot> {
        let id = Id::namespaced(NAMESPACE, TENANTS[number]);
        let mesh: ClusterMesh = objects.get(&id, soon()).await?.ok_or("the mesh is gone")?;
        let (plan, _) = planned(&mesh, [&self.home, &self.tenants[number]]).await?;
        let status = mesh.status.clone().unwrap_or_default();
        let is_ready = is_ready(&plan.status.conditions) && is_ready(&status.conditions);
        let fence = mesh.annotations().get(FENCE);
        let term = fence.and_then(|token| token.rsplit('/').next()?.parse().ok());
        let missing = plan.targets.iter().filter(|(_, plan)| !plan.is_empty());
        let missing = missing.map(|(target, plan)| {
            let (creates, updates) = (plan.creates.len(), plan.updates.len());
            let deletes = plan.deletes.len();
            format!("{target}: {creates} to create, {updates} to change, {deletes} to delete")
        });
        Ok(Mesh { missing: missing.collect(), is_ready, term })
    }
}

struct Mesh {
    missing: Vec<String>,
    is_ready: bool,
    term: Option<i64>,
}

/// The controller, on threads of its own.
struct Controller {
    runtime: Runtime,
    _replica: Replica,
}

impl Controller {
    fn start(world: &World, dir: &Path) -> Result<Self, Cannot> {
        let runtime = Runtime::new()?;
        let replica = runtime.block_on(async {
            let objects = Objects::kubernetes(world.home.server.client().await, "fairlead");
            Replica::start(&world.home, &objects, dir, &Tasks::new("replica"))
        })?;
        Ok(Self { runtime, _replica: replica })
    }

    /// Whatever it was about to do is not done.
    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

pub(super) fn play(stage: &Stage<'_>, drive: &mut Drive<'_>) -> Ran {
    let runtime = Runtime::new()?;
    let dir = stage.soak.dir.join("mesh");
    let world = Arc::new(runtime.block_on(World::set())?);
    let objects = Objects::kubernetes(world.home.client.clone(), "soak");
    let proxies = world.tenants.each_ref().map(|tenant| Proxy::start(tenant.server.address()));
    let ways = [0, 1].map(|number| {
        let access = world.tenants[number].server.through(&proxies[number]);
        access.kubeconfig().to_owned()
    });
    for (tenant, kubeconfig) in world.tenants.iter().zip(&ways) {
        runtime.block_on(async {
            objects.apply(&secret(tenant.name, kubeconfig), Expected::Any, soon()).await?;
            let mesh = joined(tenant.name, &world.home, tenant)?;
            objects.apply(&mesh, Expected::Any, soon()).await?;
            Ok::<_, Cannot>(())
        })?;
    }
    let controller = Some(Controller::start(&world, &dir)?);
    let now = Instant::now();
    let mut job = Job {
        runtime: &runtime,
        world: Arc::clone(&world),
        objects,
        proxies,
        ways,
        dir,
        controller,
        tasks: Tasks::new("mesh"),
        away: None,
        watch: Watch::new(now),
        looked: now,
        orphaned: None,
    };
    if let [first, ..] = &job.settle(now + BEGIN)[..] {
        return Err(first.clone().into());
    }
    let stop = job.tasks.stopping();
    let changing = Arc::clone(&world).change(stage.soak.seed);
    let entered = runtime.enter();
    job.tasks.spawn("changes", async move {
        stop.bound(changing).await;
    });
    drop(entered);
    job.watch = Watch::new(Instant::now());
    let driven = drive(&mut job);
    if let Some(controller) = job.controller.take() {
        controller.kill();
    }
    job.tasks.stop("the soak is over");
    driven
}

struct Job<'a> {
    runtime: &'a Runtime,
    world: Arc<World>,
    objects: Objects,
    /// The controller's ways to the tenants,
    proxies: [Proxy; 2],
    /// and the kubeconfigs that lead there.
    ways: [String; 2],
    dir: PathBuf,
    /// None only while it is replaced.
    controller: Option<Controller>,
    /// What changes nodes.
    tasks: Tasks,
    /// The tenant that is away.
    away: Option<usize>,
    watch: Watch,
    looked: Instant,
    orphaned: Option<Orphaned>,
}

/// Nobody leads.
struct Orphaned {
    since: Instant,
    /// How many terms there had been.
    terms: i64,
    /// Once all has landed.
    versions: Option<Versions>,
}

/// What was seen of the two meshes, over time.
struct Watch {
    /// When each was last as planned, or need not have been.
    followed: [Instant; 2],
    /// Until when each need not be.
    excused: [Instant; 2],
    /// In which each was last written.
    terms: [i64; 2],
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self { followed: [now; 2], excused: [now; 2], terms: [0; 2] }
    }

    /// What does not hold of a mesh.
    fn saw(&mut self, number: usize, mesh: &Mesh, now: Instant) -> Vec<String> {
        let mut broken = Vec::new();
        let (name, term) = (TENANTS[number], mesh.term.unwrap_or(self.terms[number]));
        if term < self.terms[number] {
            let last = self.terms[number];
            broken.push(format!("mesh {name} was written in term {term}, after term {last}"));
        }
        self.terms[number] = term;
        let followed = &mut self.followed[number];
        if mesh.missing.is_empty() || now < self.excused[number] {
            *followed = now;
        } else if now > *followed + FOLLOW {
            // Once for each time.
            *followed = now;
            let missing = mesh.missing.join("; ");
            broken.push(format!("peers do not follow in mesh {name}: {missing}"));
        }
        broken
    }
}

impl Work for Job<'_> {
    fn begin(&mut self, planned: &Planned) -> Ran {
        let victim = (planned.pick % 2) as usize;
        match planned.fault {
            Fault::MeshKill => {
                let terms = self.runtime.block_on(terms(&self.world.home))?;
                if let Some(controller) = self.controller.take() {
                    controller.kill();
                }
                self.orphaned = Some(Orphaned { since: Instant::now(), terms, versions: None });
                self.controller = Some(Controller::start(&self.world, &self.dir)?);
            }
            Fault::MeshRotate => {
                let rotated = otherwise(&self.ways[victim])?;
                let secret = secret(TENANTS[victim], &rotated);
                self.runtime.block_on(self.objects.apply(&secret, Expected::Any, soon()))?;
                self.ways[victim] = rotated;
            }
            _ => {
                self.proxies[victim].inject(Broken::BlackHole);
                self.away = Some(victim);
            }
        }
        Ok(())
    }

    fn end(&mut self, _: &Planned) -> Ran {
        if let Some(away) = self.away.take() {
            self.proxies[away].heal();
            self.watch.excused[away] = Instant::now() + RECOVERY;
        }
        Ok(())
    }

    fn check(&mut self) -> Vec<String> {
        if self.looked.elapsed() < LOOK {
            return Vec::new();
        }
        self.looked = Instant::now();
        let runtime = self.runtime;
        let looked = runtime.block_on(async { Deadline::after(LOOKED).bound(self.look()).await });
        // A look that failed is made good by the next; if none succeeds, nothing follows.
        looked.map_or_else(|_| Vec::new(), Result::unwrap_or_default)
    }

    fn load(&self) -> u64 {
        self.world.changes.load(Relaxed)
    }

    fn finish(&mut self, until: Instant) -> Vec<String> {
        self.tasks.stop("the load ends");
        self.settle(until)
    }
}

impl Job<'_> {
    async fn look(&mut self) -> Result<Vec<String>, Cannot> {
        let mut broken = Vec::new();
        if let Some(away) = self.away {
            self.watch.excused[away] = Instant::now() + LOOKED;
        }
        for number in [0, 1] {
            let mesh = self.world.mesh(&self.objects, number).await?;
            broken.extend(self.watch.saw(number, &mesh, Instant::now()));
        }
        if self.orphaned.as_ref().is_some_and(|orphaned| orphaned.since.elapsed() > LANDED) {
            broken.extend(self.look_at_orphans().await?);
        }
        Ok(broken)
    }

    /// Peers that were written while nobody led.
    async fn look_at_orphans(&mut self) -> Result<Option<String>, Cannot> {
        let Some(orphaned) = &mut self.orphaned else { return Ok(None) };
        let versions = self.world.versions().await?;
        // After that look: who leads by then may have written before it.
        if terms(&self.world.home).await? > orphaned.terms {
            self.orphaned = None;
            return Ok(None);
        }
        let before = orphaned.versions.get_or_insert_with(|| versions.clone());
        let same =
            |(name, version): &(&String, &Option<String>)| before.get(*name) == Some(*version);
        let other = versions.iter().find(|entry| !same(entry)).map(|(name, _)| name);
        let gone = before.keys().find(|name| !versions.contains_key(*name));
        let written = other.or(gone);
        Ok(written.map(|name| format!("the peer {name} was written while nobody led")))
    }

    /// Waits until all is as planned, and said to be; tells what is not by then.
    fn settle(&self, until: Instant) -> Vec<String> {
        loop {
            let wrong = self.wrong();
            if wrong.is_empty() || Instant::now() > until {
                return wrong;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn wrong(&self) -> Vec<String> {
        let of = |number: usize| {
            let mesh = self.runtime.block_on(self.world.mesh(&self.objects, number));
            let name = TENANTS[number];
            match mesh {
                Ok(mesh) if !mesh.missing.is_empty() => {
                    Some(format!("mesh {name} is not as planned: {}", mesh.missing.join("; ")))
                }
                Ok(mesh) if !mesh.is_ready => Some(format!("mesh {name} is not said to be ready")),
                Ok(_) => None,
                Err(error) => Some(format!("mesh {name}: {}", stallproof::sentence(&*error))),
            }
        };
        [0, 1].into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(missing: &[&str], term: i64) -> Mesh {
        let missing = missing.iter().map(|it| (*it).to_owned()).collect();
        Mesh { missing, is_ready: false, term: Some(term) }
    }

    #[test]
    fn a_mesh_that_is_never_as_planned_is_told_and_one_that_sometimes_is_is_not() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        let behind = mesh(&["home: 1 to create"], 1);
        for second in 0..60 {
            let at = now + Duration::from_secs(second);
            let seen = if second % 10 == 0 { mesh(&[], 1) } else { mesh(&["late"], 1) };
            assert_eq!(watch.saw(0, &seen, at), Vec::<String>::new());
            let told = watch.saw(1, &behind, at).len();
            assert_eq!(told, usize::from(second % 16 == 0 && second > 0), "after {second} s");
        }
    }

    #[test]
    fn a_mesh_whose_tenant_is_away_need_not_follow_and_must_again_afterwards() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.excused[0] = now + 2 * FOLLOW;
        let behind = mesh(&["home: 1 to create"], 1);
        assert!(watch.saw(0, &behind, now + 2 * FOLLOW - LOOK).is_empty());
        assert!(watch.saw(0, &behind, now + 3 * FOLLOW - LOOK).is_empty());
        assert_eq!(watch.saw(0, &behind, now + 3 * FOLLOW).len(), 1);
    }

    #[test]
    fn a_write_of_an_earlier_term_is_told() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        assert!(watch.saw(0, &mesh(&[], 1), now).is_empty());
        assert!(watch.saw(0, &mesh(&[], 3), now).is_empty());
        let told = watch.saw(0, &mesh(&[], 2), now);
        assert_eq!(told, ["mesh east was written in term 2, after term 3"]);
    }
}

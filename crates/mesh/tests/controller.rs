//! The controller on three real API servers: what may happen to a mesh, one thing after the other.
//! After each the peers are exactly the plan's, nothing was restarted, and a mesh beside it noticed
//! nothing.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "how long each thing took is worth reading")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use fleet::{Fleet, FleetConfig, InCluster};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use mesh::{Observation, Observed, Peer, controller, index, label, peer_crd, plan};
use objects::kinds::{ClusterMesh, JoinedCluster, MeshState};
use objects::{Election, Expected, Id, Objects, Timing};
use serde_json::{Value, json};
use stallproof::tasks::TaskHandle;
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Fault, KubeServer, Proxy};
use tokio::time::sleep;

const NAMESPACE: &str = "fairlead";
const PEERS: &str = "peers.kilo.squat.ai";
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Whatever is awaited here takes seconds; a machine that is busy with something else gets more.
const PATIENCE: Duration = Duration::from_secs(240);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// One that may lead, as a process has it.
struct Replica {
    tasks: Tasks,
    fleet: Fleet,
    election: TaskHandle<()>,
}

impl Replica {
    /// As a pod of the first server's cluster.
    fn start(name: &'static str, scene: &Scene) -> Self {
        let (tasks, objects) = (Tasks::new(name), &scene.objects);
        let config = FleetConfig {
            namespace: NAMESPACE.to_owned(),
            in_cluster: Some(InCluster {
                name: "in-cluster".to_owned(),
                host: scene.servers[0].address().ip().to_string(),
                port: scene.servers[0].address().port(),
                mounted: scene.mounted.path().to_owned(),
            }),
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config, objects.clone(), Ledger::default(), &tasks);
        let lease = Id::namespaced(NAMESPACE, "fairlead-controller");
        let timing = Timing::of(Duration::from_secs(3));
        let election = Election::new(objects.clone(), lease, name, timing);
        let (all, led, ledger) = (tasks.clone(), fleet.clone(), Ledger::default());
        let election = tasks.spawn("election", async move {
            election.run(&all, |leader| controller::start(&leader, &led, &ledger)).await;
        });
        Self { tasks, fleet, election }
    }

    /// As if the process had died: nothing is given back, nothing is ended in order.
    async fn kill(self) {
        self.election.abort();
        self.tasks.shutdown(Duration::ZERO).await;
    }
}

struct Scene {
    servers: [KubeServer; 3],
    clients: [Client; 3],
    proxy: Proxy,
    objects: Objects,
    /// What a kubelet mounts into a pod of the first cluster.
    mounted: tempfile::TempDir,
}

/// The `i`th cluster: its pods, its WireGuard addresses, and services that no node covers.
fn cluster(i: usize, reference: &Value) -> Value {
    let mut cluster = json!({
        "name": NAMES[i],
        "allowedNetworks": [format!("10.{i}.0.0/16"), format!("10.{}.0.0/16", 100 + i)],
    });
    cluster.as_object_mut().unwrap().extend(reference.as_object().unwrap().clone());
    cluster
}

fn mesh(name: &str, clusters: &[Value]) -> ClusterMesh {
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusters": clusters},
    }))
    .unwrap()
}

fn node(cluster: usize, i: usize) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": format!("n{i:03}"), "annotations": {
            "kilo.squat.ai/key": format!("key-{cluster}-{i}"),
            "kilo.squat.ai/wireguard-ip": format!("10.{cluster}.255.{i}/16"),
            "kilo.squat.ai/force-endpoint": format!("198.51.{cluster}.{i}:51820"),
        }},
        "spec": {"podCIDR": format!("10.{cluster}.{i}.0/24"), "podCIDRs": [format!("10.{cluster}.{i}.0/24")]},
    }))
    .unwrap()
}

fn secret(name: &str, kubeconfig: &str) -> Secret {
    let data = BTreeMap::from([("kubeconfig".to_owned(), kubeconfig.to_owned())]);
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.into_iter().map(|(k, v)| (k, k8s_openapi::ByteString(v.into_bytes()))).collect(),
        ),
        ..Secret::default()
    }
}

impl Scene {
    async fn new() -> Self {
        let servers: [KubeServer; 3] =
            futures::future::join_all((0..3).map(|_| KubeServer::start()))
                .await
                .try_into()
                .unwrap();
        let clients: [Client; 3] =
            futures::future::join_all(servers.iter().map(KubeServer::client))
                .await
                .try_into()
                .unwrap_or_else(|_| panic!());
        objects::install(clients[0].clone(), soon()).await.unwrap();
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(clients[0].clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let proxy = Proxy::start(servers[2].address());
        let objects = Objects::kubernetes(clients[0].clone(), "fairlead");
        let mounted = tempfile::tempdir().unwrap();
        let kubeconfig: Value = serde_json::from_str(servers[0].access().kubeconfig()).unwrap();
        let ca = kubeconfig.pointer("/clusters/0/cluster/certificate-authority-data").unwrap();
        let ca = base64::prelude::BASE64_STANDARD.decode(ca.as_str().unwrap()).unwrap();
        std::fs::write(mounted.path().join("ca.crt"), ca).unwrap();
        std::fs::write(mounted.path().join("token"), servers[0].token()).unwrap();
        Self { servers, clients, proxy, objects, mounted }
    }

    fn definitions(&self, cluster: usize) -> Api<CustomResourceDefinition> {
        Api::all(self.clients[cluster].clone())
    }

    async fn teach(&self, cluster: usize) {
        let params = PatchParams::apply("kilo");
        let patch = Patch::Apply(peer_crd());
        self.definitions(cluster).patch(PEERS, &params, &patch).await.unwrap();
    }

    async fn add_node(&self, cluster: usize, i: usize) {
        let api = Api::<Node>::all(self.clients[cluster].clone());
        api.create(&PostParams::default(), &node(cluster, i)).await.unwrap();
    }

    async fn remove_node(&self, cluster: usize, i: usize) {
        let api = Api::<Node>::all(self.clients[cluster].clone());
        api.delete(&format!("n{i:03}"), &DeleteParams::default()).await.unwrap();
    }

    async fn write(&self, mesh: &ClusterMesh) {
        self.objects.apply(mesh, Expected::Any, soon()).await.unwrap();
    }

    async fn read(&self, mesh: &str) -> Option<ClusterMesh> {
        self.objects.get(&Id::namespaced(NAMESPACE, mesh), soon()).await.unwrap()
    }

    async fn peers(&self, cluster: usize) -> Option<Vec<Peer>> {
        let api = Api::<Peer>::all(self.clients[cluster].clone());
        Some(api.list(&ListParams::default()).await.ok()?.items)
    }

    /// What these clusters really have, read past the controller.
    async fn observe(&self, clusters: &[usize]) -> BTreeMap<String, Observation> {
        let mut observations = BTreeMap::new();
        for i in clusters {
            let nodes = Api::<Node>::all(self.clients[*i].clone());
            let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
            let peers = match self.peers(*i).await {
                Some(peers) => Observed::Known(peers.into_iter().collect()),
                None => Observed::Waiting("the Peer CRD".to_owned()),
            };
            let nodes = Observed::Known(index(nodes));
            observations.insert(NAMES[*i].to_owned(), Observation { nodes, peers });
        }
        observations
    }

    /// Waits until these clusters have exactly what the plan of what is there says, and the status says
    /// so, if it is about all there are; tells how long that took since `began`.
    async fn exact(&self, name: &str, seen: &[usize], began: Instant, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut written = None;
        loop {
            let mesh = self.read(name).await.unwrap();
            let planned = plan(&mesh, &[], &self.observe(seen).await);
            if planned.is_empty() {
                written.get_or_insert_with(|| began.elapsed());
            } else {
                written = None;
            }
            let all = seen.len() == mesh.spec.clusters.len();
            let status = mesh.status.clone().unwrap_or_default();
            let ready = status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
            let truth =
                planned.status.conditions.iter().any(|c| c.r#type == "Ready" && c.status == "True");
            // Never: ready with a peer missing. What is read here is later than the status.
            if let Some(written) = written
                && (!all || (ready && truth))
            {
                println!(
                    "{what}: last write seen after {written:?}, said after {:?}",
                    began.elapsed()
                );
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: not converged: {planned:#?}\n{:#?}",
                mesh.status
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until it is as many; says how many it is then.
    async fn until<F: Future<Output = usize>>(&self, count: impl Fn() -> F, least: usize) -> usize {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = count().await;
            if found >= least {
                return found;
            }
            assert!(Instant::now() < deadline, "{found} of {least}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the status of a cluster of the mesh is what is expected.
    async fn says(&self, mesh: &str, cluster: &str, state: MeshState, why: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.read(mesh).await.unwrap().status.unwrap_or_default();
            let found = found.clusters.into_iter().find(|c| c.name == cluster);
            let right = found.as_ref().is_some_and(|c| {
                c.state == state && c.why.as_deref().unwrap_or_default().contains(why)
            });
            if right {
                return;
            }
            assert!(Instant::now() < deadline, "{cluster} is not {state:?} {why:?}: {found:#?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// What a mesh that nothing happens to must keep: its peers, to the version, and its status.
    async fn still(&self, mesh: &str) -> Value {
        let mut peers = Vec::new();
        for i in 0..3 {
            let found = self.peers(i).await.unwrap_or_default();
            let of_mesh = |peer: &&Peer| peer.labels().get(label::MESH).is_some_and(|m| m == mesh);
            peers
                .extend(found.iter().filter(of_mesh).map(|p| (p.name_any(), p.resource_version())));
        }
        json!({"peers": peers, "status": self.read(mesh).await.unwrap().status})
    }
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_mesh_converges_whatever_comes_late_changes_or_dies() {
        testkit::requires!(kube);
        let scene = Scene::new().await;
        for i in [0, 1] {
            scene.teach(i).await;
            for n in 1..=2 {
                scene.add_node(i, n).await;
            }
        }
        let one = Replica::start("one", &scene);
        let kubeconfig = scene.servers[1].access().kubeconfig();
        one.fleet.import("b", kubeconfig, None, soon()).await.unwrap();
        let (a, b) = (cluster(0, &json!({"local": true})), cluster(1, &json!({"clusterRef": "b"})));
        let c = cluster(2, &json!({"kubeconfigSecretRef": {"name": "c"}}));

        // A mesh beside the one that things happen to, of other networks of the same clusters.
        let began = Instant::now();
        let beside = mesh("beside", &[a.clone(), b.clone()]);
        scene.write(&beside).await;
        scene
            .exact("beside", &[0, 1], began, "two clusters, from the first candidate's first look")
            .await;

        let began = Instant::now();
        let three = mesh("three", &[a.clone(), b.clone(), c]);
        scene.write(&three).await;
        scene.says("three", "c", MeshState::Waiting, "Secret fairlead/c").await;
        scene.exact("three", &[0, 1], began, "a third cluster whose Secret is not there").await;
        let before = scene.still("beside").await;

        let began = Instant::now();
        let through = scene.servers[2].through(&scene.proxy);
        scene
            .objects
            .apply(&secret("c", through.kubeconfig()), Expected::Any, soon())
            .await
            .unwrap();
        scene.says("three", "c", MeshState::Waiting, "the Peer CRD").await;
        println!("late Secret: connected and asked after {:?}", began.elapsed());

        let began = Instant::now();
        scene.teach(2).await;
        scene.says("three", "c", MeshState::Waiting, "nodes").await;
        let there = scene.peers(2).await.unwrap();
        println!("late CRD: noticed after {:?}, {} peers", began.elapsed(), there.len());

        let began = Instant::now();
        scene.add_node(2, 1).await;
        scene.exact("three", &[0, 1, 2], began, "late node, and all of it").await;
        assert!(scene.peers(2).await.unwrap().len() == 4);

        let began = Instant::now();
        scene.add_node(2, 2).await;
        scene.exact("three", &[0, 1, 2], began, "another node").await;
        let began = Instant::now();
        scene.remove_node(2, 1).await;
        scene.exact("three", &[0, 1, 2], began, "a node is gone, which carried the services").await;

        // Other credentials and another address. The address before is cut off at the same moment.
        let straight = scene.servers[2].access().kubeconfig();
        let rotated = straight
            .replace(r#""current-context": "certificate""#, r#""current-context": "token""#);
        assert_ne!(straight, rotated);
        scene.objects.apply(&secret("c", &rotated), Expected::Any, soon()).await.unwrap();
        scene.proxy.inject(Fault::BlackHole);
        let began = Instant::now();
        scene.add_node(2, 3).await;
        scene.exact("three", &[0, 1, 2], began, "rotated Secret, then a node").await;
        scene.proxy.heal();
        let back = secret("c", through.kubeconfig());
        scene.objects.apply(&back, Expected::Any, soon()).await.unwrap();
        let began = Instant::now();
        scene.remove_node(2, 3).await;
        scene.exact("three", &[0, 1, 2], began, "rotated back, then the node is gone").await;
        assert_eq!(scene.still("beside").await, before, "a mesh beside it noticed");

        black_hole(&scene).await;
        let after = scene.still("beside").await;
        let events = Api::<Event>::namespaced(scene.clients[0].clone(), NAMESPACE);
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
        assert!(
            reasons.contains(&"Converged") && reasons.contains(&"ClusterUnreachable"),
            "{reasons:?}"
        );

        // The leader dies while it writes; another takes over.
        let two = Replica::start("two", &scene);
        scene.proxy.inject(Fault::Delay(Duration::from_millis(300)));
        let had = scene.peers(2).await.unwrap().len();
        for n in 10..50 {
            scene.add_node(1, n).await;
        }
        let written = scene.until(|| async { scene.peers(2).await.unwrap().len() - had }, 4).await;
        // No write of the dying leader arrives from here on, however late it is killed.
        scene.proxy.inject(Fault::BlackHole);
        one.kill().await;
        let began = Instant::now();
        let left = scene.peers(2).await.unwrap().len() - had;
        println!("leader killed with {written} of 40 peers written, {left} when it is dead");
        assert!(left < 40, "it was not killed while it wrote");
        scene.proxy.heal();
        scene.exact("three", &[0, 1, 2], began, "leader killed mid-apply").await;
        scene.exact("beside", &[0, 1], began, "leader killed mid-apply, the mesh beside it").await;
        // Whoever leads: what is as it should be is left as it is.
        let now = scene.still("beside").await;
        let now = now["peers"].as_array().unwrap();
        assert!(after["peers"].as_array().unwrap().iter().all(|peer| now.contains(peer)));

        leave(&scene, &three, &[a.clone(), b.clone()]).await;
        two.tasks.shutdown(Duration::from_secs(10)).await;
    }

    /// A minute in which a cluster does not answer: the others go on, and it catches up afterwards.
    async fn black_hole(scene: &Scene) {
        scene.exact("three", &[0, 1, 2], Instant::now(), "before the black hole").await;
        scene.proxy.inject(Fault::BlackHole);
        let silent = Instant::now();
        scene.add_node(1, 7).await;
        scene.exact("three", &[0, 1], silent, "black hole: a node of another cluster").await;
        scene.says("three", "c", MeshState::Unreachable, "").await;
        println!("black hole: said after {:?}", silent.elapsed());
        let began = Instant::now();
        scene.remove_node(1, 7).await;
        scene.exact("three", &[0, 1], began, "black hole: and it is gone again").await;
        let began = Instant::now();
        scene.add_node(1, 8).await;
        scene.exact("three", &[0, 1], began, "black hole: another node").await;
        // It lasts longer than every timeout that is under way. What is awaited below does not depend on it.
        sleep(Duration::from_secs(60).saturating_sub(silent.elapsed())).await;
        scene.proxy.heal();
        let began = Instant::now();
        scene.exact("three", &[0, 1, 2], began, "black hole: back").await;
        // As it was, for the mesh beside it.
        scene.remove_node(1, 8).await;
        scene.exact("three", &[0, 1, 2], Instant::now(), "after the black hole").await;
        scene.exact("beside", &[0, 1], Instant::now(), "the mesh beside it").await;
    }

    /// A cluster leaves while it is away, and is cleared when it is back; a mesh goes, and is held up
    /// by a cluster until a person gives that up.
    async fn leave(scene: &Scene, three: &ClusterMesh, rest: &[Value]) {
        scene.proxy.inject(Fault::BlackHole);
        let began = Instant::now();
        scene.write(&mesh("three", rest)).await;
        scene.exact("three", &[0, 1], began, "a cluster leaves that is away").await;
        // Peers are written first, the status after them.
        let leaves = |joined: &&JoinedCluster| joined.name == "c" && joined.leaving.is_some();
        let waits = || async {
            scene.read("three").await.unwrap().status.unwrap().joined.iter().filter(leaves).count()
        };
        scene.until(waits, 1).await;
        assert!(!scene.peers(2).await.unwrap().is_empty());
        scene.proxy.heal();
        let began = Instant::now();
        let deadline = began + PATIENCE;
        while !scene.peers(2).await.unwrap().is_empty() {
            assert!(Instant::now() < deadline, "{:#?}", scene.read("three").await.unwrap().status);
            sleep(Duration::from_millis(100)).await;
        }
        println!("a cluster that left is cleared {:?} after it is back", began.elapsed());

        // It comes back without the CRD, to a mesh that installs it.
        scene.definitions(2).delete(PEERS, &DeleteParams::default()).await.unwrap();
        scene.until(|| async { usize::from(scene.peers(2).await.is_none()) }, 1).await;
        let mut installing = three.clone();
        installing.spec.install_crds = true;
        let began = Instant::now();
        scene.write(&installing).await;
        scene.exact("three", &[0, 1, 2], began, "it joins again, and is taught the CRD").await;
        scene.proxy.inject(Fault::BlackHole);
        scene.says("three", "c", MeshState::Unreachable, "").await;
        let id = Id::namespaced(NAMESPACE, "three");
        scene.objects.delete::<ClusterMesh>(&id, Expected::Any, soon()).await.unwrap();
        let began = Instant::now();
        let deadline = began + PATIENCE;
        loop {
            let status = scene.read("three").await.unwrap().status.unwrap();
            let ready = status.conditions.iter().find(|c| c.r#type == "Ready").unwrap();
            if ready.reason == "Deleting" && ready.message.starts_with("peers are left in c:") {
                break;
            }
            assert!(Instant::now() < deadline, "{status:#?}");
            sleep(Duration::from_millis(100)).await;
        }
        println!("a mesh that goes says what it waits for after {:?}", began.elapsed());
        let mut gone = scene.read("three").await.unwrap();
        gone.annotations_mut().insert(controller::FORGET.to_owned(), "c".to_owned());
        scene.write(&gone).await;
        while scene.read("three").await.is_some() {
            assert!(Instant::now() < deadline, "{:#?}", scene.read("three").await);
            sleep(Duration::from_millis(100)).await;
        }
        scene.exact("beside", &[0, 1], Instant::now(), "the mesh beside it, which is left").await;
        let of_three = |peer: &Peer| peer.labels().get(label::MESH).is_some_and(|m| m == "three");
        for i in [0, 1] {
            assert!(!scene.peers(i).await.unwrap().iter().any(of_three));
        }
        scene.proxy.heal();
    }
}

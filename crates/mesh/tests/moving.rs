//! Clusters of a mesh are moved from Kilo's data plane to ours and back, by edits of its spec, under a steady
//! flow of packets: three API servers, the controller, an agent in each cluster.
//!
//! Kilo itself is not here. What it does on a node for the `Peer`s that the controller writes is done as its
//! source says (squat/kilo, pkg/mesh/routes.go and pkg/route/route.go): a WireGuard interface with an
//! address, a peer for each `Peer`, and for each of its networks a route of the main table with protocol
//! `static` and no metric, by replacing what is there. The interface is Debian's wireguard-go.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "what was lost, and how long it took, is worth reading")]

mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kernel::netns::Namespace;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use mesh::{Peer, peer_crd};
use objects::kinds::{ClusterMesh, ClusterMeshStatus, DataPlane, WireguardPeer};
use objects::{Expected, Id, Objects};
use serde_json::{Value, json};
use stage::{NAMESPACE, eventually, lead, run, soon};
use stallproof::{Ledger, Tasks};
use testkit::{Host, KubeServer, Sandbox};
use wireguard::agent::{self, AgentConfig};
use wireguard::{Implementation, PrivateKey, TunnelConfig};

const NAMES: [&str; 3] = ["a", "b", "c"];
const PORT: u16 = 51821;
const KILO_PORT: u16 = 51820;

/// A cluster of one node, with Kilo's interface and our agent.
struct Cluster {
    name: &'static str,
    server: KubeServer,
    client: Client,
    host: Host,
    namespace: Arc<Namespace>,
    pod: IpAddr,
    kilo: Child,
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start(sandbox: &Sandbox, router: &Host, i: usize, tasks: &Tasks) -> Self {
        let (name, server) = (NAMES[i], KubeServer::start().await);
        let client = server.client().await;
        objects::install(client.clone(), soon()).await.unwrap();
        let crd = serde_json::from_value(peer_crd()).unwrap();
        let crds: Api<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition> =
            Api::all(client.clone());
        crds.create(&PostParams::default(), &crd).await.unwrap();
        let host = sandbox.host(name);
        let (here, there) = (format!("192.0.2.{}", 4 * i + 1), format!("192.0.2.{}", 4 * i + 2));
        sandbox.link((&host, &format!("{here}/30")), (router, &format!("{there}/30")));
        let pod = IpAddr::from([10, u8::try_from(i).unwrap(), 7, 1]);
        let kilo_name = kilo_name(name);
        let key = PrivateKey::generate().unwrap();
        let mut command = host.command("wireguard-go");
        command.args(["-f", &kilo_name]).env("LOG_LEVEL", "error");
        let kilo = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let socket = format!("/var/run/wireguard/{kilo_name}.sock");
        eventually("wireguard-go listens", || async { std::fs::exists(&socket).unwrap() }).await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), key.to_base64()).unwrap();
        let (path, port) = (file.path().to_str().unwrap(), KILO_PORT.to_string());
        run(Command::new("wg").args([
            "set",
            &kilo_name,
            "private-key",
            path,
            "listen-port",
            &port,
        ]));
        let own = format!("10.{i}.255.1");
        let pod_address = format!("{pod}/32");
        for args in [
            &["route", "add", "default", "via", &there][..],
            &["address", "add", &pod_address, "dev", "lo"],
            &["address", "add", &format!("{own}/32"), "dev", &kilo_name],
            &["link", "set", "up", "dev", &kilo_name, "mtu", "1420"],
        ] {
            run(host.command("ip").args(args));
        }
        // As systemd sets it: loose.
        run(host.command("sysctl").args(["-q", "-w", "net.ipv4.conf.all.rp_filter=2"]));
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {
                "kilo.squat.ai/key": key.public().to_string(),
                "kilo.squat.ai/wireguard-ip": format!("{own}/16"),
                "kilo.squat.ai/force-endpoint": format!("{here}:{KILO_PORT}"),
                "fairlead.dev/wireguard-endpoint": format!("{here}:{PORT}"),
            }},
            "spec": {"podCIDR": format!("10.{i}.7.0/24"), "podCIDRs": [format!("10.{i}.7.0/24")]},
        }))
        .unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let (dir, namespace) =
            (tempfile::tempdir().unwrap(), Arc::new(Namespace::open(host.netns()).unwrap()));
        let config = AgentConfig {
            node: name.to_owned(),
            keys: dir.path().join("keys"),
            tunnel: TunnelConfig {
                implementation: Some(Implementation::Userspace),
                socket_directory: dir.path().to_owned(),
                probes: true,
                ..TunnelConfig::new(format!("f{name}{}", std::process::id()), PORT)
            },
            key_lifetime: None,
            announce: Duration::from_secs(5),
            preshared_keys: None,
            mesh: true,
            cluster: None,
        };
        let objects = Objects::kubernetes(client.clone(), "fairlead-agent");
        let own = tasks.child(name);
        agent::start(config, Arc::clone(&namespace), objects, &Ledger::default(), &own);
        Self { name, server, client, host, namespace, pod, kilo, _dir: dir }
    }

    async fn kilo_peers(&self) -> BTreeMap<String, Peer> {
        let api: Api<Peer> = Api::all_with(self.client.clone(), &DataPlane::Kilo);
        let all = api.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().map(|peer| (peer.name_any(), peer)).collect()
    }

    async fn own_peers(&self) -> Vec<WireguardPeer> {
        Api::all(self.client.clone()).list(&ListParams::default()).await.unwrap().items
    }

    /// The interface by which packets for another cluster leave.
    fn leaves_by(&self, other: &Self) -> &'static str {
        let shown = run(self.host.command("ip").args(["route", "get", &other.pod.to_string()]));
        match shown.contains(&kilo_name(self.name)) {
            true => "kilo",
            false if shown.contains(&format!("dev f{}", self.name)) => "ours",
            false => "neither",
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.kilo.kill();
        let _ = self.kilo.wait();
        let _ = std::fs::remove_file(format!("/var/run/wireguard/{}.sock", kilo_name(self.name)));
    }
}

fn kilo_name(cluster: &str) -> String {
    format!("k{cluster}{}", std::process::id())
}

/// Does on a node what Kilo does for the peers of its cluster, until it is dropped.
async fn be_kilo(cluster: &Cluster) {
    let kilo = kilo_name(cluster.name);
    let mut known: BTreeMap<String, Peer> = BTreeMap::new();
    loop {
        let now = cluster.kilo_peers().await;
        for (name, peer) in &known {
            if now.get(name).map(|it| &it.spec) == Some(&peer.spec) {
                continue;
            }
            for network in &peer.spec.allowed_ips {
                let route = ["route", "del", network, "dev", &kilo, "proto", "static"];
                // As Kilo does: one that is not there any more needs no removal.
                let _ = cluster.host.command("ip").args(route).output().unwrap();
            }
            let key = &peer.spec.public_key;
            run(Command::new("wg").args(["set", &kilo, "peer", key, "remove"]));
        }
        for (name, peer) in &now {
            if known.get(name).map(|it| &it.spec) == Some(&peer.spec) {
                continue;
            }
            let spec = &peer.spec;
            let endpoint = spec.endpoint.as_ref().unwrap();
            let endpoint = format!("{}:{}", endpoint.dns_or_ip.ip.as_ref().unwrap(), endpoint.port);
            let networks = spec.allowed_ips.join(",");
            let keepalive = spec.persistent_keepalive.to_string();
            run(Command::new("wg")
                .args(["set", &kilo, "peer", &spec.public_key, "allowed-ips", &networks])
                .args(["endpoint", &endpoint, "persistent-keepalive", &keepalive]));
            for network in &spec.allowed_ips {
                let route = ["route", "replace", network, "dev", &kilo, "proto", "static"];
                run(cluster.host.command("ip").args(route));
            }
        }
        known = now;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// Twenty datagrams a second from one pod to another, which says them back.
struct Flow {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Vec<u64>)>,
    ends: String,
}

impl Flow {
    fn start(from: &Cluster, to: &Cluster) -> Self {
        let bind = |cluster: &Cluster| {
            let at: IpAddr = cluster.pod;
            cluster.namespace.run_in(|| UdpSocket::bind((at, 0))).unwrap().unwrap()
        };
        let (socket, echo) = (bind(from), bind(to));
        let at: SocketAddr = echo.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        thread::spawn(move || {
            let mut said = [0; 8];
            while let Ok((_, from)) = echo.recv_from(&mut said) {
                let _ = echo.send_to(&said, from);
            }
        });
        let ends = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            socket.set_nonblocking(true).unwrap();
            let (mut sent, mut answered) = (0u64, BTreeSet::new());
            let hear = |answered: &mut BTreeSet<u64>| {
                let mut said = [0; 8];
                while socket.recv_from(&mut said).is_ok() {
                    answered.insert(u64::from_ne_bytes(said));
                }
            };
            while !ends.load(Ordering::Relaxed) {
                // What is refused is lost.
                let _ = socket.send_to(&sent.to_ne_bytes(), at);
                sent += 1;
                thread::sleep(Duration::from_millis(50));
                hear(&mut answered);
            }
            let until = Instant::now() + Duration::from_secs(5);
            while (answered.len() as u64) < sent && Instant::now() < until {
                thread::sleep(Duration::from_millis(20));
                hear(&mut answered);
            }
            (sent, (0..sent).filter(|number| !answered.contains(number)).collect())
        });
        Self { stop, thread, ends: format!("{} to {}", from.name, to.name) }
    }

    fn stop(self) -> (String, u64, Vec<u64>) {
        self.stop.store(true, Ordering::Relaxed);
        let (sent, lost) = self.thread.join().unwrap();
        (self.ends, sent, lost)
    }
}

fn flows(pairs: &[(&Cluster, &Cluster)]) -> Vec<Flow> {
    pairs.iter().flat_map(|(a, b)| [Flow::start(a, b), Flow::start(b, a)]).collect()
}

/// A mesh of all three, of which these have our own data plane.
fn mesh(ours: &[&str]) -> ClusterMesh {
    let cluster = |(i, name): (usize, &&str)| {
        let mut entry = json!({
            "name": name, "kubeconfigSecretRef": {"name": name},
            "allowedNetworks": [format!("10.{i}.7.0/24"), format!("10.{i}.255.0/24")],
            "persistentKeepalive": 5,
        });
        if ours.contains(name) {
            entry["dataPlane"] = json!("wireguard");
        }
        entry
    };
    let clusters: Vec<Value> = NAMES.iter().enumerate().map(cluster).collect();
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": NAMESPACE},
        "spec": {"clusters": clusters},
    }))
    .unwrap()
}

async fn status(objects: &Objects) -> Option<ClusterMeshStatus> {
    let id = Id::namespaced(NAMESPACE, "m");
    objects.get::<ClusterMesh>(&id, soon()).await.unwrap()?.status
}

/// Gives these clusters our own data plane and the others Kilo's, and waits until the mesh is ready. Returns
/// what it said meanwhile.
async fn edit(objects: &Objects, ours: &[&str]) -> BTreeSet<String> {
    let id = Id::namespaced(NAMESPACE, "m");
    let mut edited = mesh(ours);
    if let Some(before) = objects.get::<ClusterMesh>(&id, soon()).await.unwrap() {
        edited.metadata = before.metadata;
    }
    let wanted = objects.apply(&edited, Expected::Any, soon()).await.unwrap();
    let generation = wanted.metadata.generation;
    let said = std::cell::RefCell::new(BTreeSet::new());
    eventually("the mesh is ready", || async {
        let Some(status) = status(objects).await else { return false };
        for why in status.clusters.iter().filter_map(|it| it.why.clone()) {
            if said.borrow_mut().insert(why.clone()) {
                println!("{ours:?}: {why}");
            }
        }
        let ready = status.conditions.iter().any(|it| it.r#type == "Ready" && it.status == "True");
        ready && status.observed_generation == generation
    })
    .await;
    said.into_inner()
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn clusters_move_from_kilo_and_back_one_after_the_other_and_nothing_is_lost() {
        testkit::requires!(kube, netns, tun, wireguard);
        let (sandbox, tasks) = (Sandbox::new(), Tasks::new("test"));
        let router = sandbox.host("r");
        run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
        let mut clusters = Vec::new();
        for i in 0..3 {
            clusters.push(Cluster::start(&sandbox, &router, i, &tasks).await);
        }
        let [a, b, c] = &clusters[..] else { panic!() };
        let kubeconfigs = clusters.iter().map(|it| it.server.access().kubeconfig());
        let kubeconfigs: Vec<_> = NAMES.into_iter().zip(kubeconfigs).collect();
        let objects = stage::store(&a.client, &kubeconfigs).await;
        lead(&objects, &tasks);
        let steps = async {
            edit(&objects, &[]).await;
            let pairs = [(a, b), (a, c), (b, c)];
            let by = |(one, another): &(&Cluster, &Cluster)| {
                (one.leaves_by(another), another.leaves_by(one))
            };
            let all_by = |how: &'static str| pairs.iter().all(|pair| by(pair) == (how, how));
            eventually("Kilo has its routes", || async { all_by("kilo") }).await;
            // The first packets wait for handshakes.
            let warm = flows(&pairs);
            tokio::time::sleep(Duration::from_secs(1)).await;
            for flow in warm {
                let (ends, sent, lost) = tokio::task::spawn_blocking(|| flow.stop()).await.unwrap();
                assert_eq!(lost, Vec::<u64>::new(), "{ends}: {sent} sent");
            }

            let (flows, began) = (flows(&pairs), Instant::now());
            // One alone changes nothing: between two clusters both must have it.
            edit(&objects, &["a"]).await;
            assert!(all_by("kilo"));
            let said = edit(&objects, &["a", "b"]).await;
            assert!(
                said.iter().any(|it| it.contains("a and b are moved to wireguard")),
                "{said:?}"
            );
            assert_eq!((by(&pairs[0]), by(&pairs[1])), (("ours", "ours"), ("kilo", "kilo")));
            let names: Vec<String> = a.kilo_peers().await.into_keys().collect();
            assert_eq!(names, ["m--c--c"], "Kilo's peers of the pair are gone");
            edit(&objects, &NAMES).await;
            assert!(all_by("ours"));
            for cluster in &clusters {
                assert!(cluster.kilo_peers().await.is_empty());
                let peers = cluster.own_peers().await;
                assert!(peers.len() == 2 && peers.iter().all(|it| it.spec.routing.is_always()));
            }
            let planes = status(&objects).await.unwrap().data_planes;
            assert_eq!(planes, [DataPlane::Wireguard]);
            let there = began.elapsed();

            // And back, in two steps.
            let said = edit(&objects, &["a", "b"]).await;
            assert!(said.iter().any(|it| it.contains("a and c are moved to kilo")), "{said:?}");
            assert_eq!((by(&pairs[0]), by(&pairs[1])), (("ours", "ours"), ("kilo", "kilo")));
            edit(&objects, &[]).await;
            assert!(all_by("kilo"));
            for cluster in &clusters {
                assert!(cluster.own_peers().await.is_empty());
            }
            assert_eq!(status(&objects).await.unwrap().data_planes, [DataPlane::Kilo]);
            let took = [there, began.elapsed().saturating_sub(there)].map(|it| it.as_secs_f64());
            let (mut all, mut lost) = (0, Vec::new());
            for flow in flows {
                let (ends, sent, missing) =
                    tokio::task::spawn_blocking(|| flow.stop()).await.unwrap();
                all += sent;
                lost.extend(missing.into_iter().map(|number| format!("{ends} #{number}")));
            }
            let missing = lost.len();
            println!(
                "{all} datagrams, {missing} lost; there {:.0} s, back {:.0} s",
                took[0], took[1]
            );
            assert_eq!(lost, Vec::<String>::new());
        };
        tokio::select! {
            () = steps => {}
            () = be_kilo(a) => {}
            () = be_kilo(b) => {}
            () = be_kilo(c) => {}
        }
        tasks.shutdown(Duration::from_secs(10)).await;
    }
}

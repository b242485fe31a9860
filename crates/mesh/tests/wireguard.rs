//! A mesh with our own data plane, end to end: three API servers, the controller, an agent in each
//! cluster, and packets between network namespaces.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stage;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kernel::netns::Namespace;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use objects::kinds::{AddressBlock, ClusterMesh, WireguardNode, WireguardPeer};
use objects::{Expected, Objects};
use serde_json::{Value, json};
use stage::{NAMESPACE, PATIENCE, eventually, lead, run, soon};
use stallproof::{Ledger, Snapshot, Tasks};
use testkit::{Host, KubeServer, Sandbox};
use wireguard::agent::{self, AgentConfig};
use wireguard::{Implementation, TunnelConfig, TunnelStatus};

const NAMES: [&str; 3] = ["a", "b", "c"];
const PORT: u16 = 51820;

/// One cluster: its API server, and its one node.
struct Cluster {
    server: KubeServer,
    client: Client,
    host: Host,
    namespace: Arc<Namespace>,
    status: Snapshot<Option<TunnelStatus>>,
    /// Where a pod of the node is.
    pod: IpAddr,
    _keys: tempfile::TempDir,
}

impl Cluster {
    /// The `i`th, behind a router. Its pods have 10.i.7.0/27: by its pod CIDR, or by a block that its
    /// agent claimed.
    async fn start(i: usize, sandbox: &Sandbox, router: &Host, tasks: &Tasks) -> Self {
        let server = KubeServer::start().await;
        let client = server.client().await;
        objects::install(client.clone(), soon()).await.unwrap();
        let host = sandbox.host(NAMES[i]);
        let (here, there) = (format!("192.0.2.{}", 4 * i + 1), format!("192.0.2.{}", 4 * i + 2));
        sandbox.link((&host, &format!("{here}/30")), (router, &format!("{there}/30")));
        run(host.command("ip").args(["route", "add", "192.0.2.0/24", "via", &there]));
        let pod = IpAddr::from([10, u8::try_from(i).unwrap(), 7, 1]);
        run(host.command("ip").args(["address", "add", &format!("{pod}/32"), "dev", "lo"]));

        let name = format!("node-{}", NAMES[i]);
        let blocks = i == 2;
        let pods = format!("10.{i}.7.0/27");
        // A pod CIDR beside blocks means nothing.
        let cidr = if blocks { "10.2.200.0/24" } else { &pods };
        let endpoint = format!("{here}:{PORT}");
        let node = json!({
            "metadata": {"name": name, "annotations": {
                "fairlead.dev/wireguard-endpoint": endpoint,
                // What a node says of keys by itself does not count.
                "wireguard.fairlead.dev/key": "b8a8LyxAlV0vKMcV8jcW5x7JG3l9Tss5g5WgqcSSOTk=",
            }},
            "spec": {"podCIDR": cidr, "podCIDRs": [cidr]},
        });
        let node: Node = serde_json::from_value(node).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        if blocks {
            let block: AddressBlock = serde_json::from_value(json!({
                "apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressBlock",
                "metadata": {"name": "default-0"},
                "spec": {"pool": "default", "index": 0, "node": name, "ipv4": pods},
            }))
            .unwrap();
            Api::all(client.clone()).create(&PostParams::default(), &block).await.unwrap();
        }

        let namespace = Arc::new(Namespace::open(host.netns()).unwrap());
        let keys = tempfile::tempdir().unwrap();
        let config = AgentConfig {
            node: name,
            keys: keys.path().join("keys"),
            tunnel: TunnelConfig {
                implementation: Some(Implementation::Userspace),
                socket_directory: keys.path().to_owned(),
                ..TunnelConfig::new(format!("fl{}{}", NAMES[i], std::process::id()), PORT)
            },
            // The second cluster's node changes its key all the time.
            key_lifetime: (i == 1).then_some(Duration::from_secs(5)),
            announce: Duration::from_secs(5),
            preshared_keys: None,
            mesh: true,
            cluster: None,
        };
        let objects = Objects::kubernetes(client.clone(), "fairlead-agent");
        let tasks = tasks.child(NAMES[i]);
        let status =
            agent::start(config, Arc::clone(&namespace), objects, &Ledger::default(), &tasks);
        Self { server, client, host, namespace, status, pod, _keys: keys }
    }

    async fn peers(&self) -> Vec<WireguardPeer> {
        Api::all(self.client.clone()).list(&ListParams::default()).await.unwrap().items
    }

    async fn key(&self) -> Option<String> {
        let all = Api::<WireguardNode>::all(self.client.clone());
        let all = all.list(&ListParams::default()).await.unwrap().items;
        all.first().map(|node| node.spec.public_key.clone())
    }

    fn echo(&self) -> SocketAddr {
        let pod = self.pod;
        let listener = self.namespace.run_in(|| TcpListener::bind((pod, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
                });
            }
        });
        at
    }

    /// A connection from this cluster's pod; none if it does not come about in a while.
    async fn connect(&self, to: SocketAddr) -> Option<TcpStream> {
        let namespace = Arc::clone(&self.namespace);
        let connecting =
            move || namespace.run_in(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)));
        let stream = tokio::task::spawn_blocking(connecting).await.unwrap().unwrap().ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Some(stream)
    }
}

async fn round_trip(stream: TcpStream, number: u64) -> TcpStream {
    let work = move || {
        let mut stream = stream;
        stream.write_all(&number.to_ne_bytes()).unwrap();
        let mut back = [0; 8];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(u64::from_ne_bytes(back), number);
        stream
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn mesh(clusters: &[usize]) -> ClusterMesh {
    let cluster = |i: &usize| {
        json!({"name": NAMES[*i], "kubeconfigSecretRef": {"name": NAMES[*i]},
               "allowedNetworks": [format!("10.{i}.0.0/16")], "persistentKeepalive": 5})
    };
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": NAMESPACE},
        "spec": {"dataPlane": "wireguard", "clusters": clusters.iter().map(cluster).collect::<Vec<Value>>()},
    }))
    .unwrap()
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn pods_of_three_clusters_reach_each_other_while_a_key_changes_and_a_cluster_leaves() {
        testkit::requires!(kube, netns, tun);
        let (sandbox, tasks) = (Sandbox::new(), Tasks::new("test"));
        let router = sandbox.host("r");
        run(router.command("sysctl").args(["-q", "-w", "net.ipv4.ip_forward=1"]));
        let mut clusters = Vec::new();
        for i in 0..3 {
            clusters.push(Cluster::start(i, &sandbox, &router, &tasks).await);
        }
        let [a, b, c] = &clusters[..] else { panic!() };
        let kubeconfigs = clusters.iter().map(|it| it.server.access().kubeconfig());
        let kubeconfigs: Vec<_> = NAMES.into_iter().zip(kubeconfigs).collect();
        let objects = stage::store(&a.client, &kubeconfigs).await;
        lead(&objects, &tasks);
        objects.apply(&mesh(&[0, 1, 2]), Expected::Any, soon()).await.unwrap();

        let echoes = [a.echo(), b.echo(), c.echo()];
        for (from, to) in [(a, 1), (b, 2), (c, 0)] {
            eventually("pods reach each other", || async {
                let Some(stream) = from.connect(echoes[to]).await else { return false };
                round_trip(stream, 7).await;
                true
            })
            .await;
        }
        // Each node is allowed what is its own, and nothing more.
        for peer in a.peers().await {
            let own = if peer.name_any().contains("--b--") { "10.1.7.0/27" } else { "10.2.7.0/27" };
            assert!(peer.spec.allowed_ips.contains(&own.to_owned()), "{peer:?}");
            assert!(!peer.spec.allowed_ips.contains(&"10.2.200.0/24".to_owned()), "{peer:?}");
        }
        let implementation = a.status.read(|status| status.as_ref().map(|it| it.implementation));
        assert_eq!(implementation, Some(Implementation::Userspace));

        // A connection to the node whose key changes outlives two changes.
        let mut stream = a.connect(echoes[1]).await.unwrap();
        for _ in 0..2 {
            let before = b.key().await.unwrap();
            let end = Instant::now() + PATIENCE;
            let mut number = 0;
            while b.key().await.as_ref() == Some(&before) {
                assert!(Instant::now() < end, "the key does not change");
                number += 1;
                stream = round_trip(stream, number).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            stream = round_trip(stream, 1).await;
        }

        // A cluster that leaves is forgotten by all others, and forgets them.
        objects.apply(&mesh(&[0, 1]), Expected::Any, soon()).await.unwrap();
        let of_c = || async {
            let peers = a.peers().await;
            let left = peers.iter().all(|peer| !peer.name_any().contains("--c--"));
            left && c.peers().await.is_empty()
        };
        eventually("the peers of the cluster that left are gone", of_c).await;
        eventually("so are its routes", || async {
            let routes =
                a.host.command("ip").args(["route", "show", "10.2.7.0/27"]).output().unwrap();
            routes.stdout.is_empty()
        })
        .await;
        round_trip(stream, 2).await;
        tasks.shutdown(Duration::from_secs(10)).await;
    }
}

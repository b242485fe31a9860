//! A second cluster, joined with the first by a mesh: a bare API server behind a proxy, whose nodes come and
//! go. The first cluster's peers must follow.

use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use kernel::netns::Namespace;
use serde_json::{Value, json};
use testkit::cluster::{Cluster, GATEWAY, POD_NETWORK};
use testkit::{Fault, KubeServer, Proxy};

use super::client::{Answer, Target};
use super::scope::{Ms, Part, Scope, now};
use super::{Cannot, Run};

/// After a node came or went, so long until the first cluster has it as a peer.
const FOLLOWED: Ms = 20_000;
const MOST_NODES: u8 = 8;

pub(super) struct SecondCluster {
    server: KubeServer,
    proxy: Proxy,
    target: Target,
    /// Where it is for pods of the first cluster.
    at: SocketAddr,
}

impl SecondCluster {
    /// Starts it, in reach of pods of `cluster`.
    pub(super) fn start(cluster: &Cluster) -> Result<Self, Cannot> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(KubeServer::start());
        let proxy = Proxy::start(server.address());
        let wire = Namespace::open(cluster.outside_netns())?;
        let at = relay(&wire, proxy.address())?;
        let target = super::stage::api(server.access().kubeconfig())?;
        Ok(Self { server, proxy, target, at })
    }

    /// Joins it with the first cluster.
    pub(super) fn join(&self, cluster: &Cluster) -> Result<(), Cannot> {
        let mut kubeconfig: Value = serde_json::from_str(self.server.access().kubeconfig())?;
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", self.at));
        kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = json!("localhost");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "second", "namespace": "fairlead" },
            "stringData": { "kubeconfig": kubeconfig.to_string() },
        });
        let mesh = json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
            "metadata": { "name": "soak", "namespace": "fairlead" },
            "spec": { "installCRDs": true, "clusters": [
                { "name": "first", "local": true, "allowedNetworks": [POD_NETWORK] },
                { "name": "second", "kubeconfigSecretRef": { "name": "second" },
                  "allowedNetworks": ["10.201.0.0/16"] },
            ] },
        });
        [secret, mesh].iter().for_each(|object| cluster.apply(&object.to_string()));
        Ok(())
    }

    /// No byte moves any more between the first cluster and this one.
    pub(super) fn go_dark(&self) {
        self.proxy.inject(Fault::BlackHole);
    }

    pub(super) fn come_back(&self) {
        self.proxy.heal();
    }
}

impl std::fmt::Debug for SecondCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecondCluster").field("server", &self.server.address()).finish()
    }
}

/// Listens on the wire, and carries connections to an address of this machine's loopback.
fn relay(wire: &Namespace, to: SocketAddr) -> Result<SocketAddr, Cannot> {
    let listener = wire.run_in(|| TcpListener::bind((GATEWAY, 0)))??;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for one in listener.incoming().map_while(Result::ok) {
            let Ok(other) = TcpStream::connect(to) else { continue };
            let _ = carry(&one, &other).and_then(|()| carry(&other, &one));
        }
    });
    Ok(address)
}

fn carry(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    Ok(())
}

/// The keys of the second cluster's nodes, and when they last changed.
#[derive(Debug)]
struct Wanted {
    keys: BTreeSet<String>,
    changed: Ms,
}

/// Why the first cluster's peers are not as they should be, if they are not.
fn wrong(wanted: &Wanted, peers: &BTreeSet<String>, at: Ms, scope: &Scope) -> Option<String> {
    let parts = [Part::Leading, Part::Api, Part::Second];
    let is_due = at > wanted.changed + FOLLOWED && !scope.excuses(&parts, wanted.changed, at);
    (is_due && wanted.keys != *peers).then(|| {
        let missing: Vec<_> = wanted.keys.difference(peers).collect();
        let more: Vec<_> = peers.difference(&wanted.keys).collect();
        format!(
            "peers of nodes that changed at {}: missing {missing:?}, too many {more:?} at {at}",
            wanted.changed
        )
    })
}

fn key(number: u8) -> String {
    format!("soak-key-{number}")
}

/// Nodes of the second cluster come and go, and the first cluster's peers are looked at.
pub(super) fn nodes(run: &Run<'_>) {
    let mut random = fastrand::Rng::with_seed(run.plan.seed);
    let mut wanted = Wanted { keys: BTreeSet::new(), changed: now() };
    let mut next = now();
    while !run.is_over() {
        if now() >= next {
            next = now() + random.u64(25_000..35_000);
            let number = random.u8(1..=MOST_NODES);
            if change(run, number, wanted.keys.contains(&key(number))) {
                if !wanted.keys.remove(&key(number)) {
                    wanted.keys.insert(key(number));
                }
                wanted.changed = now();
                run.did("nodes");
            }
        }
        let path = "/apis/kilo.squat.ai/v1alpha1/peers";
        let answer = run.stage.kube(("GET", path), None, Duration::from_secs(10));
        if let Some(list) = answer.ok() {
            let peers = list["items"].as_array().into_iter().flatten();
            let keys = peers.filter_map(|it| it["spec"]["publicKey"].as_str().map(str::to_owned));
            let wrong = wrong(&wanted, &keys.collect(), now(), &run.scope.lock());
            run.looked("peers");
            run.broken("peers", wrong);
        }
        run.sleep(3000);
    }
}

/// Makes a node, or removes it; says whether that was done.
fn change(run: &Run<'_>, number: u8, is_there: bool) -> bool {
    let (nodes, within) = ("/api/v1/nodes", Duration::from_secs(10));
    let second = &run.stage.second;
    let ask = |what: (&str, &str), body| run.stage.here.ask(&second.target, what, body, within);
    let pods = format!("10.201.{number}.0/24");
    let answer = if is_there {
        ask(("DELETE", &format!("{nodes}/n{number}")), None)
    } else {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": format!("n{number}"), "annotations": {
                "kilo.squat.ai/key": key(number),
                "kilo.squat.ai/wireguard-ip": format!("10.201.255.{number}/16"),
            } },
            "spec": { "podCIDR": pods, "podCIDRs": [pods] },
        });
        ask(("POST", nodes), Some(("application/json", node.to_string())))
    };
    matches!(answer, Answer::Said(200..=299, _))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_missing_or_too_many_is_found_unless_a_fault_explains_it() {
        let keys = |all: &[u8]| all.iter().map(|it| key(*it)).collect::<BTreeSet<_>>();
        let wanted = Wanted { keys: keys(&[1, 2]), changed: 1000 };
        let mut scope = Scope::default();
        assert_eq!(wrong(&wanted, &keys(&[1]), 5000, &scope), None, "it may take a while");
        assert_eq!(wrong(&wanted, &keys(&[1, 2]), 30_000, &scope), None);
        assert!(wrong(&wanted, &keys(&[1]), 30_000, &scope).unwrap().contains("soak-key-2"));
        assert!(wrong(&wanted, &keys(&[1, 2, 3]), 30_000, &scope).is_some());
        scope.open(&[Part::Second], 2000);
        assert_eq!(wrong(&wanted, &keys(&[1]), 30_000, &scope), None);
    }
}

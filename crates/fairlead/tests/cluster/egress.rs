//! Egress on a real cluster: pods choose it while they run and before they start, a server outside says by
//! which address it sees them, replicas fall silent and are killed, and the egress goes.
//!
//! The server keeps count of everything, by one clock: which of a client's lines came by which address, and
//! when.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use kernel::netns::Namespace;
use serde_json::{Value, json};

use crate::{SOON, Stage};

/// Not a private address: an egress to the world means it.
const WORLD: &str = "203.0.113.9";
const LINES: u16 = 7000;
/// How many connections the client keeps.
const KEPT: usize = 8;

const EGRESS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: { name: internet }
---
apiVersion: fairlead.dev/v1alpha1
kind: Egress
metadata: { name: nat, namespace: internet }
spec:
  destinations: [0.0.0.0/0]
  replicas: 2
  sessionAffinity: None
  podDisruptionBudget: { maxUnavailable: 1 }
  template:
    spec:
      topologySpreadConstraints:
      - { maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: { matchLabels: { fairlead.dev/egress: nat } } }
      containers: [{ name: egress, imagePullPolicy: Never }]
"#;

/// Keeps connections that say who they are, and then a letter every now and then; one that ends begins again.
fn client() -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{ name: caller, labels: {{ app: caller }} }}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: caller
    image: local/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, 'for i in $(seq {KEPT}); do (while :; do (echo $i; while sleep 0.2; do echo .; done) | nc {WORLD} {LINES} >/dev/null 2>&1; sleep 0.1; done) & done; wait']
"#
    )
}

/// Pods that chose before they began, and whose first deed is to connect.
const EAGER: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: { name: eager }
spec:
  completions: 6
  parallelism: 6
  backoffLimit: 20
  template:
    metadata: { labels: { app: eager }, annotations: { egress.coil.cybozu.com/internet: nat } }
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers:
      - name: eager
        image: local/busybox:1
        imagePullPolicy: Never
        command: [sh, -c, 'echo eager | nc -w 30 203.0.113.9 7000']
"#;

/// One connection, as the server saw it.
#[derive(Clone, Debug)]
struct Seen {
    who: String,
    from: IpAddr,
    began: Instant,
    last: Instant,
}

#[derive(Clone)]
struct World(Arc<Mutex<Vec<Seen>>>);

impl World {
    /// Listens outside the cluster, at an address that nodes reach by the wire.
    fn start(stage: &Stage) -> Self {
        let cluster = &stage.cluster;
        let run = |args: &[&str]| {
            assert!(cluster.outside("ip").args(args).status().unwrap().success(), "ip {args:?}");
        };
        run(&["address", "add", &format!("{WORLD}/32"), "dev", "wire0"]);
        for node in cluster.nodes() {
            let route = ["ip", "route", "replace", "203.0.113.0/24", "via", "10.97.0.1"];
            cluster.in_node(node, &route);
            // As strict as distributions have it: what comes by another link than answers go is dropped.
            strict(stage, node, true);
        }
        let seen = Self(Arc::default());
        let outside = Namespace::open(cluster.outside_netns()).unwrap();
        let address = SocketAddr::new(WORLD.parse().unwrap(), LINES);
        let listener = outside.run_in(|| TcpListener::bind(address)).unwrap().unwrap();
        let told = seen.clone();
        thread::spawn(move || {
            while let Ok((connection, from)) = listener.accept() {
                let told = told.clone();
                thread::spawn(move || {
                    let mut lines = BufReader::new(connection).lines();
                    let Some(Ok(who)) = lines.next() else { return };
                    let now = Instant::now();
                    let one = Seen { who, from: from.ip(), began: now, last: now };
                    let at = {
                        let mut all = told.0.lock().unwrap();
                        all.push(one);
                        all.len() - 1
                    };
                    while let Some(Ok(_)) = lines.next() {
                        told.0.lock().unwrap()[at].last = Instant::now();
                    }
                });
            }
        });
        seen
    }

    fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    /// The last connection of each of the client's lines.
    fn now(&self) -> BTreeMap<String, Seen> {
        self.all()
            .into_iter()
            .filter(|it| it.who != "eager")
            .map(|it| (it.who.clone(), it))
            .collect()
    }

    /// Waits until every line of the client is alive since `since` and comes from one of these addresses.
    fn until_from(&self, stage: &Stage, what: &str, addresses: &BTreeSet<IpAddr>) {
        let since = Instant::now();
        stage.cluster.wait_for(what, SOON, || {
            routes(stage);
            let now = self.now();
            let is_right = |it: &Seen| addresses.contains(&it.from) && it.last > since;
            match now.len() == KEPT && now.values().all(is_right) {
                true => Ok(()),
                false => Err(format!("{addresses:?}: {now:?}")),
            }
        });
    }
}

fn strict(stage: &Stage, node: u32, on: bool) {
    let write = format!("echo {} > /proc/sys/net/ipv4/conf/all/rp_filter", u8::from(on));
    stage.cluster.in_node(node, &["sh", "-c", &write]);
}

/// The world knows where pods are, so that it sees who leaves with an address of its own.
fn routes(stage: &Stage) {
    let cluster = &stage.cluster;
    let Ok(blocks) = cluster.get("/apis/fairlead.dev/v1alpha1/addressblocks") else { return };
    for block in blocks["items"].as_array().into_iter().flatten() {
        let text = |path: &str| block.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (net, via) = (text("/spec/ipv4"), text("/spec/nodeAddresses/0"));
        let _ = cluster.outside("ip").args(["route", "replace", net, "via", via]).status();
    }
}

/// The address and the node of each replica that is ready.
fn replicas(stage: &Stage) -> BTreeMap<IpAddr, (String, u32)> {
    let pods = stage.cluster.pods("internet", "fairlead.dev/egress=nat").unwrap();
    let ready = pods.iter().filter(|pod| {
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
        pod.pointer("/metadata/deletionTimestamp").is_none()
            && conditions.is_some_and(|all| {
                all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
            })
    });
    let cluster = &stage.cluster;
    let node = |name: &str| {
        cluster.nodes().into_iter().find(|node| cluster.node_name(*node) == name).unwrap()
    };
    let text =
        |pod: &Value, path: &str| pod.pointer(path).and_then(Value::as_str).unwrap().to_owned();
    ready
        .map(|pod| {
            let address = text(pod, "/status/podIP").parse().unwrap();
            (address, (text(pod, "/metadata/name"), node(&text(pod, "/spec/nodeName"))))
        })
        .collect()
}

fn two_replicas(stage: &Stage) -> BTreeMap<IpAddr, (String, u32)> {
    stage.cluster.wait_for("two replicas", SOON, || {
        let there = replicas(stage);
        if there.len() == 2 { Ok(there) } else { Err(format!("{there:?}")) }
    })
}

/// Both agents are asked, each through its own pod.
pub(crate) fn ways_between_nodes_are_looked_at(stage: &Stage) {
    let ask = ["net", "check", "--between", "node-1", "node-3", "-o", "json"];
    let ways = stage.cluster.wait_for("both agents to look", SOON, || {
        let output = stage.run(&ask);
        let said = crate::text(&output.stdout);
        match output.status.code() {
            Some(0) => Ok(serde_json::from_str::<Value>(&said).unwrap()),
            // A node that has no block yet is not reached.
            _ => Err(format!("{said} {}", crate::text(&output.stderr))),
        }
    });
    let ways = ways.as_array().unwrap();
    let ends: BTreeSet<_> =
        ways.iter().map(|way| (way["from"].as_str(), way["to"].as_str())).collect();
    assert_eq!(ends, [(Some("node-1"), Some("node-3")), (Some("node-3"), Some("node-1"))].into());
    assert!(
        ways.iter().all(|way| way["path"] == "direct" && way["carries"] == way["mtu"]),
        "{ways:?}"
    );
}

pub(crate) fn pods_leave_by_egresses(stage: &Stage) {
    let began = Instant::now();
    let cluster = &stage.cluster;
    let world = World::start(stage);
    cluster.apply(EGRESS);
    cluster.apply(&client());
    let caller = cluster.wait_pods("default", "app=caller", 1, SOON).remove(0);
    let own: IpAddr =
        caller.pointer("/status/podIP").and_then(Value::as_str).unwrap().parse().unwrap();
    world.until_from(stage, "the client to leave by its own address", &[own].into());
    let there = two_replicas(stage);
    let addresses: BTreeSet<IpAddr> = there.keys().copied().collect();

    // It chooses while it runs.
    cluster.kubectl(&["annotate", "pod", "caller", "egress.fairlead.dev/internet=nat"]);
    world.until_from(stage, "the client to leave by the egress", &addresses);
    pods_never_leave_beside_it(stage, &world, &addresses);
    says_who_uses_it(stage);
    destinations_are_changed(stage, &world, own, &addresses);
    a_replica_falls_silent(stage, &world, &there);
    a_replica_is_killed(stage, &world);
    the_egress_goes(stage, &world, own);
    cluster.kubectl(&["delete", "pod", "caller", "--wait=false"]);
    for node in cluster.nodes() {
        strict(stage, node, false);
        cluster.in_node(node, &["ip", "route", "del", "203.0.113.0/24"]);
    }
    eprintln!("egress took {:.1} s", began.elapsed().as_secs_f64());
}

/// From their first packet on.
fn pods_never_leave_beside_it(stage: &Stage, world: &World, replicas: &BTreeSet<IpAddr>) {
    stage.cluster.apply(EAGER);
    stage.cluster.wait_for("eager pods to have connected", SOON, || {
        routes(stage);
        let job = stage.cluster.get("/apis/batch/v1/namespaces/default/jobs/eager")?;
        if job["status"]["succeeded"] == 6 { Ok(()) } else { Err(job["status"].to_string()) }
    });
    let eager: Vec<_> = world.all().into_iter().filter(|it| it.who == "eager").collect();
    assert!(eager.len() >= 6, "{eager:?}");
    let beside: Vec<_> = eager.iter().filter(|it| !replicas.contains(&it.from)).collect();
    assert!(beside.is_empty(), "left beside the egress: {beside:?}");
    stage.cluster.kubectl(&["delete", "job", "eager"]);
}

fn says_who_uses_it(stage: &Stage) {
    let said = stage.cluster.wait_for("the egress to count its client", SOON, || {
        let list = ["net", "egress", "list", "-o", "json"];
        let ask = [
            &[
                "--namespace=fairlead",
                "exec",
                "daemonset/fairlead-agent",
                "--",
                "/usr/local/bin/fairlead",
            ][..],
            &list,
        ]
        .concat();
        let rows: Value = serde_json::from_str(&stage.cluster.try_kubectl(&ask)?).unwrap();
        match rows[0]["clients"] == 1 && rows[0]["ready"] == 2 {
            true => Ok(rows),
            false => Err(rows.to_string()),
        }
    });
    assert_eq!(
        (&said[0]["namespace"], &said[0]["name"]),
        (&json!("internet"), &json!("nat")),
        "{said}"
    );
}

/// The client, which runs, follows: connections that the egress no longer means leave past it.
fn destinations_are_changed(
    stage: &Stage,
    world: &World,
    own: IpAddr,
    replicas: &BTreeSet<IpAddr>,
) {
    for (destination, by) in [("198.51.100.0/24", &[own].into()), ("203.0.113.0/24", replicas)] {
        let patch = json!({ "spec": { "destinations": [destination] } }).to_string();
        let command = ["--namespace=internet", "patch", "egress", "nat", "--type=merge", "--patch"];
        stage.cluster.kubectl(&[&command[..], &[patch.as_str()]].concat());
        world.until_from(stage, &format!("the client to follow to {destination}"), by);
    }
}

/// Nothing comes to it or from it any more, and nobody says so: its pod is ready.
fn a_replica_falls_silent(stage: &Stage, world: &World, there: &BTreeMap<IpAddr, (String, u32)>) {
    let before = world.now();
    let silent = before.values().next().unwrap().from;
    let (_, node) = &there[&silent];
    let rules = format!(
        "table inet planted {{ chain forward {{ type filter hook forward priority -200; \
         ip saddr {silent} drop; ip daddr {silent} drop; }}; }}"
    );
    let cut = Instant::now();
    stage.cluster.in_node(*node, &["nft", &rules]);
    let others: BTreeSet<IpAddr> = there.keys().copied().filter(|it| *it != silent).collect();
    world.until_from(stage, "the client to leave by the other replica", &others);
    let after = world.now();
    let (mut kept, mut moved) = (0, Vec::new());
    for (who, now) in &after {
        let was = &before[who];
        match was.from == silent {
            true => moved.push(now.began.saturating_duration_since(cut)),
            false => {
                assert_eq!(now.began, was.began, "line {who} had the other replica, and was ended");
                kept += 1;
            }
        }
    }
    moved.sort();
    let seconds = |it: Option<&Duration>| it.map_or(0.0, Duration::as_secs_f64);
    eprintln!(
        "a replica fell silent: {kept} connections kept, {} ended and made anew by the other, the first \
         after {:.2} s, the last after {:.2} s",
        moved.len(),
        seconds(moved.first()),
        seconds(moved.last())
    );
    assert!(!moved.is_empty());
    stage.cluster.in_node(*node, &["nft", "delete", "table", "inet", "planted"]);
}

fn a_replica_is_killed(stage: &Stage, world: &World) {
    let there = two_replicas(stage);
    let victim = world.now().values().next().unwrap().from;
    let (pod, _) = &there[&victim];
    let cut = Instant::now();
    let delete = [
        "--namespace=internet",
        "delete",
        "pod",
        pod,
        "--grace-period=0",
        "--force",
        "--wait=false",
    ];
    stage.cluster.kubectl(&delete);
    let alive: BTreeSet<IpAddr> = stage.cluster.wait_for("another replica", SOON, || {
        let now: BTreeSet<IpAddr> = replicas(stage).into_keys().collect();
        if now.len() == 2 && !now.contains(&victim) { Ok(now) } else { Err(format!("{now:?}")) }
    });
    world.until_from(stage, "the client to leave by a replica that is there", &alive);
    let moved: Vec<_> = world.now().into_values().filter(|it| it.began > cut).collect();
    let last = moved.iter().map(|it| it.began.saturating_duration_since(cut)).max();
    eprintln!(
        "a replica was killed: {} connections made anew, the last after {:.2} s",
        moved.len(),
        last.unwrap_or_default().as_secs_f64()
    );
}

fn the_egress_goes(stage: &Stage, world: &World, own: IpAddr) {
    let cluster = &stage.cluster;
    let made = || {
        let kinds = "deployments.apps,poddisruptionbudgets.policy";
        let list = ["--namespace=internet", "get", kinds, "--output=name"];
        cluster.try_kubectl(&list).map(|said| said.lines().count())
    };
    assert_eq!(made(), Ok(2), "a Deployment and a disruption budget");
    cluster.kubectl(&["--namespace=internet", "delete", "egress", "nat"]);
    world.until_from(stage, "the client to leave by its own address again", &[own].into());
    cluster.wait_for("what the egress consisted of to go with it", SOON, || match made()? {
        0 => Ok(()),
        some => Err(format!("{some} are left")),
    });
    cluster.wait_for("nothing of the egress to be left on nodes", SOON, || {
        for node in cluster.nodes() {
            let links = cluster.in_node(node, &["ip", "-o", "link"]);
            let rules = cluster.in_node(node, &["ip", "rule"]);
            let tables = cluster.in_node(node, &["nft", "list", "tables"]);
            if links.contains("fl-egress") || rules.contains("1170") || tables.contains("egress") {
                return Err(format!("{links}\n{rules}\n{tables}"));
            }
        }
        Ok(())
    });
    cluster.kubectl(&["delete", "namespace", "internet", "--wait=false"]);
}

//! NetworkPolicies between real pods: who reaches whom is decided by `fairlead policy test` on the objects of
//! the cluster and by connections, and the two agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use crate::{SOON, Stage};

const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
pub(crate) const PODS: [&str; 3] = ["a", "b", "c"];
const PORTS: [u16; 2] = [8080, 9090];

/// From, to and port.
type Probe = (String, String, u16);
/// Whether it connects.
type Table = BTreeMap<Probe, bool>;

/// Nothing enters `red` but pods `a` of namespaces with `team: green`, on the port that is named http. From
/// `green` only `red` and the pods of `green` itself are reached. Into `blue` come all addresses but `red/a`'s,
/// and all of them to the pod that is spared.
fn policies(except: &str, spared: &str) -> String {
    format!(
        r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{ name: only-a, namespace: red }}
spec:
  podSelector: {{}}
  ingress:
  - from: [{{ namespaceSelector: {{ matchLabels: {{ team: green }} }}, podSelector: {{ matchLabels: {{ app: a }} }} }}]
    ports: [{{ port: http }}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{ name: inside, namespace: green }}
spec:
  podSelector: {{}}
  policyTypes: [Egress]
  egress:
  - to: [{{ namespaceSelector: {{ matchLabels: {{ team: red }} }} }}, {{ podSelector: {{}} }}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{ name: block, namespace: blue }}
spec:
  podSelector: {{ matchExpressions: [{{ key: app, operator: NotIn, values: [{spared}] }}] }}
  ingress:
  - from: [{{ ipBlock: {{ cidr: 0.0.0.0/0, except: [{except}/32] }} }}]
    ports: [{{ port: 8080, protocol: TCP }}]
"#
    )
}

/// Between these pods of each of three namespaces.
pub(crate) fn network_policies_hold_between_pods(stage: &Stage, pods: &[&str]) {
    let began = Instant::now();
    let cluster = &stage.cluster;
    let mut objects = String::new();
    for namespace in NAMESPACES {
        objects += &format!(
            "---\napiVersion: v1\nkind: Namespace\nmetadata: {{ name: {namespace}, labels: {{ team: {namespace} }} }}\n"
        );
        for pod in pods {
            objects += &pod_manifest(namespace, pod);
        }
    }
    cluster.apply(&objects);
    let mut addresses = BTreeMap::new();
    for namespace in NAMESPACES {
        for pod in cluster.wait_pods(namespace, "app", pods.len(), SOON) {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let address = pod["status"]["podIP"].as_str().unwrap();
            addresses.insert(format!("{namespace}/{name}"), address.to_owned());
        }
    }
    let count = addresses.len();
    eprintln!("{count} pods Ready after {:.1} s", began.elapsed().as_secs_f64());
    let spared = pods[pods.len() - 1];
    cluster.apply(&policies(&addresses["red/a"], spared));
    let stopped = agree(stage, &addresses);
    let all = count * count * PORTS.len();
    assert!(stopped * 3 > all, "only {stopped} of {all} are stopped: the policies do nothing");

    // One goes, another comes: both take effect.
    cluster.kubectl(&["--namespace=red", "delete", "networkpolicy", "only-a"]);
    cluster.apply(&format!(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{ name: nothing, namespace: blue }}\n\
         spec: {{ podSelector: {{ matchLabels: {{ app: {spared} }} }} }}\n",
    ));
    let after = agree(stage, &addresses);
    assert_ne!(stopped, after);
    let spared = format!("blue/{spared}");
    let explain = ["policy", "explain", "red/a", &spared, "8080"];
    let why = stage.cluster.try_kubectl(&[&INSIDE[..], &explain].concat());
    // Exit code 1: it is denied.
    let why = why.expect_err("red/a does not reach it");
    assert!(why.contains("exit code 1"), "{why}");
    for namespace in NAMESPACES {
        cluster.kubectl(&["delete", "namespace", namespace, "--wait=false"]);
    }
    eprintln!("policies between pods took {:.1} s", began.elapsed().as_secs_f64());
}

fn pod_manifest(namespace: &str, pod: &str) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{ name: {pod}, namespace: {namespace}, labels: {{ app: {pod} }} }}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: local/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "mkdir /www && echo {pod} >/www/name && httpd -p 9090 -h /www && exec httpd -f -p 8080 -h /www"]
    ports: [{{ name: http, containerPort: 8080 }}]
    readinessProbe: {{ httpGet: {{ path: /name, port: http }}, periodSeconds: 2 }}
"#
    )
}

/// In a controller's container.
const INSIDE: [&str; 5] = [
    "--namespace=fairlead",
    "exec",
    "deployment/fairlead-controller",
    "--",
    "/usr/local/bin/fairlead",
];

fn get(stage: &Stage, kinds: &str) -> String {
    stage.cluster.kubectl(&["get", kinds, "-A", "-o", "json"])
}

/// Waits until the policies are in force; then decides and connects, and compares. Says how many are stopped.
fn agree(stage: &Stage, addresses: &BTreeMap<String, String>) -> usize {
    let names = |list: &Value, name: &dyn Fn(&Value) -> String| -> BTreeSet<String> {
        list.as_array().unwrap().iter().map(name).collect()
    };
    let written: Value = serde_json::from_str(&get(stage, "networkpolicies")).unwrap();
    let written = names(&written["items"], &|it| {
        let text = |field: &str| it["metadata"][field].as_str().unwrap().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    });
    stage.cluster.wait_for("policies to be in force everywhere", SOON, || {
        let ask = [&INSIDE[..], &["policy", "status", "-o", "json"]].concat();
        let said = stage.cluster.try_kubectl(&ask)?;
        let status: Value =
            serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        let known = names(&status["policies"], &|it| it["policy"].as_str().unwrap().to_owned());
        let nodes = status["nodes"].as_array().unwrap();
        let all = nodes.len() == stage.cluster.nodes().len();
        let applied = all && nodes.iter().all(|node| node["state"] == "applied");
        if known == written && applied { Ok(()) } else { Err(said) }
    });
    let decided = decided(stage, addresses);
    // What passes may be slow on a busy machine, so that a connection is tried again, beside fewer others;
    // what is to be stopped must not pass once.
    let mut found = connected(stage, addresses, &|_| true);
    let through: Vec<_> =
        decided.iter().filter(|(probe, allowed)| !**allowed && found[*probe]).collect();
    assert!(through.is_empty(), "connected though denied: {through:?}");
    for _ in 0..3 {
        let missing = |probe: &Probe| decided[probe] && !found[probe];
        let again = connected(stage, addresses, &missing);
        found.extend(again.into_iter().filter(|(_, yes)| *yes));
    }
    let wrong: Vec<_> =
        decided.iter().filter(|(probe, allowed)| found[*probe] != **allowed).collect();
    assert!(wrong.is_empty(), "decided otherwise than it connects: {wrong:?}");
    let stopped = decided.values().filter(|allowed| !**allowed).count();
    eprintln!("{} connections as decided, {stopped} of them stopped", decided.len());
    stopped
}

/// What `fairlead policy test` says, on the objects that the cluster has.
fn decided(stage: &Stage, addresses: &BTreeMap<String, String>) -> Table {
    let file = |name: &str, text: String| {
        let path = stage.home.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cluster = file("objects.json", get(stage, "namespaces,pods,nodes,services"));
    let policies = file("policies.json", get(stage, "networkpolicies"));
    let mut probes = Vec::new();
    for from in addresses.keys() {
        for to in addresses.keys() {
            for port in PORTS {
                probes.push((from.clone(), to.clone(), port));
            }
        }
    }
    let lines: Vec<_> = probes
        .iter()
        .map(|(from, to, port)| {
            json!({"from": from, "to": to, "protocol": "TCP", "port": port}).to_string()
        })
        .collect();
    let asked = file("probes.jsonl", lines.join("\n"));
    let output = stage.run(&[
        "policy",
        "test",
        "--cluster",
        &cluster,
        "--policies",
        &policies,
        "--probes",
        &asked,
        "-o",
        "json",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", crate::text(&output.stderr));
    let answers: Value = serde_json::from_slice(&output.stdout).unwrap();
    let allowed = answers.as_array().unwrap().iter().map(|answer| answer["verdict"] == "allow");
    probes.into_iter().zip(allowed).collect()
}

/// Who reaches whom, of those that are wanted: every pod tries all of its own at once.
fn connected(
    stage: &Stage,
    addresses: &BTreeMap<String, String>,
    wanted: &(dyn Fn(&Probe) -> bool + Sync),
) -> Table {
    let ask = "for to; do (timeout 4 wget -qO /dev/null http://$to/name && echo $to) & done; wait";
    std::thread::scope(|scope| {
        let mut asked = Vec::new();
        for from in addresses.keys() {
            let all = addresses.iter().flat_map(|(to, address)| {
                PORTS.map(|port| ((from.clone(), to.clone(), port), format!("{address}:{port}")))
            });
            let probes: Vec<(Probe, String)> = all.filter(|(probe, _)| wanted(probe)).collect();
            if probes.is_empty() {
                continue;
            }
            asked.push(scope.spawn(move || {
                let (namespace, pod) = from.split_once('/').unwrap();
                let namespace = format!("--namespace={namespace}");
                let mut command = vec![&*namespace, "exec", pod, "--", "sh", "-c", ask, "sh"];
                command.extend(probes.iter().map(|(_, target)| target.as_str()));
                let said = stage.cluster.kubectl(&command);
                let reached: BTreeSet<&str> = said.lines().collect();
                let table =
                    probes.iter().map(|(probe, to)| (probe.clone(), reached.contains(&**to)));
                table.collect::<Table>()
            }));
        }
        asked.into_iter().flat_map(|asking| asking.join().unwrap()).collect()
    })
}

use std::collections::BTreeSet;

use super::*;
use crate::requires;

const SOON: Duration = Duration::from_secs(90);

/// Pods that answer at port 8080 with their name, spread over the nodes; a Service, and a headless one.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 12
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - { maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: { matchLabels: { app: web } } }
      containers:
      - name: web
        image: local/busybox:1
        imagePullPolicy: Never
        command: [sh, -c, "mkdir /www && hostname >/www/name && echo started && exec httpd -f -p 8080 -h /www"]
        readinessProbe: { httpGet: { path: /name, port: 8080 }, periodSeconds: 1 }
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec: { type: NodePort, selector: { app: web }, ports: [{ port: 80, targetPort: 8080, nodePort: 30080 }] }
---
apiVersion: v1
kind: Service
metadata: { name: webs }
spec: { clusterIP: None, selector: { app: web }, ports: [{ port: 8080 }] }
"#;

fn field(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[test]
fn kube_cluster_of_three_nodes_does_what_a_cluster_does() {
    requires!(cluster);
    let cluster = Cluster::start(Network::Ptp);
    println!("up in {:.1} s", cluster.took().as_secs_f64());
    let before: BTreeSet<_> = cluster.leftovers(2);
    let dir = cluster.dir.clone();
    let group = cluster.cgroup.clone();

    pods_reach_each_other(&cluster);
    services_and_names_work(&cluster);
    exec_and_logs_work(&cluster);
    a_node_reboots(&cluster);
    what_is_left_is_seen(&cluster, &before);

    drop(cluster);
    assert!(!dir.exists());
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
        assert!(!hierarchy.path().join(&group).exists());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("fairlead-cluster"), "{mounts}");
}

fn pods_reach_each_other(cluster: &Cluster) {
    let began = Instant::now();
    cluster.apply(WEB);
    let pods = cluster.wait_pods("default", "app=web", 12, SOON);
    println!("12 pods Ready after {:.1} s", began.elapsed().as_secs_f64());
    let nodes: BTreeSet<_> = pods.iter().map(|pod| field(pod, "/spec/nodeName")).collect();
    assert_eq!(nodes.len(), 3);
    let addresses: BTreeSet<_> = pods.iter().map(|pod| field(pod, "/status/podIP")).collect();
    assert_eq!(addresses.len(), 12);
    let addresses: Vec<_> = addresses.into_iter().collect();
    let ping =
        "for to; do ping -c1 -W5 $to >/dev/null || { echo no answer from $to; exit 1; }; done";
    for pod in &pods {
        let name = field(pod, "/metadata/name");
        let exec = ["exec", &name, "--", "sh", "-c", ping, "sh"];
        let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
        cluster.kubectl(&[&exec[..], &addresses].concat());
    }
}

fn services_and_names_work(cluster: &Cluster) {
    let pods = cluster.pods("default", "app=web").unwrap();
    let pod = field(&pods[0], "/metadata/name");
    let by_name = cluster.kubectl(&[
        "exec",
        &pod,
        "--",
        "timeout",
        "5",
        "wget",
        "-qO-",
        "http://web.default/name",
    ]);
    assert!(by_name.starts_with("web-"), "{by_name}");
    let address =
        field(&cluster.get("/api/v1/namespaces/default/services/web").unwrap(), "/spec/clusterIP");
    for node in cluster.nodes() {
        let url = format!("http://{}:30080/name", cluster.node_address(node));
        let busybox = cluster.assets.cni("busybox");
        let got = node::said(
            cluster.outside(busybox).args(["timeout", "5", "wget", "-qO-", &url]).output(),
            "wget",
        );
        assert!(got.as_ref().is_ok_and(|name| name.starts_with("web-")), "{url}: {got:?}");
    }
    let found = cluster.kubectl(&["exec", &pod, "--", "nslookup", "web.default.svc.cluster.local"]);
    assert!(found.contains(&address), "{found}");
    let found =
        cluster.kubectl(&["exec", &pod, "--", "nslookup", "webs.default.svc.cluster.local"]);
    assert_eq!(found.matches("10.244.").count(), 12, "{found}");
    let missing = cluster.try_kubectl(&["exec", &pod, "--", "nslookup", "example.com."]);
    assert!(missing.as_ref().is_err_and(|why| why.contains("NXDOMAIN")), "{missing:?}");
}

fn exec_and_logs_work(cluster: &Cluster) {
    for pod in cluster.pods("default", "app=web").unwrap() {
        let name = field(&pod, "/metadata/name");
        assert_eq!(cluster.kubectl(&["logs", &name]), "started\n");
    }
    let version = cluster.in_node(3, &["uname", "-n"]);
    assert_eq!(version, "node-3\n");
}

fn a_node_reboots(cluster: &Cluster) {
    let began = Instant::now();
    cluster.in_node(2, &["touch", "/run/gone", "/var/lib/kept"]);
    cluster.reboot(2);
    println!("node-2 Ready {:.1} s after its power was cut", began.elapsed().as_secs_f64());
    cluster.in_node(2, &["test", "-e", "/var/lib/kept"]);
    assert!(cluster.try_in_node(2, &["test", "-e", "/run/gone"]).is_err());
    // Until the kubelet has looked, the API server remembers its pods as they were.
    cluster.wait_for("the node's pods to be started again", SOON, || {
        let pods = cluster.wait_pods("default", "app=web", 12, SOON);
        let here = pods.iter().filter(|pod| field(pod, "/spec/nodeName") == "node-2");
        let old =
            here.filter(|pod| pod["status"]["containerStatuses"][0]["restartCount"] == 0).count();
        if old == 0 { Ok(()) } else { Err(format!("{old} have not been")) }
    });
    println!("its pods Ready after {:.1} s", began.elapsed().as_secs_f64());
    pods_reach_each_other(cluster);
}

/// Also that the check can fail: a link that somebody forgot.
fn what_is_left_is_seen(cluster: &Cluster, before: &BTreeSet<String>) {
    cluster.kubectl(&["delete", "deployment", "web"]);
    let left = || -> BTreeSet<_> { cluster.leftovers(2).difference(before).cloned().collect() };
    let networks = |line: &String| !line.contains("/var/lib/cni") && !line.contains("CNI-");
    cluster.wait_for("pods' networks to go", SOON, || {
        let left: Vec<_> = left().into_iter().filter(networks).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
    });
    cluster.in_node(2, &["ip", "link", "add", "forgotten", "type", "bridge"]);
    cluster.in_node(2, &["mkdir", "/var/lib/fairlead"]);
    let left: Vec<_> = left().into_iter().filter(networks).collect();
    assert_eq!(left, ["file /var/lib/fairlead", "link forgotten"]);
}

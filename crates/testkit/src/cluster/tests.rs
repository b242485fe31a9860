use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};

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
    daemons_die_and_come_back(&cluster);
    a_node_comes_and_goes(&cluster);
    what_is_left_is_seen(&cluster, &before);
    the_control_plane_reboots(&cluster);

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

fn daemons_die_and_come_back(cluster: &Cluster) {
    cluster.kill("kube-scheduler", 1);
    assert!(!cluster.node(1).is_running("kube-scheduler"));
    for (daemon, node) in
        [("kube-scheduler", 1), ("containerd", 3), ("kubelet", 3), ("kube-proxy", 3)]
    {
        cluster.restart(daemon, node);
        assert!(cluster.node(node).is_running(daemon));
    }
}

/// Also that all of them do their work again: the node's pod needs the scheduler.
fn a_node_comes_and_goes(cluster: &Cluster) {
    let dir = tempfile::tempdir().unwrap();
    let greeting = dir.path().join("greeting");
    fs::write(&greeting, "hello").unwrap();
    cluster.load_image("local/greeting:1", &[(&greeting, "/greeting")]);
    let began = Instant::now();
    let node = cluster.add_node();
    println!("another node Ready after {:.1} s", began.elapsed().as_secs_f64());
    cluster.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{ name: greeting, labels: {{ app: greeting }} }}
spec:
  nodeSelector: {{ kubernetes.io/hostname: {} }}
  terminationGracePeriodSeconds: 0
  containers: [{{ name: greeting, image: "local/greeting:1", imagePullPolicy: Never }}]
"#,
        cluster.node_name(node)
    ));
    cluster.wait_pods("default", "app=greeting", 1, SOON);
    assert_eq!(cluster.kubectl(&["exec", "greeting", "--", "cat", "/greeting"]), "hello");
    cluster.remove_node(node);
    assert_eq!(cluster.nodes(), [1, 2, 3]);
    assert!(cluster.get("/api/v1/nodes/node-4").is_err());
}

fn the_control_plane_reboots(cluster: &Cluster) {
    let began = Instant::now();
    cluster.reboot(1);
    println!(
        "the control plane Ready {:.1} s after its power was cut",
        began.elapsed().as_secs_f64()
    );
    let services = cluster.get("/api/v1/namespaces/default/services").unwrap();
    assert_eq!(services["items"].as_array().unwrap().len(), 3);
}

/// In the victim's environment.
const VICTIM: &str = "TESTKIT_VICTIM";

#[test]
fn kube_cluster_is_gone_when_its_test_is_killed_and_another_stays() {
    requires!(cluster);
    let one = Options { nodes: 1, ..Options::default() };
    if std::env::var_os(VICTIM).is_some() {
        let cluster = Cluster::start_with(&one);
        let (pid, netns) = (cluster.node(1).pid().unwrap(), cluster.outside.netns());
        println!("victim {} {} {pid} {}", cluster.dir.display(), cluster.cgroup, netns.display());
        thread::sleep(Duration::from_secs(600));
        unreachable!("nobody killed the victim");
    }

    let this = "cluster::tests::kube_cluster_is_gone_when_its_test_is_killed_and_another_stays";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture"])
        .env(VICTIM, "yes")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let ours = Cluster::start_with(&one);
    println!("two clusters of one node, one of them in {:.1} s", ours.took().as_secs_f64());
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find(|line| line.starts_with("victim ")).unwrap();
    let [_, dir, group, pid, netns] = said.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let root = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(Path::new);
    let group = root.into_iter().find(|root| root.exists()).unwrap().join(group);
    let process = Path::new("/proc").join(pid);
    let left = || {
        let all = [Path::new(dir), &group, &process, Path::new(netns)];
        all.into_iter()
            .filter(|path| path.exists())
            .map(|path| path.display().to_string())
            .collect()
    };
    let before: Vec<String> = left();
    assert_eq!(before.len(), 4, "{before:?}");

    victim.kill().unwrap();
    victim.wait().unwrap();
    ours.wait_for("the killed test's cluster to go", SOON, || {
        let left: Vec<String> = left();
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    });
    // The network is nobody's: the node is there, and says what it lacks.
    ours.wait_for("the node to say that it has no network", SOON, || {
        let node = ours.get("/api/v1/nodes/node-1")?;
        let conditions = node["status"]["conditions"].to_string();
        if conditions.contains("NetworkPluginNotReady") { Ok(()) } else { Err(conditions) }
    });
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

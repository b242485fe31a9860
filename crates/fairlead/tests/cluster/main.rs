//! Fairlead on a real cluster of three nodes, as its users meet it: checked, installed, used, upgraded
//! under load, removed without a trace. All of it on one cluster, because that takes its time to start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chosen;
mod egress;
mod load;
mod policies;
mod support;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::cluster::{Cluster, Network, Options, POD_NETWORK};
use testkit::requires;

use crate::load::Load;

/// Several times what anything takes on two busy cores.
const SOON: Duration = Duration::from_secs(180);
const BEFORE: &str = "local/fairlead:before";
const NOW: &str = "local/fairlead:now";
/// As many as three kubelets start on two cores in a bearable time.
const PODS: usize = 100;

/// A Deployment that answers with its pods' names, and its Services.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, labels: { app: web } }
spec:
  replicas: 3
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - { maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: { matchLabels: { app: web } } }
      containers:
      - name: web
        image: local/busybox:1
        imagePullPolicy: Never
        command: [sh, -c, "mkdir /www && hostname >/www/name && echo started && exec httpd -f -p 8080 -h /www"]
        ports: [{ name: http, containerPort: 8080 }]
        readinessProbe: { httpGet: { path: /name, port: http }, periodSeconds: 2 }
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec: { type: NodePort, selector: { app: web }, ports: [{ port: 80, targetPort: http, nodePort: 30080 }] }
"#;

struct Stage {
    cluster: Cluster,
    /// Values for every installation here.
    values: PathBuf,
    home: tempfile::TempDir,
}

fn fairlead() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_fairlead"))
}

impl Stage {
    fn set() -> Self {
        let home = tempfile::tempdir().unwrap();
        let (cluster, archive) = thread::scope(|scope| {
            let archive = scope.spawn(|| image(home.path(), BEFORE));
            (Cluster::start(Network::None), archive.join().unwrap())
        });
        eprintln!("three nodes after {:.1} s", cluster.took().as_secs_f64());
        let began = Instant::now();
        cluster.load_archive(&archive);
        // The same programs under another name: a rollout looks at nothing else.
        cluster.tag_image(BEFORE, NOW);
        eprintln!("images loaded after {:.1} s", began.elapsed().as_secs_f64());
        let values = home.path().join("values.yaml");
        let text = format!(
            "image: {{repository: local/fairlead, tag: before, pullPolicy: Never}}\n\
             net: {{egress: true, pools: [{{name: default, blockSizeBits: 5, subnets: [{{ipv4: {POD_NETWORK}}}]}}]}}\n\
             admission: {{mode: protect, failurePolicy: fail}}\n"
        );
        fs::write(&values, text).unwrap();
        Self { cluster, values, home }
    }

    /// The command line as an administrator of the cluster has it.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(fairlead());
        command
            .args(args)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("HOME", self.home.path());
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (said, told) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "fairlead {}: {}\n{said}\n{told}\n{}",
            args.join(" "),
            output.status,
            self.cluster.evidence()
        );
        said
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Waits until `fairlead status` finds nothing wrong.
    #[track_caller]
    fn is_well(&self) {
        self.cluster.wait_for("fairlead status to find nothing wrong", SOON, || {
            let output = self.run(&["status"]);
            if output.status.success() { Ok(()) } else { Err(text(&output.stdout)) }
        });
    }

    /// In a controller's container.
    #[track_caller]
    fn inside(&self, args: &[&str]) -> String {
        let mut command = vec![
            "--namespace=fairlead",
            "exec",
            "deployment/fairlead-controller",
            "--",
            "/usr/local/bin/fairlead",
        ];
        command.extend(args);
        self.cluster.kubectl(&command)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Beside another plugin: `ptp` wires the pods of two nodes, and Fairlead is guard and egress.
#[test]
fn kube_cluster_beside_another_plugin_is_guarded_and_leaves_by_egresses() {
    requires!(cluster);
    let began = Instant::now();
    let home = tempfile::tempdir().unwrap();
    let options = Options { nodes: 2, network: Network::Ptp, ..Options::default() };
    let (cluster, archive) = thread::scope(|scope| {
        let archive = scope.spawn(|| image(home.path(), NOW));
        (Cluster::start_with(&options), archive.join().unwrap())
    });
    eprintln!("two nodes after {:.1} s", cluster.took().as_secs_f64());
    cluster.load_archive(&archive);
    let values = home.path().join("values.yaml");
    let text = format!(
        "image: {{repository: local/fairlead, tag: now, pullPolicy: Never}}\n\
         net: {{egress: true, podNetworks: [{POD_NETWORK}]}}\n\
         policy: {{enforce: always}}\ncontroller: {{replicas: 1}}\n"
    );
    fs::write(&values, text).unwrap();
    let stage = Stage { cluster, values, home };
    let values = stage.values.to_str().unwrap();
    let done = stage.json(&["install", "--values", values, "--components=guard", "-o", "json"]);
    eprintln!("installed in {} s: {}", done["seconds"], done["steps"]);
    stage.is_well();
    let plugins = stage.cluster.in_node(1, &["ls", "/etc/cni/net.d"]);
    assert!(plugins.contains("ptp") && !plugins.contains("fairlead"), "{plugins}");
    timed("policies", || policies::network_policies_hold_between_pods(&stage, &["a", "b"]));
    timed("egress", || egress::pods_leave_by_egresses(&stage));
    eprintln!("beside another plugin: {:.1} s", began.elapsed().as_secs_f64());
}

/// The image as `make image` makes it, of the programs under test.
fn image(dir: &Path, reference: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    let archive = dir.join(reference.replace(['/', ':'], "-")).with_extension("tar");
    let output = Command::new(script)
        .args(["--allow-dynamic", "--level", "1", "--tag", reference, "--binaries"])
        .arg(fairlead().parent().unwrap())
        .arg(&archive)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    archive
}

#[test]
fn kube_cluster_is_installed_used_upgraded_and_left_as_it_was() {
    requires!(cluster);
    let plugin = fairlead().with_file_name("fairlead-cni");
    if !plugin.is_file() {
        let why = "target has no fairlead-cni: build the workspace first";
        return testkit::need::skip(concat!(module_path!(), "::kube_cluster"), why);
    }
    let stage = timed("the cluster", Stage::set);
    let clean: BTreeMap<u32, BTreeSet<String>> = stage
        .cluster
        .nodes()
        .into_iter()
        .map(|node| (node, stage.cluster.leftovers(node)))
        .collect();

    timed("checked and installed", || it_is_checked_and_installed(&stage));
    // What mostly waits goes side by side; what measures, or keeps both cores busy, goes alone.
    thread::scope(|scope| {
        let policies = scope.spawn(|| {
            timed("policies", || {
                policies::network_policies_hold_between_pods(&stage, &policies::PODS);
            });
        });
        timed("pods and Services", || used::pods_and_services_work(&stage));
        timed("a rule", || used::a_rule_refuses_what_it_forbids(&stage));
        timed("chosen addresses", || chosen::pods_have_what_they_chose(&stage));
        timed("ways between nodes", || egress::ways_between_nodes_are_looked_at(&stage));
        timed("the map", || used::the_map_names_workloads(&stage));
        timed("logs, exec, forward", || used::logs_exec_and_forward_work(&stage));
        policies.join().unwrap();
    });
    timed("egress", || egress::pods_leave_by_egresses(&stage));
    timed("a hundred pods", || used::a_hundred_pods_start_while_an_agent_is_killed(&stage));
    timed("support", || support::an_archive_for_support_is_collected(&stage));
    timed("a reboot", || used::a_node_reboots(&stage));
    timed("an upgrade", || it_is_upgraded_under_load(&stage));
    timed("an upgrade that fails", || an_upgrade_that_fails_is_taken_back(&stage));
    timed("removal", || it_is_removed(&stage, &clean));
}

/// Says how long a step took: the whole is what CI waits for.
fn timed<T>(name: &str, step: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = step();
    eprintln!("=== {name}: {:.1} s", began.elapsed().as_secs_f64());
    done
}

fn it_is_checked_and_installed(stage: &Stage) {
    let values = stage.values.to_str().unwrap();
    let components = "--components=net,guard,mesh,console,admission";
    let nothing = stage.run(&["status"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", text(&nothing.stdout));
    let found = stage.json(&[
        "install",
        "check",
        "--values",
        values,
        components,
        "--on-nodes",
        "-o",
        "json",
    ]);
    let failed: Vec<_> =
        found.as_array().unwrap().iter().filter(|one| one["verdict"] == "failure").collect();
    assert!(failed.is_empty(), "{failed:?}");
    let on_nodes =
        found.as_array().unwrap().iter().filter(|one| one["check"] == "nftables").count();
    assert_eq!(on_nodes, 3, "{found}");

    // What was written for GitOps is what is applied.
    let planned =
        stage.json(&["install", "--dry-run", "--values", values, components, "-o", "json"]);
    assert!(planned.as_array().unwrap().iter().any(|object| object["kind"] == "DaemonSet"));

    let done = stage.json(&["install", "--values", values, components, "-o", "json"]);
    eprintln!("installed in {} s: {}", done["seconds"], done["steps"]);
    stage.cluster.wait_nodes_ready(SOON);
    // The leader is elected, registers the webhook and looks at the pool within seconds.
    stage.is_well();
    eprintln!("{}", stage.ok(&["status"]));
    // Again, with nothing said, changes nothing: above all the pod network stays.
    stage.ok(&["install"]);
    assert!(stage.ok(&["status"]).contains("pool"));
}

fn it_is_upgraded_under_load(stage: &Stage) {
    let load = Load::start(stage);
    let names = "net.interfaceNames=calico";
    let done = stage.json(&["upgrade", "--set", "image.tag=now", "--set", names, "-o", "json"]);
    eprintln!("upgraded in {} s: {}", done["seconds"], done["steps"]);
    load.stop_and_judge(stage);
    interfaces_have_calicos_names(stage);
    // A controller that was replaced goes on answering for a moment, and is listed until it has ended.
    let until = Instant::now() + SOON;
    loop {
        let images = stage.cluster.kubectl(&[
            "--namespace=fairlead",
            "get",
            "pods",
            "--output=jsonpath={.items[*].spec.containers[0].image}",
        ]);
        assert!(images.contains(NOW), "{images}");
        if !images.contains("before") {
            break;
        }
        assert!(Instant::now() < until, "{images}");
        thread::sleep(Duration::from_millis(500));
    }
    stage.is_well();
}

/// Those of pods that come now; those that were there go on with theirs, as the load has shown.
fn interfaces_have_calicos_names(stage: &Stage) {
    let cluster = &stage.cluster;
    let pod = r#"
apiVersion: v1
kind: Pod
metadata: { name: named, labels: { app: named } }
spec:
  terminationGracePeriodSeconds: 0
  containers: [{ name: it, image: "local/busybox:1", imagePullPolicy: Never, command: [sleep, "600"] }]
"#;
    cluster.apply(pod);
    let pod = cluster.wait_pods("default", "app=named", 1, SOON).remove(0);
    let on = pod["spec"]["nodeName"].as_str().unwrap();
    let node = cluster.nodes().into_iter().find(|node| cluster.node_name(*node) == on).unwrap();
    // `echo -n default.named | sha1sum`
    let links = cluster.in_node(node, &["ip", "-o", "link"]);
    assert!(links.contains("cali34dc37e2924"), "{links}");
    // Pods of before the upgrade are somewhere.
    let named = |node| cluster.in_node(node, &["ip", "-o", "link"]).contains(": fl");
    assert!(cluster.nodes().into_iter().any(named), "pods lost their interfaces");
}

/// An image that is not there: nothing of it comes up, and what ran goes on.
fn an_upgrade_that_fails_is_taken_back(stage: &Stage) {
    let output = stage.run(&["upgrade", "--set", "image.tag=nowhere", "--timeout", "20"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("was taken back") && told.contains("ErrImageNeverPull"), "{told}");
    stage.is_well();
    let images = stage.cluster.kubectl(&[
        "--namespace=fairlead",
        "get",
        "pods",
        "--output=jsonpath={.items[*].spec.containers[0].image}",
    ]);
    assert!(!images.contains("nowhere"), "{images}");
}

fn it_is_removed(stage: &Stage, clean: &BTreeMap<u32, BTreeSet<String>>) {
    let cluster = &stage.cluster;
    let without = stage.run(&["install", "--components=guard"]);
    assert_eq!(without.status.code(), Some(2));
    assert!(
        text(&without.stderr).contains("leaves out the component net"),
        "{}",
        text(&without.stderr)
    );
    let refused = stage.run(&["uninstall", "--yes"]);
    let why = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("have their network from Fairlead"), "{why}");
    cluster.kubectl(&["delete", "deployment,pod,service,job", "--all", "--wait=true"]);
    // The default namespace has its own Service back at once; no pod of it is left.
    cluster.wait_for("no pod", SOON, || match cluster.pods("default", "")?.len() {
        0 => Ok(()),
        some => Err(format!("{some} pods")),
    });
    let unasked = stage.run(&["uninstall"]);
    assert!(text(&unasked.stderr).contains("--yes"), "{}", text(&unasked.stderr));
    let done = stage.json(&["uninstall", "--yes", "-o", "json"]);
    eprintln!("removed in {} s: {}", done["seconds"], done["steps"]);
    assert_eq!(done["nodes"], serde_json::json!({}), "{done}");

    let kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingwebhookconfigurations,namespaces,priorityclasses";
    let left = cluster.kubectl(&["get", kinds, "--output=name"]);
    let ours: Vec<_> = left.lines().filter(|line| line.contains("fairlead")).collect();
    assert!(ours.is_empty(), "{ours:?}");
    for (node, before) in clean {
        let left = cluster.leftovers(*node);
        let mut more: Vec<_> = left.difference(before).collect();
        // The runtime's own cache of results; what is in it would be a pod's.
        more.retain(|line| {
            !["file /var/lib/cni", "file /var/lib/cni/results"].contains(&line.as_str())
        });
        assert!(more.is_empty(), "left on node {node}: {more:#?}");
    }
    assert_eq!(stage.run(&["status"]).status.code(), Some(1));
}

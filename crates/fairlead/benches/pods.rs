//! Pods of a real cluster of three nodes, from a Deployment's scale to the last one Ready: with Fairlead as
//! the pod network, installed as users install it, against the reference plugin `ptp` in a cluster of the
//! same kind. On a real kubelet the plugin is not what takes the time; this says how much it is.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use bench::Table;
use testkit::Cluster;
use testkit::cluster::{Network, POD_NETWORK};

const LONG: Duration = Duration::from_secs(600);
const IMAGE: &str = "local/fairlead:bench";
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 0
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{ name: web, image: "local/busybox:1", imagePullPolicy: Never, command: [sleep, "100000"] }]
"#;

fn main() -> ExitCode {
    if let Err(why) = testkit::need::cluster() {
        eprintln!("SKIPPED: pods: {why}");
        return ExitCode::SUCCESS;
    }
    let mut table = Table::new("pods");
    let theirs = {
        let cluster = Cluster::start(Network::Ptp);
        [burst(&cluster, 30), burst(&cluster, 100)]
    };
    let (ours, installed, removed) = {
        let cluster = Cluster::start(Network::None);
        let dir = tempfile::tempdir().unwrap();
        let installed = install(&cluster, dir.path());
        let ours = [burst(&cluster, 30), burst(&cluster, 100)];
        (ours, installed, uninstall(&cluster))
    };
    for (i, count) in [30, 100].into_iter().enumerate() {
        let what = format!("{count} pods of three nodes, from scale to Ready");
        table.row(&what, "ns", nanos(ours[i]), &[("ptp, host-local", nanos(theirs[i]))]);
    }
    table.row("`fairlead install`, three nodes, until all is ready", "ns", nanos(installed), &[]);
    table.row("`fairlead uninstall`, three nodes", "ns", nanos(removed), &[]);
    table.finish()
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// From the scale to the last pod Ready; afterwards all of them go.
fn burst(cluster: &Cluster, count: usize) -> Duration {
    cluster.apply(DEPLOYMENT);
    let scale = |to: usize| {
        cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={to}")]);
    };
    let began = Instant::now();
    scale(count);
    cluster.wait_pods("default", "app=web", count, LONG);
    let took = began.elapsed();
    scale(0);
    cluster.wait_pods("default", "app=web", 0, LONG);
    took
}

fn fairlead(cluster: &Cluster, args: &[&str]) -> Duration {
    let began = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_fairlead"))
        .args(args)
        .env("KUBECONFIG", cluster.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fairlead {}: {told}\n{}", args.join(" "), cluster.evidence());
    began.elapsed()
}

fn install(cluster: &Cluster, dir: &Path) -> Duration {
    cluster.load_archive(&image(dir));
    let pool = format!("net.pools[0].subnets[0].ipv4={POD_NETWORK}");
    let image = "image.repository=local/fairlead,image.tag=bench,image.pullPolicy=Never";
    let components = "--components=net,guard,mesh,console,admission";
    let args = ["install", components, "--set", &pool, "--set", "net.pools[0].name=default"];
    fairlead(cluster, &[&args[..], &["--set", image]].concat())
}

fn uninstall(cluster: &Cluster) -> Duration {
    cluster.kubectl(&["delete", "deployment", "web"]);
    fairlead(cluster, &["uninstall", "--yes"])
}

fn image(dir: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/image");
    let archive = dir.join("fairlead.tar");
    let binaries = Path::new(env!("CARGO_BIN_EXE_fairlead")).parent().unwrap();
    let output = Command::new(script)
        .args(["--allow-dynamic", "--level", "1", "--tag", IMAGE, "--binaries"])
        .args([binaries, &archive])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    archive
}

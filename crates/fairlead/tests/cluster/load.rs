//! What goes on while something is replaced: connections between pods, reviews, requests to the API.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{SOON, Stage, fairlead, text};

/// Asks the web Service for ever. What fails is printed with its time.
const CLIENT: &str = r#"
apiVersion: v1
kind: Pod
metadata: { name: client, labels: { app: client } }
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: local/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, 'while :; do if timeout 5 wget -qO /dev/null http://web.default/name; then echo ok; else echo "FAILED $(date)"; fi; sleep 0.1; done']
"#;

/// What a rule forbids.
const PRIVILEGED: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"x","image":"x","securityContext":{"privileged":true}}]}}"#;

/// One thing that is asked again and again on a thread of its own.
struct Asked {
    what: &'static str,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<String>>,
}

impl Asked {
    /// `judge` says what was wrong with an answer.
    fn start(
        what: &'static str,
        stop: &Arc<AtomicBool>,
        mut command: Command,
        judge: fn(bool, &str) -> Option<String>,
    ) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let (ended, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut wrong = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                let output = command.output().unwrap();
                wrong.extend(judge(output.status.success(), &text(&output.stderr)));
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(200));
            }
            wrong
        });
        Self { what, count, thread }
    }

    /// Everything was answered as it should be, and enough was asked for that to mean something.
    fn judge(self) -> String {
        let wrong = self.thread.join().unwrap();
        let count = self.count.load(Ordering::SeqCst);
        assert!(wrong.is_empty(), "{}: {} of {count} failed: {wrong:?}", self.what, wrong.len());
        assert!(count > 10, "{}: only {count}", self.what);
        format!("{count} {}", self.what)
    }
}

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    asked: Vec<Asked>,
}

impl Load {
    pub(crate) fn start(stage: &Stage) -> Self {
        stage.cluster.apply(CLIENT);
        stage.cluster.wait_pods("default", "app=client", 1, SOON);
        let stop = Arc::new(AtomicBool::new(false));
        let file = stage.home.path().join("forbidden.json");
        fs::write(&file, PRIVILEGED).unwrap();
        let mut review = stage.cluster.kubectl_command();
        review.args(["create", "--dry-run=server", "--filename"]).arg(&file);
        // Refused by the rule: neither admitted, nor failed for want of an answer.
        let reviews = Asked::start("reviews", &stop, review, |admitted, told| {
            (admitted || !told.contains("no-privileged")).then(|| told.to_owned())
        });
        let requests = Asked::start("requests to the API", &stop, api(stage), |answered, told| {
            (!answered).then(|| told.to_owned())
        });
        Self { stop, asked: vec![reviews, requests] }
    }

    pub(crate) fn stop_and_judge(self, stage: &Stage) {
        self.stop.store(true, Ordering::SeqCst);
        let mut told: Vec<_> = self.asked.into_iter().map(Asked::judge).collect();
        let log = stage.cluster.kubectl(&["logs", "client"]);
        let failed: Vec<_> = log.lines().filter(|line| line.starts_with("FAILED")).collect();
        let asked = log.lines().filter(|line| *line == "ok").count();
        assert!(failed.is_empty(), "{} of {asked} connections failed: {failed:?}", failed.len());
        assert!(asked > 30, "only {asked} connections");
        told.push(format!("{asked} connections between pods"));
        eprintln!("during the upgrade: {}, none failed", told.join(", "));
        stage.cluster.kubectl(&["delete", "pod", "client", "--wait=false"]);
    }
}

/// The command line on a node, with a user's token, by the API's Service.
fn api(stage: &Stage) -> Command {
    let cluster = &stage.cluster;
    let inside = [
        "--namespace=fairlead",
        "exec",
        "-i",
        "deployment/fairlead-controller",
        "--",
        "/usr/local/bin/fairlead",
    ];
    let mut add = cluster.kubectl_command();
    add.args(inside).args(["users", "add", "ann", "--role", "viewer"]);
    let mut add =
        add.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    add.stdin.take().unwrap().write_all(b"correct horse battery staple\n").unwrap();
    let added = add.wait_with_output().unwrap();
    assert!(added.status.success(), "{}", text(&added.stderr));
    // Another replica may answer, which learns of the user by its own watch.
    let token = cluster.wait_for("a token of the user", SOON, || {
        cluster.try_kubectl(&[&inside[..], &["tokens", "create", "--user", "ann"]].concat())
    });
    let (file, ca) = (stage.home.path().join("ann.token"), stage.home.path().join("ca.crt"));
    fs::write(&file, token.trim()).unwrap();
    let path = "jsonpath={.data.ca\\.crt}";
    let bundle = cluster.kubectl(&[
        "--namespace=fairlead",
        "get",
        "configmap",
        "fairlead-ca",
        "--output",
        path,
    ]);
    fs::write(&ca, bundle).unwrap();
    let service = cluster.kubectl(&[
        "--namespace=fairlead",
        "get",
        "service",
        "fairlead",
        "--output=jsonpath={.spec.clusterIP}",
    ]);
    cluster
        .in_node(2, &["sh", "-c", &format!("echo {service} fairlead.fairlead.svc >> /etc/hosts")]);
    let mut command = cluster.node_command(2, fairlead());
    command.args([
        "clusters",
        "list",
        "--server",
        "https://fairlead.fairlead.svc:7680",
        "--token-file",
    ]);
    command.arg(file).arg("--ca-file").arg(ca);
    // Every replica knows the user before anything is replaced.
    cluster.wait_for("the API to answer ten times", SOON, || {
        for _ in 0..10 {
            let output = command.output().unwrap();
            if !output.status.success() {
                return Err(text(&output.stderr));
            }
        }
        Ok(())
    });
    command
}

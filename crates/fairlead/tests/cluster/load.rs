//! What goes on while something is replaced: connections between pods, reviews, requests to the API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::{SOON, Stage};

/// Asks the web Service, and the API's, for ever. What fails is printed with its time.
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
  - name: api
    image: local/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, 'while :; do if timeout 5 wget -qO /dev/null --no-check-certificate https://fairlead.fairlead:7680/api/v1/openapi.json; then echo ok; else echo "FAILED $(date)"; fi; sleep 0.2; done']
"#;

/// One that a rule forbids, and one that none does.
const PRIVILEGED: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[{"name":"x","image":"x","securityContext":{"privileged":true}}]}}"#;

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    reviewed: Arc<AtomicUsize>,
    reviews: JoinHandle<Vec<String>>,
}

impl Load {
    pub(crate) fn start(stage: &Stage) -> Self {
        stage.cluster.apply(CLIENT);
        stage.cluster.wait_pods("default", "app=client", 1, SOON);
        let stop = Arc::new(AtomicBool::new(false));
        let reviewed = Arc::new(AtomicUsize::new(0));
        let dir = stage.home.path().join("forbidden.json");
        std::fs::write(&dir, PRIVILEGED).unwrap();
        let mut commands = Vec::new();
        for _ in 0..1 {
            let mut command = stage.cluster.kubectl_command();
            command.args(["create", "--dry-run=server", "--filename"]).arg(&dir);
            commands.push(command);
        }
        let (ended, count) = (stop.clone(), reviewed.clone());
        let reviews = std::thread::spawn(move || {
            let mut wrong = Vec::new();
            while !ended.load(Ordering::SeqCst) {
                for command in &mut commands {
                    let output = command.output().unwrap();
                    let told = String::from_utf8_lossy(&output.stderr).into_owned();
                    // Refused by the rule: not admitted, and not failed for want of an answer.
                    if output.status.success() || !told.contains("no-privileged") {
                        wrong.push(told);
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(300));
            }
            wrong
        });
        Self { stop, reviewed, reviews }
    }

    /// Everything was answered, and enough was asked for that to mean something.
    pub(crate) fn stop_and_judge(self, stage: &Stage) {
        self.stop.store(true, Ordering::SeqCst);
        let wrong = self.reviews.join().unwrap();
        assert!(wrong.is_empty(), "reviews that failed: {wrong:?}");
        let reviewed = self.reviewed.load(Ordering::SeqCst);
        assert!(reviewed > 10, "only {reviewed} reviews");
        let mut told = format!("{reviewed} reviews");
        for container in ["web", "api"] {
            let log = stage.cluster.kubectl(&["logs", "client", "--container", container]);
            let failed: Vec<_> = log.lines().filter(|line| line.starts_with("FAILED")).collect();
            let asked = log.lines().count();
            assert!(failed.is_empty(), "{container}: {} of {asked} failed: {failed:?}", failed.len());
            assert!(asked > 30, "{container}: only {asked} requests");
            told.push_str(&format!(", {asked} requests to {container}"));
        }
        println!("during the upgrade: {told}, none failed");
        stage.cluster.kubectl(&["delete", "pod", "client", "--wait=false"]);
    }
}

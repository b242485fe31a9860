mod exactly_once;
mod held;
mod killed;
mod kube;
mod restarts;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use objects::Objects;
use objects::kinds::{Group, NetworkRule};
use serde_json::json;
use stallproof::{Deadline, Ledger, Tasks};
use tokio::sync::Semaphore;

use super::checkpoints::Checkpoints;
use super::metrics::Metrics;
use super::{ActiveIngest, Counted, Ingest, NotCounted, ReportSink, Settings};
use crate::conversations::{
    Conversation, Endpoint, LocalWorkload, Moment, Protocol, Record, Report, Totals, Verdict,
};

/// Longer than anything takes here on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A controller's ingest outside of a term: it ends as by `kill -9`, with no last checkpoint.
struct Controller {
    ingest: Ingest,
    ledger: Ledger,
    tasks: Tasks,
}

impl Controller {
    async fn start(dir: &Path, shards: usize) -> Self {
        let settings = Settings { shards, ..Settings::new(dir.to_owned()) };
        let (ledger, tasks) = (Ledger::default(), Tasks::new("controller"));
        let checkpoints = Checkpoints::new(dir, Arc::new(Semaphore::new(1)));
        let metrics = Metrics::default();
        let opened = Ingest::open(&settings, &ledger, &metrics, checkpoints, &tasks).await;
        Self { ingest: opened.unwrap(), ledger, tasks }
    }

    async fn offer(&self, report: &Report) -> Result<Counted, NotCounted> {
        self.offer_until(report, soon()).await
    }

    async fn offer_until(&self, report: &Report, end: Deadline) -> Result<Counted, NotCounted> {
        offer(&self.ingest, report, end, &self.ledger).await
    }

    async fn save(&self) -> bool {
        self.ingest.save(soon(), &self.tasks).await
    }

    /// The conversations, once `wanted` says that they are all there.
    async fn until(&self, wanted: impl Fn(&[Conversation]) -> bool) -> Vec<Conversation> {
        let patience = soon();
        loop {
            let view = self.ingest.view();
            let all = view.conversations(|_| true, Moment(0));
            let all: Vec<_> = all.filter_map(|seen| seen.to_conversation()).collect();
            if wanted(&all) {
                return all;
            }
            assert!(!patience.has_passed(), "{all:#?}");
            self.ingest.0.shards.iter().for_each(super::ShardHandle::tick);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_bytes(&self, bytes: u64) {
        self.until(|all| all.iter().map(|it| it.totals.bytes).sum::<u64>() == bytes).await;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.tasks.stop("killed");
        self.ingest.close();
    }
}

/// Offers a report as the agents' server does.
async fn offer(
    ingest: &Ingest,
    report: &Report,
    deadline: Deadline,
    ledger: &Ledger,
) -> Result<Counted, NotCounted> {
    let op = ledger.begin("report", report.agent.to_string(), report.agent.to_string());
    ingest.offer(report, |_| true, deadline, &op).await
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn record(client: u8, server: u8, port: u16, bytes: u64) -> Record {
    Record {
        client: address(client),
        server: address(server),
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: bytes / 10, sessions: 1 },
        first: Moment(1000),
        last: Moment::now(),
    }
}

fn report(sequence: u64, records: Vec<Record>) -> Report {
    Report { agent: "node-0".into(), incarnation: 1, sequence, records, ..Report::default() }
}

fn workload(name: &str, number: u8) -> LocalWorkload {
    LocalWorkload {
        namespace: "shop".into(),
        name: name.into(),
        addresses: vec![address(number)],
        from: Moment(0),
    }
}

#[tokio::test]
async fn a_report_is_counted_and_soon_read() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    controller.ingest.set_workloads("node-0", &[workload("web", 1), workload("db", 2)]);
    let records = vec![record(1, 2, 5432, 500), record(9, 1, 80, 70)];
    let counted = controller.offer(&report(1, records)).await;
    assert_eq!(counted, Ok(Counted { through: 1, durable: 0 }));
    let seen = controller.until(|all| all.len() == 2).await;
    let mut seen: Vec<_> = seen
        .iter()
        .map(|it| (it.client.endpoint.to_string(), it.server.endpoint.to_string()))
        .collect();
    seen.sort();
    let pair = |client: &str, server: &str| (client.to_owned(), server.to_owned());
    assert_eq!(seen, [pair("external", "shop/web"), pair("shop/web", "shop/db")]);
    // What an agent says of its node is all there is.
    controller.ingest.set_workloads("node-0", &[workload("web", 1)]);
    let inventory = controller.ingest.inventory();
    let long_after = Moment(Moment::now().0 + 3_600_000);
    let at = |number| inventory.directory.resolve(address(number), long_after);
    assert!(matches!(*at(1), Endpoint::Workload { .. }));
    assert!(matches!(*at(2), Endpoint::External { .. }));
}

#[tokio::test]
async fn an_agent_that_began_again_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let newer = Report { incarnation: 2, ..report(1, vec![record(1, 2, 80, 5)]) };
    assert!(controller.offer(&newer).await.is_ok());
    let older = report(7, vec![record(1, 2, 80, 500)]);
    assert_eq!(controller.offer(&older).await, Err(NotCounted::Outdated { known: 2 }));
    controller.until_bytes(5).await;
}

#[tokio::test]
async fn what_is_seen_is_learned_and_what_no_rule_allows_is_a_violation() {
    let dir = tempfile::tempdir().unwrap();
    let controller = Controller::start(dir.path(), 2).await;
    let objects = Objects::embedded(&dir.path().join("objects"), &controller.tasks).unwrap();
    controller.ingest.follow_store(&objects, &controller.tasks);
    controller.ingest.set_workloads("node-0", &[workload("web", 1), workload("db", 2)]);
    let patience = soon();
    // Until the rules are compiled there is nobody to judge by.
    let mut sequence = 0;
    loop {
        sequence += 1;
        let seen = vec![record(1, 2, 5432, 500 + sequence)];
        controller.offer(&report(sequence, seen)).await.unwrap();
        if controller.ingest.learned().rules.len() == 1 {
            break;
        }
        assert!(!patience.has_passed(), "{:?}", controller.ingest.learned());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let learned = controller.ingest.learned().rules[0].clone();
    assert_eq!((&*learned.from, &*learned.to), ("shop/Pod/web", "shop/Pod/db"));
    let allowed = |all: &[Conversation]| all.iter().any(|it| it.verdict == Verdict::Allowed);
    controller.until(allowed).await;
    let shipped = controller.ingest.agent_policy();
    let rule = Arc::clone(shipped.load().rules.values().next().expect("the learned one"));
    assert!(rule.learned && shipped.load().groups["shop/Pod/db"].has(address(2)));

    // A group that is watched: what else comes to it is against the rules.
    let group: Group = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "Group", "metadata": {"name": "shop"},
        "spec": {"mode": "monitor",
                 "criteria": [{"key": "namespace", "op": "=", "value": "shop"}]}
    }))
    .unwrap();
    objects.create(&group, soon()).await.unwrap();
    let rule: NetworkRule = serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "NetworkRule",
        "metadata": {"name": "no-web-from-outside"},
        "spec": {"from": "external", "to": "shop", "action": "deny", "ports": ["tcp/80"]}
    }))
    .unwrap();
    objects.create(&rule, soon()).await.unwrap();
    // What comes before they are known would be learned.
    let known = || {
        let shipped = shipped.load();
        shipped.groups.contains_key("shop") && shipped.rules.contains_key("no-web-from-outside")
    };
    while !known() {
        assert!(!patience.has_passed(), "{shipped:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    loop {
        sequence += 1;
        let seen = vec![record(200, 1, 80, 10 * sequence), record(200, 1, 81, 10 * sequence)];
        controller.offer(&report(sequence, seen)).await.unwrap();
        if controller.ingest.violations().lines.len() == 2 {
            break;
        }
        assert!(!patience.has_passed(), "{:?}", controller.ingest.violations());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let violations = controller.ingest.violations();
    let rules: Vec<_> = violations.lines.iter().map(|it| it.conversation.rule.as_deref()).collect();
    assert!(rules.contains(&Some("no-web-from-outside")) && rules.contains(&None), "{rules:?}");
    assert!(shipped.load().groups["shop"].mode.is_some());

    // All of it is there after a restart.
    assert!(controller.save().await);
    let rules = controller.ingest.learned().rules.clone();
    drop(controller);
    let controller = Controller::start(dir.path(), 3).await;
    assert_eq!(controller.ingest.learned().rules, rules);
    assert_eq!(controller.ingest.violations().lines.len(), 2);
    let forgotten = controller.ingest.forget_learned(&learned.from, &learned.to, soon()).await;
    assert!(forgotten);
    assert!(!controller.ingest.learned().rules.contains(&learned));
}

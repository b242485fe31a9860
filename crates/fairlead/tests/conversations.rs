//! Who talks to whom, groups, rules and violations, through the real binary: what was counted is
//! there when it starts.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::path::Path;
use std::time::Duration;

use objects::Objects;
use running::{PATIENCE, Up};
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger, Tasks};
use traffic::conversations::{LocalWorkload, Moment, Protocol, Record, Report, Totals};
use traffic::ingest::{ActiveIngest, ReportSink, Settings};

const NOT_ENFORCED: &str = "protect stops connections on nodes whose agents enforce policies";

const RULE: &str = "
apiVersion: fairlead.dev/v1alpha1
kind: NetworkRule
metadata: {name: nothing-from-outside}
spec: {from: external, to: any, action: deny, priority: 10}
";

const GROUP: &str = "
apiVersion: fairlead.dev/v1alpha1
kind: Group
metadata: {name: office}
spec:
  mode: protect
  criteria: [{key: address, op: '=', value: 192.0.2.0/24}]
";

/// As NeuVector exports it: nobody outside may reach a container.
const DENIES: &str = r#"
apiVersion: neuvector.com/v1
kind: NvClusterSecurityRule
metadata: {name: containers}
spec:
  target: {policymode: Monitor, selector: {name: containers, criteria: []}}
  ingress:
  - {selector: {name: external, criteria: []}, applications: [any], ports: any, action: deny, name: no, priority: 0}
"#;

fn record(client: [u8; 4], server: [u8; 4], port: u16, bytes: u64) -> Record {
    Record {
        client: client.into(),
        server: server.into(),
        port,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes, packets: 3, sessions: 2 },
        first: Moment(1000),
        last: Moment::now(),
    }
}

/// A term of counting, as a controller leaves it on disk: two conversations, and what was learned.
async fn count(data: &Path) {
    let (seat, tasks) = (ActiveIngest::default(), Tasks::new("before"));
    let objects = Objects::embedded(&data.join("before"), &tasks).unwrap();
    let below = tasks.clone();
    let settings = Settings::new(data.join("guard"));
    let begin = move |ingest: &traffic::ingest::Ingest| ingest.follow_store(&objects, &below);
    let term = seat.clone().hold(settings, Ledger::default(), tasks.clone(), begin);
    let mut changes = seat.changes();
    let term = tasks.spawn("term", term);
    let soon = Deadline::after(PATIENCE);
    soon.bound(changes.changed()).await.unwrap();
    let ingest = seat.ingest().unwrap();
    let workload = |name: &str, number| LocalWorkload {
        namespace: "shop".into(),
        name: name.into(),
        addresses: vec![[10, 0, 0, number].into()],
        from: Moment(0),
    };
    ingest.set_workloads("node-1", &[workload("web", 1), workload("db", 2)]);
    let records = vec![
        record([10, 0, 0, 1], [10, 0, 0, 2], 5432, 4000),
        record([192, 0, 2, 7], [10, 0, 0, 1], 443, 70),
    ];
    let agent = "node-1".into();
    let report = Report { agent, incarnation: 1, sequence: 1, records, ..Report::default() };
    let op = Ledger::default().begin("report", "node-1", "node-1");
    ingest.offer(&report, |_| true, soon, &op).await.unwrap();
    let published = || ingest.view().conversations(|_| true, Moment(0)).count();
    while ingest.learned().rules.len() < 2 || published() < 2 {
        assert!(!soon.has_passed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tasks.stop("the term is over");
    soon.bound(term).await.unwrap().unwrap();
    tasks.shutdown(PATIENCE).await;
}

fn names(answer: &Value, list: &str) -> Vec<String> {
    let all = answer[list].as_array().unwrap().iter();
    all.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_command_line_shows_conversations_and_writes_groups_and_rules() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(count(&data));
    let up = Up::start(&data, "none");
    up.wait_for("/guard/conversations", |it| it["matched"] == 2);

    let all = up.fairlead(&["conversations"]);
    assert_eq!(all.code, 0, "{all:?}");
    for word in ["shop/web", "shop/db", "tcp/5432", "external 192.0.2.7", "VERDICT"] {
        assert!(all.out.contains(word), "{word} is not in {}", all.out);
    }
    let some = up.fairlead(&["conversations", "--external", "-n", "shop", "-o", "json"]).json();
    assert_eq!(
        (some["matched"].as_u64(), some["conversations"][0]["port"].as_u64()),
        (Some(1), Some(443))
    );
    let page = up.fairlead(&["conversations", "--limit", "1"]);
    assert!(page.err.contains("1 of 2") && page.err.contains("--continue"), "{page:?}");
    let graph = up.fairlead(&["conversations", "--graph", "namespace"]);
    assert!(graph.out.contains("external") && graph.out.contains("CONVERSATIONS"), "{graph:?}");
    // The past, which the term before left on disk.
    let past = ["conversations", "--since", "1h", "--until", "0s"];
    let before = up.fairlead(&[&past[..], &["-o", "json"]].concat()).json();
    assert_eq!(
        (&before["matched"], &before["totals"]["bytes"]),
        (&json!(2), &json!(4070)),
        "{before}"
    );
    let with = up.fairlead(&[&past[..], &["--end", "192.0.2.7"]].concat());
    assert!(with.out.contains("tcp/443 (https)") && !with.out.contains("5432"), "{with:?}");
    let nobody = up.fairlead(&["conversations", "--at", "1000h"]);
    assert!(nobody.code == 0 && nobody.err.contains("history is kept since"), "{nobody:?}");
    let exported = up.fairlead(&["conversations", "--export", "jsonl"]);
    assert_eq!((exported.code, exported.out.lines().count()), (0, 2), "{exported:?}");
    let live = up.fairlead(&["conversations", "--end", "192.0.2.7"]);
    assert!(live.code == 2 && live.err.contains("--at"), "{live:?}");

    // What an import would change of it, without a write.
    let diff = up.fairlead_with(&["guard", "import", "-", "--diff"], DENIES);
    assert!(diff.code == 1 && diff.out.contains("violates"), "{diff:?}");
    assert!(diff.err.contains("2 conversations were judged by both"), "{diff:?}");

    let wrong = up.fairlead(&["conversations", "--group", "No Such"]);
    assert!(wrong.code == 2 && wrong.err.contains("is no group"), "{wrong:?}");

    // Groups: made from a file, shown, and honest about protect.
    let applied = up.fairlead_with(&["groups", "apply", "-"], GROUP);
    assert_eq!((applied.code, applied.out.trim()), (0, "group office applied"), "{applied:?}");
    up.wait_for("/guard/groups", |it| it["groups"][0]["name"] == "office");
    let groups = up.fairlead(&["groups"]);
    assert!(groups.out.contains("protect"), "{groups:?}");
    assert!(groups.err.contains(NOT_ENFORCED), "{groups:?}");
    let shown = up.fairlead(&["groups", "show", "office", "-o", "json"]).json();
    assert_eq!(shown["criteria"][0], "address = 192.0.2.0/24");
    let not_one = up.fairlead_with(&["groups", "apply", "-"], RULE);
    assert!(
        not_one.code == 2 && not_one.err.contains("a Group or a list of them was expected"),
        "{not_one:?}"
    );

    // Rules: learned before, promoted now, exported, denied.
    let rules = up.fairlead(&["rules", "list", "-o", "json"]).json();
    let learned = names(&rules, "rules");
    assert_eq!(learned.len(), 2, "{rules}");
    let promoted = up.fairlead(&["rules", "promote", "--all"]);
    assert_eq!(promoted.out.lines().count(), 2, "{promoted:?}");
    let written =
        |it: &Value| it["rules"].as_array().unwrap().iter().all(|it| it["origin"] == "written");
    up.wait_for("/guard/rules", |it| names(it, "rules").len() == 2 && written(it));
    let listed = up.fairlead(&["rules", "list"]);
    assert!(listed.code == 0 && listed.err.contains(NOT_ENFORCED), "{listed:?}");
    let exported = up.fairlead(&["rules", "export"]);
    assert!(exported.code == 1 && exported.err.contains("note: "), "{exported:?}");
    let applied = up.fairlead_with(&["rules", "apply", "-"], RULE);
    assert_eq!(applied.code, 0, "{applied:?}");

    // What it denies is a violation, once it is looked at again.
    up.wait_for("/guard/violations", |it| it["violations"].as_array().unwrap().len() == 1);
    let violations = up.fairlead(&["violations", "--since", "1h"]);
    assert!(violations.out.contains("nothing-from-outside"), "{violations:?}");
    assert!(violations.err.contains(NOT_ENFORCED), "{violations:?}");
    let verdict = up.fairlead(&["conversations", "--verdict", "violates", "-o", "json"]).json();
    assert_eq!(verdict["conversations"][0]["rule"], "nothing-from-outside");

    // What was written is there after a kill, and so is what was counted, and when.
    up.kill();
    let up = Up::start(&data, "none");
    up.wait_for("/guard/conversations", |it| it["matched"] == 2);
    let after = up.fairlead(&[&past[..], &["-o", "json"]].concat()).json();
    assert_eq!(after["totals"], before["totals"]);
    up.wait_for("/guard/rules", |it| names(it, "rules").len() == 3);
    for name in learned.iter().map(String::as_str).chain(["nothing-from-outside"]) {
        let deleted = up.fairlead(&["rules", "delete", name]);
        assert_eq!(deleted.code, 0, "{deleted:?}");
    }
    assert_eq!(up.fairlead(&["groups", "delete", "office"]).code, 0);
    let again = up.fairlead(&["groups", "delete", "office"]);
    assert!(again.code != 0 && again.err.contains("office"), "{again:?}");
}

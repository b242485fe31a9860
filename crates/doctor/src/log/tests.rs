use super::*;
use crate::report::{EventKind, FaultClass, Finding};

fn story(text: &str) -> Story {
    let mut logs = Logs::default();
    logs.begin(Some(1_740_000_000_000));
    for (line, bytes) in (1..).zip(text.lines().map(str::as_bytes)) {
        let at = At { input: "x.log", line, bytes };
        if logs.line(at).is_none() {
            logs.remark(at);
        }
    }
    logs.finish()
}

fn find(story: &Story, class: FaultClass) -> Option<Finding> {
    story.findings().into_iter().find(|f| f.class == class)
}

fn klog(second: u32, text: &str) -> String {
    format!("I0126 13:{:02}:{:02}.000000       1 s.go:1] {text}\n", second / 60, second % 60)
}

#[test]
fn requests_that_end_are_no_finding_and_those_that_do_not_are() {
    let mut text = String::new();
    for n in 0..100 {
        text += &klog(n, &format!("Received request id=r{n:04}"));
        text += &klog(n, &format!("sent reply id=r{n:04}"));
    }
    assert!(find(&story(&text), FaultClass::UnansweredRequests).is_none());
    for n in 100..140 {
        text += &klog(n, &format!("Received request id=r{n:04}"));
    }
    text += &klog(900, "bye");
    let mut story = story(&text);
    let found = find(&story, FaultClass::UnansweredRequests).unwrap();
    assert!(found.title.starts_with("40 requests begun and never answered"), "{}", found.title);
    assert!(found.confidence.why.contains("sent reply"));
    assert_eq!(story.onset().unwrap().at % 3_600_000, 100_000);
}

#[test]
fn what_only_says_that_it_starts_owes_nothing() {
    let mut text = String::new();
    for n in 0..100 {
        text += &klog(n, &format!("Starting container id=c{n:04}"));
    }
    text += &klog(900, "bye");
    assert!(story(&text).findings().is_empty());
}

#[test]
fn requests_begun_just_before_the_end_may_still_be_well() {
    let mut text = String::new();
    for n in 0..100 {
        text += &klog(100, &format!("Received request id=r{n:04}"));
    }
    assert!(story(&text).findings().is_empty());
}

#[test]
fn a_healthy_log_is_no_finding() {
    let mut text = String::new();
    for n in 0..1000 {
        text += &klog(n, &format!("synced {n} items in {}ms", n % 17));
    }
    text +=
        "I0126 13:20:00.000000       1 leaderelection.go:257] successfully acquired lease a/b\n";
    text += "E0126 13:20:00.000000       1 a.go:7] could not update status, will retry\n";
    assert!(story(&text).findings().is_empty());
}

#[test]
fn signs_become_findings_with_their_counts() {
    let refused: String = (0..40)
        .map(|n| format!("2025-02-02T22:20:{n:02}.000Z [ERROR] agent.server.rpc: rejecting RPC conn from because rpc_max_conns_per_client exceeded: conn=from=10.42.55.36:{}\n", 4000 + n))
        .collect();
    let found = find(&story(&refused), FaultClass::RetryStorm).unwrap();
    assert!(found.title.starts_with("40 refused: agent.server.rpc"), "{}", found.title);

    let told = format!("{refused}( repeated...) (88736 hits)\n");
    let found = find(&story(&told), FaultClass::RetryStorm).unwrap();
    assert!(found.title.starts_with("88,736 refused"), "{}", found.title);
    assert_eq!(found.evidence[1].line, Some(41));

    let kind: String = (0..10)
        .map(|n| format!("2025-02-02T22:2{n}:00Z\tERROR\tcontroller\tReconciler error: no matches for kind \"Peer\" in version\n"))
        .collect();
    assert_eq!(find(&story(&kind), FaultClass::StaleCache).unwrap().details[0], "10 lines seen");

    let full = "2025-02-03T09:24:52.947|ERRO|CTL|rest.(*WebhookServer).validate: cacheAdmCtrlAudit - error=Queue full\n";
    assert!(find(&story(full), FaultClass::SlowConsumer).is_some());
}

#[test]
fn a_leader_that_goes_and_comes_is_told_in_order() {
    let text = "\
2025-01-26T13:09:13.061Z [ERROR] agent.server.raft: peer has newer term, stopping replication: peer=x
2025-01-26T13:09:15.771|INFO|CTL|cluster.StartCluster.func1: - newLead=10.42.60.190 oldLead=
2025-01-26T13:09:19.946|INFO|CTL|cluster.StartCluster.func1: - newLead= oldLead=10.42.60.190
2025-01-26T13:09:24.544|INFO|CTL|cluster.StartCluster.func2: Cannot locate lead - join=x
2025-01-26T13:10:30|MON|Process ctrl exit status -1, pid=19402
";
    let story = story(text);
    let events = story.events();
    let turns: Vec<&str> = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::Leader | EventKind::Restart))
        .map(|e| e.text.split(':').next().unwrap())
        .collect();
    assert_eq!(
        turns,
        ["leader lost", "leader elected", "leader lost", "no leader", "process ended"]
    );
}

#[test]
fn a_quoted_excerpt_counts_once() {
    let mut logs = Logs::default();
    logs.begin(None);
    logs.quoting();
    for _ in 0..2 {
        logs.line(At {
            input: "x",
            line: 1,
            bytes: b"2025-01-26T13:09:02.525|INFO|CTL|a.b: hello",
        });
    }
    assert_eq!(logs.lines(), 1);
}

#[test]
fn remarks_tell_how_often() {
    assert_eq!(hits(".... (28034 hits) \"x\""), Some(28_034));
    assert_eq!(hits("( repeated...) (88,736 hits)"), Some(88_736));
    assert_eq!(hits("it hits (often) the mark"), None);
    assert_eq!(hits("many times"), None);
}

#[test]
fn the_curve_finds_where_errors_multiply() {
    let mut curve = Curve::default();
    for second in 0..5000 {
        curve.add(second * 1000, second % 50 == 0);
        if second >= 3000 {
            for _ in 0..20 {
                curve.add(second * 1000, true);
            }
        }
    }
    assert!(curve.buckets.len() <= MOST_BUCKETS);
    let jump = curve.jump().unwrap();
    assert!((2_990_000..=3_010_000).contains(&jump), "{jump}");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken(lines in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..200), 0..50)) {
        let mut logs = Logs::default();
        for line in &lines {
            let at = At { input: "x", line: 1, bytes: line };
            logs.line(at);
            logs.remark(at);
        }
        let mut story = logs.finish();
        story.onset();
        story.findings();
        story.events();
    }
}

#[test]
fn many_in_flight_that_end_after_minutes_are_a_queue() {
    let mut text = String::new();
    for n in 0..40 {
        text += &klog(n * 10, &format!("server: {} requests in flight", 100 + 5 * n));
        text += &klog(n * 10, &format!("request completed duration={}s", 61 + n));
    }
    let found = find(&story(&text), FaultClass::Queue).expect("a queue");
    assert_eq!(found.waiters.total, 295);
    assert!(found.details[0].contains("40 of 40"), "{:?}", found.details);
    // The same load with quick answers is load.
    let quick = text.replace("duration=", "duration=0.0");
    assert!(find(&story(&quick), FaultClass::Queue).is_none());
    // Few in flight are few.
    let few = text.replace(" requests in flight", "% requests done");
    assert!(find(&story(&few), FaultClass::Queue).is_none());
}

#[test]
fn a_reporting_threshold_is_no_clients_deadline() {
    let mut text = String::new();
    for n in 0..40 {
        text += &klog(
            n * 10,
            &format!("request still running method=Add duration=30s inflight={}", 200 + n),
        );
    }
    let story = story(&text);
    assert!(story.latencies().is_empty(), "when it is reported is not how long it takes");
    let found = find(&story, FaultClass::Queue).expect("a queue");
    assert!(found.details[0].contains("no client's deadline"), "{:?}", found.details);
}

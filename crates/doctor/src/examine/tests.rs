use super::*;
use crate::report::{EventKind, FaultClass, Finding, Level, ResourceKind};

fn seed(name: &str) -> Report {
    let path = format!("{}/tests/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    examine(name, &bytes)
}

fn find(report: &Report, class: FaultClass) -> &Finding {
    let found = report.findings.iter().find(|f| f.class == class);
    found.unwrap_or_else(|| panic!("no {class:?} in {:#?}", report.findings))
}

#[test]
fn the_controller_stall_is_told_from_its_logs() {
    for name in ["controller-stall-1.txt", "controller-stall-2.txt"] {
        let report = seed(name);
        let memory = find(&report, FaultClass::MemoryOverLimit);
        assert_eq!(memory.title, "memory: 109.6 GB in use against a limit of 6 GiB, 17.0 times");
        assert_eq!(memory.details[0], "109,572,132,864 bytes against 6,442,450,944 bytes");

        let unanswered = find(&report, FaultClass::UnansweredRequests);
        assert_eq!(
            unanswered.title,
            "28,034 requests begun and never answered: cache.AgentAdmissionRequest: Receive connect request"
        );
        let since = unanswered.since.as_ref().unwrap().at.unwrap();
        assert_eq!(since.to_string(), "2025-01-26T13:09:02.525Z");

        let leader = find(&report, FaultClass::LeaderLoss);
        assert!(leader.title.contains("a consequence of the stall"), "{}", leader.title);
        assert!(
            leader.details[0].starts_with("the first sign of the stall came 11 s earlier"),
            "{:?}",
            leader.details
        );

        let storm: Vec<&str> = report
            .findings
            .iter()
            .filter(|f| f.class == FaultClass::RetryStorm)
            .map(|f| f.title.as_str())
            .collect();
        assert!(storm.iter().any(|t| t.starts_with("88,736 refused")), "{storm:?}");
        assert!(
            storm.iter().any(|t| t.contains("neuvector-enforcer-pod") && t.contains("1,557")),
            "{storm:?}"
        );

        let onset = report.timeline.iter().find(|e| e.kind == EventKind::Onset).unwrap();
        assert_eq!(onset.at.unwrap().to_string(), "2025-01-26T13:09:02.525Z");
        let restart = report.timeline.iter().find(|e| e.kind == EventKind::Restart).unwrap();
        assert_eq!(restart.at.unwrap().to_string(), "2025-01-26T13:10:30Z");
        assert!(report.timeline.iter().any(|e| e.kind == EventKind::Loop && e.count == 88_736));
    }
}

#[test]
fn the_lock_comes_first_and_the_log_agrees() {
    let report = seed("controller-stall-1.txt");
    let lock = &report.findings[0];
    assert_eq!(lock.resource.name, "cache.cacheMutex");
    let entries: Vec<u64> = lock.waiters.by_entry.iter().map(|e| e.count).collect();
    assert_eq!(entries, [128_846, 47_501, 9_832, 2_573]);
    assert!(lock.holders.is_empty() && lock.no_holder.is_some());
    let details = lock.details.join("\n");
    assert!(details.contains("the log agrees: 28,034 requests"), "{details}");
    assert!(details.contains("109.6 GB in use against a limit of 6 GiB"), "{details}");
    let since = lock.since.as_ref().and_then(|s| s.at).unwrap();
    assert_eq!(since.to_string(), "2025-01-26T13:09:02.525Z");
}

#[test]
fn the_cni_burst_is_a_queue_behind_one_lock() {
    let report = seed("cni-burst.txt");
    let queue = &report.findings[0];
    assert_eq!(queue.class, FaultClass::Queue);
    assert_eq!(
        queue.title,
        "Add: a queue behind one lock, latency pinned at the client's deadline of 120 s"
    );
    assert_eq!(queue.confidence.level, Level::Likely);
    assert_eq!(
        (queue.resource.kind, queue.resource.name.as_str()),
        (ResourceKind::Lock, "podNetwork.mu")
    );
    assert!(queue.holders.is_empty() && queue.no_holder.is_some());
    let details = queue.details.join("\n");
    assert!(
        details.contains(
            "60,059 started, 59,962 handled, of these 42,099 failed (70 %), 97 in flight"
        ),
        "{details}"
    );
    assert!(details.contains("562 goroutines"), "{details}");
    assert!(queue.evidence.iter().all(|e| e.line.is_some()));
}

#[test]
fn an_unread_argument_is_told_by_the_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("ok.log"), "I0126 13:09:02.000000 1 a.go:1] hello\n").unwrap();
    std::fs::write(path("odd"), "nothing that anybody knows\n").unwrap();
    std::fs::write(
        path("bad.log"),
        "2025-01-26T13:09:16.161|INFO|CTL|a: - memLimit=5 workingSet=50\n",
    )
    .unwrap();
    let run = |names: &[String]| examine_inputs(names, &Options::default(), &mut |_| {}).1;
    assert_eq!(run(&[path("ok.log")]), Conclusion::Nothing);
    assert_eq!(run(&[path("ok.log"), path("missing")]), Conclusion::Unread);
    assert_eq!(run(&[path("odd")]), Conclusion::Unread);
    assert_eq!(run(&[path("bad.log"), path("missing")]), Conclusion::Found);
    assert_eq!(run(&[dir.path().to_string_lossy().into_owned()]), Conclusion::Found);
    assert_eq!(run(&[]), Conclusion::Unread);
}

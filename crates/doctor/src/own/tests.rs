use super::*;

fn read(json: &str) -> Vec<Finding> {
    Ledger::parse("answer", json.as_bytes()).expect("ours").findings()
}

#[test]
fn late_operations_lead_to_the_holder_and_its_step() {
    let findings = read(
        r#"{"in_flight":3,"by_kind":[{"kind":"Add","in_flight":2},{"kind":"Del","in_flight":1}],"operations":[
        {"id":1,"kind":"Add","key":"pod-1","tenant":"ns","age_ms":61000,"step":"settle addresses","step_age_ms":60500,"steps":[{"name":"connect","ms":3}],"waits_on":null,"late":true},
        {"id":2,"kind":"Add","key":"pod-2","tenant":"ns","age_ms":60000,"step":"lock","step_age_ms":60000,"steps":[],"waits_on":{"what":"host routes","holder":1,"holder_doing":"Add pod-1"},"late":true},
        {"id":3,"kind":"Del","key":"pod-3","tenant":"ns","age_ms":20,"step":"lock","step_age_ms":20,"steps":[],"waits_on":{"what":"host routes","holder":1,"holder_doing":"Add pod-1"},"late":false}]}"#,
    );
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let found = &findings[0];
    assert_eq!(found.resource.name, "host routes");
    assert_eq!(found.waiters.total, 1, "who came just now is not stuck");
    assert_eq!(found.holders[0].frame, "Add pod-1 ns in step settle addresses");
    assert_eq!(
        found.title,
        "1 operation waits behind host routes, held by Add pod-1 ns in step settle addresses"
    );
}

/// The list is bounded: the holder may have been left out.
#[test]
fn a_holder_that_is_not_listed_is_told_in_the_words_of_the_waiter() {
    let findings = read(
        r#"{"in_flight":900,"by_kind":[],"operations":[
        {"id":2,"kind":"Add","key":"pod-2","tenant":"","age_ms":60000,"step":"lock","step_age_ms":60000,"steps":[],"waits_on":{"what":"A","holder":1,"holder_doing":"Add pod-1: netlink"},"late":true},
        {"id":4,"kind":"Add","key":"pod-4","tenant":"","age_ms":60000,"step":"lock","step_age_ms":60000,"steps":[],"waits_on":{"what":"B","holder":null,"holder_doing":null},"late":true}]}"#,
    );
    assert_eq!(findings[0].holders[0].frame, "Add pod-1: netlink");
    assert!(findings[1].holders.is_empty() && findings[1].no_holder.is_some());
}

#[test]
fn the_holder_of_a_lock_is_the_next_in_the_chain_not_its_end() {
    let findings = read(
        r#"{"in_flight":3,"by_kind":[],"operations":[
        {"id":1,"kind":"a","key":"","tenant":"","age_ms":9000,"step":"x","step_age_ms":9000,"steps":[],"waits_on":{"what":"A","holder":2,"holder_doing":""},"late":true},
        {"id":2,"kind":"b","key":"","tenant":"","age_ms":9000,"step":"y","step_age_ms":9000,"steps":[],"waits_on":{"what":"B","holder":3,"holder_doing":""},"late":true},
        {"id":3,"kind":"c","key":"","tenant":"","age_ms":9000,"step":"z","step_age_ms":9000,"steps":[],"waits_on":null,"late":true}]}"#,
    );
    let holders: Vec<_> =
        findings.iter().map(|f| (&*f.resource.name, &*f.holders[0].frame)).collect();
    assert_eq!(holders, [("A", "b in step y"), ("B", "c in step z")]);
    assert_eq!(findings[0].holders[0].blocked_on.as_deref(), Some("B"));
    assert_eq!(findings[0].details[0], "the chain of holders ends at c in step z");
}

#[test]
fn a_ring_is_one_deadlock_without_a_holder() {
    let findings = read(
        r#"{"in_flight":2,"by_kind":[],"operations":[
        {"id":1,"kind":"a","key":"","tenant":"","age_ms":9000,"step":"x","step_age_ms":9000,"steps":[],"waits_on":{"what":"B","holder":2,"holder_doing":""},"late":true},
        {"id":2,"kind":"b","key":"","tenant":"","age_ms":9000,"step":"y","step_age_ms":9000,"steps":[],"waits_on":{"what":"A","holder":1,"holder_doing":""},"late":true}]}"#,
    );
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].class, FaultClass::Deadlock);
    assert!(findings[0].holders.is_empty());
    let steps: Vec<_> =
        findings[0].cycle.iter().map(|step| (&*step.holds, &*step.waits_for)).collect();
    assert_eq!(steps, [("B", "A"), ("A", "B")]);
}

#[test]
fn a_lock_with_waiters_names_where_it_was_taken() {
    let findings = read(
        r#"{"locks":[{"class":"routes","instances":1,"acquisitions":9,"contended":2,"waiting":3,"held":[
        {"holder":"src/a.rs:3:4","held_ms":5000,"waiting":3,"waiter":"src/b.rs:1:1","waiting_ms":4000}]}]}"#,
    );
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let found = &findings[0];
    assert_eq!((&*found.resource.name, found.waiters.total), ("routes", 3));
    assert_eq!(found.holders[0].frame, "src/a.rs:3:4");
    assert_eq!(found.resource.sites, ["src/b.rs:1:1"]);
    assert_eq!(found.since.as_ref().expect("told").text, "the longest has waited for 4.0 s");
}

#[test]
fn a_stall_is_as_bad_as_the_watchdog_says() {
    let findings = read(
        r#"{"stalls":[{"name":"main-runtime","critical":true,"stalled_ms":5000,"fails_liveness":true},
        {"name":"janitor","critical":false,"stalled_ms":90000,"fails_liveness":false}]}"#,
    );
    let told: Vec<_> = findings.iter().map(|f| (&*f.title, f.severity, f.details.len())).collect();
    assert_eq!(
        told,
        [
            ("main-runtime owes progress and has made none for 5.0 s", Severity::Critical, 1),
            ("janitor owes progress and has made none for 90 s", Severity::Serious, 0)
        ]
    );
}

#[test]
fn healthy_answers_yield_no_finding() {
    for healthy in [
        r#"{"in_flight":1,"by_kind":[{"kind":"admin","in_flight":1}],"operations":[{"id":7168,"kind":"admin","key":"/debug/inflight","tenant":"local","age_ms":0,"step":"begin","step_age_ms":0,"steps":[],"waits_on":null,"late":false}]}"#,
        r#"{"in_flight":0,"by_kind":[],"operations":[]}"#,
        r#"{"stalls":[]}"#,
        r#"{"locks":[]}"#,
        r#"{"locks":[{"class":"x","instances":1,"acquisitions":9,"contended":2,"waiting":1,"held":[{"holder":"src/a.rs:3:4","held_ms":null,"waiting":0,"waiter":null,"waiting_ms":null},{"holder":"src/a.rs:3:4","held_ms":9,"waiting":1,"waiter":"src/b.rs:1:1","waiting_ms":8}]}]}"#,
    ] {
        assert!(begins(healthy.as_bytes()), "{healthy}");
        assert!(read(healthy).is_empty(), "{healthy}");
    }
}

#[test]
fn what_is_not_ours_is_not_read() {
    for other in ["{}", "1", "[]", r#"{"items":[{"kind":"Pod"}]}"#, r#"{"stalls":[1]}"#, "{\"x\""] {
        assert!(Ledger::parse("x", other.as_bytes()).is_none(), "{other}");
    }
    assert!(!begins(br#"{"level":"info","msg":"stalls"}"#));
}

#[test]
fn what_support_wrote_for_people_is_known_and_yields_no_finding() {
    let settings = r#"{"fairlead_support":"the settings","settings":[{"key":"data"}]}"#;
    assert!(begins(settings.as_bytes()));
    let read = Ledger::parse("settings.json", settings.as_bytes()).expect("ours");
    assert_eq!(read.summary(), "the settings");
    assert!(read.findings().is_empty());
    for (line, kind) in [
        ("Critical  main-runtime", Some("what Fairlead's watchdog follows")),
        ("Noted  janitor  stalled for 4.0 s", Some("what Fairlead's watchdog follows")),
        ("# fairlead support: process 7", Some("page of fairlead support")),
        ("thread 12 panicked", None),
        ("Critical: disk full", None),
    ] {
        assert_eq!(for_people(line.as_bytes()), kind, "{line}");
    }
}

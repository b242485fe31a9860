use super::*;

fn read(json: &str) -> Vec<Finding> {
    Ledger::parse("inflight", json.as_bytes()).expect("ours").findings()
}

#[test]
fn waiters_lead_to_the_holder_and_its_step() {
    let findings = read(
        r#"{"ops":[
        {"id":1,"kind":"Add","key":"pod-1","tenant":"ns","age_ms":61000,"step":"settle addresses","step_age_ms":60500,"late":true},
        {"id":2,"kind":"Add","key":"pod-2","tenant":"ns","age_ms":60000,"step":"lock","step_age_ms":60000,"waits_on":{"what":"host routes","holder":1},"late":true},
        {"id":"3","kind":"Del","age_ms":20,"waits_on":{"what":"host routes","holder":1}}]}"#,
    );
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let found = &findings[0];
    assert_eq!(found.resource.name, "host routes");
    assert_eq!(found.waiters.total, 1);
    assert_eq!(found.holders[0].frame, "Add pod-1 ns in step settle addresses");
}

#[test]
fn a_ring_is_a_deadlock_without_a_holder() {
    let findings = read(
        r#"[{"id":1,"kind":"a","step":"x","age_ms":9000,"waits_on":{"what":"B","holder":2}},
            {"id":2,"kind":"b","step":"y","age_ms":9000,"waits_on":{"what":"A","holder":1}}]"#,
    );
    assert_eq!(findings[0].class, FaultClass::Deadlock);
    assert_eq!(findings[0].cycle.len(), 2);
    assert!(findings[0].holders.is_empty());
    assert_eq!(
        (findings[0].cycle[0].holds.as_str(), findings[0].cycle[0].waits_for.as_str()),
        ("B", "A")
    );
}

#[test]
fn what_is_in_time_is_no_finding_and_what_is_not_ours_is_not_read() {
    let findings = read(r#"[{"id":1,"kind":"Add","age_ms":3,"step":"x"}]"#);
    assert!(findings.is_empty());
    assert!(read("[]").is_empty());
    for other in ["{}", "1", r#"[{"a":1}]"#, r#"{"items":[{"kind":"Pod"}]}"#, "[1,2]", "{\"x\""] {
        assert!(Ledger::parse("x", other.as_bytes()).is_none(), "{other}");
    }
}

#[test]
fn a_late_operation_leads_to_the_one_it_waits_on() {
    let findings = read(
        r#"{"in_flight":3,"by_kind":[{"kind":"Add","in_flight":2},{"kind":"admin","in_flight":1}],
        "operations":[
        {"id":7101,"kind":"commit","key":"pod-1","tenant":"east","age_ms":9100,"step":"fsync","step_age_ms":9000,"steps":[{"name":"begin","ms":100}],"waits_on":null,"late":false},
        {"id":7102,"kind":"Add","key":"pod-2","tenant":"east","age_ms":8200,"step":"commit","step_age_ms":8100,"steps":[],"waits_on":{"what":"journal","holder":7101,"holder_doing":"commit pod-1 of east, in fsync for 9.0s"},"late":true},
        {"id":7168,"kind":"admin","key":"/debug/inflight","tenant":"local","age_ms":0,"step":"begin","step_age_ms":0,"steps":[],"waits_on":null,"late":false}]}"#,
    );
    let [found] = findings.as_slice() else { panic!("{findings:#?}") };
    assert_eq!((found.resource.name.as_str(), found.waiters.total), ("journal", 1));
    assert_eq!(found.holders[0].frame, "commit pod-1 east in step fsync");
}

#[test]
fn a_holder_beyond_the_list_is_named_by_its_waiter() {
    let findings = read(
        r#"{"in_flight":90,"by_kind":[],"operations":[
        {"id":2,"kind":"Add","key":"pod-2","tenant":"east","age_ms":8200,"step":"commit","step_age_ms":8100,"steps":[],"waits_on":{"what":"journal","holder":1,"holder_doing":"commit pod-1 of east, in fsync for 9.0s"},"late":true}]}"#,
    );
    assert_eq!(findings[0].holders[0].frame, "commit pod-1 of east, in fsync for 9.0s");
}

#[test]
fn a_lock_with_waiters_names_where_it_was_taken() {
    let findings = read(
        r#"{"locks":[
        {"class":"routes","instances":1,"acquisitions":88,"contended":3,"waiting":2,"held":[
            {"holder":"crates/net/src/routes.rs:41","held_ms":12100,"waiting":2,"waiter":"crates/net/src/add.rs:88","waiting_ms":12000}]},
        {"class":"cache","instances":4,"acquisitions":9,"contended":1,"waiting":1,"held":[
            {"holder":"crates/net/src/cache.rs:7","held_ms":null,"waiting":1,"waiter":"crates/net/src/cache.rs:9","waiting_ms":1}]}]}"#,
    );
    let [found] = findings.as_slice() else { panic!("{findings:#?}") };
    assert_eq!((found.resource.name.as_str(), found.waiters.total), ("routes", 2));
    assert_eq!(found.holders[0].frame, "crates/net/src/routes.rs:41");
}

#[test]
fn a_stall_is_as_bad_as_the_watchdog_says() {
    let findings = read(
        r#"{"stalls":[{"name":"net.reconcile","critical":true,"stalled_ms":31000,"fails_liveness":true}]}"#,
    );
    assert_eq!(findings[0].severity, Severity::Critical);
    assert_eq!(findings[0].title, "net.reconcile has not moved for 31 s");
    assert!(findings[0].details[0].contains("liveness"));
}

#[test]
fn a_healthy_process_is_read_and_yields_nothing() {
    for healthy in [
        r#"{"in_flight":1,"by_kind":[{"kind":"admin","in_flight":1}],"operations":[{"id":7168,"kind":"admin","key":"/debug/inflight","tenant":"local","age_ms":0,"step":"begin","step_age_ms":0,"steps":[],"waits_on":null,"late":false}]}"#,
        r#"{"in_flight":0,"by_kind":[],"operations":[]}"#,
        r#"{"stalls":[]}"#,
        r#"{"locks":[{"class":"routes","instances":1,"acquisitions":88,"contended":0,"waiting":0,"held":[{"holder":"routes.rs:41","held_ms":null,"waiting":0,"waiter":null,"waiting_ms":null}]}]}"#,
    ] {
        let report = crate::examine("own", healthy.as_bytes());
        assert_eq!(report.inputs[0].taken_for, ["Fairlead ledger"], "{healthy}");
        assert!(report.findings.is_empty(), "{healthy}");
    }
}

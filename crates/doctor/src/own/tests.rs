use super::*;

fn read(json: &str) -> Vec<Finding> {
    Ledger::parse("inflight", json.as_bytes())
        .expect("ours")
        .findings()
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
    assert_eq!(
        found.holders[0].frame,
        "Add pod-1 ns in step settle addresses"
    );
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
        (
            findings[0].cycle[0].holds.as_str(),
            findings[0].cycle[0].waits_for.as_str()
        ),
        ("B", "A")
    );
}

#[test]
fn what_is_in_time_is_no_finding_and_what_is_not_ours_is_not_read() {
    let findings = read(r#"[{"id":1,"kind":"Add","age_ms":3,"step":"x"}]"#);
    assert!(findings.is_empty());
    assert!(read("[]").is_empty());
    for other in [
        "{}",
        "1",
        r#"[{"a":1}]"#,
        r#"{"items":[{"kind":"Pod"}]}"#,
        "[1,2]",
        "{\"x\"",
    ] {
        assert!(Ledger::parse("x", other.as_bytes()).is_none(), "{other}");
    }
}

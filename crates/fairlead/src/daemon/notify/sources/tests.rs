use access::audit::{Phase, Record};
use admission::{AuditKey, Decided, Line, Outcome};
use jiff::Timestamp;
use objects::kinds::EventLevel;

use super::{act, decision};

#[test]
fn a_denial_names_the_workload_the_image_and_the_rule() {
    let line = Line {
        subject: AuditKey {
            outcome: Outcome::Denied,
            cluster: "eu".to_owned(),
            namespace: "shop".to_owned(),
            owner: "Deployment/web".to_owned(),
            image: "web:1".to_owned(),
            rule: Some("no-root".to_owned()),
            dry_run: false,
        },
        latest: Decided {
            object: "Pod/web-0".to_owned(),
            container: None,
            user: "ada".to_owned(),
            why: "denied by no-root".to_owned(),
        },
        count: 7,
        first: Timestamp::UNIX_EPOCH,
        last: Timestamp::UNIX_EPOCH,
    };
    let event = decision(&line);
    assert_eq!((event.name.as_str(), event.level), ("admission.denied", EventLevel::Error));
    assert_eq!(event.workload.as_deref(), Some("shop/Deployment/web"));
    assert_eq!(
        (event.pod.as_deref(), event.cluster.as_str(), event.count),
        (Some("web-0"), "eu", 7)
    );
    assert_eq!(event.details["rule"], "no-root");
    assert!(!event.details.contains_key("container"));
}

#[test]
fn a_failed_login_is_told_apart_from_a_write() {
    let mut record = Record {
        id: "1".to_owned(),
        phase: Phase::Noted,
        time: Timestamp::UNIX_EPOCH,
        who: "ada".to_owned(),
        via: "local".to_owned(),
        from: None,
        verb: "login".to_owned(),
        cluster: "-".to_owned(),
        namespace: None,
        resource: "sessions".to_owned(),
        name: Some("ada".to_owned()),
        request_id: None,
        dry_run: false,
        count: Some(3),
        details: Default::default(),
        before: None,
        after: None,
        outcome: Some("bad-password".to_owned()),
        ended: None,
        took_ms: None,
    };
    let event = act(&record).expect("an event");
    assert_eq!((event.name.as_str(), event.count), ("audit.login-failed", 3));
    record.verb = "delete".to_owned();
    record.outcome = Some("ok".to_owned());
    let event = act(&record).expect("an event");
    assert_eq!((event.name.as_str(), event.level), ("audit.write", EventLevel::Info));
    assert_eq!(event.subject(), "user ada");
}

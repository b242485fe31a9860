use super::*;

fn subject(outcome: Outcome, owner: &str) -> AuditKey {
    AuditKey {
        outcome,
        cluster: "local".to_owned(),
        namespace: "shop".to_owned(),
        owner: owner.to_owned(),
        image: "web/cart".to_owned(),
        rule: None,
        dry_run: false,
    }
}

fn decided(object: &str) -> Decided {
    Decided { object: object.to_owned(), container: None, user: "u".to_owned(), why: String::new() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn decisions_on_one_owner_image_and_rule_are_one_line() {
    let mut book = AuditWriter::default();
    book.write(subject(Outcome::Denied, "a"), decided("Pod/a-1"), at(1));
    book.write(subject(Outcome::Denied, "b"), decided("Pod/b-1"), at(2));
    book.write(subject(Outcome::Denied, "a"), decided("Pod/a-2"), at(3));
    book.write(subject(Outcome::Monitored, "a"), decided("Pod/a-2"), at(3));
    let audit = book.audit();
    let lines: Vec<_> = audit.lines.values().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0].subject.owner, "b", "the others have changed since");
    let line = lines[1];
    assert_eq!((line.count, line.first, line.last), (2, at(1), at(3)));
    assert_eq!(line.latest.object, "Pod/a-2");
}

#[test]
fn admissions_push_out_no_violation_and_what_goes_is_counted() {
    let mut book = AuditWriter::default();
    book.write(subject(Outcome::Denied, "kept"), decided("x"), at(0));
    for i in 0..MOST_ADMISSIONS + 10 {
        book.write(subject(Outcome::Allowed, &i.to_string()), decided("x"), at(1));
    }
    let audit = book.audit();
    assert_eq!(audit.lines.len(), MOST_ADMISSIONS + 1);
    assert_eq!(audit.forgotten, 10);
    assert!(audit.lines.values().any(|line| line.subject.owner == "kept"));
    // One that was forgotten begins anew, and nothing else is lost for it.
    book.write(subject(Outcome::Allowed, "0"), decided("x"), at(2));
    let audit = book.audit();
    assert_eq!((audit.lines.len(), audit.forgotten), (MOST_ADMISSIONS + 1, 11));
    assert_eq!(audit.lines.get_max().unwrap().1.count, 1);
    for i in 0..MOST_VIOLATIONS {
        book.write(subject(Outcome::Monitored, &i.to_string()), decided("x"), at(3));
    }
    assert!(!book.audit().lines.values().any(|line| line.subject.owner == "kept"));
    assert_eq!(book.at.len(), book.audit().lines.len());
}

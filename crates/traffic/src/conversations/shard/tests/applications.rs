//! Conversations whose application agents tell.

use super::*;

/// Allows what is said to be redis.
#[derive(Debug)]
struct RedisAlone;

impl Judge for RedisAlone {
    fn judge(&self, _: &End, _: &End, service: Service<'_>) -> Judgement {
        let allowed = service.application == Some("redis");
        let verdict = if allowed { Verdict::Allowed } else { Verdict::Violates };
        Judgement { verdict, rule: Some("redis".into()) }
    }
}

fn said(application: Option<&str>, bytes: u64, last: u64) -> Record {
    let record = record(pod_address(1, 1), pod_address(0, 0), 8080, bytes, last);
    Record { application: application.map(Into::into), ..record }
}

fn applications(controller: &mut Controller) -> Vec<(Option<String>, Verdict, u64)> {
    let all = controller.conversations();
    let mut all: Vec<_> = all
        .into_iter()
        .map(|it| (it.application.map(|it| it.to_string()), it.verdict, it.totals.bytes))
        .collect();
    all.sort_by_key(|it| it.2);
    all
}

#[test]
fn a_conversation_goes_on_under_its_name_when_that_is_known_and_is_judged_by_it() {
    let mut controller = Controller::new(1, Limits::default());
    controller.shards[0].govern(Arc::new(RedisAlone));
    let seen = controller.report("node-0", 1, vec![said(None, 100, 90)], NOW);
    assert_eq!(seen.violations.len(), 1);
    let named = controller.report("node-0", 1, vec![said(Some("redis"), 900, 91)], NOW);
    assert_eq!(named.violations.len(), 0);
    let redis = Some("redis".to_owned());
    let found = applications(&mut controller);
    assert_eq!(found, [(redis.clone(), Verdict::Allowed, 1000)]);
    // Another application is another conversation, and so is one that is not known any more.
    let more = vec![said(Some("ssh"), 3000, 92), said(None, 200, 93)];
    let seen = controller.report("node-0", 1, more, NOW);
    let mut against: Vec<_> = seen.violations.iter().map(|it| it.application.clone()).collect();
    against.sort();
    assert_eq!(against, [None, Some("ssh".into())]);
    let found = applications(&mut controller);
    assert_eq!(
        found,
        [
            (None, Verdict::Violates, 100),
            (redis, Verdict::Allowed, 1000),
            (Some("ssh".to_owned()), Verdict::Violates, 3000)
        ]
    );
}

#[test]
fn a_name_that_turns_out_to_be_against_the_rules_is_noticed() {
    #[derive(Debug)]
    struct NoSsh;
    impl Judge for NoSsh {
        fn judge(&self, _: &End, _: &End, service: Service<'_>) -> Judgement {
            let denied = service.application == Some("ssh");
            let verdict = if denied { Verdict::Violates } else { Verdict::Allowed };
            Judgement { verdict, rule: None }
        }
    }
    let mut controller = Controller::new(1, Limits::default());
    controller.shards[0].govern(Arc::new(NoSsh));
    controller.report("node-0", 1, vec![said(None, 100, 90)], NOW);
    let mut grown = said(Some("ssh"), 900, 91);
    grown.totals.sessions = 0;
    assert_eq!(controller.report("node-0", 1, vec![grown], NOW).violations.len(), 1);
}

/// The agent of the client's node may say what it likes of a server elsewhere.
#[test]
fn a_node_names_no_conversation_that_another_one_counts_and_makes_no_name_up() {
    let mut controller = Controller::new(1, Limits::default());
    controller.shards[0].govern(Arc::new(RedisAlone));
    controller.report("node-0", 1, vec![said(None, 100, 90)], NOW);
    controller.report("node-1", 1, vec![said(Some("redis"), 900, 91)], NOW);
    let unknown = [(None, Verdict::Violates, 100)];
    assert_eq!(applications(&mut controller), unknown);
    // Names of its own are none: they take no place, and no rule holds for them.
    let made_up = |i: u64| {
        let mut record = said(Some(&format!("made-up-{i}")), 10, 92);
        record.port = 1 + u16::try_from(i).unwrap();
        record
    };
    controller.report("node-0", 1, (0..30).map(made_up).collect(), NOW);
    assert!(applications(&mut controller).iter().all(|it| it.0.is_none()));
}

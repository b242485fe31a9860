use std::sync::Arc;

use proptest::prelude::*;

use super::{Violations, ViolationsView};
use crate::conversations::{Conversation, End, Endpoint, Moment, Protocol, Totals, Verdict};

fn notice(namespace: &str, port: u16, at: u64) -> Conversation {
    let client = Endpoint::Workload {
        namespace: namespace.into(),
        name: "web".into(),
        owner: "Deployment/web".into(),
        node: "a".into(),
    };
    Conversation {
        client: End { endpoint: Arc::new(client), address: [10, 0, 0, 1].into() },
        server: End {
            endpoint: Arc::new(Endpoint::External { name: None }),
            address: [192, 0, 2, 1].into(),
        },
        protocol: Protocol::TCP,
        port,
        application: None,
        verdict: Verdict::ViolatesUnenforced,
        rule: port.is_multiple_of(2).then(|| Arc::from("no")),
        totals: Totals { bytes: 10, packets: 1, sessions: 1 },
        first: Moment(at),
        last: Moment(at),
    }
}

fn ports(view: &ViolationsView) -> Vec<u16> {
    view.lines.iter().map(|line| line.conversation.port).collect()
}

#[test]
fn the_same_again_is_the_same_line() {
    let mut violations = Violations::new(10);
    for at in [5, 3, 9] {
        violations.add(&notice("shop", 80, at));
    }
    let view = violations.view();
    assert_eq!(view.lines.len(), 1);
    let line = &view.lines[0].conversation;
    assert_eq!((line.first, line.last, line.totals.sessions), (Moment(3), Moment(9), 3));
}

#[test]
fn the_oldest_goes_for_want_of_room_and_is_counted() {
    let mut violations = Violations::new(3);
    (1..=5).for_each(|port| violations.add(&notice("shop", port, u64::from(port))));
    assert_eq!((ports(&violations.view()), violations.view().let_go), (vec![3, 4, 5], 2));
    violations.add(&notice("shop", 1, 9));
    assert_eq!((ports(&violations.view()), violations.view().let_go), (vec![4, 5, 1], 3));
}

#[test]
fn lines_are_found_by_end_and_time_and_by_what_changed() {
    let mut violations = Violations::new(10);
    violations.add(&notice("shop", 1, 10));
    violations.add(&notice("bank", 2, 20));
    violations.add(&notice("shop", 3, 30));
    let view = violations.view();
    let of = |namespace: &'static str| {
        move |end: &End| end.endpoint.namespace().is_some_and(|name| **name == *namespace)
    };
    let found = |since| {
        view.query(of("shop"), Moment(since)).map(|it| it.conversation.port).collect::<Vec<_>>()
    };
    assert_eq!((found(0), found(11)), (vec![3, 1], vec![3]));
    let seen = view.changed_since(0).last().unwrap().change;
    violations.add(&notice("bank", 2, 40));
    violations.add(&notice("shop", 4, 40));
    let later = violations.view();
    let changed: Vec<_> =
        later.changed_since(seen).iter().map(|line| line.conversation.port).collect();
    assert_eq!(changed, [2, 4]);
    assert_eq!(ports(&view), [1, 2, 3], "a reader keeps what it saw");
}

#[test]
fn lines_survive_a_checkpoint_and_go_on() {
    let mut violations = Violations::new(4);
    (1..=6).for_each(|port| violations.add(&notice("shop", port, u64::from(port))));
    let mut loaded = Violations::load(&violations.save(), 4).unwrap();
    assert_eq!(loaded.view().lines, violations.view().lines);
    assert_eq!(loaded.view().let_go, 2);
    loaded.add(&notice("shop", 6, 70));
    assert_eq!(ports(&loaded.view()), [3, 4, 5, 6]);
    assert_eq!(loaded.view().changed_since(6).len(), 1);
    assert_eq!(ports(&Violations::load(&violations.save(), 2).unwrap().view()), [5, 6]);
}

proptest! {
    #[test]
    fn no_bytes_make_loading_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let _ = Violations::load(&bytes, 4);
        let mut violations = Violations::new(4);
        (1..=3).for_each(|port| violations.add(&notice("shop", port, 1)));
        let mut saved = violations.save();
        let at = at.index(saved.len());
        saved[at] = byte;
        let _ = Violations::load(&saved, 4);
    }
}

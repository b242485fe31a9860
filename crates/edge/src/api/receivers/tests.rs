use serde_json::json;

use super::*;

fn state(name: &str, state: &'static str, queued: u64) -> ReceiverState {
    let spec = json!({"webhook": {"url": "https://hooks.example.com"}});
    ReceiverState {
        name: name.to_owned(),
        r#type: "webhook".to_owned(),
        spec: serde_json::from_value(spec).unwrap(),
        state: state.into(),
        why: (state == "failing").then(|| "503".to_owned()),
        since: None,
        attempts: 0,
        queued,
        delivered: 10 * queued,
        dropped: 1,
        last_delivery: None,
    }
}

#[test]
fn queues_of_all_replicas_are_added_up_and_the_gravest_state_is_told() {
    let mut list = ReceiverList {
        receivers: vec![state("a", "idle", 0), state("b", "failing", 2)],
        missing: Vec::new(),
    };
    let other = vec![state("a", "failing", 3), state("b", "idle", 5), state("0", "idle", 0)];
    let told = vec![("two".to_owned(), ReceiverList { receivers: other, missing: Vec::new() })];
    list.merge(ReplicaParts { told, missing: vec![MissingReplica::new("three", "gone")] });
    let seen: Vec<_> = list
        .receivers
        .iter()
        .map(|it| (it.name.as_str(), &*it.state, it.queued, it.delivered, it.dropped))
        .collect();
    let expected = [("0", "idle", 0, 0, 1), ("a", "failing", 3, 30, 2), ("b", "failing", 7, 70, 2)];
    assert_eq!(seen, expected);
    assert_eq!(list.receivers[1].why.as_deref(), Some("503 (in the replica two)"));
    assert_eq!(list.receivers[2].why.as_deref(), Some("503"));
    assert_eq!(list.missing[0].replica, "three");
    // As another replica reads it.
    let read: ReceiverList = serde_json::from_str(&serde_json::to_string(&list).unwrap()).unwrap();
    assert_eq!(read.receivers.len(), 3);
}

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use traffic::conversations::Protocol;

use super::*;

const IDLE: Duration = Duration::from_secs(600);

fn key(port: u16) -> ConversationKey {
    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
    ConversationKey { client, server, port, protocol: Protocol::TCP }
}

#[test]
fn what_is_stopped_is_told_as_a_running_total_and_again_to_who_lost_it() {
    let (mut denied, rule) = (Denied::default(), Arc::from("NetworkPolicy a/db isolation"));
    assert!(denied.add(key(80), &rule, 2, Moment(1_000), IDLE));
    assert!(denied.add(key(80), &rule, 3, Moment(2_000), IDLE));
    let told = denied.tell(7);
    assert_eq!((told.len(), told[0].packets, told[0].first), (1, 5, Moment(1_000)));
    assert!(!denied.has_news());
    // Counted, and not on disk: another controller has to hear of it.
    denied.lost_after(6);
    assert_eq!(denied.tell(8)[0].packets, 5);
    denied.lost_after(8);
    assert!(!denied.has_news());
}

#[test]
fn an_idle_total_begins_anew_and_is_forgotten_once_it_is_on_disk() {
    let (mut denied, rule) = (Denied::default(), Arc::from("r"));
    denied.add(key(80), &rule, 2, Moment(1_000), IDLE);
    denied.tell(1);
    denied.forget(0, Moment(700_000), IDLE);
    denied.add(key(80), &rule, 1, Moment(700_000), IDLE);
    let told = denied.tell(2);
    assert_eq!((told[0].packets, told[0].first), (1, Moment(700_000)));
    denied.forget(2, Moment(1_400_000), IDLE);
    assert!(denied.0.is_empty());
}

#[test]
fn it_is_bounded() {
    let (mut denied, rule) = (Denied::default(), Arc::from("r"));
    let room = (0..2_000).filter(|port| denied.add(key(*port), &rule, 1, Moment(1), IDLE)).count();
    assert_eq!(room, MOST);
    assert_eq!(denied.tell(1).len(), MOST);
}

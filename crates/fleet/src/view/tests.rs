use super::*;

#[test]
fn a_cluster_is_written_with_rfc_3339_times_and_its_newest_pulse() {
    let since: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
    let heartbeat = Heartbeat::default();
    let view = ClusterView {
        name: "a".into(),
        source: Source { kind: SourceKind::InCluster, place: "here".to_owned() },
        labels: BTreeMap::new(),
        server: None,
        state: State::Unauthorised,
        since,
        why: Some("because".to_owned()),
        version: None,
        nodes: None,
        next_try: Some(since),
        impersonating: false,
        shadowed_by: None,
        heartbeat: heartbeat.clone(),
    };
    assert_eq!(view.age(since), None);
    heartbeat.record(since, Duration::from_micros(12_500));
    let written = serde_json::to_value(&view).unwrap();
    assert_eq!(written["state"], "unauthorised");
    assert_eq!(written["since"], "2026-03-01T10:00:00Z");
    assert_eq!(written["lastSeen"], "2026-03-01T10:00:00Z");
    assert_eq!(written["latencyMs"], 12.5);
    assert_eq!(written["source"]["kind"], "in-cluster");
    let later = since + SignedDuration::from_secs(3);
    assert_eq!(view.age(later), Some(Duration::from_secs(3)));
}

#[test]
fn a_state_is_counted_under_its_own_name() {
    for (index, state) in State::ALL.into_iter().enumerate() {
        assert_eq!(state as usize, index);
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
    }
}

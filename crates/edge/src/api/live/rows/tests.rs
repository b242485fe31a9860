use super::*;

#[test]
fn a_token_is_read_as_it_was_written_and_nothing_else_is_one() {
    let token = Token { epoch: u64::MAX, revision: 17, seal: 3 };
    assert_eq!(Token::read(&token.text()), Some(token));
    for other in ["", "1.2", "1.2.3.4", "x.y.z", "1..3", "-1.2.3"] {
        assert_eq!(Token::read(other), None, "{other}");
    }
}

#[test]
fn a_token_is_good_for_the_same_parameters_and_permissions_alone() {
    let query = |labels: Option<&str>| {
        let params = RowsParams {
            clusters: vec!["eu".to_owned()],
            kind: "pods".to_owned(),
            namespaces: None,
            labels: labels.map(ToOwned::to_owned),
            fields: None,
        };
        RowsQuery::rows(params).unwrap().1
    };
    let (admin, nobody) = (Permissions::admin(), Permissions::default());
    assert_eq!(query(None).seal(&admin), query(None).seal(&admin));
    assert_ne!(query(None).seal(&admin), query(Some("a=b")).seal(&admin));
    assert_ne!(query(None).seal(&admin), query(None).seal(&nobody));
}

#[test]
fn a_state_is_news_when_it_is_another_one() {
    let state = |latency, since: i64| ClusterState {
        state: "live",
        since: Timestamp::from_second(since).unwrap(),
        why: None,
        next_try_at: None,
        latency_ms: Some(latency),
    };
    assert!(!is_news(&state(40.0, 1), &state(42.0, 1)));
    assert!(is_news(&state(40.0, 1), &state(80.0, 1)));
    let stale = ClusterState { state: "stale", ..state(40.0, 1) };
    assert!(is_news(&state(40.0, 1), &stale));
}

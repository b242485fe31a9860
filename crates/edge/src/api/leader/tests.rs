use super::*;

#[test]
fn a_replica_is_named_with_its_address_where_it_gave_one() {
    let replica = Replica::parse("fairlead-controller-0@10.0.0.5");
    assert_eq!(replica.address, Some(IpAddr::from([10, 0, 0, 5])));
    assert_eq!(replica.to_string(), "fairlead-controller-0 (10.0.0.5)");
    assert_eq!(Replica::parse("a@fd00::1").to_string(), "a (fd00::1)");
    for named in ["node-1", "node@1", "node@"] {
        let replica = Replica::parse(named);
        assert_eq!((replica.to_string().as_str(), replica.address), (named, None));
    }
}

#[test]
fn a_pass_is_of_one_user_and_one_request() {
    let uri = |text: &'static str| Uri::from_static(text);
    let (here, there) = (uri("/guard/agents?limit=1"), uri("/api/v1/guard/agents?limit=1"));
    let text = |until, user, uri| Text { until, user, method: &Method::GET, uri }.written();
    // The same wherever in the router one looks.
    assert_eq!(text(1, "ann", &here), text(1, "ann", &there));
    let other = uri("/guard/agents?limit=2");
    for different in [text(2, "ann", &here), text(1, "bob", &here), text(1, "ann", &other)] {
        assert_ne!(different, text(1, "ann", &here));
    }
}

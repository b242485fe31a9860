use super::*;

#[test]
fn what_an_agent_said_comes_before_what_a_port_is_for() {
    let said: Arc<str> = "grpc".into();
    let known = |said, protocol, port| KnownApplication::of(said, Some((protocol, port)));
    let by_agent = known(Some(&said), Protocol::TCP, 443).unwrap();
    assert_eq!((by_agent.name, by_agent.known_by()), ("grpc", "agent"));
    let by_port = known(None, Protocol::TCP, 5432).unwrap();
    assert_eq!((by_port.name, by_port.known_by()), ("postgresql", "port"));
    assert_eq!(known(None, Protocol::UDP, 443).unwrap().name, "quic");
    assert_eq!(known(None, Protocol::UDP, 5432), None);
    assert_eq!(known(None, Protocol::TCP, 31_000), None);
    assert_eq!(KnownApplication::of(None, None), None);
}

#[test]
fn ports_are_in_order_and_each_stands_once() {
    for ports in [&TCP[..], &UDP[..]] {
        assert!(ports.windows(2).all(|two| two[0].0 < two[1].0));
    }
}

use super::*;

#[test]
fn what_bytes_told_comes_before_what_a_port_is_for() {
    let said: Arc<str> = "grpc".into();
    let known = |said, protocol, port| KnownApplication::of(said, Some((protocol, port)));
    let by_bytes = known(Some(&said), Protocol::TCP, 443).unwrap();
    assert_eq!((by_bytes.name, by_bytes.known_by()), ("grpc", "bytes"));
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

#[test]
fn what_bytes_may_tell_is_in_order_and_has_the_words_of_ports() {
    assert!(BY_BYTES.is_sorted());
    assert_eq!(told_by_bytes("redis"), Some("redis"));
    assert_eq!(told_by_bytes("made up"), None);
    // These have no port nearly for themselves.
    let alone = ["http2", "tls"];
    for name in BY_BYTES.iter().filter(|name| !alone.contains(name)) {
        assert!(TCP.iter().chain(&UDP).any(|(_, of_port)| of_port == name), "{name}");
    }
}

use super::*;

fn socket(cookie: u64, local: &str, remote: Option<&str>) -> Socket {
    let state = remote.map_or(State::Listening, |remote| State::Established {
        remote: remote.parse().unwrap(),
        bytes: 100,
        packets: 2,
    });
    Socket { cookie, local: local.parse().unwrap(), state }
}

fn ends(sockets: &[Socket]) -> Vec<(u64, String)> {
    let shown = |flow: &Flow| {
        let FlowId { client, server, port, .. } = flow.id;
        format!("{client} to {server} port {port}")
    };
    let mut ends: Vec<_> = flows(sockets).map(|(cookie, flow)| (cookie, shown(&flow))).collect();
    ends.sort();
    ends
}

#[test]
fn whoever_listens_is_the_server_and_a_connection_within_the_machine_counts_once() {
    let sockets = [
        socket(1, "0.0.0.0:22", None),
        socket(2, "10.0.0.1:8080", None),
        socket(3, "[::]:443", None),
        // Somebody is connected to us, and we to somebody.
        socket(4, "10.0.0.1:22", Some("10.9.9.9:50000")),
        socket(5, "10.0.0.1:50001", Some("10.8.8.8:443")),
        // Of a dual-stack listener the kernel gives an IPv4 address.
        socket(6, "10.0.0.1:443", Some("10.9.9.9:50002")),
        // Both ends are here.
        socket(7, "10.0.0.1:50003", Some("10.0.0.1:8080")),
        socket(8, "10.0.0.1:8080", Some("10.0.0.1:50003")),
    ];
    let expected = [
        (4, "10.9.9.9 to 10.0.0.1 port 22"),
        (5, "10.0.0.1 to 10.8.8.8 port 443"),
        (6, "10.9.9.9 to 10.0.0.1 port 443"),
        (7, "10.0.0.1 to 10.0.0.1 port 8080"),
    ];
    assert_eq!(ends(&sockets), expected.map(|(cookie, shown)| (cookie, shown.to_owned())));
}

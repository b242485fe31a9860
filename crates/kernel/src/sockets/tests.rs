use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use testkit::{Sandbox, requires};

use super::*;
use crate::netns::Namespace;

/// What the test sends; the kernel counts the first segment of a direction as a byte.
const CARRIED: RangeInclusive<u64> = 3500..=3502;

#[test]
fn connections_are_listed_from_both_ends_with_what_they_carried() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [a, b] = ["a", "b"].map(|name| sandbox.host(name));
    sandbox.link((&a, "10.0.0.1/24"), (&b, "10.0.0.2/24"));
    let [a, b] = [a, b].map(|host| Namespace::open(host.netns()).unwrap());
    let listener = b.run_in(|| TcpListener::bind("10.0.0.2:80")).unwrap().unwrap();
    let mut client = a.run_in(|| TcpStream::connect("10.0.0.2:80")).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 3000]).unwrap();
    server.read_exact(&mut [0; 3000]).unwrap();
    server.write_all(&[1; 500]).unwrap();
    client.read_exact(&mut [0; 500]).unwrap();

    let list = |namespace: &Namespace| {
        namespace
            .run_in(|| {
                let mut found = Vec::new();
                Sockets::open().unwrap().list(|socket| found.push(socket)).unwrap();
                found
            })
            .unwrap()
    };
    let at_a = list(&a);
    let [socket] = at_a.as_slice() else { panic!("{at_a:?}") };
    assert_eq!(socket.local, client.local_addr().unwrap());
    let State::Established { remote, bytes, packets } = socket.state else { panic!("{socket:?}") };
    assert_eq!(remote, server.local_addr().unwrap());
    assert!(CARRIED.contains(&bytes), "{bytes}");
    assert!(packets >= 4, "{packets}");
    assert_eq!(list(&a)[0].cookie, socket.cookie);

    let at_b = list(&b);
    assert_eq!(at_b.len(), 2, "{at_b:?}");
    let listening = at_b.iter().find(|it| it.state == State::Listening).unwrap();
    assert_eq!(listening.local, listener.local_addr().unwrap());
    // What the server sent is acknowledged a moment later.
    let began = Instant::now();
    loop {
        let connected = list(&b).into_iter().find(|it| it.state != State::Listening).unwrap();
        let State::Established { remote, bytes, .. } = connected.state else {
            panic!("{connected:?}")
        };
        assert_eq!(remote, client.local_addr().unwrap());
        if CARRIED.contains(&bytes) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{bytes}");
        thread::sleep(Duration::from_millis(5));
    }

    drop((client, server));
    assert!(list(&a).is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_a_socket_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes);
    }
}

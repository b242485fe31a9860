use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;

/// Long enough for a byte that is under way to arrive; too short makes a test weaker, not fail.
const A_WHILE: Duration = Duration::from_millis(200);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A server that sends back what it gets, for as long as the process lives.
fn echo() -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            thread::spawn(move || io::copy(&mut client.try_clone().unwrap(), &mut client));
        }
    });
    address
}

struct Client(TcpStream);

impl Client {
    fn connect(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.address()).unwrap())
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn gets(&mut self, text: &str) {
        let mut answer = vec![0; text.len()];
        self.0.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, text.as_bytes());
    }

    #[track_caller]
    fn gets_nothing(&mut self) {
        self.0.set_read_timeout(Some(A_WHILE)).unwrap();
        let error = self.0.read(&mut [0]).expect_err("a byte, or an end");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn a_sound_proxy_passes_everything_and_then_the_end() {
    let proxy = Proxy::start(echo());
    let mut client = Client::connect(&proxy);
    let much = "x".repeat(1_000_000);
    let mut sender = client.0.try_clone().unwrap();
    let sending = thread::spawn(move || {
        sender.write_all("x".repeat(1_000_000).as_bytes()).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    client.gets(&much);
    sending.join().unwrap();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_refusing_proxy_has_its_port_closed_until_healed() {
    let proxy = Proxy::start(echo());
    let mut old = Client::connect(&proxy);
    old.send("before");
    old.gets("before");
    proxy.inject(Fault::Refuse);

    let refusal = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::ConnectionRefused);
    old.send("old ones go on");
    old.gets("old ones go on");

    proxy.heal();
    let mut new = Client::connect(&proxy);
    new.send("after");
    new.gets("after");
}

#[test]
fn a_black_hole_holds_old_and_new_connections_and_gives_back_all_when_healed() {
    let proxy = Proxy::start(echo());
    let mut old = Client::connect(&proxy);
    old.send("before");
    old.gets("before");
    proxy.inject(Fault::BlackHole);

    let mut new = Client::connect(&proxy);
    old.send("old");
    new.send("new");
    old.gets_nothing();
    new.gets_nothing();

    proxy.heal();
    old.gets("old");
    new.gets("new");
}

#[test]
fn a_hung_handshake_begins_an_answer_and_ends_it_when_healed() {
    let proxy = Proxy::start(echo());
    let mut old = Client::connect(&proxy);
    old.send("before");
    old.gets("before");
    proxy.inject(Fault::HangHandshake);

    old.send("old ones go on");
    old.gets("old ones go on");
    let mut new = Client::connect(&proxy);
    new.send("hello, server");
    new.gets("hello");
    new.gets_nothing();

    proxy.heal();
    new.gets(", server");
}

#[test]
fn a_delay_is_paid_in_both_directions() {
    let proxy = Proxy::start(echo());
    proxy.inject(Fault::Delay(A_WHILE));
    let mut client = Client::connect(&proxy);
    let sent = Instant::now();
    client.send("late");
    client.gets("late");
    assert!(sent.elapsed() >= 2 * A_WHILE);
}

#[test]
fn a_throttle_is_no_faster_than_it_says() {
    let proxy = Proxy::start(echo());
    proxy.inject(Fault::Throttle { bytes_per_second: 1000 });
    let mut client = Client::connect(&proxy);
    let sent = Instant::now();
    client.send(&"x".repeat(500));
    client.gets(&"x".repeat(500));
    assert!(sent.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_fault_that_is_healed_no_longer_makes_anyone_wait() {
    let proxy = Proxy::start(echo());
    proxy.inject(Fault::Delay(Duration::from_secs(3600)));
    let mut client = Client::connect(&proxy);
    client.send("at last");
    client.gets_nothing();
    proxy.heal();
    client.gets("at last");
}

#[test]
fn a_cut_resets_what_stands_even_in_a_black_hole_and_lets_new_ones_in() {
    let proxy = Proxy::start(echo());
    let mut old = Client::connect(&proxy);
    old.send("before");
    old.gets("before");
    proxy.inject(Fault::BlackHole);
    proxy.cut();
    assert_eq!(old.0.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);

    proxy.heal();
    let mut new = Client::connect(&proxy);
    new.send("after");
    new.gets("after");
}

#[test]
fn a_server_that_is_not_there_is_a_reset() {
    let nobody = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start(nobody);
    let mut client = Client::connect(&proxy);
    assert_eq!(client.0.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

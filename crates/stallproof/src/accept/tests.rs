use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::Deadline;

const LONG: Duration = Duration::from_secs(10);

/// Answers a byte when it is sent one, and ends with the group.
async fn echo(connection: Connection<TcpStream>) {
    let Connection { mut stream, place: _place, stop, .. } = connection;
    let mut byte = [0];
    while let Some(Ok(1)) = stop.bound(stream.read(&mut byte)).await {
        stream.write_all(&byte).await.unwrap();
    }
}

async fn start(limits: ConnectionLimits, tasks: &Tasks) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let (count, group) = (refused.clone(), tasks.clone());
    tasks.spawn("accept", async move {
        let refuse = move |_| {
            count.fetch_add(1, SeqCst);
        };
        accept(listener, "echo", limits, &group, echo, refuse).await;
    });
    (address, refused)
}

/// Whether the connection is served.
async fn speaks(stream: &mut TcpStream) -> bool {
    let answer = async {
        stream.write_all(b"x").await?;
        stream.read_u8().await
    };
    Deadline::after(LONG).bound(answer).await.expect("an answer or an end").is_ok()
}

#[tokio::test]
async fn one_connection_more_than_the_limit_is_refused_until_another_ends() {
    let tasks = Tasks::new("test");
    let (address, refused) = start(ConnectionLimits::total(2), &tasks).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert!(speaks(&mut stream).await);
        open.push(stream);
    }
    let mut third = TcpStream::connect(address).await.unwrap();
    assert!(!speaks(&mut third).await);
    assert_eq!(refused.load(SeqCst), 1);
    open.pop();
    // The place is free as soon as the server has seen the end.
    let served = async {
        loop {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if speaks(&mut stream).await {
                return;
            }
        }
    };
    Deadline::after(LONG).bound(served).await.unwrap();
    assert!(tasks.shutdown(LONG).await.is_empty());
}

#[tokio::test]
async fn one_address_cannot_take_every_place() {
    let tasks = Tasks::new("test");
    let limits = ConnectionLimits { per_address: 1, ..ConnectionLimits::total(3) };
    let (address, refused) = start(limits, &tasks).await;
    let from = async |own: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{own}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let served = speaks(&mut stream).await;
        (served, stream)
    };
    let first = from("127.0.0.1").await;
    let second = from("127.0.0.1").await;
    let other = from("127.0.0.2").await;
    assert_eq!((first.0, second.0, other.0), (true, false, true));
    assert_eq!(refused.load(SeqCst), 1);
    tasks.shutdown(LONG).await;
}

#[tokio::test]
async fn the_newest_is_served_and_the_oldest_of_who_has_most_is_cut_off() {
    let tasks = Tasks::new("test");
    let limits = ConnectionLimits {
        per_address: 3,
        when_full: WhenFull::CutOldest,
        ..ConnectionLimits::total(4)
    };
    let (address, refused) = start(limits, &tasks).await;
    let from = async |own: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{own}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        assert!(speaks(&mut stream).await, "the newest is served");
        stream
    };
    let mut quiet = from("127.0.0.2").await;
    let mut flood = Vec::new();
    for _ in 0..20 {
        flood.push(from("127.0.0.1").await);
    }
    // Of one address there are three at most.
    for (nth, stream) in flood.iter_mut().enumerate() {
        assert_eq!(speaks(stream).await, nth >= 17, "connection {nth}");
    }
    // A third address takes the place of the one that has most, not of the oldest of all.
    from("127.0.0.3").await;
    assert!(speaks(&mut quiet).await);
    assert_eq!(refused.load(SeqCst), 0);
    tasks.shutdown(LONG).await;
}

#[test]
fn a_place_is_counted_once_and_given_back_once() {
    let limits = ConnectionLimits { per_address: 1, ..ConnectionLimits::total(10) };
    let places = Arc::new(Places { limits, taken: Mutex::default() });
    let peer = |text: &str| Some(SocketAddr::new(text.parse().unwrap(), 1));
    let one = places.take(peer("2001:db8::1")).unwrap();
    assert!(places.take(peer("2001:db8::2")).is_none(), "they share a network");
    let other = places.take(peer("2001:db8:0:1::1")).unwrap();
    let unnamed = [places.take(None).unwrap(), places.take(None).unwrap()];
    assert_eq!(places.taken.lock().open.len(), 4);
    drop((one, other, unnamed));
    let taken = places.taken.lock();
    assert_eq!((taken.open.len(), taken.by_address.len()), (0, 0));
}

/// Fails as told, then never returns.
struct Failing(mpsc::UnboundedSender<Instant>, fn(usize) -> ErrorKind, AtomicUsize);

impl Listener for Failing {
    type Stream = ();

    async fn accept(&self) -> io::Result<((), Option<SocketAddr>)> {
        let nth = self.2.fetch_add(1, SeqCst);
        self.0.send(Instant::now()).unwrap();
        if nth == 8 {
            std::future::pending::<()>().await;
        }
        Err((self.1)(nth).into())
    }
}

async fn tried(kind: fn(usize) -> ErrorKind) -> Vec<u128> {
    let tasks = Tasks::new("test");
    let (tell, mut told) = mpsc::unbounded_channel();
    let (began, group) = (Instant::now(), tasks.clone());
    tasks.spawn("accept", async move {
        let listener = Failing(tell, kind, AtomicUsize::new(0));
        let limits = ConnectionLimits::total(1);
        accept(listener, "failing", limits, &group, |_| async {}, |()| {}).await;
    });
    let mut tried = Vec::new();
    for _ in 0..=8 {
        tried.push((told.recv().await.unwrap() - began).as_millis());
    }
    assert!(tasks.shutdown(LONG).await.is_empty());
    tried
}

#[tokio::test(start_paused = true)]
async fn without_file_descriptors_the_loop_slows_down_and_one_bad_connection_does_not_slow_it() {
    let out_of_descriptors = tried(|_| ErrorKind::Other).await;
    assert_eq!(out_of_descriptors, [0, 100, 300, 700, 1500, 2500, 3500, 4500, 5500]);
    assert_eq!(tried(|_| ErrorKind::ConnectionAborted).await, [0; 9]);
}

#[tokio::test]
async fn a_stop_ends_the_loop_and_lets_connections_end_themselves() {
    let tasks = Tasks::new("test");
    let (address, _) = start(ConnectionLimits::total(2), &tasks).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    assert!(speaks(&mut stream).await);
    assert!(tasks.shutdown(LONG).await.is_empty(), "nothing was aborted");
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
}

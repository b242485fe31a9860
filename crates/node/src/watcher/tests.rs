use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};

use kernel::netns::Namespace;
use testkit::{Sandbox, requires};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
/// Long: what comes sooner comes for another reason.
const NEVER: Duration = Duration::from_secs(600);

struct Running {
    tasks: Tasks,
    outbox: mpsc::Receiver<Arc<Report>>,
    events: mpsc::Sender<SessionEvent>,
    _watchdog: Watchdog,
}

impl Running {
    fn start(namespace: &Namespace, file: &std::path::Path) -> Self {
        Self::start_with(namespace, file, Connections::Tracked { everywhere: true })
    }

    fn start_with(namespace: &Namespace, file: &std::path::Path, connections: Connections) -> Self {
        let (reports, outbox) = mpsc::channel(1);
        let (events, heard) = mpsc::channel(16);
        let tasks = Tasks::new("test");
        let watchdog = Watchdog::start(stallproof::watchdog::WatchdogLimits::default(), None);
        let runtime = tokio::runtime::Handle::current();
        let start = || {
            let _entered = runtime.enter();
            let settings = Settings {
                node: "node1".into(),
                file: file.to_owned(),
                connections,
                pods: None,
                denials: None,
                applications: None,
            };
            let watcher = Watcher::open(settings, Metrics::default()).unwrap();
            watcher.start(reports, heard, &watchdog, &tasks).unwrap();
        };
        namespace.run_in(start).unwrap();
        Self { tasks, outbox, events, _watchdog: watchdog }
    }

    async fn say(&self, event: SessionEvent) {
        self.events.send(event).await.unwrap_or_else(|_| panic!("it has ended"));
    }

    async fn join(&self) -> u64 {
        let (answer, incarnation) = oneshot::channel();
        self.say(SessionEvent::Joining { answer }).await;
        let incarnation = incarnation.await.unwrap();
        self.say(SessionEvent::Joined { epoch: 1, interval: NEVER }).await;
        incarnation
    }

    async fn next(&mut self) -> Arc<Report> {
        let next = tokio::time::timeout(PATIENCE, self.outbox.recv());
        next.await.expect("a report").expect("it runs")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_seen_is_posted_until_it_is_counted_and_the_next_start_goes_on() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [a, b] = ["a", "b"].map(|name| sandbox.host(name));
    sandbox.link((&a, "10.0.0.1/24"), (&b, "10.0.0.2/24"));
    let [a, b] = [a, b].map(|host| Namespace::open(host.netns()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("guard/sensor");
    let server = b.run_in(|| UdpSocket::bind("10.0.0.2:53")).unwrap().unwrap();
    let client = a.run_in(|| UdpSocket::bind("10.0.0.1:0")).unwrap().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let say = || {
        client.send(&[1; 100]).unwrap();
        server.recv(&mut [0; 200]).unwrap();
    };

    let mut running = Running::start(&a, &file);
    say();
    let incarnation = running.join().await;
    let first = running.next().await;
    assert_eq!(first.incarnation, incarnation);
    let [record] = first.records.as_slice() else { panic!("{first:?}") };
    assert_eq!((record.totals.bytes, record.totals.sessions), (128, 1));
    assert_eq!((record.port, record.server.to_string()), (53, "10.0.0.2".to_owned()));

    // It may not have arrived.
    running.say(SessionEvent::Disconnected).await;
    assert_eq!(running.join().await, incarnation);
    let again = running.next().await;
    assert_eq!(again, first);
    running.say(SessionEvent::Counted { sequence: 1, durable: 0, interval: NEVER }).await;

    say();
    running.tasks.shutdown(PATIENCE).await;
    let mut running = Running::start(&a, &file);
    say();
    assert_eq!(running.join().await, incarnation);
    let next = running.next().await;
    assert_eq!(next.sequence, 2);
    assert_eq!(next.records[0].totals.bytes, 3 * 128);
    assert_eq!(next.records[0].first, record.first);

    // Told that it is over, it begins again, later than what is known: its clock may have gone back.
    let known = incarnation + 3_600_000;
    running.say(SessionEvent::Outdated { known }).await;
    assert_eq!(running.join().await, known + 1);
    say();
    running.say(SessionEvent::Disconnected).await;
    running.join().await;
    let anew = running.next().await;
    assert_eq!((anew.sequence, anew.records[0].totals.bytes), (1, 128));
    running.tasks.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_sockets_are_observed_and_nothing_of_the_network_changes() {
    requires!(netns);
    let sandbox = Sandbox::new();
    let [a, b] = ["a", "b"].map(|name| sandbox.host(name));
    sandbox.link((&a, "10.0.0.1/24"), (&b, "10.0.0.2/24"));
    let rules = || {
        let output = a.command("nft").args(["list", "ruleset"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let before = rules();
    let [at_a, at_b] = [&a, &b].map(|host| Namespace::open(host.netns()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let listener = at_b.run_in(|| TcpListener::bind("10.0.0.2:80")).unwrap().unwrap();
    let mut client = at_a.run_in(|| TcpStream::connect("10.0.0.2:80")).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 100]).unwrap();
    server.read_exact(&mut [0; 100]).unwrap();

    // What was there before is told, since nobody has told of it.
    let file = dir.path().join("sensor");
    let mut running = Running::start_with(&at_a, &file, Connections::OwnSockets);
    running.join().await;
    let first = running.next().await;
    let [record] = first.records.as_slice() else { panic!("{first:?}") };
    assert_eq!((record.port, record.totals.sessions), (80, 1));
    assert!(record.totals.bytes >= 100, "{record:?}");
    assert_eq!(rules(), before);
    running.say(SessionEvent::Counted { sequence: 1, durable: 1, interval: NEVER }).await;
    running.tasks.shutdown(PATIENCE).await;

    // After a restart only what is new is told.
    client.write_all(&[1; 50]).unwrap();
    server.read_exact(&mut [0; 50]).unwrap();
    let mut running = Running::start_with(&at_a, &file, Connections::OwnSockets);
    running.join().await;
    let next = running.next().await;
    let [grown] = next.records.as_slice() else { panic!("{next:?}") };
    assert_eq!(grown.totals.sessions, 1);
    assert!(grown.totals.bytes >= record.totals.bytes + 50, "{grown:?}");
    running.tasks.shutdown(PATIENCE).await;
}

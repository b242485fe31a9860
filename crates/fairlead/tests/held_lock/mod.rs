//! The API and the console in the test's own process, in which a lock is really held: who connects to the
//! address has one thread take it and another wait for it, until the connection ends.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use access::audit::{Audit, Size};
use access::{Access, LocalToken};
use edge::api::{Api, Gates, Serving};
use edge::tls::ListenerTls;
use fleet::{Fleet, FleetConfig};
use objects::Objects;
use stallproof::ledger::LedgerConfig;
use stallproof::{Ledger, Readiness, Tasks, TrackedMutex};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct HeldLock {
    pub(crate) api: SocketAddr,
    pub(crate) hold: SocketAddr,
    pub(crate) token: String,
    _data: TempDir,
}

pub(crate) async fn serve(tasks: &Tasks) -> HeldLock {
    let data = tempfile::tempdir().unwrap();
    let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
    let readiness = Readiness::default();
    let objects = Objects::embedded(&data.path().join("objects"), tasks).unwrap();
    let token = LocalToken::open(data.path()).unwrap();
    let api = Api {
        fleet: Fleet::start(FleetConfig::default(), objects.clone(), ledger.clone(), tasks),
        access: Access::start(objects.clone(), tasks, &readiness, Some(&token)),
        audit: Audit::start(data.path(), Size::default(), tasks),
        recordings: None,
        ledger: ledger.clone(),
        gates: Gates::default(),
        meshes: mesh::Meshes::new(objects.clone()),
        admission: None,
        agents: None,
        traffic: None,
        notifier: None,
        programs: None,
        leader: None,
        replicas: None,
        objects,
        watchdog: None,
        tasks: tasks.clone(),
        no_clusters: "no clusters".into(),
        leaving: None,
        own_certificate: None,
        serving: Serving::default(),
    };
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    edge::api::start(api, listener, ListenerTls::Plain, tasks).unwrap();
    let control = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hold = control.local_addr().unwrap();
    let below = tasks.clone();
    tasks.spawn("held lock", async move {
        while let Ok((stream, _)) = control.accept().await {
            held_while_open(stream, &ledger, &below).await;
        }
    });
    HeldLock { api: address, hold, token: token.secret().expose().to_owned(), _data: data }
}

/// One thread holds the lock until `stream` ends; another waits for it meanwhile.
async fn held_while_open(mut stream: TcpStream, ledger: &Ledger, tasks: &Tasks) {
    let lock = Arc::new(TrackedMutex::new("stuck cache", 0_u32));
    let (let_go, asked_to) = std::sync::mpsc::channel::<()>();
    let (took, taken) = tokio::sync::oneshot::channel();
    let holder = ledger.begin("refresh", "the cache", "eu");
    let holder_id = holder.id();
    let own = Arc::clone(&lock);
    let holding = std::thread::spawn(move || {
        let mut guard = own.lock();
        let _ = took.send(());
        // As a call does that never comes back.
        let _ = asked_to.recv();
        *guard += 1;
        drop(guard);
        drop(holder);
    });
    taken.await.unwrap();
    let waiter = ledger.begin("lookup", "pod web-0", "eu");
    waiter.waits_on("lock stuck cache", Some(holder_id));
    let own = Arc::clone(&lock);
    let waiting = std::thread::spawn(move || {
        *own.lock() += 1;
        drop(waiter);
    });
    let stop = tasks.stopping();
    let mut end = [0; 1];
    tokio::select! {
        _ = stream.read(&mut end) => {}
        _ = stop.stopped() => {}
    }
    drop(let_go);
    let ended = tokio::task::spawn_blocking(|| (holding.join(), waiting.join())).await.unwrap();
    assert!(ended.0.is_ok() && ended.1.is_ok());
    assert_eq!(*lock.lock(), 2, "both had it, one after the other");
}

//! Reviews over HTTPS, 10,176 at a time, as many as `controller-stall` had: alone, and while other
//! gates are full of requests that nobody answers and a writer is stuck. What is elsewhere must not be
//! noticed.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Admission, Settings, WebhookUpkeep, lead};
use bench::Table;
use edge::webhook::{Webhook, start};
use objects::{Election, Expected, Id, Objects, Timing};
use pki::{Certificates, Lifetimes};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use stallproof::gate::GateConfig;
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Gate, Ledger, Priority, Readiness, Snapshot, Tasks, TrackedMutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

#[path = "../../admission/benches/reviews/mod.rs"]
mod reviews;

use reviews::{RULES, review, rules};

const REVIEWS: usize = 10_176;
/// What an API server keeps open to a webhook, twice.
const CONNECTIONS: usize = 48;

fn request() -> Vec<u8> {
    let body = String::from_utf8(review()).unwrap();
    let length = body.len();
    format!(
        "POST /admit?timeout=10s HTTP/1.1\r\nhost: hook\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// One keep-alive connection; how long each of its reviews took.
async fn caller(
    at: SocketAddr,
    tls: TlsConnector,
    request: Arc<[u8]>,
    reviews: usize,
) -> Vec<Duration> {
    let stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tls.connect(name, stream).await.unwrap();
    let mut took = Vec::with_capacity(reviews);
    let mut answer = vec![0; 16 << 10];
    for _ in 0..reviews {
        let began = Instant::now();
        stream.write_all(&request).await.unwrap();
        let mut have = 0;
        loop {
            have += stream.read(&mut answer[have..]).await.unwrap();
            let text = std::str::from_utf8(&answer[..have]).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.unwrap().parse::<usize>().unwrap() {
                assert!(
                    head.starts_with("HTTP/1.1 200") && body.contains("\"allowed\":true"),
                    "{text}"
                );
                break;
            }
        }
        took.push(began.elapsed());
    }
    took
}

struct Figures {
    rate: f64,
    p50: Duration,
    p99: Duration,
}

async fn flood(tasks: &Tasks, at: SocketAddr, tls: &TlsConnector) -> Figures {
    let request: Arc<[u8]> = request().into();
    let began = Instant::now();
    let callers: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let caller = caller(at, tls.clone(), request.clone(), REVIEWS / CONNECTIONS);
            tasks.spawn("caller", caller)
        })
        .collect();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.unwrap());
    }
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    Figures { rate, p50: at(0.5), p99: at(0.99) }
}

async fn run() -> Table {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    for rule in rules() {
        let soon = Deadline::after(Duration::from_secs(30));
        objects.apply(&rule, Expected::Any, soon).await.unwrap();
    }
    let admission =
        Admission::start(&objects, Settings::new(true), vec![], &Readiness::default(), &tasks);
    let certificates = Certificates::follow(&objects, "fairlead", &tasks);
    let charge = WebhookUpkeep {
        admission: admission.clone(),
        certificates: certificates.clone(),
        names: vec!["127.0.0.1".to_owned()],
        lifetimes: Lifetimes::default(),
        registration: None,
        clusters: Snapshot::default(),
    };
    let lease = Id::namespaced("fairlead", "lease");
    let election = Election::new(objects, lease, "bench", Timing::default());
    let all = tasks.clone();
    tasks.spawn("election", async move {
        election.run(&all, |leader| lead(&leader, &charge)).await;
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
    start(Webhook::new(admission.clone(), ledger), listener, certificates.clone(), &tasks).unwrap();
    let bundle = loop {
        match certificates.bundle() {
            Some(bundle) if admission.rules().list().len() == RULES => break bundle,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(config));
    flood(&tasks, at, &tls).await;
    let alone = flood(&tasks, at, &tls).await;

    // A lock that somebody holds and others wait for, and a gate full of those who wait for it.
    let lock = Arc::new(TrackedMutex::new("stuck writer", ()));
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn(move || {
        let _guard = lock.lock();
        let _ = held.recv();
    });
    let gate = Gate::new(GateConfig::new("other"));
    let mut permits = Vec::new();
    let soon = || Deadline::after(Duration::from_millis(1));
    while let Ok(permit) = gate.admit(Priority::Normal, soon()).await {
        permits.push(permit);
    }
    let stuck = flood(&tasks, at, &tls).await;
    drop(hold);
    writer.join().unwrap();

    tasks.stop("done");
    let mut table = Table::new("webhook over HTTPS");
    let nanos = |time: Duration| time.as_nanos() as f64;
    let what = format!("{REVIEWS} reviews on {CONNECTIONS} connections beside what is stuck");
    table.row(&what, "/s", stuck.rate, &[("nothing stuck", alone.rate)]);
    let rivals = [("nothing stuck", nanos(alone.p50))];
    table.row("a review, p50", "ns", nanos(stuck.p50), &rivals);
    let rivals = [("nothing stuck", nanos(alone.p99))];
    table.row("a review, p99", "ns", nanos(stuck.p99), &rivals);
    table.must("within 2 times", stuck.p99 <= alone.p99 * 2);
    table.row("decisions that the audit dropped", "", admission.dropped() as f64, &[]);
    table
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(run()).finish()
}

//! How soon a receiver is told while three others hang, answer 503 and have an expired certificate, and while all
//! four are well: a receiver in trouble must be in nobody's way.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/http_server/mod.rs"]
mod http_server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::Table;
use http_server::{Behaviour, HttpServer};
use notify::{Event, Notifier, NotifierSettings, OutboxLimits};
use objects::kinds::{EventKind, EventLevel, Receiver, ResponseRule};
use objects::{Expected, Objects};
use prometheus_client::registry::Registry;
use serde_json::json;
use stallproof::{Deadline, Ledger, Tasks};

const PAIRS: usize = 9;
const EVENTS: usize = 200;

struct World {
    notifier: Notifier,
    well: HttpServer,
    /// Those that hang and refuse, and one whose certificate is expired from the beginning.
    others: [HttpServer; 2],
    told: std::sync::atomic::AtomicUsize,
    _dir: tempfile::TempDir,
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

async fn world(trouble: bool) -> World {
    let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("bench"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    let limits = OutboxLimits { events: 100, ..OutboxLimits::default() };
    let settings = NotifierSettings {
        dir: dir.path().join("notify"),
        namespace: "fairlead".to_owned(),
        limits,
        cluster: None,
    };
    let (ledger, mut registry) = (Ledger::default(), Registry::default());
    let notifier =
        Notifier::start(settings, &objects, None, &ledger, &tasks, &mut registry).unwrap();
    let behaviour = |bad| if trouble { bad } else { Behaviour::Status(200) };
    let well = HttpServer::start(None, Behaviour::Status(200)).await;
    let hangs = HttpServer::start(None, behaviour(Behaviour::Hang)).await;
    let refuses = HttpServer::start(None, behaviour(Behaviour::Status(503))).await;
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(if trouble { 2021 } else { 2090 }, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap().pem();
    let expired =
        HttpServer::start(Some((&cert, &key.serialize_pem())), Behaviour::Status(200)).await;
    let url = |scheme: &str, port: u16| json!({"url": format!("{scheme}://127.0.0.1:{port}/")});
    for (name, spec) in [
        ("well", json!({"webhook": url("http", well.port())})),
        ("hangs", json!({"webhook": url("http", hangs.port())})),
        ("refuses", json!({"webhook": url("http", refuses.port())})),
        ("expired", json!({"ca": cert, "webhook": url("https", expired.port())})),
    ] {
        let receiver = Receiver::new(name, serde_json::from_value(spec).unwrap());
        objects.apply(&receiver, Expected::Any, soon()).await.unwrap();
    }
    let receivers = ["well", "hangs", "refuses", "expired"];
    let rule = json!({"event": "violation", "actions": ["notify"], "receivers": receivers});
    let rule = ResponseRule::new("all", serde_json::from_value(rule).unwrap());
    objects.apply(&rule, Expected::Any, soon()).await.unwrap();
    while notifier.receivers().0.iter().filter(|view| view.wrong.is_none()).count() < 4
        || notifier.rules().is_empty()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    World { notifier, well, others: [hangs, refuses], told: 0.into(), _dir: dir }
}

struct Figures {
    p50: f64,
    p99: f64,
}

/// How long it takes from an event to its receiver, one after the other.
async fn measure(world: &World) -> Figures {
    let mut took = Vec::with_capacity(EVENTS);
    for _ in 0..EVENTS {
        let number = world.told.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let event = Event::new(EventKind::Violation, "denied", EventLevel::Error, "web reached db");
        let began = Instant::now();
        world.notifier.bus().emit(event);
        world.well.asked(number).await;
        took.push(began.elapsed());
    }
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_nanos() as f64;
    Figures { p50: at(0.5), p99: at(0.99) }
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let worlds = runtime.block_on(async { [world(false).await, world(true).await] });
    for world in &worlds {
        runtime.block_on(measure(world));
    }
    let pair = bench::in_turn(
        PAIRS,
        |trouble| runtime.block_on(measure(&worlds[usize::from(trouble)])),
        |figures| figures.p99,
    );
    let [well, trouble] = pair;
    drop(worlds.map(|world| world.others));
    let mut table = Table::new("receivers");
    let rivals = [("all receivers well", well.p50)];
    table.row("an event told beside three receivers in trouble, p50", "ns", trouble.p50, &rivals);
    let rivals = [("all receivers well", well.p99)];
    table.row("an event told beside three receivers in trouble, p99", "ns", trouble.p99, &rivals);
    table.must("within 1.1 times", trouble.p99 <= well.p99 * 1.1);
    table.finish()
}

//! Reading a map of 10,000 entries: what a read costs, and what it costs while somebody holds on.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Barrier, RwLock};
use std::time::{Duration, Instant};

use bench::Table;
use stallproof::Snapshot;

use crate::{nanos_per_call, percentile};

const ENTRIES: u64 = 10_000;
const HOLD: Duration = Duration::from_millis(200);
/// Long enough that the hold is a large part of it: a reader that waits shows in its p99.
const WATCH: Duration = Duration::from_millis(600);

/// A map that can be read, held by a writer, and held by a reader.
trait Design: Send + Sync + 'static {
    const NAME: &'static str;
    fn new() -> Self;
    fn read(&self, key: u64) -> u64;
    fn write_slowly(&self, key: u64, hold: Duration);
    fn read_slowly(&self, key: u64, hold: Duration);
}

fn entries() -> impl Iterator<Item = (u64, u64)> {
    (0..ENTRIES).map(|k| (k, k))
}

struct Ours(Snapshot<imbl::HashMap<u64, u64>>);

impl Design for Ours {
    const NAME: &'static str = "Snapshot";
    fn new() -> Self {
        Self(Snapshot::new(entries().collect()))
    }
    fn read(&self, key: u64) -> u64 {
        self.0.read(|map| map[&key])
    }
    fn write_slowly(&self, key: u64, hold: Duration) {
        self.0.update(|map| {
            std::thread::sleep(hold);
            *map.entry(key).or_default() += 1;
            true
        });
    }
    fn read_slowly(&self, key: u64, hold: Duration) {
        let view = self.0.load();
        std::thread::sleep(hold);
        black_box(view[&key]);
    }
}

struct Std(RwLock<HashMap<u64, u64>>);

impl Design for Std {
    const NAME: &'static str = "std RwLock";
    fn new() -> Self {
        Self(RwLock::new(entries().collect()))
    }
    fn read(&self, key: u64) -> u64 {
        self.0.read().expect("no holder panics")[&key]
    }
    fn write_slowly(&self, key: u64, hold: Duration) {
        let mut map = self.0.write().expect("no holder panics");
        std::thread::sleep(hold);
        *map.entry(key).or_default() += 1;
    }
    fn read_slowly(&self, key: u64, hold: Duration) {
        let map = self.0.read().expect("no holder panics");
        std::thread::sleep(hold);
        black_box(map[&key]);
    }
}

struct ParkingLot(parking_lot::RwLock<HashMap<u64, u64>>);

impl Design for ParkingLot {
    const NAME: &'static str = "parking_lot RwLock";
    fn new() -> Self {
        Self(parking_lot::RwLock::new(entries().collect()))
    }
    fn read(&self, key: u64) -> u64 {
        self.0.read()[&key]
    }
    fn write_slowly(&self, key: u64, hold: Duration) {
        let mut map = self.0.write();
        std::thread::sleep(hold);
        *map.entry(key).or_default() += 1;
    }
    fn read_slowly(&self, key: u64, hold: Duration) {
        let map = self.0.read();
        std::thread::sleep(hold);
        black_box(map[&key]);
    }
}

struct Tokio(tokio::sync::RwLock<HashMap<u64, u64>>);

impl Design for Tokio {
    const NAME: &'static str = "tokio RwLock";
    fn new() -> Self {
        Self(tokio::sync::RwLock::new(entries().collect()))
    }
    fn read(&self, key: u64) -> u64 {
        self.0.blocking_read()[&key]
    }
    fn write_slowly(&self, key: u64, hold: Duration) {
        let mut map = self.0.blocking_write();
        std::thread::sleep(hold);
        *map.entry(key).or_default() += 1;
    }
    fn read_slowly(&self, key: u64, hold: Duration) {
        let map = self.0.blocking_read();
        std::thread::sleep(hold);
        black_box(map[&key]);
    }
}

struct Dash(dashmap::DashMap<u64, u64>);

impl Design for Dash {
    const NAME: &'static str = "dashmap";
    fn new() -> Self {
        Self(entries().collect())
    }
    fn read(&self, key: u64) -> u64 {
        *self.0.get(&key).expect("every key is there")
    }
    fn write_slowly(&self, key: u64, hold: Duration) {
        let mut value = self.0.get_mut(&key).expect("every key is there");
        std::thread::sleep(hold);
        *value += 1;
    }
    fn read_slowly(&self, key: u64, hold: Duration) {
        let value = self.0.get(&key).expect("every key is there");
        std::thread::sleep(hold);
        black_box(*value);
    }
}

struct Papaya(papaya::HashMap<u64, u64>);

impl Design for Papaya {
    const NAME: &'static str = "papaya";
    fn new() -> Self {
        Self(entries().collect())
    }
    fn read(&self, key: u64) -> u64 {
        *self.0.pin().get(&key).expect("every key is there")
    }
    fn write_slowly(&self, key: u64, hold: Duration) {
        self.0.pin().update(key, |value| {
            std::thread::sleep(hold);
            value + 1
        });
    }
    fn read_slowly(&self, key: u64, hold: Duration) {
        let map = self.0.pin();
        let value = map.get(&key);
        std::thread::sleep(hold);
        black_box(value);
    }
}

struct Figures {
    name: &'static str,
    alone: f64,
    behind_writer: f64,
    behind_reader: f64,
}

fn measure<D: Design>() -> Figures {
    let design = Arc::new(D::new());
    let mut key = 0;
    let alone = nanos_per_call(200_000, || {
        key = (key + 7) % ENTRIES;
        black_box(design.read(key));
    });
    let behind_writer = readers_p99(&design, |d| d.write_slowly(1, HOLD));
    let behind_reader = readers_p99(&design, |d| {
        // A reader holds on and a writer queues behind it: the pile-up of the incident.
        std::thread::scope(|scope| {
            scope.spawn(|| d.read_slowly(1, HOLD));
            std::thread::sleep(Duration::from_millis(20));
            d.write_slowly(1, Duration::ZERO);
        });
    });
    Figures { name: D::NAME, alone, behind_writer, behind_reader }
}

/// The 99th per cent of two readers' times, a read every 100 µs, while `fault` runs.
fn readers_p99<D: Design>(design: &Arc<D>, fault: impl FnOnce(&D)) -> f64 {
    let start = Arc::new(Barrier::new(3));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (design, start) = (design.clone(), start.clone());
            std::thread::spawn(move || {
                let mut times = Vec::new();
                start.wait();
                let end = Instant::now() + WATCH;
                while Instant::now() < end {
                    let began = Instant::now();
                    black_box(design.read(1));
                    let took = began.elapsed();
                    // A reader that was held up misses the reads it would have made meanwhile:
                    // they waited too, each less than the one before.
                    let mut waited = took;
                    while waited > Duration::from_micros(100) {
                        times.push(waited.as_nanos() as f64);
                        waited -= Duration::from_micros(100);
                    }
                    times.push(waited.as_nanos() as f64);
                    std::thread::sleep(Duration::from_micros(100));
                }
                times
            })
        })
        .collect();
    start.wait();
    std::thread::sleep(Duration::from_millis(50));
    fault(design);
    let mut times: Vec<f64> =
        readers.into_iter().flat_map(|r| r.join().expect("a reader does not panic")).collect();
    percentile(&mut times, 99.0)
}

pub(crate) fn run(table: &mut Table) {
    let ours = measure::<Ours>();
    let rivals = [
        measure::<Std>(),
        measure::<ParkingLot>(),
        measure::<Tokio>(),
        measure::<Dash>(),
        measure::<Papaya>(),
    ];
    let column = |get: fn(&Figures) -> f64| -> Vec<(&str, f64)> {
        rivals.iter().map(|rival| (rival.name, get(rival))).collect()
    };
    table.row("one read of 10,000 entries, alone", "ns", ours.alone, &column(|f| f.alone));
    let behind = column(|f| f.behind_writer);
    table.row("readers' p99 while a writer holds on for 200 ms", "ns", ours.behind_writer, &behind);
    table.must("under 5 ms", ours.behind_writer < 5e6);
    let behind = column(|f| f.behind_reader);
    table.row(
        "readers' p99 while a reader holds on for 200 ms and a writer queues",
        "ns",
        ours.behind_reader,
        &behind,
    );
    table.must("under 5 ms", ours.behind_reader < 5e6);
}

pub(crate) fn publish(table: &mut Table) {
    for (entries, rounds) in [(10_000u64, 200u32), (1_000_000, 5)] {
        let ours: Snapshot<stallproof::Map<u64, u64>> =
            Snapshot::new((0..entries).map(|k| (k, k)).collect());
        let mut key = 0;
        let persistent = nanos_per_call(2_000, || {
            key = (key + 7) % entries;
            ours.update(|map| {
                map.insert(key, key + 1);
                true
            });
        });
        let copied: Snapshot<HashMap<u64, u64>> =
            Snapshot::new((0..entries).map(|k| (k, k)).collect());
        let whole = nanos_per_call(rounds, || {
            key = (key + 7) % entries;
            copied.update(|map| {
                map.insert(key, key + 1);
                true
            });
        });
        let what = format!("publish one change among {entries} entries");
        table.row(&what, "ns", persistent, &[("copy of a std HashMap", whole)]);
    }
}

//! What it costs to be always on: Ledger and TrackedMutex against a bare mutex.

use std::hint::black_box;

use bench::Table;
use stallproof::ledger::{Filter, Outcome};
use stallproof::{Ledger, TrackedMutex};
use tracing_subscriber::prelude::*;

use crate::nanos_per_call;

pub(crate) fn run(table: &mut Table) {
    let bare = parking_lot::Mutex::new(0u64);
    let bare_cost = nanos_per_call(1_000_000, || *bare.lock() += 1);
    let std_mutex = std::sync::Mutex::new(0u64);
    let std_cost = nanos_per_call(1_000_000, || *std_mutex.lock().expect("no holder panics") += 1);
    let tracked = TrackedMutex::new("bench", 0u64);
    let tracked_cost = nanos_per_call(1_000_000, || *tracked.lock() += 1);
    let rivals = [("parking_lot Mutex", bare_cost), ("std Mutex", std_cost)];
    table.row("TrackedMutex: lock and unlock", "ns", tracked_cost, &rivals);

    let ledger = Ledger::default();
    let operation = nanos_per_call(200_000, || {
        black_box(ledger.begin("bench", "key", "tenant")).finish(Outcome::Done);
    });
    table.row("Ledger: an operation, begun and finished", "ns", operation, &rivals);
    // As the binary logs: JSON lines, from level info.
    let filter = tracing_subscriber::EnvFilter::new("info");
    let json = tracing_subscriber::fmt::layer().json().with_writer(std::io::sink);
    let logging = tracing_subscriber::registry().with(filter).with(json);
    let spanned = tracing::subscriber::with_default(logging, || {
        nanos_per_call(200_000, || {
            let op = black_box(ledger.begin("bench", "key", "tenant"));
            op.span().in_scope(|| black_box(()));
            op.finish(Outcome::Done);
        })
    });
    let unlogged = [("the same with nobody logging", operation)];
    table.row("Ledger: an operation whose span is logged", "ns", spanned, &unlogged);
    let stepped = nanos_per_call(200_000, || {
        let op = ledger.begin("bench", "key", "tenant");
        op.step("connect");
        op.step("write");
        op.finish(Outcome::Done);
    });
    table.row("Ledger: an operation with two steps", "ns", stepped, &rivals);

    let crowd: Vec<_> = (0..1_000_000).map(|_| ledger.begin("crowd", "key", "tenant")).collect();
    let filter = Filter { limit: 100, ..Filter::default() };
    let listing = nanos_per_call(20, || {
        black_box(ledger.in_flight(&filter));
    });
    let counted = nanos_per_call(20, || {
        black_box(crowd.iter().filter(|op| op.id().0 == 0).count());
    });
    table.row(
        "Ledger: the oldest 100 among a million in flight",
        "ns",
        listing,
        &[("one look at each of the million", counted)],
    );
}

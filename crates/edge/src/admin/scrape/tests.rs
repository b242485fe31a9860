use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::*;

#[derive(Debug)]
struct Counted(Arc<AtomicU32>);

impl Collector for Counted {
    fn encode(&self, _: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// A clock that goes on by five milliseconds at each look, which is what writing a text takes then.
fn clock(now: &Cell<Instant>) -> impl Fn() -> Instant {
    || {
        now.set(now.get() + Duration::from_millis(5));
        now.get()
    }
}

#[test]
fn however_many_ask_writing_takes_a_twentieth_of_the_time() {
    let written = Arc::new(AtomicU32::new(0));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Counted(Arc::clone(&written))));
    let (scrape, now) = (Scrape::default(), Cell::new(Instant::now()));
    let began = now.get();
    for _ in 0..10_000 {
        scrape.text_at(Exposition::Prometheus, &registry, clock(&now)).unwrap();
    }
    let writing = Duration::from_millis(5) * written.load(Relaxed);
    let passed = now.get() - began;
    assert!(writing * STANDS <= passed, "{writing:?} of {passed:?}");
    assert!(written.load(Relaxed) > 1, "it is written again");
}

#[test]
fn each_format_has_its_own_text() {
    let (scrape, registry) = (Scrape::default(), Registry::default());
    let now = Cell::new(Instant::now());
    let open = scrape.text_at(Exposition::OpenMetrics, &registry, clock(&now)).unwrap();
    let plain = scrape.text_at(Exposition::Prometheus, &registry, clock(&now)).unwrap();
    assert_eq!((&open[..], &plain[..]), (&b"# EOF\n"[..], &b""[..]));
}

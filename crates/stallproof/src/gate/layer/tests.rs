use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::poll;
use tokio::time::sleep;

use super::super::{GateConfig, InFlightLimits};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Answers after a second, and takes something in `poll_ready` as tower allows a service to.
#[derive(Default)]
struct Slow {
    readied: Arc<AtomicUsize>,
    ready: bool,
}

impl Clone for Slow {
    fn clone(&self) -> Self {
        Self { readied: Arc::clone(&self.readied), ready: false }
    }
}

impl Service<Duration> for Slow {
    type Response = &'static str;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<&'static str, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        self.readied.fetch_add(1, Relaxed);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Duration) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being readied");
        Box::pin(async {
            sleep(SECOND).await;
            Ok("answer")
        })
    }
}

fn gate(places: usize) -> Gate {
    let limits = InFlightLimits { min: places, initial: places, max: places };
    Gate::new(GateConfig { limits, queue: 1, ..GateConfig::new("test") })
}

/// A request is the time that its caller gives it.
fn service(
    gate: &Gate,
) -> impl Service<Duration, Response = &'static str, Error = Infallible, Future: Send> + Clone {
    service_before(gate, Slow::default())
}

fn service_before(
    gate: &Gate,
    inner: Slow,
) -> impl Service<Duration, Response = &'static str, Error = Infallible, Future: Send> + Clone {
    GateLayer::new(
        gate.clone(),
        |wait: &Duration| (Priority::Normal, Deadline::after(*wait)),
        |overloaded: Overloaded| overloaded.reason.name(),
        |_: &&'static str| LoadSignal::Done,
    )
    .layer(inner)
}

#[tokio::test(start_paused = true)]
async fn idle_connections_that_poll_for_readiness_hold_nothing() {
    let gate = gate(1);
    let inner = Slow::default();
    let readied = Arc::clone(&inner.readied);
    let service = service_before(&gate, inner);
    let mut idle: Vec<_> = (0..100).map(|_| service.clone()).collect();
    for one in &mut idle {
        poll_fn(|cx| one.poll_ready(cx)).await.unwrap();
    }
    assert_eq!((gate.status().in_flight, readied.load(Relaxed)), (0, 0));
    assert_eq!(idle[99].call(60 * SECOND).await, Ok("answer"));
    assert_eq!(readied.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_place_is_held_until_the_response_and_refusals_are_responses() {
    let gate = gate(1);
    let mut service = service(&gate);
    let mut first = pin!(service.call(60 * SECOND));
    let mut second = pin!(service.call(60 * SECOND));
    let third = service.call(60 * SECOND);
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert_eq!(third.await, Ok("full"));
    assert_eq!(gate.status().in_flight, 1);
    assert_eq!(first.await, Ok("answer"));
    assert_eq!(gate.status().in_flight, 1);
    assert_eq!(second.await, Ok("answer"));
    assert_eq!(gate.status().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_gives_its_place_back_at_its_deadline() {
    let gate = gate(1);
    let mut service = service(&gate);
    assert_eq!(service.call(SECOND / 2).await, Ok("too_late"));
    assert_eq!(gate.status().in_flight, 0);
    assert_eq!(gate.0.metrics.overran.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_gives_its_place_back_and_teaches_nothing() {
    let gate = gate(1);
    let mut call = Box::pin(service(&gate).call(60 * SECOND));
    assert!(poll!(&mut call).is_pending());
    drop(call);
    assert_eq!(gate.status().in_flight, 0);
    assert_eq!(gate.status().service, Duration::ZERO);
    assert_eq!(gate.0.metrics.service.count(), 0);
}

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use tokio::time::{Instant, advance, sleep};

use super::*;

const GRANT: Grant = Grant { unasked: Duration::from_secs(30), most: Duration::from_secs(120) };

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn grpc(value: &str) -> Result<Duration, BadTimeout> {
    Deadline::of_grpc(&headers(&[("grpc-timeout", value)]), GRANT).map(Deadline::remaining)
}

fn http(value: &str) -> Result<Duration, BadTimeout> {
    Deadline::of_http(&headers(&[("x-request-timeout", value)]), None, GRANT)
        .map(Deadline::remaining)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn work_that_is_late_is_dropped_at_the_deadline() {
    let start = Instant::now();
    let bound = Deadline::after(millis(500)).bound(std::future::pending::<()>());
    assert_eq!(bound.await, Err(Expired));
    assert_eq!(start.elapsed(), millis(500));
}

#[tokio::test(start_paused = true)]
async fn work_that_is_ready_at_the_deadline_counts() {
    let passed = Deadline::at(Instant::now());
    assert!(passed.has_passed());
    assert_eq!(passed.bound(std::future::ready(7)).await, Ok(7));
    let deadline = Deadline::after(millis(500));
    assert_eq!(deadline.bound(sleep(millis(500))).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_step_may_only_shorten_the_deadline() {
    let deadline = Deadline::after(millis(500));
    assert_eq!(deadline.within(millis(100)).remaining(), millis(100));
    assert_eq!(deadline.within(millis(900)), deadline);
    advance(millis(600)).await;
    assert_eq!(deadline.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_ever() {
    assert_eq!(Deadline::after(Duration::MAX).remaining(), LONGEST);
}

#[tokio::test(start_paused = true)]
async fn grpc_timeouts_become_deadlines() {
    assert_eq!(grpc("1M"), Ok(Duration::from_secs(60)));
    assert_eq!(grpc("10S"), Ok(Duration::from_secs(10)));
    assert_eq!(grpc("250m"), Ok(millis(250)));
    assert_eq!(grpc("00000007u"), Ok(Duration::from_micros(7)));
    assert_eq!(grpc("0n"), Ok(Duration::ZERO), "a client whose deadline has just passed");
    let unasked = Deadline::of_grpc(&HeaderMap::new(), GRANT).unwrap();
    assert_eq!(unasked.remaining(), GRANT.unasked);
}

#[tokio::test(start_paused = true)]
async fn a_long_timeout_is_cut_to_what_is_granted() {
    assert_eq!(grpc("99999999H"), Ok(GRANT.most));
    assert_eq!(http("99999999999999999999999"), Ok(GRANT.most));
}

#[tokio::test(start_paused = true)]
async fn a_bad_grpc_timeout_is_an_answer_for_the_caller() {
    for bad in ["", "S", "10", "10s", "123456789S", "-1S", "1.5S", "+1S", " 1S", "1 S"] {
        assert_eq!(grpc(bad), Err(BadTimeout::Grpc(bad.into())));
    }
    let mut raw = HeaderMap::new();
    raw.insert("grpc-timeout", HeaderValue::from_bytes(b"\xff\xff").unwrap());
    assert!(Deadline::of_grpc(&raw, GRANT).is_err());
}

#[tokio::test(start_paused = true)]
async fn http_timeouts_are_seconds_or_durations() {
    assert_eq!(http("10"), Ok(Duration::from_secs(10)));
    assert_eq!(http("0.5"), Ok(millis(500)));
    assert_eq!(http("10s"), Ok(Duration::from_secs(10)));
    assert_eq!(http("1m30s"), Ok(Duration::from_secs(90)));
    assert_eq!(http("1.5m"), Ok(Duration::from_secs(90)));
    assert_eq!(http("250ms"), Ok(millis(250)));
}

#[tokio::test(start_paused = true)]
async fn a_bad_http_timeout_is_an_answer_for_the_caller() {
    for bad in ["", "s", "ten", "-1", "1.", ".5", ".", "1..5s", "1m30", "30 s", "10S", "1d", "1e3"]
    {
        let answer = http(bad).expect_err(bad);
        let shown = format!("x-request-timeout {bad:?} is not a number of seconds");
        assert!(answer.to_string().starts_with(&shown), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_shortest_timeout_of_a_request_holds() {
    let both = headers(&[("request-timeout", "20"), ("x-request-timeout", "40s")]);
    let of = |query| Deadline::of_http(&both, query, GRANT).map(Deadline::remaining);
    assert_eq!(of(None), Ok(Duration::from_secs(20)));
    assert_eq!(of(Some("dryRun=All&timeout=10s")), Ok(Duration::from_secs(10)));
    assert_eq!(of(Some("timeout=0s")), Ok(Duration::from_secs(20)));
    assert_eq!(of(Some("mytimeout=1s&timeoutSeconds=1")), Ok(Duration::from_secs(20)));
    assert!(of(Some("timeout=soon")).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_bad_value_is_not_sent_back_at_length() {
    let BadTimeout::Http { value, .. } = http(&"x".repeat(4000)).unwrap_err() else { panic!() };
    assert_eq!(value.len(), 32);
}

proptest! {
    #[test]
    fn any_grpc_timeout_is_read_as_written(count in 0_u64..100_000_000, unit in 0_usize..4) {
        let (unit, nanos) = [('S', 1_000_000_000), ('m', 1_000_000), ('u', 1_000), ('n', 1)][unit];
        let headers = headers(&[("grpc-timeout", &format!("{count}{unit}"))]);
        prop_assert_eq!(wire::grpc(&headers), Ok(Some(Duration::from_nanos(count * nanos))));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(32_u8..127, 0..40)) {
        let mut raw = HeaderMap::new();
        let value = HeaderValue::from_bytes(&bytes).unwrap();
        raw.insert("request-timeout", value.clone());
        raw.insert("grpc-timeout", value);
        let _ = wire::grpc(&raw);
        let _ = wire::http(&raw, std::str::from_utf8(&bytes).ok());
    }

    #[test]
    fn millis_written_three_ways_are_the_same(millis in 0_u64..10_000_000) {
        let (seconds, rest) = (millis / 1000, millis % 1000);
        let ways = [format!("{millis}ms"), format!("{seconds}.{rest:03}"), format!("{seconds}s{rest}ms")];
        for way in ways {
            let asked = wire::http(&headers(&[("request-timeout", &way)]), None).unwrap();
            prop_assert_eq!(asked.unwrap_or_default(), Duration::from_millis(millis), "{}", way);
        }
    }
}

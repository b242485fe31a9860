use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::{BOUNDS, Histogram};

fn scrape(histogram: &Histogram) -> String {
    let mut registry = Registry::default();
    registry.register("wait_seconds", "Time waited", histogram.clone());
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

/// The count on the line that begins with `series`.
fn reading(text: &str, series: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(series));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}"))
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn buckets_are_cumulative_and_end_in_infinity() {
    let histogram = Histogram::default();
    for took in [Duration::from_micros(20), Duration::from_secs(3), Duration::from_secs(600)] {
        histogram.observe(took);
    }
    let text = scrape(&histogram);

    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="0.00005"}"#), 1.0);
    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="2.5"}"#), 1.0);
    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="5.0"}"#), 2.0);
    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="120.0"}"#), 2.0);
    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="+Inf"}"#), 3.0);
    assert_eq!(reading(&text, "wait_seconds_count"), 3.0);
    assert_eq!(reading(&text, "wait_seconds_sum"), 603.000_02);
    assert_eq!(text.matches("_bucket").count(), BOUNDS.len() + 1);
}

#[test]
fn a_bound_belongs_to_its_own_bucket() {
    let histogram = Histogram::default();
    histogram.observe(Duration::from_secs(1));
    let text = scrape(&histogram);
    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="0.25"}"#), 0.0);
    assert_eq!(reading(&text, r#"wait_seconds_bucket{le="1.0"}"#), 1.0);
}

#[test]
fn clones_count_into_the_same_cells() {
    let histogram = Histogram::default();
    histogram.clone().observe(Duration::from_millis(1));
    assert_eq!(histogram.count(), 1);
}

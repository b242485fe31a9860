use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Unit;

use super::*;

fn registry() -> Registry {
    let mut registry = Registry::with_prefix("fairlead");
    let refused: Counter = Counter::default();
    refused.inc_by(3);
    registry.register("refused", "Requests refused", refused);
    let age: Gauge = Gauge::default();
    age.set(7);
    registry.register_with_unit("oldest_age", "Age of the oldest", Unit::Seconds, age);
    registry.register("build", "What runs", Info::new([("version", "0.1.0")]));
    let wait = stallproof::metrics::Histogram::default();
    wait.observe(std::time::Duration::from_millis(3));
    registry.register("wait_seconds", "Time waited", wait);
    registry
}

#[test]
fn the_older_format_names_families_as_their_samples_are_named() {
    let text = Exposition::Prometheus.encode(&registry()).unwrap();
    for line in [
        "# HELP fairlead_refused_total Requests refused.",
        "# TYPE fairlead_refused_total counter",
        "fairlead_refused_total 3",
        "# TYPE fairlead_oldest_age_seconds gauge",
        "fairlead_oldest_age_seconds 7",
        "# TYPE fairlead_build_info gauge",
        "fairlead_build_info{version=\"0.1.0\"} 1",
        "# TYPE fairlead_wait_seconds histogram",
        "fairlead_wait_seconds_bucket{le=\"+Inf\"} 1",
        "fairlead_wait_seconds_count 1",
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line:?} in:\n{text}");
    }
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
}

#[test]
fn open_metrics_is_given_to_whoever_asks_for_it() {
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    assert_eq!(Exposition::accepted(Some(prometheus)), Exposition::OpenMetrics);
    assert_eq!(Exposition::accepted(Some("*/*")), Exposition::Prometheus);
    assert_eq!(Exposition::accepted(None), Exposition::Prometheus);
    let text = Exposition::OpenMetrics.encode(&registry()).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("# TYPE fairlead_refused counter"), "{text}");
}

#[test]
fn a_family_of_two_parts_is_told_once() {
    let mut registry = Registry::with_prefix("fairlead");
    for name in ["api", "agents"] {
        let gate = stallproof::Gate::new(stallproof::gate::GateConfig::new(name));
        gate.register(&mut registry);
    }
    for format in [Exposition::Prometheus, Exposition::OpenMetrics] {
        let text = format.encode(&registry).unwrap();
        let mut types: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let told = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), told, "{text}");
        for name in ["api", "agents"] {
            let sample = format!("fairlead_gate_limit{{gate=\"{name}\"}}");
            assert!(text.contains(&sample), "no {sample} in:\n{text}");
        }
    }
}

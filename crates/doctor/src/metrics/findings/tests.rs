use super::*;
use crate::log::At;

fn metrics(scrapes: &[&str]) -> Metrics {
    let mut metrics = Metrics::default();
    for scrape in scrapes {
        for (line, text) in (1..).zip(scrape.lines()) {
            metrics.line(At { input: "x", line, bytes: text.as_bytes() });
        }
    }
    metrics
}

fn titles(scrapes: &[&str]) -> Vec<String> {
    metrics(scrapes).findings(&[], None).into_iter().map(|f| f.title).collect()
}

#[test]
fn calls_that_pile_up_between_scrapes_are_found() {
    let scrape = |started: u32, ok: u32, bad: u32| {
        format!(
            "grpc_server_started_total{{grpc_method=\"Add\"}} {started}\ngrpc_server_handled_total{{grpc_method=\"Add\",grpc_code=\"OK\"}} {ok}\ngrpc_server_handled_total{{grpc_method=\"Add\",grpc_code=\"Internal\"}} {bad}\n"
        )
    };
    let found = titles(&[&scrape(100, 90, 5), &scrape(900, 95, 5)]);
    assert_eq!(found, ["Add: calls in flight grew from 5 to 800"]);
    assert!(titles(&[&scrape(100, 90, 5), &scrape(900, 890, 5)]).is_empty());
    assert!(
        titles(&[&scrape(60_059, 17_863, 42_099)]).is_empty(),
        "97 in flight prove nothing alone"
    );
}

#[test]
fn a_histogram_with_everything_behind_one_bound_is_pinned() {
    let scrape = |low: u32, high: u32| {
        format!(
            "grpc_server_handling_seconds_bucket{{grpc_method=\"Add\",le=\"10\"}} {low}\ngrpc_server_handling_seconds_bucket{{grpc_method=\"Add\",le=\"120\"}} {low}\ngrpc_server_handling_seconds_bucket{{grpc_method=\"Add\",le=\"300\"}} {high}\ngrpc_server_handling_seconds_bucket{{grpc_method=\"Add\",le=\"+Inf\"}} {high}\n"
        )
    };
    assert_eq!(titles(&[&scrape(0, 500)]).len(), 1);
    assert!(titles(&[&scrape(400, 500)]).is_empty());
}

#[test]
fn work_queues_and_leaders_speak_for_themselves() {
    let found = titles(&[
        "workqueue_longest_running_processor_seconds{name=\"mesh\"} 900\nworkqueue_longest_running_processor_seconds{name=\"fast\"} 0.2\netcd_server_has_leader 0\n",
    ]);
    assert_eq!(found, ["a worker of mesh has been at one item for 15 min", "etcd has no leader"]);
}

#[test]
fn goroutines_alone_are_found_only_when_they_run_away() {
    assert!(titles(&["go_goroutines 562"]).is_empty());
    assert!(titles(&["go_goroutines 400", "go_goroutines 600"]).is_empty());
    assert_eq!(
        titles(&["go_goroutines 400", "go_goroutines 9000"]),
        ["goroutines grew from 400 to 9,000"]
    );
}

#[test]
fn memory_is_held_against_the_limit_of_the_same_container() {
    let facts = metrics(&["container_memory_working_set_bytes{pod=\"a\",container=\"c\"} 7e9\ncontainer_spec_memory_limit_bytes{pod=\"a\",container=\"c\"} 6e9\ncontainer_spec_memory_limit_bytes{pod=\"b\",container=\"c\"} 1e9\nprocess_resident_memory_bytes 5\n"]).memory();
    let limits: Vec<Option<f64>> = facts.iter().map(|f| f.limit).collect();
    assert_eq!(limits, [Some(6e9), None]);
}

#[test]
fn an_amount_without_an_end_is_none() {
    let metrics = metrics(&["process_resident_memory_bytes 1e9000\ngo_goroutines NaN\n"]);
    assert!(metrics.events().is_empty());
    assert!(metrics.memory().is_empty());
}

#[test]
fn a_call_is_told_apart_from_how_it_went() {
    assert_eq!(outcome("Add OK"), ("Add".into(), true));
    assert_eq!(outcome("Add Failed"), ("Add".into(), false));
    assert_eq!(outcome("GET /x 503"), ("GET /x".into(), false));
    assert_eq!(outcome("OK"), ("calls".into(), true));
}

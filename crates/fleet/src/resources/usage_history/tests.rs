use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::tests::scripted::{self, Response};

const RANGE: HistoryRange = HistoryRange { start: 100, end: 160, step: 30 };

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

#[test]
fn a_service_is_named_with_its_namespace_and_port_and_nothing_else() {
    let read = "monitoring/prometheus-k8s:web".parse::<PrometheusService>().unwrap();
    assert_eq!(read.to_string(), "monitoring/prometheus-k8s:web");
    for wrong in [
        "",
        "prometheus",
        "a/b",
        "a:9090",
        "a/b:",
        "/b:1",
        "a/b/c:1",
        "a/../b:1",
        "a/b:1?x",
        "A/b:1",
    ] {
        assert!(wrong.parse::<PrometheusService>().is_err(), "{wrong}");
    }
}

#[test]
fn a_name_cannot_leave_its_quotes() {
    let of = HistoryOf::Pod { namespace: "shop", name: r#"web"} or vector(1) #\"# };
    let which = selector(of);
    assert!(which.contains(r#"pod="web\"} or vector(1) #\\""#), "{which}");
}

#[tokio::test]
async fn both_series_are_asked_for_through_the_api_server() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let client = scripted::client(move |path| {
        heard.lock().push(path.to_owned());
        let values = json!([[100, "0.5"], [130, "NaN"], [160.5, "2"]]);
        let result =
            if path.contains("memory") { json!([]) } else { json!([{ "values": values }]) };
        Response::Json(json!({ "status": "success", "data": { "result": result } }))
    });
    let connection = Connection::new("eu", client);
    let service = "monitoring/prometheus:9090".parse().unwrap();
    let of = HistoryOf::Pod { namespace: "shop", name: "web-0" };
    let used = usage_history(&connection, &service, of, RANGE, soon()).await.unwrap();
    assert_eq!(used, UsageHistory { cpu: vec![(100.0, 0.5), (160.5, 2.0)], memory: vec![] });
    let asked = asked.lock();
    let at =
        "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query_range?query=";
    assert!(asked.len() == 2 && asked.iter().all(|path| path.starts_with(at)), "{asked:?}");
    assert!(asked.iter().all(|path| path.ends_with("&start=100&end=160&step=30")), "{asked:?}");
}

#[tokio::test]
async fn what_is_not_prometheus_is_said_to_be_none() {
    let client = scripted::client(|_| Response::Json(json!({ "hello": "world" })));
    let connection = Connection::new("eu", client);
    let service = "monitoring/prometheus:9090".parse().unwrap();
    let used = usage_history(&connection, &service, HistoryOf::Cluster, RANGE, soon()).await;
    assert!(used.unwrap_err().to_string().contains("does not answer as Prometheus does"));
}

use super::*;

fn all(clusters: &Value) -> Clusters {
    serde_json::from_value(json!({ "clusters": clusters })).unwrap()
}

fn now() -> Timestamp {
    "2026-01-01T00:05:00Z".parse().unwrap()
}

#[test]
fn the_list_tells_the_truth_about_each() {
    let mut clusters = all(&json!([
        {"name": "dev", "state": "ready", "since": "2026-01-01T00:00:00Z",
         "version": "v1.30.1", "nodes": 3, "latencyMs": 12.4, "source": "~/.kube/config"},
        {"name": "prod-eu", "state": "unreachable", "since": "2026-01-01T00:04:50Z",
         "why": "10.0.0.1:6443 does not answer\nwithin 5 s", "source": "imported"},
    ]));
    clusters.shadowed = all(&json!([
        {"name": "dev", "state": "connecting", "since": "2026-01-01T00:00:00Z",
         "source": "other.yaml", "shadowedBy": "~/.kube/config"},
    ]))
    .clusters;
    assert_eq!(
        table(&clusters, now()).render(Paint::always(false)),
        "\
NAME      STATE         SINCE   VERSION   NODES   LATENCY   SOURCE           WHY
dev       ready         5m      v1.30.1   3       12ms      ~/.kube/config
prod-eu   unreachable   10s     -         -       -         imported         10.0.0.1:6443 does not answer within 5 s
dev       shadowed      5m      -         -       -         other.yaml       ~/.kube/config has this name"
    );
    let coloured = table(&clusters, now()).render(Paint::always(true));
    assert!(coloured.contains("\x1b[32mready\x1b[0m") && coloured.contains("\x1b[31munreachable"));
}

#[test]
fn a_watch_prints_what_changed_and_what_went() {
    let cluster = |state: &str, latency: f64| {
        all(&json!([{"name": "dev", "state": state, "latencyMs": latency}]))
    };
    let mut printed = PrintedClusters::new();
    let mut changes = |all: &Clusters| printed.changes(all, now(), Paint::always(false));
    assert_eq!(changes(&cluster("ready", 1.0)).lines().count(), 2);
    assert_eq!(changes(&cluster("ready", 9.0)), "", "a latency that moves is no news");
    let text = changes(&cluster("degraded", 9.0));
    assert!(text.starts_with("dev    degraded") && text.lines().count() == 1, "{text}");
    let text = changes(&Clusters::default());
    assert!(text.starts_with("dev    removed"), "{text}");
    assert_eq!(changes(&Clusters::default()), "");
}

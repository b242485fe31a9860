use serde_json::json;

use super::*;

#[test]
fn events_are_told_as_kubectl_does_with_their_cluster() {
    let events: Vec<KubeEvent> = serde_json::from_value(json!([{
        "cluster": "prod", "namespace": "shop", "lastSeen": "2026-01-01T00:00:00Z",
        "type": "Warning", "reason": "BackOff", "object": {"kind": "Pod", "name": "web-0"},
        "message": "Back-off restarting\n", "count": 7,
    }]))
    .unwrap();
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    assert_eq!(
        table(&events, true, true, now).render(Paint::always(false)),
        "\
CLUSTER   NAMESPACE   LAST SEEN   TYPE      REASON    OBJECT      MESSAGE
prod      shop        60s (x7)    Warning   BackOff   pod/web-0   Back-off restarting"
    );
}

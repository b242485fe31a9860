use serde_json::json;

use super::*;

#[test]
fn a_description_has_the_object_its_kin_and_its_events() {
    let found: Description = serde_json::from_value(json!({
        "object": {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-0", "namespace": "shop",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "web", "tier": "front"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
                "managedFields": [],
            },
            "spec": {"nodeName": "n1", "note": "\u{1b}[2J"}, "status": {},
        },
        "owners": [{"kind": "StatefulSet", "name": "web"}],
        "owned": [{"kind": "Secret", "namespace": "shop", "name": "s"}],
        "events": [],
    }))
    .unwrap();
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let text = text(&found, "prod", now, Paint::always(false)).unwrap();
    assert!(
        text.starts_with(
            "\
Name:         web-0
Namespace:    shop
Cluster:      prod
Kind:         Pod (v1)
Created:      2026-01-01T00:00:00Z (60s ago)
Labels:       app=web
              tier=front
Owned by:     StatefulSet/web
Spec:
  nodeName: n1
"
        ),
        "{text}"
    );
    assert!(!text.contains('\u{1b}') && !text.contains("Status"), "{text}");
    assert!(text.ends_with("Events:       none\n"), "{text}");
}

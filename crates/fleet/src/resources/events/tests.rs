use serde_json::json;

use super::*;

fn event(value: &serde_json::Value) -> Event {
    let mut whole = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:00:00Z" },
        "involvedObject": { "kind": "Pod", "name": "web-0" } });
    whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    serde_json::from_value::<WireEvent>(whole).unwrap().into()
}

#[test]
fn old_and_new_events_are_the_same_here() {
    let old = event(&json!({ "type": "Warning", "reason": "BackOff", "count": 3,
        "source": { "component": "kubelet" },
        "firstTimestamp": "2026-01-01T00:00:01Z", "lastTimestamp": "2026-01-01T00:00:09Z" }));
    let new = event(&json!({ "type": "Warning", "reason": "BackOff",
        "reportingComponent": "kubelet", "eventTime": "2026-01-01T00:00:01.000000Z",
        "firstTimestamp": null, "lastTimestamp": null, "source": {},
        "series": { "count": 3, "lastObservedTime": "2026-01-01T00:00:09.000000Z" } }));
    assert_eq!(old, new);
    assert_eq!((old.count, old.object.as_str()), (3, "pod/web-0"));
    let bare = event(&json!({}));
    assert_eq!((bare.count, bare.last_seen), (1, bare.first_seen));
    assert!(bare.last_seen.is_some());
}

#[test]
fn a_selector_is_safe_from_what_a_name_may_hold() {
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a,b=c\\d" } });
    let object = serde_json::from_value(object).unwrap();
    let selector = selector(&object);
    assert_eq!(selector, r"involvedObject.name=a\,b\=c\\d,involvedObject.kind=Node");
}

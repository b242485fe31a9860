use super::*;

fn pod(name: &str, of: &str, node: &str, ready: bool) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": of},
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{"manager": "x"}],
        },
        "spec": {"nodeName": node, "containers": [{
            "args": ["controller", "--data=/var/lib/fairlead", "--fleet-namespace=$(POD_NAMESPACE)", "--admin-listen=*:7682"],
            "env": [
                {"name": "PROXY_PASSWORD", "value": "hunter22"},
                {"name": "FAIRLEAD_LOG_LEVEL", "value": "debug"},
            ],
        }]},
        "status": {"phase": "Running", "containerStatuses": [{
            "name": "fairlead", "ready": ready, "restartCount": 3,
            "state": if ready { json!({"running": {}}) } else { json!({"waiting": {"reason": "CrashLoopBackOff"}}) },
        }]},
    })
}

#[test]
fn every_controller_is_asked_and_of_many_agents_the_unready_first() {
    let mut pods: Vec<Value> =
        (0..30).map(|i| pod(&format!("a-{i}"), AGENT, &format!("n-{i}"), i != 29)).collect();
    pods.push(pod("c-0", CONTROLLER, "n-0", true));
    pods.push(pod("other", "postgres", "n-0", true));
    let name = |pod: &Value| text(&pod["metadata"]["name"]).to_owned();
    let (asked, left_out) = chosen(&pods, &[]);
    assert_eq!((asked.len(), left_out), (1 + MOST_AGENTS, 30 - MOST_AGENTS));
    assert_eq!(name(asked[0]), "c-0");
    assert_eq!(name(asked[1]), "a-29", "the one that is not ready");
    let (asked, left_out) = chosen(&pods, &["n-7".to_owned()]);
    let asked: Vec<String> = asked.into_iter().map(name).collect();
    assert_eq!((asked, left_out), (vec!["c-0".to_owned(), "a-7".to_owned()], 0));
}

#[test]
fn the_daemons_own_flags_are_passed_on_but_for_those_with_variables() {
    let settings = settings_of(&pod("c-0", CONTROLLER, "n", true));
    assert_eq!(settings, ["--data=/var/lib/fairlead", "--admin-listen=*:7682"]);
}

#[test]
fn pods_are_told_as_kubectl_tells_them() {
    let table = table(&[pod("a-0", AGENT, "n", false), pod("a-1", AGENT, "n", true)]);
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows[1], "a-0 0/1 CrashLoopBackOff 3 2026-01-02T03:04:05Z n");
    assert_eq!(rows[2], "a-1 1/1 Running 3 2026-01-02T03:04:05Z n");
}

#[test]
fn secret_variables_and_noise_are_taken_out_of_objects() {
    let shown = cleaned(pod("a-0", AGENT, "n", true)).to_string();
    assert!(!shown.contains("hunter22") && !shown.contains("managedFields"), "{shown}");
    assert!(shown.contains("debug"), "{shown}");
}

#[test]
fn events_become_lines_in_order_of_time() {
    let event = |time: &str, message: &str| {
        json!({"lastTimestamp": time, "type": "Warning", "reason": "BackOff", "message": message,
            "involvedObject": {"kind": "Pod", "namespace": "fairlead", "name": "a"}, "count": 2})
    };
    let lines =
        lines(&[event("2026-01-02T00:00:02Z", "second"), event("2026-01-02T00:00:01Z", "first")]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((text(&first["msg"]), text(&first["object"])), ("first", "Pod fairlead/a"));
}

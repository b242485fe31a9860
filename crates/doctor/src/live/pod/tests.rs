use serde_json::json;

use super::*;

#[test]
fn what_the_pod_says_comes_before_custom() {
    let pod = json!({
        "metadata": { "annotations": {
            "fairlead.dev/debug-port": "7000",
            "profiles.grafana.com/goroutine.port": "7001",
            "prometheus.io/port": "9100",
            "other/port": "1",
        } },
        "spec": { "containers": [
            { "ports": [{ "containerPort": 53, "protocol": "UDP" }, { "containerPort": 443 }] },
            { "ports": [{ "name": "metrics", "containerPort": 9102 },
                        { "name": "debug", "containerPort": 7002 }] },
        ] },
    });
    let ports = debug_ports(&pod);
    assert_eq!(ports[..7], [7000, 7001, 7002, 6060, 9102, 9100, 443]);
    assert!(!ports.contains(&53) && !ports.contains(&1));
    assert!(ports.len() <= MOST_PORTS);
    assert_eq!(debug_ports(&json!({})), CUSTOMARY);
}

/// A pod of which one port answers one page; another port hangs up.
#[derive(Debug)]
struct Answering(&'static str);

impl Fetch for Answering {
    fn get(&self, url: &str) -> Result<(u16, Vec<u8>), String> {
        match url {
            url if url.starts_with("http://web-0:1/") => Err("connection refused".to_owned()),
            url if url == self.0 => Ok((200, Vec::new())),
            _ => Ok((404, Vec::new())),
        }
    }
}

#[test]
fn the_port_with_profiles_is_found_and_one_that_hangs_up_is_asked_once() {
    let pod = PodPorts { pod: "web-0".to_owned(), ports: vec![1, 80, 9090] };
    let mut asked = Vec::new();
    let found = pod.search(&Answering("http://web-0:9090/metrics"), &mut |url| {
        asked.push(url.to_owned());
    });
    assert_eq!(found.as_deref(), Some("http://web-0:9090"));
    assert_eq!(asked.iter().filter(|url| url.starts_with("http://web-0:1/")).count(), 1);
    assert_eq!(pod.search(&Answering("http://other:80/metrics"), &mut |_| {}), None);
    assert!(pod.nothing("with --port").contains("asked: 1, 80, 9090"));
}

#[test]
fn only_a_page_of_a_known_port_of_the_pod_is_its_page() {
    let pod = PodPorts { pod: "web-0".to_owned(), ports: vec![80] };
    assert_eq!(pod.page("http://web-0:80/metrics?a=b"), Some((80, "/metrics?a=b")));
    assert_eq!(pod.page("http://web-0:80"), Some((80, "")));
    for other in ["http://web-0:81/", "http://web-01:80/", "https://web-0:80/", "http://a:80/", "x"]
    {
        assert_eq!(pod.page(other), None, "{other}");
    }
}

use serde_json::json;

use super::*;

fn registration(reach: Reach) -> Registration {
    Registration {
        reach,
        failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(7),
        exempt: vec!["kube-system".to_owned(), "fairlead".to_owned()],
    }
}

#[test]
fn a_service_and_a_url_are_registered_as_they_are_reached() {
    let service = Reach::Service { namespace: "ns".into(), name: "hook".into(), port: 443 };
    assert_eq!(service.names(), ["hook.ns.svc", "hook.ns"]);
    let made = registration(service).configuration(LOCAL_CLUSTER, "PEM");
    let webhook = serde_json::to_value(&made.webhooks.unwrap()[0]).unwrap();
    assert_eq!(
        webhook["clientConfig"],
        json!({"caBundle": "UEVN",
               "service": {"namespace": "ns", "name": "hook", "path": "/admit", "port": 443}})
    );
    assert_eq!(webhook["failurePolicy"], "Fail");
    assert_eq!(webhook["timeoutSeconds"], 7);
    assert_eq!(
        webhook["namespaceSelector"]["matchExpressions"][0],
        json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn",
               "values": ["kube-system", "fairlead"]})
    );

    let url = Reach::Url { base: "https://hook:7683".into(), host: "hook".into() };
    let made = registration(url).configuration("prod", "PEM");
    let config = made.webhooks.unwrap()[0].client_config.clone();
    assert_eq!(config.url.as_deref(), Some("https://hook:7683/admit/prod"));
    assert!(config.service.is_none());
}

#[test]
fn every_kind_that_rules_look_at_is_asked_for() {
    let rules = rules();
    let asked = |group: &str, resource: &str, operation: &str| {
        let has = |words: &Option<Vec<String>>, word: &str| {
            words.iter().flatten().any(|found| found == word)
        };
        rules.iter().any(|rule| {
            has(&rule.api_groups, group)
                && has(&rule.resources, resource)
                && has(&rule.operations, operation)
        })
    };
    for (group, resource) in [
        ("", "pods"),
        ("", "pods/ephemeralcontainers"),
        ("", "pods/resize"),
        ("", "persistentvolumeclaims"),
        ("", "replicationcontrollers"),
        ("apps", "deployments"),
        ("apps", "daemonsets"),
        ("apps", "statefulsets"),
        ("apps", "replicasets"),
        ("batch", "cronjobs"),
    ] {
        assert!(asked(group, resource, "CREATE") && asked(group, resource, "UPDATE"), "{resource}");
    }
    assert!(asked("batch", "jobs", "CREATE"));
}

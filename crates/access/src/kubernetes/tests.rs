use super::*;

fn parsed(method: &str, path: &'static str) -> KubeResource<'static> {
    let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q)));
    match KubeRequest::parse(method, path, query, false).unwrap() {
        KubeRequest::Resource(resource) => resource,
        other => panic!("{path} is of a resource, not {other:?}"),
    }
}

fn asks(method: &str, path: &'static str) -> String {
    let asks = parsed(method, path).asks().into_iter();
    asks.map(|(resource, verb)| format!("{verb} {resource}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn requests_ask_for_the_verbs_of_roles() {
    for (method, path, wanted) in [
        ("GET", "api/v1/pods", "list pods"),
        ("GET", "api/v1/pods?limit=5&watch=false", "list pods"),
        ("GET", "api/v1/pods?watch=true", "watch pods"),
        ("GET", "api/v1/pods?limit=5&watch", "watch pods"),
        ("GET", "api/v1/pods?w%61tch=1", "watch pods"),
        ("GET", "api/v1/namespaces/a/pods/b", "get pods"),
        ("GET", "api/v1/namespaces/a/pods/b?watch=true", "get pods"),
        ("GET", "api/v1/namespaces/a/pods/b/log?follow=true", "log pods"),
        ("POST", "api/v1/namespaces/a/pods/b/exec", "exec pods"),
        ("GET", "api/v1/namespaces/a/pods/b/attach", "exec pods"),
        ("POST", "api/v1/namespaces/a/pods/b/portforward", "forward pods"),
        ("POST", "api/v1/namespaces/a/pods/b/eviction", "delete pods"),
        ("PATCH", "api/v1/namespaces/a/pods/b/ephemeralcontainers", "exec pods, update pods"),
        ("PATCH", "apis/apps/v1/namespaces/a/deployments/b/scale", "scale deployments.apps"),
        ("GET", "apis/apps/v1/namespaces/a/deployments/b/scale", "get deployments.apps"),
        ("PATCH", "apis/apps/v1/namespaces/a/deployments/b", "update deployments.apps"),
        (
            "PUT",
            "apis/apps/v1/namespaces/a/deployments/b",
            "update deployments.apps, create deployments.apps",
        ),
        ("DELETE", "apis/apps/v1/namespaces/a/deployments", "delete deployments.apps"),
        ("GET", "api/v1/namespaces/a", "get namespaces"),
        ("PUT", "api/v1/namespaces/a/finalize", "update namespaces, update namespaces/finalize"),
        (
            "POST",
            "api/v1/namespaces/a/serviceaccounts/b/token",
            "create serviceaccounts, create serviceaccounts/token, create secrets",
        ),
    ] {
        assert_eq!(asks(method, path), wanted, "{method} {path}");
    }
    let made = KubeRequest::parse("PATCH", "api/v1/namespaces/a/configmaps/b", None, true).unwrap();
    let KubeRequest::Resource(made) = made else { panic!() };
    assert_eq!(made.asks().len(), 2, "a server-side apply makes what is not there");
}

#[test]
fn the_namespace_is_the_paths() {
    let pod = parsed("GET", "api/v1/namespaces/a/pods/b");
    assert_eq!((pod.namespace, pod.name), (Some("a"), Some("b")));
    let space = parsed("GET", "api/v1/namespaces/a");
    assert_eq!((space.namespace, space.name, space.plural), (None, Some("a"), "namespaces"));
    let all = parsed("GET", "apis/apps/v1/deployments");
    assert_eq!((all.namespace, all.name), (None, None));
}

#[test]
fn paths_that_can_be_read_in_two_ways_are_read_in_none() {
    for path in [
        "api/v1/namespaces/a/pods/../../b/secrets/c",
        "api/v1/namespaces/a/pods/..%2f..%2fb/secrets/c",
        "api/v1/namespaces/a/pods/%2e%2e/x",
        "api/v1/namespaces/a%2fpods/x",
        "api//v1/pods",
        "api/v1/namespaces/a/pods/",
        "api/v1/./pods",
        "api/v1/namespaces/a/pods/b\\c",
        "api/v1/namespaces/a/pods/b;c",
        "",
    ] {
        let read = KubeRequest::parse("GET", path, None, false);
        assert!(matches!(read, Err(NotPassedOn::Path(_))), "{path}: {read:?}");
    }
}

#[test]
fn what_is_never_passed_on() {
    for path in [
        "metrics",
        "logs/kube-apiserver.log",
        "debug/pprof/heap",
        "api/v1/watch/namespaces/a/secrets",
        "api/v1/proxy/nodes/a",
        "api/v1/nodes/a/proxy",
        "api/v1/nodes/a/proxy/run",
        "api/v1/namespaces/a/services/b/proxy",
        "api/v1/namespaces/a/pods/b/proxy/secret/path",
    ] {
        let read = KubeRequest::parse("GET", path, None, false);
        assert!(matches!(read, Err(NotPassedOn::Never(_))), "{path}: {read:?}");
    }
    for path in ["api", "api/v1", "apis/apps/v1", "openapi/v2", "version", "readyz/etcd"] {
        let read = KubeRequest::parse("GET", path, None, false);
        assert_eq!(read, Ok(KubeRequest::Discovery), "{path}");
        assert!(KubeRequest::parse("POST", path, None, false).is_err(), "{path}");
    }
}

#[test]
fn a_question_about_ones_rights_is_no_request_of_the_clusters() {
    let review = |method, path| KubeRequest::parse(method, path, None, false);
    let group = "apis/authorization.k8s.io/v1";
    let access = format!("{group}/selfsubjectaccessreviews");
    assert_eq!(review("POST", &access), Ok(KubeRequest::Review(SelfReview::Access)));
    let rules = format!("{group}/selfsubjectrulesreviews");
    assert_eq!(review("POST", &rules), Ok(KubeRequest::Review(SelfReview::Rules)));
    assert!(review("GET", &rules).is_err());
    assert!(review("POST", "apis/authorization.k8s.io/v1beta1/selfsubjectrulesreviews").is_err());
    // Those about others are requests like any other.
    let others = parsed("POST", "apis/authorization.k8s.io/v1/subjectaccessreviews");
    assert_eq!(others.resource(), "subjectaccessreviews.authorization.k8s.io");
}

#[test]
fn what_is_asked_about_is_what_a_request_would_ask_for() {
    let asks = |verb, of| {
        let asked = KubeResource::asked_about(verb, of, Some("a"), None)?;
        let asks = asked.asks().into_iter().map(|(resource, verb)| format!("{verb} {resource}"));
        Ok::<_, NotPassedOn>(asks.collect::<Vec<_>>().join(", "))
    };
    for (verb, of, wanted) in [
        ("get", ("", "pods", None), "get pods"),
        ("patch", ("", "pods", None), "update pods"),
        ("update", ("", "pods", None), "update pods, create pods"),
        ("deletecollection", ("apps", "deployments", None), "delete deployments.apps"),
        ("get", ("", "pods", Some("log")), "log pods"),
        ("create", ("", "pods", Some("exec")), "exec pods"),
        ("get", ("", "pods", Some("portforward")), "forward pods"),
        ("patch", ("apps", "deployments", Some("scale")), "scale deployments.apps"),
    ] {
        assert_eq!(asks(verb, of).as_deref(), Ok(wanted), "{verb} {of:?}");
    }
    for (verb, of) in [
        ("impersonate", ("", "users", None)),
        ("escalate", ("rbac.authorization.k8s.io", "roles", None)),
        ("GET", ("", "pods", None)),
        ("get", ("", "services", Some("proxy"))),
    ] {
        assert!(asks(verb, of).is_err(), "{verb} {of:?}");
    }
}

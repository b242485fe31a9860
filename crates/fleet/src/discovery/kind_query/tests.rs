use kube::core::ApiResource;
use proptest::prelude::*;

use super::*;

fn kind(api_version: &str, kind: &str, plural: &str, short: &[&str]) -> ServedKind {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ServedKind {
        resource: ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        },
        singular: kind.to_lowercase(),
        namespaced: true,
        verbs: Vec::new(),
        short_names: short.iter().map(ToString::to_string).collect(),
        categories: Vec::new(),
        subresources: Vec::new(),
    }
}

fn groups() -> Vec<Group> {
    let group = |name: &str, versions: &[&str]| Group {
        name: name.to_owned(),
        versions: versions.iter().map(ToString::to_string).collect(),
    };
    vec![
        group("apps", &["v1", "v1beta1"]),
        group("events.k8s.io", &["v1"]),
        group("serving.knative.dev", &["v1"]),
        group("v1.example.com", &["v2"]),
    ]
}

fn served(list: &str) -> Vec<ServedKind> {
    match list {
        "v1" => vec![
            kind("v1", "Pod", "pods", &["po"]),
            kind("v1", "Service", "services", &["svc"]),
            kind("v1", "Event", "events", &["ev"]),
        ],
        "apps/v1" => vec![kind("apps/v1", "Deployment", "deployments", &["deploy"])],
        "apps/v1beta1" => vec![
            kind("apps/v1beta1", "Deployment", "deployments", &["deploy"]),
            kind("apps/v1beta1", "Scale", "scales", &[]),
        ],
        "events.k8s.io/v1" => vec![kind("events.k8s.io/v1", "Event", "events", &["ev"])],
        "serving.knative.dev/v1" => {
            vec![kind("serving.knative.dev/v1", "Service", "services", &["ksvc"])]
        }
        "v1.example.com/v2" => vec![kind("v1.example.com/v2", "Knot", "knots", &["kn"])],
        other => panic!("no list {other}"),
    }
}

/// The walk that a lookup makes, without its I/O.
fn resolve(ask: &KindQuery) -> Option<ServedKind> {
    ask.interpretations().into_iter().find_map(|reading| {
        let core = reading.takes_core().then(|| "v1".to_owned());
        let lists = core.into_iter().chain(reading.lists(&groups()));
        lists.map(|list| served(&list)).find_map(|list| reading.pick(&list).cloned())
    })
}

fn means(word: &str) -> Option<String> {
    resolve(&KindQuery::word(word))
        .map(|found| format!("{} {}", found.resource.api_version, found.resource.kind))
}

#[test]
fn a_word_means_what_it_means_to_kubectl() {
    let cases = [
        ("pods", "v1 Pod"),
        ("pod", "v1 Pod"),
        ("Pod", "v1 Pod"),
        ("PODS", "v1 Pod"),
        ("po", "v1 Pod"),
        (" po ", "v1 Pod"),
        ("pods.v1.", "v1 Pod"),
        ("deployments", "apps/v1 Deployment"),
        ("deploy", "apps/v1 Deployment"),
        ("deploy.apps", "apps/v1 Deployment"),
        ("Deployment.apps", "apps/v1 Deployment"),
        ("deployments.v1.apps", "apps/v1 Deployment"),
        ("deployments.v1beta1.apps", "apps/v1beta1 Deployment"),
        // Core first, then the server's order.
        ("services", "v1 Service"),
        ("ksvc", "serving.knative.dev/v1 Service"),
        ("services.serving.knative.dev", "serving.knative.dev/v1 Service"),
        ("services.v1.serving.knative.dev", "serving.knative.dev/v1 Service"),
        ("services.serving", "serving.knative.dev/v1 Service"),
        ("events", "v1 Event"),
        ("events.events.k8s.io", "events.k8s.io/v1 Event"),
        // Only in a version that its group does not prefer.
        ("scales", "apps/v1beta1 Scale"),
        // A group that begins like a version.
        ("knots.v1.example.com", "v1.example.com/v2 Knot"),
    ];
    for (word, meaning) in cases {
        assert_eq!(means(word).as_deref(), Some(meaning), "{word:?}");
    }
    for nothing in
        ["", ".", "pods.apps", "pods.v2.", "deployments.v2.apps", "deployments.apps.", "x.y.z"]
    {
        assert_eq!(means(nothing), None, "{nothing:?}");
    }
}

#[test]
fn a_manifest_means_its_kind_and_no_other() {
    let ask = |api_version: &str, kind: &str| {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        resolve(&KindQuery::Kind { api_version, kind }).map(|found| found.resource.plural)
    };
    assert_eq!(ask("v1", "Pod").as_deref(), Some("pods"));
    assert_eq!(ask("apps/v1beta1", "Scale").as_deref(), Some("scales"));
    assert_eq!(ask("v1", "pods"), None);
    assert_eq!(ask("app/v1", "Deployment"), None);
    assert_eq!(ask("v1", "Deployment"), None);
}

#[test]
fn in_one_list_a_full_name_beats_a_short_one() {
    let list = [kind("v1", "Other", "others", &["knot"]), kind("v1", "Knot", "knots", &[])];
    let ask = KindQuery::word("knot");
    let picked = ask.interpretations()[0].pick(&list).unwrap();
    assert_eq!(picked.resource.kind, "Knot");
}

#[test]
fn the_nearest_names_are_those_one_may_have_meant() {
    let names: Vec<_> =
        ["deployments", "deploy", "daemonsets", "pods", "po", "services"].map(String::from).into();
    assert_eq!(nearest("deploymnet", &names)[0], "deployments");
    assert_eq!(nearest("pds", &names)[0], "pods");
    assert!(nearest("xyzzy", &names).is_empty());
    assert!(nearest("", &names).is_empty());
}

proptest! {
    #[test]
    fn any_word_is_read_without_panic_and_stays_a_word(word in "[ -~]{0,20}") {
        if let Some(found) = resolve(&KindQuery::word(&word)) {
            let name = word.trim().split('.').next().unwrap().to_lowercase();
            let names = [found.resource.plural, found.singular, found.resource.kind.to_lowercase()];
            prop_assert!(names.contains(&name) || found.short_names.contains(&name));
        }
    }

    #[test]
    fn every_kind_is_found_by_its_full_name(list in 0..6_usize, index in 0..3_usize, upper: bool) {
        let lists = ["v1", "apps/v1", "apps/v1beta1", "events.k8s.io/v1", "serving.knative.dev/v1",
            "v1.example.com/v2"];
        let kinds = served(lists[list]);
        let found = &kinds[index % kinds.len()];
        let ApiResource { group, version, plural, .. } = &found.resource;
        let word = format!("{plural}.{version}.{group}");
        let word = if upper { word.to_uppercase() } else { word };
        let meant = resolve(&KindQuery::word(&word));
        prop_assert_eq!(meant.as_ref(), Some(found));
    }
}

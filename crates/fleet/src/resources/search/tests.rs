use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: serde_json::Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
        kind: kind.to_owned(),
        plural: String::new(),
    }
}

fn place(object: &DynamicObject, text: &str) -> Option<(Field, How)> {
    matched(&kind("", "Pod"), object, text).map(|matched| (matched.field, matched.how))
}

#[test]
fn an_address_is_found_where_objects_have_one() {
    let found = |of: &ApiResource, value: serde_json::Value, text: &str| {
        matched(of, &object(value), text).map(|it| (it.field, it.how, it.value))
    };
    let address = |how, value: &str| Some((Field::Address, how, value.to_owned()));
    let pod = || {
        json!({ "metadata": { "name": "web" },
            "status": { "podIP": "10.0.3.17", "hostIP": "192.0.2.1",
                "podIPs": [{ "ip": "10.0.3.17" }, { "ip": "fd00::a" }] } })
    };
    let pods = kind("", "Pod");
    assert_eq!(found(&pods, pod(), "10.0.3.17"), address(How::Exact, "10.0.3.17"));
    assert_eq!(found(&pods, pod(), "10.0.3."), address(How::Prefix, "10.0.3.17"));
    assert_eq!(found(&pods, pod(), "fd00:0:0::a"), address(How::Exact, "fd00::a"));
    assert_eq!(found(&pods, pod(), "0.3.17"), None, "the middle of an address is none");
    assert_eq!(found(&pods, pod(), "192.0.2.1"), None, "it is the node's");
    assert_eq!(found(&pods, pod(), "17"), None, "a number is no address");
    let service = || {
        json!({ "metadata": { "name": "web" },
            "spec": { "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd01::9"],
                "externalIPs": ["198.51.100.1"] },
            "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.5" }] } } })
    };
    for text in ["10.96.0.9", "fd01::9", "198.51.100.1", "203.0.113.5"] {
        assert_eq!(found(&kind("", "Service"), service(), text), address(How::Exact, text));
    }
    let node = json!({ "metadata": { "name": "n1" },
        "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }] } });
    assert_eq!(found(&kind("", "Node"), node, "192.0.2.1"), address(How::Exact, "192.0.2.1"));
    let block = || {
        json!({ "metadata": { "name": "default-3" },
            "spec": { "pool": "default", "index": 3, "ipv4": "10.0.3.0/27" } })
    };
    let blocks = kind("fairlead.dev", "AddressBlock");
    assert_eq!(found(&blocks, block(), "10.0.3.17"), address(How::Contains, "10.0.3.0/27"));
    assert_eq!(found(&blocks, block(), "10.0.3.32"), None);
    assert_eq!(found(&kind("", "ConfigMap"), pod(), "10.0.3.17"), None, "it has none");
}

#[test]
fn blocks_of_addresses_are_looked_into_for_an_address_only() {
    let query = SearchQuery::default();
    assert!(query.with_blocks("10.0.3.17").kinds.iter().any(|kind| kind == BLOCKS));
    assert_eq!(query.with_blocks("web"), query);
    let pods = SearchQuery { kinds: vec!["pods".to_owned()], ..query };
    assert_eq!(pods.with_blocks("10.0.3.17"), pods);
}

#[test]
fn a_text_is_found_in_the_best_place() {
    let pod = object(json!({
        "metadata": { "name": "Web-0", "namespace": "shop", "labels": { "app": "web", "tier": "front" } },
        "spec": { "containers": [{ "image": "registry.test/nginx:1.27" }],
            "initContainers": [{ "image": "busybox" }] },
    }));
    assert_eq!(place(&pod, "web-0"), Some((Field::Name, How::Exact)));
    assert_eq!(place(&pod, "web"), Some((Field::Name, How::Prefix)));
    assert_eq!(place(&pod, "-0"), Some((Field::Name, How::Contains)));
    assert_eq!(place(&pod, "front"), Some((Field::Label, How::Exact)));
    assert_eq!(place(&pod, "tier=front"), Some((Field::Label, How::Exact)));
    assert_eq!(place(&pod, "app=w"), Some((Field::Label, How::Prefix)));
    assert_eq!(place(&pod, "nginx"), Some((Field::Image, How::Contains)));
    assert_eq!(place(&pod, "busybox"), Some((Field::Image, How::Exact)));
    assert_eq!(place(&pod, "shop"), Some((Field::Namespace, How::Exact)));
    assert_eq!(place(&pod, "absent"), None);
}

fn hit(cluster: &str, name: &str, field: Field, how: How) -> Hit {
    Hit {
        cluster: cluster.to_owned(),
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        resource: "pods".to_owned(),
        namespace: None,
        name: name.to_owned(),
        matched: Matched { field, how, value: name.to_owned() },
    }
}

fn any_hit() -> impl Strategy<Value = Hit> {
    let field =
        prop::sample::select(vec![Field::Name, Field::Label, Field::Image, Field::Namespace]);
    let how = prop::sample::select(vec![How::Exact, How::Prefix, How::Contains]);
    (0..3_u8, "[a-c]{1,2}", field, how)
        .prop_map(|(cluster, name, field, how)| hit(&format!("c{cluster}"), &name, field, how))
}

proptest! {
    #[test]
    fn the_order_is_the_same_whoever_answers_first(
        hits in proptest::collection::vec(any_hit(), 0..20).prop_flat_map(|hits| {
            (Just(hits.clone()), Just(hits).prop_shuffle())
        }),
    ) {
        let sort = |hits: Vec<Hit>| {
            let mut result = SearchResult { hits, ..SearchResult::default() };
            result.sort();
            result.hits
        };
        let (one, other) = (sort(hits.0), sort(hits.1));
        prop_assert_eq!(&one, &other);
        let rank = |hit: &Hit| (hit.matched.field, hit.matched.how);
        prop_assert!(one.is_sorted_by_key(rank));
    }

    /// Trimming as kinds arrive keeps what trimming at the end would.
    #[test]
    fn the_best_are_kept(
        parts in proptest::collection::vec(proptest::collection::vec(any_hit(), 0..8), 0..5),
        limit in 1..6_usize,
    ) {
        let (mut part, mut all) = (ClusterHits::default(), ClusterHits::default());
        for hits in parts {
            part.hits.extend(hits.clone());
            part.trim(limit);
            all.hits.extend(hits);
        }
        let truncated = all.hits.len() > limit;
        all.trim(limit);
        prop_assert_eq!(part.hits, all.hits);
        prop_assert_eq!(part.truncated, truncated);
    }
}

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: serde_json::Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn place(object: &DynamicObject, text: &str) -> Option<(Field, How)> {
    matched(object, text).map(|matched| (matched.field, matched.how))
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
        let (mut part, mut all) = (Part::default(), Part::default());
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

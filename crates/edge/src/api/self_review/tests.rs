use super::*;

fn words(words: &[&str]) -> Option<Vec<String>> {
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

fn theirs(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> ResourceRule {
    ResourceRule {
        api_groups: words(groups),
        resources: words(resources),
        verbs: words(verbs).unwrap(),
        resource_names: (!names.is_empty()).then(|| words(names).unwrap()),
    }
}

fn ours(group: &str, resource: &str, verbs: &[&str]) -> Vec<AllowedVerb> {
    verbs.iter().map(|verb| AllowedVerb::new(group, resource.to_owned(), verb)).collect()
}

#[test]
fn a_rule_needs_the_roles_and_the_cluster() {
    let mut own = ours("", "pods", &["get", "list", "delete"]);
    own.extend(ours("", "configmaps", &["get", "list"]));
    own.extend(ours("", "pods/log", &["get"]));
    own.extend(ours("apps", "deployments", &["get"]));
    own.extend(ours("apps", "deployments/scale", &["patch"]));
    let all = in_both(&own, &[theirs(&["*"], &["*"], &["*"], &[])]);
    assert_eq!(all.len(), 5, "{all:?}");
    // The cluster's account may do less than the roles say.
    let some = [
        theirs(&[""], &["pods", "secrets"], &["get", "list", "watch"], &[]),
        theirs(&[""], &["configmaps"], &["get"], &["settings"]),
        theirs(&["apps"], &["*/scale"], &["patch"], &[]),
    ];
    let both = in_both(&own, &some);
    let expected = [
        theirs(&[""], &["pods"], &["get", "list"], &[]),
        theirs(&[""], &["configmaps"], &["get"], &["settings"]),
        theirs(&["apps"], &["deployments/scale"], &["patch"], &[]),
    ];
    assert_eq!(both, expected);
    assert_eq!(in_both(&own, &[]), []);
    assert_eq!(in_both(&[], &some), []);
}

#[test]
fn paths_are_those_of_discovery_alone() {
    let rule = |urls: &[&str], verbs: &[&str]| NonResourceRule {
        non_resource_urls: words(urls),
        verbs: words(verbs).unwrap(),
    };
    let all = paths_in_both(&[rule(&["*"], &["*"])]);
    assert_eq!(all[0].non_resource_urls.as_ref().unwrap().len(), PATHS.len());
    let some = paths_in_both(&[rule(&["/healthz", "/metrics", "/api/*"], &["get"])]);
    assert_eq!(some, [rule(&["/api/*", "/healthz"], &["get"])]);
    assert_eq!(paths_in_both(&[rule(&["*"], &["post"])]), []);
    let path = |path: &str, verb: &str| {
        refusal_of_path(&NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some(verb.to_owned()),
        })
    };
    assert_eq!(path("/healthz", "get"), None);
    assert!(path("/metrics", "get").is_some());
    assert!(path("/healthz", "delete").is_some());
    assert!(path("/api/v1/../../metrics", "get").is_some());
}

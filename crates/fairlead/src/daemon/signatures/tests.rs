use serde_json::json;

use super::*;

#[test]
fn images_are_told_by_digest_and_only_in_registries_that_are_named() {
    let digest = |c: char| format!("sha256:{}", c.to_string().repeat(64));
    let pod = json!({
        "spec": {"containers": [
            {"image": "acme.io/web/cart:2"},
            {"image": format!("acme.io/web/pinned@{}", digest('b'))},
        ]},
        "status": {"containerStatuses": [
            {"imageID": format!("docker-pullable://acme.io/web/cart@{}", digest('a'))},
            {"imageID": format!("evil.example.com/web/cart@{}", digest('a'))},
            {"imageID": "sha256:abc"},
        ]},
    });
    let mut found = BTreeSet::new();
    images_of(&pod, |host| host == "acme.io", &mut found);
    let names: Vec<_> = found.iter().map(|(_, name, of)| (name.as_str(), of.clone())).collect();
    assert_eq!(names, [("web/cart", digest('a')), ("web/pinned", digest('b'))]);
}

#[test]
fn hosts_and_credentials_are_read_and_a_bad_line_is_named_without_its_text() {
    let hosts = Registries::hosts(&["acme.io".to_owned(), "http://127.0.0.1:5000".to_owned()]);
    assert_eq!(hosts, BTreeMap::from([("acme.io".into(), false), ("127.0.0.1:5000".into(), true)]));
    let read = Registries::credentials("acme.io robot:hush\n\n ghcr.io  a:b \n").unwrap();
    assert_eq!((read["acme.io"].as_str(), read["ghcr.io"].as_str()), ("robot:hush", "a:b"));
    let wrong = Registries::credentials("acme.io robot:x\nacme.io hush").unwrap_err();
    assert!(wrong.contains("line 2") && !wrong.contains("hush"), "{wrong}");
}

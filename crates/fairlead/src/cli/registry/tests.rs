use super::*;

#[test]
fn images_are_found_where_container_runtimes_find_them() {
    let of = |text: &str| {
        let RegistryImage { host, repository, reference } = RegistryImage::parse(text).unwrap();
        format!("{host} {repository} {reference}")
    };
    let digest = format!("sha256:{}", "a".repeat(64));
    assert_eq!(of("nginx"), "registry-1.docker.io library/nginx latest");
    assert_eq!(of("acme.io:5000/web/cart:v2"), "acme.io:5000 web/cart v2");
    assert_eq!(of(&format!("acme.io/cart:v2@{digest}")), format!("acme.io cart {digest}"));
    for wrong in ["acme.io/", "acme.io/a b", "acme.io/a@sha256:1", "acme.io/a:", "acme.io/a?b=c"] {
        assert!(RegistryImage::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_registry_says_where_tokens_are() {
    let asked = r#"Bearer realm="https://auth.acme.io/token",service="registry.acme.io",scope="repository:a:pull""#;
    let challenge = Challenge::parse(asked).unwrap();
    assert_eq!(
        (challenge.realm.as_str(), challenge.service.as_str()),
        ("https://auth.acme.io/token", "registry.acme.io")
    );
    assert_eq!(Challenge::parse("Basic realm=\"x\""), None);
    assert_eq!(Challenge::parse("Bearer service=\"x\""), None);
}

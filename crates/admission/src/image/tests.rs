use super::{DEFAULT_REGISTRIES, Image, ImageItem, registry_item};

fn image(text: &str) -> Image {
    Image::parse(text, &DEFAULT_REGISTRIES.map(str::to_owned).into())
}

#[test]
fn images_are_parsed_into_registries_repository_tag_and_digest() {
    let hub = DEFAULT_REGISTRIES.map(str::to_owned).to_vec();
    let one = |host: &str| vec![host.to_owned()];
    let cases = [
        ("nginx", hub.clone(), "library/nginx", vec!["library/nginx:latest"]),
        ("docker.io/nginx:1", hub.clone(), "library/nginx", vec!["library/nginx:1"]),
        (
            "index.docker.io/nginx:1",
            one("index.docker.io"),
            "library/nginx",
            vec!["library/nginx:1"],
        ),
        ("web/cart:v2", hub, "web/cart", vec!["web/cart:v2"]),
        ("Harbor.Acme.io:5000/Web/x", one("harbor.acme.io:5000"), "Web/x", vec!["Web/x:latest"]),
        ("localhost/x@sha256:ab", one("localhost"), "x", vec!["x@sha256:ab"]),
        (
            "https://r.io/a/b:1@sha512:cd",
            one("r.io"),
            "a/b",
            vec!["a/b:1", "a/b@sha512:cd", "a/b:1@sha512:cd"],
        ),
    ];
    for (text, hosts, repository, versions) in cases {
        let image = image(text);
        assert_eq!(image.hosts.to_vec(), hosts, "{text}");
        assert_eq!(
            (image.repository.as_str(), image.versions),
            (repository, { versions.into_iter().map(str::to_owned).collect() }),
            "{text}"
        );
    }
}

#[test]
fn sidecars_are_known_in_their_own_registries_only() {
    for text in [
        "istio/proxyv2:1.20",
        "docker.io/istio/proxyv2",
        "gcr.io/istio-release/proxyv2@x:y",
        "gcr.io/linkerd-io/proxy:a",
    ] {
        assert!(image(text).sidecar, "{text}");
    }
    for text in ["evil.io/istio/proxyv2", "gcr.io/istio/proxyv2", "index.docker.io/istio/proxyv2"] {
        assert!(!image(text).sidecar, "{text}");
    }
}

#[test]
fn items_match_as_the_table_of_items_says() {
    let cases = [
        ("web/cart", "web/cart:v2", true),
        ("web/cart", "quay.io/web/cart@sha256:1", true),
        ("cart", "cart", false),
        ("cart", "quay.io/cart:3", true),
        ("library/cart", "cart", true),
        ("docker.io/library/cart", "cart:1", true),
        ("docker.io/cart", "cart:1", false),
        ("registry-1.docker.io/library/cart", "cart", true),
        ("harbor.acme.io/web/*", "harbor.acme.io/web/a/b:1", true),
        ("harbor.acme.io/web/*", "harbor.acme.io:5000/web/a", false),
        ("HARBOR.acme.io/Web/a", "harbor.acme.io/web/a", true),
        ("*:v2*", "web/cart:v2.1", true),
        ("*:v2*", "web/cart:v1", false),
        ("web/cart:v2", "web/cart:v2@sha256:ab", true),
        ("web/cart@sha256:ab", "web/cart:v2@sha256:ab", true),
        ("web/cart:v2@sha256:ab", "web/cart:v2@sha256:ab", true),
        ("web/cart:", "web/cart:v7", true),
        ("web/cart:V2", "web/cart:v2", false),
        ("harbor.acme.io", "harbor.acme.io/x", false),
        ("harbor.acme.io/", "harbor.acme.io/x", false),
        ("reg:5000/a", "reg:5000/a:1", true),
        // A glob in the registry does not run on into the repository.
        ("*.acme.io/web", "evil.io/x.acme.io/web", false),
        ("w.b/cart", "wxb/cart", false),
    ];
    for (item, text, expected) in cases {
        assert_eq!(ImageItem::new(item).matches(&image(text)), expected, "{item} on {text}");
    }
}

#[test]
fn registries_are_compared_whole_with_every_name_of_docker_hub() {
    let cases = [
        ("dockerhub", "nginx", true),
        ("docker.io", "index.docker.io/a/b", true),
        ("docker.io", "quay.io/a", false),
        ("https://Harbor.acme.io/project", "harbor.acme.io/a", true),
        ("*.acme.io", "harbor.acme.io:5000/a", false),
        ("reg:5000", "reg:5000/a", true),
        ("*", "localhost/a", true),
    ];
    for (item, text, expected) in cases {
        let matches = registry_item(item)
            .iter()
            .any(|glob| image(text).hosts.iter().any(|host| glob.matches(host)));
        assert_eq!(matches, expected, "{item} on {text}");
    }
}

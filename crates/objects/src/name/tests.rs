use super::{dns_label, key, label_value, prefixed_key, subdomain};

#[test]
fn names_are_dns_subdomains() {
    for good in ["a", "a-b", "a.b", "0", "prod-eu.example.com", &"a".repeat(253)] {
        assert_eq!(subdomain(good), None, "{good}");
    }
    for bad in ["", "A", "-a", "a-", "a..b", ".a", "a.", "a_b", "a b", "ä", &"a".repeat(254)] {
        assert!(subdomain(bad).is_some(), "{bad}");
    }
}

#[test]
fn namespaces_are_dns_labels() {
    assert_eq!(dns_label("kube-system"), None);
    for bad in ["", "a.b", "a-", &"a".repeat(64)] {
        assert!(dns_label(bad).is_some(), "{bad}");
    }
}

#[test]
fn keys_may_have_a_prefix_and_finalizers_must() {
    for good in ["app", "App_1.x", "fairlead.dev/pool", "a.b/c"] {
        assert_eq!(key(good), None, "{good}");
    }
    for bad in ["", "/", "a/", "/a", "a/b/c", "A.b/c", "-a", "a b", &"a".repeat(64)] {
        assert!(key(bad).is_some(), "{bad}");
    }
    assert_eq!(prefixed_key("fairlead.dev/pool"), None);
    assert!(prefixed_key("pool").is_some());
}

#[test]
fn the_value_of_a_label_may_be_empty() {
    for good in ["", "a", "A_1.b-c", &"a".repeat(63)] {
        assert_eq!(label_value(good), None, "{good}");
    }
    for bad in ["-", "a b", "a/b", "ä", &"a".repeat(64)] {
        assert!(label_value(bad).is_some(), "{bad}");
    }
}

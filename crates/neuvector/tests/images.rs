//! Vulnerability profiles and roots of trust: what comes along, and that nothing is excepted or accepted that
//! NeuVector would not.

#![allow(clippy::unwrap_used, reason = "tests")]

use neuvector::{Finding, Imported, Outcome, Settings, import};
use objects::kinds::VulnerabilityExceptionSpec;
use proptest::prelude::*;
use serde_json::{Value, json};

fn imported(documents: &[Value]) -> Imported {
    import(documents, &Settings::default()).expect("an export")
}

fn profile(entries: &Value) -> Value {
    json!({"apiVersion": "neuvector.com/v1", "kind": "NvVulnerabilityProfile",
           "metadata": {"name": "default"}, "spec": {"profile": {"entries": entries}}})
}

fn outcomes(imported: &Imported) -> Vec<(&str, Outcome)> {
    imported.report.iter().map(|Finding { name, outcome, .. }| (name.as_str(), *outcome)).collect()
}

#[test]
fn a_vulnerability_profile_becomes_exceptions() {
    let entries = json!([
        {"name": "CVE-2024-3094", "comment": "not reachable", "days": 0, "domains": [], "images": []},
        {"name": "_RecentVuln", "days": 14, "images": ["web/cart:*"]},
        {"name": "CVE-2021-1*", "images": ["web/cart:1.2", "harbor.acme.io/web/*"]},
        {"name": "CVE-2022-1", "domains": ["shop"]},
        {"name": "CVE-202[12]*"},
        {"name": "CVE-2022-?"},
        {"name": "CVE-2023-1", "images": ["web/cart"]},
        {"name": "_RecentVulnWithoutFix"},
    ]);
    let imported = imported(&[profile(&entries)]);
    assert_eq!(
        outcomes(&imported),
        [
            ("CVE-2024-3094", Outcome::Kept),
            ("_RecentVuln", Outcome::Changed),
            ("CVE-2021-1*", Outcome::Changed),
            ("CVE-2022-1", Outcome::Refused),
            ("CVE-202[12]*", Outcome::Refused),
            ("CVE-2022-?", Outcome::Refused),
            ("CVE-2023-1", Outcome::Refused),
            ("_RecentVulnWithoutFix", Outcome::Refused),
        ]
    );
    let specs: Vec<_> = imported.exceptions.iter().map(|it| &it.spec).collect();
    assert_eq!((specs.len(), specs[0].comment.as_str(), specs[1].days), (3, "not reachable", 14));
    assert_eq!(
        specs[2].images,
        ["web/cart:1.2"],
        "what would stand for more is left out, and said"
    );
    let why = |name: &str| &imported.report.iter().find(|it| it.name == name).unwrap().why;
    assert!(why("CVE-2021-1*").contains("harbor.acme.io"), "{}", why("CVE-2021-1*"));
    assert!(why("CVE-2022-1").contains("namespace"), "{}", why("CVE-2022-1"));
    assert!(why("_RecentVulnWithoutFix").contains("days"), "{}", why("_RecentVulnWithoutFix"));
}

#[test]
fn the_same_profile_makes_the_same_exceptions_in_whatever_order() {
    let entries: Vec<_> = (0..5000)
        .map(|n| json!({"name": format!("CVE-2024-{n}"), "images": [format!("web/app-{}:*", n % 7)]}))
        .collect();
    let once = imported(&[profile(&json!(entries))]);
    assert_eq!(once.exceptions.len(), 5000);
    assert_eq!(once, imported(&[profile(&json!(entries))]));
    let reversed: Vec<_> = entries.into_iter().rev().collect();
    let named = |imported: Imported| {
        let mut all: Vec<_> =
            imported.exceptions.into_iter().map(|it| (it.metadata.name, it.spec.name)).collect();
        all.sort();
        all
    };
    assert_eq!(named(once), named(imported(&[profile(&json!(reversed))])));
}

const KEY: &str = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----";

#[test]
fn roots_of_trust_come_along_where_nothing_has_to_be_fetched() {
    let keypair = |name: &str| json!({"name": name, "verifier_type": "keypair", "public_key": KEY});
    let keyless = json!({"name": "ci", "verifier_type": "keyless", "ignore_tlog": true,
        "cert_issuer": "https://token.actions.githubusercontent.com", "cert_subject": "https://github.com/a/b"});
    let roots = json!({"roots_of_trust": [
        {"name": "ours", "rootless_keypairs_only": true, "is_private": false, "comment": "",
         "verifiers": [keypair("release"), keyless]},
        {"name": "private", "is_private": true, "rootless_keypairs_only": false,
         "rekor_public_key": KEY, "root_cert": "-----BEGIN CERTIFICATE-----", "verifiers": [keyless]},
        {"name": "public", "is_private": false, "rootless_keypairs_only": false,
         "verifiers": [keypair("release")]},
        {"name": "Not A Name", "rootless_keypairs_only": true, "verifiers": [keypair("release")]},
        {"name": "empty", "rootless_keypairs_only": true, "verifiers": []},
    ]});
    let imported = imported(&[roots]);
    assert_eq!(
        outcomes(&imported),
        [
            ("ours", Outcome::Changed),
            ("private", Outcome::Changed),
            ("public", Outcome::Refused),
            ("Not A Name", Outcome::Refused),
            ("empty", Outcome::Refused),
        ]
    );
    let [ours, private] = &imported.roots[..] else { panic!("{:?}", imported.roots) };
    let names: Vec<_> = ours.spec.verifiers.iter().map(|it| it.name.as_str()).collect();
    assert_eq!((names, ours.spec.rootless_keypairs_only), (vec!["release"], true));
    assert_eq!(private.spec.rekor_public_key, KEY);
    assert_eq!(private.spec.verifiers[0].cert_subject, "https://github.com/a/b");
    assert!(imported.report[2].why.contains("trusted_root.json"), "{:?}", imported.report[2]);
}

/// NeuVector's comparison in a profile: with `*` a regular expression that may stand anywhere, else equality;
/// without case.
fn there(pattern: &str, value: &str) -> bool {
    if !pattern.contains('*') {
        return pattern.eq_ignore_ascii_case(value);
    }
    let regex = regex::Regex::new(&format!("(?i){}", pattern.replace('*', ".*")));
    regex.is_ok_and(|regex| regex.is_match(value))
}

/// A glob of ours: `*` and `?`, for the whole text.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if glob(rest, text) => true,
        (Some((b'*', _)), Some((_, after))) => glob(pattern, after),
        (Some((b'?', rest)), Some((_, after))) => glob(rest, after),
        (Some((one, rest)), Some((other, after))) => one == other && glob(rest, after),
        _ => false,
    }
}

/// Whether our exception is for this vulnerability in this image: its registry, repository and tag.
fn here(spec: &VulnerabilityExceptionSpec, name: &str, image: (&str, &str, &str)) -> bool {
    let (registry, repository, tag) = image;
    let item = |item: &String| {
        let first = item.split_once('/');
        let (host, rest) = match first {
            Some((host, rest)) if host.contains(['.', ':']) => (Some(host), rest),
            _ => (None, item.as_str()),
        };
        let text = match rest.contains(':') {
            true => format!("{repository}:{tag}"),
            false => repository.to_owned(),
        };
        host.is_none_or(|host| host == registry) && glob(rest.as_bytes(), text.as_bytes())
    };
    glob(spec.name.to_uppercase().as_bytes(), name.to_uppercase().as_bytes())
        && (spec.images.is_empty() || spec.images.iter().any(item))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_is_excepted_that_neuvector_would_count(
        pattern in "(CVE-[12*?]{1,3}|[C*]{1,2}VE-[12.|+]{1,2}[*]?|CVE-1|cve-12)",
        images in prop::collection::vec("(reg\\.io/)?[ab*]{1,2}/[ab*?]{1,2}(:[12*.]{0,2})?|[ab*]{1,2}", 0..3),
        domains in prop::collection::vec("[ab]", 0..2),
        name in "CVE-[12]{1,3}",
        image in ("(reg\\.io|hub\\.io)", "[ab]{1,2}/[ab]{1,2}|[ab]{1,2}", "[12]{1,2}"),
    ) {
        let entry = json!({"name": pattern, "images": images, "domains": domains});
        let imported = imported(&[profile(&json!([entry]))]);
        prop_assert_eq!(imported.report.len(), 1);
        let (registry, repository, tag) = (&*image.0, &*image.1, &*image.2);
        let text = format!("{repository}:{tag}");
        // A registry that has no domain: what names one is for nobody there.
        let excepted = domains.is_empty()
            && there(&pattern, &name)
            && (images.is_empty() || images.iter().any(|item| there(item, &text)));
        for exception in &imported.exceptions {
            if here(&exception.spec, &name, (registry, repository, tag)) {
                prop_assert!(excepted, "{:?} of {name} in {text}", exception.spec);
            }
        }
    }
}

use serde_json::json;

use super::*;

#[test]
fn values_that_read_like_secrets_are_masked_and_the_rest_is_not() {
    let mut values = json!({
        "image": { "tag": "1.2", "pullSecrets": ["registry"] },
        "auth": { "rootPassword": "hunter2", "existingSecret": "", "enabled": true, "port": 5432 },
        "tls": { "key": "k", "crt": "c", "publicKey": "p" },
        "secrets": { "a": "hunter2", "n": 7, "on": true },
        "topologyKey": "zone",
        "url": "postgres://shop:hunter2@db/shop",
        "site": "https://example.org/a@b:c",
        "env": [{ "name": "X", "value": "-----BEGIN RSA PRIVATE KEY-----\nhunter2" }],
    });
    let masked = mask_values(&mut values);
    assert!(!values.to_string().contains("hunter2"), "{values}");
    assert_eq!((&values["image"]["tag"], &values["auth"]["port"]), (&json!("1.2"), &json!(5432)));
    assert_eq!((&values["tls"]["crt"], &values["tls"]["publicKey"]), (&json!("c"), &json!("p")));
    assert_eq!((&values["secrets"]["on"], &values["topologyKey"]), (&json!(true), &json!("zone")));
    assert_eq!(values["site"], "https://example.org/a@b:c");
    // The password, the key, two of the secrets, the pull secret, the address, the private key.
    assert_eq!(masked, 7, "{values}");
}

#[test]
fn values_of_a_chart_lie_under_those_that_were_given() {
    let chart = json!({ "a": { "b": 1, "c": 2 }, "list": [1], "gone": 1 });
    let given = json!({ "a": { "b": 3 }, "list": [2], "gone": null, "new": 1 });
    let all = json!({ "a": { "b": 3, "c": 2 }, "list": [2], "new": 1 });
    assert_eq!(coalesce(&chart, &given), all);
    assert_eq!(coalesce(&chart, &Value::Null), Value::Null);
}

#[test]
fn secrets_of_a_manifest_are_masked_and_the_rest_is_as_it_was() {
    let manifest = "---\n# Source: shop/secret.yaml\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n\
                    stringData:\n  password: hunter2\n---\n# Source: shop/cm.yaml\n\
                    apiVersion: v1\nkind: ConfigMap # here\nmetadata: {name: b}\ndata: {a: b}\n";
    let (text, masked) = mask_manifest(manifest);
    assert!(!text.contains("hunter2") && text.contains("password: <masked>"), "{text}");
    assert!(text.contains("# Source: shop/secret.yaml") && text.contains("kind: ConfigMap # here"));
    assert_eq!((masked, text.matches("---").count()), (1, 2));
    let (text, masked) = mask_manifest("kind: Secret\nstringData: {password: hunter2\n");
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(masked, 1);
}

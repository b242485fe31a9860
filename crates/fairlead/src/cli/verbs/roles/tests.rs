use super::*;

#[test]
fn a_role_is_read_in_either_form() {
    let rule = "clusters: ['*'], namespaces: ['*'], resources: [pods], verbs: [get]";
    let plain = parse(&format!("name: viewer\nallow:\n- {{{rule}}}\n")).unwrap();
    let manifest = parse(&format!(
        "apiVersion: fairlead.dev/v1alpha1\nkind: AccessRole\nmetadata: {{name: viewer}}\nspec: {{allow: [{{{rule}}}], deny: []}}\n"
    ))
    .unwrap();
    assert_eq!(plain, manifest);
    assert_eq!(plain.0, "viewer");
    assert_eq!(plain.1["allow"][0]["resources"], json!(["pods"]));
    assert!(parse("allow: []").unwrap_err().to_string().contains("no name"));
    assert!(parse("kind: Pod").unwrap_err().to_string().contains("found a Pod"));
    assert!(parse("a: [").is_err());
}

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn names(input: &str) -> Vec<String> {
    read(input).unwrap().into_iter().map(|document| document.name).collect()
}

#[test]
fn documents_are_found_however_they_are_parted() {
    let yaml = "\
# a comment
---
apiVersion: v1
kind: ConfigMap
metadata: { name: one }
---
---
# nothing here
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: two
...
";
    assert_eq!(names(yaml), ["one", "two"]);
    let json = r#"
        {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}
        {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"}}"#;
    assert_eq!(names(json), ["one", "two"]);
    assert_eq!(names("{apiVersion: v1, kind: ConfigMap, metadata: {name: flow}}"), ["flow"]);
}

#[test]
fn lists_are_what_they_list() {
    let list = r"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMapList
  items:
  - metadata: { name: one }
- apiVersion: v1
  kind: Secret
  metadata: { name: two, namespace: vault }
";
    let documents = read(list).unwrap();
    assert_eq!(documents[0].object["kind"], "ConfigMap");
    assert_eq!(documents[0].object["apiVersion"], "v1");
    assert_eq!(documents[1].namespace.as_deref(), Some("vault"));
    assert_eq!(names(list), ["one", "two"]);
    // A kind whose name ends so, and which lists nothing.
    let own = "apiVersion: example.com/v1\nkind: AllowList\nmetadata: { name: three }\n";
    assert_eq!(names(own), ["three"]);
}

#[test]
fn scalars_mean_what_manifests_mean() {
    let input = "\
apiVersion: v1
kind: It
metadata: { name: it }
mode: 0644
word: on
letter: y
text: '0644'
truth: true
version: 1.10
large: 9007199254740993
nothing: ~
";
    let object = read(input).unwrap().remove(0).object;
    assert_eq!(object["mode"], 0o644);
    assert_eq!(object["word"], "on");
    assert_eq!(object["letter"], "y");
    assert_eq!(object["text"], "0644");
    assert_eq!(object["truth"], true);
    assert_eq!(object["version"], 1.10);
    assert_eq!(object["large"], 9_007_199_254_740_993_i64);
    assert_eq!(object["nothing"], Value::Null);
}

#[test]
fn what_cannot_be_applied_is_told_with_its_place() {
    let refused = |input: &str| read(input).unwrap_err();
    assert_eq!(refused(""), "the input holds no object");
    assert_eq!(refused("- 1\n"), "document 1 is not an object with apiVersion and kind");
    assert_eq!(refused("kind: Pod\n"), "document 1 has no apiVersion or no kind");
    let second = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\n";
    assert_eq!(refused(second), "document 2, a Pod, has no metadata");
    let item =
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {}\n";
    assert_eq!(
        refused(item),
        "item 1 of document 1, a Pod, has no metadata.name, by which to apply it"
    );
    assert!(refused(&" ".repeat(LARGEST + 1)).contains("larger than 8 MiB"));
}

#[test]
fn a_refusal_quotes_nothing() {
    let refused = read("apiVersion: v1\nkind: Secret\ndata:\n  password: \"hunter2\n").unwrap_err();
    assert!(refused.starts_with("the input is not YAML at line "), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

#[test]
fn an_input_may_be_large_but_not_by_aliases() {
    let mut many = String::new();
    for number in 0..MOST {
        many += &format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: n{number}}}\n");
    }
    assert_eq!(read(&many).unwrap().len(), MOST);
    many += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n";
    assert!(read(&many).unwrap_err().contains("more than 5000 objects"));

    // A mebibyte that says that it is a hundred.
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: it}\n";
    let bomb = format!("{head}a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(100));
    let refused = read(&bomb).unwrap_err();
    assert!(refused.contains("aliases"), "{refused}");
    let deep = format!("{head}a: {}{}\n", "[".repeat(500), "]".repeat(500));
    assert!(read(&deep).is_err());
}

#[test]
fn a_document_shown_while_debugging_hides_its_object() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: hunter2}\n";
    assert_eq!(format!("{:?}", read(secret).unwrap()), "[v1 Secret /a]");
}

#[test]
fn what_the_server_would_refuse_is_left_out() {
    let exported = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, managedFields: [{}]}\n";
    assert_eq!(read(exported).unwrap()[0].object["metadata"], json!({ "name": "a" }));
}

proptest! {
    #[test]
    fn anything_may_be_read(input in "(?s).{0,200}") {
        let _ = read(&input);
    }

    #[test]
    fn anything_like_yaml_may_be_read(input in "[-{}\\[\\]:,&*!|>'\"%@`#?a \n]{0,80}") {
        let _ = read(&input);
    }

    #[test]
    fn no_document_is_lost(
        texts in prop::collection::vec(any::<String>(), 1..12),
        breaks in prop::collection::vec("(---\n){1,3}|---\n# c\n---\n|--- # c\n", 12),
        as_json: bool,
    ) {
        let objects: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(number, text)| json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("n{number}") },
                "data": { "text": text, "---": "x\n---\ny: z\n" },
            }))
            .collect();
        let input: String = objects
            .iter()
            .zip(&breaks)
            .map(|(object, parted)| {
                if as_json { object.to_string() } else {
                    format!("{parted}{}", serde_saphyr::to_string(object).unwrap())
                }
            })
            .collect();
        let found: Vec<_> = read(&input).unwrap().into_iter().map(|it| it.object).collect();
        prop_assert_eq!(found, objects);
    }
}

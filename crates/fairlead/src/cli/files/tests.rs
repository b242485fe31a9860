use serde_json::json;

use super::*;

fn documents_of(text: &str) -> Vec<Value> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    documents(file.path()).unwrap()
}

#[test]
fn the_items_of_a_list_are_documents_with_the_kind_of_the_list() {
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
    let typed =
        json!({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]});
    let plain = json!({"apiVersion": "v1", "kind": "List", "items": [pod("b"), typed]});
    assert_eq!(documents_of(&format!("{plain}\n{}", pod("c"))), [pod("b"), pod("a"), pod("c")]);
    // A field that is called so does not make a list.
    let menu = json!({"kind": "Menu", "items": [1]});
    assert_eq!(documents_of(&format!("---\n---\n{menu}")), [menu]);
    assert_eq!(documents_of("[1, 2]"), [json!([1, 2])]);
}

#[test]
fn what_is_larger_than_its_bound_is_not_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![b'#'; (1 << 20) + 1]).unwrap();
    let said = read(file.path(), 1 << 20).unwrap_err().to_string();
    assert!(said.contains("is larger than 1 MiB"), "{said}");
    assert!(read(file.path(), 2 << 20).is_ok());
}

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    Line::parse_from(std::iter::once("get").chain(line.split_whitespace())).args
}

fn query(line: &str) -> String {
    args(line).query(Route::to(["q"])).to_string()
}

#[test]
fn flags_are_those_of_kubectl() {
    assert_eq!(query("pods"), "/api/v1/q?namespace=default&as=table");
    assert_eq!(query("pods -A -o wide"), "/api/v1/q?as=wide");
    assert_eq!(
        query("po -n shop -l app=web --field-selector status.phase=Running -ojson"),
        "/api/v1/q?namespace=shop&labels=app%3Dweb&fields=status.phase%3DRunning&as=object"
    );
    // One by name is a list of at most one: then it can be a table.
    assert_eq!(
        query("pod/web --field-selector a=b"),
        "/api/v1/q?namespace=default&fields=a%3Db%2Cmetadata.name%3Dweb&as=table"
    );
    assert!(Line::try_parse_from(["get", "pods", "-A", "-n", "x"]).is_err());
    assert!(Line::try_parse_from(["get", "pods", "--cluster", "a", "--all-clusters"]).is_err());
    assert!(Line::try_parse_from(["get", "pods", "--limit", "0"]).is_err());
    assert!(Line::try_parse_from(["get"]).is_err());
}

#[test]
fn the_document_of_one_cluster_is_a_list() {
    let list: ResourceList =
        serde_json::from_value(json!({"items": [{"metadata": {"name": "a"}}]})).unwrap();
    assert_eq!(
        document(&list, false),
        json!({"apiVersion": "v1", "kind": "List", "items": [{"metadata": {"name": "a"}}]})
    );
}

#[test]
fn the_document_of_several_says_whose_each_item_is_and_who_failed() {
    let list: ResourceList = serde_json::from_value(json!({
        "clusters": [
            {"name": "a", "ok": true, "tookMs": 3},
            {"name": "b", "ok": false, "tookMs": 5000,
             "problem": {"code": "too-late", "status": 504, "detail": "late"}},
        ],
        "items": [{"cluster": "a", "object": {"kind": "Pod", "metadata": {"name": "web"}}}],
    }))
    .unwrap();
    assert_eq!(
        document(&list, true),
        json!({
            "apiVersion": "v1", "kind": "List",
            "items": [{"cluster": "a", "kind": "Pod", "metadata": {"name": "web"}}],
            "clusters": [
                {"name": "a", "ok": true, "tookMs": 3},
                {"name": "b", "ok": false, "tookMs": 5000,
                 "problem": {"code": "too-late", "status": 504, "detail": "late"}},
            ],
        })
    );
    assert_eq!(name(&list.items[0], "po", true), "a pod/web");
}

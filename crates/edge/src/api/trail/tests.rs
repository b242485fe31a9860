use serde_json::json;

use super::*;

#[test]
fn of_a_body_only_what_the_route_names_is_recorded() {
    let body = json!({ "name": "ann", "password": "secret", "roles": ["admin"] }).to_string();
    let (name, fields) = of_body(body.as_bytes(), "name", &["roles", "disabled"]);
    assert_eq!(name.as_deref(), Some("ann"));
    assert_eq!(Value::Object(fields), json!({ "roles": ["admin"] }));
    assert_eq!(of_body(b"{\"half", "name", &["roles"]), (None, Map::new()));
    assert_eq!(of_body(b"[1]", "name", &["roles"]), (None, Map::new()));
}

#[test]
fn of_a_query_only_what_the_route_names_is_recorded() {
    let query = "namespace=web&command=sh&tty=true&command=-c&token=secret";
    let recorded = of_query(Some(query), &["command", "tty", "container"]);
    assert_eq!(Value::Object(recorded), json!({ "command": ["sh", "-c"], "tty": "true" }));
    assert_eq!(
        Value::Object(of_query(Some("command=ls"), &["command"])),
        json!({ "command": ["ls"] })
    );
}

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn set(texts: &[&str]) -> Value {
    let mut values = Values::default();
    for text in texts {
        values.set(text).unwrap_or_else(|error| panic!("{error}"));
    }
    values.as_json()
}

#[test]
fn set_reads_what_helm_reads() {
    for (text, expected) in [
        ("a=b", json!({"a": "b"})),
        ("a.b.c=1,d=true", json!({"a": {"b": {"c": 1}}, "d": true})),
        ("a=", json!({"a": ""})),
        ("a=null", json!({"a": null})),
        ("a=007,b=0,c=-3,d=1.5", json!({"a": "007", "b": 0, "c": -3, "d": "1.5"})),
        ("a={x,2,true}", json!({"a": ["x", 2, true]})),
        ("a={}", json!({"a": []})),
        ("a[0]=x,a[1]=y", json!({"a": ["x", "y"]})),
        ("a[1].b=x", json!({"a": [null, {"b": "x"}]})),
        ("a[0][1]=x", json!({"a": [[null, "x"]]})),
        (r"a=x\,y,b=z", json!({"a": "x,y", "b": "z"})),
        (r"log\.level=debug", json!({"log.level": "debug"})),
        ("a=b=c", json!({"a": "b=c"})),
        ("a=1,a=2", json!({"a": 2})),
        ("a=1,a.b=2", json!({"a": {"b": 2}})),
        (
            "net.pools[0].subnets[0].ipv4=10.0.0.0/8",
            json!({"net": {"pools": [{"subnets": [{"ipv4": "10.0.0.0/8"}]}]}}),
        ),
    ] {
        assert_eq!(set(&[text]), expected, "{text}");
    }
}

#[test]
fn set_string_takes_nothing_for_more_than_text() {
    let mut values = Values::default();
    values.set_string("a=1,b=true,c={2,null}").unwrap();
    assert_eq!(values.as_json(), json!({"a": "1", "b": "true", "c": ["2", "null"]}));
}

#[test]
fn set_says_what_is_wrong() {
    for (text, message) in [
        ("a", "a name has no value"),
        ("a,b=1", "a name has no value"),
        ("=1", "a name is empty"),
        ("a..b=1", "a name is empty"),
        ("a[x]=1", "expected an index"),
        ("a[70000]=1", "expected an index"),
        ("a[0=1", "an index has no `]`"),
        ("a[0]b=1", "after an index"),
        ("a={x", "a list has no `}`"),
        ("a={x}y", "expected a comma"),
    ] {
        let error = Values::default().set(text).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(text), "{text}: {error}");
    }
    let deep = vec!["a"; 40].join(".") + "=1";
    assert!(Values::default().set(&deep).is_err());
}

#[test]
fn later_files_win_and_maps_are_merged() {
    let mut values = Values::default();
    values.merge_yaml("one", "a: {x: 1, y: 2}\nl: [1, 2]").unwrap();
    values.merge_yaml("two", "a: {y: 3}\nl: [4]").unwrap();
    values.merge_yaml("empty", "# nothing\n").unwrap();
    assert_eq!(values.as_json(), json!({"a": {"x": 1, "y": 3}, "l": [4]}));
    let error = values.merge_yaml("three", "- 1").unwrap_err().to_string();
    assert_eq!(error, "three: expected values by name, found a list");
}

#[test]
fn a_null_deletes_a_default() {
    let defaults = json!({"a": {"x": 1, "y": {"z": 2}}, "b": 3});
    let Value::Object(defaults) = defaults else { panic!() };
    let mut values = Values::default();
    values.set("a.x=null,a.y=null,b=4,c.d=null").unwrap();
    assert_eq!(Value::Object(values.over(defaults)), json!({"a": {}, "b": 4, "c": {}}));
}

//! The three-way merge of Helm: what was rendered before, what is rendered now, and what is there.
//!
//! Contract:
//! - What is rendered now wins. What was rendered before and is not any more goes. What only the live
//!   object has (defaults, other managers' fields) stays.
//! - Lists whose elements have a name of their own (containers, variables, volumes, ports) are merged
//!   element by element, as `kubectl apply` does it for Kubernetes' own kinds. All other lists, and all
//!   lists of custom resources, are taken as they are rendered.
//! - Merging twice changes nothing more.

use serde_json::{Map, Value};

/// Merges an object: `before` and `now` as they were rendered, `live` as it is.
pub(super) fn three_way(
    before: Option<&Value>,
    now: &Value,
    live: &Value,
    built_in: bool,
) -> Value {
    let lists = if built_in { Lists::Merged } else { Lists::Replaced };
    merge("", before, now, live, lists)
}

#[derive(Clone, Copy)]
enum Lists {
    Merged,
    Replaced,
}

fn merge(field: &str, before: Option<&Value>, now: &Value, live: &Value, lists: Lists) -> Value {
    match (now, live) {
        (Value::Object(now), Value::Object(live)) => {
            let before = before.and_then(Value::as_object);
            Value::Object(merge_maps(before, now, live, lists))
        }
        (Value::Array(now), Value::Array(live)) if matches!(lists, Lists::Merged) => {
            let before = before.and_then(Value::as_array);
            let merged =
                key_of(field, now, live).and_then(|key| merge_lists(key, before, now, live, lists));
            merged.map_or_else(|| now.iter().map(without_nulls).collect(), Value::Array)
        }
        _ => without_nulls(now),
    }
}

/// A field that is rendered as null is one that is not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn merge_maps(
    before: Option<&Map<String, Value>>,
    now: &Map<String, Value>,
    live: &Map<String, Value>,
    lists: Lists,
) -> Map<String, Value> {
    let mut merged = live.clone();
    for key in before.into_iter().chain([now]).flat_map(Map::keys) {
        if now.get(key).is_none_or(Value::is_null) {
            merged.remove(key);
        }
    }
    for (key, value) in now.iter().filter(|(_, value)| !value.is_null()) {
        let value = match live.get(key) {
            Some(live) => {
                let before = before.and_then(|before| before.get(key));
                merge(key, before, value, live, lists)
            }
            None => without_nulls(value),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

/// The field by which the elements of a list are told apart, for lists that are merged.
fn key_of(field: &str, now: &[Value], live: &[Value]) -> Option<&'static str> {
    let key = match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets" => "name",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "ports" if now.iter().chain(live).all(|port| port.get("containerPort").is_some()) => {
            "containerPort"
        }
        "ports" => "port",
        _ => return None,
    };
    Some(key)
}

/// None if the elements cannot be told apart: the list is replaced then.
fn merge_lists(
    key: &str,
    before: Option<&Vec<Value>>,
    now: &[Value],
    live: &[Value],
    lists: Lists,
) -> Option<Vec<Value>> {
    let before = before.map_or(&[][..], Vec::as_slice);
    let (was, wanted, there) = (keyed(key, before)?, keyed(key, now)?, keyed(key, live)?);
    let find = |list: &[(String, usize)], name: &str| {
        list.iter().find(|(known, _)| known == name).map(|(_, place)| *place)
    };
    let mut merged = Vec::new();
    for (name, place) in &wanted {
        let value = &now[*place];
        merged.push(match find(&there, name) {
            Some(place) => {
                let before = find(&was, name).map(|place| &before[place]);
                merge("", before, value, &live[place], lists)
            }
            None => without_nulls(value),
        });
    }
    let others = there
        .iter()
        .filter(|(name, _)| find(&wanted, name).is_none() && find(&was, name).is_none());
    merged.extend(others.map(|(_, place)| live[*place].clone()));
    Some(merged)
}

/// The names of the elements with their places; none unless each has one of its own. Ports of one number
/// and different protocols have different names.
fn keyed(key: &str, list: &[Value]) -> Option<Vec<(String, usize)>> {
    let mut names: Vec<(String, usize)> = Vec::new();
    for (place, element) in list.iter().enumerate() {
        let mut name = match element.get(key)? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        if key.to_lowercase().ends_with("port") {
            let protocol = element.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
            name = format!("{name}/{protocol}");
        }
        if names.iter().any(|(known, _)| *known == name) {
            return None;
        }
        names.push((name, place));
    }
    Some(names)
}

#[cfg(test)]
mod tests;

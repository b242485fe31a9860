//! The difference that an apply or an edit makes: a diff for people, and for the audit what changed.
//!
//! Contract: equal objects have an empty diff. Fields that only the server writes (`managedFields`,
//! versions, identity) are left out. No value of a Secret is shown: a value that stays is `***` on both
//! sides, one that changes is `*** (changed)` on the new side.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use similar::TextDiff;

/// Fields that only the server writes.
const SERVERS_OWN: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
/// The annotation in which kubectl keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MASK: &str = "***";

pub(in crate::resources) struct Diff {
    pub(in crate::resources) before: Option<Value>,
    pub(in crate::resources) after: Value,
    pub(in crate::resources) secret: bool,
}

/// What an apply or an edit changed: of maps those fields that differ, of the rest all. Without values
/// of Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// None of an object that was made.
    pub before: Option<Value>,
    pub after: Value,
}

impl Diff {
    /// Returns the unified diff of the YAML and what changed.
    pub(in crate::resources) fn compare(mut self) -> (String, Changed) {
        for object in self.before.iter_mut().chain([&mut self.after]) {
            if let Some(metadata) = map(object, "metadata") {
                metadata.retain(|key, _| !SERVERS_OWN.contains(&key.as_str()));
            }
        }
        if self.secret {
            let mut nothing = Value::Null;
            let before = self.before.as_mut().unwrap_or(&mut nothing);
            for place in ["data", "stringData"] {
                mask(map(before, place), map(&mut self.after, place), |_| true);
            }
            let annotations =
                |object| map(object, "metadata").and_then(|it| it.get_mut("annotations"));
            mask(
                annotations(before).and_then(Value::as_object_mut),
                annotations(&mut self.after).and_then(Value::as_object_mut),
                |key| key == LAST_APPLIED,
            );
        }
        let before = self.before.as_ref().map(yaml).unwrap_or_default();
        let after = yaml(&self.after);
        let lines = TextDiff::from_lines(&before, &after);
        let text = lines.unified_diff().header("before", "after").to_string();
        let changed = match self.before {
            None => Changed { before: None, after: self.after },
            Some(before) => {
                let (before, after) = differing(before, self.after);
                Changed { before: Some(before), after }
            }
        };
        (text, changed)
    }
}

/// Both sides without the fields that are the same.
fn differing(before: Value, after: Value) -> (Value, Value) {
    let (Value::Object(before), Value::Object(mut after)) = (&before, after.clone()) else {
        return (before, after);
    };
    let mut was = Map::new();
    for (key, old) in before {
        match after.remove(key) {
            Some(new) if new == *old => {}
            Some(new) => {
                let (old, new) = differing(old.clone(), new);
                was.insert(key.clone(), old);
                after.insert(key.clone(), new);
            }
            None => drop(was.insert(key.clone(), old.clone())),
        }
    }
    (Value::Object(was), Value::Object(after))
}

fn map<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    object.get_mut(key).and_then(Value::as_object_mut)
}

/// Hides the values of both sides and marks those that differ.
fn mask(
    before: Option<&mut Map<String, Value>>,
    after: Option<&mut Map<String, Value>>,
    hidden: impl Fn(&str) -> bool,
) {
    let (mut none, mut nothing) = (Map::new(), Map::new());
    let (before, after) = (before.unwrap_or(&mut none), after.unwrap_or(&mut nothing));
    let keys: BTreeSet<_> =
        before.keys().chain(after.keys()).filter(|key| hidden(key)).cloned().collect();
    for key in keys {
        let changed =
            matches!((before.get(&key), after.get(&key)), (Some(old), Some(new)) if old != new);
        if let Some(old) = before.get_mut(&key) {
            *old = MASK.into();
        }
        if let Some(new) = after.get_mut(&key) {
            *new = if changed { format!("{MASK} (changed)").into() } else { MASK.into() };
        }
    }
}

fn yaml(value: &Value) -> String {
    // JSON is valid YAML, should the writer fail.
    serde_saphyr::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
}

#[cfg(test)]
mod tests;

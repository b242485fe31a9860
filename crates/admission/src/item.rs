//! The Pod, or the pod template: `item` of a `customPath`. Few rules look at it, so it is read when
//! the first does.

use std::sync::OnceLock;

use serde_json::Value;

use super::request::Object;

#[derive(Clone, Debug)]
pub(super) struct Item {
    object: String,
    at: &'static str,
    read: OnceLock<Option<Value>>,
}

impl Item {
    pub(super) fn new(object: Object<'_>, at: &'static str) -> Self {
        let object = match object {
            Object::Text(text) => text.to_owned(),
            Object::Value(value) => value.to_string(),
        };
        Self { object, at, read: OnceLock::new() }
    }

    /// None if it cannot be read whole, because it is too deep: the parts that are known by name were
    /// read before, and what stands in the others is not known.
    pub(super) fn value(&self) -> Option<&Value> {
        let read = self.read.get_or_init(|| {
            let mut object: Value = serde_json::from_str(&self.object).ok()?;
            Some(object.pointer_mut(self.at).map(Value::take).unwrap_or_default())
        });
        read.as_ref()
    }
}

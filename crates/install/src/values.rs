//! Values with the rules of Helm: files are merged in their order, then `--set`, then all of them over the
//! chart's defaults. Maps are merged key by key; anything else replaces; null deletes.

pub mod schema;
mod set;

use serde_json::{Map, Value};

use crate::Error;

/// The values of the user, without the chart's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Map<String, Value>);

impl Values {
    /// Merges a file of values over these. `name` is for messages.
    ///
    /// # Errors
    /// When the text is not a map in YAML.
    pub fn merge_yaml(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let wrong = |message: String| Error::Yaml { file: name.to_owned(), message };
        match serde_saphyr::from_str(text) {
            Ok(Value::Object(map)) => merge(&mut self.0, map),
            Ok(Value::Null) => {}
            Ok(other) => {
                let found = schema::describe(&other);
                return Err(wrong(format!("expected values by name, found {found}")));
            }
            Err(error) => return Err(wrong(format!("not valid YAML: {error}"))),
        }
        Ok(())
    }

    /// Sets `a.b=c,d[0]={x,y}` as Helm's `--set` does.
    ///
    /// # Errors
    /// When the text is not of that form.
    pub fn set(&mut self, text: &str) -> Result<(), Error> {
        set::apply(&mut self.0, text, set::Kind::Guess)
    }

    /// Sets the same with every value a string, as Helm's `--set-string` does.
    ///
    /// # Errors
    /// When the text is not of that form.
    pub fn set_string(&mut self, text: &str) -> Result<(), Error> {
        set::apply(&mut self.0, text, set::Kind::Text)
    }

    /// The values so far.
    #[must_use]
    pub fn as_json(&self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Merges these over `defaults`.
    pub(crate) fn over(&self, defaults: Map<String, Value>) -> Map<String, Value> {
        let mut all = defaults;
        coalesce(&mut all, &self.0);
        all
    }
}

impl From<Map<String, Value>> for Values {
    fn from(map: Map<String, Value>) -> Self {
        Self(map)
    }
}

/// Merges a later file over an earlier one. A null stays, and deletes when it meets the defaults.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn coalesce(defaults: &mut Map<String, Value>, chosen: &Map<String, Value>) {
    for (key, value) in chosen {
        match (defaults.get_mut(key), value) {
            (_, Value::Null) => {
                defaults.remove(key);
            }
            (Some(Value::Object(old)), Value::Object(new)) => coalesce(old, new),
            (_, Value::Object(new)) => {
                let mut fresh = Map::new();
                coalesce(&mut fresh, new);
                defaults.insert(key.clone(), Value::Object(fresh));
            }
            (_, value) => {
                defaults.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests;

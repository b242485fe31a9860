//! Parses the input of an apply: YAML or JSON, with many documents and lists.
//!
//! Contract: every document that is not empty becomes an object, in order, or the whole input is refused
//! with a sentence that names the document and the reason. Errors quote nothing of the input, which may
//! have secrets. Scalars are those of YAML 1.2, so that `on` is a string; but `0644` is octal, because
//! that is how manifests write file modes.

use std::fmt;

use serde_json::Value;

/// The largest input. etcd accepts objects of 1.5 MiB; this is enough for a whole application.
pub const LARGEST: usize = 8 * 1024 * 1024;
/// The most objects of one input.
const MOST: usize = 5_000;

/// One object of the input.
#[derive(Clone, PartialEq)]
pub struct Document {
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    pub object: Value,
}

impl Document {
    pub(in crate::resources) fn is_secret(&self) -> bool {
        self.api_version == "v1" && self.kind == "Secret"
    }

    /// The identity of the object. Versions of one group are the same object.
    pub(in crate::resources) fn identity(
        &self,
        default_namespace: &str,
    ) -> (String, String, String, String) {
        let group = self.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let namespace = self.namespace.as_deref().unwrap_or(default_namespace);
        (group.to_owned(), self.kind.clone(), namespace.to_owned(), self.name.clone())
    }
}

/// `Debug` does not show the object, which may be a Secret.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { api_version, kind, namespace, name, object: _ } = self;
        let namespace = namespace.as_deref().unwrap_or_default();
        write!(f, "{api_version} {kind} {namespace}/{name}")
    }
}

/// Returns the objects of an input, or the sentence that says what is wrong with it.
pub fn read(input: &str) -> Result<Vec<Document>, String> {
    if input.len() > LARGEST {
        return Err(format!("the input is larger than {} MiB; apply it in parts", LARGEST >> 20));
    }
    let mut documents = Vec::new();
    for (number, value) in values(input)?.into_iter().enumerate() {
        flatten(value, &format!("document {}", number + 1), &mut documents)?;
    }
    if documents.is_empty() {
        return Err("the input holds no object".to_owned());
    }
    Ok(documents)
}

fn values(input: &str) -> Result<Vec<Value>, String> {
    // JSON documents may follow one another without the `---` of YAML. A text that begins with a brace
    // and is not JSON may still be YAML.
    if input.trim_start().starts_with('{') {
        let json: Result<Vec<_>, _> =
            serde_json::Deserializer::from_str(input).into_iter().collect();
        if let Ok(values) = json {
            return Ok(values);
        }
    }
    // The size is bounded already; this bounds the expansion of aliases.
    let budget = serde_saphyr::budget! {
        max_documents: 4 * MOST,
        max_events: LARGEST,
        max_nodes: LARGEST,
        max_total_scalar_bytes: 4 * LARGEST,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        legacy_octal_numbers: true,
        strict_booleans: true,
        // A snippet would quote the input.
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options::<Value>(input, options).map_err(|error| {
        if exceeds_budget(&error) {
            return "the input is too deep, or its aliases make too much of it".to_owned();
        }
        match error.location() {
            Some(at) => {
                format!("the input is not YAML at line {}, column {}", at.line(), at.column())
            }
            None => "the input is not YAML".to_owned(),
        }
    })
}

fn exceeds_budget(error: &serde_saphyr::Error) -> bool {
    match error {
        serde_saphyr::Error::Budget { .. } => true,
        serde_saphyr::Error::AliasError { error, .. } => exceeds_budget(error),
        _ => false,
    }
}

fn flatten(value: Value, place: &str, documents: &mut Vec<Document>) -> Result<(), String> {
    let Value::Object(mut object) = value else {
        return Err(format!("{place} is not an object with apiVersion and kind"));
    };
    let word = |object: &serde_json::Map<String, Value>, key: &str| {
        object
            .get(key)
            .and_then(Value::as_str)
            .filter(|word| !word.is_empty())
            .map(ToOwned::to_owned)
    };
    let (Some(api_version), Some(kind)) = (word(&object, "apiVersion"), word(&object, "kind"))
    else {
        return Err(format!("{place} has no apiVersion or no kind"));
    };
    // A `List`, or a list of one kind, as `kubectl get` and the API print them.
    if let (Some(of), Some(Value::Array(items))) =
        (kind.strip_suffix("List"), object.get_mut("items"))
    {
        for (number, mut item) in std::mem::take(items).into_iter().enumerate() {
            // In a list of one kind the API leaves out the type of the items.
            if let Value::Object(item) = &mut item
                && !of.is_empty()
            {
                item.entry("apiVersion").or_insert_with(|| api_version.as_str().into());
                item.entry("kind").or_insert_with(|| of.into());
            }
            flatten(item, &format!("item {} of {place}", number + 1), documents)?;
        }
        return Ok(());
    }
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return Err(format!("{place}, a {kind}, has no metadata"));
    };
    // The server refuses an object that has it.
    metadata.remove("managedFields");
    let (name, namespace) = (word(metadata, "name"), word(metadata, "namespace"));
    let Some(name) = name else {
        return Err(format!("{place}, a {kind}, has no metadata.name, by which to apply it"));
    };
    if documents.len() == MOST {
        return Err(format!("the input holds more than {MOST} objects; apply it in parts"));
    }
    documents.push(Document { api_version, kind, namespace, name, object: object.into() });
    Ok(())
}

#[cfg(test)]
mod tests;

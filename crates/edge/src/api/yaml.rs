//! YAML that people send: bounded by the route's body, and read without being quoted back.

use serde_json::Value;

/// The most that aliases may make of a text.
const LARGEST: usize = 16 << 20;

/// The documents of a text, YAML or JSON. The error is a sentence.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    // JSON is YAML too, and many times faster read as what it is.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(values) =
            serde_json::Deserializer::from_str(text).into_iter().collect::<Result<Vec<_>, _>>()
    {
        return Ok(values);
    }
    let budget = serde_saphyr::budget! {
        max_documents: LARGEST,
        max_events: LARGEST,
        max_nodes: LARGEST,
        max_total_scalar_bytes: LARGEST,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        legacy_octal_numbers: true,
        strict_booleans: true,
        with_snippet: false,
    };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            match error.location() {
                Some(at) => {
                    format!("this is not YAML at line {}, column {}", at.line(), at.column())
                }
                None => "this is neither YAML nor JSON".to_owned(),
            }
        })?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

//! What is in a revision: values and manifest. Secrets in them are masked unless somebody asks for them.
//!
//! Contract: masked are the data of Secrets, and values whose key reads like a secret, that are a private
//! key, or that are an address with a password in it. A document that cannot be read is not shown masked:
//! nobody knows what is in it.

use serde_json::{Map, Value};

use super::super::apply;

const MASK: &str = "<masked>";
/// In a key that is in lower case and has letters and digits alone.
const SECRET_WORDS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "connectionstring",
    "htpasswd",
    "pullsecret",
];

/// Lays the values that somebody gave over a chart's own, as Helm does: maps are merged, and null takes a
/// value away.
pub(super) fn coalesce(chart: &Value, given: &Value) -> Value {
    let (Value::Object(chart), Value::Object(given)) = (chart, given) else {
        return given.clone();
    };
    let mut all = chart.clone();
    for (key, value) in given {
        if value.is_null() {
            all.remove(key);
            continue;
        }
        let value = chart.get(key).map_or_else(|| value.clone(), |under| coalesce(under, value));
        all.insert(key.clone(), value);
    }
    Value::Object(all)
}

/// Masks the secrets of values; returns how many.
pub(super) fn mask_values(values: &mut Value) -> usize {
    match values {
        Value::Object(map) => mask_map(map),
        Value::Array(list) => list.iter_mut().map(mask_values).sum(),
        Value::String(text) if holds_secret(text) => {
            MASK.clone_into(text);
            1
        }
        _ => 0,
    }
}

fn mask_map(map: &mut Map<String, Value>) -> usize {
    let mut masked = 0;
    for (key, value) in map {
        masked += if reads_like_a_secret(key) { mask_all(value) } else { mask_values(value) };
    }
    masked
}

/// Masks every text and number below; whether something is on is no secret.
fn mask_all(value: &mut Value) -> usize {
    match value {
        Value::Object(map) => map.values_mut().map(mask_all).sum(),
        Value::Array(list) => list.iter_mut().map(mask_all).sum(),
        Value::String(text) if text.is_empty() => 0,
        Value::String(_) | Value::Number(_) => {
            *value = MASK.into();
            1
        }
        Value::Null | Value::Bool(_) => 0,
    }
}

fn reads_like_a_secret(key: &str) -> bool {
    let plain: String =
        key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let named = SECRET_WORDS.iter().any(|word| plain.contains(word));
    // Such as tls.key, encryptionKey, signingKeys.
    let key = plain.trim_end_matches('s').ends_with("key");
    named || (key && !plain.contains("public") && !plain.contains("topology"))
}

fn holds_secret(text: &str) -> bool {
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    text.contains("PRIVATE KEY-----") || user.is_some_and(|(user, _)| user.contains(':'))
}

/// Masks the Secrets of a manifest; returns the text and how many values were masked.
pub(super) fn mask_manifest(manifest: &str) -> (String, usize) {
    let mut masked = 0;
    let documents: Vec<String> = documents(manifest)
        .into_iter()
        .map(|document| {
            if document.lines().all(|line| line.trim().is_empty() || line.starts_with('#')) {
                return document.to_owned();
            }
            let Ok(objects) = apply::read(document) else {
                masked += 1;
                return "# a document that cannot be read is not shown\n".to_owned();
            };
            let secret = objects.iter().any(|object| object.kind == "Secret");
            if !secret {
                return document.to_owned();
            }
            // Where it is from stays: Helm says it in the first lines.
            let comments = document.lines().take_while(|line| line.starts_with('#'));
            let mut text: String = comments.map(|line| format!("{line}\n")).collect();
            for mut object in objects {
                for place in ["data", "stringData"] {
                    masked += object.object.get_mut(place).map_or(0, mask_all);
                }
                text += &serde_saphyr::to_string(&object.object).unwrap_or_default();
            }
            text
        })
        .collect();
    (documents.join("---\n"), masked)
}

/// The documents of a manifest, each with its last line's end.
fn documents(manifest: &str) -> Vec<&str> {
    let (mut documents, mut from, mut at) = (Vec::new(), 0, 0);
    for line in manifest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            documents.push(&manifest[from..at]);
            from = at + line.len();
        }
        at += line.len();
    }
    documents.push(&manifest[from..]);
    documents
}

#[cfg(test)]
mod tests;

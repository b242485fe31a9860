//! Files that verbs read and write: whole and bounded, with `-` for standard input; and the Kubernetes objects
//! that are in them.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use objects::Kind;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::output::Failure;

/// A list of every node of a large cluster, as kubectl prints it.
const LARGEST: u64 = 256 << 20;

pub(crate) fn read(file: &Path, largest: u64) -> Result<String, Failure> {
    let shown = file.display();
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(largest + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(largest + 1).read_to_string(&mut text))
    };
    read.map_err(|e| Failure(format!("{shown} cannot be read: {e}")))?;
    if text.len() as u64 > largest {
        let most = largest >> 20;
        return Err(Failure(format!("{shown} is larger than {most} MiB; is it the right file?")));
    }
    Ok(text)
}

/// Writes a secret to a file that only its owner may read, whole or not at all.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<(), Failure> {
    let draft = file.with_extension(format!("{}.draft", std::process::id()));
    let written = (|| {
        let mut open = OpenOptions::new();
        let mut open = open.write(true).create_new(true).mode(0o600).open(&draft)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        std::fs::rename(&draft, file)
    })();
    written.map_err(|e: std::io::Error| {
        let _ = std::fs::remove_file(&draft);
        Failure(format!("{} cannot be written: {e}", file.display()))
    })
}

/// The documents of a file, YAML or JSON; the items of lists are documents.
pub(crate) fn documents(file: &Path) -> Result<Vec<Value>, Failure> {
    let text = read(file, LARGEST)?;
    let mut documents = Vec::new();
    for value in parse(&text).map_err(|why| Failure(format!("{}: {why}", file.display())))? {
        flatten(value, &mut documents);
    }
    Ok(documents)
}

fn parse(text: &str) -> Result<Vec<Value>, String> {
    // JSON is YAML too, and many times faster read as what it is.
    if text.trim_start().starts_with(['{', '[']) {
        let json: Result<Vec<_>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(values) = json {
            return Ok(values);
        }
    }
    // The size is bounded already; what is left is what aliases make of it.
    let most = LARGEST as usize;
    let budget = serde_saphyr::budget! {
        max_documents: most,
        max_events: most,
        max_nodes: most,
        max_total_scalar_bytes: most,
    };
    // A snippet would quote, and a peer may have a preshared key.
    let options = serde_saphyr::options! {
        budget: budget,
        legacy_octal_numbers: true,
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        match error.location() {
            Some(at) => format!("is not YAML at line {}, column {}", at.line(), at.column()),
            None => "is neither YAML nor JSON".to_owned(),
        }
    })
}

fn flatten(mut document: Value, into: &mut Vec<Value>) {
    let kind = document["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
    let kind = kind.map(ToOwned::to_owned);
    match (kind, document.get_mut("items").map(Value::take)) {
        (Some(kind), Some(Value::Array(items))) => {
            for mut item in items {
                // The items of a typed list may leave out their kind.
                if let Some(item) = item.as_object_mut().filter(|_| !kind.is_empty())
                    && !item.contains_key("kind")
                {
                    item.insert("kind".to_owned(), kind.as_str().into());
                    item.insert("apiVersion".to_owned(), document["apiVersion"].clone());
                }
                flatten(item, into);
            }
        }
        (_, items) => {
            if let Some(items) = items {
                document["items"] = items;
            }
            if !document.is_null() {
                into.push(document);
            }
        }
    }
}

/// Every object of a file, all of them of one kind: one of another kind is a mistake that should not
/// pass for none.
pub(crate) fn objects_of<T: DeserializeOwned>(file: &Path, kind: &str) -> Result<Vec<T>, Failure> {
    let [objects] = objects_of_kinds(file, [kind])?;
    parsed(file, kind, objects)
}

/// Every object of a file by its kind, each of one of these.
pub(crate) fn objects_of_kinds<const N: usize>(
    file: &Path,
    kinds: [&str; N],
) -> Result<[Vec<Value>; N], Failure> {
    let mut all = [const { Vec::new() }; N];
    let wanted = kinds.join(", ");
    for object in documents(file)? {
        let found = object["kind"].as_str().map(str::to_owned);
        match found.as_deref().and_then(|found| kinds.iter().position(|kind| *kind == found)) {
            Some(place) => all[place].push(object),
            None => {
                let found =
                    found.map_or("an object without a kind".to_owned(), |it| format!("a {it}"));
                let file = file.display();
                let expected = format!("a {wanted} or a list of them was expected");
                return Err(Failure(format!("{file}: has {found}; {expected}")));
            }
        }
    }
    Ok(all)
}

/// Reads objects of one kind of a file.
pub(crate) fn parsed<T: DeserializeOwned>(
    file: &Path,
    kind: &str,
    objects: Vec<Value>,
) -> Result<Vec<T>, Failure> {
    let wrong = |why: String| Failure(format!("{}: {why}", file.display()));
    let parse = |object: Value| {
        let name = object["metadata"]["name"].as_str().map(str::to_owned);
        let name = name.ok_or_else(|| wrong(format!("a {kind} has no metadata.name")))?;
        serde_json::from_value(object)
            .map_err(|e| wrong(format!("{kind} {name} cannot be read: {e}")))
    };
    objects.into_iter().map(parse).collect()
}

/// The objects of a file, of one of Fairlead's kinds: at least one, and each of them valid.
pub(crate) fn valid_objects<K: Kind + DeserializeOwned>(file: &Path) -> Result<Vec<K>, Failure> {
    let objects: Vec<K> = objects_of(file, K::NAME)?;
    if objects.is_empty() {
        return Err(Failure(format!("{} has no {}", file.display(), K::NAME)));
    }
    for object in &objects {
        object.check().map_err(|invalid| Failure(format!("{}: {invalid}", file.display())))?;
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;

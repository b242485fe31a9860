//! The configuration file: YAML, read into settings by their dotted keys.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

/// A configuration is a page, not a database; what is larger is the wrong file.
const LARGEST_FILE: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("no such file")]
    Missing,
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("larger than a configuration can be ({LARGEST_FILE} bytes); is this the right file?")]
    TooLarge,
    #[error("not valid YAML: {0}")]
    NotYaml(String),
    #[error("expected settings such as `admin: {{listen: 127.0.0.1:7682}}` at the top level")]
    NotSettings,
}

/// The file's settings by dotted key. A value that cannot be a setting carries its own problem.
type FileSettings = Vec<(String, Result<String, String>)>;

pub(super) fn read(path: &Path) -> Result<FileSettings, FileError> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => FileError::Missing,
        _ => FileError::Unreadable(e),
    })?;
    if meta.len() > LARGEST_FILE {
        return Err(FileError::TooLarge);
    }
    let text = std::fs::read_to_string(path).map_err(FileError::Unreadable)?;
    let mut settings = Vec::new();
    match serde_saphyr::from_str(&text).map_err(|e| FileError::NotYaml(e.to_string()))? {
        Value::Null => {}
        Value::Object(map) => flatten("", map, &mut settings),
        _ => return Err(FileError::NotSettings),
    }
    Ok(settings)
}

fn flatten(prefix: &str, map: Map<String, Value>, settings: &mut FileSettings) {
    for (name, value) in map {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        let value = match value {
            Value::Object(inner) => {
                flatten(&key, inner, settings);
                continue;
            }
            Value::String(text) => Ok(text),
            Value::Bool(yes) => Ok(yes.to_string()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null => Err("expected a value, found nothing".to_owned()),
            Value::Array(_) => Err("expected one value, found a list".to_owned()),
        };
        settings.push((key, value));
    }
}

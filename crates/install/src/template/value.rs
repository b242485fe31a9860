//! The values of templates, with the same kinds as in Go and Helm.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value as Json;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// A whole number of the template itself or from `int`.
    Int(i64),
    /// A number of the values, which is always a float in Helm.
    Float(f64),
    Text(Rc<str>),
    List(Rc<Vec<Value>>),
    Map(Rc<BTreeMap<String, Value>>),
    /// A built-in object such as `.Release`: a missing name is a mistake and not an absent value.
    Builtin(Rc<BTreeMap<&'static str, Value>>),
    /// `.Files`.
    Files,
    /// `.Capabilities.APIVersions`.
    ApiVersions,
    /// The contents of a file in `.Files.Glob`, which Go would print as a list of numbers.
    Bytes,
}

impl Value {
    pub(crate) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// Whether it is true in Go's `if`.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(yes) => *yes,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Builtin(_) | Self::Files | Self::ApiVersions | Self::Bytes => true,
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number of the values",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Builtin(_) | Self::Files | Self::ApiVersions => "a built-in object",
            Self::Bytes => "the bytes of a file",
        }
    }

    /// The text of the value in the output.
    pub(crate) fn print(&self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.to_string()),
            Self::Bool(yes) => Ok(yes.to_string()),
            Self::Int(number) => Ok(number.to_string()),
            // Go prints a million as 1e+06, and has its own format of fractions.
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e6 => {
                Ok(format!("{number:.0}"))
            }
            Self::Float(number) => {
                Err(format!("{number} would be printed as Go prints a float; use int"))
            }
            other => Err(format!("{} cannot be printed", other.kind())),
        }
    }

    pub(crate) fn field(&self, name: &str) -> Result<Self, String> {
        match self {
            Self::Map(map) => Ok(map.get(name).cloned().unwrap_or(Self::Null)),
            Self::Builtin(map) => {
                map.get(name).cloned().ok_or_else(|| format!("there is no .{name} here"))
            }
            other => Err(format!(".{name} is wanted of {}", other.kind())),
        }
    }

    /// Writes it as `toYaml` does: in blocks, so that it can continue a map or a list, with quoted strings.
    pub(crate) fn to_yaml(&self) -> Result<String, String> {
        let mut out = String::new();
        self.write_yaml(0, &mut out)?;
        Ok(out.trim_end_matches('\n').to_owned())
    }

    fn write_yaml(&self, depth: usize, out: &mut String) -> Result<(), String> {
        let pad = "  ".repeat(depth);
        match self {
            Self::Map(map) if !map.is_empty() => {
                for (key, value) in map.iter() {
                    out.push_str(&format!("{pad}{}:", json(&Json::from(key.as_str()))));
                    value.write_inner(depth, out)?;
                }
            }
            Self::List(list) if !list.is_empty() => {
                for value in list.iter() {
                    out.push_str(&format!("{pad}-"));
                    value.write_inner(depth, out)?;
                }
            }
            scalar => out.push_str(&format!("{pad}{}\n", json(&scalar.to_json()?))),
        }
        Ok(())
    }

    fn write_inner(&self, depth: usize, out: &mut String) -> Result<(), String> {
        let nested = match self {
            Self::Map(map) => !map.is_empty(),
            Self::List(list) => !list.is_empty(),
            _ => false,
        };
        if nested {
            out.push('\n');
            return self.write_yaml(depth + 1, out);
        }
        out.push(' ');
        self.write_yaml(0, out)
    }

    pub(crate) fn to_json(&self) -> Result<Json, String> {
        Ok(match self {
            Self::Null => Json::Null,
            Self::Bool(yes) => Json::from(*yes),
            Self::Int(number) => Json::from(*number),
            // A whole number is written without a fraction, as Go writes it in JSON.
            #[allow(clippy::cast_possible_truncation)]
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                Json::from(*number as i64)
            }
            Self::Float(number) => Json::from(*number),
            Self::Text(text) => Json::from(&**text),
            Self::List(list) => list.iter().map(Self::to_json).collect::<Result<_, _>>()?,
            Self::Map(map) => {
                let pairs = map.iter().map(|(key, value)| Ok((key.clone(), value.to_json()?)));
                Json::Object(pairs.collect::<Result<_, String>>()?)
            }
            other => return Err(format!("{} is no YAML", other.kind())),
        })
    }
}

fn json(value: &Json) -> String {
    value.to_string()
}

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(yes) => Self::Bool(*yes),
            Json::Number(number) => number.as_f64().map_or(Self::Null, Self::Float),
            Json::String(text) => Self::text(text.as_str()),
            Json::Array(list) => Self::List(Rc::new(list.iter().map(Self::from).collect())),
            Json::Object(map) => {
                let pairs = map.iter().map(|(key, value)| (key.clone(), Self::from(value)));
                Self::Map(Rc::new(pairs.collect()))
            }
        }
    }
}

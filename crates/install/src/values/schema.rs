//! Checks values by `values.schema.json`: the keywords that the chart's schema uses and no others, with
//! sentences for the author of the values.

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};

/// One value that the schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Its path, such as `net.pools[0].subnets`.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A schema whose every keyword is known: parsing refuses others.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Schema {
    #[serde(rename = "$schema")]
    _dialect: Option<String>,
    #[serde(rename = "title")]
    _title: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[serde(rename = "type")]
    types: Option<OneOrMore>,
    properties: BTreeMap<String, Schema>,
    additional_properties: Option<Additional>,
    property_names: Option<Box<Schema>>,
    required: Vec<String>,
    #[serde(rename = "enum")]
    one_of: Vec<Value>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    pattern: Option<String>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    items: Option<Box<Schema>>,
    min_items: Option<usize>,
    max_items: Option<usize>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(Type),
    More(Vec<Type>),
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    Null,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Additional {
    Allowed(bool),
    Like(Box<Schema>),
}

impl Type {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Object => value.is_object(),
            Self::Array => value.is_array(),
            Self::String => value.is_string(),
            Self::Integer => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Null => value.is_null(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Object => "a map",
            Self::Array => "a list",
            Self::String => "a string",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Null => "null",
        }
    }
}

impl Schema {
    /// Returns all problems, in the order of the values.
    pub(crate) fn check(&self, values: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.look("", values, &mut problems);
        problems
    }

    fn look(&self, path: &str, value: &Value, problems: &mut Vec<Problem>) {
        let mut problem = |message| problems.push(Problem { path: path.to_owned(), message });
        if let Some(types) = &self.types {
            let types: &[Type] = match types {
                OneOrMore::One(one) => std::slice::from_ref(one),
                OneOrMore::More(more) => more,
            };
            if !types.iter().any(|kind| kind.fits(value)) {
                let names: Vec<_> = types.iter().map(|kind| kind.name()).collect();
                let hint = match value {
                    Value::Number(_) | Value::Bool(_) if types.contains(&Type::String) => {
                        "; put it in quotes, or use --set-string"
                    }
                    _ => "",
                };
                let (names, found) = (names.join(" or "), describe(value));
                return problem(format!("expected {names}, found {found}{hint}"));
            }
        }
        if !self.one_of.is_empty() && !self.one_of.contains(value) {
            let allowed: Vec<_> = self.one_of.iter().map(bare).collect();
            let near = match value {
                Value::String(text) => did_you_mean(text, allowed.iter().map(String::as_str)),
                _ => String::new(),
            };
            let (allowed, found) = (allowed.join(", "), describe(value));
            return problem(format!("expected one of {allowed}; found {found}{near}"));
        }
        match value {
            Value::Object(map) => self.look_into(path, map, problems),
            Value::Array(list) => {
                if let Some(message) = outside(list.len(), self.min_items, self.max_items, "items")
                {
                    problem(message);
                }
                for (index, item) in list.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.look(&format!("{path}[{index}]"), item, problems);
                    }
                }
            }
            Value::String(text) => {
                let length = text.chars().count();
                if let Some(message) =
                    outside(length, self.min_length, self.max_length, "characters")
                {
                    problem(message);
                } else if let Some(pattern) = &self.pattern {
                    match Regex::new(pattern) {
                        Ok(regex) if regex.is_match(text) => {}
                        Ok(_) => {
                            problem(format!("expected what matches {pattern}, found {text:?}"));
                        }
                        Err(error) => problem(format!("the schema's pattern is wrong: {error}")),
                    }
                }
            }
            Value::Number(number) => {
                let (number, found) = (number.as_f64().unwrap_or(f64::NAN), number);
                // Bounds of values are far below where a float loses whole numbers.
                #[allow(clippy::cast_precision_loss)]
                let (low, high) = (self.minimum.map(|n| n as f64), self.maximum.map(|n| n as f64));
                if low.is_some_and(|low| number < low) || high.is_some_and(|high| number > high) {
                    let range = match (self.minimum, self.maximum) {
                        (Some(low), Some(high)) => format!("from {low} to {high}"),
                        (Some(low), None) => format!("of at least {low}"),
                        (_, high) => format!("of at most {}", high.unwrap_or_default()),
                    };
                    problem(format!("expected a number {range}, found {found}"));
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn look_into(&self, path: &str, map: &Map<String, Value>, problems: &mut Vec<Problem>) {
        let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        for key in self.required.iter().filter(|key| !map.contains_key(*key)) {
            problems.push(Problem { path: at(key), message: "is missing".to_owned() });
        }
        for (key, value) in map {
            if let Some(names) = &self.property_names {
                names.look(&at(key), &Value::from(key.as_str()), problems);
            }
            match (self.properties.get(key), &self.additional_properties) {
                (Some(schema), _) => schema.look(&at(key), value, problems),
                (None, Some(Additional::Like(schema))) => schema.look(&at(key), value, problems),
                (None, Some(Additional::Allowed(false))) => {
                    let near = did_you_mean(key, self.properties.keys().map(String::as_str));
                    let message = format!("there is no such value{near}");
                    problems.push(Problem { path: at(key), message });
                }
                (None, _) => {}
            }
        }
    }
}

fn outside(n: usize, low: Option<usize>, high: Option<usize>, of: &str) -> Option<String> {
    if let Some(low) = low.filter(|low| n < *low) {
        return Some(format!("expected at least {low} {of}, found {n}"));
    }
    let high = high.filter(|high| n > *high)?;
    Some(format!("expected at most {high} {of}, found {n}"))
}

fn did_you_mean<'a>(found: &str, names: impl Iterator<Item = &'a str>) -> String {
    names
        .map(|name| (strsim::jaro_winkler(&found.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, name)| format!("; did you mean {name}?"))
}

/// Shows a value in a message.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("{text:?}"),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(
        || value.to_string(),
        |text| {
            if text.is_empty() { "\"\"".to_owned() } else { text.to_owned() }
        },
    )
}

#[cfg(test)]
mod tests;

//! Parses `--set`: paths with dots and indexes, values until a comma, lists in braces, and a backslash
//! before a literal character.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

use crate::Error;

/// The largest index, as in Helm: a list is filled up to it.
const LARGEST_INDEX: usize = 65_536;
/// How deep a path may go, as in Helm.
const DEEPEST: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Booleans, whole numbers and null are parsed; everything else is text.
    Guess,
    Text,
}

enum Step {
    Key(String),
    Index(usize),
}

pub(super) fn apply(values: &mut Map<String, Value>, text: &str, kind: Kind) -> Result<(), Error> {
    let mut rest = text.chars().peekable();
    let wrong = |message| Error::Set { text: text.to_owned(), message };
    while rest.peek().is_some() {
        let path = path(&mut rest).map_err(wrong)?;
        let value = value(&mut rest, kind).map_err(wrong)?;
        let mut root = Value::Object(std::mem::take(values));
        let placed = place(&mut root, &path, value);
        if let Value::Object(map) = root {
            *values = map;
        }
        placed.map_err(wrong)?;
    }
    Ok(())
}

/// Reads until one of `stops`, which stays unread.
fn until(rest: &mut Peekable<Chars<'_>>, stops: &[char]) -> String {
    let mut read = String::new();
    while let Some(c) = rest.next_if(|c| !stops.contains(c)) {
        match c {
            '\\' => read.extend(rest.next()),
            c => read.push(c),
        }
    }
    read
}

/// Reads a path and the `=` after it.
fn path(rest: &mut Peekable<Chars<'_>>) -> Result<Vec<Step>, String> {
    let mut path = Vec::new();
    loop {
        let key = until(rest, &['=', '[', ',', '.']);
        if key.is_empty() {
            return Err("a name is empty".to_owned());
        }
        path.push(Step::Key(key));
        loop {
            match rest.next() {
                Some('=') => return Ok(path),
                Some('.') => break,
                Some('[') => path.push(index(rest)?),
                None | Some(',') => {
                    return Err("a name has no value; write NAME=VALUE".to_owned());
                }
                Some(c) => {
                    return Err(format!("expected `.`, `[` or `=` after an index, found `{c}`"));
                }
            }
        }
        if path.len() > DEEPEST {
            return Err(format!("deeper than {DEEPEST} names"));
        }
    }
}

/// Reads an index after its `[`.
fn index(rest: &mut Peekable<Chars<'_>>) -> Result<Step, String> {
    let text = until(rest, &[']']);
    if rest.next().is_none() {
        return Err("an index has no `]`".to_owned());
    }
    match text.parse() {
        Ok(index) if index <= LARGEST_INDEX => Ok(Step::Index(index)),
        _ => Err(format!("expected an index from 0 to {LARGEST_INDEX}, found [{text}]")),
    }
}

/// Reads a value and the comma after it, if there is one.
fn value(rest: &mut Peekable<Chars<'_>>, kind: Kind) -> Result<Value, String> {
    if rest.next_if_eq(&'{').is_none() {
        let text = until(rest, &[',']);
        rest.next();
        return Ok(typed(text, kind));
    }
    let mut items = Vec::new();
    if rest.next_if_eq(&'}').is_none() {
        loop {
            items.push(typed(until(rest, &[',', '}']), kind));
            match rest.next() {
                Some('}') => break,
                Some(_) => {}
                None => return Err("a list has no `}`".to_owned()),
            }
        }
    }
    match rest.next() {
        None | Some(',') => Ok(Value::Array(items)),
        Some(c) => Err(format!("expected a comma after a list, found `{c}`")),
    }
}

fn typed(text: String, kind: Kind) -> Value {
    if kind == Kind::Text {
        return Value::String(text);
    }
    match text.as_str() {
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        "null" => return Value::Null,
        "0" => return Value::from(0),
        _ => {}
    }
    // 007 is a text and not seven.
    if !text.starts_with('0')
        && let Ok(number) = text.parse::<i64>()
    {
        return Value::from(number);
    }
    Value::String(text)
}

fn place(at: &mut Value, path: &[Step], value: Value) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        *at = value;
        return Ok(());
    };
    match step {
        Step::Key(key) => {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            let Value::Object(map) = at else {
                return Err(format!("`{key}` is wanted of something that is not a map"));
            };
            // As in Helm, a value that is not a map is replaced.
            let slot = map.entry(key.clone()).or_insert(Value::Null);
            let wants_map = matches!(rest.first(), Some(Step::Key(_)));
            let wants_list = matches!(rest.first(), Some(Step::Index(_)));
            if (wants_map && !slot.is_object()) || (wants_list && !slot.is_array()) {
                *slot = Value::Null;
            }
            place(slot, rest, value)
        }
        Step::Index(index) => {
            if at.is_null() {
                *at = Value::Array(Vec::new());
            }
            let Value::Array(list) = at else {
                return Err(format!("[{index}] is wanted of something that is not a list"));
            };
            if list.len() <= *index {
                list.resize(index + 1, Value::Null);
            }
            list.get_mut(*index).map_or(Ok(()), |slot| place(slot, rest, value))
        }
    }
}

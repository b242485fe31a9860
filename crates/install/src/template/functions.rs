//! The functions that the chart uses, as Go, Sprig and Helm define them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::eval::{Engine, Fault, Scope};
use super::parse::Expr;
use super::value::Value;

/// Every function of the subset.
pub(super) const NAMES: &[&str] = &[
    "and",
    "default",
    "dict",
    "eq",
    "fail",
    "hasKey",
    "include",
    "int",
    "join",
    "kindIs",
    "lookup",
    "nindent",
    "not",
    "or",
    "printf",
    "quote",
    "replace",
    "required",
    "toString",
    "toYaml",
    "trimSuffix",
];

/// `piped` is the last argument.
pub(super) fn call(
    engine: &Engine<'_>,
    name: &str,
    args: &[Expr],
    piped: Option<Value>,
    scope: &Scope,
) -> Result<Value, Fault> {
    // The first operand that decides is the value; the rest is not evaluated.
    if name == "and" || name == "or" {
        let mut last = None;
        for arg in args {
            let value = engine.eval(arg, scope)?;
            if value.is_true() == (name == "or") {
                return Ok(value);
            }
            last = Some(value);
        }
        return piped.or(last).ok_or_else(|| Fault::from(format!("{name} has no arguments")));
    }
    let mut values = Vec::with_capacity(args.len() + 1);
    for arg in args {
        values.push(engine.eval(arg, scope)?);
    }
    values.extend(piped);
    match (name, values.as_slice()) {
        ("include", [Value::Text(template), data]) => {
            Ok(Value::text(engine.template(template, data, scope.depth + 1)?))
        }
        ("fail", [Value::Text(message)]) => Err(Fault::refused(message.to_string())),
        ("required", [Value::Text(message), value]) => match value {
            Value::Null => Err(Fault::refused(message.to_string())),
            Value::Text(text) if text.is_empty() => Err(Fault::refused(message.to_string())),
            value => Ok(value.clone()),
        },
        _ => pure(name, &values).map_err(Fault::from),
    }
}

fn pure(name: &str, values: &[Value]) -> Result<Value, String> {
    use Value::{Bool, Int, List, Map, Text};
    Ok(match (name, values) {
        ("not", [value]) => Bool(!value.is_true()),
        ("default", [otherwise, value]) => {
            if value.is_true() {
                value.clone()
            } else {
                otherwise.clone()
            }
        }
        ("eq", [first, others @ ..]) if !others.is_empty() => {
            let mut any = false;
            for other in others {
                any |= same(first, other)?;
            }
            Bool(any)
        }
        ("kindIs", [Text(kind), value]) => Bool(match &**kind {
            "string" => matches!(value, Text(_)),
            "bool" => matches!(value, Bool(_)),
            "map" => matches!(value, Map(_)),
            "slice" => matches!(value, List(_)),
            other => return Err(format!("kindIs {other:?} is outside the subset")),
        }),
        ("hasKey", [Map(map), Text(key)]) => Bool(map.contains_key(&**key)),
        ("dict", pairs) if pairs.len() % 2 == 0 => {
            let mut map = BTreeMap::new();
            for pair in pairs.chunks(2) {
                let [Text(key), value] = pair else {
                    return Err("dict wants names and values".to_owned());
                };
                map.insert(key.to_string(), value.clone());
            }
            Map(Rc::new(map))
        }
        // As with `helm template`, nothing is looked up.
        ("lookup", [Text(_), Text(_), Text(_), Text(_)]) => Map(Rc::default()),
        ("int", [Int(number)]) => Int(*number),
        #[allow(clippy::cast_possible_truncation)]
        ("int", [Value::Float(number)]) if number.abs() < 1e15 => Int(*number as i64),
        ("quote", [value]) => Value::text(serde_json::Value::from(value.print()?).to_string()),
        ("toString", [value @ (Text(_) | Bool(_) | Int(_))]) => Value::text(value.print()?),
        ("toYaml", [value]) => Value::text(value.to_yaml()?),
        ("nindent", [Int(width), Text(text)]) => {
            Value::text(format!("\n{}", indent(*width, text)?))
        }
        ("replace", [Text(old), Text(new), Text(text)]) => Value::text(text.replace(&**old, new)),
        ("trimSuffix", [Text(suffix), Text(text)]) => {
            Value::text(text.strip_suffix(&**suffix).unwrap_or(text))
        }
        ("join", [Text(between), List(list)]) => {
            let items = list.iter().map(Value::print).collect::<Result<Vec<_>, _>>()?;
            Value::text(items.join(between))
        }
        ("printf", [Text(format), args @ ..]) => Value::text(printf(format, args)?),
        _ => {
            let kinds: Vec<_> = values.iter().map(Value::kind).collect();
            let kinds = if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") };
            return Err(format!("{name} of {kinds} is outside the subset"));
        }
    })
}

/// Compares values of one kind; as in Go, other comparisons are errors.
fn same(a: &Value, b: &Value) -> Result<bool, String> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(a == b),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Int(a), Value::Int(b)) => Ok(a == b),
        _ => Err(format!("{} is compared with {}", a.kind(), b.kind())),
    }
}

fn indent(width: i64, text: &str) -> Result<String, String> {
    let width = usize::try_from(width).ok().filter(|width| *width <= 64);
    let pad = " ".repeat(width.ok_or("indent wants a width from 0 to 64")?);
    Ok(format!("{pad}{}", text.replace('\n', &format!("\n{pad}"))))
}

fn printf(format: &str, args: &[Value]) -> Result<String, String> {
    let mut out = String::new();
    let (mut chars, mut args) = (format.chars(), args.iter());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match (chars.next(), &mut args) {
            (Some('%'), _) => out.push('%'),
            (Some(verb @ ('s' | 'd')), args) => match (verb, args.next()) {
                ('s', Some(Value::Text(text))) => out.push_str(text),
                ('d', Some(Value::Int(number))) => out.push_str(&number.to_string()),
                (verb, arg) => {
                    let kind = arg.map_or("nothing", Value::kind);
                    return Err(format!("printf %{verb} of {kind} is outside the subset"));
                }
            },
            (verb, _) => {
                let verb = verb.map(String::from).unwrap_or_default();
                return Err(format!("printf %{verb} is outside the subset"));
            }
        }
    }
    if args.next().is_some() {
        return Err("printf has more arguments than its format names".to_owned());
    }
    Ok(out)
}

//! What an API server estimates that a CEL rule costs, at worst.
//!
//! After the model of Kubernetes and cel-go (`checker/cost.go`, `pkg/cel/library/cost.go`), for what
//! our rules use: each step costs one, what goes through a text a tenth of its length, a macro its body
//! once for each element, and a rule is counted once for each place that the schema lets it be at. Where
//! the model is finer than this, this is dearer. What it does not know is an error: whoever writes a
//! rule with a new function looks up its cost.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cel::{Expr, parse};

/// A server's limits: of one rule, and of all rules of a definition.
pub(crate) const MOST_OF_A_RULE: u64 = 10_000_000;
pub(crate) const MOST_OF_ALL: u64 = 100_000_000;
/// The longest text that fits into a request: what a text may be whose schema has no bound.
const REQUEST: u64 = 3 * 1024 * 1024;
/// Nobody knows how long it is.
const UNKNOWN: u64 = u64::MAX;
/// A macro's own steps for each element, at most: a list of one is made, and joined to others.
const EACH: u64 = 16;

/// What an expression gives, and what it costs.
#[derive(Clone, Debug)]
struct Given {
    cost: u64,
    /// Characters of a text, elements of a list.
    size: u64,
    r#type: Type,
}

#[derive(Clone, Debug)]
enum Type {
    Scalar,
    Text,
    /// Of a schema.
    At(Value),
    /// A list that a function made, or that is written out: of what, nobody knows.
    List,
}

/// Of one rule that stands at `schema`, evaluated once.
pub(crate) fn of_rule(rule: &str, schema: &Value, is_root: bool) -> Result<u64, String> {
    let mut schema = schema.clone();
    if is_root {
        // Always there, and without a bound.
        let name = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        schema["properties"]["metadata"] = name;
    }
    let names =
        BTreeMap::from([("self".to_owned(), schema.clone()), ("oldSelf".to_owned(), schema)]);
    let names = names.into_iter().map(|(name, schema)| (name, of_schema(&schema, 1))).collect();
    Ok(of(&parse(rule)?, &names)?.cost)
}

fn times(a: u64, b: u64) -> u64 {
    a.saturating_mul(b)
}

/// The cost of going through so many characters, `tenths` of a unit for each.
fn through(size: u64, tenths: u64) -> u64 {
    if size == UNKNOWN { UNKNOWN } else { times(size, tenths).div_ceil(10).max(1) }
}

fn of_schema(schema: &Value, cost: u64) -> Given {
    let number = |field: &str| schema[field].as_u64();
    let (size, r#type) = match schema["type"].as_str() {
        // Four bytes a character.
        Some("string") => {
            let longest = schema["enum"].as_array().map(|words| {
                words.iter().filter_map(Value::as_str).map(str::len).max().unwrap_or(0) as u64
            });
            let most = number("maxLength").map(|most| times(most, 4));
            (most.or(longest).unwrap_or(REQUEST), Type::Text)
        }
        Some("array") => (number("maxItems").unwrap_or(REQUEST), Type::At(schema.clone())),
        Some("object") => (1, Type::At(schema.clone())),
        _ => (1, Type::Scalar),
    };
    Given { cost, size, r#type }
}

fn scalar(cost: u64) -> Given {
    Given { cost, size: 1, r#type: Type::Scalar }
}

fn of(expr: &Expr, names: &BTreeMap<String, Given>) -> Result<Given, String> {
    match expr {
        Expr::Int | Expr::Bool => Ok(scalar(0)),
        Expr::Text(length) => Ok(Given { cost: 0, size: *length, r#type: Type::Text }),
        Expr::Name(name) => names.get(name).cloned().ok_or_else(|| format!("there is no {name}")),
        Expr::Field(of_what, field) => {
            let Given { cost, r#type, .. } = of(of_what, names)?;
            let schema = match &r#type {
                Type::At(schema) => schema["properties"].get(field),
                _ => None,
            };
            let schema = schema.ok_or_else(|| format!("there is no field {field}"))?;
            Ok(of_schema(schema, cost.saturating_add(1)))
        }
        Expr::Has(field) => Ok(scalar(of(field, names)?.cost.saturating_add(1))),
        Expr::List(items) => {
            let costs = items.iter().map(|item| of(item, names).map(|given| given.cost));
            let cost = costs.sum::<Result<u64, _>>()?.saturating_add(10);
            Ok(Given { cost, size: items.len() as u64, r#type: Type::List })
        }
        Expr::Index(list, index) => {
            let (list, index) = (of(list, names)?, of(index, names)?);
            let cost = list.cost.saturating_add(index.cost).saturating_add(1);
            Ok(element(&list, cost))
        }
        Expr::Each { of: list, name, var, body } => {
            let list = of(list, names)?;
            let mut names = names.clone();
            names.insert(var.clone(), element(&list, 1));
            let body = of(body, &names)?.cost.saturating_add(EACH);
            let cost = list.cost.saturating_add(times(list.size, body)).saturating_add(EACH);
            let given = if name == "filter" { Given { cost, ..list } } else { scalar(cost) };
            Ok(given)
        }
        Expr::Not(inner) => Ok(scalar(of(inner, names)?.cost.saturating_add(1))),
        Expr::Choice(condition, then, otherwise) => {
            let (then, otherwise) = (of(then, names)?, of(otherwise, names)?);
            let dearer = then.cost.max(otherwise.cost);
            let cost = of(condition, names)?.cost.saturating_add(dearer);
            Ok(Given { cost, size: then.size.max(otherwise.size), ..then })
        }
        Expr::Binary(sign, left, right) => {
            let (left, right) = (of(left, names)?, of(right, names)?);
            let cost = left.cost.saturating_add(right.cost);
            let texts = [&left, &right].iter().all(|side| matches!(side.r#type, Type::Text));
            let (own, size, r#type) = match sign.as_str() {
                "+" if texts => {
                    let size = left.size.saturating_add(right.size);
                    (through(size, 1), size, Type::Text)
                }
                "in" => (right.size, 1, Type::Scalar),
                "+" | "-" | "*" | "/" | "%" | "&&" | "||" => (1, 1, Type::Scalar),
                _ => (through(left.size.min(right.size), 1), 1, Type::Scalar),
            };
            Ok(Given { cost: cost.saturating_add(own), size, r#type })
        }
        Expr::Call { of: target, name, args } => call(target.as_deref(), name, args, names),
    }
}

fn call(
    target: Option<&Expr>,
    name: &str,
    args: &[Expr],
    names: &BTreeMap<String, Given>,
) -> Result<Given, String> {
    let target = target.map(|target| of(target, names)).transpose()?;
    let args = args.iter().map(|arg| of(arg, names)).collect::<Result<Vec<_>, _>>()?;
    let before =
        args.iter().chain(&target).fold(0_u64, |sum, given| sum.saturating_add(given.cost));
    let text = |size| Given { cost: 0, size, r#type: Type::Text };
    let (own, given) = match (name, &target, args.as_slice()) {
        ("size", Some(_), []) => (1, scalar(0)),
        ("int", None, [_]) => (1, scalar(0)),
        // As long as a server's estimate knows: not at all.
        ("string", None, [_]) => (1, text(UNKNOWN)),
        ("startsWith" | "endsWith", Some(_), [arg]) => (through(arg.size, 1), scalar(0)),
        ("indexOf" | "lastIndexOf", Some(target), [_]) => (through(target.size, 1), scalar(0)),
        ("substring", Some(target), [_] | [_, _]) => (through(target.size, 1), text(target.size)),
        ("split", Some(target), [_]) => {
            let list = Given { cost: 0, size: target.size, r#type: Type::List };
            (through(target.size, 2), list)
        }
        ("matches", Some(target), [regex]) => {
            let states = regex.size.div_ceil(4);
            (times(through(target.size.saturating_add(1), 1), states), scalar(0))
        }
        (name, ..) => return Err(format!("the cost of {name} is not known here")),
    };
    Ok(Given { cost: before.saturating_add(own), ..given })
}

/// An element of a list.
fn element(list: &Given, cost: u64) -> Given {
    match &list.r#type {
        Type::At(schema) => of_schema(&schema["items"], cost),
        _ => Given { cost, size: UNKNOWN, r#type: Type::Text },
    }
}

#[test]
fn what_costs_too_much_is_seen() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "pool": {"type": "string", "maxLength": 63},
        "index": {"type": "integer"},
        "names": {"type": "array", "maxItems": 1000, "items": {"type": "string", "maxLength": 253}},
        "any": {"type": "array", "items": {"type": "string", "maxLength": 253}},
        "text": {"type": "string"},
    }}}});
    let cost = |rule: &str| of_rule(rule, &schema, true).unwrap();
    for dear in [
        // How the name of a block was once checked: no server that knows CEL took the definition.
        "self.metadata.name == self.spec.pool + '-' + string(self.spec.index)",
        "self.spec.names.all(a, self.spec.names.exists_one(b, a == b))",
        "self.spec.any.all(a, a.startsWith(self.spec.pool + '-'))",
        "self.spec.text.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(/[a-z0-9]([-a-z0-9]*[a-z0-9]))?$')",
        "self.spec.pool.split('-')[0].startsWith('a') || self.spec.pool.split('-')[0].split('.').size() == 1",
    ] {
        assert!(cost(dear) > MOST_OF_A_RULE / 10, "{dear}: {}", cost(dear));
    }
    for cheap in [
        "self.metadata.name.size() <= 63",
        "self.metadata.name.startsWith(self.spec.pool + '-')",
        "self.spec.names.all(a, a.size() > 0)",
        "!has(self.spec.text) || self.spec.index in [1, 2]",
    ] {
        assert!(cost(cheap) < MOST_OF_A_RULE / 10, "{cheap}: {}", cost(cheap));
    }
    for unknown in ["self.spec.pool.fly()", "self.spec.flag", "isCIDR(self.spec.pool)"] {
        assert!(of_rule(unknown, &schema, true).is_err(), "{unknown}");
    }
}

/// What Kubernetes 1.36.4 itself says that rules of ours cost: nothing is cheaper here, nor very much
/// dearer.
#[test]
fn the_estimate_is_about_that_of_a_server() {
    let block = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "pool": {"type": "string", "maxLength": 63},
        "index": {"type": "integer"},
    }}}});
    let roles =
        json!({"type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 253}});
    let subnet = json!({"type": "object", "properties": {
        "ipv4": {"type": "string", "maxLength": 18},
        "ipv6": {"type": "string", "maxLength": 43},
    }});
    let named = "self.metadata.name.startsWith(self.spec.pool + '-') && \
                 int(self.metadata.name.substring(self.spec.pool.size() + 1)) == self.spec.index && \
                 (self.spec.index > 0 ? !self.metadata.name.startsWith(self.spec.pool + '-0') : \
                 self.metadata.name.size() == self.spec.pool.size() + 2)";
    let same_size = "!has(self.ipv4) || !has(self.ipv6) || \
                     int(self.ipv4.substring(self.ipv4.indexOf('/') + 1)) + 96 == \
                     int(self.ipv6.substring(self.ipv6.indexOf('/') + 1))";
    for (rule, schema, is_root, theirs) in [
        (named, &block, true, 314_706),
        ("self.all(a, self.exists_one(b, a == b))", &roles, false, 434_562),
        (same_size, &subnet, false, 70),
        ("self.metadata.name.size() <= 63", &block, true, 5),
    ] {
        let ours = of_rule(rule, schema, is_root).unwrap();
        assert!((theirs..theirs * 3 / 2).contains(&ours), "{rule}: {ours}, and theirs is {theirs}");
    }
}

//! Evaluates a parsed template to text.

use std::collections::{BTreeMap, BTreeSet};

use super::functions;
use super::parse::{Expr, Located, Node, parse};
use super::value::Value;
use crate::Error;

/// The most nested includes; deeper ones include themselves.
const DEEPEST: usize = 32;

/// Every template of a chart by its name, which is a file's path or the name of a `define`.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    by_name: BTreeMap<String, Template>,
}

#[derive(Debug)]
struct Template {
    file: String,
    body: Vec<Node>,
}

/// The built-in objects of templates.
#[derive(Debug)]
pub(crate) struct Root<'a> {
    /// `.Values`, `.Release`, `.Chart`, `.Files`, `.Capabilities`.
    pub(crate) data: Value,
    pub(crate) files: &'a BTreeMap<String, String>,
    pub(crate) api_versions: &'a BTreeSet<String>,
}

/// A mistake, and its line if that is known yet.
pub(super) struct Fault {
    at: Option<(String, usize)>,
    message: String,
    /// Whether the chart refuses the values: the sentence is for the user and has no line.
    refused: bool,
}

impl Fault {
    pub(super) fn refused(message: String) -> Self {
        Self { at: None, message, refused: true }
    }

    fn located(mut self, file: &str, line: usize) -> Self {
        self.at.get_or_insert_with(|| (file.to_owned(), line));
        self
    }

    fn into_error(self) -> Error {
        if self.refused {
            return Error::Refused(self.message);
        }
        let (file, line) = self.at.unwrap_or_default();
        Error::Template { file, line, message: self.message }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self { at: None, message, refused: false }
    }
}

impl Templates {
    /// Parses a file.
    pub(crate) fn add(&mut self, file: &str, source: &str) -> Result<(), Error> {
        let error = |(line, message)| Error::Template { file: file.to_owned(), line, message };
        let parsed = parse(source).map_err(error)?;
        for (name, body) in parsed.defines.into_iter().chain([(file.to_owned(), parsed.body)]) {
            let template = Template { file: file.to_owned(), body };
            if self.by_name.insert(name.clone(), template).is_some() {
                return Err(error((1, format!("the template {name:?} is defined twice"))));
            }
        }
        Ok(())
    }

    /// Renders one template.
    pub(crate) fn render(&self, name: &str, root: &Root<'_>) -> Result<String, Error> {
        let engine = Engine { templates: self, root };
        engine.template(name, &root.data, 0).map_err(Fault::into_error)
    }
}

pub(super) struct Engine<'a> {
    templates: &'a Templates,
    pub(super) root: &'a Root<'a>,
}

/// The variables and the dot at one place of a template.
pub(super) struct Scope {
    /// The value of `$`, which the template was called with.
    top: Value,
    dot: Value,
    /// The variables, the innermost last.
    variables: Vec<(String, Value)>,
    pub(super) depth: usize,
}

impl Engine<'_> {
    pub(super) fn template(&self, name: &str, data: &Value, depth: usize) -> Result<String, Fault> {
        if depth > DEEPEST {
            let message = format!("templates include each other more than {DEEPEST} deep");
            return Err(Fault::from(message));
        }
        let template = self.templates.by_name.get(name);
        let template = template.ok_or_else(|| format!("there is no template {name:?}"))?;
        let mut scope =
            Scope { top: data.clone(), dot: data.clone(), variables: Vec::new(), depth };
        let mut out = String::new();
        self.body(template, &template.body, &mut scope, &mut out)?;
        Ok(out)
    }

    /// Evaluates a body; variables that it declares end with it.
    fn body(
        &self,
        template: &Template,
        nodes: &[Node],
        scope: &mut Scope,
        out: &mut String,
    ) -> Result<(), Fault> {
        let known = scope.variables.len();
        for node in nodes {
            self.node(template, node, scope, out)?;
        }
        scope.variables.truncate(known);
        Ok(())
    }

    fn node(
        &self,
        template: &Template,
        node: &Node,
        scope: &mut Scope,
        out: &mut String,
    ) -> Result<(), Fault> {
        let eval = |at: &Located, scope: &Scope| {
            self.eval(&at.expr, scope).map_err(|fault| fault.located(&template.file, at.line))
        };
        match node {
            Node::Text(text) => out.push_str(text),
            Node::Print(at) => {
                let printed = eval(at, scope)?.print();
                let locate = |message| Fault::from(message).located(&template.file, at.line);
                out.push_str(&printed.map_err(locate)?);
            }
            Node::Declare(name, at) => {
                let value = eval(at, scope)?;
                scope.variables.push((name.clone(), value));
            }
            Node::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if eval(condition, scope)?.is_true() {
                        return self.body(template, body, scope, out);
                    }
                }
                self.body(template, otherwise, scope, out)?;
            }
            Node::With(subject, body, otherwise) => {
                let value = eval(subject, scope)?;
                if !value.is_true() {
                    return self.body(template, otherwise, scope, out);
                }
                let outer = std::mem::replace(&mut scope.dot, value);
                self.body(template, body, scope, out)?;
                scope.dot = outer;
            }
            Node::Range { names, over, body, otherwise } => {
                let items: Vec<(Value, Value)> = match eval(over, scope)? {
                    Value::Null => Vec::new(),
                    Value::List(list) => {
                        let index = |at| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
                        list.iter()
                            .enumerate()
                            .map(|(at, item)| (index(at), item.clone()))
                            .collect()
                    }
                    Value::Map(map) => map
                        .iter()
                        .map(|(key, value)| (Value::text(key.as_str()), value.clone()))
                        .collect(),
                    other => {
                        let message = format!("range over {}", other.kind());
                        return Err(Fault::from(message).located(&template.file, over.line));
                    }
                };
                if items.is_empty() {
                    return self.body(template, otherwise, scope, out);
                }
                let known = scope.variables.len();
                for (key, value) in items {
                    match names.as_slice() {
                        [name] => scope.variables.push((name.clone(), value.clone())),
                        [k, v] => {
                            scope.variables.push((k.clone(), key));
                            scope.variables.push((v.clone(), value.clone()));
                        }
                        _ => {}
                    }
                    let outer = std::mem::replace(&mut scope.dot, value);
                    self.body(template, body, scope, out)?;
                    scope.dot = outer;
                    scope.variables.truncate(known);
                }
            }
            Node::Template { name, line, data } => {
                let data = data.as_ref().map_or(Ok(Value::Null), |at| eval(at, scope))?;
                let text = self.template(name, &data, scope.depth + 1);
                out.push_str(&text.map_err(|fault| fault.located(&template.file, *line))?);
            }
        }
        Ok(())
    }

    pub(super) fn eval(&self, expr: &Expr, scope: &Scope) -> Result<Value, Fault> {
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Path(root, path) => Ok(walk(scope, root.as_deref(), path)?),
            Expr::Call(name, args) => functions::call(self, name, args, None, scope),
            Expr::Method(root, path, args) => self.method(root.as_deref(), path, args, None, scope),
            Expr::Pipe(commands) => {
                let mut last: Option<Value> = None;
                for command in commands {
                    let value = match (command, last.take()) {
                        (Expr::Call(name, args), piped @ Some(_)) => {
                            functions::call(self, name, args, piped, scope)?
                        }
                        (Expr::Method(root, path, args), piped @ Some(_)) => {
                            self.method(root.as_deref(), path, args, piped, scope)?
                        }
                        (command, _) => self.eval(command, scope)?,
                    };
                    last = Some(value);
                }
                last.ok_or_else(|| Fault::from("an empty pipeline".to_owned()))
            }
        }
    }

    fn method(
        &self,
        root: Option<&str>,
        path: &[String],
        args: &[Expr],
        piped: Option<Value>,
        scope: &Scope,
    ) -> Result<Value, Fault> {
        let shown = path.join(".");
        let Some((name, object)) = path.split_last() else {
            return Err(Fault::from("`.` takes no arguments".to_owned()));
        };
        let mut values = Vec::new();
        for arg in args {
            values.push(self.eval(arg, scope)?);
        }
        values.extend(piped);
        let object = walk(scope, root, object)?;
        let files = self.root.files;
        match (object, name.as_str(), values.as_slice()) {
            (Value::Files, "Get", [Value::Text(path)]) => match files.get(&**path) {
                Some(text) => Ok(Value::text(text.as_str())),
                // Helm renders nothing for it.
                None => Err(Fault::from(format!("the chart has no file {path}"))),
            },
            (Value::Files, "Glob", [Value::Text(pattern)]) => {
                let (before, after) = pattern
                    .split_once('*')
                    .filter(|(_, after)| !after.contains(['*', '?', '[', '{', '/']))
                    .ok_or_else(|| format!("the pattern {pattern} is outside the subset"))?;
                let matches = |path: &&String| {
                    let middle = path.strip_prefix(before).and_then(|p| p.strip_suffix(after));
                    middle.is_some_and(|middle| !middle.contains('/'))
                };
                let found = files.keys().filter(matches).map(|path| (path.clone(), Value::Bytes));
                Ok(Value::Map(std::rc::Rc::new(found.collect())))
            }
            (Value::ApiVersions, "Has", [Value::Text(version)]) => {
                Ok(Value::Bool(self.root.api_versions.contains(&**version)))
            }
            _ => Err(Fault::from(format!("`.{shown}` so is outside the subset"))),
        }
    }
}

fn walk(scope: &Scope, root: Option<&str>, path: &[String]) -> Result<Value, String> {
    let mut value = match root {
        None => scope.dot.clone(),
        Some("") => scope.top.clone(),
        Some(name) => {
            let found = scope.variables.iter().rev().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).ok_or_else(|| format!("there is no ${name}"))?
        }
    };
    for (at, name) in path.iter().enumerate() {
        value = value.field(name).map_err(|message| {
            let before = path.get(..at).unwrap_or_default().join(".");
            format!("`.{before}`: {message}")
        })?;
    }
    Ok(value)
}

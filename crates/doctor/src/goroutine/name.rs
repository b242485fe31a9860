//! A Go symbol taken apart: `github.com/a/b.(*T[...]).M.func1` is method `M` of `T` in `b`.

/// A borrowed view on a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The import path.
    pub package: &'a str,
    /// The receiver's type, without `*` and type arguments.
    pub receiver: Option<&'a str>,
    /// Whether the receiver is a pointer.
    pub pointer: bool,
    /// The function or method, without closures' suffixes.
    pub function: &'a str,
    /// Whether it is a closure inside `function`.
    pub closure: bool,
}

impl<'a> Name<'a> {
    /// Takes a symbol apart. Total: what has no dot is a function without package.
    pub fn of(symbol: &'a str) -> Self {
        let generic = symbol.find('[').unwrap_or(symbol.len());
        let after_slash = symbol[..generic].rfind('/').map_or(0, |i| i + 1);
        // The package's own name may carry escaped dots (`yaml%2ev2`), never plain ones.
        let Some(dot) = symbol[after_slash..generic].find('.') else {
            return Self {
                package: "",
                receiver: None,
                pointer: false,
                function: symbol,
                closure: false,
            };
        };
        let package = &symbol[..after_slash + dot];
        let rest = &symbol[after_slash + dot + 1..];

        if let Some(inner) = rest.strip_prefix('(') {
            let close = inner.find(").").unwrap_or(inner.len());
            let receiver = &inner[..close];
            let pointer = receiver.starts_with('*');
            let (function, closure) = split_closure(inner.get(close + 2..).unwrap_or(""));
            let receiver = Some(untyped(receiver.trim_start_matches('*')));
            return Self {
                package,
                receiver,
                pointer,
                function,
                closure,
            };
        }
        let (first, tail) = element(rest);
        match tail {
            // `glob..func1` is a closure of a package variable's initialiser.
            Some(tail) if first == "glob" || is_closure(tail) || first == "init" => Self {
                package,
                receiver: None,
                pointer: false,
                function: first,
                closure: true,
            },
            Some(tail) => {
                let (function, closure) = split_closure(tail);
                Self {
                    package,
                    receiver: Some(first),
                    pointer: false,
                    function,
                    closure,
                }
            }
            None => Self {
                package,
                receiver: None,
                pointer: false,
                function: first,
                closure: false,
            },
        }
    }

    /// `cache.(*Cache).Get.func1`: the symbol with its package by the last element.
    pub fn short(symbol: &str) -> &str {
        let generic = symbol.find('[').unwrap_or(symbol.len());
        &symbol[symbol[..generic].rfind('/').map_or(0, |i| i + 1)..]
    }
}

/// The first element of a dotted name without its type arguments, and what follows its dot.
fn element(name: &str) -> (&str, Option<&str>) {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let mut depth = 0usize;
    let dot = name[end..].find(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '.' && depth == 0
    });
    (&name[..end], dot.map(|i| &name[end + i + 1..]))
}

fn untyped(name: &str) -> &str {
    name.split('[').next().unwrap_or(name)
}

/// `Hold.func1.2` is a closure in `Hold`; `Hold-fm` is the method value of `Hold`.
fn split_closure(method: &str) -> (&str, bool) {
    match method.split_once('.') {
        Some((function, _)) => (untyped(function), true),
        None => match method.strip_suffix("-fm") {
            Some(function) => (untyped(function), false),
            None => (untyped(method), false),
        },
    }
}

fn is_closure(tail: &str) -> bool {
    let first = tail.split('.').find(|part| !part.is_empty()).unwrap_or("");
    ["func", "gowrap", "deferwrap"].iter().any(|prefix| {
        first
            .strip_prefix(prefix)
            .is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }) || first.bytes().all(|b| b.is_ascii_digit())
        || first.contains("dwrap")
}

#[cfg(test)]
mod tests;

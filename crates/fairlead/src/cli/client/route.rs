//! `Route`: the path and the query of a request, with every word encoded.

use std::fmt::{self, Write};

/// A path and its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    path: String,
    query: String,
}

impl Route {
    /// A path under `/api/v1`.
    pub(crate) fn to<const N: usize>(segments: [&str; N]) -> Self {
        let mut path = "/api/v1".to_owned();
        for segment in segments {
            path.push('/');
            encode(segment, &mut path);
        }
        Self { path, query: String::new() }
    }

    /// A path outside of the API.
    pub(crate) fn at(path: &str) -> Self {
        Self { path: path.to_owned(), query: String::new() }
    }

    /// Adds a segment to the path.
    pub(crate) fn and(mut self, segment: &str) -> Self {
        self.path.push('/');
        encode(segment, &mut self.path);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        encode(name, &mut self.query);
        self.query.push('=');
        encode(&value.to_string(), &mut self.query);
        self
    }

    /// Adds a parameter, if it has a value.
    pub(crate) fn maybe(self, name: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a switch, if it is on.
    pub(crate) fn when(self, name: &str, on: bool) -> Self {
        if on { self.with(name, true) } else { self }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        f.write_str(&self.query)
    }
}

/// Percent-encodes all but RFC 3986's unreserved characters, so that no word can be more than one.
fn encode(text: &str, into: &mut String) {
    // A dot segment would be folded away by whoever normalises paths.
    let dots = matches!(text, "." | "..");
    for byte in text.bytes() {
        if !dots && (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
            into.push(char::from(byte));
        } else {
            write!(into, "%{byte:02X}").expect("a String takes every write");
        }
    }
}

#[cfg(test)]
mod tests;

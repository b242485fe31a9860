//! Takes secrets out of what is sent to others.
//!
//! Two nets, one behind the other. What is known to be secret on this machine (the contents of token
//! files) is replaced wherever it stands. What has the shape of a secret is replaced by its shape:
//! bearer tokens, JSON web tokens, Fairlead's own tokens, private keys, passwords in addresses, and
//! the value of any field whose name says that it is one. Too much is masked rather than too little.

use regex::bytes::{Captures, Regex};

use crate::output::Failure;

const MASK: &[u8] = b"[masked]";
/// Shorter texts are words: masking them would tear holes into everything.
const SHORTEST_SECRET: usize = 8;

/// Each with the group that is masked.
const SHAPES: [&str; 9] = [
    // Authorization headers, also as they stand in a log.
    r"(?i)\b(?:bearer|basic)[ \t]+(?P<secret>[A-Za-z0-9+/_.~=-]{8,})",
    // JSON web tokens: three parts, the first of which begins with {"
    r"(?P<secret>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)",
    // Access tokens, and what enrols an agent.
    r"(?P<secret>\bflt_[A-Za-z0-9]+_[A-Za-z0-9_-]{16,})",
    r"(?P<secret>\bfl[krs]_[A-Za-z0-9_.~-]{16,})",
    // Private keys, in a line or over many; as JSON writes them too.
    r"(?s)-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?P<secret>.*?)-----END",
    // Passwords in addresses.
    r#"://[^/\s:@"]*:(?P<secret>[^/\s@"]+)@"#,
    // The code of a login.
    r#"[?&](?:code|token|access_token|password)=(?P<secret>[^&\s"'\\]+)"#,
    // A field whose name says it: `password: x`, `"client-key-data":"x"`, API_TOKEN=x. Not the name
    // of the file that holds it, nor a count of such. In JSON the whole text, spaces and all.
    r#"(?i)[a-z0-9_.-]*(?:password|passwd|secret|token|credential|api[_-]?key|private[_-]?key|key[_-]data)"[ \t]*:[ \t]*"(?P<secret>(?:[^"\\]|\\.){4,})""#,
    r#"(?i)[a-z0-9_.-]*(?:password|passwd|secret|token|credential|api[_-]?key|private[_-]?key|key[_-]data)\\*["']?[ \t]*[:=][ \t]*\\*["']?(?P<secret>[^\s"',;{}\[\]\\]{4,})"#,
];

#[derive(Debug)]
pub(super) struct Masks {
    known: Vec<Vec<u8>>,
    shapes: Vec<Regex>,
}

impl Masks {
    /// `known` are secrets of this machine, as they are.
    pub(super) fn new(known: Vec<Vec<u8>>) -> Result<Self, Failure> {
        let mut known: Vec<Vec<u8>> = known
            .into_iter()
            .map(|secret| secret.trim_ascii().to_vec())
            .filter(|secret| secret.len() >= SHORTEST_SECRET)
            .collect();
        // The longest first: one may contain another.
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        known.dedup();
        let shapes: Result<_, _> = SHAPES.iter().map(|shape| Regex::new(shape)).collect();
        let shapes = shapes.map_err(|e| Failure(format!("secrets cannot be masked: {e}")))?;
        Ok(Self { known, shapes })
    }

    pub(super) fn apply(&self, text: Vec<u8>) -> Vec<u8> {
        let mut text = text;
        for secret in &self.known {
            text = replace(&text, secret);
        }
        for shape in &self.shapes {
            let masked = shape.replace_all(&text, |found: &Captures<'_>| masked(found));
            if let std::borrow::Cow::Owned(masked) = masked {
                text = masked;
            }
        }
        text
    }
}

/// The match with its secret replaced.
fn masked(found: &Captures<'_>) -> Vec<u8> {
    let (Some(whole), Some(secret)) = (found.get(0), found.name("secret")) else {
        return MASK.to_vec();
    };
    let bytes = whole.as_bytes();
    let (from, to) = (secret.start() - whole.start(), secret.end() - whole.start());
    // Plain words that fields of such names have without being secret.
    let harmless: [&[u8]; 8] =
        [b"null", b"None", b"none", b"true", b"false", b"auto", b"Some(", b"[masked"];
    if harmless.iter().any(|word| secret.as_bytes().starts_with(word)) {
        return bytes.to_vec();
    }
    [&bytes[..from], MASK, &bytes[to..]].concat()
}

fn replace(text: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut masked = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, secret) {
        masked.extend_from_slice(&rest[..at]);
        masked.extend_from_slice(MASK);
        rest = &rest[at + secret.len()..];
    }
    masked.extend_from_slice(rest);
    masked
}

#[cfg(test)]
mod tests;

//! `key=value` pairs in running text, and the members of a JSON object, as one iterator.
//!
//! Both are lenient: text around the pairs is skipped, a JSON object may be cut off or contain
//! `...`. A value is given without its quotes and with its escapes as they stand.

/// Iterates over keys and values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    text: &'a [u8],
    json: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn pairs(text: &'a [u8]) -> Self {
        Self { text, json: false }
    }

    pub(crate) fn json(text: &'a [u8]) -> Self {
        Self {
            text: text.strip_prefix(b"{").unwrap_or(text),
            json: true,
        }
    }

    /// The value of the first key that is one of `keys`, letter case aside.
    pub(crate) fn get(self, keys: &[&str]) -> Option<&'a [u8]> {
        let mut all = self;
        all.find(|(key, _)| keys.iter().any(|k| key.eq_ignore_ascii_case(k.as_bytes())))
            .map(|(_, value)| value)
    }

    fn next_pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        loop {
            let equals = memchr::memchr(b'=', self.text)?;
            let (before, after) = (&self.text[..equals], &self.text[equals + 1..]);
            let key = before.rsplit(|b| !is_key(*b)).next().unwrap_or_default();
            if key.is_empty() || after.first() == Some(&b'=') {
                self.text = after;
                continue;
            }
            let (value, rest) = match after.first() {
                Some(b'"') => quoted(&after[1..]),
                Some(b'[') => until(after, |b| b == b']', 1),
                _ => until(after, |b| b.is_ascii_whitespace() || b == b',', 0),
            };
            self.text = rest;
            return Some((key, value));
        }
    }

    fn next_member(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let key_at = memchr::memchr(b'"', self.text)?;
        let (key, rest) = quoted(&self.text[key_at + 1..]);
        let rest = rest.trim_ascii_start();
        let Some(after) = rest.strip_prefix(b":") else {
            self.text = rest;
            return if rest.is_empty() {
                None
            } else {
                Some((key, b""))
            };
        };
        let after = after.trim_ascii_start();
        let (value, rest) = match after.first() {
            Some(b'"') => quoted(&after[1..]),
            Some(b'{' | b'[') => nested(after),
            _ => until(after, |b| matches!(b, b',' | b'}' | b'\n'), 0),
        };
        self.text = rest;
        Some((key, value.trim_ascii()))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.json {
            self.next_member()
        } else {
            self.next_pair()
        }
    }
}

/// Writes a JSON or Go string without its escapes.
pub(crate) fn unescape(text: &[u8], into: &mut Vec<u8>) {
    into.clear();
    let mut bytes = text.iter().copied();
    while let Some(b) = bytes.next() {
        if b != b'\\' {
            into.push(b);
            continue;
        }
        match bytes.next() {
            Some(b'n') => into.push(b'\n'),
            Some(b't') => into.push(b'\t'),
            Some(b'r') => into.push(b'\r'),
            Some(b'u') => {
                let hex: Vec<u8> = bytes.by_ref().take(4).collect();
                let code = std::str::from_utf8(&hex)
                    .ok()
                    .and_then(|h| u32::from_str_radix(h, 16).ok());
                let c = code
                    .and_then(char::from_u32)
                    .unwrap_or(char::REPLACEMENT_CHARACTER);
                into.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Some(other) => into.push(other),
            None => {}
        }
    }
}

fn is_key(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'@')
}

/// Up to the closing quote; all of it where there is none.
fn quoted(text: &[u8]) -> (&[u8], &[u8]) {
    let mut from = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text[from..]) {
        let at = from + found;
        if text[at] == b'"' {
            return (&text[..at], &text[at + 1..]);
        }
        from = (at + 2).min(text.len());
    }
    (text, b"")
}

fn until(text: &[u8], stop: impl Fn(u8) -> bool, keep: usize) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|b| stop(*b))
        .map_or(text.len(), |at| at + keep);
    text.split_at(end)
}

/// A whole object or list, by its brackets.
fn nested(text: &[u8]) -> (&[u8], &[u8]) {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return text.split_at(at + 1);
                }
            }
            b'"' => {
                let (_, rest) = quoted(&text[at + 1..]);
                at = text.len() - rest.len();
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    (text, b"")
}

#[cfg(test)]
mod tests;

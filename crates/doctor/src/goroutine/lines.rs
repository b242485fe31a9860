//! Lines of a text with their numbers, forwards or backwards, and what a log puts before them.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memrchr};

/// Lines in either direction, numbered from one as an editor shows them.
#[derive(Debug, Clone)]
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    number: u32,
    backwards: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn forwards(text: &'a [u8]) -> Self {
        Self { rest: text, number: 0, backwards: false }
    }

    pub(super) fn backwards(text: &'a [u8]) -> Self {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let count = memchr_iter(b'\n', text).count() + 2;
        Self { rest: text, number: u32::try_from(count).unwrap_or(u32::MAX), backwards: true }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u32, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.backwards {
            if self.number <= 1 {
                return None;
            }
            self.number -= 1;
            let (rest, line) = match memrchr(b'\n', self.rest) {
                Some(i) => (&self.rest[..i], &self.rest[i + 1..]),
                None => (&self.rest[..0], self.rest),
            };
            self.rest = rest;
            return Some((self.number, line.strip_suffix(b"\r").unwrap_or(line)));
        }
        if self.rest.is_empty() {
            return None;
        }
        self.number = self.number.saturating_add(1);
        let (line, rest) = match memchr(b'\n', self.rest) {
            Some(i) => (&self.rest[..i], &self.rest[i + 1..]),
            None => (self.rest, &self.rest[self.rest.len()..]),
        };
        self.rest = rest;
        Some((self.number, line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

/// What a log writes before each line of a dump, learned from a header whose own text is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Prefix {
    /// The log writes nothing before a line.
    None,
    /// So many bytes with so many words: a time, a host, a stream.
    Words { len: usize, words: usize },
}

impl Prefix {
    pub(super) fn learn(before: &[u8]) -> Self {
        if before.is_empty() {
            return Self::None;
        }
        Self::Words { len: before.len(), words: memchr_iter(b' ', before).count() }
    }

    /// The line without the prefix; unchanged where it has none.
    #[inline]
    pub(super) fn strip<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let Self::Words { len, words } = *self else {
            return line;
        };
        if words == 0 {
            return line.get(len..).unwrap_or(&[]);
        }
        memchr_iter(b' ', line).nth(words - 1).map_or(&[], |i| &line[i + 1..])
    }
}

/// The text inside a container runtime's JSON line, or the line itself.
pub(super) fn unwrap_json(line: &[u8]) -> Cow<'_, [u8]> {
    if !line.starts_with(b"{\"") || !line.ends_with(b"}") {
        return Cow::Borrowed(line);
    }
    let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(line) else {
        return Cow::Borrowed(line);
    };
    match ["log", "message", "msg", "MESSAGE"].iter().find_map(|k| object.get(*k)?.as_str()) {
        Some(text) => Cow::Owned(text.trim_end_matches(['\n', '\r']).as_bytes().to_vec()),
        None => Cow::Borrowed(line),
    }
}

/// Digits at the start, and what follows them.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 || digits > 19 {
        return None;
    }
    let value = text[..digits]
        .iter()
        .fold(0u64, |n, b| n.wrapping_mul(10).wrapping_add(u64::from(b - b'0')));
    Some((value, &text[digits..]))
}

/// `0x` and hexadecimal digits at the start, and what follows them.
#[inline]
pub(super) fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let rest = text.strip_prefix(b"0x")?;
    let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 16 {
        return None;
    }
    let value = rest[..digits].iter().fold(0u64, |n, b| {
        n << 4 | u64::from(if b.is_ascii_digit() { b - b'0' } else { (b | 0x20) - b'a' + 10 })
    });
    Some((value, &rest[digits..]))
}

/// Without blanks around.
#[inline]
pub(super) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

//! The names that Kubernetes allows. Both engines keep to it, so that an object made in one can
//! be moved to the other.
//!
//! Each check answers the sentence a person needs, or nothing.

/// The most characters of a name, and of a name's prefix.
const SUBDOMAIN: usize = 253;
/// The most characters of a label's value, of the name in a key, and of a namespace.
const LABEL: usize = 63;

/// Checks the name of most objects: an RFC 1123 subdomain.
pub(crate) fn subdomain(name: &str) -> Option<&'static str> {
    let right = name.len() <= SUBDOMAIN && name.split('.').all(is_dns_word);
    (!right).then_some(
        "must be 1 to 253 characters of a-z, 0-9, '-' and '.', with a letter or a digit first and \
         last in every part",
    )
}

/// Whether this can be the name of a node, and of most other objects: an RFC 1123 subdomain.
pub fn is_subdomain(name: &str) -> bool {
    subdomain(name).is_none()
}

/// Checks the name of a namespace: an RFC 1123 label.
pub(crate) fn dns_label(name: &str) -> Option<&'static str> {
    let right = name.len() <= LABEL && is_dns_word(name);
    (!right).then_some(
        "must be 1 to 63 characters of a-z, 0-9 and '-', with a letter or a digit first and last",
    )
}

/// Checks the key of a label or an annotation: a name, with a DNS prefix or without.
pub(crate) fn key(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let right = prefix.is_none_or(|prefix| subdomain(prefix).is_none())
        && !name.is_empty()
        && is_label_word(name);
    (!right).then_some(
        "must be 1 to 63 characters of letters, digits, '-', '_' and '.', with a letter or a digit \
         first and last, after a DNS name and '/' if it has a prefix",
    )
}

/// Checks a key that must have a prefix, such as a finalizer.
pub(crate) fn prefixed_key(name: &str) -> Option<&'static str> {
    key(name).or((!name.contains('/')).then_some("must have a prefix, as in fairlead.dev/name"))
}

pub(crate) fn label_value(value: &str) -> Option<&'static str> {
    (!is_label_word(value)).then_some(
        "must be empty or up to 63 characters of letters, digits, '-', '_' and '.', with a letter \
         or a digit first and last",
    )
}

fn is_dns_word(word: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    framed(word.as_bytes(), plain, |b| plain(b) || *b == b'-') && !word.is_empty()
}

fn is_label_word(word: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    word.len() <= LABEL && framed(word.as_bytes(), u8::is_ascii_alphanumeric, inner)
}

/// Whether the first and the last byte are `edge` and all are `inner`; an empty word is.
fn framed(word: &[u8], edge: impl Fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    word.first().is_none_or(&edge) && word.last().is_none_or(&edge) && word.iter().all(inner)
}

#[cfg(test)]
mod tests;

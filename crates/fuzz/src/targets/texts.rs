//! Texts with a small language of their own, in objects, queries and headers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use objects::Selector;
use objects::kinds::admission_rule::{Quantity, regex, versions};
use objects::kinds::{GroupName, Ports};
use stallproof::Deadline;
use stallproof::deadline::Grant;

/// Timeouts in headers and queries: never more than is granted.
pub(super) fn timeouts(bytes: &[u8]) {
    let most = Duration::from_secs(60);
    let grant = Grant { unasked: Duration::from_secs(10), most };
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    for name in ["grpc-timeout", "request-timeout"] {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.clone())]);
        let query = std::str::from_utf8(bytes).ok();
        for deadline in [
            Deadline::of_grpc(&headers, grant).ok(),
            Deadline::of_http(&headers, query, grant).ok(),
        ] {
            assert!(deadline.is_none_or(|it| it.remaining() <= most));
        }
    }
}

/// A label selector: prints in a form that means the same.
pub(super) fn selector(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(selector) = text.parse::<Selector>() else { return };
    assert_eq!(selector.to_string().parse::<Selector>().as_ref(), Ok(&selector));
}

/// Quantities, two versions of a package, ports, names of groups.
pub(super) fn fields(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(quantity) = Quantity::parse(text) {
        assert!(quantity.millis() / 1000 <= quantity.whole());
        if let (false, Some(less)) =
            (text.starts_with(['-', '+']), Quantity::parse(&format!("-{text}")))
        {
            assert!(less <= quantity);
        }
    }
    let (one, other) = text.split_once('\n').unwrap_or((text, text));
    let (there, back) = (versions::compare(one, other), versions::compare(other, one));
    assert_eq!(there, back.map(std::cmp::Ordering::reverse));
    assert_eq!(versions::is_readable(one), versions::compare(one, one).is_some());
    let _ = GroupName::parse(text);
    if let Ok(ports) = text.parse::<Ports>() {
        assert!(ports.first <= ports.last);
        assert_eq!(ports.to_string().parse().as_ref(), Ok(&ports));
    }
}

/// A regular expression of a rule, and what it is held against: time and memory follow their lengths.
pub(super) fn expression(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (pattern, against) = text.split_once('\n').unwrap_or((text, text));
    let Ok(regex) = regex(pattern) else { return };
    let _ = regex.is_match(against.as_bytes());
}

//! How timeouts are spelled by callers.

use std::time::Duration;

use http::HeaderMap;

const SECOND: u64 = 1_000_000_000;

/// A timeout that cannot be read. Answer 400 or `INVALID_ARGUMENT`; the text says what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTimeout {
    #[error("grpc-timeout {0:?} is not 1 to 8 digits and one of H, M, S, m, u, n, such as 10S")]
    Grpc(String),
    #[error("{field} {value:?} is not a number of seconds or a duration, such as 10, 0.5 or 1m30s")]
    Http { field: &'static str, value: String },
}

/// Zero is a timeout here: clients send `0n` when their own deadline has just passed.
pub(super) fn grpc(headers: &HeaderMap) -> Result<Option<Duration>, BadTimeout> {
    let Some(value) = headers.get("grpc-timeout") else {
        return Ok(None);
    };
    parse_grpc(value.as_bytes()).map(Some).ok_or_else(|| BadTimeout::Grpc(quoted(value.as_bytes())))
}

fn parse_grpc(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) {
        return None;
    }
    let unit = match unit {
        b'H' => 3600 * SECOND,
        b'M' => 60 * SECOND,
        b'S' => SECOND,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    let count = whole(digits)?;
    // 99,999,999 hours exceed the nanoseconds of a u64; they are cut to what is granted anyway.
    Some(Duration::from_nanos(count.saturating_mul(unit)))
}

pub(super) fn http(
    headers: &HeaderMap,
    query: Option<&str>,
) -> Result<Option<Duration>, BadTimeout> {
    let header = |field: &'static str| headers.get(field).map(|value| (field, value.as_bytes()));
    let query = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .find_map(|pair| pair.strip_prefix("timeout="))
        .map(|value| ("timeout", value.as_bytes()));

    let mut shortest = None;
    for (field, value) in
        [header("request-timeout"), header("x-request-timeout"), query].into_iter().flatten()
    {
        let asked =
            parse_http(value).ok_or_else(|| BadTimeout::Http { field, value: quoted(value) })?;
        if !asked.is_zero() {
            shortest = Some(shortest.map_or(asked, |other: Duration| other.min(asked)));
        }
    }
    Ok(shortest)
}

/// `10`, `0.5`, `10s`, `1m30s`, `1.5h`, `250ms`: seconds, or Go's durations without a sign.
fn parse_http(value: &[u8]) -> Option<Duration> {
    let mut rest = value;
    let mut nanos = 0_u64;
    loop {
        let digits = rest.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.iter().take_while(|b| b.is_ascii_alphabetic()).count();
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            b"h" => 3600 * SECOND,
            b"m" => 60 * SECOND,
            b"s" => SECOND,
            // A bare number stands alone: `1m30` is a slip, not 90 s.
            b"" if digits == value.len() => SECOND,
            b"ms" => 1_000_000,
            b"us" => 1_000,
            b"ns" => 1,
            _ => return None,
        };
        nanos = nanos.saturating_add(scaled(number, unit)?);
        if tail.is_empty() {
            return Some(Duration::from_nanos(nanos));
        }
        rest = tail;
    }
}

/// A decimal number of `unit` nanoseconds.
fn scaled(number: &[u8], unit: u64) -> Option<u64> {
    let point = number.iter().position(|b| *b == b'.');
    let (integer, fraction) = match point {
        Some(at) => (&number[..at], &number[at + 1..]),
        None => (number, &b""[..]),
    };
    if integer.is_empty() || point.is_some_and(|at| at + 1 == number.len()) {
        return None;
    }
    let mut nanos = whole(integer)?.saturating_mul(unit);
    let mut place = unit;
    for digit in fraction {
        let digit = whole(std::slice::from_ref(digit))?;
        place /= 10;
        nanos = nanos.saturating_add(digit * place);
    }
    Some(nanos)
}

/// Digits as a number; one too large for a `u64` is as good as the largest.
fn whole(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// The caller's own bytes, short enough to be sent back.
fn quoted(value: &[u8]) -> String {
    String::from_utf8_lossy(&value[..value.len().min(32)]).into_owned()
}

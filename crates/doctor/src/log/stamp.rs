//! Times as logs write them, to milliseconds since the epoch.
//!
//! Every reader takes what stands at the start of the bytes and returns the rest. A time without a
//! zone is taken as UTC. A time without a year (klog, syslog) gets the year that puts it nearest
//! before a reference: the last dated line, or when the file was written.

const DAY: i64 = 86_400_000;

/// Milliseconds since the epoch.
pub(crate) type Millis = i64;

/// Reads a time in any of the forms below from the start of `text`.
pub(crate) fn stamp(text: &[u8], reference: Option<Millis>) -> Option<(Millis, &[u8])> {
    dated(text)
        .or_else(|| klog(text, reference))
        .or_else(|| syslog(text, reference))
}

/// `2025-01-26T13:09:02.525Z`, `2025-01-26 13:09:02,525 +0100`, `2025/01/26 13:09:02`.
pub(crate) fn dated(text: &[u8]) -> Option<(Millis, &[u8])> {
    let (year, rest) = digits(text, 4)?;
    let (&separator, rest) = rest
        .split_first()
        .filter(|(b, _)| matches!(b, b'-' | b'/'))?;
    let (month, rest) = digits(rest, 2)?;
    let rest = rest.strip_prefix(&[separator])?;
    let (day, rest) = digits(rest, 2)?;
    let (b'T' | b't' | b' ', rest) = rest.split_first()? else {
        return None;
    };
    let (of_day, rest) = clock(rest)?;
    let (offset, rest) = zone(rest);
    Some((civil(year, month, day)? + of_day - offset, rest))
}

/// klog's `I0126 13:09:02.525123`, after its level letter was taken.
pub(crate) fn klog(text: &[u8], reference: Option<Millis>) -> Option<(Millis, &[u8])> {
    let (month, rest) = digits(text, 2)?;
    let (day, rest) = digits(rest, 2)?;
    let rest = rest.strip_prefix(b" ")?;
    let (of_day, rest) = clock(rest)?;
    Some((nearest_before(month, day, reference)? + of_day, rest))
}

/// `Jan 26 13:09:02`.
fn syslog(text: &[u8], reference: Option<Millis>) -> Option<(Millis, &[u8])> {
    const MONTHS: [&[u8; 3]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let name = text.get(..3)?;
    let month = MONTHS.iter().position(|m| *m == name)? as i64 + 1;
    let rest = text[3..].strip_prefix(b" ")?;
    let (day, rest) = match rest.strip_prefix(b" ") {
        Some(rest) => digits(rest, 1)?,
        None => digits(rest, 2).or_else(|| digits(rest, 1))?,
    };
    let rest = rest.strip_prefix(b" ")?;
    let (of_day, rest) = clock(rest)?;
    Some((nearest_before(month, day, reference)? + of_day, rest))
}

/// An epoch as JSON loggers write it, in seconds, milli-, micro- or nanoseconds.
pub(crate) fn epoch(text: &[u8]) -> Option<Millis> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Between 2001 and 2286 the number of digits tells the unit.
    let millis = match value {
        v if v >= 1e18 => v / 1e6,
        v if v >= 1e15 => v / 1e3,
        v if v >= 1e12 => v,
        v if v >= 1e9 => v * 1e3,
        _ => return None,
    };
    Some(millis as Millis)
}

/// `13:09:02` with any fraction, and the blanks that pad it.
fn clock(text: &[u8]) -> Option<(Millis, &[u8])> {
    let (hour, rest) = digits(text, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(b":")?, 2)?;
    let (second, rest) = digits(rest.strip_prefix(b":")?, 2)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut millis = 0;
    let mut rest = rest;
    if let [b'.' | b',', fraction @ ..] = rest {
        let len = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        for i in 0..3 {
            millis = millis * 10 + fraction[..len].get(i).map_or(0, |b| i64::from(b - b'0'));
        }
        if len > 0 {
            rest = &fraction[len..];
        }
    }
    Some((((hour * 60 + minute) * 60 + second) * 1000 + millis, rest))
}

/// `Z`, `+01:00`, ` +0100`: the offset from UTC. Anything else is none, and UTC.
fn zone(text: &[u8]) -> (Millis, &[u8]) {
    if let [b'Z', rest @ ..] = text {
        return (0, rest);
    }
    let at = text.strip_prefix(b" ").unwrap_or(text);
    let parsed = at.split_first().and_then(|(sign, rest)| {
        let sign = match sign {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let (hours, rest) = digits(rest, 2)?;
        let (minutes, rest) = digits(rest.strip_prefix(b":").unwrap_or(rest), 2)?;
        (hours <= 14 && minutes <= 59).then_some((sign * (hours * 60 + minutes) * 60_000, rest))
    });
    parsed.unwrap_or((0, text))
}

fn digits(text: &[u8], count: usize) -> Option<(i64, &[u8])> {
    let (head, rest) = text.split_at_checked(count)?;
    let mut value = 0;
    for b in head {
        if !b.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(b - b'0');
    }
    Some((value, rest))
}

/// Days from civil, after Howard Hinnant; cheaper by far than a calendar library on every line.
fn civil(year: i64, month: i64, day: i64) -> Option<Millis> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let of_era = y.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days * DAY)
}

/// The latest such day that is not more than a day after the reference: clocks differ by zones.
fn nearest_before(month: i64, day: i64, reference: Option<Millis>) -> Option<Millis> {
    let reference = reference?;
    // Exact to a year, which is all that is asked of it.
    let guess = 1970 + reference.div_euclid(DAY) * 400 / 146_097;
    (guess - 1..=guess + 1)
        .rev()
        .filter_map(|year| civil(year, month, day))
        .find(|at| *at <= reference + DAY)
}

#[cfg(test)]
mod tests;

//! Figures as people read them.

use jiff::Timestamp;

use crate::log::stamp::Millis;
pub(crate) use crate::words::thousands as count;

/// Bytes in the unit in which they were meant: `6 GiB` where even, else `109.6 GB`.
pub(crate) fn bytes(n: f64) -> String {
    const BINARY: [(f64, &str); 3] = [
        (1_073_741_824.0, "GiB"),
        (1_048_576.0, "MiB"),
        (1024.0, "KiB"),
    ];
    const DECIMAL: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    if let Some((unit, name)) = BINARY
        .iter()
        .find(|(unit, _)| n >= *unit && n % unit == 0.0)
        && n / unit < 4096.0
    {
        return format!("{} {name}", n / unit);
    }
    match DECIMAL.iter().find(|(unit, _)| n >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", n / unit),
        None => format!("{n:.0} bytes"),
    }
}

/// Seconds in the coarsest unit that loses nothing that matters.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 300.0 => format!("{s:.0} s"),
        s if s < 2.0 * 3600.0 => format!("{:.0} min", s / 60.0),
        s if s < 2.0 * 86_400.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

pub(crate) fn timestamp(at: Option<Millis>) -> Option<Timestamp> {
    Timestamp::from_millisecond(at?).ok()
}

/// `1 pod`, `3 pods`.
pub(crate) fn many(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(
            [count(0), count(999), count(28_034), count(1_000_000)],
            ["0", "999", "28,034", "1,000,000"]
        );
        assert_eq!(bytes(6_442_450_944.0), "6 GiB");
        assert_eq!(bytes(109_572_132_864.0), "109.6 GB");
        assert_eq!(bytes(12.0), "12 bytes");
        assert_eq!(
            [seconds(0.25), seconds(120.0), seconds(54_000.0)],
            ["250 ms", "120 s", "15.0 h"]
        );
    }
}

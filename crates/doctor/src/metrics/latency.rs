//! How long calls take, from wherever it is told, and the one shape that gives a stall away: all of
//! them, the successful too, take as long as the client is willing to wait.

use crate::log::At;
use crate::report::Evidence;

use super::prometheus::number;

/// Durations folded into a sketch of fixed size, exact to a few per cent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latency {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    /// By powers of 1.02 from a millisecond up; made on first use.
    buckets: Vec<u32>,
}

const BASE: f64 = 1.02;
const BUCKETS: usize = 1024;

impl Latency {
    pub(crate) fn add(&mut self, seconds: f64) {
        if !(0.0..1e9).contains(&seconds) {
            return;
        }
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS];
        }
        (self.min, self.max) = match self.count {
            0 => (seconds, seconds),
            _ => (self.min.min(seconds), self.max.max(seconds)),
        };
        self.count += 1;
        self.sum += seconds;
        let at = ((seconds.max(1e-3) / 1e-3).ln() / BASE.ln()) as usize;
        let bucket = &mut self.buckets[at.min(BUCKETS - 1)];
        *bucket = bucket.saturating_add(1);
    }

    fn quantile(&self, q: f64) -> f64 {
        let wanted = (self.count as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return (1e-3 * BASE.powf(at as f64 + 0.5)).clamp(self.min, self.max);
            }
        }
        self.max
    }

    pub(crate) fn row(&self, what: &str, evidence: &Evidence) -> LatencyRow {
        LatencyRow {
            what: what.to_owned(),
            count: self.count as f64,
            min: Some(self.min),
            p50: self.quantile(0.5),
            p95: Some(self.quantile(0.95)),
            max: Some(self.max),
            evidence: evidence.clone(),
        }
    }
}

/// What is known of the latency of one kind of call, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LatencyRow {
    pub(crate) what: String,
    pub(crate) count: f64,
    pub(crate) min: Option<f64>,
    pub(crate) p50: f64,
    pub(crate) p95: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) evidence: Evidence,
}

/// What people set as deadlines, in seconds.
const DEADLINES: &[f64] = &[
    2.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 45.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0,
    300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0,
];

impl LatencyRow {
    /// The deadline that all of these calls run into, if they do: the spread is a tenth at most,
    /// and the middle lies at or just over a figure that people set.
    pub(crate) fn pinned(&self) -> Option<f64> {
        let high = self.p95.or(self.max)?;
        let narrow = high <= 1.1 * self.p50 && self.min.is_none_or(|min| min >= 0.85 * self.p50);
        if self.count < 20.0 || !narrow {
            return None;
        }
        DEADLINES
            .iter()
            .copied()
            .find(|d| (0.985 * d..1.05 * d).contains(&self.p50))
    }
}

/// A duration as Go, Prometheus or a person writes it, in milliseconds; `unit` is what a bare
/// number means.
pub(crate) fn duration_ms(text: &str, unit: f64) -> Option<f64> {
    let text = text.trim();
    if let Ok(bare) = text.parse::<f64>() {
        return (bare.is_finite() && bare >= 0.0).then_some(bare * unit);
    }
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let value: f64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |at| digits + at);
        total += value * unit_ms(rest[digits..letters].trim())?;
        rest = &rest[letters..];
    }
    (total > 0.0).then_some(total)
}

fn unit_ms(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-6,
        "us" | "µs" | "μs" => 1e-3,
        "ms" | "msec" => 1.0,
        "s" | "sec" | "seconds" | "secs" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        _ => return None,
    })
}

/// A table of latencies: the columns that its head names.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    columns: Vec<Column>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Column {
    Count,
    Min,
    P50,
    P95,
    Max,
    Other,
}

impl Table {
    /// Reads a head such as `n min p50 p95 max mean`, also as a row of Markdown.
    pub(crate) fn head(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line)
            .ok()
            .filter(|l| l.len() < 400)?
            .to_ascii_lowercase();
        let mut columns = Vec::new();
        for word in line.split(|c: char| c.is_whitespace() || matches!(c, '|' | ',')) {
            columns.push(match word {
                "" => continue,
                "n" | "count" | "calls" | "requests" => Column::Count,
                "min" => Column::Min,
                "p50" | "median" | "50%" | "p50(s)" => Column::P50,
                "p95" | "p99" | "95%" | "99%" => Column::P95,
                "max" | "100%" => Column::Max,
                "mean" | "avg" | "p75" | "p90" | "p999" | "p99.9" | "75%" | "90%" | "stddev" => {
                    Column::Other
                }
                // The head over the names of the rows.
                _ if columns.is_empty() => continue,
                _ => return None,
            });
        }
        let has = |c| columns.contains(&c);
        (columns.len() >= 3 && has(Column::P50) && (has(Column::P95) || has(Column::Max)))
            .then_some(Self { columns })
    }

    /// Reads a row of it: a name, then a figure for each column.
    pub(crate) fn row(&self, at: At<'_>) -> Option<LatencyRow> {
        let line = std::str::from_utf8(at.bytes)
            .ok()
            .filter(|l| l.len() < 800)?
            .replace('|', " ");
        let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
        let mut figures = Vec::new();
        for column in self.columns.iter().rev() {
            let word = words.pop()?;
            let bare = if *column == Column::Count {
                1.0
            } else {
                1000.0
            };
            let unit = match unit_ms(word) {
                Some(unit) => Some((unit, words.pop()?)),
                None => None,
            };
            let value = match unit {
                Some((unit, word)) => number(word)? * unit,
                None if *column == Column::Count => number(&word.replace(',', ""))?,
                None => duration_ms(word, bare)?,
            };
            figures.push((
                *column,
                if *column == Column::Count {
                    value
                } else {
                    value / 1000.0
                },
            ));
        }
        let figure = |wanted| {
            figures
                .iter()
                .rev()
                .find(|(c, _)| *c == wanted)
                .map(|(_, v)| *v)
        };
        Some(LatencyRow {
            what: words.join(" "),
            count: figure(Column::Count).unwrap_or(f64::INFINITY),
            min: figure(Column::Min),
            p50: figure(Column::P50)?,
            p95: figure(Column::P95),
            max: figure(Column::Max),
            evidence: at.evidence(),
        })
    }
}

#[cfg(test)]
mod tests;

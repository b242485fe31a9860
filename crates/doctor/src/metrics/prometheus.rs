//! One line of Prometheus text, as exporters write it and as people paste it: with underscores in
//! the number, and with remarks behind it.

use crate::log::stamp::{self, Millis};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// The name and its labels, in one spelling.
    pub(crate) key: String,
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
    pub(crate) at: Option<Millis>,
}

impl Sample {
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        // Labels may hold anything but are text; what is longer than this is no sample.
        if line.len() > 16_384 {
            return None;
        }
        let line = std::str::from_utf8(line).ok()?.trim();
        let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
        let (name, rest) = line.split_at(end);
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            // Without labels only the underscore tells a metric from a word with a number behind.
            None if !name.contains('_') => return None,
            None => (Vec::new(), rest),
        };
        if !rest.starts_with([' ', '\t']) {
            return None;
        }
        let mut words = rest.split_ascii_whitespace();
        let value = number(words.next()?)?;
        let at = match words.next() {
            None => None,
            Some(word) if word.starts_with(['(', '#', '~', '/', '<', '-', '←']) => None,
            Some(word) => {
                if words.next().is_some() && !word.chars().all(|c| c.is_ascii_digit()) {
                    return None;
                }
                Some(stamp::epoch(word.as_bytes())?)
            }
        };
        let mut sorted = labels.clone();
        sorted.sort();
        let mut key = name.to_owned();
        for (label, value) in &sorted {
            key.push('\u{1}');
            key.push_str(label);
            key.push('=');
            key.push_str(value);
        }
        Some(Self {
            key,
            name: name.to_owned(),
            labels,
            value,
            at,
        })
    }
}

/// A number as Go or a person writes it.
pub(crate) fn number(word: &str) -> Option<f64> {
    let word = word.trim_end_matches([',', ';']);
    if !word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'N' | 'I')) {
        return None;
    }
    if word.contains('_') {
        word.replace('_', "").parse().ok()
    } else {
        word.parse().ok()
    }
}

type Labels = Vec<(String, String)>;

fn labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = after.trim_start().strip_prefix('"')?.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => match chars.next()? {
                    'n' => value.push('\n'),
                    c => value.push(c),
                },
                c => value.push(c),
            }
        }
        labels.push((name.trim().to_owned(), value));
        rest = chars.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_as_exporters_and_people_write_them() {
        for (line, name, labels, value, at) in [
            (
                "go_goroutines                                562",
                "go_goroutines",
                0,
                562.0,
                None,
            ),
            (
                "process_resident_memory_bytes  195_862_528  (~187 MiB)",
                "process_resident_memory_bytes",
                0,
                195_862_528.0,
                None,
            ),
            (
                r#"a_total{m="Add", code="Internal"}  42099   (70 %)"#,
                "a_total",
                2,
                42099.0,
                None,
            ),
            (
                r#"up{x="a\"}b"} 1 1737896942525"#,
                "up",
                1,
                1.0,
                Some(1_737_896_942_525),
            ),
            ("x_seconds{} +Inf", "x_seconds", 0, f64::INFINITY, None),
            ("x_seconds 1.5e-3", "x_seconds", 0, 0.0015, None),
        ] {
            let sample = Sample::parse(line.as_bytes()).expect(line);
            assert_eq!(sample.name, name);
            assert_eq!(sample.labels.len(), labels, "{line}");
            assert_eq!(sample.value, value, "{line}");
            assert_eq!(sample.at, at, "{line}");
        }
    }

    #[test]
    fn prose_and_logs_are_no_samples() {
        for line in [
            "go_goroutines = 562 vs. ~50 on healthy",
            "Version 2",
            "the 5 apples",
            "rpc_max 12 of which some",
            "a{b=\"c\" 1",
            "a_b{c=d} 1",
            "# HELP go_goroutines Number",
            "2025-01-26T13:09:02.525Z x 1",
            "",
        ] {
            assert_eq!(Sample::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_order_of_labels_does_not_matter() {
        let a = Sample::parse(br#"x{a="1",b="2"} 1"#).unwrap();
        let b = Sample::parse(br#"x{b="2",a="1"} 2"#).unwrap();
        assert_eq!(a.key, b.key);
    }
}

//! Metrics as text: OpenMetrics as prometheus-client writes it, or Prometheus' older text format
//! for whoever does not ask for OpenMetrics.

use std::collections::HashMap;
use std::fmt::Write;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

/// The two text formats, by their content types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    Prometheus,
    OpenMetrics,
}

impl Exposition {
    /// The format that an `Accept` header asks for.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    pub fn encode(self, registry: &Registry) -> Result<String, std::fmt::Error> {
        let mut open = String::new();
        text::encode(&mut open, registry)?;
        let mut out = String::with_capacity(open.len());
        for family in families(&open) {
            family.write(self, &mut out)?;
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        Ok(out)
    }
}

/// One metric with all its samples.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    unit: Option<&'a str>,
    samples: Vec<&'a str>,
}

/// prometheus-client writes a family anew for each part of the registry that has it (two gates,
/// say), which scrapers refuse: here it is put together again.
fn families(open: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut current = 0;
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(word), Some(name), Some(text)) => {
                current = *by_name.entry(name).or_insert_with(|| {
                    families.push(Family { name, ..Family::default() });
                    families.len() - 1
                });
                match word {
                    "HELP" => families[current].help = text,
                    "TYPE" => families[current].kind = text,
                    "UNIT" => families[current].unit = Some(text),
                    _ => {}
                }
            }
            (Some("#"), ..) => {}
            _ => families[current].samples.push(line),
        }
    }
    families
}

impl Family<'_> {
    /// In the older format a counter's family is named as its samples are (`x_total`), an info is a
    /// gauge (`x_info`), and there are no units.
    fn write(&self, format: Exposition, out: &mut String) -> std::fmt::Result {
        let Self { name, help, kind, unit, samples } = self;
        let (suffix, kind) = match (format, *kind) {
            (Exposition::Prometheus, "counter") => ("_total", "counter"),
            (Exposition::Prometheus, "info") => ("_info", "gauge"),
            (Exposition::Prometheus, "unknown") => ("", "untyped"),
            (_, kind) => ("", kind),
        };
        writeln!(out, "# HELP {name}{suffix} {help}")?;
        writeln!(out, "# TYPE {name}{suffix} {kind}")?;
        if let (Exposition::OpenMetrics, Some(unit)) = (format, unit) {
            writeln!(out, "# UNIT {name} {unit}")?;
        }
        samples.iter().try_for_each(|sample| writeln!(out, "{sample}"))
    }
}

#[cfg(test)]
mod tests;

//! Metrics as text: OpenMetrics as prometheus-client writes it, or Prometheus' older text format
//! for whoever does not ask for OpenMetrics.

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
        match self {
            Self::OpenMetrics => Ok(open),
            Self::Prometheus => older(&open),
        }
    }
}

/// Rewrites what differs in the older format: a counter's family is named as its samples are
/// (`x_total`), an info is a gauge (`x_info`), and there are no units and no end mark.
fn older(open: &str) -> Result<String, std::fmt::Error> {
    let mut out = String::with_capacity(open.len());
    let mut help: Option<(&str, &str)> = None;
    for line in open.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            writeln!(out, "{line}")?;
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), Some(text)) => help = Some((name, text)),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, text)) = help.take().filter(|(helped, _)| *helped == name) {
                    writeln!(out, "# HELP {name}{suffix} {text}")?;
                }
                writeln!(out, "# TYPE {name}{suffix} {kind}")?;
            }
            _ => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;

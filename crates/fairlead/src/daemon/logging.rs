//! Structured logs: human on a terminal, JSON otherwise, level changeable while running.
//!
//! Lines go through a bounded buffer to a thread of their own: when whoever reads our stderr stops
//! reading, lines are dropped and counted, and no worker waits.
//!
//! A line is a line: what a cluster or a stranger said in it is written without its control characters.
//!
//! A line that an operation writes shows its kind, key, tenant and id: as `op{…}` before the message
//! for people, and under `spans` in JSON, the outermost operation first.

use std::fmt;
use std::io::IsTerminal;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tracing::field::Field;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, reload};

use crate::config::{Log, LogFormat};

/// Lines that may wait for a slow reader of stderr: about 10 MiB of ordinary lines.
const BUFFERED_LINES: usize = 32_768;

/// Keeps the log alive; dropping it writes out what is buffered.
#[derive(Debug)]
pub(crate) struct Logging {
    pub(crate) level: LevelHandle,
    dropped: ErrorCounter,
    _writer: WorkerGuard,
}

impl Logging {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Log lines dropped because nobody read them in time";
        registry.register("log_lines_dropped", help, Dropped(self.dropped.clone()));
    }
}

/// The appender's own count, as a metric.
#[derive(Debug)]
struct Dropped(ErrorCounter);

impl EncodeMetric for Dropped {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.encode_counter::<NoLabelSet, u64, u64>(&(self.0.dropped_lines() as u64), None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// Reads and changes what is logged.
#[derive(Clone, Debug)]
pub(crate) struct LevelHandle(reload::Handle<EnvFilter, tracing_subscriber::Registry>);

impl LevelHandle {
    pub(crate) fn get(&self) -> String {
        self.0.with_current(ToString::to_string).unwrap_or_default()
    }

    pub(crate) fn set(&self, directives: &str) -> Result<(), String> {
        let filter = parse(directives).map_err(|e| e.to_string())?;
        self.0.reload(filter).map_err(|e| e.to_string())
    }
}

pub(crate) fn parse(directives: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(directives)
}

pub(crate) fn start(log: &Log) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(BUFFERED_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(std::io::stderr());
    let dropped = writer.error_counter();
    let filter = parse(&log.level).expect("the level was checked with the configuration");
    let (filter, handle) = reload::Layer::new(filter);
    let terminal = std::io::stderr().is_terminal();
    let human = match log.format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    tracing_subscriber::registry().with(filter).with(lines(writer, human, terminal)).init();
    Logging { level: LevelHandle(handle), dropped, _writer: guard }
}

fn lines<S, W>(writer: W, human: bool, color: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    if human {
        let fields = format::debug_fn(write_field).delimited(" ");
        return layer.with_ansi(color).fmt_fields(fields).boxed();
    }
    // The list of spans has the current one, too.
    layer.json().flatten_event(true).with_current_span(false).boxed()
}

/// Writes a field, or the message, on one line: what somebody else said in it cannot look like a line of
/// ours, nor speak to the terminal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    for character in format!("{value:?}").chars() {
        if character.is_control() {
            write!(writer, "{}", character.escape_default())?;
        } else {
            writer.write_char(character)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

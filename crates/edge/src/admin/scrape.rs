//! `Scrape`: metrics as text, written at most so often that other pages of the admin port do not wait.
//!
//! Contract: a text is handed out again for twenty times as long as it took to write, so that however
//! many ask, writing takes a twentieth of the thread that also answers probes. Where that takes a
//! millisecond, nobody sees a figure that is older than twenty.

use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use crate::exposition::Exposition;

/// How many times as long as it took to write a text stands.
const STANDS: u32 = 20;

/// The last text of each format. Written and read by the admin thread alone.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    prometheus: Mutex<Option<Written>>,
    open_metrics: Mutex<Option<Written>>,
}

#[derive(Clone, Debug)]
struct Written {
    text: Bytes,
    until: Instant,
}

impl Scrape {
    pub(super) fn text(
        &self,
        format: Exposition,
        registry: &Registry,
    ) -> Result<Bytes, std::fmt::Error> {
        self.text_at(format, registry, Instant::now)
    }

    fn text_at(
        &self,
        format: Exposition,
        registry: &Registry,
        clock: impl Fn() -> Instant,
    ) -> Result<Bytes, std::fmt::Error> {
        let last = match format {
            Exposition::Prometheus => &self.prometheus,
            Exposition::OpenMetrics => &self.open_metrics,
        };
        let began = clock();
        if let Some(written) = last.lock().as_ref().filter(|written| began < written.until) {
            return Ok(written.text.clone());
        }
        let text = Bytes::from(format.encode(registry)?);
        let ended = clock();
        let took = ended.saturating_duration_since(began).min(Duration::from_secs(1));
        *last.lock() = Some(Written { text: text.clone(), until: ended + took * STANDS });
        Ok(text)
    }
}

#[cfg(test)]
mod tests;

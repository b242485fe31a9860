//! Metrics of logins, decisions and sessions.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::access::LoginError;
use crate::password::PasswordUnchecked;
use crate::role::Decision;
use crate::session::OpenedSession;

type ByLabel = Family<[(&'static str, &'static str); 1], Counter>;

#[derive(Debug)]
pub(crate) struct Metrics {
    logins: ByLabel,
    refused: ByLabel,
    // Looked up once, because a family is a locked map and decisions are many.
    denied: Counter,
    not_allowed: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let refused = ByLabel::default();
        let reason = |reason| refused.get_or_create(&[("reason", reason)]).clone();
        let (denied, not_allowed) = (reason("denied"), reason("not_allowed"));
        Self { logins: ByLabel::default(), refused, denied, not_allowed }
    }
}

impl Metrics {
    pub(crate) fn login(&self, outcome: &Result<OpenedSession, LoginError>) {
        let result = match outcome {
            Ok(_) => "ok",
            Err(LoginError::Wrong) => "wrong",
            Err(LoginError::BadCode) => "bad_code",
            Err(LoginError::ByToken) => "by_token",
            Err(LoginError::Limited { .. }) => "limited",
            Err(LoginError::PasswordUnchecked(PasswordUnchecked::Busy { .. })) => "busy",
            Err(LoginError::PasswordUnchecked(PasswordUnchecked::TooLate)) => "too_late",
            Err(LoginError::NotReady { .. }) => "not_ready",
        };
        self.logins.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn decided(&self, decision: &Decision) {
        match decision {
            Decision::Allowed { .. } => {}
            Decision::Denied { .. } => {
                self.denied.inc();
            }
            Decision::NotAllowed => {
                self.not_allowed.inc();
            }
        }
    }

    pub(crate) fn register(
        &self,
        registry: &mut Registry,
        sessions: impl Fn() -> usize + Send + Sync + 'static,
    ) {
        registry.register("access_logins", "Logins by result", self.logins.clone());
        let help = "Decisions that were a no, by reason";
        registry.register("access_refused", help, self.refused.clone());
        registry.register_collector(Box::new(Count(sessions)));
    }
}

/// A gauge that is computed when metrics are read.
struct Count<F>(F);

impl<F: Fn() -> usize + Send + Sync + 'static> Collector for Count<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(i64::try_from((self.0)()).unwrap_or(i64::MAX));
        let help = "Sessions that are kept";
        let metric =
            encoder.encode_descriptor("access_sessions", help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }
}

impl<F> fmt::Debug for Count<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Count")
    }
}

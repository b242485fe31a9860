//! Metrics of logins, decisions and sessions.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::access::LoginError;
use crate::oidc::OidcError;
use crate::password::PasswordUnchecked;
use crate::role::Decision;

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
    /// Counts a login, by why there was none.
    pub(crate) fn login(&self, failed: Option<&LoginError>) {
        let result = match failed {
            None => "ok",
            Some(LoginError::Wrong) => "wrong",
            Some(LoginError::BadCode) => "bad_code",
            Some(LoginError::ByToken) => "by_token",
            Some(LoginError::ByProvider) => "by_provider",
            Some(LoginError::Limited { .. }) => "limited",
            Some(LoginError::PasswordUnchecked(PasswordUnchecked::Busy { .. })) => "busy",
            Some(LoginError::PasswordUnchecked(PasswordUnchecked::TooLate)) => "too_late",
            Some(LoginError::NotReady { .. }) => "not_ready",
        };
        self.logins.get_or_create(&[("result", result)]).inc();
    }

    /// Counts a login with an identity provider.
    pub(crate) fn oidc_login(&self, failed: Option<&OidcError>) {
        let result = failed.map_or("ok", OidcError::label);
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

//! `Readiness`: is each component ready, and if not, why?
//!
//! Contract: a component is on the list from the moment it is announced, not ready until it says
//! so, with a reason a person can act on. Asking is a snapshot read. Being not ready takes a
//! process out of a Service; it never restarts it (that is liveness, which the Watchdog judges).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::Snapshot;

#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Snapshot<BTreeMap<&'static str, State>>>);

#[derive(Clone, Debug)]
struct State {
    /// Why it is not ready; `None` when it is.
    missing: Option<String>,
    since: Instant,
}

/// One component's own entry. It leaves the list when dropped.
#[derive(Debug)]
pub struct Component {
    name: &'static str,
    readiness: Readiness,
}

/// Every component at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct ReadinessReport {
    pub ready: bool,
    pub components: Vec<ComponentReport>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ComponentReport {
    pub name: &'static str,
    pub ready: bool,
    /// Why it is not ready.
    pub reason: Option<String>,
    pub since_ms: u64,
}

impl Readiness {
    /// Puts a component on the list, not ready because it is starting. Names are unique: a second
    /// component of one name takes the place of the first.
    pub fn announce(&self, name: &'static str) -> Component {
        let component = Component { name, readiness: self.clone() };
        component.not_ready("starting");
        component
    }

    pub fn report(&self) -> ReadinessReport {
        let components: Vec<_> = self
            .0
            .load()
            .iter()
            .map(|(name, state)| ComponentReport {
                name,
                ready: state.missing.is_none(),
                reason: state.missing.clone(),
                since_ms: millis(state.since.elapsed()),
            })
            .collect();
        ReadinessReport { ready: components.iter().all(|c| c.ready), components }
    }
}

impl Component {
    pub fn ready(&self) {
        self.set(None);
    }

    /// `reason` completes "not ready: …".
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(Some(reason.into()));
    }

    fn set(&self, missing: Option<String>) {
        self.readiness.0.update(|components| {
            let same = components.get(self.name).is_some_and(|state| state.missing == missing);
            if !same {
                components.insert(self.name, State { missing, since: Instant::now() });
            }
            !same
        });
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.readiness.0.update(|components| components.remove(self.name).is_some());
    }
}

impl fmt::Display for ReadinessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in &self.components {
            match &c.reason {
                None => writeln!(f, "[+] {} ready", c.name)?,
                Some(reason) => writeln!(f, "[-] {} not ready: {reason}", c.name)?,
            }
        }
        f.write_str(if self.ready { "ready" } else { "not ready" })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

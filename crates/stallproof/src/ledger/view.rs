//! The values that a listing shows, copied outside every lock but the operation's own.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::warn;

use super::{Book, Entry, Folded, OpId, Outcome, Progress, Step, Wait};

/// Which operations to list.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    pub kind: Option<String>,
    pub tenant: Option<String>,
    /// The most to list; the oldest come first.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self { kind: None, tenant: None, limit: 1000 }
    }
}

/// An operation in flight, as it was at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpView {
    pub id: OpId,
    pub kind: &'static str,
    pub key: String,
    pub tenant: String,
    pub age_ms: u64,
    /// The step it is in, and for how long.
    pub step: &'static str,
    pub step_age_ms: u64,
    /// The steps it has ended, in order; if they were too many to keep, the last is their sum.
    pub steps: Vec<StepView>,
    pub waits_on: Option<WaitView>,
    pub late: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepView {
    pub name: String,
    pub ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitView {
    pub what: String,
    pub holder: Option<OpId>,
    /// The holder and its step, if it is still in flight.
    pub holder_doing: Option<String>,
}

impl Filter {
    pub(super) fn admits(&self, entry: &Entry) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == entry.tenant)
    }
}

impl Book {
    pub(super) fn view(&self, entry: &Entry, now: Instant) -> OpView {
        let late_after = self.kind(entry.kind).meters.late_after();
        let seen = entry.look();
        let age = now.saturating_duration_since(entry.began);
        OpView {
            id: entry.id,
            kind: entry.kind,
            key: entry.key.to_string(),
            tenant: entry.tenant.to_string(),
            age_ms: ms(age),
            step: seen.step,
            step_age_ms: ms(now.saturating_duration_since(seen.since)),
            steps: step_views(&seen.ended, seen.folded),
            waits_on: seen.waits_on.map(|wait| self.view_wait(&wait, now)),
            late: seen.late || age >= late_after,
        }
    }

    fn view_wait(&self, wait: &Wait, now: Instant) -> WaitView {
        let doing = |holder: Arc<Entry>| {
            let seen = holder.look();
            let Entry { kind, key, tenant, .. } = &*holder;
            let since = now.saturating_duration_since(seen.since);
            format!("{kind} {key} of {tenant}, in {} for {since:.1?}", seen.step)
        };
        WaitView {
            what: wait.what.to_string(),
            holder: wait.holder,
            holder_doing: wait.holder.and_then(|id| self.find(id)).map(doing),
        }
    }
}

impl Entry {
    /// A copy of how far it has come.
    fn look(&self) -> Progress {
        let progress = self.progress.lock();
        Progress {
            step: progress.step,
            since: progress.since,
            ended: progress.ended.clone(),
            folded: progress.folded,
            waits_on: progress.waits_on.clone(),
            late: progress.late,
        }
    }
}

impl OpView {
    pub(super) fn log_late(&self) {
        let waits_on = self.waits_on.as_ref();
        warn!(
            age_ms = self.age_ms,
            step = self.step,
            step_age_ms = self.step_age_ms,
            waits_on = waits_on.map(|wait| wait.what.as_str()),
            held_by = waits_on.and_then(|wait| wait.holder_doing.as_deref()),
            "operation is late"
        );
    }
}

pub(super) fn log_late_end(entry: &Entry, last: Step, took: Duration, outcome: Outcome) {
    let seen = entry.look();
    let mut steps = step_views(&seen.ended, seen.folded);
    steps.push(last.into());
    let steps: Vec<_> = steps.iter().map(|step| format!("{} {} ms", step.name, step.ms)).collect();
    warn!(
        took_ms = ms(took),
        outcome = outcome.name(),
        steps = steps.join(", "),
        "late operation ended"
    );
}

impl From<Step> for StepView {
    fn from(step: Step) -> Self {
        Self { name: step.name.to_owned(), ms: ms(step.took) }
    }
}

fn step_views(ended: &[Step], folded: Folded) -> Vec<StepView> {
    let kept = ended.iter().map(|step| StepView::from(*step));
    let rest = (folded.steps > 0)
        .then(|| StepView { name: format!("({} more)", folded.steps), ms: ms(folded.took) });
    kept.chain(rest).collect()
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

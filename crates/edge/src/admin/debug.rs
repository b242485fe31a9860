//! The debug pages: operations in flight, stalls, locks, stacks, profiles and the log level.

use std::fmt::Write;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use stallproof::ledger::{Filter, OpView};
use stallproof::tracked_mutex::{LockView, locks};
use stallproof::watchdog::{Severity, Stall};
use stallproof::{Deadline, Tasks};

use super::{PATIENCE, Shared};
use crate::reply::{self, AdminQuery, FormatQuery};

/// A longer CPU profile says no more and keeps the process signalling itself.
const LONGEST_PROFILE: u64 = 120;
/// For the stacks of all threads; those that are not reached by then are told by their kernel state.
const STACK_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InFlight {
    format: Option<String>,
    kind: Option<String>,
    tenant: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct InFlightAnswer {
    in_flight: usize,
    by_kind: Vec<KindCount>,
    operations: Vec<OpView>,
}

#[derive(Debug, Serialize)]
struct KindCount {
    kind: &'static str,
    in_flight: usize,
}

pub(super) async fn inflight(
    State(admin): Shared,
    AdminQuery(asked): AdminQuery<InFlight>,
    headers: HeaderMap,
) -> Response {
    let default = Filter::default();
    let filter = Filter {
        limit: asked.limit.unwrap_or(default.limit).min(10_000),
        kind: asked.kind,
        tenant: asked.tenant,
    };
    let by_kind: Vec<_> = (admin.ledger.count().into_iter())
        .map(|(kind, in_flight)| KindCount { kind, in_flight })
        .collect();
    let answer = InFlightAnswer {
        in_flight: by_kind.iter().map(|k| k.in_flight).sum(),
        by_kind,
        operations: admin.ledger.in_flight(&filter),
    };
    if reply::wants_json(asked.format.as_deref(), &headers) {
        return reply::json(StatusCode::OK, &answer);
    }
    reply::text(StatusCode::OK, &inflight_table(&answer))
}

fn inflight_table(answer: &InFlightAnswer) -> String {
    let mut text = String::from(
        "AGE        LATE  KIND              TENANT            STEP (SINCE)                 KEY\n",
    );
    for op in &answer.operations {
        let step = format!("{} ({})", op.step, age(op.step_age_ms));
        let late = if op.late { "late" } else { "" };
        let _ = writeln!(
            text,
            "{:<9}  {late:<4}  {:<16}  {:<16}  {step:<27}  {}",
            age(op.age_ms),
            op.kind,
            op.tenant,
            op.key
        );
        if let Some(wait) = &op.waits_on {
            let holder =
                wait.holder_doing.as_deref().map_or(String::new(), |h| format!(", held by {h}"));
            let _ = writeln!(text, "           waits on {}{holder}", wait.what);
        }
    }
    let _ = write!(text, "{} in flight, {} shown", answer.in_flight, answer.operations.len());
    text
}

fn age(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms}ms"),
        10_000..600_000 => format!("{}s", ms / 1000),
        _ => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
    }
}

#[derive(Debug, Serialize)]
struct StallAnswer {
    name: String,
    critical: bool,
    stalled_ms: u64,
    fails_liveness: bool,
}

impl From<Stall> for StallAnswer {
    fn from(stall: Stall) -> Self {
        Self {
            critical: stall.severity == Severity::Critical,
            stalled_ms: u64::try_from(stall.stalled_for.as_millis()).unwrap_or(u64::MAX),
            fails_liveness: stall.failing,
            name: stall.name.into_owned(),
        }
    }
}

pub(super) async fn stalls(
    State(admin): Shared,
    AdminQuery(asked): AdminQuery<FormatQuery>,
    headers: HeaderMap,
) -> Response {
    let stalls: Vec<StallAnswer> = admin.watchdog.stalls().into_iter().map(Into::into).collect();
    if reply::wants_json(asked.format.as_deref(), &headers) {
        return reply::json(StatusCode::OK, &serde_json::json!({ "stalls": stalls }));
    }
    let mut text = String::new();
    for stall in &stalls {
        let critical = if stall.critical { "critical" } else { "noted" };
        let _ = writeln!(text, "{:<9}  {critical:<8}  {}", age(stall.stalled_ms), stall.name);
    }
    let _ = write!(text, "{} stalled", stalls.len());
    reply::text(StatusCode::OK, &text)
}

pub(super) async fn locks_held(
    AdminQuery(asked): AdminQuery<FormatQuery>,
    headers: HeaderMap,
) -> Response {
    let locks = locks();
    if reply::wants_json(asked.format.as_deref(), &headers) {
        return reply::json(StatusCode::OK, &serde_json::json!({ "locks": locks }));
    }
    reply::text(StatusCode::OK, &locks_table(&locks))
}

fn locks_table(locks: &[LockView]) -> String {
    let mut text =
        String::from("CLASS                     LOCKS  TAKEN         CONTENDED   WAITING\n");
    for lock in locks {
        let LockView { class, instances, acquisitions, contended, waiting, held } = lock;
        let _ = writeln!(
            text,
            "{class:<24}  {instances:<5}  {acquisitions:<12}  {contended:<10}  {waiting}"
        );
        for hold in held {
            let held = hold.held_ms.map_or(String::new(), |ms| format!(" for {}", age(ms)));
            let _ = write!(text, "  held by {}{held}", hold.holder);
            if let Some(waiter) = &hold.waiter {
                let waited =
                    hold.waiting_ms.map_or(String::new(), |ms| format!(" for {}", age(ms)));
                let _ = write!(text, "; {} wait, longest {waiter}{waited}", hold.waiting);
            }
            text.push('\n');
        }
    }
    let _ = write!(text, "{} classes of locks", locks.len());
    text
}

pub(super) async fn stacks() -> Response {
    match kernel::threads::stacks(STACK_PATIENCE) {
        Ok(stacks) => {
            let text: String = stacks.iter().map(|thread| format!("{thread}\n")).collect();
            reply::text(StatusCode::OK, &text)
        }
        Err(error) => reply::text(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the stacks cannot be taken: {error}; try again"),
        ),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Profile {
    seconds: Option<u64>,
}

pub(super) async fn cpu_profile(
    State(admin): Shared,
    Extension(tasks): Extension<Tasks>,
    AdminQuery(asked): AdminQuery<Profile>,
) -> Response {
    let seconds = asked.seconds.unwrap_or(10);
    if !(1..=LONGEST_PROFILE).contains(&seconds) {
        let message = format!("seconds: expected 1 to {LONGEST_PROFILE}, found {seconds}");
        return reply::text(StatusCode::BAD_REQUEST, &message);
    }
    profile(admin.profiling, &tasks, move || kernel::profile::cpu(Duration::from_secs(seconds)))
        .await
}

pub(super) async fn heap_profile(
    State(admin): Shared,
    Extension(tasks): Extension<Tasks>,
) -> Response {
    profile(admin.profiling, &tasks, kernel::heap::profile).await
}

async fn profile<E: std::fmt::Display + Send + 'static>(
    allowed: bool,
    tasks: &Tasks,
    take: impl FnOnce() -> Result<Vec<u8>, E> + Send + 'static,
) -> Response {
    if !allowed {
        return reply::text(
            StatusCode::NOT_FOUND,
            "profiles are off; start with --admin-profiling true (or FAIRLEAD_ADMIN_PROFILING=true)",
        );
    }
    // Off the thread that answers everybody else.
    let Ok(taking) = tasks.spawn_blocking("profile", Deadline::after(PATIENCE), take).await else {
        return reply::text(StatusCode::SERVICE_UNAVAILABLE, "too many profiles are being taken");
    };
    match taking.await {
        Ok(Ok(profile)) => {
            ([(header::CONTENT_TYPE, "application/octet-stream")], profile).into_response()
        }
        Ok(Err(error)) => reply::text(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(error) => reply::text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

pub(super) async fn log_level(State(admin): Shared) -> Response {
    reply::text(StatusCode::OK, &admin.log.get())
}

pub(super) async fn set_log_level(State(admin): Shared, body: String) -> Response {
    match admin.log.set(body.trim()) {
        Ok(()) => {
            tracing::info!(level = %admin.log.get(), "log level changed");
            reply::text(StatusCode::OK, &admin.log.get())
        }
        Err(problem) => reply::text(
            StatusCode::BAD_REQUEST,
            &format!(
                "{problem}; send a level such as debug, or directives such as info,fleet=debug"
            ),
        ),
    }
}

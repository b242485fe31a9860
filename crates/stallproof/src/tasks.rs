//! `Tasks`: the owner of every task.
//!
//! Contract:
//! - A task has a name, a group and a way to stop. `tokio::spawn` is called here and nowhere else.
//! - Groups form a tree; stopping a group stops the groups below it. Stopping is a request that each
//!   task sees ([`Stop`]); `shutdown` makes it, waits for the grace, names who did not leave, and
//!   aborts those. An abort takes effect where a task awaits: a blocked thread cannot be killed, and
//!   is reported as what it is.
//! - A panic ends its task and no other: it is caught, logged under the task's name and counted.
//!   An essential task is one without which its group is no use: when it ends, in whatever way, the
//!   group stops, and `Stop::reason` says why.
//! - Blocking work runs on threads of its own, [`BLOCKING`] at a time in one tree; who finds none
//!   free waits until its deadline.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::sync::Mutex;
use crate::{Deadline, Expired};

/// The most pieces of blocking work that run at once: well below tokio's 512 threads, so that what
/// libraries run there (name lookups, file reads) finds one.
pub const BLOCKING: usize = 64;
/// How long an aborted task gets to reach its next await before it counts as blocked.
const ABORT_GRACE: Duration = Duration::from_secs(1);
/// The most tasks that are named in the log when a shutdown was too slow for them.
const LINES: usize = 20;

/// A group of tasks. Clones are the same group.
#[derive(Clone)]
pub struct Tasks {
    tree: Arc<Tree>,
    group: Arc<Group>,
}

/// The state that all groups of a tree share.
struct Tree {
    running: Mutex<Running>,
    /// Notified whenever a task has ended.
    ended: Notify,
    blocking: Arc<Semaphore>,
    gauge: Gauge,
    panics: Counter,
}

#[derive(Default)]
struct Running {
    last: u64,
    /// By number, hence by age.
    tasks: BTreeMap<u64, Arc<Task>>,
}

struct Task {
    name: Cow<'static, str>,
    group: Arc<Group>,
    since: Instant,
    spawned_at: &'static Location<'static>,
    blocking: bool,
    /// Set as soon as tokio has the task.
    handle: OnceLock<AbortHandle>,
}

/// Held by the task itself, so that it leaves the tree however it ends.
struct Entered {
    tasks: Tasks,
    number: u64,
    task: Arc<Task>,
    essential: bool,
    end: End,
}

enum End {
    Finished,
    Panicked(String),
    /// Dropped before it was done.
    Aborted,
}

struct Group {
    name: Cow<'static, str>,
    above: Option<Arc<Group>>,
    stop: CancellationToken,
    reason: OnceLock<String>,
}

/// A task's view of its group: whether it should stop, and why.
#[derive(Clone)]
pub struct Stop(Arc<Group>);

/// The result of a task, once it has ended. Dropping this leaves the task to its group.
#[derive(Debug)]
pub struct TaskHandle<T>(JoinHandle<Result<T, TaskError>>);

/// Why a task has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("task panicked: {0}")]
    Panicked(String),
    #[error("task was aborted")]
    Aborted,
}

/// A task that is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    pub name: String,
    pub group: String,
    pub age_ms: u64,
    /// File and line.
    pub spawned_at: String,
    pub blocking: bool,
}

/// A task that did not leave within the grace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// With its groups, from the top: `fairlead/guard/ingest`.
    pub name: String,
    pub running_for: Duration,
    pub spawned_at: &'static Location<'static>,
    /// Even the abort did not reach it: its thread is blocked, and remains.
    pub blocked: bool,
}

impl Tasks {
    /// The top of a tree.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        let tree = Tree {
            running: Mutex::new(Running::default()),
            ended: Notify::new(),
            blocking: Arc::new(Semaphore::new(BLOCKING)),
            gauge: Gauge::default(),
            panics: Counter::default(),
        };
        let group = Group::new(name.into(), None, CancellationToken::new());
        Self { tree: Arc::new(tree), group }
    }

    /// A group below this one.
    #[must_use]
    pub fn child(&self, name: impl Into<Cow<'static, str>>) -> Self {
        let above = Some(Arc::clone(&self.group));
        let group = Group::new(name.into(), above, self.group.stop.child_token());
        Self { tree: Arc::clone(&self.tree), group }
    }

    /// Runs `work` as a task of this group. One that is spawned while the group stops still runs,
    /// to help the others leave, and sees at once that it should stop.
    #[track_caller]
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, work: F) -> TaskHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.start(name.into(), Location::caller(), false, work)
    }

    /// Like `spawn`, for a task without which the group is no use: when it ends, the group stops.
    #[track_caller]
    pub fn spawn_essential<F>(
        &self,
        name: impl Into<Cow<'static, str>>,
        work: F,
    ) -> TaskHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.start(name.into(), Location::caller(), true, work)
    }

    /// Runs `work` on a thread where it may block, once one is free. It cannot be aborted, so it
    /// should look at its [`Stop`] if it takes long.
    #[track_caller]
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        name: impl Into<Cow<'static, str>>,
        deadline: Deadline,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<TaskHandle<T>, Expired>> {
        let (name, site) = (name.into(), Location::caller());
        async move {
            let slots = Arc::clone(&self.tree.blocking);
            let slot = deadline.bound(slots.acquire_owned()).await?;
            let entered = self.enter(name, site, true, false);
            let task = Arc::clone(&entered.task);
            let handle = tokio::task::spawn_blocking(move || {
                let _slot = slot.expect("the semaphore is never closed");
                entered.ended(catch_unwind(AssertUnwindSafe(work)))
            });
            Ok(task.started(handle))
        }
    }

    pub fn stopping(&self) -> Stop {
        Stop(Arc::clone(&self.group))
    }

    /// Asks every task of this group and below to stop. The first reason stays.
    pub fn stop(&self, reason: impl Into<String>) {
        if self.group.stop.is_cancelled() {
            return;
        }
        let reason = self.group.reason.get_or_init(|| reason.into());
        info!(group = self.group.path(), reason, "stopping");
        self.group.stop.cancel();
    }

    /// Stops the group and waits until its tasks have left, for `grace` at most; then names those
    /// that have not, and aborts them.
    pub async fn shutdown(&self, grace: Duration) -> Vec<Leftover> {
        self.stop("shutdown");
        if self.emptied(grace).await {
            return Vec::new();
        }
        let late = self.running();
        let now = Instant::now();
        for task in late.iter().take(LINES) {
            let (name, running_ms) = (task.path(), ms(now - task.since));
            warn!(task = name, running_ms, spawned_at = %task.spawned_at, "did not stop in time");
        }
        if late.len() > LINES {
            warn!(more = late.len() - LINES, "more tasks did not stop in time");
        }
        late.iter().for_each(|task| task.abort());

        self.emptied(ABORT_GRACE).await;
        let rest = self.running();
        // Some may have been spawned since, by what the others dropped.
        rest.iter().for_each(|task| task.abort());
        let leftover = |task: &Arc<Task>| Leftover {
            name: task.path(),
            running_for: now - task.since,
            spawned_at: task.spawned_at,
            blocked: rest.iter().any(|other| Arc::ptr_eq(task, other)),
        };
        let leftovers: Vec<_> = late.iter().map(leftover).collect();
        for left in leftovers.iter().filter(|left| left.blocked).take(LINES) {
            warn!(task = left.name, "cannot be aborted, its thread is blocked");
        }
        leftovers
    }

    /// Ends every task of this group and below where it is, as `kill -9` ends a process: none is asked.
    #[cfg(feature = "simulation")]
    pub async fn kill(&self) {
        loop {
            let running = self.running();
            if running.is_empty() {
                return;
            }
            running.iter().for_each(|task| task.abort());
            // An aborted task leaves when it is next looked at.
            tokio::task::yield_now().await;
        }
    }

    /// The tasks that run in this group and below, oldest first.
    pub fn list(&self) -> Vec<TaskView> {
        let now = Instant::now();
        let view = |task: &Arc<Task>| TaskView {
            name: task.name.to_string(),
            group: task.group.path(),
            age_ms: ms(now - task.since),
            spawned_at: task.spawned_at.to_string(),
            blocking: task.blocking,
        };
        self.running().iter().map(view).collect()
    }

    /// Registers the metrics of the whole tree.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("tasks_running", "Tasks that are running", self.tree.gauge.clone());
        registry.register("tasks_panicked", "Tasks that panicked", self.tree.panics.clone());
    }

    fn start<F>(
        &self,
        name: Cow<'static, str>,
        site: &'static Location<'static>,
        essential: bool,
        work: F,
    ) -> TaskHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let entered = self.enter(name, site, false, essential);
        let task = Arc::clone(&entered.task);
        let work = AssertUnwindSafe(work).catch_unwind();
        task.started(tokio::spawn(async move { entered.ended(work.await) }))
    }

    fn enter(
        &self,
        name: Cow<'static, str>,
        spawned_at: &'static Location<'static>,
        blocking: bool,
        essential: bool,
    ) -> Entered {
        let task = Arc::new(Task {
            name,
            group: Arc::clone(&self.group),
            since: Instant::now(),
            spawned_at,
            blocking,
            handle: OnceLock::new(),
        });
        self.tree.gauge.inc();
        let mut running = self.tree.running.lock();
        running.last += 1;
        let number = running.last;
        running.tasks.insert(number, Arc::clone(&task));
        drop(running);
        Entered { tasks: self.clone(), number, task, essential, end: End::Aborted }
    }

    /// Whether all have left before `wait` was over.
    async fn emptied(&self, wait: Duration) -> bool {
        let empty = async {
            loop {
                let ended = self.tree.ended.notified();
                let within = |task: &Arc<Task>| task.group.is_within(&self.group);
                if !self.tree.running.lock().tasks.values().any(within) {
                    return;
                }
                ended.await;
            }
        };
        Deadline::after(wait).bound(empty).await.is_ok()
    }

    fn running(&self) -> Vec<Arc<Task>> {
        let running = self.tree.running.lock();
        let within = running.tasks.values().filter(|task| task.group.is_within(&self.group));
        within.cloned().collect()
    }
}

impl Task {
    fn started<T>(&self, handle: JoinHandle<Result<T, TaskError>>) -> TaskHandle<T> {
        self.handle.get_or_init(|| handle.abort_handle());
        TaskHandle(handle)
    }

    fn abort(&self) {
        if let Some(handle) = self.handle.get() {
            handle.abort();
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.group.path(), self.name)
    }
}

impl Entered {
    fn ended<T>(mut self, result: std::thread::Result<T>) -> Result<T, TaskError> {
        match result {
            Ok(value) => {
                self.end = End::Finished;
                Ok(value)
            }
            Err(panic) => {
                let panic = panic_message(&*panic);
                error!(task = self.task.path(), panic, "task panicked");
                self.tasks.tree.panics.inc();
                self.end = End::Panicked(panic.clone());
                Err(TaskError::Panicked(panic))
            }
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Tasks { tree, .. } = &self.tasks;
        if self.essential {
            let how = match &self.end {
                End::Finished => "has ended",
                End::Panicked(panic) => &format!("panicked: {panic}"),
                End::Aborted => "was aborted",
            };
            self.tasks.stop(format!("essential task {} {how}", self.task.path()));
        }
        tree.gauge.dec();
        let gone = tree.running.lock().tasks.remove(&self.number);
        drop(gone);
        tree.ended.notify_waiters();
    }
}

impl Group {
    fn new(
        name: Cow<'static, str>,
        above: Option<Arc<Self>>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { name, above, stop, reason: OnceLock::new() })
    }

    fn path(&self) -> String {
        match &self.above {
            None => self.name.to_string(),
            Some(above) => format!("{}/{}", above.path(), self.name),
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.above.as_ref().is_some_and(|above| above.is_within(other))
    }

    fn reason(&self) -> Option<&str> {
        let above = || self.above.as_ref().and_then(|above| above.reason());
        self.reason.get().map(String::as_str).or_else(above)
    }
}

impl Stop {
    /// Waits until the group stops.
    pub async fn stopped(&self) {
        self.0.stop.cancelled().await;
    }

    pub fn is_stopped(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Why, once it has stopped: this group's own reason, or that of the group above.
    pub fn reason(&self) -> Option<&str> {
        self.is_stopped().then(|| self.0.reason()).flatten()
    }

    /// Runs `work` until the group stops, then drops it.
    pub async fn bound<F: Future>(&self, work: F) -> Option<F::Output> {
        self.0.stop.run_until_cancelled(work).await
    }
}

impl<T> TaskHandle<T> {
    /// Whether it has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Drops the task's future at its next await. Blocking work runs on once it has begun.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|joined| match joined {
            Ok(result) => result,
            Err(error) => Err(match error.try_into_panic() {
                // Not the task's work, which is caught, but the drop of what it left behind.
                Ok(panic) => TaskError::Panicked(panic_message(&*panic)),
                Err(_) => TaskError::Aborted,
            }),
        })
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "no message".to_owned())
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tasks({}, {} running)", self.group.path(), self.running().len())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({}, {:?})", self.0.path(), self.reason())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

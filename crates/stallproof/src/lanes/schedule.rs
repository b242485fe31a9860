//! Decides which job runs next: the state machine under the lock of `Lanes`. It does no I/O and knows no runtime;
//! time and wakers are handed in, so that a property test can drive it through any history.
//!
//! ```text
//! key      running ◄─ head ◄─ parked ◄─ parked …        one runs, the rest stand behind it
//! tenant   ready: the heads of its keys that are free   (a running key is in no ready list)
//! ring     tenants with something ready and room under their share, in round-robin order
//! ```
//!
//! Nothing that cannot run is ever looked at: a decision takes the tenant at the front of the ring
//! and the head at the front of its ready list, and passes over a tenant only to credit it with the
//! quantum that its next visit spends. So decisions cost O(1), amortised, whatever is parked.
//!
//! It is work-conserving: after every call either all workers are taken or the ring is empty.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::time::Instant;

use super::{LanesLimits, LanesStatus, Refused, TenantStatus, Turn};
use crate::ledger::OpId;
use crate::list::{Links, List};
use crate::retry::retry_after;

/// Names a job from `submit` to `leave`.
pub(super) type Ticket = usize;

/// The reason why a job was not given its turn at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsOn {
    /// The job right ahead of it on the same key. Naming that one, not whoever runs now, keeps the
    /// answer true while the line moves up.
    Key(Option<OpId>),
    Share,
    Worker,
}

#[derive(Debug)]
pub(super) struct Schedule<K> {
    limits: LanesLimits,
    jobs: Slab<Job>,
    keys: Slab<Key<K>>,
    key_index: HashMap<K, usize>,
    tenants: Slab<Tenant>,
    tenant_index: HashMap<Arc<str>, usize>,
    ring: List,
    queued: usize,
    running: usize,
    given: u64,
    refused: u64,
    closed: bool,
    /// How long a turn is held, on average over the last few.
    hold: Duration,
}

#[derive(Debug)]
struct Job {
    key: usize,
    tenant: usize,
    cost: u32,
    op: Option<OpId>,
    /// Since when it has been in its state.
    since: Instant,
    state: State,
    waker: Option<Waker>,
    in_key: Links,
    in_ready: Links,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Behind another job of its key.
    Parked,
    /// At the head of a free key.
    Ready,
    Running,
    /// Refused by `close`; stays until its owner has seen it.
    Closed,
}

#[derive(Debug)]
struct Key<K> {
    key: K,
    running: Option<Ticket>,
    line: List,
}

#[derive(Debug)]
struct Tenant {
    name: Arc<str>,
    ready: List,
    running: usize,
    queued: usize,
    deficit: u32,
    in_ring: Option<Links>,
}

fn in_key(job: &mut Job) -> &mut Links {
    &mut job.in_key
}

fn in_ready(job: &mut Job) -> &mut Links {
    &mut job.in_ready
}

fn in_ring(tenant: &mut Tenant) -> &mut Links {
    tenant.in_ring.get_or_insert_default()
}

impl<K: Clone + Eq + Hash> Schedule<K> {
    pub(super) fn new(limits: LanesLimits) -> Self {
        // A queue may be of length zero; lanes in which nothing can ever run are a mistake.
        let limits = LanesLimits {
            workers: limits.workers.max(1),
            per_tenant: limits.per_tenant.max(1),
            max_cost: limits.max_cost.max(1),
            ..limits
        };
        Self {
            limits,
            jobs: Slab::new(),
            keys: Slab::new(),
            key_index: HashMap::new(),
            tenants: Slab::new(),
            tenant_index: HashMap::new(),
            ring: List::default(),
            queued: 0,
            running: 0,
            given: 0,
            refused: 0,
            closed: false,
            hold: Duration::ZERO,
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn turns_given(&self) -> u64 {
        self.given
    }

    /// Work waits that only a worker keeps from running.
    pub(super) fn owes(&self) -> bool {
        !self.ring.is_empty()
    }

    pub(super) fn drained(&self) -> bool {
        self.closed && self.running == 0
    }

    /// Takes a job in: it runs at once (`None`), or waits for what is said.
    pub(super) fn submit(
        &mut self,
        key: &K,
        tenant: &str,
        cost: u32,
        op: Option<OpId>,
        now: Instant,
    ) -> Result<(Ticket, Option<WaitsOn>), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let known_key = self.key_index.get(key).copied();
        let known_tenant = self.tenant_index.get(tenant).copied();
        let waits_on = self.obstacle(known_key, known_tenant);
        if waits_on.is_some() {
            self.room_to_wait(known_key, known_tenant, now)?;
        }

        let key = known_key.unwrap_or_else(|| self.add_key(key));
        let tenant = known_tenant.unwrap_or_else(|| self.add_tenant(tenant));
        let ticket = self.jobs.insert(Job {
            key,
            tenant,
            cost: cost.clamp(1, self.limits.max_cost),
            op,
            since: now,
            state: State::Parked,
            waker: None,
            in_key: Links::default(),
            in_ready: Links::default(),
        });
        self.keys[key].line.push_back(&mut self.jobs, ticket, in_key);
        self.tenants[tenant].queued += 1;
        self.queued += 1;
        self.ready_head(key);
        let woken = self.give_turns(now);
        debug_assert!(woken.is_empty(), "a newcomer makes nobody else runnable");
        debug_assert_eq!(waits_on.is_none(), self.jobs[ticket].state == State::Running);
        Ok((ticket, waits_on))
    }

    /// Whether the job has its turn; if not yet, `waker` is called when that changes.
    pub(super) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Result<(), Refused>> {
        let job = &mut self.jobs[ticket];
        match job.state {
            State::Running => Poll::Ready(Ok(())),
            State::Closed => Poll::Ready(Err(Refused::Closed)),
            State::Parked | State::Ready => {
                match &mut job.waker {
                    Some(known) => known.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                Poll::Pending
            }
        }
    }

    /// The job is done, or given up, in whatever state it is. Returns whom to wake.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Instant) -> Vec<Waker> {
        let Job { key, tenant, state, since, .. } = self.jobs[ticket];
        match state {
            State::Closed => {}
            State::Parked | State::Ready => self.unqueue(ticket),
            State::Running => {
                self.running -= 1;
                self.tenants[tenant].running -= 1;
                self.keys[key].running = None;
                self.hold = (self.hold * 7 + now.saturating_duration_since(since)) / 8;
                self.ready_head(key);
                self.settle(tenant);
            }
        }
        self.jobs.remove(ticket);
        if state == State::Closed {
            return Vec::new();
        }
        self.forget_if_idle(key, tenant);
        self.give_turns(now)
    }

    /// Refuses all that wait and all that come. Returns whom to wake.
    pub(super) fn close(&mut self) -> Vec<Waker> {
        self.closed = true;
        let waiting: Vec<Ticket> = self
            .jobs
            .iter()
            .filter(|(_, job)| matches!(job.state, State::Parked | State::Ready))
            .map(|(ticket, _)| ticket)
            .collect();
        let mut woken = Vec::with_capacity(waiting.len());
        for ticket in waiting {
            self.unqueue(ticket);
            let job = &mut self.jobs[ticket];
            job.state = State::Closed;
            woken.extend(job.waker.take());
            let (key, tenant) = (job.key, job.tenant);
            self.forget_if_idle(key, tenant);
        }
        woken
    }

    pub(super) fn status(&self, now: Instant) -> LanesStatus<K> {
        let mut oldest: HashMap<usize, (Option<Ticket>, Option<Ticket>)> = HashMap::new();
        for (ticket, job) in &self.jobs {
            let (waiting, running) = oldest.entry(job.tenant).or_default();
            let slot = match job.state {
                State::Parked | State::Ready => waiting,
                State::Running => running,
                State::Closed => continue,
            };
            if slot.is_none_or(|first| job.since < self.jobs[first].since) {
                *slot = Some(ticket);
            }
        }
        let turn = |ticket: Ticket| {
            let job = &self.jobs[ticket];
            let key = self.keys[job.key].key.clone();
            Turn { key, op: job.op, age: now.saturating_duration_since(job.since) }
        };
        let mut tenants: Vec<_> = self
            .tenants
            .iter()
            .map(|(at, tenant)| {
                let (waiting, running) = oldest.get(&at).copied().unwrap_or_default();
                TenantStatus {
                    tenant: Arc::clone(&tenant.name),
                    queued: tenant.queued,
                    running: tenant.running,
                    longest_queued: waiting.map(turn),
                    longest_running: running.map(turn),
                }
            })
            .collect();
        tenants.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        LanesStatus { queued: self.queued, running: self.running, closed: self.closed, tenants }
    }

    /// The reason why a newcomer could not run at once.
    fn obstacle(&self, key: Option<usize>, tenant: Option<usize>) -> Option<WaitsOn> {
        if let Some(key) = key {
            let Key { running, line, .. } = &self.keys[key];
            let ahead = line.back().or(*running).expect("an idle key is forgotten");
            Some(WaitsOn::Key(self.jobs[ahead].op))
        } else if tenant.is_some_and(|at| self.tenants[at].running >= self.limits.per_tenant) {
            Some(WaitsOn::Share)
        } else if self.running >= self.limits.workers {
            Some(WaitsOn::Worker)
        } else {
            None
        }
    }

    /// Refuses a newcomer for whom there is no room in a queue, with the time that queue needs.
    fn room_to_wait(
        &mut self,
        key: Option<usize>,
        tenant: Option<usize>,
        now: Instant,
    ) -> Result<(), Refused> {
        let LanesLimits { workers, per_tenant, queue, queue_per_tenant, queue_per_key, .. } =
            self.limits;
        let in_key = key.map_or(0, |at| self.keys[at].line.len());
        let in_tenant = tenant.map_or(0, |at| self.tenants[at].queued);
        let (ahead, abreast) = if in_key >= queue_per_key {
            (in_key, 1)
        } else if in_tenant >= queue_per_tenant {
            (in_tenant, per_tenant)
        } else if self.queued >= queue {
            (self.queued, workers)
        } else {
            return Ok(());
        };
        // A holder that is late already says more than the average of those that were not.
        let holder = key.and_then(|at| self.keys[at].running);
        let age = holder.map(|at| now.saturating_duration_since(self.jobs[at].since));
        let hold = self.hold.max(age.unwrap_or_default());
        let drain = hold.mul_f64((ahead + 1) as f64 / abreast as f64);
        self.refused += 1;
        Err(Refused::Full { retry_after: retry_after(drain, self.refused) })
    }

    /// Gives turns while a worker is free and anything may run. One departure can free two: another
    /// key of its tenant, and the next on its key, if that is another tenant's.
    fn give_turns(&mut self, now: Instant) -> Vec<Waker> {
        let mut woken = Vec::new();
        while self.running < self.limits.workers {
            let Some((tenant, ticket)) = self.next() else {
                break;
            };
            woken.extend(self.start(tenant, ticket, now));
        }
        woken
    }

    /// Deficit round robin.
    fn next(&mut self) -> Option<(usize, Ticket)> {
        loop {
            let at = self.ring.front()?;
            let tenant = &mut self.tenants[at];
            let head = tenant.ready.front().expect("a tenant in the ring has a ready key");
            let cost = self.jobs[head].cost;
            if tenant.deficit >= cost {
                tenant.deficit -= cost;
                return Some((at, head));
            }
            // No cost exceeds the quantum, so the next visit serves.
            tenant.deficit += self.limits.max_cost;
            self.ring.remove(&mut self.tenants, at, in_ring);
            self.ring.push_back(&mut self.tenants, at, in_ring);
        }
    }

    fn start(&mut self, tenant: usize, ticket: Ticket, now: Instant) -> Option<Waker> {
        let key = self.jobs[ticket].key;
        self.tenants[tenant].ready.remove(&mut self.jobs, ticket, in_ready);
        self.keys[key].line.remove(&mut self.jobs, ticket, in_key);
        self.keys[key].running = Some(ticket);
        self.tenants[tenant].queued -= 1;
        self.tenants[tenant].running += 1;
        self.queued -= 1;
        self.running += 1;
        self.given += 1;
        self.settle(tenant);
        let job = &mut self.jobs[ticket];
        job.state = State::Running;
        job.since = now;
        job.waker.take()
    }

    /// Takes a waiting job out of every line it stands in.
    fn unqueue(&mut self, ticket: Ticket) {
        let Job { key, tenant, state, .. } = self.jobs[ticket];
        self.keys[key].line.remove(&mut self.jobs, ticket, in_key);
        self.tenants[tenant].queued -= 1;
        self.queued -= 1;
        if state == State::Ready {
            self.tenants[tenant].ready.remove(&mut self.jobs, ticket, in_ready);
            self.ready_head(key);
            self.settle(tenant);
        }
    }

    /// Makes the head of a free key ready for its tenant.
    fn ready_head(&mut self, key: usize) {
        let Key { running: None, line, .. } = &self.keys[key] else {
            return;
        };
        let Some(head) = line.front() else { return };
        let job = &mut self.jobs[head];
        if job.state == State::Parked {
            job.state = State::Ready;
            let tenant = job.tenant;
            self.tenants[tenant].ready.push_back(&mut self.jobs, head, in_ready);
            self.settle(tenant);
        }
    }

    /// Puts a tenant into the ring or takes it out, as it now deserves.
    fn settle(&mut self, at: usize) {
        let tenant = &mut self.tenants[at];
        if tenant.ready.is_empty() {
            tenant.deficit = 0;
        }
        let runnable = !tenant.ready.is_empty() && tenant.running < self.limits.per_tenant;
        match (runnable, tenant.in_ring.is_some()) {
            // Its share was used up in the middle of its visit, which now goes on.
            (true, false) if tenant.deficit > 0 => {
                self.ring.push_front(&mut self.tenants, at, in_ring);
            }
            (true, false) => {
                tenant.deficit = self.limits.max_cost;
                self.ring.push_back(&mut self.tenants, at, in_ring);
            }
            (false, true) => {
                self.ring.remove(&mut self.tenants, at, in_ring);
                self.tenants[at].in_ring = None;
            }
            _ => {}
        }
    }

    fn add_key(&mut self, key: &K) -> usize {
        let at = self.keys.insert(Key { key: key.clone(), running: None, line: List::default() });
        self.key_index.insert(key.clone(), at);
        at
    }

    fn add_tenant(&mut self, name: &str) -> usize {
        let name: Arc<str> = name.into();
        let at = self.tenants.insert(Tenant {
            name: Arc::clone(&name),
            ready: List::default(),
            running: 0,
            queued: 0,
            deficit: 0,
            in_ring: None,
        });
        self.tenant_index.insert(name, at);
        at
    }

    /// Keys and tenants are remembered only while they have a job: memory follows the load.
    fn forget_if_idle(&mut self, key: usize, tenant: usize) {
        let Key { running, line, .. } = &self.keys[key];
        if running.is_none() && line.is_empty() {
            let gone = self.keys.remove(key);
            self.key_index.remove(&gone.key);
        }
        let Tenant { running, queued, .. } = self.tenants[tenant];
        if running == 0 && queued == 0 {
            let gone = self.tenants.remove(tenant);
            self.tenant_index.remove(&gone.name);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

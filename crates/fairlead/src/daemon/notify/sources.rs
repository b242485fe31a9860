//! Where events come from. Each source is a task that follows what its room publishes; what was there before this
//! process began is no event.
//!
//! The same violation or decision is an event again after `notify.repeat` at the earliest: its count then says how
//! often it came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::Audit;
use access::audit::{Filter, Phase, Record};
use admission::{Line, Outcome};
use jiff::Timestamp;
use notify::{Event, EventBus};
use objects::kinds::{EventKind, EventLevel};
use stallproof::watchdog::Severity;
use stallproof::{Deadline, Rates, Stop, Tasks, Watchdog};
use traffic::agents::AgentState;
use traffic::conversations::{Conversation, Endpoint};
use traffic::ingest::Ingest;
use traffic::violations::Violation;

use super::Rooms;

/// How often agents, stalls and the audit are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// The most lines of the audit that are read at once.
const LINES: usize = 1000;
/// Violations and decisions that are told apart; as many as are kept of them.
const SUBJECTS: usize = 16_384;

#[derive(Clone, Debug)]
pub(super) struct Sources {
    pub(super) bus: EventBus,
    /// The cluster that conversations are of.
    pub(super) cluster: String,
    pub(super) repeat: Duration,
    pub(super) rooms: Rooms,
    pub(super) watchdog: Arc<Watchdog>,
}

impl Sources {
    pub(super) fn follow(self, tasks: &Tasks) {
        let stop = || tasks.stopping();
        tasks.spawn("violation events", self.clone().violations(stop()));
        tasks.spawn("admission events", self.clone().admission(stop()));
        tasks.spawn("agent and stall events", self.clone().states(stop()));
        tasks.spawn("audit events", follow_audit(self.rooms.audit, self.bus, stop()));
    }

    async fn violations(self, stop: Stop) {
        let told = Rates::new(1, self.repeat, SUBJECTS);
        let mut terms = self.rooms.active.changes();
        loop {
            match self.rooms.active.ingest() {
                None => {
                    if stop.bound(terms.changed()).await.is_none() {
                        return;
                    }
                }
                Some(ingest) => {
                    let mut changes = ingest.violation_changes();
                    let lines = &ingest.violations().lines;
                    let mut seen = lines.iter().map(|line| line.change).max().unwrap_or(0);
                    loop {
                        tokio::select! {
                            () = stop.stopped() => return,
                            _ = terms.changed() => break,
                            _ = changes.changed() => {}
                        }
                        let view = ingest.violations();
                        for violation in view.changed_since(seen) {
                            seen = seen.max(violation.change);
                            let event = self.violation(violation, &ingest);
                            let subject = format!("{} {}", event.message, event.cluster);
                            if told.take(&subject, Instant::now()).is_ok() {
                                self.bus.emit(event);
                            }
                        }
                    }
                }
            }
        }
    }

    fn violation(&self, Violation { conversation, .. }: &Violation, ingest: &Ingest) -> Event {
        let Conversation { client, server, protocol, port, rule, totals, .. } = conversation;
        let (what, why) = match rule {
            Some(rule) => ("denied", format!("the rule {rule} denies it")),
            None => ("unknown", "no rule allows it".to_owned()),
        };
        let (from, to) = (&*client.endpoint, &*server.endpoint);
        let message = format!("{from} connects to {to} at {protocol}/{port}: {why}");
        let mut event = Event::new(EventKind::Violation, what, EventLevel::Warning, message)
            .with("client", format!("{from} {}", client.address))
            .with("server", format!("{to} {}", server.address))
            .with("port", format!("{protocol}/{port}"))
            .with("application", conversation.application.as_deref().unwrap_or_default())
            .with("rule", rule.as_deref().unwrap_or_default());
        event.count = totals.sessions.max(1);
        event.cluster.clone_from(&self.cluster);
        // Who connects is who acts; an end outside of the cluster cannot be acted upon.
        let end = [client, server].into_iter().find(|end| is_workload(&end.endpoint));
        if let Some(Endpoint::Workload { namespace, name, owner, .. }) =
            end.map(|end| &*end.endpoint)
        {
            let learned = format!("{namespace}/{owner}");
            let inventory = ingest.inventory();
            let made = inventory.groups.of(namespace, name);
            let made = made.into_iter().flat_map(|membership| &membership.groups);
            event.groups = made.map(ToString::to_string).collect();
            event.groups.push(learned.clone());
            let mut pods = inventory.groups.workloads(namespace);
            if let Some(pod) = pods.find(|pod| pod.name == *name) {
                event.details.insert("podUid".to_owned(), pod.uid.to_string());
            }
            event.namespace = Some(namespace.to_string());
            event.pod = Some(name.to_string());
            event.workload = Some(learned);
        }
        event
    }

    async fn admission(self, stop: Stop) {
        let told = Rates::new(1, self.repeat, SUBJECTS);
        let admission = &self.rooms.admission;
        let mut changes = admission.audit_changes();
        let mut seen = admission.audit().lines.get_max().map_or(0, |(number, _)| *number);
        while stop.bound(changes.changed()).await.is_some() {
            let audit = admission.audit();
            for (number, line) in audit.lines.range(seen + 1..) {
                seen = *number;
                if line.subject.outcome == Outcome::Allowed || line.subject.dry_run {
                    continue;
                }
                let event = decision(line);
                let subject = format!("{} {:?}", event.subject(), line.subject);
                if told.take(&subject, Instant::now()).is_ok() {
                    self.bus.emit(event);
                }
            }
        }
    }

    async fn states(self, stop: Stop) {
        let mut lost: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut stalled: BTreeMap<String, EventLevel> = BTreeMap::new();
        while stop.bound(tokio::time::sleep(LOOK)).await.is_some() {
            // Agents speak to the replica that leads: to another they are all lost.
            if self.rooms.active.ingest().is_some() {
                self.agents(&mut lost);
            } else {
                lost.clear();
            }
            self.stalls(&mut stalled);
        }
    }

    fn agents(&self, lost: &mut BTreeSet<Arc<str>>) {
        for agent in self.rooms.agents.list() {
            let node = &agent.node;
            let event = match agent.state {
                AgentState::Silent if lost.insert(Arc::clone(node)) => {
                    let message =
                        format!("the agent of node {node} was not heard since {}", agent.heard);
                    Event::new(EventKind::Agent, "lost", EventLevel::Error, message)
                }
                AgentState::Alive if lost.remove(node) => {
                    let message = format!("the agent of node {node} is back");
                    Event::new(EventKind::Agent, "back", EventLevel::Notice, message)
                }
                _ => continue,
            };
            let mut event = event.with("node", &**node);
            event.cluster.clone_from(&self.cluster);
            self.bus.emit(event);
        }
    }

    fn stalls(&self, stalled: &mut BTreeMap<String, EventLevel>) {
        let now: BTreeMap<_, _> =
            self.watchdog.stalls().into_iter().map(|s| (s.name.to_string(), s)).collect();
        for (name, stall) in &now {
            let level = match stall.severity {
                Severity::Critical => EventLevel::Critical,
                Severity::Noted => EventLevel::Error,
            };
            if stalled.insert(name.clone(), level).is_none() {
                let message = format!("{name} makes no progress since {:?}", stall.stalled_for);
                let event = Event::new(EventKind::Stall, "begun", level, message);
                self.bus.emit(event.with("subject", name));
            }
        }
        stalled.retain(|name, _| {
            if now.contains_key(name) {
                return true;
            }
            let message = format!("{name} makes progress again");
            let event = Event::new(EventKind::Stall, "ended", EventLevel::Notice, message);
            self.bus.emit(event.with("subject", name));
            false
        });
    }
}

fn is_workload(endpoint: &Endpoint) -> bool {
    matches!(endpoint, Endpoint::Workload { .. })
}

fn decision(line: &Line) -> Event {
    let (subject, latest) = (&line.subject, &line.latest);
    let (what, level) = match subject.outcome {
        Outcome::Denied => ("denied", EventLevel::Error),
        Outcome::Monitored | Outcome::Allowed => ("monitored", EventLevel::Warning),
    };
    let mut event = Event::new(EventKind::Admission, what, level, &latest.why)
        .with("object", &latest.object)
        .with("image", &subject.image)
        .with("user", &latest.user)
        .with("container", latest.container.as_deref().unwrap_or_default())
        .with("rule", subject.rule.as_deref().unwrap_or_default());
    event.count = line.count;
    event.cluster.clone_from(&subject.cluster);
    event.namespace = Some(subject.namespace.clone()).filter(|namespace| !namespace.is_empty());
    let workload = format!("{}/{}", subject.namespace, subject.owner);
    event.groups = vec![workload.clone()];
    event.workload = Some(workload);
    // What was admitted although a rule matched runs, if it is a pod.
    event.pod = latest.object.strip_prefix("Pod/").map(str::to_owned);
    event
}

/// Tells what users did, as the audit has it on disk.
async fn follow_audit(audit: Audit, bus: EventBus, stop: Stop) {
    let mut since = Timestamp::now();
    let mut told: BTreeSet<String> = BTreeSet::new();
    while stop.bound(tokio::time::sleep(LOOK)).await.is_some() {
        let filter = Filter { since: Some(since), ..Filter::default() };
        let Ok(page) = audit.read(filter, LINES, Deadline::after(LOOK * 4)).await else { continue };
        let mut open = Vec::new();
        let mut ended = BTreeSet::new();
        for record in page.records.iter().rev() {
            if record.phase == Phase::Begun {
                open.push(record.time);
                continue;
            }
            ended.insert(record.id.clone());
            if !told.contains(&record.id)
                && let Some(event) = act(record)
            {
                bus.emit(event);
            }
        }
        // From the oldest that is still under way, else from the newest there is.
        let newest = page.records.iter().map(|record| record.time).max();
        since = open.into_iter().min().or(newest).unwrap_or(since).max(since);
        told = ended;
    }
}

fn act(record: &Record) -> Option<Event> {
    let Record { who, verb, resource, cluster, namespace, name, outcome, .. } = record;
    let outcome = outcome.as_deref().unwrap_or("unknown");
    let object = [namespace.as_deref(), name.as_deref()].into_iter().flatten().collect::<Vec<_>>();
    let object = format!("{resource} {}", object.join("/"));
    let (what, level) = match (verb.as_str(), outcome) {
        ("login", "ok") => ("login", EventLevel::Info),
        ("login", _) => ("login-failed", EventLevel::Warning),
        (_, "ok") => ("write", EventLevel::Info),
        (_, "forbidden" | "unauthenticated") => ("refused", EventLevel::Warning),
        _ => ("failed", EventLevel::Notice),
    };
    let message = format!("{who}: {verb} {} in {cluster}: {outcome}", object.trim_end());
    let mut event = Event::new(EventKind::Audit, what, level, message)
        .with("user", who)
        .with("verb", verb)
        .with("resource", resource)
        .with("object", name.as_deref().unwrap_or_default())
        .with("outcome", outcome)
        .with("from", record.from.as_deref().unwrap_or_default())
        .with("subject", format!("user {who}"))
        .with("audit", &record.id);
    event.at = record.time;
    event.cluster.clone_from(cluster);
    event.namespace.clone_from(namespace);
    event.count = record.count.unwrap_or(1);
    Some(event)
}

#[cfg(test)]
mod tests;

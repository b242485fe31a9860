//! A `-text` table: sums by function, rare stacks dropped. It names the lock, counts the waiters
//! and may prove how the lock is held; it never yields a holder.

use std::collections::BTreeMap;

use crate::goroutine::{Dump, Name, Row, RuntimeCall};
use crate::report::{
    Confidence, EntryCount, EntryKind, Evidence, FaultClass, Finding, Held, HeldMode, Level,
    PathCount, Resource, ResourceKind, Severity, Waiters,
};

use super::entry::{by_words, grpc_method, is_webhook};
use super::others::lends;
use super::owner::stem;
use super::remedy::remedy;
use super::wait::is_std;
use crate::words::{goroutines, thousands};

/// Fewer waiters in a table are no stall.
const LONG: u64 = 10;
/// Fewer requests that wait to send are a moment's line.
const REQUESTS: u64 = 100;

pub(super) fn examine(dump: &Dump) -> Vec<Finding> {
    let table = Table { dump };
    locked(&table).into_iter().chain(table.senders()).chain(table.borrowers()).collect()
}

fn locked(table: &Table<'_>) -> Option<Finding> {
    let (readers, writers) = (table.cum(RuntimeCall::RwRLock), table.cum(RuntimeCall::RwLock));
    let slow = table.cum(RuntimeCall::LockSlow);
    if readers + writers.max(slow) < LONG {
        return None;
    }
    let kind = if readers + writers > 0 { ResourceKind::RwMutex } else { ResourceKind::Mutex };
    let mut finding = table.by_wrapper(kind).unwrap_or_else(|| table.unnamed(kind));
    let held = table.held(kind);
    let mode = match held.mode {
        HeldMode::Write if kind == ResourceKind::RwMutex => ", which is write-held",
        _ => "",
    };
    let what = if kind == ResourceKind::Mutex { "mutex" } else { "RWMutex" };
    finding.title = format!(
        "{} wait for the {what} of {}{mode}",
        goroutines(finding.waiters.total),
        finding.resource.name
    );
    finding.id = format!("{what}:{}", finding.resource.name).to_lowercase().replace(' ', "_");
    finding.held = Some(held);
    finding.class = FaultClass::Queue;
    // Sums do not say how long anybody has waited: a busy lock has a queue at any moment.
    finding.severity = match finding.waiters.total {
        1000.. => Severity::Critical,
        100.. => Severity::Serious,
        _ => Severity::Minor,
    };
    finding.no_holder = Some(
        "a -text table has no stacks and drops rare ones; a holder is one goroutine among \
         thousands and cannot be in it"
            .to_owned(),
    );
    finding.collect_next = vec![
        "`go tool pprof -traces` of the same profile, or the profile itself (protobuf): every \
         stack, the holder's among them"
            .to_owned(),
        "`/debug/pprof/goroutine?debug=2` while it lasts: addresses, states, waiting times"
            .to_owned(),
    ];
    finding.remedy = remedy(FaultClass::Queue).to_owned();
    Some(finding)
}

struct Table<'d> {
    dump: &'d Dump,
}

impl<'d> Table<'d> {
    fn name(&self, row: &Row) -> Name<'d> {
        Name::of(self.dump.function(row.function))
    }

    fn row(&self, known: RuntimeCall) -> Option<&'d Row> {
        self.dump.rows.iter().find(|r| self.dump.known(r.function) == known)
    }

    fn cum(&self, known: RuntimeCall) -> u64 {
        self.row(known).map_or(0, |r| r.cum)
    }

    fn evidence(&self, row: &Row) -> Evidence {
        Evidence {
            input: self.dump.input.clone(),
            line: Some(u64::from(row.line)),
            text: format!("{} {}", row.cum, self.dump.function(row.function)),
        }
    }

    /// Rows of the program's own functions.
    fn program(&self) -> impl Iterator<Item = (&'d Row, Name<'d>)> + use<'_, 'd> {
        self.dump.rows.iter().map(|r| (r, self.name(r))).filter(|(r, n)| {
            self.dump.known(r.function) == RuntimeCall::Program && !is_std(n.package)
        })
    }

    /// The lock with the most waiters among those taken through wrappers that name it.
    fn by_wrapper(&self, kind: ResourceKind) -> Option<Finding> {
        type Rows<'r> = Vec<(&'r Row, Name<'r>)>;
        let mut locks: BTreeMap<(&str, Option<&str>, &str), Rows<'_>> = BTreeMap::new();
        for (row, name) in self.program() {
            if let Some(stem) = stem(name.function) {
                locks.entry((name.package, name.receiver, stem)).or_default().push((row, name));
            }
        }
        let sum = |rows: &[(&Row, Name<'_>)]| rows.iter().map(|(r, _)| r.cum).sum::<u64>();
        let ((package, receiver, variable), wrappers) =
            locks.into_iter().max_by_key(|(_, rows)| sum(rows))?;
        let total = sum(&wrappers);
        if total < LONG {
            return None;
        }
        let is_read = |name: &Name<'_>| {
            let lower = name.function.to_ascii_lowercase();
            lower.ends_with("rlock") || lower.ends_with("readlock")
        };
        let readers: u64 = wrappers.iter().filter(|(_, n)| is_read(n)).map(|(r, _)| r.cum).sum();
        let last = package.rsplit('/').next().unwrap_or(package);
        let named = if variable.is_empty() { receiver } else { Some(variable) };
        let (by_entry, by_path, rest) = self.sites(package, &wrappers, total);
        let mut details = Vec::new();
        if rest > 0 {
            details.push(format!(
                "{} of them came through functions that the table dropped",
                thousands(rest)
            ));
        }
        Some(Finding {
            resource: Resource {
                kind,
                name: named.map_or_else(|| format!("a lock of {last}"), |n| format!("{last}.{n}")),
                package: Some(package.to_owned()),
                type_name: receiver.map(str::to_owned),
                variable: receiver.is_none().then(|| variable.to_owned()).filter(|v| !v.is_empty()),
                sites: by_path.iter().filter_map(|p| p.frames.first().cloned()).collect(),
                ..Resource::default()
            },
            waiters: Waiters { total, readers, writers: total - readers, by_entry, by_path },
            evidence: wrappers.iter().map(|(row, _)| self.evidence(row)).collect(),
            confidence: Confidence {
                level: Level::Likely,
                why: "functions that wrap one lock account for these waiters; the table shows \
                      sums, so what belongs together is read from equal counts"
                    .to_owned(),
            },
            details,
            ..Finding::default()
        })
    }

    /// Who takes the lock, and what they came in for: functions of the lock's package, joined to
    /// entry points by their counts.
    fn sites(
        &self,
        package: &str,
        wrappers: &[(&Row, Name<'_>)],
        total: u64,
    ) -> (Vec<EntryCount>, Vec<PathCount>, u64) {
        let is_wrapper = |row: &Row| wrappers.iter().any(|(w, _)| w.function == row.function);
        let mut sites: Vec<(&Row, Name<'_>)> = self
            .program()
            .filter(|(row, name)| name.package == package && !is_wrapper(row) && row.cum <= total)
            .collect();
        // Callers within the package have the same count; the exported one says more.
        sites.sort_by_key(|(row, name)| {
            let exported = name.function.starts_with(|c: char| c.is_ascii_uppercase());
            (std::cmp::Reverse(row.cum), !exported, row.line)
        });
        sites.dedup_by_key(|(row, _)| row.cum);
        let (mut entries, mut paths, mut left) = (Vec::new(), Vec::new(), total);
        for (row, name) in sites {
            // More than is left: an outer function that contains others.
            if row.cum > left {
                continue;
            }
            left -= row.cum;
            let (kind, entry) = self.entry(row, &name);
            let function = self.dump.function(row.function).to_owned();
            paths.push(PathCount {
                count: row.cum,
                wants: "the lock".to_owned(),
                frames: vec![function.clone()],
                evidence: Some(self.evidence(row)),
            });
            entries.push(EntryCount { kind, name: entry, function, count: row.cum });
        }
        (entries, paths, left)
    }

    fn entry(&self, site: &Row, name: &Name<'_>) -> (EntryKind, String) {
        let method = self.program().find_map(|(row, n)| {
            grpc_method(&n).filter(|_| row.cum == site.cum).map(str::to_owned)
        });
        if let Some(method) = method {
            return (EntryKind::Grpc, method);
        }
        let short = |row: &Row| Name::short(self.dump.function(row.function)).to_owned();
        match by_words(name) {
            EntryKind::Goroutine => {}
            kind => return (kind, short(site)),
        }
        // A handler that does little else has about as many goroutines as its site.
        let near = |row: &Row| row.cum >= site.cum && row.cum - site.cum <= site.cum / 4;
        let door = self
            .program()
            .filter(|(row, n)| near(row) && n.package != name.package)
            .filter(|(row, _)| is_webhook(self.dump.function(row.function)))
            .min_by_key(|(_, n)| n.function.len());
        let served = self.dump.rows.iter().any(|r| near(r) && self.name(r).package == "net/http");
        match door {
            Some((door, _)) if served => (EntryKind::Webhook, short(door)),
            _ if served => (EntryKind::Http, short(site)),
            _ => (EntryKind::Goroutine, short(site)),
        }
    }

    /// Requests in line to send: the function that sends has as many goroutines as the send.
    fn senders(&self) -> Option<Finding> {
        let send = self.row(RuntimeCall::ChanSend)?;
        let served = self.dump.rows.iter().any(|r| {
            let name = self.name(r);
            (name.package == "net/http" && name.function == "serve" && r.cum >= send.cum)
                || grpc_method(&name).is_some_and(|_| r.cum >= send.cum)
        });
        if send.cum < REQUESTS || !served {
            return None;
        }
        let mut sites: Vec<&Row> =
            self.program().map(|(r, _)| r).filter(|r| r.cum == send.cum).collect();
        // The table lists equals by name; the one that sends calls no other of them that is shown,
        // which the sums do not tell, so that all are named.
        sites.truncate(12);
        let first = sites.first()?;
        let names = || sites.iter().map(|r| self.dump.function(r.function).to_owned());
        let total = send.cum;
        let short = Name::short(self.dump.function(first.function));
        Some(Finding {
            id: format!("slowconsumer:{short}").to_lowercase(),
            class: FaultClass::SlowConsumer,
            severity: if total >= 1000 { Severity::Critical } else { Severity::Serious },
            title: format!("{} wait to send, in requests", goroutines(total)),
            resource: Resource {
                kind: ResourceKind::Channel,
                name: format!("a channel send in {}", names().collect::<Vec<_>>().join(" or ")),
                package: Some(self.name(first).package.to_owned()),
                sites: names().collect(),
                ..Resource::default()
            },
            waiters: Waiters { total, ..Waiters::default() },
            no_holder: Some("a table does not say which goroutines share a channel".to_owned()),
            evidence: vec![self.evidence(send), self.evidence(first)],
            confidence: Confidence {
                level: Level::Possible,
                why: "the send and the functions named have the same number of goroutines, and so \
                      many requests are served"
                    .to_owned(),
            },
            remedy: remedy(FaultClass::SlowConsumer).to_owned(),
            collect_next: vec![
                "`/debug/pprof/goroutine?debug=2`, twice: who receives, and whether anybody moves"
                    .to_owned(),
            ],
            ..Finding::default()
        })
    }

    /// Those who wait in a function that lends from a bounded set.
    fn borrowers(&self) -> Option<Finding> {
        let parked = [
            RuntimeCall::Select,
            RuntimeCall::ChanRecv,
            RuntimeCall::ChanSend,
            RuntimeCall::Cond,
            RuntimeCall::Sema,
        ];
        let waits = |row: &Row| parked.iter().any(|&k| self.cum(k) >= row.cum);
        let (row, _) = self
            .program()
            .filter(|(row, name)| row.cum >= LONG && lends(name) && waits(row))
            .max_by_key(|(row, _)| row.cum)?;
        let site = self.dump.function(row.function);
        Some(Finding {
            id: format!("exhaustedpool:{}", Name::short(site)).to_lowercase(),
            class: FaultClass::ExhaustedPool,
            severity: if row.cum >= 1000 { Severity::Serious } else { Severity::Minor },
            title: format!("{} are in {}, which lends", goroutines(row.cum), Name::short(site)),
            resource: Resource {
                kind: ResourceKind::Pool,
                name: Name::short(site).to_owned(),
                package: Some(Name::of(site).package.to_owned()),
                sites: vec![site.to_owned()],
                ..Resource::default()
            },
            waiters: Waiters { total: row.cum, ..Waiters::default() },
            no_holder: Some("a table does not say who keeps what is lent".to_owned()),
            evidence: vec![self.evidence(row)],
            confidence: Confidence {
                level: Level::Possible,
                why: "a table shows that they are there, not for how long; a pool at full load \
                      looks like this too"
                    .to_owned(),
            },
            remedy: remedy(FaultClass::ExhaustedPool).to_owned(),
            collect_next: vec![
                "`/debug/pprof/goroutine?debug=2`, twice: whether anybody moves".to_owned(),
            ],
            ..Finding::default()
        })
    }

    fn unnamed(&self, kind: ResourceKind) -> Finding {
        let (readers, writers) = (self.cum(RuntimeCall::RwRLock), self.cum(RuntimeCall::RwLock));
        let total = if kind == ResourceKind::RwMutex {
            readers + writers
        } else {
            self.cum(RuntimeCall::LockSlow)
        };
        let mut sites: Vec<&Row> = self
            .program()
            .map(|(r, _)| r)
            .filter(|r| r.cum <= total && r.cum * 20 >= total)
            .collect();
        sites.sort_by_key(|r| std::cmp::Reverse(r.cum));
        sites.truncate(12);
        let path = |row: &&Row| PathCount {
            count: row.cum,
            wants: "one of the locks, as far as the sums go".to_owned(),
            frames: vec![self.dump.function(row.function).to_owned()],
            evidence: Some(self.evidence(row)),
        };
        Finding {
            resource: Resource {
                kind,
                name: "one or more locks that the table does not name".to_owned(),
                sites: sites.iter().map(|r| self.dump.function(r.function).to_owned()).collect(),
                ..Resource::default()
            },
            waiters: Waiters {
                total,
                readers,
                writers: total - readers.min(total),
                by_entry: Vec::new(),
                by_path: sites.iter().map(path).collect(),
            },
            evidence: [RuntimeCall::RwRLock, RuntimeCall::RwLock, RuntimeCall::LockSlow]
                .iter()
                .filter_map(|&k| self.row(k).map(|r| self.evidence(r)))
                .collect(),
            confidence: Confidence {
                level: Level::Possible,
                why: "the table sums over all locks of the process".to_owned(),
            },
            ..Finding::default()
        }
    }

    /// Every parked goroutine is below `semacquire1` by way of one semaphore function. Where those
    /// shown account for all of them, nobody waits at the head of any RWMutex.
    fn held(&self, kind: ResourceKind) -> Held {
        if kind == ResourceKind::Mutex {
            return Held {
                mode: HeldMode::Write,
                why: "a mutex has one owner".to_owned(),
                evidence: self
                    .row(RuntimeCall::LockSlow)
                    .map(|r| self.evidence(r))
                    .into_iter()
                    .collect(),
            };
        }
        let all =
            self.dump.rows.iter().find(|r| self.dump.function(r.function) == "runtime.semacquire1");
        let parts: Vec<&Row> =
            [RuntimeCall::SemaMutex, RuntimeCall::SemaRwR, RuntimeCall::SemaRw, RuntimeCall::Sema]
                .iter()
                .filter_map(|&k| self.row(k))
                .collect();
        let sum: u64 = parts.iter().map(|r| r.cum).sum();
        let modern = self.row(RuntimeCall::SemaRwR).is_some();
        let head = self.row(RuntimeCall::SemaRw);
        match (all, head) {
            (Some(all), None) if modern && all.cum == sum => Held {
                mode: HeldMode::Write,
                why: format!(
                    "readers are parked, and semacquire1's {} goroutines are the {} of the \
                     semaphores shown: none is left that could wait in RWMutex.Lock as head \
                     writer, so a writer has it",
                    thousands(all.cum),
                    parts.iter().map(|r| thousands(r.cum)).collect::<Vec<_>>().join(" + "),
                ),
                evidence: std::iter::once(all).chain(parts).map(|r| self.evidence(r)).collect(),
            },
            (Some(all), None) if modern => Held {
                mode: HeldMode::Unknown,
                why: format!(
                    "{} goroutines in semacquire1 are in rows that the table dropped, and one of \
                     them may be a head writer",
                    thousands(all.cum.saturating_sub(sum))
                ),
                evidence: vec![self.evidence(all)],
            },
            _ => Held {
                mode: HeldMode::Unknown,
                why: "the sums do not show whether a writer waits at the head".to_owned(),
                evidence: Vec::new(),
            },
        }
    }
}

//! What a queue of threads looks like to whoever reads the report.

use rustc_hash::FxHashMap;

use super::super::dump::{Runtime, Thread, ThreadDump};
use super::super::wait::{Lock, Wait};
use super::cycle::Cycle;
use super::holder::Candidate;
use super::queue::Queue;
use super::{FEW, LISTED, Scene};
use crate::analysis::remedy;
use crate::report::{
    Confidence, CycleStep, EntryCount, EntryKind, Evidence, FaultClass, Finding, Held, HeldMode,
    Holder, Level, PathCount, Resource, ResourceKind, Severity, Since, Waiters,
};
use crate::words::thousands;

/// What to collect where one dump is not enough.
pub(super) const SECOND: &str = "a second dump some seconds later: it shows whether anybody moves";

/// A lock with so many waiters is worth a word even where it changes hands.
const BUSY: u64 = 5;
/// So many waiters, and what the process serves stands still.
const CROWD: u64 = 100;

/// A queue that is in no ring; `None`: it is what a healthy program looks like.
pub(super) fn queue(scene: &Scene<'_>, q: usize) -> Option<Finding> {
    let (queue, holding) = (&scene.queues[q], &scene.holdings[q]);
    let total = queue.total();
    let (moving, lasted) = (scene.is_moving(q), scene.has_lasted(q));
    let is_link = scene.links.contains(&q);
    if !queue.is_sure && (total <= FEW as u64 || moving) {
        return None;
    }
    if total < FEW as u64 && !lasted && !is_link {
        return None;
    }
    let best = holding.candidates.first();
    let best_thread = best.map(|c| &scene.dump.threads[c.thread as usize]);
    if best_thread.is_some_and(|t| passes_on(scene, queue, t)) {
        return None;
    }
    let (class, level, why) = judge(scene, q, best, moving, lasted)?;
    let mut finding = describe(scene, q);
    finding.class = class;
    finding.confidence = Confidence { level, why };
    finding.remedy = remedy(class).to_owned();
    finding.severity = severity(scene, class, total, best_thread.map(|t| t.wait), lasted, level);
    let named = class != FaultClass::LostUnlock || best.is_some_and(|c| c.level == Level::Certain);
    if named {
        finding.holders =
            holding.candidates.iter().take(LISTED).map(|c| holder(scene, c)).collect();
    }
    if finding.holders.is_empty() {
        finding.no_holder = Some(no_holder(scene, queue));
    }
    if let Some(best) = best
        && let Some(chain) = chain(scene, best.thread)
    {
        finding.details.push(chain);
    }
    if scene.earlier.is_none() {
        finding.collect_next.push(SECOND.to_owned());
    }
    if best.is_none_or(|c| c.level > Level::Certain) {
        finding.collect_next.extend(better(scene.dump).map(str::to_owned));
    }
    if lasted {
        finding.since = Some(Since {
            text: "since before the earlier of the two dumps".to_owned(),
            ..Since::default()
        });
    }
    Some(finding)
}

/// The class of a queue, how sure, and why. `None`: not worth a word.
fn judge(
    scene: &Scene<'_>,
    q: usize,
    best: Option<&Candidate>,
    moving: bool,
    lasted: bool,
) -> Option<(FaultClass, Level, String)> {
    let (queue, holding) = (&scene.queues[q], &scene.holdings[q]);
    let total = queue.total();
    if moving {
        let why = "threads that waited in the earlier dump have moved on since".to_owned();
        return (total >= BUSY).then_some((FaultClass::HotLock, Level::Likely, why));
    }
    let Some(best) = best else {
        let lost =
            queue.is_sure && queue.lock != Lock::Once && (holding.is_listed || !is_java(scene));
        if lost {
            let level = if lasted { Level::Likely } else { Level::Possible };
            let why = if holding.is_listed {
                "the runtime lists who has which lock, and nobody has this one"
            } else {
                "no thread is inside a function of what the lock guards"
            };
            return Some((FaultClass::LostUnlock, level, why.to_owned()));
        }
        let why = "the form shows who waits, and nobody who may hold it".to_owned();
        return (total >= 2 * BUSY).then_some((FaultClass::Queue, Level::Possible, why));
    };
    let thread = &scene.dump.threads[best.thread as usize];
    let class = match thread.wait {
        Wait::Idle => FaultClass::LostUnlock,
        Wait::Io => FaultClass::HeldAcrossIo,
        Wait::Lock(_) => FaultClass::HeldAcrossLock,
        Wait::Condition | Wait::Future | Wait::Take | Wait::Put | Wait::Permit => {
            FaultClass::HeldAcrossChannel
        }
        Wait::Sleep | Wait::Timed => FaultClass::HeldAcrossWork,
        Wait::Running if lasted || starves(scene, queue, thread) => FaultClass::HeldAcrossWork,
        Wait::Running if total >= BUSY => FaultClass::HotLock,
        Wait::Running => return None,
        Wait::Unknown => FaultClass::Queue,
    };
    let why = match (class, best.level) {
        (FaultClass::LostUnlock, _) => {
            "the thread that has the lock waits for its next task: it left without unlocking"
                .to_owned()
        }
        (FaultClass::HotLock, _) => {
            "the thread inside is running, and nobody is seen to have waited for long".to_owned()
        }
        _ => format!("{}, and waits for {}", best.why, thread.wait.what()),
    };
    let level = if class == FaultClass::HotLock { Level::Possible } else { best.level };
    Some((class, level, why))
}

fn is_java(scene: &Scene<'_>) -> bool {
    scene.dump.runtime == Runtime::Java
}

/// Whether the holder has had the processor all the while and its waiters have hardly: they have
/// never been served.
fn starves(scene: &Scene<'_>, queue: &Queue, holder: &Thread) -> bool {
    const MUCH: u64 = 200_000;
    let Some(own) = holder.cpu.filter(|&cpu| cpu >= MUCH) else { return false };
    scene.threads(queue).all(|t| t.cpu.is_some_and(|cpu| cpu * 50 < own))
}

/// Whether the holder waits for the next element at the very line at which the others wait for the
/// lock: workers that pass a receiver on.
fn passes_on(scene: &Scene<'_>, queue: &Queue, holder: &Thread) -> bool {
    let stack = scene.dump.stack(holder);
    let site = stack.frames.get(stack.depth).map(|f| f.function);
    matches!(holder.wait, Wait::Take | Wait::Condition | Wait::Io)
        && site.is_some_and(|site| queue.sites == [site])
}

fn severity(
    scene: &Scene<'_>,
    class: FaultClass,
    total: u64,
    holder: Option<Wait>,
    lasted: bool,
    level: Level,
) -> Severity {
    let threads = scene.dump.threads.iter().filter(|t| t.wait != Wait::Idle).count() as u64;
    let by_size = if total >= CROWD || (total >= 10 && total * 2 >= threads) {
        Severity::Critical
    } else if total >= FEW as u64 {
        Severity::Serious
    } else {
        Severity::Minor
    };
    let least = match (class, holder) {
        (FaultClass::HotLock, _) => Severity::Minor,
        _ if lasted && level <= Level::Likely => Severity::Critical,
        _ if lasted => Severity::Serious,
        (FaultClass::LostUnlock, Some(Wait::Idle)) => Severity::Serious,
        (FaultClass::LostUnlock | FaultClass::Queue | FaultClass::HeldAcrossWork, _) => {
            Severity::Minor
        }
        _ => Severity::Serious,
    };
    by_size.max(least)
}

/// A ring of locks.
pub(super) fn cycle(scene: &Scene<'_>, cycle: &Cycle) -> Finding {
    let largest = cycle.queues.iter().copied().max_by_key(|&q| scene.queues[q].waiters.len());
    let q = largest.unwrap_or_default();
    let mut finding = describe(scene, q);
    let alone = cycle.steps.len() == 1;
    let once = cycle.queues.iter().any(|&q| scene.queues[q].lock == Lock::Once);
    finding.class = match (alone, once) {
        (true, _) => FaultClass::SelfDeadlock,
        (false, true) => FaultClass::Deadlock,
        (false, false) => FaultClass::LockOrderInversion,
    };
    let lock = |q: usize| lock_name(scene.dump, &scene.queues[q]);
    let steps = &cycle.steps;
    finding.cycle = steps
        .iter()
        .enumerate()
        .map(|(i, (held, candidate))| {
            let thread = &scene.dump.threads[candidate.thread as usize];
            CycleStep {
                thread: Some(thread.name.to_string()),
                holds: lock(*held),
                waits_for: lock(steps[(i + 1) % steps.len()].0),
                frame: frame_name(scene.dump, thread, candidate.frame),
                evidence: Some(evidence(scene.dump, thread)),
                ..CycleStep::default()
            }
        })
        .collect();
    finding.title = if alone {
        format!(
            "a thread waits for {} that it has itself; {} wait behind it",
            lock(q),
            count(scene.queues[q].total().saturating_sub(1))
        )
    } else {
        let names: Vec<String> = steps.iter().map(|(q, _)| lock(*q)).collect();
        format!("{} wait for each other, over {}", count(steps.len() as u64), names.join(" and "))
    };
    let total: u64 = cycle.queues.iter().map(|&q| scene.queues[q].total()).sum();
    let lasted = cycle.queues.iter().any(|&q| scene.has_lasted(q));
    finding.severity = match cycle.level {
        Level::Certain => Severity::Critical,
        Level::Likely => Severity::Critical,
        Level::Possible if lasted && total >= 10 => Severity::Critical,
        Level::Possible => Severity::Serious,
    };
    finding.confidence = Confidence {
        level: cycle.level,
        why: match cycle.level {
            Level::Certain => "each waits for what the next has, and none can be first".to_owned(),
            _ => "each is inside what the next waits for; the form does not say who has which lock"
                .to_owned(),
        },
    };
    finding.holders = steps.iter().map(|(_, c)| holder(scene, c)).collect();
    finding.remedy = remedy(finding.class).to_owned();
    if cycle.level > Level::Certain {
        finding.collect_next.extend(better(scene.dump).map(str::to_owned));
    }
    finding
}

/// Everything of a queue but its cause.
fn describe(scene: &Scene<'_>, q: usize) -> Finding {
    let queue = &scene.queues[q];
    let dump = scene.dump;
    let threads: Vec<&Thread> = scene.threads(queue).collect();
    let name = lock_name(dump, queue);
    let kind = match queue.lock {
        Lock::Mutex => ResourceKind::Mutex,
        Lock::Read | Lock::Write => ResourceKind::RwMutex,
        Lock::Once => ResourceKind::Once,
    };
    let kind = if queue.is_sure { kind } else { ResourceKind::Lock };
    let verb = if threads.len() == 1 { "waits" } else { "wait" };
    let title = if queue.is_sure {
        format!("{} {verb} for the lock of {name}", count(queue.total()))
    } else {
        format!("{} stand at one line of {name}", count(queue.total()))
    };
    let declared = scene.holdings[q].candidates.first().filter(|c| c.level == Level::Certain);
    Finding {
        id: format!("threads:{}:{name}", dump.text(queue.object.map_or(0, |o| o.id)))
            .to_lowercase()
            .replace(' ', "_"),
        title,
        resource: Resource {
            kind,
            name: name.clone(),
            type_name: Some(queue.owner.clone()),
            address: queue.object.map(|o| dump.text(o.id).to_owned()),
            sites: threads
                .first()
                .map(|t| site(dump, t))
                .into_iter()
                .chain(queue.sites.iter().map(|s| dump.text(*s).to_owned()))
                .collect(),
            ..Resource::default()
        },
        held: declared.map(|c| Held {
            mode: HeldMode::Write,
            why: c.why.to_owned(),
            evidence: vec![evidence(dump, &dump.threads[c.thread as usize])],
        }),
        evidence: threads.iter().take(3).map(|t| evidence(dump, t)).collect(),
        waiters: waiters(dump, &threads),
        ..Finding::default()
    }
}

/// What to call a lock: the type that has it, and of Java's own locks the class that takes it.
fn lock_name(dump: &ThreadDump, queue: &Queue) -> String {
    let type_name = queue.object.map_or("", |o| dump.text(o.type_name));
    let general = type_name.is_empty() || type_name.starts_with("java.");
    if general { queue.owner.clone() } else { type_name.to_owned() }
}

fn no_holder(scene: &Scene<'_>, queue: &Queue) -> String {
    match scene.dump.runtime {
        Runtime::Java if !scene.dump.lists_owners && queue.is_sure => {
            "this dump does not list who has locks of java.util.concurrent: take it with `-l`"
                .to_owned()
        }
        _ if !queue.is_sure => "the form does not show whether they wait for a lock".to_owned(),
        _ => "nobody in the dump is seen inside what the lock guards".to_owned(),
    }
}

/// The form of the same dump that says more.
fn better(dump: &ThreadDump) -> Option<&'static str> {
    match dump.runtime {
        Runtime::Java if !dump.lists_owners => Some("`jcmd PID Thread.print -l`: it lists owners"),
        Runtime::Python if !dump.shows_native => {
            Some("`py-spy dump --native --locals`: it tells a lock from I/O, and whose it is")
        }
        _ => None,
    }
}

pub(super) fn holder(scene: &Scene<'_>, candidate: &Candidate) -> Holder {
    let thread = &scene.dump.threads[candidate.thread as usize];
    Holder {
        thread: Some(thread.name.to_string()),
        count: 1,
        frame: frame_name(scene.dump, thread, candidate.frame),
        blocked_on: thread.wait.is_blocked().then(|| thread.wait.what().to_owned()),
        frames: path(scene.dump, thread),
        confidence: Confidence { level: candidate.level, why: candidate.why.to_owned() },
        evidence: Some(evidence(scene.dump, thread)),
        ..Holder::default()
    }
}

/// Where the holder's own wait leads: from lock to lock to the one that waits for something else.
fn chain(scene: &Scene<'_>, first: u32) -> Option<String> {
    const LONGEST: usize = 8;
    let mut told = Vec::new();
    let mut index = first;
    let mut thread = &scene.dump.threads[index as usize];
    for _ in 0..LONGEST {
        if !matches!(thread.wait, Wait::Lock(_)) {
            break;
        }
        let at = *scene.waits_in.get(&index)?;
        let next = scene.holdings[at].candidates.first()?;
        index = next.thread;
        thread = &scene.dump.threads[index as usize];
        let name = lock_name(scene.dump, &scene.queues[at]);
        let frame = frame_name(scene.dump, thread, next.frame);
        told.push(format!("{name}, held by thread \"{}\" in {frame}", thread.name));
    }
    if told.is_empty() {
        return None;
    }
    Some(format!(
        "the holder waits for {}, which waits for {}",
        told.join(", which waits for "),
        thread.wait.what()
    ))
}

/// Who waits, by the names of threads and by stacks.
pub(super) fn waiters(dump: &ThreadDump, threads: &[&Thread]) -> Waiters {
    let (mut entries, mut paths) = (FxHashMap::default(), FxHashMap::default());
    let mut readers = 0;
    for thread in threads {
        let entry: &mut (u64, &Thread) = entries.entry(family(&thread.name)).or_insert((0, thread));
        entry.0 += 1;
        let path: &mut (u64, &Thread) = paths.entry(thread.stack).or_insert((0, thread));
        path.0 += 1;
        readers += u64::from(thread.wait == Wait::Lock(Lock::Read));
    }
    let mut by_entry: Vec<EntryCount> = entries
        .into_iter()
        .map(|(name, (count, thread))| EntryCount {
            kind: EntryKind::Thread,
            name: name.to_owned(),
            function: site(dump, thread),
            count,
        })
        .collect();
    by_entry.sort_by(|a, b| (b.count, &a.name).cmp(&(a.count, &b.name)));
    by_entry.truncate(LISTED);
    let mut paths: Vec<(u64, &Thread)> = paths.into_values().collect();
    paths.sort_by_key(|(count, thread)| (std::cmp::Reverse(*count), thread.line, thread.id));
    let by_path = paths
        .into_iter()
        .take(LISTED)
        .map(|(count, thread)| PathCount {
            count,
            wants: match thread.wait {
                Wait::Lock(Lock::Read) => "read".to_owned(),
                Wait::Lock(Lock::Write) => "write".to_owned(),
                wait => wait.what().to_owned(),
            },
            frames: path(dump, thread),
            evidence: Some(evidence(dump, thread)),
        })
        .collect();
    let total = threads.len() as u64;
    let locks = threads.iter().any(|t| matches!(t.wait, Wait::Lock(_)));
    Waiters { total, readers, writers: if locks { total - readers } else { 0 }, by_entry, by_path }
}

/// `http-worker` of `http-worker-12`: threads of one pool.
pub(super) fn family(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let bare = bare.trim_end_matches(['-', '_', '#', ' ', '(', ')', '.']);
    if bare.is_empty() { name } else { bare }
}

fn frame_name(dump: &ThreadDump, thread: &Thread, frame: usize) -> String {
    let stack = dump.stack(thread);
    stack.frames.get(frame).map_or_else(String::new, |f| named(dump, f))
}

fn named(dump: &ThreadDump, frame: &super::super::dump::Frame) -> String {
    let (function, place) = (dump.function(frame), dump.text(frame.place));
    let short = place.rsplit('/').next().unwrap_or(place);
    if short.is_empty() { function.to_owned() } else { format!("{function} ({short})") }
}

/// The program's first frame, with its place.
pub(super) fn site(dump: &ThreadDump, thread: &Thread) -> String {
    frame_name(dump, thread, dump.stack(thread).depth)
}

/// The frames from the program's first on, innermost first.
pub(super) fn path(dump: &ThreadDump, thread: &Thread) -> Vec<String> {
    const MOST: usize = 64;
    let stack = dump.stack(thread);
    let from = if stack.depth < stack.frames.len() { stack.depth.saturating_sub(2) } else { 0 };
    stack.frames.iter().skip(from).take(MOST).map(|f| named(dump, f)).collect()
}

pub(super) fn evidence(dump: &ThreadDump, thread: &Thread) -> Evidence {
    Evidence {
        input: dump.input.clone(),
        // A document has no lines of its own.
        line: (dump.first_line > 0).then_some(u64::from(thread.line)),
        text: format!("thread \"{}\" in {}", thread.name, site(dump, thread)),
    }
}

fn count(n: u64) -> String {
    if n == 1 { "1 thread".to_owned() } else { format!("{} threads", thousands(n)) }
}

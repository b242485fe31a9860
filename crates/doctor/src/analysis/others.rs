//! Stalls without a lock: senders without a receiver, exhausted pools, file systems that do not
//! answer, goroutines that the garbage collector proved lost. Waiting is what goroutines do; only numbers or proof make it a finding.

use std::collections::BTreeMap;

use crate::goroutine::{Name, RuntimeCall};
use crate::report::{
    Confidence, EntryKind, FaultClass, Finding, Level, PathCount, Resource, ResourceKind, Severity,
    Since, Waiters,
};

use super::compare::Unmoved;
use super::lock::waiters;
use super::remedy::remedy;
use super::scene::{Actor, Scene};
use super::wait::{Wait, first_of_program, is_prompt_call, is_std};
use crate::words::goroutines;

/// Goroutines at one place from which on waiting is a pile-up.
const MANY: u64 = 1000;
/// The same, where each is somebody's request or waits to hand something over.
const SOME: u64 = 10;
/// Leaks and other waits listed.
const LISTED: usize = 24;
/// More workers than this are no pool.
const FLEET: u64 = 5 * MANY;
/// The same, where each is a request and the form does not say what for it waits.
const REQUESTS: u64 = 100;

pub(super) fn findings(scene: &Scene<'_>, unmoved: &Unmoved) -> Vec<Finding> {
    let mut groups: BTreeMap<(FaultClass, &str, &str), Vec<&Actor>> = BTreeMap::new();
    for actor in &scene.actors {
        let facts = scene.facts(actor);
        let stack = scene.stack(actor);
        let site = site(scene, actor);
        let nil = scene.dump.state(stack).is_some_and(|s| s.ends_with("(nil chan)"));
        if stack.leaked || nil {
            groups.entry((FaultClass::Leak, site, noun(facts.wait))).or_default().push(actor);
        } else if let Some(pool) = pool(scene, actor) {
            groups.entry((FaultClass::ExhaustedPool, pool, "")).or_default().push(actor);
        } else if !is_std(Name::of(site).package) {
            // A fleet of workers that waits for work is what an idle daemon looks like.
            let at_root = match facts.wait {
                Wait::Receive | Wait::Condition => is_root(scene, actor),
                // It may be a send: beyond what anybody keeps as a pool it is told.
                Wait::Channel => actor.count < FLEET && is_root(scene, actor),
                _ => false,
            };
            let class = match facts.wait {
                _ if at_root => continue,
                Wait::Send => FaultClass::SlowConsumer,
                Wait::Receive | Wait::Condition | Wait::Semaphore => FaultClass::SilentProducer,
                Wait::Channel => FaultClass::Queue,
                Wait::Syscall if is_prompt_call(scene.dump, stack) => FaultClass::StuckIo,
                _ => continue,
            };
            groups.entry((class, site, "")).or_default().push(actor);
        }
    }
    // Whoever waits in a plain send or for a condition does not give up: if some have left since the
    // earlier dump, the line moves.
    let moves = |actors: &[&Actor]| {
        let stays = |a: &&Actor| {
            matches!(scene.facts(a).wait, Wait::Send | Wait::Condition | Wait::Semaphore)
        };
        let stacks = actors.iter().map(|a| a.stack).collect();
        actors.iter().all(stays)
            && actors.iter().all(|a| a.minutes == 0)
            && unmoved.left(None, &stacks) > 0
    };
    groups
        .into_iter()
        .filter(|((class, ..), actors)| *class == FaultClass::Leak || !moves(actors))
        .filter_map(|((class, site, _), actors)| finding(scene, class, site, &actors))
        .collect()
}

fn finding(scene: &Scene<'_>, class: FaultClass, site: &str, actors: &[&Actor]) -> Option<Finding> {
    let total: u64 = actors.iter().map(|a| a.count).sum();
    let longest = actors.iter().max_by_key(|a| a.minutes)?;
    let long = longest.minutes > 0;
    let is_stall = match class {
        FaultClass::Leak => true,
        FaultClass::StuckIo => long,
        FaultClass::SlowConsumer | FaultClass::ExhaustedPool => {
            total >= SOME || (total >= 2 && long)
        }
        FaultClass::Queue if (REQUESTS..MANY).contains(&total) => {
            requests(&waiters(scene, actors.iter().copied())) >= REQUESTS
        }
        _ => total >= MANY,
    };
    if !is_stall {
        return None;
    }
    let first = actors[0];
    let wait = scene.facts(first).wait;
    let (kind, doing) = match class {
        FaultClass::ExhaustedPool => (ResourceKind::Pool, "wait for their turn in"),
        FaultClass::SlowConsumer => (ResourceKind::Channel, "wait to send in"),
        FaultClass::Leak => (kind_of(wait), "can never proceed in"),
        _ => (kind_of(wait), "wait in"),
    };
    let short = Name::short(site);
    let waiting = waiters(scene, actors.iter().copied());
    let (level, why) = match class {
        FaultClass::Leak if !scene.stack(first).leaked => {
            (Level::Certain, "an operation on a nil channel never returns")
        }
        FaultClass::Leak => {
            (Level::Certain, "the garbage collector found nothing reachable that could wake them")
        }
        FaultClass::ExhaustedPool if long || total >= MANY => {
            (Level::Likely, "so many wait at once in the function that lends")
        }
        FaultClass::ExhaustedPool => (
            Level::Possible,
            "they wait in the function that lends; a pool at full load looks like this too, and one \
             dump does not show movement",
        ),
        FaultClass::SlowConsumer if long || total >= MANY => {
            (Level::Likely, "senders stand in line at one place")
        }
        FaultClass::StuckIo => {
            (Level::Likely, "the call is one that a file system answers at once when it is well")
        }
        _ => (Level::Possible, "the number alone speaks for it; one dump does not show movement"),
    };
    let severity = match class {
        FaultClass::Leak => Severity::Minor,
        FaultClass::StuckIo if total < SOME => Severity::Minor,
        // At full load there is a line at any moment: only time or a crowd makes it a stall.
        FaultClass::SlowConsumer | FaultClass::ExhaustedPool
            if !long && requests(&waiting) < REQUESTS && total < MANY =>
        {
            Severity::Minor
        }
        FaultClass::SilentProducer if !long && requests(&waiting) < REQUESTS => Severity::Serious,
        _ if total >= MANY => Severity::Critical,
        _ => Severity::Serious,
    };
    let mut collect_next = Vec::new();
    if level != Level::Certain {
        collect_next.push("a second dump ten seconds later: who moved, who did not".to_owned());
    }
    Some(Finding {
        id: format!("{class:?}:{short}:{}", noun(wait)).to_lowercase().replace(' ', "_"),
        class,
        severity,
        title: {
            // "1 goroutine waits".
            let doing = match doing.strip_prefix("wait ") {
                Some(rest) if total == 1 => format!("waits {rest}"),
                _ => doing.to_owned(),
            };
            format!("{} {doing} {short} ({})", goroutines(total), noun(wait))
        },
        resource: Resource {
            kind,
            name: format!("{} in {short}", noun(wait)),
            package: Some(Name::of(site).package.to_owned()),
            sites: vec![site.to_owned()],
            ..Resource::default()
        },
        since: long.then(|| Since {
            minutes: Some(u64::from(longest.minutes)),
            text: format!(
                "the longest has waited {} minutes, give or take one cycle of the garbage collector",
                longest.minutes
            ),
            evidence: Some(scene.evidence(longest, 0)),
            ..Since::default()
        }),
        no_holder: (!matches!(class, FaultClass::Leak | FaultClass::StuckIo)).then(|| {
            "a dump does not say which goroutines share a channel or a pool".to_owned()
        }),
        evidence: waiting.by_path.iter().take(3).filter_map(|p| p.evidence.clone()).collect(),
        waiters: waiting,
        remedy: remedy(class).to_owned(),
        collect_next,
        confidence: Confidence { level, why: why.to_owned() },
        ..Finding::default()
    })
}

/// Those who wait for an answer.
fn requests(waiters: &Waiters) -> u64 {
    let served = |kind| matches!(kind, EntryKind::Grpc | EntryKind::Http | EntryKind::Webhook);
    waiters.by_entry.iter().filter(|e| served(e.kind)).map(|e| e.count).sum()
}

/// Whether it waits in its goroutine's first frame, or below closures that only started it.
fn is_root(scene: &Scene<'_>, actor: &Actor) -> bool {
    let outside = scene.stack(actor).frames.get(scene.facts(actor).depth + 1..).unwrap_or(&[]);
    outside.iter().all(|f| {
        scene.dump.known(f.function) == RuntimeCall::Runtime
            || Name::of(scene.dump.function(f.function)).closure
    })
}

/// What else is parked, most first: no finding, but what a reader looks through next.
pub(super) fn parked(scene: &Scene<'_>) -> Vec<PathCount> {
    let mut parked: Vec<&Actor> = scene
        .actors
        .iter()
        .filter(|a| {
            let facts = scene.facts(a);
            facts.wait.is_blocked()
                && facts.place.is_none()
                && !scene.stack(a).leaked
                && (!is_std(Name::of(site(scene, a)).package) || facts.wait == Wait::Group)
        })
        .collect();
    // One that can never proceed says more than a crowd that waits for work.
    parked.sort_by_key(|a| {
        let never = scene.facts(a).wait == Wait::Forever;
        (!never, std::cmp::Reverse(a.count), a.stack)
    });
    parked
        .into_iter()
        .take(LISTED)
        .map(|actor| {
            let facts = scene.facts(actor);
            PathCount {
                count: actor.count,
                wants: scene
                    .dump
                    .state(scene.stack(actor))
                    .map_or_else(|| facts.wait.what().to_owned(), str::to_owned),
                frames: scene.path(actor),
                evidence: Some(scene.evidence(actor, facts.depth)),
            }
        })
        .collect()
}

/// The function that waits; where only the library's frames show, whoever started it.
fn site<'d>(scene: &Scene<'d>, actor: &Actor) -> &'d str {
    let stack = scene.stack(actor);
    first_of_program(scene.dump, stack, scene.facts(actor).depth).unwrap_or_else(|| {
        let outermost = stack.frames.last().map(|f| f.function);
        stack.created_by.or(outermost).map_or("", |f| scene.dump.function(f))
    })
}

fn kind_of(wait: Wait) -> ResourceKind {
    match wait {
        Wait::Lock(_) => ResourceKind::Lock,
        Wait::Once => ResourceKind::Once,
        Wait::Group => ResourceKind::WaitGroup,
        Wait::Condition => ResourceKind::Condition,
        Wait::Semaphore => ResourceKind::Semaphore,
        Wait::Send | Wait::Receive | Wait::Select | Wait::Channel | Wait::Forever => {
            ResourceKind::Channel
        }
        Wait::Io | Wait::Syscall => ResourceKind::Io,
        Wait::Sleep | Wait::Running | Wait::Idle | Wait::Unknown => ResourceKind::Other,
    }
}

fn noun(wait: Wait) -> &'static str {
    match wait {
        Wait::Lock(_) => "a lock",
        Wait::Once => "a sync.Once",
        Wait::Group => "a wait group",
        Wait::Condition => "a condition",
        Wait::Semaphore => "a semaphore",
        Wait::Forever => "a nil channel or an empty select",
        Wait::Io => "I/O",
        Wait::Syscall => "a system call",
        Wait::Send => "a channel send",
        Wait::Receive => "a channel receive",
        Wait::Select => "a select",
        _ => "a channel",
    }
}

/// The function that lends from a bounded set, where the actor waits in one.
fn pool<'d>(scene: &Scene<'d>, actor: &Actor) -> Option<&'d str> {
    let facts = scene.facts(actor);
    if !matches!(
        facts.wait,
        Wait::Select
            | Wait::Receive
            | Wait::Send
            | Wait::Channel
            | Wait::Condition
            | Wait::Semaphore
    ) {
        return None;
    }
    let stack = scene.stack(actor);
    stack.frames.iter().skip(facts.depth).take(4).find_map(|f| {
        let symbol = scene.dump.function(f.function);
        lends(&Name::of(symbol)).then_some(symbol)
    })
}

/// Whether a name says that the function lends from a bounded set.
pub(super) fn lends(name: &Name<'_>) -> bool {
    let receiver = name.receiver.unwrap_or("").to_ascii_lowercase();
    let function = name.function.to_ascii_lowercase();
    let lends = ["acquire", "borrow", "checkout", "waitturn", "getconn", "waitforconn"]
        .iter()
        .any(|word| function.contains(word));
    let is_pool = ["pool", "semaphore", "weighted", "limiter", "throttle"]
        .iter()
        .any(|word| receiver.contains(word));
    let takes = ["get", "take", "wait", "enter"].iter().any(|word| function.starts_with(word));
    let database =
        (name.package, name.receiver, name.function) == ("database/sql", Some("DB"), "conn");
    lends || database || (is_pool && takes)
}

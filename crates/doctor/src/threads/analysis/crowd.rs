//! Crowds that wait for something other than a lock: room in a queue, a permit, something lent, a
//! result of their own pool.

use rustc_hash::FxHashMap;

use super::super::dump::{Runtime, Sym, Thread};
use super::super::wait::Wait;
use super::queue::owner_of;
use super::{Scene, tell};
use crate::analysis::remedy;
use crate::report::{
    Confidence, FaultClass, Finding, Holder, Level, Resource, ResourceKind, Severity,
};
use crate::words::thousands;

/// From here on a crowd is worth a word.
const CROWD: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Put,
    Permit,
    Lent,
}

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let mut crowds: FxHashMap<(Kind, Sym, Sym), Vec<&Thread>> = FxHashMap::default();
    for thread in &scene.dump.threads {
        let stack = scene.dump.stack(thread);
        let Some(site) = stack.frames.get(stack.depth) else { continue };
        let kind = match thread.wait {
            Wait::Put => Kind::Put,
            Wait::Permit => Kind::Permit,
            Wait::Take | Wait::Condition if lends(scene.dump.function(site)) => Kind::Lent,
            _ => continue,
        };
        let object = thread.on.map_or(0, |on| on.id);
        crowds.entry((kind, object, site.function)).or_default().push(thread);
    }
    let mut crowds: Vec<_> = crowds.into_iter().filter(|(_, c)| c.len() >= CROWD).collect();
    crowds.sort_by_key(|((kind, _, site), c)| (std::cmp::Reverse(c.len()), *kind, *site));
    let mut findings: Vec<Finding> =
        crowds.into_iter().filter_map(|((kind, ..), crowd)| crowded(scene, kind, &crowd)).collect();
    findings.extend(starved(scene));
    findings
}

fn crowded(scene: &Scene<'_>, kind: Kind, crowd: &[&Thread]) -> Option<Finding> {
    let stays = scene.earlier.is_some() && crowd.iter().all(|t| scene.is_unmoved(t));
    // In a pair of dumps whoever left has been served.
    if scene.earlier.is_some() && !stays {
        return None;
    }
    let (class, resource, what) = match kind {
        Kind::Put => (FaultClass::SlowConsumer, ResourceKind::Channel, "wait for room in a queue"),
        Kind::Permit => (FaultClass::ExhaustedPool, ResourceKind::Semaphore, "wait for a permit"),
        Kind::Lent => (FaultClass::ExhaustedPool, ResourceKind::Pool, "wait for something lent"),
    };
    let owner = owner_of(scene.dump, crowd[0]);
    let total = crowd.len() as u64;
    let site = tell::site(scene.dump, crowd[0]);
    Some(Finding {
        id: format!("{class:?}:{owner}").to_lowercase().replace(' ', "_"),
        class,
        severity: if stays { Severity::Serious } else { Severity::Minor },
        title: format!("{} threads {what}, in {site}", thousands(total)),
        resource: Resource {
            kind: resource,
            name: owner.clone(),
            type_name: Some(owner),
            address: crowd[0].on.map(|on| scene.dump.text(on.id).to_owned()),
            sites: vec![site],
            ..Resource::default()
        },
        waiters: tell::waiters(scene.dump, crowd),
        no_holder: Some("a dump shows who waits, not who keeps what they wait for".to_owned()),
        remedy: remedy(class).to_owned(),
        collect_next: if stays { Vec::new() } else { vec![tell::SECOND.to_owned()] },
        evidence: crowd.iter().take(3).map(|t| tell::evidence(scene.dump, t)).collect(),
        confidence: if stays {
            Confidence {
                level: Level::Likely,
                why: "in two dumps none of them has moved".to_owned(),
            }
        } else {
            Confidence {
                level: Level::Possible,
                why: "one dump: at full load it looks like this too".to_owned(),
            }
        },
        ..Finding::default()
    })
}

/// Whether a function lends from a bounded set, by its name.
fn lends(function: &str) -> bool {
    let last = function.rsplit(['.', ':']).next().unwrap_or(function).to_ascii_lowercase();
    ["getconnection", "get_connection", "borrow", "acquire", "checkout", "lease", "obtain"]
        .iter()
        .any(|word| last.contains(word))
}

/// Pools all of whose threads wait for a result: nobody is left to produce it if it is theirs.
fn starved(scene: &Scene<'_>) -> Vec<Finding> {
    let pooled = |thread: &Thread| {
        let frames = &scene.dump.stack(thread).frames;
        frames.iter().any(|f| match scene.dump.runtime {
            Runtime::Java => scene.dump.function(f).ends_with("ThreadPoolExecutor.runWorker"),
            Runtime::Python => {
                scene.dump.function(f).ends_with("_worker")
                    && scene.dump.text(f.place).contains("thread.py:")
            }
            Runtime::Native => false,
        })
    };
    let mut pools: FxHashMap<&str, Vec<&Thread>> = FxHashMap::default();
    for thread in scene.dump.threads.iter().filter(|t| pooled(t)) {
        pools.entry(tell::family(&thread.name)).or_default().push(thread);
    }
    let mut pools: Vec<_> = pools.into_iter().collect();
    pools.sort_by_key(|(name, _)| *name);
    pools
        .into_iter()
        .filter(|(_, threads)| threads.len() > 1 && threads.iter().all(|t| t.wait == Wait::Future))
        .map(|(name, threads)| {
            let stays = scene.earlier.is_some() && threads.iter().all(|t| scene.is_unmoved(t));
            let first = threads[0];
            let (owner, site) = (owner_of(scene.dump, first), tell::site(scene.dump, first));
            let total = threads.len() as u64;
            let level = if stays { Level::Likely } else { Level::Possible };
            let why = "every thread of the pool waits for a result; if those are tasks of the same \
                       pool, none is left to run them";
            let confidence = Confidence { level, why: why.to_owned() };
            Finding {
                id: format!("starvedpool:{name}").to_lowercase().replace(' ', "_"),
                class: FaultClass::Deadlock,
                severity: if stays { Severity::Serious } else { Severity::Minor },
                title: format!("all {} threads of {name} wait for a result", thousands(total)),
                resource: Resource {
                    kind: ResourceKind::Pool,
                    name: format!("{name}, in {owner}"),
                    type_name: Some(owner),
                    sites: vec![site.clone()],
                    ..Resource::default()
                },
                waiters: tell::waiters(scene.dump, &threads),
                holders: vec![Holder {
                    thread: Some(first.name.to_string()),
                    count: total,
                    frame: site,
                    blocked_on: Some(first.wait.what().to_owned()),
                    frames: tell::path(scene.dump, first),
                    confidence: Confidence { level: Level::Possible, ..confidence.clone() },
                    evidence: Some(tell::evidence(scene.dump, first)),
                    ..Holder::default()
                }],
                remedy: remedy(FaultClass::Deadlock).to_owned(),
                collect_next: if stays { Vec::new() } else { vec![tell::SECOND.to_owned()] },
                evidence: threads.iter().take(3).map(|t| tell::evidence(scene.dump, t)).collect(),
                confidence,
                ..Finding::default()
            }
        })
        .collect()
}

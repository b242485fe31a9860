//! What follows from a lock's queue: a pool runs dry when those who took from it wait for a lock.
//! The lock then ranks as high as what it starves, and above it.

use crate::report::{Blast, FaultClass, Finding};

/// Tells each lock's finding which exhausted pools its waiters keep.
pub(super) fn attribute(findings: &mut [Finding]) {
    for p in 0..findings.len() {
        let Some(borrowers) = borrowers(&findings[p]) else { continue };
        let (severity, count) = (findings[p].severity, findings[p].waiters.total);
        let what = findings[p].resource.name.clone();
        for lock in findings.iter_mut().filter(|f| f.class != FaultClass::ExhaustedPool) {
            let mut outer = lock.waiters.by_path.iter().flat_map(|path| path.frames.iter().skip(1));
            let Some(by) = outer.find(|frame| borrowers.contains(frame)).cloned() else {
                continue;
            };
            lock.severity = lock.severity.min(severity);
            lock.blast_radius.push(Blast {
                what: what.clone(),
                count,
                why: format!("others that took from it in {by} wait here"),
            });
        }
    }
}

/// The functions that take from an exhausted pool: those that call what lends.
fn borrowers(pool: &Finding) -> Option<Vec<String>> {
    if pool.class != FaultClass::ExhaustedPool {
        return None;
    }
    let lends = pool.resource.sites.first()?;
    let callers = pool.waiters.by_path.iter().filter_map(|path| {
        let at = path.frames.iter().position(|frame| frame == lends)?;
        path.frames.get(at + 1).cloned()
    });
    Some(callers.collect())
}

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::outcome::Named;

pub(super) fn plan(scale: f64) -> Plan {
    let nowhere = PathBuf::new;
    let memory = crate::plan::MEMORY;
    let (dir, plugin, program) = (nowhere(), nowhere(), nowhere());
    Plan { seed: 1, scale, limit: None, memory, dir, plugin, program }
}

/// How a design ended that named its stall at once and has these figures.
pub(super) fn ended(figures: &[(&str, f64)]) -> Ended {
    let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let named = Named { what: "it".to_owned(), step: "a step".to_owned(), after_ms: 1.0 };
    Ended { figures, named: Some(named), ..Ended::default() }
}

/// All hold of what is good, and each fails of something that is not.
pub(super) fn can_each_fail(good: &Ended, judge: impl Fn(&Ended) -> Vec<Requirement>) {
    let all = judge(good);
    assert!(all.iter().all(|requirement| requirement.ok), "{all:#?}");
    let mut bad = vec![
        Ended { named: None, ..good.clone() },
        Ended { stopped: Some("at a limit".to_owned()), ..good.clone() },
        Ended { peak_memory_bytes: u64::MAX, ..good.clone() },
    ];
    for (name, value) in &good.figures {
        for other in [value - 1.0, value + 1e6] {
            let mut ended = good.clone();
            ended.figures.insert(name.clone(), other);
            bad.push(ended);
        }
    }
    let failed = bad.iter().flat_map(judge).filter(|requirement| !requirement.ok);
    let failed: BTreeSet<String> = failed.map(|requirement| requirement.name).collect();
    let all: BTreeSet<String> = all.into_iter().map(|requirement| requirement.name).collect();
    assert_eq!(failed, all);
}

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<_> = INCIDENTS.iter().map(|incident| incident.name).collect();
    assert_eq!(names.len(), INCIDENTS.len());
    assert!(names.iter().all(|name| Incident::named(name).is_some()));
    assert!(Incident::named("no-such").is_none());
}

#[test]
fn what_is_missing_is_said() {
    let said = Need::Plugin.missing(Path::new("/no/such/plugin")).unwrap();
    assert!(said.contains("/no/such/plugin") && said.contains("cargo build -p cni"), "{said}");
}

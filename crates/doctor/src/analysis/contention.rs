//! Mutex and block profiles as a second witness: where the same owner's lock was fought over.

use crate::goroutine::{Dump, Name, ProfileKind, RuntimeCall};
use crate::report::{Evidence, Finding};

use crate::words::thousands;

/// Adds to a finding what a mutex or block profile says of the same type or package.
pub(super) fn witness(finding: &mut Finding, profile: &Dump) {
    let resource = &finding.resource;
    let Some(package) = resource.package.as_deref() else {
        return;
    };
    let covers = |name: &Name<'_>| {
        name.package == package
            && resource.type_name.as_deref().is_none_or(|t| name.receiver == Some(t))
    };
    // The first frame of the program is where the lock was released, or waited for.
    let mut sites: Vec<(u64, usize, &str)> = Vec::new();
    for (s, stack) in profile.stacks.iter().enumerate() {
        let first = stack.frames.iter().find(|f| profile.known(f.function) == RuntimeCall::Program);
        let symbol = first.map_or("", |f| profile.function(f.function));
        if covers(&Name::of(symbol)) {
            sites.push((stack.count, s, symbol));
        }
    }
    sites.sort_by_key(|&(count, s, _)| (std::cmp::Reverse(count), s));
    let what = match profile.kind {
        ProfileKind::Mutex => "others waited for what was released in",
        _ => "waits were counted in",
    };
    for (count, s, symbol) in sites.into_iter().take(3) {
        finding.details.push(format!(
            "{}: {} times {what} {}",
            profile.kind,
            thousands(count),
            Name::short(symbol)
        ));
        finding.evidence.push(Evidence {
            input: profile.input.clone(),
            line: profile.stacks[s].line.map(u64::from),
            text: format!("{count} × {symbol}"),
        });
    }
}

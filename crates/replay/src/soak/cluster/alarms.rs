//! Checks what processes say of themselves: an injected stall is named in time, and nothing else is.
//!
//! A process counts what it named (operations that are late, parts that make no progress). A count that
//! grows while no fault explains it is a false alarm; one that does not grow while a fault holds the process
//! up is a stall that nobody named.

use std::collections::BTreeMap;

use super::scope::{Ms, Part, Scope};

/// After the end of what made it late, so long until it is told: the figures are read now and then.
pub(super) const TOLD: Ms = 10_000;

#[derive(Debug, Default)]
pub(super) struct Alarms {
    /// When each process was last asked, and what it had named until then.
    seen: BTreeMap<String, (Ms, u64)>,
    named: Vec<(String, Ms)>,
    pub(super) looked: u64,
    pub(super) explained: u64,
}

impl Alarms {
    /// What a process says that it has named since it began. `parts` are those of it.
    pub(super) fn see(
        &mut self,
        who: &str,
        at: Ms,
        named: u64,
        parts: &[Part],
        scope: &Scope,
    ) -> Option<String> {
        self.looked += 1;
        let before = self.seen.insert(who.to_owned(), (at, named));
        let (since, before) = before.unwrap_or((at, 0));
        // It began anew, and with it its count.
        let grown = if named < before { named } else { named - before };
        if grown == 0 {
            return None;
        }
        self.named.push((who.to_owned(), at));
        if scope.excuses(parts, since.saturating_sub(TOLD), at) {
            self.explained += grown;
            return None;
        }
        Some(format!(
            "{who} named {grown} as late or stuck between {since} and {at}, and no fault explains it"
        ))
    }

    /// Whether one of these processes named something between two moments.
    pub(super) fn was_named(&self, who: &str, from: Ms, until: Ms) -> bool {
        self.named.iter().any(|(name, at)| name.starts_with(who) && (from..=until).contains(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_false_alarm_is_found_and_an_explained_one_is_not_one() {
        let (mut alarms, mut scope) = (Alarms::default(), Scope::default());
        let parts = [Part::Agent(1)];
        assert_eq!(alarms.see("agent 1", 1000, 0, &parts, &scope), None);
        assert!(alarms.see("agent 1", 2000, 1, &parts, &scope).is_some());
        let window = scope.open(&parts, 30_000);
        scope.close(window, 40_000);
        assert_eq!(alarms.see("agent 1", 29_000, 1, &parts, &scope), None);
        assert_eq!(alarms.see("agent 1", 45_000, 3, &parts, &scope), None);
        assert_eq!(alarms.explained, 2);
        // It was restarted: what it says now is what it named since.
        assert_eq!(alarms.see("agent 1", 90_000, 0, &parts, &scope), None);
        assert!(alarms.see("agent 1", 95_000, 1, &parts, &scope).is_some());
    }

    #[test]
    fn a_stall_that_nobody_named_is_found() {
        let (mut alarms, mut scope) = (Alarms::default(), Scope::default());
        scope.open(&[Part::Agent(1)], 0);
        alarms.see("agent 1", 1000, 0, &[Part::Agent(1)], &scope);
        assert!(!alarms.was_named("agent 1", 0, 20_000));
        alarms.see("agent 1", 15_000, 1, &[Part::Agent(1)], &scope);
        assert!(alarms.was_named("agent 1", 0, 20_000));
        assert!(!alarms.was_named("agent 2", 0, 20_000));
    }
}

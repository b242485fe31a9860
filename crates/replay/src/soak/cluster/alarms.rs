//! Checks what processes say of themselves: an injected stall is named in time, and nothing else is.
//!
//! A process counts what it named (operations that are late, parts that make no progress). A count that
//! grows while no fault explains it is a false alarm; one that does not grow while a fault holds the process
//! up is a stall that nobody named.

use std::collections::BTreeMap;

use super::scope::{Ms, Part, Scope};

/// After the end of what made it late, so long until it is told: the figures are read now and then.
pub(super) const TOLD: Ms = 10_000;

/// How often a process has named each kind of thing since it began.
pub(super) type Named = BTreeMap<String, u64>;

#[derive(Debug, Default)]
pub(super) struct Alarms {
    /// When each process was last asked, and what it had named until then.
    seen: BTreeMap<String, (Ms, Named)>,
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
        named: Named,
        parts: &[Part],
        scope: &Scope,
    ) -> Option<String> {
        self.looked += 1;
        let (since, before) =
            self.seen.insert(who.to_owned(), (at, named.clone())).unwrap_or((at, Named::new()));
        let sum = |named: &Named| named.values().sum::<u64>();
        // It began anew, and with it its count.
        let before = if sum(&named) < sum(&before) { Named::new() } else { before };
        let grown: Named = named
            .into_iter()
            .map(|(kind, count)| {
                let known = before.get(&kind).copied().unwrap_or_default();
                (kind, count.saturating_sub(known))
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        if grown.is_empty() {
            return None;
        }
        self.named.push((who.to_owned(), at));
        if scope.excuses(parts, since.saturating_sub(TOLD), at) {
            self.explained += sum(&grown);
            return None;
        }
        let kinds: Vec<String> =
            grown.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
        Some(format!(
            "{who} named as late or stuck between {since} and {at}, and no fault explains it: {}",
            kinds.join(", ")
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

    fn late(count: u64) -> Named {
        Named::from([("add".to_owned(), count)])
    }

    #[test]
    fn a_false_alarm_is_found_and_an_explained_one_is_not_one() {
        let (mut alarms, mut scope) = (Alarms::default(), Scope::default());
        let parts = [Part::Agent(1)];
        assert_eq!(alarms.see("agent 1", 1000, late(0), &parts, &scope), None);
        let alarm = alarms.see("agent 1", 2000, late(1), &parts, &scope);
        assert!(alarm.is_some_and(|it| it.ends_with("1 × add")), "it says what was named");
        let window = scope.open(&parts, 30_000);
        scope.close(window, 40_000);
        assert_eq!(alarms.see("agent 1", 29_000, late(1), &parts, &scope), None);
        assert_eq!(alarms.see("agent 1", 45_000, late(3), &parts, &scope), None);
        assert_eq!(alarms.explained, 2);
        // It was restarted: what it says now is what it named since.
        assert_eq!(alarms.see("agent 1", 90_000, late(0), &parts, &scope), None);
        assert!(alarms.see("agent 1", 95_000, late(1), &parts, &scope).is_some());
    }

    #[test]
    fn a_stall_that_nobody_named_is_found() {
        let (mut alarms, mut scope) = (Alarms::default(), Scope::default());
        scope.open(&[Part::Agent(1)], 0);
        alarms.see("agent 1", 1000, late(0), &[Part::Agent(1)], &scope);
        assert!(!alarms.was_named("agent 1", 0, 20_000));
        alarms.see("agent 1", 15_000, late(1), &[Part::Agent(1)], &scope);
        assert!(alarms.was_named("agent 1", 0, 20_000));
        assert!(!alarms.was_named("agent 2", 0, 20_000));
    }
}

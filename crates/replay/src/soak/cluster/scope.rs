//! `Scope`: what a fault may disturb, and from when until when.
//!
//! Contract: only what says that something came late or not at all asks for an excuse. What must never
//! happen (an acknowledged write lost, two leaders, a forbidden packet) has none.

use std::fs;

use serde::Serialize;

/// Milliseconds since the machine's boot: every process of it, also one in a pod, reads the same.
pub(super) type Ms = u64;

/// Reads the clock that pods read as well.
pub(super) fn now() -> Ms {
    fs::read_to_string("/proc/uptime").ok().and_then(|text| uptime(&text)).unwrap_or_default()
}

/// `12.34 56.78` is 12 340 ms.
pub(super) fn uptime(text: &str) -> Option<Ms> {
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some((seconds * 1000.0) as Ms)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The API server and what asks it.
    Api,
    /// Answers of the webhook.
    Reviews,
    /// What only the leader does: programs of nodes, registrations, pools.
    Leading,
    /// Requests to the controller of this node.
    Controller(u32),
    /// What this node's agent does.
    Agent(u32),
    /// Packets from and to this node's pods.
    Packets(u32),
    /// Packets between these two nodes, of which the first has the smaller number.
    Between(u32, u32),
    /// Pods of this node start and stop.
    Pods(u32),
    /// What is between the first cluster and the second.
    Second,
    /// Everything: the machine itself had no time for us.
    Machine,
}

#[derive(Clone, Debug)]
struct Window {
    parts: Vec<Part>,
    from: Ms,
    until: Option<Ms>,
}

#[derive(Debug, Default)]
pub(super) struct Scope {
    windows: Vec<Window>,
}

impl Scope {
    /// Returns the window's number, for [`Self::close`].
    pub(super) fn open(&mut self, parts: &[Part], from: Ms) -> usize {
        self.windows.push(Window { parts: parts.to_vec(), from, until: None });
        self.windows.len() - 1
    }

    /// `until` includes the time that it may take to recover.
    pub(super) fn close(&mut self, window: usize, until: Ms) {
        if let Some(window) = self.windows.get_mut(window) {
            window.until = Some(until);
        }
    }

    /// Whether one of these parts may have been disturbed at some moment between these two.
    pub(super) fn excuses(&self, parts: &[Part], from: Ms, until: Ms) -> bool {
        self.windows.iter().any(|window| {
            let meets = window.from <= until && window.until.is_none_or(|end| end >= from);
            meets && window.parts.iter().any(|part| *part == Part::Machine || parts.contains(part))
        })
    }

    /// For how long the machine had no time.
    pub(super) fn starved(&self, now: Ms) -> Ms {
        let of_machine = self.windows.iter().filter(|it| it.parts.contains(&Part::Machine));
        of_machine.map(|it| it.until.unwrap_or(now).saturating_sub(it.from)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_fault_may_disturb_is_excused_and_only_until_it_has_recovered() {
        let mut scope = Scope::default();
        let window = scope.open(&[Part::Packets(2), Part::Api], 1000);
        assert!(scope.excuses(&[Part::Packets(2)], 5000, 6000), "it has not ended");
        scope.close(window, 2000);
        assert!(scope.excuses(&[Part::Packets(1), Part::Packets(2)], 1900, 2500));
        assert!(!scope.excuses(&[Part::Packets(2)], 2001, 2500), "it has recovered");
        assert!(!scope.excuses(&[Part::Packets(2)], 0, 999), "it had not begun");
        assert!(!scope.excuses(&[Part::Packets(3)], 1500, 1600), "another node's");
        let starved = scope.open(&[Part::Machine], 3000);
        scope.close(starved, 3500);
        assert!(scope.excuses(&[Part::Packets(3)], 3400, 3450));
        assert_eq!(scope.starved(9000), 500);
    }

    #[test]
    fn the_clock_is_read_as_pods_read_it() {
        assert_eq!(uptime("12.34 56.78\n"), Some(12_340));
        assert_eq!(uptime(""), None);
        assert!(now() > 0);
    }
}

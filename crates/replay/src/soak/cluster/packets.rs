//! Checks packets: pods connect to each other again and again and write down what came of it; none that is
//! forbidden connects, none that is allowed is stopped for long.
//!
//! Ports: [`OPEN`] is allowed to everybody, [`CLOSED`] to nobody, [`GATE`] as a policy has it that comes and
//! goes. What is forbidden for good is never excused. What is allowed may fail once on a busy machine: it is
//! stopped if it fails for [`STOPPED`] without an answer in between.

use std::collections::BTreeMap;

use super::scope::{Ms, Part, Scope};

pub(super) const OPEN: u16 = 8080;
pub(super) const CLOSED: u16 = 9090;
pub(super) const GATE: u16 = 7070;

const STOPPED: Ms = 8000;
/// After a policy was acknowledged by the API server, so long until it holds on every node.
pub(super) const IN_FORCE: Ms = 15_000;

/// One try, as a pod wrote it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) began: Ms,
    pub(super) ended: Ms,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) port: u16,
    pub(super) connected: bool,
}

impl Probe {
    /// `BEGAN ENDED FROM TO PORT ok|no`, with times as `/proc/uptime` has them.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut next = || words.next();
        let began = super::scope::uptime(next()?)?;
        let ended = super::scope::uptime(next()?)?;
        let (from, to) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let port = next()?.parse().ok()?;
        let connected = match next()? {
            "ok" => true,
            "no" => false,
            _ => return None,
        };
        Some(Self { began, ended, from, to, port, connected })
    }
}

/// A change of the gate's policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) asked: Ms,
    /// None while nobody knows whether it was made.
    pub(super) acknowledged: Option<Ms>,
    pub(super) opens: bool,
}

#[derive(Debug, Default)]
pub(super) struct Packets {
    /// Since when each pair fails on the open port.
    failing: BTreeMap<(u32, u32), Ms>,
    pub(super) gate: Vec<Change>,
    pub(super) looked: u64,
    /// How many of them were to be stopped and were.
    pub(super) stopped: u64,
    /// Failures that were too short to count, and those that a fault explains.
    pub(super) brief: u64,
}

impl Packets {
    pub(super) fn see(&mut self, probe: &Probe, scope: &Scope) -> Option<String> {
        self.looked += 1;
        match probe.port {
            CLOSED => self.closed(probe),
            OPEN => self.open(probe, scope),
            _ => self.gated(probe, scope),
        }
    }

    fn closed(&mut self, probe: &Probe) -> Option<String> {
        if probe.connected {
            let Probe { began, from, to, .. } = probe;
            return Some(format!(
                "a packet that policy forbids passed from node {from} to node {to} at {began}"
            ));
        }
        self.stopped += 1;
        None
    }

    fn open(&mut self, probe: &Probe, scope: &Scope) -> Option<String> {
        let Probe { began, ended, from, to, connected, .. } = *probe;
        if connected {
            if self.failing.remove(&(from, to)).is_some() {
                self.brief += 1;
            }
            return None;
        }
        if scope.excuses(&ways(from, to), began, ended) {
            self.brief += 1;
            self.failing.remove(&(from, to));
            return None;
        }
        let since = *self.failing.entry((from, to)).or_insert(began);
        (ended.saturating_sub(since) >= STOPPED).then(|| {
            self.failing.remove(&(from, to));
            format!("packets that policy allows were stopped from node {from} to node {to} from {since} to {ended}")
        })
    }

    fn gated(&mut self, probe: &Probe, scope: &Scope) -> Option<String> {
        let Probe { began, ended, from, to, connected, .. } = *probe;
        let last = self.gate.iter().rev().find(|change| change.asked <= ended)?;
        let known = last.acknowledged?;
        if known + IN_FORCE > began {
            return None;
        }
        let enforced = [Part::Agent(from), Part::Agent(to), Part::Leading, Part::Api];
        let disturbed = scope.excuses(&ways(from, to), last.asked, ended)
            || scope.excuses(&enforced, last.asked, ended);
        if disturbed || (last.opens && connected) {
            return None;
        }
        if !last.opens && !connected {
            self.stopped += 1;
            return None;
        }
        let is = if last.opens { "open" } else { "closed" };
        let found = if connected { "passes" } else { "is stopped" };
        // An allowed one may fail once: the next tries tell.
        if last.opens {
            let key = (from + 1000, to);
            let since = *self.failing.entry(key).or_insert(began);
            if ended.saturating_sub(since) < STOPPED {
                return None;
            }
            self.failing.remove(&key);
        }
        Some(format!(
            "the gate is {is} since {known}, and a packet from node {from} to node {to} {found} at {began}"
        ))
    }
}

/// What packets between these two depend on.
fn ways(from: u32, to: u32) -> [Part; 3] {
    [Part::Packets(from), Part::Packets(to), Part::Between(from.min(to), from.max(to))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(at: Ms, port: u16, connected: bool) -> Probe {
        Probe { began: at, ended: at + 100, from: 1, to: 2, port, connected }
    }

    #[test]
    fn a_line_is_read_and_half_of_one_is_not() {
        let read = Probe::parse("10.50 12.00 1 3 8080 no").unwrap();
        let whole =
            Probe { began: 10_500, ended: 12_000, from: 1, to: 3, port: OPEN, connected: false };
        assert_eq!(read, whole);
        assert_eq!(Probe::parse("10.50 12.00 1 3 80"), None);
    }

    #[test]
    fn a_forbidden_packet_is_found_also_during_a_fault() {
        let (mut packets, mut scope) = (Packets::default(), Scope::default());
        scope.open(&[Part::Packets(1), Part::Machine], 0);
        assert_eq!(packets.see(&probe(1000, CLOSED, false), &scope), None);
        assert!(packets.see(&probe(2000, CLOSED, true), &scope).is_some());
        assert_eq!((packets.looked, packets.stopped), (2, 1));
    }

    #[test]
    fn an_allowed_packet_that_is_stopped_for_long_is_found_unless_a_fault_explains_it() {
        let (mut packets, mut scope) = (Packets::default(), Scope::default());
        assert_eq!(packets.see(&probe(0, OPEN, false), &scope), None);
        assert_eq!(packets.see(&probe(5000, OPEN, true), &scope), None);
        assert_eq!(packets.see(&probe(8000, OPEN, false), &scope), None, "only since then");
        assert!(packets.see(&probe(16_000, OPEN, false), &scope).is_some());
        let window = scope.open(&[Part::Packets(2)], 20_000);
        assert_eq!(packets.see(&probe(20_000, OPEN, false), &scope), None);
        assert_eq!(packets.see(&probe(40_000, OPEN, false), &scope), None);
        scope.close(window, 50_000);
        assert_eq!(packets.see(&probe(51_000, OPEN, false), &scope), None);
        assert!(packets.see(&probe(60_000, OPEN, false), &scope).is_some(), "it has recovered");
    }

    #[test]
    fn a_gate_that_does_not_follow_its_policy_is_found() {
        let (mut packets, mut scope) = (Packets::default(), Scope::default());
        packets.gate.push(Change { asked: 900, acknowledged: Some(1000), opens: false });
        assert_eq!(packets.see(&probe(2000, GATE, true), &scope), None, "not in force yet");
        assert_eq!(packets.see(&probe(17_000, GATE, false), &scope), None);
        assert!(packets.see(&probe(18_000, GATE, true), &scope).is_some());
        scope.open(&[Part::Leading], 30_000);
        packets.gate.push(Change { asked: 30_000, acknowledged: Some(30_100), opens: true });
        assert_eq!(packets.see(&probe(60_000, GATE, false), &scope), None, "nobody compiles it");
        packets.gate.push(Change { asked: 70_000, acknowledged: None, opens: false });
        assert_eq!(packets.see(&probe(95_000, GATE, true), &scope), None, "nobody knows");
    }
}

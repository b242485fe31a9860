//! Compiles a chain of a program.

use kernel::nftables::expression::{ADDRESS_LOCAL, Comparison, Meta, Register};
use kernel::nftables::{Chain, Element, Expression, Field, Rule, Set, Verdict};
use policy::program::{self, ChainId, Denial, Direction, Ports, Program, SetId, SetKind, TierKind};

use crate::enforcement::datapath::DenySettings;

use super::{
    DROP, EXEMPT, Family, FilledSet, LOG_GROUP, LOGGED, LOGGED_BYTES, R, REJECT, chain_name,
    counter, destination_port, equal, goto, has_family, jump, kernel_set, named, plain, port_key,
    protocol, verdict,
};

/// A chain of a program for one family: the sets of ports that it alone has, and its chains.
#[derive(Debug, Default)]
pub(in crate::enforcement) struct KernelChain {
    pub(in crate::enforcement) sets: Vec<FilledSet>,
    pub(in crate::enforcement) chains: Vec<(Chain, Vec<Rule>)>,
}

/// A condition on ports: one of several in which a rule's ports are asked for.
struct PortMatch(Vec<Expression>);

/// What the rules of one chain have in common.
struct Compiling<'a> {
    name: String,
    family: Family,
    direction: Direction,
    program: &'a Program,
    deny: DenySettings,
    sets: Vec<FilledSet>,
    /// The parts behind tiers that pass packets on.
    parts: Vec<(Chain, Vec<Rule>)>,
    /// What becomes of packets that are denied or told of.
    denials: Vec<(Chain, Vec<Rule>)>,
}

/// Compiles a chain of a program, for both families.
pub(in crate::enforcement) fn chains(
    id: ChainId,
    chain: &program::Chain,
    program: &Program,
    deny: DenySettings,
) -> [KernelChain; 2] {
    Family::BOTH.map(|family| {
        let compiling = Compiling {
            name: chain_name(id, family),
            family,
            direction: chain.direction,
            program,
            deny,
            sets: Vec::new(),
            parts: Vec::new(),
            denials: Vec::new(),
        };
        compiling.compile(chain)
    })
}

fn passes_on(verdict: program::Verdict) -> bool {
    matches!(verdict, program::Verdict::Pass | program::Verdict::Report)
}

impl Compiling<'_> {
    fn compile(mut self, chain: &program::Chain) -> KernelChain {
        let mut rules = Vec::new();
        let over = || match chain.direction {
            Direction::Egress => verdict(Verdict::Return),
            Direction::Ingress => verdict(Verdict::Accept),
        };
        let last = chain.tiers.len().saturating_sub(1);
        for (at, tier) in chain.tiers.iter().enumerate() {
            let passes = tier.rules.iter().any(|rule| passes_on(rule.verdict)) && at != last;
            let next = self.part(self.parts.len() + 1);
            for rule in &tier.rules {
                let tail = match rule.verdict {
                    program::Verdict::Accept => over(),
                    program::Verdict::Deny(how) => match self.deny.of(tier.kind, how) {
                        Denial::Drop => goto(DROP),
                        Denial::Reject => goto(REJECT),
                    },
                    program::Verdict::Pass | program::Verdict::Report if passes => goto(&next),
                    program::Verdict::Pass | program::Verdict::Report => over(),
                };
                self.add(rule, tier.kind, &tail, &mut rules);
            }
            if passes {
                rules.push(plain([goto(&next)]));
                let part = named(self.part(self.parts.len()));
                self.parts.push((part, std::mem::take(&mut rules)));
            }
        }
        rules.push(plain([over()]));
        let part = named(self.part(self.parts.len()));
        self.parts.push((part, rules));
        let chains = self.parts.into_iter().chain(self.denials).collect();
        KernelChain { sets: self.sets, chains }
    }

    fn part(&self, number: usize) -> String {
        match number {
            0 => self.name.clone(),
            _ => format!("{}-{number}", self.name),
        }
    }

    /// A rule that accepts or passes on is one rule for each of its ways to match. One that denies or
    /// tells goes to where that is done, so that a packet that it does not match is asked once.
    fn add(
        &mut self,
        rule: &program::Rule,
        tier: TierKind,
        tail: &Expression,
        out: &mut Vec<Rule>,
    ) {
        let Some(peers) = self.peer_match(rule) else { return };
        let tag = rule.counter(self.direction, tier).0;
        let comment = comment(rule);
        let ports = self.port_matches(&rule.ports);
        let tells = rule.verdict.is_deny() || rule.verdict == program::Verdict::Report;
        let always = peers.is_empty() && rule.ports.is_empty();
        let mut end = Vec::new();
        if tells {
            let (per_second, burst) = LOGGED;
            let limit = Expression::Limit { per_second, burst };
            let prefix = format!("{tag:032x}");
            let log = Expression::Log { group: LOG_GROUP, prefix, length: LOGGED_BYTES };
            end.push(plain([jump(EXEMPT)]));
            end.push(plain([limit, log]));
        }
        let counted = vec![counter(), tail.clone()];
        if tells && always {
            end.push(super::rule(counted, comment, tag));
            out.extend(end);
            return;
        }
        let mut tail = counted;
        let mut tag_here = tag;
        if tells {
            let name = format!("{}-d{}", self.name, self.denials.len());
            end.push(super::rule(tail, comment.clone(), tag));
            tail = vec![goto(&name)];
            tag_here = 0;
            self.denials.push((named(name), end));
        }
        for PortMatch(ports) in ports {
            let all = ports.into_iter().chain(peers.iter().cloned()).chain(tail.iter().cloned());
            out.push(super::rule(all.collect(), comment.clone(), tag_here));
        }
    }

    /// What is asked of the peer; none if it cannot be: it is of the other family.
    fn peer_match(&self, rule: &program::Rule) -> Option<Vec<Expression>> {
        let mut all = Vec::new();
        let within = rule.within.iter().map(|id| (*id, false));
        for (id, absent) in within.chain(rule.without.iter().map(|id| (*id, true))) {
            let set = self.program.sets.get(&id).filter(|set| has_family(set, self.family));
            match set {
                Some(set) => all.extend(self.lookup(id, &set.kind, absent)),
                // Nobody is in it.
                None if absent => {}
                None => return None,
            }
        }
        Some(all)
    }

    fn lookup(&self, id: SetId, kind: &SetKind, absent: bool) -> Vec<Expression> {
        let Some(set) = kernel_set(id, kind, self.family) else {
            let local = ADDRESS_LOCAL.to_ne_bytes().to_vec();
            let is = if absent { Comparison::NotEqual } else { Comparison::Equal };
            let compare = Expression::Compare { register: R, is, value: local };
            return vec![Expression::DestinationKind { into: R }, compare];
        };
        let mut all = vec![self.family.peer(self.direction, R)];
        if *kind == SetKind::AddressPorts {
            let above = self.family.registers();
            all.push(Expression::Meta { fact: Meta::Protocol, into: Register(above) });
            all.push(destination_port(Register(above + 1)));
        }
        all.push(Expression::Lookup { set: set.name, key: R, absent });
        all
    }

    /// The conditions of which one has to hold; where ports do not matter, the one that always does.
    fn port_matches(&mut self, ports: &[Ports]) -> Vec<PortMatch> {
        if ports.is_empty() {
            return vec![PortMatch(Vec::new())];
        }
        let mut matches = Vec::new();
        let (whole, some): (Vec<Ports>, Vec<Ports>) =
            ports.iter().copied().partition(Ports::is_all);
        for ports in whole {
            matches.push(PortMatch(vec![protocol(), equal(vec![ports.protocol.0])]));
        }
        match some[..] {
            [] => {}
            [ports] => {
                let mut all = vec![protocol(), equal(vec![ports.protocol.0]), destination_port(R)];
                let bound = |is, port: u16| {
                    let value = port.to_be_bytes().to_vec();
                    Expression::Compare { register: R, is, value }
                };
                if ports.first == ports.last {
                    all.push(equal(ports.first.to_be_bytes().to_vec()));
                } else {
                    all.push(bound(Comparison::AtLeast, ports.first));
                    all.push(bound(Comparison::AtMost, ports.last));
                }
                matches.push(PortMatch(all));
            }
            _ => {
                let name = format!("p{}-{}", self.sets.len(), self.name);
                let ranges = some.iter().any(|ports| ports.first != ports.last);
                let set = Set { ranges, ..Set::hash(name, &[Field::Protocol, Field::Port]) };
                let elements = some.iter().map(|ports| {
                    let first = port_key(ports.protocol, ports.first);
                    let last = port_key(ports.protocol, ports.last);
                    if ranges { Element::range(first, last) } else { Element::new(first) }
                });
                let key = Expression::Lookup { set: set.name.clone(), key: R, absent: false };
                matches.push(PortMatch(vec![protocol(), destination_port(Register(1)), key]));
                self.sets.push((set, elements.collect()));
            }
        }
        matches
    }
}

fn comment(rule: &program::Rule) -> String {
    let Some(first) = rule.sources.first() else { return String::new() };
    let more = match rule.sources.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} {} {}{more}", first.kind, first.policy, first.rule)
}

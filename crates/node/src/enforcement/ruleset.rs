//! A program as nf_tables has it: names, sets, chains and rules. Pure.
//!
//! ```text
//! forward ─► revoked? ─► a reply? ─► ICMP errors, neighbour discovery
//!         ─► out4/out6: source ─► jump ─► egress chain  ─┬─ goto deny-drop, goto deny-reject
//!                                                        └─ return
//!         ─► in4/in6: destination ─► goto ─► ingress chain ─┬─ goto deny-drop, goto deny-reject
//!                                                           └─ accept
//! input   the same as far as out4/out6: what a pod sends to its node
//! ```
//!
//! What the node itself sends comes to neither: a node always reaches its pods. A chain of a program is
//! one chain here, and one more behind each tier that may pass a packet on: rules of a program that pass
//! go there at once. Only `deny-drop` and `deny-reject` ask whether a pod talks to itself (by way of a Service),
//! so that no packet that passes pays for it.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use kernel::nftables::expression::{
    Comparison, Header, Meta, Register, Rejection, STATE_RELATED, Tracked,
};
use kernel::nftables::{Chain, Element, Expression, Field, Hook, Rule, Set, Verdict};
use policy::program::{
    self, ChainId, Denial, Direction, Ports, Program, Protocol, SetId, SetKind, TierKind,
};

/// The table that holds all of it; nobody else has one of this name.
pub(crate) const TABLE: &str = "fairlead-guard";
/// The bit of a connection's mark that says that it began when it was allowed, and no longer is.
pub(crate) const REVOKED: u32 = 1 << 24;
/// The group of the kernel's packet log to which violations are sent.
pub(crate) const LOG_GROUP: u16 = 7681;
/// How many packets of one rule are told of in a second, and at once.
const LOGGED: (u64, u32) = (10, 20);
/// What is told of a packet: its headers.
const LOGGED_BYTES: u32 = 96;
/// Where the hooked chains stand among others: with those that filter.
const PRIORITY: i32 = 0;

const DROP: &str = "deny-drop";
const REJECT: &str = "deny-reject";
const REVOKED_CHAIN: &str = "revoked";
const NEIGHBOURS: &str = "neighbours";
pub(crate) const PENDING: &str = "pending";

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Router and neighbour solicitations and advertisements, and redirects.
const NEIGHBOUR_DISCOVERY: (u8, u8) = (133, 137);

const R: Register = Register::FIRST;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];

    pub(super) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn digit(self) -> char {
        match self {
            Self::V4 => '4',
            Self::V6 => '6',
        }
    }

    fn field(self) -> Field {
        match self {
            Self::V4 => Field::Ipv4,
            Self::V6 => Field::Ipv6,
        }
    }

    /// How many registers an address takes.
    fn registers(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 4,
        }
    }

    fn is(self) -> [Expression; 2] {
        let number = match self {
            Self::V4 => 2,
            Self::V6 => 10,
        };
        [Expression::Meta { fact: Meta::Family, into: R }, equal(vec![number])]
    }

    fn source(self, into: Register) -> Expression {
        let (offset, length) = match self {
            Self::V4 => (12, 4),
            Self::V6 => (8, 16),
        };
        Expression::Payload { header: Header::Network, offset, length, into }
    }

    fn destination(self, into: Register) -> Expression {
        let (offset, length) = match self {
            Self::V4 => (16, 4),
            Self::V6 => (24, 16),
        };
        Expression::Payload { header: Header::Network, offset, length, into }
    }

    fn peer(self, direction: Direction, into: Register) -> Expression {
        match direction {
            Direction::Egress => self.destination(into),
            Direction::Ingress => self.source(into),
        }
    }

    /// The map from the addresses of the node's pods to what decides about what they send.
    pub(super) fn out(self) -> Set {
        Set { verdicts: true, ..Set::hash(format!("out{}", self.digit()), &[self.field()]) }
    }

    /// The map to what decides about what is sent to them.
    pub(super) fn into(self) -> Set {
        Set { verdicts: true, ..Set::hash(format!("in{}", self.digit()), &[self.field()]) }
    }

    /// Each address of the node's pods, twice: what a pod sends to itself.
    pub(super) fn itself(self) -> Set {
        Set::hash(format!("self{}", self.digit()), &[self.field(), self.field()])
    }
}

/// A set with its elements.
pub(super) type FilledSet = (Set, Vec<Element>);

/// A chain of a program: the sets of ports that it alone has, and its chains.
#[derive(Debug)]
pub(super) struct KernelChain {
    pub(super) sets: Vec<FilledSet>,
    pub(super) chains: Vec<(Chain, Vec<Rule>)>,
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(super) fn chain_name(id: ChainId) -> String {
    format!("c-{id}")
}

fn equal(value: Vec<u8>) -> Expression {
    Expression::Compare { register: R, is: Comparison::Equal, value }
}

fn protocol() -> Expression {
    Expression::Meta { fact: Meta::Protocol, into: R }
}

fn bits(fact: Tracked, bits: u32) -> [Expression; 3] {
    let value = bits.to_ne_bytes().to_vec();
    [
        Expression::Tracked { fact, into: R },
        Expression::Bits { register: R, mask: value.clone(), xor: vec![0; 4] },
        equal(value),
    ]
}

fn verdict(verdict: Verdict) -> Expression {
    Expression::Verdict(verdict)
}

fn counter() -> Expression {
    Expression::Counter { packets: 0, bytes: 0 }
}

fn goto(chain: &str) -> Expression {
    verdict(Verdict::Goto(chain.to_owned()))
}

/// Gives the rule the digest by which it is known again.
fn rule(expressions: Vec<Expression>, comment: String, tag: u128) -> Rule {
    let mut rule = Rule { expressions, comment, digest: 0, tag };
    let mut hasher = rustc_hash::FxHasher::default();
    rule.hash(&mut hasher);
    rule.digest = hasher.finish().max(1);
    rule
}

fn plain(expressions: impl IntoIterator<Item = Expression>) -> Rule {
    rule(expressions.into_iter().collect(), String::new(), 0)
}

/// The maps and sets that every program has.
pub(super) fn fixed_sets() -> Vec<Set> {
    Family::BOTH.into_iter().flat_map(|it| [it.out(), it.into(), it.itself()]).collect()
}

/// The chains that every program has: first those that others refer to.
pub(super) fn fixed_chains() -> Vec<(Chain, Vec<Rule>)> {
    let chain =
        |name: &str, rules| (Chain { name: name.to_owned(), hook: None, drops: false }, rules);
    let hooked = |name: &str, hook, rules| {
        let hook = Some((hook, PRIORITY));
        (Chain { name: name.to_owned(), hook, drops: false }, rules)
    };
    let to_itself = || {
        Family::BOTH.map(|family| {
            let second = Register(family.registers());
            let [load, is] = family.is();
            let set = family.itself().name;
            plain([
                load,
                is,
                family.source(R),
                family.destination(second),
                Expression::Lookup { set, key: R, absent: false },
                verdict(Verdict::Accept),
            ])
        })
    };
    let reset = || plain([protocol(), equal(vec![TCP]), Expression::Reject(Rejection::TcpReset)]);
    let mut drop: Vec<_> = to_itself().into();
    drop.push(plain([verdict(Verdict::Drop)]));
    let mut reject: Vec<_> = to_itself().into();
    reject.extend([reset(), plain([Expression::Reject(Rejection::Prohibited)])]);
    let (first, last) = NEIGHBOUR_DISCOVERY;
    let kind = Expression::Payload { header: Header::Transport, offset: 0, length: 1, into: R };
    let bound = |is, value| Expression::Compare { register: R, is, value: vec![value] };
    let neighbours = vec![plain([
        protocol(),
        equal(vec![ICMP6]),
        kind,
        bound(Comparison::AtLeast, first),
        bound(Comparison::AtMost, last),
        verdict(Verdict::Accept),
    ])];
    let revoked = vec![reset(), plain([counter(), verdict(Verdict::Drop)])];
    let pending = vec![rule(
        vec![counter(), goto(DROP)],
        "the pod's policies have not arrived".to_owned(),
        0,
    )];
    vec![
        chain(DROP, drop),
        chain(REJECT, reject),
        chain(NEIGHBOURS, neighbours),
        chain(REVOKED_CHAIN, revoked),
        chain(PENDING, pending),
        hooked("forward", Hook::Forward, hooked_rules(true)),
        hooked("input", Hook::Input, hooked_rules(false)),
    ]
}

fn hooked_rules(to_pods: bool) -> Vec<Rule> {
    let mut rules = vec![
        plain(bits(Tracked::Mark, REVOKED).into_iter().chain([goto(REVOKED_CHAIN)])),
        plain([
            Expression::Tracked { fact: Tracked::Direction, into: R },
            equal(vec![1]),
            verdict(Verdict::Accept),
        ]),
    ];
    for icmp in [ICMP, ICMP6] {
        let is_error = [protocol(), equal(vec![icmp])];
        let is_error = is_error.into_iter().chain(bits(Tracked::State, STATE_RELATED));
        rules.push(plain(is_error.chain([verdict(Verdict::Accept)])));
    }
    let neighbours = verdict(Verdict::Jump(NEIGHBOURS.to_owned()));
    rules.push(plain([protocol(), equal(vec![ICMP6]), neighbours]));
    for family in Family::BOTH {
        let [load, is] = family.is();
        let map = family.out().name;
        let lookup = Expression::VerdictFrom { map, key: R };
        rules.push(plain([load, is, family.source(R), lookup]));
    }
    for family in Family::BOTH.into_iter().filter(|_| to_pods) {
        let [load, is] = family.is();
        let map = family.into().name;
        let lookup = Expression::VerdictFrom { map, key: R };
        rules.push(plain([load, is, family.destination(R), lookup]));
    }
    rules
}

/// The kernel's sets for one of a program: one for each address family. One of networks has none for a
/// family without networks, since it never changes.
pub(super) fn sets(id: SetId, set: &program::Set) -> Vec<FilledSet> {
    let families = Family::BOTH.into_iter().filter(|family| has_family(set, *family));
    families
        .map(|family| {
            let elements = set.elements.iter().filter_map(|it| element(*it, family)).collect();
            (kernel_set(id, &set.kind, family), elements)
        })
        .collect()
}

fn has_family(set: &program::Set, family: Family) -> bool {
    set.kind != SetKind::Networks || set.elements.iter().any(|it| element(*it, family).is_some())
}

pub(super) fn kernel_set(id: SetId, kind: &SetKind, family: Family) -> Set {
    let name = format!("s{}-{id}", family.digit());
    let address = Set::hash(name.as_str(), &[family.field()]);
    match kind {
        SetKind::Addresses => address,
        SetKind::AddressPorts => Set::hash(name, &[family.field(), Field::Protocol, Field::Port]),
        SetKind::Networks => Set { ranges: true, ..address },
        SetKind::Domains(_) => Set { timeouts: true, ..address },
    }
}

/// The element in the kernel's form, if it is of this family.
pub(super) fn element(element: program::Element, family: Family) -> Option<Element> {
    match element {
        program::Element::Address(address) => {
            (Family::of(address) == family).then(|| Element::new(octets(address)))
        }
        program::Element::AddressPort { address, protocol, port } => {
            let mut key = octets(address);
            key.extend(port_key(protocol, port));
            (Family::of(address) == family).then(|| Element::new(key))
        }
        program::Element::Range { first, last } => {
            (Family::of(first) == family).then(|| Element::range(octets(first), octets(last)))
        }
    }
}

/// Protocol and port, each filled up to four bytes.
fn port_key(protocol: Protocol, port: u16) -> [u8; 8] {
    let [high, low] = port.to_be_bytes();
    [protocol.0, 0, 0, 0, high, low, 0, 0]
}

/// A condition on ports: one of several in which a rule's ports are asked for.
struct PortMatch(Vec<Expression>);

/// Compiles a chain of a program.
pub(super) fn chain(id: ChainId, chain: &program::Chain, program: &Program) -> KernelChain {
    let first = chain_name(id);
    let mut compiled = KernelChain { sets: Vec::new(), chains: Vec::new() };
    let name = |number: usize| match number {
        0 => first.clone(),
        _ => format!("{first}-{number}"),
    };
    let mut rules = Vec::new();
    let over = || match chain.direction {
        Direction::Egress => verdict(Verdict::Return),
        Direction::Ingress => verdict(Verdict::Accept),
    };
    let last = chain.tiers.len().saturating_sub(1);
    for (at, tier) in chain.tiers.iter().enumerate() {
        let passes = tier.rules.iter().any(|rule| passes_on(rule.verdict)) && at != last;
        let next = name(compiled.chains.len() + 1);
        for rule in &tier.rules {
            let tail = match rule.verdict {
                program::Verdict::Accept => over(),
                program::Verdict::Deny(Denial::Drop) => goto(DROP),
                program::Verdict::Deny(Denial::Reject) => goto(REJECT),
                program::Verdict::Pass | program::Verdict::Report if passes => goto(&next),
                program::Verdict::Pass | program::Verdict::Report => over(),
            };
            let ports = port_matches(&first, &rule.ports, &mut compiled.sets);
            compile(rule, (chain.direction, tier.kind), program, &ports, &tail, &mut rules);
        }
        if passes {
            rules.push(plain([goto(&next)]));
            compiled.add(name(compiled.chains.len()), std::mem::take(&mut rules));
        }
    }
    rules.push(plain([over()]));
    compiled.add(name(compiled.chains.len()), rules);
    compiled
}

impl KernelChain {
    fn add(&mut self, name: String, rules: Vec<Rule>) {
        self.chains.push((Chain { name, hook: None, drops: false }, rules));
    }
}

fn passes_on(verdict: program::Verdict) -> bool {
    matches!(verdict, program::Verdict::Pass | program::Verdict::Report)
}

fn compile(
    rule: &program::Rule,
    (direction, tier): (Direction, TierKind),
    program: &Program,
    ports: &[PortMatch],
    tail: &Expression,
    out: &mut Vec<Rule>,
) {
    let tag = rule.counter(direction, tier).0;
    let comment = comment(rule);
    for peers in peer_matches(rule, direction, program) {
        for PortMatch(ports) in ports {
            let conditions = || ports.iter().chain(&peers).cloned();
            if rule.report || rule.verdict == program::Verdict::Report {
                let (per_second, burst) = LOGGED;
                let limit = Expression::Limit { per_second, burst };
                let prefix = format!("{tag:032x}");
                let log = Expression::Log { group: LOG_GROUP, prefix, length: LOGGED_BYTES };
                out.push(plain(conditions().chain([limit, log])));
            }
            let all = conditions().chain([counter(), tail.clone()]).collect();
            out.push(self::rule(all, comment.clone(), tag));
        }
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

/// What is asked of the peer: once if it may be anybody, else once for each family that it may be of.
fn peer_matches(
    rule: &program::Rule,
    direction: Direction,
    program: &Program,
) -> Vec<Vec<Expression>> {
    if rule.within.is_none() && rule.without.is_empty() {
        return vec![Vec::new()];
    }
    let mut matches = Vec::new();
    for family in Family::BOTH {
        let mut all = family.is().to_vec();
        let mut possible = true;
        let within = rule.within.iter().map(|id| (id, false));
        for (id, absent) in within.chain(rule.without.iter().map(|id| (id, true))) {
            // A set that is not there has nobody in it.
            match program.sets.get(id).filter(|set| has_family(set, family)) {
                Some(set) => all.extend(lookup(*id, &set.kind, family, direction, absent)),
                None => possible &= absent,
            }
        }
        if possible {
            matches.push(all);
        }
    }
    matches
}

fn lookup(
    id: SetId,
    kind: &SetKind,
    family: Family,
    direction: Direction,
    absent: bool,
) -> Vec<Expression> {
    let mut all = vec![family.peer(direction, R)];
    if *kind == SetKind::AddressPorts {
        let above = family.registers();
        all.push(Expression::Meta { fact: Meta::Protocol, into: Register(above) });
        all.push(destination_port(Register(above + 1)));
    }
    let set = kernel_set(id, kind, family).name;
    all.push(Expression::Lookup { set, key: R, absent });
    all
}

fn destination_port(into: Register) -> Expression {
    Expression::Payload { header: Header::Transport, offset: 2, length: 2, into }
}

/// The conditions of which one has to hold; where ports do not matter, the one that always does.
fn port_matches(chain: &str, ports: &[Ports], sets: &mut Vec<FilledSet>) -> Vec<PortMatch> {
    if ports.is_empty() {
        return vec![PortMatch(Vec::new())];
    }
    let mut matches = Vec::new();
    let (whole, some): (Vec<Ports>, Vec<Ports>) = ports.iter().copied().partition(Ports::is_all);
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
            let name = format!("p{}-{}", sets.len(), &chain[2..]);
            let ranges = some.iter().any(|ports| ports.first != ports.last);
            let set = Set { ranges, ..Set::hash(name, &[Field::Protocol, Field::Port]) };
            let elements = some.iter().map(|ports| {
                let first = port_key(ports.protocol, ports.first);
                let last = port_key(ports.protocol, ports.last);
                if ranges { Element::range(first, last) } else { Element::new(first) }
            });
            let key = Expression::Lookup { set: set.name.clone(), key: R, absent: false };
            matches.push(PortMatch(vec![protocol(), destination_port(Register(1)), key]));
            sets.push((set, elements.collect()));
        }
    }
    matches
}

#[cfg(test)]
mod tests;

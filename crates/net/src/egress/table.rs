//! `EgressTable`: by which mark connections of clients go, as nf_tables rules in a table of its own.
//!
//! ```text
//! prerouting: replies ─► as ever
//!             connection's mark ─► @marks ─► mark-N       a connection stays with its replica
//!             source ─► @from4, @from6 ─► new-N or pick-…  a new one: among several at random
//!             of another plugin's pod network, and not @known4, @known6 ─► mark of the hold
//! new-N:      the connection's mark is N; mark-N: the packet's mark is N
//! input:      the tunnel's packets come from replicas alone
//! forward:    pods other than replicas send nothing to the tunnel's port
//! postrouting: a mark of ours has done its work: tunnels that the packet goes into look for their own way by it
//! nat:        what goes into the tunnel keeps its address, whoever masquerades
//! ```
//!
//! Contract:
//! - Chains and rules never change, they come and go; a client more is an element more.
//! - What differs is one batch. The table stays when the agent is gone; the next one makes it anew in one
//!   batch, and connections keep their marks.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;

use kernel::nftables::expression::{Comparison, Expression, Header, Meta, Register, Tracked};
use kernel::nftables::{
    Batch, Chain, CommitError, Element, Field, Hook, Nftables, Rule, Set, TABLE_OWNER,
    TABLE_PERSIST, Verdict,
};

use super::DEVICE;
use super::plan::{EgressProgram, ForeignNetwork, HOLD, MASK, mark_of};
use crate::masquerade::networks_of;

/// The table's name, of both IP families.
pub const TABLE: &str = "fairlead-egress";
const PREROUTING: &str = "prerouting";
const INPUT: &str = "input";
const FORWARD: &str = "forward";
const POSTROUTING: &str = "postrouting";
const NAT: &str = "nat";
/// Behind `mangle`, before addresses of destinations are translated.
pub(super) const AFTER_MANGLE: i32 = -149;
pub(super) const FILTER: i32 = -1;
/// Before everybody who masquerades.
const BEFORE_SOURCE_NAT: i32 = 99;
const EOPNOTSUPP: i32 = 95;
const UDP: u8 = 17;
pub(super) const REPLY: u8 = 1;
/// How the names of pods' interfaces begin, and how those of our own devices do.
const PODS: [&str; 2] = [cni::interface::PREFIX, cni::interface::CALICO_PREFIX];
const DEVICES: &[u8] = b"fl-";

/// Sets with their elements, and chains with their rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ruleset {
    sets: BTreeMap<String, (Set, BTreeSet<Element>)>,
    chains: BTreeMap<String, Vec<Rule>>,
}

/// The table, and what this process last made of it.
#[derive(Debug)]
pub struct EgressTable {
    nftables: Nftables,
    flags: u32,
    made: Option<Ruleset>,
    generation: Option<u32>,
}

impl EgressTable {
    /// Opens a socket in the network namespace of the calling thread; changes nothing.
    pub fn open() -> io::Result<Self> {
        let flags = TABLE_OWNER | TABLE_PERSIST;
        Ok(Self { nftables: Nftables::open()?, flags, made: None, generation: None })
    }

    /// Removes the table in the network namespace of the calling thread; says whether there was one.
    pub fn remove() -> io::Result<bool> {
        let mut batch = Batch::new(TABLE);
        batch.delete_table();
        match Nftables::open()?.commit(&batch, None).map_err(io::Error::from) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the table what the program says, none for an empty one; says whether anything changed.
    pub fn adopt(&mut self, program: &EgressProgram, port: u16) -> Result<bool, CommitError> {
        let wanted = (!program.is_empty()).then(|| Ruleset::of(program, port));
        let now = self.nftables.generation().map_err(CommitError::Socket)?;
        // An owned table is as it was made; another one may have been changed by somebody.
        if self.flags == 0 && self.generation != Some(now) {
            self.made = None;
        }
        if let (Some(made), Some(wanted)) = (&self.made, &wanted) {
            let batch = difference(made, wanted);
            if batch.is_empty() {
                return Ok(false);
            }
            if self.nftables.commit(&batch, None).is_ok() {
                self.made = Some(wanted.clone());
                self.generation = self.nftables.generation().ok();
                return Ok(true);
            }
        }
        let there = self.nftables.table(TABLE).map_err(CommitError::Socket)?.is_some();
        if !there && wanted.is_none() {
            return Ok(false);
        }
        let mut done = self.nftables.commit(&whole(wanted.as_ref(), there, self.flags), None);
        if self.flags != 0 && done.as_ref().is_err_and(|error| error.errno() == Some(EOPNOTSUPP)) {
            self.flags = 0;
            done = self.nftables.commit(&whole(wanted.as_ref(), there, self.flags), None);
        }
        self.made = None;
        done?;
        self.made = wanted;
        self.generation = self.nftables.generation().ok();
        Ok(true)
    }
}

fn base_chains() -> [Chain; 4] {
    let chain = |name: &str, hook, priority| Chain {
        name: name.to_owned(),
        hook: Some((hook, priority)),
        drops: false,
    };
    [
        chain(PREROUTING, Hook::Prerouting, AFTER_MANGLE),
        chain(INPUT, Hook::Input, FILTER),
        chain(FORWARD, Hook::Forward, FILTER),
        chain(POSTROUTING, Hook::Postrouting, FILTER),
    ]
}

fn plain(name: &str) -> Chain {
    Chain { name: name.to_owned(), hook: None, drops: false }
}

fn is_base(name: &str) -> bool {
    [PREROUTING, INPUT, FORWARD, POSTROUTING, NAT].contains(&name)
}

fn whole(wanted: Option<&Ruleset>, replace: bool, flags: u32) -> Batch {
    let mut batch = Batch::new(TABLE);
    if replace {
        batch.delete_table();
    }
    let Some(Ruleset { sets, chains }) = wanted else { return batch };
    batch.add_table(flags);
    sets.values().for_each(|(set, _)| batch.add_set(set));
    base_chains().iter().for_each(|chain| batch.add_chain(chain));
    batch.add_nat_chain(NAT, Hook::Postrouting, BEFORE_SOURCE_NAT);
    for name in chains.keys().filter(|name| !is_base(name)) {
        batch.add_chain(&plain(name));
    }
    sets.values().for_each(|(set, elements)| batch.add_elements(set, elements));
    for (name, rules) in chains {
        rules.iter().for_each(|rule| batch.add_rule(name, rule));
    }
    batch
}

/// New chains come before the elements that lead to them, and go after them.
fn difference(made: &Ruleset, wanted: &Ruleset) -> Batch {
    let mut batch = Batch::new(TABLE);
    let new_sets = wanted.sets.iter().filter(|(name, _)| !made.sets.contains_key(*name));
    new_sets.for_each(|(_, (set, _))| batch.add_set(set));
    for name in wanted.chains.keys().filter(|name| !made.chains.contains_key(*name)) {
        batch.add_chain(&plain(name));
    }
    let none = BTreeSet::new();
    for (name, (set, elements)) in &made.sets {
        let wanted = wanted.sets.get(name).map_or(&none, |(_, elements)| elements);
        batch.delete_elements(set, elements.difference(wanted));
    }
    for (name, (set, elements)) in &wanted.sets {
        let made = made.sets.get(name).map_or(&none, |(_, elements)| elements);
        batch.add_elements(set, elements.difference(made));
    }
    for (name, rules) in &wanted.chains {
        match made.chains.get(name) {
            Some(made) if made == rules => continue,
            Some(_) => batch.delete_rules(name),
            None => {}
        }
        rules.iter().for_each(|rule| batch.add_rule(name, rule));
    }
    let gone: Vec<_> =
        made.chains.keys().filter(|name| !wanted.chains.contains_key(*name)).collect();
    gone.iter().for_each(|name| batch.delete_rules(name));
    gone.iter().for_each(|name| batch.delete_chain(name));
    for name in made.sets.keys().filter(|name| !wanted.sets.contains_key(*name)) {
        batch.delete_set(name);
    }
    batch
}

impl Ruleset {
    fn of(program: &EgressProgram, port: u16) -> Self {
        let mut rules = Self::default();
        let map = |name: &str, field| Set { verdicts: true, ..Set::hash(name, &[field]) };
        for (name, set) in [
            ("marks", map("marks", Field::Mark)),
            ("given", Set::hash("given", &[Field::Mark])),
            ("from4", map("from4", Field::Ipv4)),
            ("from6", map("from6", Field::Ipv6)),
            ("replicas4", Set::hash("replicas4", &[Field::Ipv4])),
            ("replicas6", Set::hash("replicas6", &[Field::Ipv6])),
        ] {
            rules.sets.insert(name.to_owned(), (set, BTreeSet::new()));
        }
        for number in &program.numbers {
            let (marked, new) = (format!("mark-{number}"), format!("new-{number}"));
            let mark = mark_of(*number).to_ne_bytes();
            rules.put("marks", Element::with(mark, Verdict::Goto(marked.clone())));
            rules.put("given", Element::new(mark));
            rules.chains.insert(marked.clone(), vec![rule(marked_by(*number))]);
            let mut begun = tracked_by(*number);
            begun.push(Expression::Verdict(Verdict::Goto(marked)));
            rules.chains.insert(new, vec![rule(begun)]);
        }
        for (address, ways) in &program.ways {
            let chain = match ways.as_slice() {
                [one] => format!("new-{one}"),
                several => rules.pick(several),
            };
            let map = if address.is_ipv4() { "from4" } else { "from6" };
            rules.put(map, Element::with(bytes(*address), Verdict::Goto(chain)));
        }
        for address in &program.senders {
            let set = if address.is_ipv4() { "replicas4" } else { "replicas6" };
            rules.put(set, Element::new(bytes(*address)));
        }
        if let Some(foreign) = &program.foreign {
            rules.put("given", Element::new(mark_of(HOLD).to_ne_bytes()));
            rules.sets_of(foreign);
        }
        rules.base(port, program.foreign.is_some());
        rules
    }

    fn sets_of(&mut self, foreign: &ForeignNetwork) {
        let ForeignNetwork { networks, known, outside } = foreign;
        let outside = outside.iter().map(|name| Element::new(Expression::interface_name(name)));
        let links = Set::hash("outside", &[Field::Interface]);
        self.sets.insert("outside".to_owned(), (links, outside.collect()));
        for is_ipv4 in [true, false] {
            let (pods, known_pods, field) = match is_ipv4 {
                true => ("pods4", "known4", Field::Ipv4),
                false => ("pods6", "known6", Field::Ipv6),
            };
            let ranges = Set { ranges: true, ..Set::hash(pods, &[field]) };
            let networks = networks_of(networks, is_ipv4).into_iter().collect();
            self.sets.insert(pods.to_owned(), (ranges, networks));
            let known = known.iter().filter(|address| address.is_ipv4() == is_ipv4);
            let known = known.map(|address| Element::new(bytes(*address))).collect();
            self.sets.insert(known_pods.to_owned(), (Set::hash(known_pods, &[field]), known));
        }
    }

    fn put(&mut self, set: &str, element: Element) {
        if let Some((_, elements)) = self.sets.get_mut(set) {
            elements.insert(element);
        }
    }

    /// The chain that spreads connections over several classes; its name follows from them.
    fn pick(&mut self, ways: &[u16]) -> String {
        let mut hasher = DefaultHasher::new();
        ways.hash(&mut hasher);
        let name = format!("pick-{:012x}", hasher.finish() >> 16);
        if self.chains.contains_key(&name) {
            return name;
        }
        let set = Set { verdicts: true, ..Set::hash(name.clone(), &[Field::Mark]) };
        let elements = ways.iter().zip(0u32..).map(|(number, at)| {
            Element::with(at.to_ne_bytes(), Verdict::Goto(format!("new-{number}")))
        });
        let count = u32::try_from(ways.len()).unwrap_or(1);
        let rules = vec![rule(vec![
            Expression::random(Register::FIRST, count),
            Expression::VerdictFrom { map: name.clone(), key: Register::FIRST },
        ])];
        self.sets.insert(name.clone(), (set, elements.collect()));
        self.chains.insert(name.clone(), rules);
        name
    }

    fn base(&mut self, port: u16, is_foreign: bool) {
        let mut prerouting = vec![
            rule(vec![
                Expression::Tracked { fact: Tracked::Direction, into: Register::FIRST },
                equal(vec![REPLY]),
                Expression::Verdict(Verdict::Accept),
            ]),
            rule(vec![
                Expression::Tracked { fact: Tracked::Mark, into: Register::FIRST },
                ours(),
                Expression::VerdictFrom { map: "marks".to_owned(), key: Register::FIRST },
            ]),
        ];
        let mut input = Vec::new();
        let mut forward = vec![rule(vec![
            Expression::input_interface(Register::FIRST),
            equal(DEVICES.to_vec()),
            Expression::Verdict(Verdict::Accept),
        ])];
        for is_ipv4 in [true, false] {
            let (map, replicas) =
                if is_ipv4 { ("from4", "replicas4") } else { ("from6", "replicas6") };
            let mut from = source(is_ipv4);
            from.push(Expression::VerdictFrom { map: map.to_owned(), key: Register::FIRST });
            prerouting.push(rule(from));
            let mut tunnel = to_port(port);
            tunnel.extend(source(is_ipv4));
            let set = replicas.to_owned();
            tunnel.push(Expression::Lookup { set, key: Register::FIRST, absent: false });
            tunnel.push(Expression::Verdict(Verdict::Accept));
            input.push(rule(tunnel.clone()));
            forward.push(rule(tunnel));
        }
        let mut others = to_port(port);
        others.push(Expression::Verdict(Verdict::Drop));
        input.push(rule(others));
        let from_outside = |absent| {
            let set = "outside".to_owned();
            let is_outside = Expression::Lookup { set, key: Register::FIRST, absent };
            vec![Expression::input_interface(Register::FIRST), is_outside]
        };
        let from_pods: Vec<_> = match is_foreign {
            true => vec![from_outside(true)],
            false => PODS.iter().map(|prefix| from_links_like(prefix)).collect(),
        };
        for mut pods in from_pods {
            pods.extend(to_port(port));
            pods.push(Expression::Verdict(Verdict::Drop));
            forward.push(rule(pods));
        }
        if is_foreign {
            let mut others = from_outside(false);
            others.push(Expression::Verdict(Verdict::Accept));
            prerouting.push(rule(others));
            prerouting.extend([true, false].map(|is_ipv4| rule(unknown(is_ipv4))));
        }
        let given =
            Expression::Lookup { set: "given".to_owned(), key: Register::FIRST, absent: false };
        let nat = [true, false].map(|is_ipv4| rule(keeping_its_address(is_ipv4)));
        let chains = [
            (PREROUTING, prerouting),
            (INPUT, input),
            (FORWARD, forward),
            (POSTROUTING, vec![rule(unmarked_if(given))]),
            (NAT, nat.into()),
        ];
        self.chains.extend(chains.map(|(name, rules)| (name.to_owned(), rules)));
    }
}

fn from_links_like(prefix: &str) -> Vec<Expression> {
    vec![Expression::input_interface(Register::FIRST), equal(prefix.as_bytes().to_vec())]
}

/// A packet from a pod of another plugin of which it is not known what it chose is held.
fn unknown(is_ipv4: bool) -> Vec<Expression> {
    let (pods, known) = if is_ipv4 { ("pods4", "known4") } else { ("pods6", "known6") };
    let key = Register::FIRST;
    let mut unknown = source(is_ipv4);
    unknown.push(Expression::Lookup { set: pods.to_owned(), key, absent: false });
    unknown.push(Expression::Lookup { set: known.to_owned(), key, absent: true });
    unknown.extend(marked_by(HOLD));
    unknown
}

/// Takes our bits of a packet's mark away, if they are as the condition says: the packet has its route.
pub(super) fn unmarked_if(condition: Expression) -> Vec<Expression> {
    let mut taken = vec![Expression::Meta { fact: Meta::Mark, into: Register::FIRST }, ours()];
    taken.push(condition);
    taken.extend(marked_by(0));
    taken
}

/// A connection that goes into the tunnel keeps its address: the egress pod translates it.
fn keeping_its_address(is_ipv4: bool) -> Vec<Expression> {
    let name = Expression::interface_name(DEVICE);
    let mut into_tunnel = vec![Expression::output_interface(Register::FIRST), equal(name)];
    into_tunnel.extend(source(is_ipv4));
    into_tunnel.push(Expression::source_address(is_ipv4, Register::FIRST));
    into_tunnel
}

pub(super) fn rule(expressions: Vec<Expression>) -> Rule {
    Rule { expressions, ..Rule::default() }
}

pub(super) fn equal(value: Vec<u8>) -> Expression {
    Expression::Compare { register: Register::FIRST, is: Comparison::Equal, value }
}

/// Leaves our bits of a mark.
pub(super) fn ours() -> Expression {
    let (mask, xor) = (MASK.to_ne_bytes().to_vec(), vec![0; 4]);
    Expression::Bits { register: Register::FIRST, mask, xor }
}

/// Makes our bits of a mark this number's, and leaves the others.
fn with_number(number: u16) -> Expression {
    let (mask, xor) = ((!MASK).to_ne_bytes().to_vec(), mark_of(number).to_ne_bytes().to_vec());
    Expression::Bits { register: Register::FIRST, mask, xor }
}

pub(super) fn marked_by(number: u16) -> Vec<Expression> {
    vec![
        Expression::Meta { fact: Meta::Mark, into: Register::FIRST },
        with_number(number),
        Expression::SetMark { from: Register::FIRST },
    ]
}

fn tracked_by(number: u16) -> Vec<Expression> {
    vec![
        Expression::Tracked { fact: Tracked::Mark, into: Register::FIRST },
        with_number(number),
        Expression::SetTrackedMark { from: Register::FIRST },
    ]
}

pub(super) fn source(is_ipv4: bool) -> Vec<Expression> {
    let (number, offset, length) = if is_ipv4 { (2, 12, 4) } else { (10, 8, 16) };
    vec![
        Expression::Meta { fact: Meta::Family, into: Register::FIRST },
        equal(vec![number]),
        Expression::Payload { header: Header::Network, offset, length, into: Register::FIRST },
    ]
}

fn to_port(port: u16) -> Vec<Expression> {
    vec![
        Expression::Meta { fact: Meta::Protocol, into: Register::FIRST },
        equal(vec![UDP]),
        Expression::Payload {
            header: Header::Transport,
            offset: 2,
            length: 2,
            into: Register::FIRST,
        },
        equal(port.to_be_bytes().to_vec()),
    ]
}

pub(super) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

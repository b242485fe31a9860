//! The sets and chains that every program has.

use kernel::nftables::expression::{
    Comparison, Header, Meta, Register, Rejection, STATE_RELATED, Tracked,
};
use kernel::nftables::{Chain, Expression, Hook, Rule, Set, Verdict};

use super::{
    ANSWER_MARK, DNS_MARK, DNS_PORT, DROP, EXEMPT, Family, PENDING, R, REJECT, REVOKED, TCP, UDP,
    bits, counter, destination_port, equal, goto, jump, named, plain, protocol, rule, verdict,
};

/// Where the hooked chains stand among others: with those that filter.
const PRIORITY: i32 = 0;
/// Behind destination NAT, so that a DNS server's own address is judged and not a Service's.
const BEHIND_NAT: i32 = -90;
/// Behind connection tracking, before others look at marks.
const BEHIND_TRACKING: i32 = -150;

const REVOKED_CHAIN: &str = "revoked";
const REPLIES: &str = "replies";

const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Router and neighbour solicitations and advertisements, and redirects.
const NEIGHBOUR_DISCOVERY: (u8, u8) = (133, 137);
const DNS: u16 = 53;

/// The maps and sets that every program has.
pub(in crate::enforcement) fn fixed_sets() -> Vec<Set> {
    let sets = Family::BOTH.into_iter();
    sets.flat_map(|it| [it.out(), it.into(), it.itself(), it.asking()]).collect()
}

/// The chains that every program has, first those that others refer to; those for DNS only if some pod's
/// DNS is to go through the agent.
pub(in crate::enforcement) fn fixed_chains(with_dns: bool) -> Vec<(Chain, Vec<Rule>)> {
    let hooked = |name: &str, hook, priority| Chain { hook: Some((hook, priority)), ..named(name) };
    let reset = || plain([protocol(), equal(vec![TCP]), Expression::Reject(Rejection::TcpReset)]);
    let drop = vec![plain([verdict(Verdict::Drop)])];
    let reject = vec![reset(), plain([Expression::Reject(Rejection::Prohibited)])];
    let revoked = vec![reset(), plain([counter(), verdict(Verdict::Drop)])];
    let is_revoked =
        || plain(bits(Tracked::Mark, REVOKED).into_iter().chain([goto(REVOKED_CHAIN)]));
    let mut exempt = vec![is_revoked()];
    exempt.extend(never_judged());
    let waiting = "the pod's policies have not arrived".to_owned();
    let pending = vec![plain([jump(EXEMPT)]), rule(vec![counter(), goto(DROP)], waiting, 0)];
    let replies = vec![is_revoked(), plain([verdict(Verdict::Accept)])];
    let mut chains = vec![
        (named(DROP), drop),
        (named(REJECT), reject),
        (named(REVOKED_CHAIN), revoked),
        (named(EXEMPT), exempt),
        (named(PENDING), pending),
        (named(REPLIES), replies),
        (named("forward6"), lookups(Family::V6, true)),
        (named("input6"), lookups(Family::V6, false)),
        (hooked("forward", Hook::Forward, PRIORITY), first_rules("forward6", true)),
        (hooked("input", Hook::Input, PRIORITY), first_rules("input6", false)),
    ];
    if with_dns {
        chains.push((hooked("dns", Hook::Prerouting, BEHIND_NAT), to_agent()));
        chains.push((hooked("dns-out", Hook::OutputRoute, BEHIND_TRACKING), from_agent()));
    }
    chains
}

/// What no policy judges: ICMP errors about connections, neighbour discovery, what a pod sends to itself.
fn never_judged() -> Vec<Rule> {
    let mut rules = Vec::new();
    for icmp in [ICMP, ICMP6] {
        let is_error = [protocol(), equal(vec![icmp])];
        let is_error = is_error.into_iter().chain(bits(Tracked::State, STATE_RELATED));
        rules.push(plain(is_error.chain([verdict(Verdict::Accept)])));
    }
    let (first, last) = NEIGHBOUR_DISCOVERY;
    let kind = Expression::Payload { header: Header::Transport, offset: 0, length: 1, into: R };
    let bound = |is, value| Expression::Compare { register: R, is, value: vec![value] };
    rules.push(plain([
        protocol(),
        equal(vec![ICMP6]),
        kind,
        bound(Comparison::AtLeast, first),
        bound(Comparison::AtMost, last),
        verdict(Verdict::Accept),
    ]));
    for family in Family::BOTH {
        let [load, is] = family.is();
        rules.push(plain([
            load,
            is,
            family.source(R),
            family.destination(Register(family.registers())),
            Expression::Lookup { set: family.itself().name, key: R, absent: false },
            verdict(Verdict::Accept),
        ]));
    }
    rules
}

/// What a packet pays first: replies and IPv6 go elsewhere.
fn first_rules(six: &str, to_pods: bool) -> Vec<Rule> {
    let mut rules = vec![
        plain([
            Expression::Tracked { fact: Tracked::Direction, into: R },
            equal(vec![1]),
            goto(REPLIES),
        ]),
        plain(Family::V6.is().into_iter().chain([goto(six)])),
    ];
    rules.extend(lookups(Family::V4, to_pods));
    rules
}

fn lookups(family: Family, to_pods: bool) -> Vec<Rule> {
    let from = |map| Expression::VerdictFrom { map, key: R };
    let mut rules = vec![plain([family.source(R), from(family.out().name)])];
    if to_pods {
        rules.push(plain([family.destination(R), from(family.into().name)]));
    }
    rules
}

/// `mark | DNS_MARK`, in the first register.
fn with_mark() -> Expression {
    Expression::Bits {
        register: R,
        mask: (!DNS_MARK).to_ne_bytes().to_vec(),
        xor: DNS_MARK.to_ne_bytes().to_vec(),
    }
}

fn packet_mark() -> [Expression; 3] {
    [Expression::Meta { fact: Meta::Mark, into: R }, with_mark(), Expression::SetMark { from: R }]
}

/// The conditions of what an asking pod sends to a DNS server: one list for each protocol.
fn asks(family: Family) -> impl Iterator<Item = Vec<Expression>> {
    [UDP, TCP].into_iter().map(move |number| {
        let mut all = family.is().to_vec();
        all.extend([
            protocol(),
            equal(vec![number]),
            destination_port(R),
            equal(DNS.to_be_bytes().to_vec()),
            family.source(R),
            Expression::Lookup { set: family.asking().name, key: R, absent: false },
        ]);
        all
    })
}

/// What the agent asked on a pod's behalf comes back to the agent, though it is for the pod's address.
fn answers() -> Rule {
    let reply = [Expression::Tracked { fact: Tracked::Direction, into: R }, equal(vec![1])];
    let asked = bits(Tracked::Mark, DNS_MARK);
    plain(reply.into_iter().chain(asked).chain(packet_mark()))
}

/// Without an agent that listens, `TransparentProxy` ends the rule, and the packet goes where it would.
fn to_agent() -> Vec<Rule> {
    let mut rules = vec![answers()];
    for family in Family::BOTH {
        let loopback = match family {
            Family::V4 => vec![127, 0, 0, 1],
            Family::V6 => std::net::Ipv6Addr::LOCALHOST.octets().to_vec(),
        };
        let port = Register(family.registers());
        for conditions in asks(family) {
            let proxy = [
                Expression::Immediate { into: R, value: loopback.clone() },
                Expression::Immediate { into: port, value: DNS_PORT.to_be_bytes().to_vec() },
                Expression::TransparentProxy { ipv6: family == Family::V6, address: R, port },
            ];
            rules.push(plain(conditions.into_iter().chain(proxy).chain(packet_mark())));
        }
    }
    rules
}

/// What the agent asks with a pod's address is judged by the ingress rules of the server that is asked, if
/// that is a pod of this node: the pod's egress rules have judged it already.
fn from_agent() -> Vec<Rule> {
    let mask = ANSWER_MARK.to_ne_bytes().to_vec();
    let to_pod = plain([
        Expression::Meta { fact: Meta::Mark, into: R },
        Expression::Bits { register: R, mask: mask.clone(), xor: vec![0; 4] },
        equal(mask),
        verdict(Verdict::Accept),
    ]);
    let mut rules = vec![to_pod, answers()];
    for family in Family::BOTH {
        for conditions in asks(family) {
            let mark = [
                Expression::Tracked { fact: Tracked::Mark, into: R },
                with_mark(),
                Expression::SetTrackedMark { from: R },
            ];
            let judged = Expression::VerdictFrom { map: family.into().name, key: R };
            let judged = [family.destination(R), judged];
            rules.push(plain(conditions.into_iter().chain(mark).chain(judged)));
        }
    }
    rules
}

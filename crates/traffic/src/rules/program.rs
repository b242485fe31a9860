//! Rules compiled in the order in which they decide.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use kube::ResourceExt;
use objects::kinds::{GroupMode, GroupName, NetworkRule, Ports};
use objects::{Invalid, Kind};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::learn::LearnedRule;
use crate::conversations::{End, Endpoint, Judge, Judgement, Service, Verdict};
use crate::groups::Groups;
use crate::ingest::AgentRule;
use crate::names::Names;

#[derive(Clone, Debug, Default)]
pub struct Program {
    /// In the order in which they decide.
    rules: Vec<Compiled>,
    /// Places of those whose two ends are each one kind of endpoint or one owner's workloads, by
    /// both: learned ones are, and there are thousands.
    exact: FxHashMap<u64, Vec<u32>>,
    /// Places of the others.
    wide: Vec<u32>,
}

/// A rule whose groups are parsed.
#[derive(Clone, Debug)]
struct Compiled {
    rule: AgentRule,
    from: GroupMatcher,
    to: GroupMatcher,
}

/// Whom a rule speaks of, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMatcher {
    Any,
    Workloads,
    /// By the kind of endpoint.
    Kind(&'static str),
    Learned {
        namespace: Box<str>,
        owner: Box<str>,
    },
    Made(Box<str>),
}

impl Program {
    /// The written rules by priority and name, then the learned ones. Refuses everything if one
    /// written rule is not right: the rules are those that were asked for, or none are.
    pub fn compile(rules: &[NetworkRule], learned: &[LearnedRule]) -> Result<Self, Invalid> {
        let mut problems = Invalid::default();
        for rule in rules {
            for (field, problem) in rule.check().err().into_iter().flat_map(|Invalid(all)| all) {
                problems.add(format!("rule {:?}: {field}", rule.name_any()), problem);
            }
        }
        problems.into_result()?;
        let written = rules.iter().filter(|rule| !rule.spec.disabled).map(AgentRule::from);
        let mut order: Vec<_> = written.chain(learned.iter().map(AgentRule::from)).collect();
        order.sort_by(|a, b| a.order().cmp(&b.order()));
        let compiled = order.into_iter().filter_map(|rule| {
            let (from, to) = (GroupMatcher::new(&rule.from), GroupMatcher::new(&rule.to));
            Some(Compiled { from: from.ok()?, to: to.ok()?, rule })
        });
        Ok(Self::of(compiled.collect()))
    }

    fn of(rules: Vec<Compiled>) -> Self {
        let (mut exact, mut wide) = (FxHashMap::<u64, Vec<u32>>::default(), Vec::new());
        for (place, rule) in (0_u32..).zip(&rules) {
            match (rule.from.print(), rule.to.print()) {
                (Some(from), Some(to)) => exact.entry(both(from, to)).or_default().push(place),
                _ => wide.push(place),
            }
        }
        Self { rules, exact, wide }
    }

    /// The first that speaks of it.
    fn first(
        &self,
        (groups, names): (&Groups, &Names),
        client: &End,
        server: &End,
        about: Service<'_>,
    ) -> First<'_> {
        // The first by domain name of which it is not known.
        let mut unknown: Option<(u32, &Compiled)> = None;
        let mut speaks = |place: &u32| {
            let rule = self.rules.get(*place as usize)?;
            if !rule.speaks_of(about) {
                return None;
            }
            let from = rule.from.fit(groups, names, client, server);
            match from.and(|| rule.to.fit(groups, names, server, client)) {
                Fit::Yes => Some((*place, rule)),
                Fit::No => None,
                Fit::Unknown => {
                    unknown.get_or_insert((*place, rule));
                    None
                }
            }
        };
        let ends = both(print(&client.endpoint), print(&server.endpoint));
        // Two pairs of ends may share a number: each rule is asked itself.
        let exact = self.exact.get(&ends).and_then(|places| places.iter().find_map(&mut speaks));
        let wide = self.wide.iter().find_map(speaks);
        let decides = [exact, wide].into_iter().flatten().min_by_key(|(place, _)| *place);
        let unknown = unknown.filter(|(place, _)| decides.is_none_or(|it| *place < it.0));
        First { decides: decides.map(|it| it.1), unknown: unknown.map(|it| it.1) }
    }
}

/// Which rule decides.
struct First<'p> {
    decides: Option<&'p Compiled>,
    /// One before it that would decide if the other end's address had one of its names, which no agent told.
    unknown: Option<&'p Compiled>,
}

/// Whether an end is in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
    /// It depends on names, and the agent that knows them has not told.
    Unknown,
}

impl Fit {
    fn and(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::No {
            return Self::No;
        }
        match other() {
            Self::Yes => self,
            other => other,
        }
    }
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Self {
        if fits { Self::Yes } else { Self::No }
    }
}

/// Of an end that a rule may name by itself.
fn print(endpoint: &Endpoint) -> u64 {
    match endpoint {
        Endpoint::Workload { namespace, owner, .. } => of_owner(namespace, owner),
        other => of_kind(other.kind()),
    }
}

fn of_owner(namespace: &str, owner: &str) -> u64 {
    FxBuildHasher.hash_one((namespace, owner))
}

fn of_kind(kind: &str) -> u64 {
    FxBuildHasher.hash_one(kind)
}

fn both(from: u64, to: u64) -> u64 {
    FxBuildHasher.hash_one((from, to))
}

impl Compiled {
    fn speaks_of(&self, about: Service<'_>) -> bool {
        let port = |ports: &Ports| ports.contains(about.protocol, about.port);
        let named = |name: &String| about.application == Some(name.as_str());
        let AgentRule { ports, applications, .. } = &self.rule;
        (ports.is_empty() || ports.iter().any(port))
            && (applications.is_empty() || applications.iter().any(named))
    }
}

impl GroupMatcher {
    /// In the words of a [`NetworkRule`]; why not, in a sentence.
    pub fn new(text: &str) -> Result<Self, String> {
        Ok(match GroupName::parse(text)? {
            GroupName::Reserved("any") => Self::Any,
            GroupName::Reserved("workloads") => Self::Workloads,
            GroupName::Reserved("external") => Self::Kind("external"),
            GroupName::Reserved("hosts") => Self::Kind("host"),
            GroupName::Reserved("ingress") => Self::Kind("ingress"),
            GroupName::Reserved("services") => Self::Kind("service"),
            GroupName::Reserved(_) => Self::Kind("unmanaged"),
            GroupName::Learned { namespace, owner } => {
                Self::Learned { namespace: namespace.into(), owner: owner.into() }
            }
            GroupName::Made(name) => Self::Made(name.into()),
        })
    }

    /// As that of every end it has; none if they have several.
    fn print(&self) -> Option<u64> {
        match self {
            Self::Kind(kind) => Some(of_kind(kind)),
            Self::Learned { namespace, owner } => Some(of_owner(namespace, owner)),
            Self::Any | Self::Workloads | Self::Made(_) => None,
        }
    }

    /// Whether an end is in it; a group of domain names has what the node of the other end resolved.
    fn fit(&self, groups: &Groups, names: &Names, end: &End, other: &End) -> Fit {
        if let Self::Made(name) = self
            && let Some(made) = groups.made(name).filter(|made| !made.domains.is_empty())
        {
            let at = other.endpoint.node();
            let fits = at.and_then(|node| names.fits(node, end.address, &made.domains));
            return fits.map_or(Fit::Unknown, Fit::from);
        }
        self.has(groups, end).into()
    }

    /// Whether an end is in it, whatever names resolve to.
    pub fn has(&self, groups: &Groups, end: &End) -> bool {
        match (self, &*end.endpoint) {
            (Self::Any, _) => true,
            (Self::Workloads, endpoint) => matches!(endpoint, Endpoint::Workload { .. }),
            (Self::Kind(kind), endpoint) => endpoint.kind() == *kind,
            (
                Self::Learned { namespace, owner },
                Endpoint::Workload { namespace: n, owner: o, .. },
            ) => **namespace == **n && **owner == **o,
            (Self::Learned { .. }, _) => false,
            (Self::Made(name), _) => groups.has(name, end),
        }
    }
}

/// Rules and groups of one moment.
#[derive(Clone, Debug)]
pub struct Policy {
    pub program: Program,
    pub groups: Groups,
    /// What names resolve to: as of now, not of that moment.
    pub names: Names,
}

impl Judge for Policy {
    /// The laxer mode of the two ends decides what becomes of what no rule allows; an end that is no
    /// workload has no say. A rule that denies was written by somebody, and counts while learning
    /// too. Where it depends on a rule by domain name, and nobody told what the name resolved to, nothing is
    /// judged and that rule is named.
    fn judge(&self, client: &End, server: &End, about: Service<'_>) -> Judgement {
        let modes = [client, server].into_iter().filter_map(|end| self.groups.mode(end));
        let Some(mode) = modes.min() else { return Judgement::default() };
        let knowledge = (&self.groups, &self.names);
        let First { decides, unknown } = self.program.first(knowledge, client, server, about);
        let verdict = |rule: Option<&Compiled>| match (rule.map(|it| it.rule.allows), mode) {
            (Some(true), _) => Verdict::Allowed,
            (None, GroupMode::Discover) => Verdict::Discovered,
            (Some(false), GroupMode::Discover) | (_, GroupMode::Monitor) => Verdict::Violates,
            (_, GroupMode::Protect) => Verdict::ViolatesUnenforced,
        };
        let named = |rule: Option<&Compiled>| rule.map(|it| Arc::clone(&it.rule.name));
        let (verdict, depends) = (verdict(decides), unknown.map(|_| verdict(unknown)));
        match depends {
            // What is learned is allowed too.
            Some(Verdict::Allowed) if verdict == Verdict::Discovered => {}
            Some(other) if other != verdict => {
                return Judgement { verdict: Verdict::Unjudged, rule: named(unknown) };
            }
            _ => {}
        }
        Judgement { verdict, rule: named(decides) }
    }
}

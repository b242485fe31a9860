//! The stream of rules: everything first, unless the agent has it; then what changes.

use std::net::IpAddr;
use std::sync::Arc;

use futures::{Stream, stream};
use guard::ingest::{Shipped, ShippedGroup, ShippedRule};
use ipnet::IpNet;
use objects::kinds::{GroupMode, Ports, Protocol};
use stallproof::snapshot::{Changes, View};
use tonic::Status;

use super::listen::Caller;
use super::report::Standing;
use super::{Counts, Server, proto, wire};

struct Following<C> {
    standing: Standing<C>,
    changes: Changes<Shipped>,
    /// What the agent has; none is nothing that we know.
    before: Option<View<Shipped>>,
    /// To be told at once.
    first: Option<View<Shipped>>,
}

pub(super) fn stream<C: Counts>(
    server: &Server<C>,
    caller: &Caller,
    asked: &proto::RulesRequest,
) -> Result<impl Stream<Item = Result<proto::RuleChange, Status>> + Send + use<C>, Status> {
    let standing = Standing::of(server, caller)?;
    let counts = server.counts.load();
    let counts = counts
        .as_ref()
        .ok_or_else(|| Status::unavailable("another replica counts: ask the leader"))?;
    // In this order: what is published in between is told twice, not missed.
    let changes = counts.shipped().subscribe();
    let now = counts.shipped().load();
    let has_it = asked.version == now.version;
    let (before, first) = if has_it { (Some(now), None) } else { (None, Some(now)) };
    let following = Following { standing, changes, before, first };
    Ok(stream::unfold(Some(following), |following| async move {
        let mut following = following?;
        let next = match following.first.take() {
            Some(first) => first,
            None => tokio::select! {
                biased;
                status = following.standing.lost() => return Some((Err(status), None)),
                next = following.changes.changed() => next,
            },
        };
        let change = RuleChange::between(following.before.as_deref(), &next);
        following.before = Some(next);
        Some((Ok(change.into()), Some(following)))
    }))
}

/// What changed of rules and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChange {
    pub version: u64,
    /// What was before is void: this is everything.
    pub whole: bool,
    pub rules: Vec<Arc<ShippedRule>>,
    pub removed_rules: Vec<Arc<str>>,
    pub groups: Vec<(Arc<str>, Arc<ShippedGroup>)>,
    pub removed_groups: Vec<Arc<str>>,
    /// Of workloads in no group that has one.
    pub mode: GroupMode,
}

impl RuleChange {
    /// What brings who has `before` to `now`.
    fn between(before: Option<&Shipped>, now: &Shipped) -> Self {
        let rules = now.rules.iter().filter(|(name, rule)| {
            before.and_then(|before| before.rules.get(*name)).is_none_or(|had| had != *rule)
        });
        let groups = now.groups.iter().filter(|(name, group)| {
            before.and_then(|before| before.groups.get(*name)).is_none_or(|had| had != *group)
        });
        let removed_rules = before.iter().flat_map(|before| before.rules.keys());
        let removed_groups = before.iter().flat_map(|before| before.groups.keys());
        Self {
            version: now.version,
            whole: before.is_none(),
            rules: rules.map(|(_, rule)| rule.clone()).collect(),
            removed_rules: removed_rules
                .filter(|it| !now.rules.contains_key(*it))
                .cloned()
                .collect(),
            groups: groups.map(|(name, group)| (name.clone(), group.clone())).collect(),
            removed_groups: removed_groups
                .filter(|it| !now.groups.contains_key(*it))
                .cloned()
                .collect(),
            mode: now.mode,
        }
    }

    /// Brings what an agent has up to date.
    pub fn apply(self, shipped: &mut Shipped) {
        if self.whole {
            shipped.rules.clear();
            shipped.groups.clear();
        }
        for name in &self.removed_rules {
            shipped.rules.remove(name);
        }
        for name in &self.removed_groups {
            shipped.groups.remove(name);
        }
        shipped.rules.extend(self.rules.into_iter().map(|rule| (rule.name.clone(), rule)));
        shipped.groups.extend(self.groups);
        (shipped.version, shipped.mode) = (self.version, self.mode);
    }
}

impl From<RuleChange> for proto::RuleChange {
    fn from(change: RuleChange) -> Self {
        let names = |names: Vec<Arc<str>>| names.iter().map(ToString::to_string).collect();
        Self {
            version: change.version,
            whole: change.whole,
            rules: change.rules.iter().map(|rule| rule_out(rule)).collect(),
            removed_rules: names(change.removed_rules),
            groups: change.groups.iter().map(|(name, group)| group_out(name, group)).collect(),
            removed_groups: names(change.removed_groups),
            mode: mode_out(Some(change.mode)),
        }
    }
}

impl TryFrom<proto::RuleChange> for RuleChange {
    type Error = &'static str;

    fn try_from(change: proto::RuleChange) -> Result<Self, Self::Error> {
        let names = |names: Vec<String>| names.into_iter().map(Arc::from).collect();
        let groups = change.groups.into_iter().map(group_in);
        Ok(Self {
            version: change.version,
            whole: change.whole,
            rules: change.rules.into_iter().map(rule_in).collect::<Result<_, _>>()?,
            removed_rules: names(change.removed_rules),
            groups: groups.collect::<Result<_, _>>()?,
            removed_groups: names(change.removed_groups),
            mode: mode_in(change.mode).unwrap_or(GroupMode::Discover),
        })
    }
}

fn rule_out(rule: &ShippedRule) -> proto::Rule {
    let ports = rule.ports.iter().map(|ports| proto::Ports {
        protocol: u32::from(ports.protocol.0),
        first: u32::from(ports.first),
        last: u32::from(ports.last),
    });
    proto::Rule {
        name: rule.name.to_string(),
        learned: rule.learned,
        priority: rule.priority,
        from: rule.from.to_string(),
        to: rule.to.to_string(),
        ports: ports.collect(),
        applications: rule.applications.clone(),
        allows: rule.allows,
    }
}

fn rule_in(rule: proto::Rule) -> Result<Arc<ShippedRule>, &'static str> {
    let ports = rule.ports.iter().map(|ports| {
        let protocol = Protocol(u8::try_from(ports.protocol).ok()?);
        let (first, last) = (u16::try_from(ports.first).ok()?, u16::try_from(ports.last).ok()?);
        Some(Ports { protocol, first, last })
    });
    Ok(Arc::new(ShippedRule {
        name: rule.name.into(),
        learned: rule.learned,
        priority: rule.priority,
        from: rule.from.into(),
        to: rule.to.into(),
        ports: ports.collect::<Option<_>>().ok_or("a port has 16 bits, a protocol 8")?,
        applications: rule.applications,
        allows: rule.allows,
    }))
}

fn group_out(name: &str, group: &ShippedGroup) -> proto::Group {
    let out = |networks: &[IpNet]| networks.iter().map(network_out).collect();
    proto::Group {
        name: name.to_owned(),
        networks: out(&group.networks),
        except: out(&group.except),
        mode: mode_out(group.mode),
    }
}

fn group_in(group: proto::Group) -> Result<(Arc<str>, Arc<ShippedGroup>), &'static str> {
    let into = |networks: Vec<Vec<u8>>| {
        let networks = networks.iter().map(|bytes| network_in(bytes)).collect::<Option<_>>();
        networks.ok_or("a network has 5 or 17 bytes")
    };
    let (networks, except) = (into(group.networks)?, into(group.except)?);
    let mode = mode_in(group.mode);
    Ok((group.name.into(), Arc::new(ShippedGroup { networks, except, mode })))
}

fn network_out(network: &IpNet) -> Vec<u8> {
    let mut bytes = wire::octets(network.addr());
    bytes.push(network.prefix_len());
    bytes
}

fn network_in(bytes: &[u8]) -> Option<IpNet> {
    let (prefix, address) = bytes.split_last()?;
    let address: IpAddr = wire::address(address)?;
    IpNet::new(address, *prefix).ok()
}

fn mode_out(mode: Option<GroupMode>) -> i32 {
    let mode = match mode {
        None => proto::Mode::None,
        Some(GroupMode::Discover) => proto::Mode::Discover,
        Some(GroupMode::Monitor) => proto::Mode::Monitor,
        Some(GroupMode::Protect) => proto::Mode::Protect,
    };
    mode.into()
}

fn mode_in(mode: i32) -> Option<GroupMode> {
    match proto::Mode::try_from(mode) {
        Ok(proto::Mode::Discover) => Some(GroupMode::Discover),
        Ok(proto::Mode::Monitor) => Some(GroupMode::Monitor),
        Ok(proto::Mode::Protect) => Some(GroupMode::Protect),
        Ok(proto::Mode::None) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests;

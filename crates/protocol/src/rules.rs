//! Converts changes of rules to messages and back.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use objects::kinds::{GroupMode, Ports, Protocol};
use traffic::ingest::{AgentGroup, AgentRule, RuleChange};

use crate::join::{address, octets};
use crate::{Malformed, proto};

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
    type Error = Malformed;

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

fn rule_out(rule: &AgentRule) -> proto::Rule {
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

fn rule_in(rule: proto::Rule) -> Result<Arc<AgentRule>, Malformed> {
    let ports = rule.ports.iter().map(|ports| {
        let protocol = Protocol(u8::try_from(ports.protocol).ok()?);
        let (first, last) = (u16::try_from(ports.first).ok()?, u16::try_from(ports.last).ok()?);
        Some(Ports { protocol, first, last })
    });
    Ok(Arc::new(AgentRule {
        name: rule.name.into(),
        learned: rule.learned,
        priority: rule.priority,
        from: rule.from.into(),
        to: rule.to.into(),
        ports: ports.collect::<Option<_>>().ok_or(Malformed("a port has 16 bits, a protocol 8"))?,
        applications: rule.applications,
        allows: rule.allows,
    }))
}

fn group_out(name: &str, group: &AgentGroup) -> proto::Group {
    let out = |networks: &[IpNet]| networks.iter().map(network_out).collect();
    proto::Group {
        name: name.to_owned(),
        networks: out(&group.networks),
        except: out(&group.except),
        mode: mode_out(group.mode),
    }
}

fn group_in(group: proto::Group) -> Result<(Arc<str>, Arc<AgentGroup>), Malformed> {
    let into = |networks: Vec<Vec<u8>>| {
        let networks = networks.iter().map(|bytes| network_in(bytes)).collect::<Option<_>>();
        networks.ok_or(Malformed("a network has 5 or 17 bytes"))
    };
    let (networks, except) = (into(group.networks)?, into(group.except)?);
    let mode = mode_in(group.mode);
    Ok((group.name.into(), Arc::new(AgentGroup { networks, except, mode })))
}

fn network_out(network: &IpNet) -> Vec<u8> {
    let mut bytes = octets(network.addr());
    bytes.push(network.prefix_len());
    bytes
}

fn network_in(bytes: &[u8]) -> Option<IpNet> {
    let (prefix, octets) = bytes.split_last()?;
    let address: IpAddr = address(octets)?;
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

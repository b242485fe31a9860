//! `Rules`: the rules for this node, compiled to be asked for every conversation.
//!
//! An agent knows addresses, and not which pods have them; so this is the controller's judgement as far
//! as addresses go. It decides which totals are kept when there are too many, nothing else.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use objects::kinds::GroupMode;

use super::ConversationKey;
use traffic::ingest::{AgentPolicy, AgentRule};

#[derive(Debug)]
pub struct Rules {
    /// Groups that have an address by itself.
    single: HashMap<IpAddr, Vec<u32>>,
    /// Groups that have it as part of a network.
    wide: Vec<(IpNet, u32)>,
    except: HashMap<u32, Vec<IpNet>>,
    modes: HashMap<u32, GroupMode>,
    /// By their groups, in the order in which they decide.
    rules: HashMap<(u32, u32), Vec<(usize, AgentRule)>>,
}

impl Rules {
    pub fn new(policy: &AgentPolicy) -> Self {
        let mut rules = Self {
            single: HashMap::new(),
            wide: Vec::new(),
            except: HashMap::new(),
            modes: HashMap::new(),
            rules: HashMap::new(),
        };
        let mut numbers = HashMap::new();
        for (name, group) in &policy.groups {
            let number = numbers.len() as u32;
            numbers.insert(name, number);
            for network in &group.networks {
                if network.prefix_len() == network.max_prefix_len() {
                    rules.single.entry(network.addr()).or_default().push(number);
                } else {
                    rules.wide.push((*network, number));
                }
            }
            if !group.except.is_empty() {
                rules.except.insert(number, group.except.clone());
            }
            if let Some(mode) = group.mode {
                rules.modes.insert(number, mode);
            }
        }
        let mut order: Vec<_> = policy.rules.values().collect();
        order.sort_by(|a, b| a.order().cmp(&b.order()));
        for (place, rule) in order.into_iter().enumerate() {
            let (Some(from), Some(to)) = (numbers.get(&rule.from), numbers.get(&rule.to)) else {
                continue;
            };
            let rule = AgentRule::clone(rule);
            rules.rules.entry((*from, *to)).or_default().push((place, rule));
        }
        rules
    }

    fn groups(&self, address: IpAddr) -> Vec<u32> {
        let mut groups = self.single.get(&address).cloned().unwrap_or_default();
        let wide = self.wide.iter().filter(|(network, _)| network.contains(&address));
        groups.extend(wide.map(|(_, group)| *group));
        groups.retain(|group| {
            let except = self.except.get(group);
            !except.is_some_and(|except| except.iter().any(|network| network.contains(&address)))
        });
        groups
    }

    pub fn violates(&self, key: &ConversationKey) -> bool {
        let (from, to) = (self.groups(key.client), self.groups(key.server));
        let pairs = from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to)));
        let spoken =
            pairs.filter_map(|pair| self.rules.get(&pair)).flatten().filter(|(_, rule)| {
                // Which application it is, is not known here.
                rule.applications.is_empty()
                    && (rule.ports.is_empty()
                        || rule.ports.iter().any(|ports| ports.contains(key.protocol, key.port)))
            });
        if let Some((_, rule)) = spoken.min_by_key(|(place, _)| *place) {
            return !rule.allows;
        }
        let modes = from.iter().chain(&to).filter_map(|group| self.modes.get(group));
        modes.min().is_some_and(|mode| *mode != GroupMode::Discover)
    }
}

#[cfg(test)]
mod tests;

//! Groups and network rules.

use std::collections::BTreeMap;

use objects::Kind;
use objects::kinds::{
    Group, GroupMode, GroupSpec, NetworkRule, NetworkRuleSpec, Ports, Protocol, RuleAction,
};
use serde_json::Value;

use crate::criteria::{Selection, select};
use crate::{Imported, Names, Outcome, Settings, kind, name_of};

/// Rules of ours that people wrote have 1000 unless they say otherwise: imported ones come after.
const FIRST_PRIORITY: i32 = 10_000;
const MOST_PORTS: usize = 64;
/// Begins the names of the groups that have a mode there.
const LEARNED: &str = "nv.";
/// Begins the names of the groups that a primary cluster gave to all clusters.
const FEDERAL: &str = "fed.";

/// What NeuVector's name of a group is here.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// A group of ours, made or reserved; none if there is none that could stand for it.
    pub(crate) name: Option<String>,
    is_subset: bool,
    is_superset: bool,
    why: String,
}

pub(crate) type Groups = BTreeMap<String, End>;

/// The groups that NeuVector has without anybody making them. It has none for every end.
fn reserved() -> Groups {
    let of = |name: &str, is_superset, why: &str| End {
        name: Some(name.to_owned()),
        is_subset: true,
        is_superset,
        why: why.to_owned(),
    };
    let external = of(
        "external",
        false,
        "external has no unmanaged addresses of the cluster here; it has machines in the networks of nodes that \
         are no nodes, of which NeuVector decides nothing for some minutes",
    );
    [
        ("nodes", of("hosts", true, "")),
        ("fed.nodes", of("hosts", true, "")),
        ("containers", of("workloads", true, "")),
        ("fed.containers", of("workloads", true, "")),
        ("external", external),
    ]
    .map(|(name, end)| (name.to_owned(), end))
    .into()
}

/// A selector: a group with its criteria, or a mention of one.
fn selectors(documents: &[&Value]) -> Vec<(Value, Option<GroupMode>)> {
    let mut found = Vec::new();
    for document in documents {
        let spec = &document["spec"];
        match kind(document) {
            "NvGroupDefinition" => found.push((spec["selector"].clone(), None)),
            "NvSecurityRule" | "NvClusterSecurityRule" => {
                let mode = match spec["target"]["policymode"].as_str() {
                    Some("Discover") => Some(GroupMode::Discover),
                    Some("Monitor") => Some(GroupMode::Monitor),
                    Some("Protect") => Some(GroupMode::Protect),
                    _ => None,
                };
                found.push((spec["target"]["selector"].clone(), mode));
                for side in ["ingress", "egress"] {
                    for rule in spec[side].as_array().into_iter().flatten() {
                        found.push((rule["selector"].clone(), None));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Makes a group of each that is defined somewhere.
pub(crate) fn groups(
    documents: &[&Value],
    settings: &Settings,
    names: &mut Names,
    imported: &mut Imported,
) -> Groups {
    let mut groups = reserved();
    let mut defined: BTreeMap<String, (Vec<Value>, Option<GroupMode>, String)> = BTreeMap::new();
    let mut conflicts: Vec<String> = Vec::new();
    for (selector, mode) in selectors(documents) {
        let name = selector["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() || groups.contains_key(&name) {
            continue;
        }
        let criteria = selector["criteria"].as_array().cloned().unwrap_or_default();
        let comment = selector["comment"].as_str().unwrap_or_default().to_owned();
        let entry = defined.entry(name.clone()).or_default();
        if entry.0.is_empty() {
            entry.0 = criteria;
        } else if !criteria.is_empty() && entry.0 != criteria {
            conflicts.push(name);
        }
        // The stricter, should two say it.
        entry.1 = entry.1.max(mode);
        if entry.2.is_empty() {
            entry.2 = comment;
        }
    }
    for (name, (criteria, mode, comment)) in defined {
        let selected = if conflicts.contains(&name) {
            Err("it is there twice with different criteria".to_owned())
        } else {
            select(&criteria, &settings.pod_networks)
        };
        let end = match selected {
            Ok(selection) => make(&name, selection, mode, &comment, names, imported),
            Err(why) => nobody(&name, why, imported),
        };
        groups.insert(name, end);
    }
    groups
}

fn nobody(name: &str, why: String, imported: &mut Imported) -> End {
    imported.note("group", name, Outcome::Refused, &why);
    End { name: None, is_subset: false, is_superset: false, why }
}

fn make(
    name: &str,
    selection: Selection,
    mode: Option<GroupMode>,
    comment: &str,
    names: &mut Names,
    imported: &mut Imported,
) -> End {
    let Selection { criteria, is_subset, is_superset, mut notes } = selection;
    let given = names.give("group", name);
    if mode.is_none() && name.starts_with(LEARNED) {
        notes.push("its mode is not in what was given; here it has guard.mode".to_owned());
    }
    let mut comment = comment.to_owned();
    if given != name {
        notes.push(format!("its name here is {given}"));
        comment = format!("{comment} (NeuVector: {name})").trim_start().to_owned();
    }
    let comment = comment.chars().filter(|c| !c.is_control()).take(4000).collect();
    let group = Group::new(&given, GroupSpec { comment, mode, quarantine: false, criteria });
    if let Err(invalid) = group.check() {
        let problems: Vec<_> =
            invalid.0.into_iter().map(|(at, why)| format!("{at}: {why}")).collect();
        return nobody(name, problems.join("; "), imported);
    }
    imported.groups.push(group);
    let outcome = if notes.is_empty() { Outcome::Kept } else { Outcome::Changed };
    let why = notes.join("; ");
    imported.note("group", name, outcome, &why);
    End { name: Some(given), is_subset, is_superset, why }
}

struct NvRule<'a> {
    name: String,
    from: String,
    to: String,
    detail: &'a Value,
    priority: u64,
    denies: bool,
    is_federal: bool,
}

/// Makes the rules, in the order in which they decide.
pub(crate) fn rules(
    documents: &[&Value],
    groups: &Groups,
    names: &mut Names,
    imported: &mut Imported,
) {
    let mut all = Vec::new();
    for document in documents {
        if !matches!(kind(document), "NvSecurityRule" | "NvClusterSecurityRule") {
            continue;
        }
        let spec = &document["spec"];
        let target = spec["target"]["selector"]["name"].as_str().unwrap_or_default();
        for side in ["ingress", "egress"] {
            for (i, detail) in spec[side].as_array().into_iter().flatten().enumerate() {
                let other = detail["selector"]["name"].as_str().unwrap_or_default();
                let (from, to) = if side == "ingress" { (other, target) } else { (target, other) };
                let unnamed = format!("{}-{side}-{}", name_of(document), i + 1);
                let name =
                    detail["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(&unnamed);
                all.push(NvRule {
                    name: name.to_owned(),
                    from: from.to_owned(),
                    to: to.to_owned(),
                    detail,
                    priority: detail["priority"].as_u64().unwrap_or(0),
                    denies: detail["action"].as_str() == Some("deny"),
                    is_federal: [from, to, name_of(document)]
                        .iter()
                        .any(|name| name.starts_with(FEDERAL)),
                });
            }
        }
    }
    // Those of a federation are the first in NeuVector, then the greatest priority. Of one priority, what
    // denies comes first.
    all.sort_by_key(|rule| (!rule.is_federal, std::cmp::Reverse(rule.priority), !rule.denies));
    let mut priority = FIRST_PRIORITY;
    for rule in all {
        match rule.convert(groups) {
            Err(why) => imported.note("network rule", &rule.name, Outcome::Refused, why),
            Ok((specs, mut notes)) => {
                let mut made = Vec::new();
                for spec in specs {
                    let name = names.give("rule", &rule.name);
                    made.push(NetworkRule::new(&name, NetworkRuleSpec { priority, ..spec }));
                    priority = (priority + 1).min(1_000_000);
                }
                if let Some(first) = made.first().and_then(|rule| rule.metadata.name.clone())
                    && first != rule.name
                {
                    notes.push(format!("its name here is {first}"));
                }
                let invalid = made.iter().find_map(|rule| rule.check().err());
                match invalid {
                    Some(invalid) => {
                        let why = invalid.0.into_iter().map(|(at, why)| format!("{at}: {why}"));
                        let why = why.collect::<Vec<_>>().join("; ");
                        imported.note("network rule", &rule.name, Outcome::Refused, why);
                    }
                    None => {
                        imported.rules.extend(made);
                        let outcome =
                            if notes.is_empty() { Outcome::Kept } else { Outcome::Changed };
                        imported.note("network rule", &rule.name, outcome, notes.join("; "));
                    }
                }
            }
        }
    }
}

impl NvRule<'_> {
    /// The specs of one rule, whose ports may be too many for one; the error says why there is none.
    fn convert(&self, groups: &Groups) -> Result<(Vec<NetworkRuleSpec>, Vec<String>), String> {
        let action = match self.detail["action"].as_str() {
            Some("allow") => RuleAction::Allow,
            Some("deny") => RuleAction::Deny,
            other => {
                return Err(format!("the action {:?} is not allow or deny", other.unwrap_or("")));
            }
        };
        let mut notes = Vec::new();
        let from = self.end(&self.from, "from", action, groups, &mut notes)?;
        let to = self.end(&self.to, "to", action, groups, &mut notes)?;
        let ports = match ports(self.detail["ports"].as_str().unwrap_or("any")) {
            Ok(ports) => ports,
            Err(why) if action == RuleAction::Allow => return Err(why),
            Err(why) => {
                notes.push(format!("it denies every port: {why}"));
                Vec::new()
            }
        };
        let named: Vec<String> = self.detail["applications"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|name| match name.as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
                // The same under the names of ours.
                "ssl" => "tls".to_owned(),
                "mssql" => "sqlserver".to_owned(),
                name => name.to_owned(),
            })
            .collect();
        let every = named.is_empty() || named.iter().any(|name| name == "any");
        let applications = match action {
            _ if every => Vec::new(),
            RuleAction::Allow => named,
            RuleAction::Deny => {
                notes.push(
                    "it denies every application: which one it is may not be known".to_owned(),
                );
                Vec::new()
            }
        };
        let comment = self.detail["comment"].as_str().unwrap_or_default().to_owned();
        let spec = NetworkRuleSpec {
            comment,
            from,
            to,
            action,
            ports: Vec::new(),
            applications,
            priority: 0,
            disabled: false,
        };
        let texts: Vec<String> = ports.iter().map(ToString::to_string).collect();
        if texts.len() > MOST_PORTS {
            notes.push(format!("it is several rules of {MOST_PORTS} ports each"));
        }
        let mut specs: Vec<_> = texts
            .chunks(MOST_PORTS)
            .map(|ports| NetworkRuleSpec { ports: ports.to_vec(), ..spec.clone() })
            .collect();
        if specs.is_empty() {
            specs.push(spec);
        }
        Ok((specs, notes))
    }

    fn end(
        &self,
        name: &str,
        side: &str,
        action: RuleAction,
        groups: &Groups,
        notes: &mut Vec<String>,
    ) -> Result<String, String> {
        let Some(end) = groups.get(name) else {
            let why = format!("{side} {name:?}: there is no such group among what was given");
            return match action {
                RuleAction::Allow => Err(why),
                RuleAction::Deny => {
                    notes.push(format!("{side} is any: {why}"));
                    Ok("any".to_owned())
                }
            };
        };
        match (action, &end.name) {
            (RuleAction::Allow, Some(here)) if end.is_subset => {
                if !end.is_superset {
                    notes.push(format!("{side} {name} stands for less here: {}", end.why));
                }
                Ok(here.clone())
            }
            (RuleAction::Allow, _) => Err(format!("{side} {name:?}: {}", end.why)),
            (RuleAction::Deny, Some(here)) if end.is_superset => Ok(here.clone()),
            (RuleAction::Deny, _) => {
                notes.push(format!("{side} is any instead of {name}: {}", end.why));
                Ok("any".to_owned())
            }
        }
    }
}

/// NeuVector's list of ports: `any`, `tcp/80`, `udp/53-60`, `icmp`; a number alone is of TCP.
fn ports(text: &str) -> Result<Vec<Ports>, String> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("any") {
        return Ok(Vec::new());
    }
    let mut ports = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        let lower = word.to_ascii_lowercase();
        let (protocol, range) = match lower.split_once('/') {
            Some(("tcp", range)) => (Protocol::TCP, range),
            Some(("udp", range)) => (Protocol::UDP, range),
            Some(_) => return Err(format!("the ports {word:?} are not known")),
            None if lower == "icmp" => {
                ports.push(Ports::all(Protocol::ICMP));
                continue;
            }
            None if lower == "any" => {
                ports.extend([Ports::all(Protocol::TCP), Ports::all(Protocol::UDP)]);
                continue;
            }
            None => (Protocol::TCP, lower.as_str()),
        };
        if range == "any" {
            ports.push(Ports::all(protocol));
            continue;
        }
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse().map_err(|_| format!("{word:?} is no port"));
        let (first, last): (u16, u16) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("{word:?} ends before it begins"));
        }
        ports.push(Ports { protocol, first, last });
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

//! `NetworkRule`: who may talk to whom.
//!
//! Rules are looked at in the order of their priority, then of their names; the first that matches a
//! conversation decides.

#![allow(unreachable_pub, reason = "KubeSchema repeats the type inside a function")]

use std::fmt;
use std::str::FromStr;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field;
use super::group::RESERVED_GROUPS;
use crate::name;
use crate::store::{Invalid, Kind};

const MOST_PORTS: usize = 64;
const MOST_APPLICATIONS: usize = 64;
const LONGEST_APPLICATION: usize = 64;
const LONGEST_GROUP: usize = 512;
const LONGEST_COMMENT: usize = 4096;
const LONGEST_PORTS: usize = 32;
/// The pattern of [`Ports`], without how large the numbers are.
const PORTS: &str = "^(icmp|tcp|udp|icmp6|sctp|ip-[0-9]{1,3})(/[0-9]{1,5}(-[0-9]{1,5})?)?$";

/// A rule on who may talk to whom.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "fairlead.dev",
    version = "v1alpha1",
    kind = "NetworkRule",
    doc = "A rule on who may talk to whom. What it denies is reported, and stopped on nodes that enforce policies.",
    category = "fairlead",
    shortname = "netrule",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"From","type":"string","jsonPath":".spec.from"}"#,
    printcolumn = r#"{"name":"To","type":"string","jsonPath":".spec.to"}"#,
    printcolumn = r#"{"name":"Ports","type":"string","jsonPath":".spec.ports"}"#,
    printcolumn = r#"{"name":"Action","type":"string","jsonPath":".spec.action"}"#,
    printcolumn = r#"{"name":"Disabled","type":"boolean","jsonPath":".spec.disabled","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(deny_unknown_fields)]
pub struct NetworkRuleSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = LONGEST_COMMENT))]
    pub comment: String,
    /// The client: a Group's name, a learned group (`namespace/Kind/name` of an owner), or one of
    /// any, external, hosts, ingress, services, unmanaged, workloads.
    #[schemars(length(min = 1, max = LONGEST_GROUP))]
    pub from: String,
    /// The server, named in the same way.
    #[schemars(length(min = 1, max = LONGEST_GROUP))]
    pub to: String,
    pub action: RuleAction,
    /// The server's ports, as `tcp/80`, `udp/8000-8010`, `tcp` or `icmp`; none is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_PORTS), inner(length(min = 1, max = LONGEST_PORTS), regex(pattern = PORTS)))]
    pub ports: Vec<String>,
    /// The applications, as the agents name them (`http`, `redis`); none is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MOST_APPLICATIONS),
        inner(length(min = 1, max = LONGEST_APPLICATION), regex(pattern = field::TEXT))
    )]
    pub applications: Vec<String>,
    /// The order of rules: the lowest priority is looked at first.
    #[serde(default = "middle")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub priority: i32,
    /// A disabled rule is never looked at.
    #[serde(default)]
    pub disabled: bool,
}

fn middle() -> i32 {
    1000
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    Allow,
    Deny,
}

/// The client or the server of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupName<'a> {
    /// One of [`RESERVED_GROUPS`].
    Reserved(&'a str),
    /// The workloads of one owner, given as kind and name.
    Learned {
        namespace: &'a str,
        owner: &'a str,
    },
    Made(&'a str),
}

impl<'a> GroupName<'a> {
    /// Reads a name; the error is a sentence that says why it is none.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        if RESERVED_GROUPS.contains(&text) {
            return Ok(Self::Reserved(text));
        }
        let Some((namespace, owner)) = text.split_once('/') else {
            return match name::subdomain(text) {
                None => Ok(Self::Made(text)),
                Some(problem) => Err(format!("{text:?} is no group: its name {problem}")),
            };
        };
        let right = owner.split_once('/').is_some_and(|(kind, name)| {
            let letters = kind.chars().all(|c| c.is_ascii_alphanumeric());
            !kind.is_empty() && letters && name::subdomain(name).is_none()
        });
        if right && name::dns_label(namespace).is_none() {
            return Ok(Self::Learned { namespace, owner });
        }
        Err(format!("{text:?} is no learned group, which is as shop/Deployment/web"))
    }
}

/// A protocol by its number in the IP header. One without a name here is written `ip-47`: a bare number
/// could be meant as a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    pub const ICMP: Self = Self(1);
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    pub const ICMP6: Self = Self(58);
    pub const SCTP: Self = Self(132);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::ICMP, "icmp"),
        (Self::TCP, "tcp"),
        (Self::UDP, "udp"),
        (Self::ICMP6, "icmp6"),
        (Self::SCTP, "sctp"),
    ];
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(protocol, _)| protocol == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "ip-{}", self.0),
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(_, name)| *name == text);
        let number = || number(text.strip_prefix("ip-")?, 3)?.try_into().ok().map(Self);
        let wrong = || format!("{text:?} is no protocol, which is as tcp, udp, icmp or ip-47");
        named.map(|(protocol, _)| *protocol).or_else(number).ok_or_else(wrong)
    }
}

/// Reads a number of at most `most` digits, without a sign.
fn number(text: &str, most: usize) -> Option<u16> {
    let digits = text.len() <= most && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Ports of a server, of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    pub protocol: Protocol,
    pub first: u16,
    pub last: u16,
}

impl Ports {
    pub fn all(protocol: Protocol) -> Self {
        Self { protocol, first: 0, last: u16::MAX }
    }

    pub fn is_all(&self) -> bool {
        (self.first, self.last) == (0, u16::MAX)
    }

    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol == protocol && (self.first..=self.last).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} are no ports, which are as tcp/80 or udp/8000-8010 or icmp");
        let (protocol, ports) = match text.split_once('/') {
            Some((protocol, ports)) => (protocol, Some(ports)),
            None => (text, None),
        };
        let protocol = protocol.parse().map_err(|_| wrong())?;
        let Some(ports) = ports else { return Ok(Self::all(protocol)) };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let port = |text: &str| number(text, 5).ok_or_else(wrong);
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(format!("{text:?} ends before it begins"));
        }
        Ok(Self { protocol, first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.protocol.fmt(f)?;
        if self.is_all() {
            Ok(())
        } else if self.first == self.last {
            write!(f, "/{}", self.first)
        } else {
            write!(f, "/{}-{}", self.first, self.last)
        }
    }
}

impl Kind for NetworkRule {
    const NAME: &'static str = "NetworkRule";
    const NAMESPACED: bool = false;

    fn check(&self) -> Result<(), Invalid> {
        let NetworkRuleSpec { comment, from, to, ports, applications, priority, .. } = &self.spec;
        let mut problems = Invalid::default();
        if comment.chars().count() > LONGEST_COMMENT {
            problems.add("spec.comment", format!("has more than {LONGEST_COMMENT} characters"));
        }
        for (at, group) in [("spec.from", from), ("spec.to", to)] {
            if let Err(problem) = GroupName::parse(group) {
                problems.add(at, problem);
            } else if group.len() > LONGEST_GROUP {
                problems.add(at, format!("has more than {LONGEST_GROUP} characters"));
            }
        }
        field::at_most(&mut problems, "spec.ports", ports.len(), MOST_PORTS);
        for (i, text) in ports.iter().enumerate() {
            if let Err(problem) = text.parse::<Ports>() {
                problems.add(format!("spec.ports[{i}]"), problem);
            }
        }
        field::at_most(&mut problems, "spec.applications", applications.len(), MOST_APPLICATIONS);
        for (i, text) in applications.iter().enumerate() {
            let at = format!("spec.applications[{i}]");
            field::text(&mut problems, &at, text, 1, LONGEST_APPLICATION);
        }
        if !(0..=1_000_000).contains(priority) {
            problems.add("spec.priority", "must be from 0 to 1000000");
        }
        problems.into_result()
    }
}

#[cfg(test)]
mod tests;

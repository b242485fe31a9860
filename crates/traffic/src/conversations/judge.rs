//! What the table asks of the rules.

use std::fmt;
use std::sync::Arc;

use super::{End, Protocol};

/// What a conversation is about, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service<'a> {
    pub protocol: Protocol,
    pub port: u16,
    pub application: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Neither end is a workload.
    #[default]
    Unjudged,
    /// A rule allows it.
    Allowed,
    /// No rule speaks of it, in a group that is still being learned.
    Discovered,
    /// Against the rules, and reported.
    Violates,
    /// Against the rules of a group to be protected. Nothing enforces that yet: it was let through
    /// and reported.
    ViolatesUnenforced,
    /// A policy stopped it, on the node of one of its ends.
    Stopped,
}

impl Verdict {
    const ALL: [Self; 6] = [
        Self::Unjudged,
        Self::Allowed,
        Self::Discovered,
        Self::Violates,
        Self::ViolatesUnenforced,
        Self::Stopped,
    ];

    pub fn is_violation(self) -> bool {
        matches!(self, Self::Violates | Self::ViolatesUnenforced | Self::Stopped)
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unjudged => "unjudged",
            Self::Allowed => "allowed",
            Self::Discovered => "discovered",
            Self::Violates => "violates",
            Self::ViolatesUnenforced => "violates (stopped where policies are enforced)",
            Self::Stopped => "stopped",
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The rule that decided; none if it was for want of one.
    pub rule: Option<Arc<str>>,
}

/// Rules and groups, compiled. Deciding takes no lock and does no I/O.
pub trait Judge: fmt::Debug + Send + Sync {
    fn judge(&self, client: &End, server: &End, service: Service<'_>) -> Judgement;
}

/// No rules, no groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRules;

impl Judge for NoRules {
    fn judge(&self, _: &End, _: &End, _: Service<'_>) -> Judgement {
        Judgement::default()
    }
}

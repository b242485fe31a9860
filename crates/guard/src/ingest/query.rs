//! What people ask of the conversations: a page of those that fit, and sums of all that do.
//!
//! Contract: the latest come first; a page says how to go on. A conversation that grows while
//! somebody pages is on an earlier page by then: it may be missed or seen twice, the sums may not.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::conversations::{Conversation, End, Endpoint, Moment, Totals, Verdict, View};
use crate::groups::Groups;
use crate::rules::Who;

#[derive(Clone, Debug, Default)]
pub struct Query {
    /// With an end in this group.
    pub group: Option<Who>,
    /// With an end in this namespace.
    pub namespace: Option<Arc<str>>,
    /// With an end outside of the cluster.
    pub external: bool,
    /// Seen then or after.
    pub since: Moment,
    /// Of the server.
    pub port: Option<u16>,
    pub verdict: Option<Asked>,
    pub after: Option<Cursor>,
    pub limit: usize,
}

/// Verdicts as people ask for them: under monitor or protect, what violates violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Unjudged,
    Allowed,
    Discovered,
    Violates,
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    pub lines: Vec<Conversation>,
    /// Where the next page begins; none if this is the last.
    pub next: Option<Cursor>,
    /// All that fit, on whatever page.
    pub matched: usize,
    pub totals: Totals,
}

/// A place between two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    last: Moment,
    client: IpAddr,
    server: IpAddr,
    /// Protocol and port; none is what was folded.
    about: Option<(u8, u16)>,
    /// What else tells two apart: application and endpoints.
    rest: String,
}

impl Query {
    pub fn run(&self, view: &View, groups: &Groups) -> Page {
        let within = |end: &End| {
            self.namespace.as_ref().is_none_or(|wanted| end.endpoint.namespace() == Some(wanted))
        };
        let outside = |end: &End| matches!(*end.endpoint, Endpoint::External { .. });
        let member = |end: &End| self.group.as_ref().is_none_or(|who| who.has(groups, end));
        // The narrowest first: it is asked once for each end.
        let wanted = |end: &End| match (&self.group, &self.namespace) {
            (Some(_), _) => member(end),
            (None, Some(_)) => within(end),
            (None, None) => !self.external || outside(end),
        };
        let fits = |it: &Conversation| {
            let either = |test: &dyn Fn(&End) -> bool| test(&it.client) || test(&it.server);
            either(&within) && (!self.external || either(&outside)) && self.fits_about(it)
        };
        let mut page = Page::default();
        let most = self.limit.max(1);
        for line in view.conversations(wanted, self.since).filter(fits) {
            page.matched += 1;
            page.totals += line.totals;
            if self.after.as_ref().is_some_and(|cursor| compare_to(&line, cursor).is_le()) {
                continue;
            }
            page.lines.push(line);
            // One more than fits tells that there is another page.
            if page.lines.len() >= 2 * most + 1024 {
                page.lines.sort_unstable_by(compare);
                page.lines.truncate(most + 1);
            }
        }
        page.lines.sort_unstable_by(compare);
        if page.lines.len() > most {
            page.lines.truncate(most);
            page.next = page.lines.last().map(Cursor::at);
        }
        page
    }

    fn fits_about(&self, it: &Conversation) -> bool {
        let about = it.about.as_ref();
        self.port.is_none_or(|port| about.is_some_and(|about| about.port == port))
            && self
                .verdict
                .is_none_or(|asked| about.is_some_and(|about| Asked::of(about.verdict) == asked))
    }
}

impl Asked {
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Unjudged => Self::Unjudged,
            Verdict::Allowed => Self::Allowed,
            Verdict::Discovered => Self::Discovered,
            Verdict::Violates | Verdict::ViolatesUnenforced => Self::Violates,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Unjudged => "unjudged",
            Self::Allowed => "allowed",
            Self::Discovered => "discovered",
            Self::Violates => "violates",
        }
    }
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Unjudged, Self::Allowed, Self::Discovered, Self::Violates];
        let wrong = || format!("{text:?} is no verdict: unjudged, allowed, discovered, violates");
        all.into_iter().find(|asked| asked.word() == text).ok_or_else(wrong)
    }
}

impl Cursor {
    fn at(line: &Conversation) -> Self {
        let about = line.about.as_ref().map(|about| (about.protocol.0, about.port));
        let (client, server) = (line.client.address, line.server.address);
        Self { last: line.last, client, server, about, rest: rest(line) }
    }
}

/// As it stands in an address.
impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { last, client, server, about, rest } = self;
        match about {
            Some((protocol, port)) => write!(f, "{},{client},{server},{protocol},{port}", last.0)?,
            None => write!(f, "{},{client},{server},,", last.0)?,
        }
        write!(f, ",{rest}")
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parse = || {
            let mut parts = text.splitn(6, ',');
            let last = Moment(parts.next()?.parse().ok()?);
            let client = parts.next()?.parse().ok()?;
            let server = parts.next()?.parse().ok()?;
            let about = match (parts.next()?, parts.next()?) {
                ("", "") => None,
                (protocol, port) => Some((protocol.parse().ok()?, port.parse().ok()?)),
            };
            Some(Self { last, client, server, about, rest: parts.next()?.to_owned() })
        };
        parse().ok_or("continue is none that an answer gave")
    }
}

type Key = (std::cmp::Reverse<Moment>, IpAddr, IpAddr, Option<(u8, u16)>);

fn key(line: &Conversation) -> Key {
    let about = line.about.as_ref().map(|about| (about.protocol.0, about.port));
    (std::cmp::Reverse(line.last), line.client.address, line.server.address, about)
}

fn rest(line: &Conversation) -> String {
    let application = line.about.as_ref().and_then(|about| about.application.as_deref());
    let (client, server) = (&line.client.endpoint, &line.server.endpoint);
    format!("{} {client} {server}", application.unwrap_or_default())
}

/// The latest first. Words are made only for two that are otherwise the same.
fn compare(a: &Conversation, b: &Conversation) -> Ordering {
    key(a).cmp(&key(b)).then_with(|| rest(a).cmp(&rest(b)))
}

fn compare_to(line: &Conversation, cursor: &Cursor) -> Ordering {
    let Cursor { last, client, server, about, rest: words } = cursor;
    let key_of_cursor = (std::cmp::Reverse(*last), *client, *server, *about);
    key(line).cmp(&key_of_cursor).then_with(|| rest(line).cmp(words))
}

#[cfg(test)]
mod tests;

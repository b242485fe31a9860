//! `Query`: a page of the conversations that fit, and the sums of all that fit.
//!
//! Contract: the latest come first; a page says how to go on. A conversation that grows while
//! somebody pages is on an earlier page by then: it may be missed or seen twice, the sums may not.

use std::cmp::{Ordering, Reverse};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::conversations::{
    ConversationRef, End, Endpoint, Moment, PairRef, Totals, Verdict, View,
};
use crate::groups::Groups;
use crate::rules::GroupMatcher;

/// Which conversations are wanted.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// With an end in this group.
    pub group: Option<GroupMatcher>,
    /// With an end in this namespace.
    pub namespace: Option<Arc<str>>,
    /// With an end outside of the cluster.
    pub external: bool,
    /// Seen then or after.
    pub since: Moment,
    /// With this port of the server.
    pub port: Option<u16>,
    pub verdict: Option<VerdictFilter>,
    pub after: Option<Cursor>,
    pub limit: usize,
}

/// A verdict as users ask for it: it does not tell monitor from protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictFilter {
    Unjudged,
    Allowed,
    Discovered,
    Violates,
}

/// The conversations of one page, read in place.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    pub lines: Vec<ConversationRef<'a>>,
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
    pub fn run<'a>(&self, view: &'a View, groups: &Groups) -> Page<'a> {
        let within = |end: &End| {
            self.namespace.as_ref().is_none_or(|wanted| end.endpoint.namespace() == Some(wanted))
        };
        let outside = |end: &End| matches!(*end.endpoint, Endpoint::External { .. });
        let member = |end: &End| self.group.as_ref().is_none_or(|group| group.has(groups, end));
        // The narrowest first: it is asked once for each end.
        let wanted = |end: &End| match (&self.group, &self.namespace) {
            (Some(_), _) => member(end),
            (None, Some(_)) => within(end),
            (None, None) => !self.external || outside(end),
        };
        let fits = |pair: &PairRef<'_>| {
            let either = |test: &dyn Fn(&End) -> bool| test(pair.client) || test(pair.server);
            either(&within) && (!self.external || either(&outside))
        };
        let takes_all = self.port.is_none() && self.verdict.is_none();
        let (mut matched, mut totals) = (0, Totals::ZERO);
        let most = self.limit.max(1);
        // One more than fits tells that there is another page.
        let mut latest = Latest::new(most + 1);
        for pair in view.pairs(wanted, self.since).filter(fits) {
            // Nothing of it can be on this page, and what it comes to is known.
            if takes_all && pair.first() >= self.since && latest.are_after(pair.last()) {
                matched += pair.len();
                totals += pair.totals();
                continue;
            }
            for line in pair.conversations(self.since).filter(|line| self.fits_service(line)) {
                matched += 1;
                totals += line.totals();
                if self.after.as_ref().is_none_or(|cursor| compare_to(&line, cursor).is_gt()) {
                    latest.offer(line);
                }
            }
        }
        let mut lines = latest.sorted();
        let more = lines.len() > most;
        lines.truncate(most);
        let next = lines.last().filter(|_| more).map(Cursor::at);
        Page { lines, next, matched, totals }
    }

    fn fits_service(&self, line: &ConversationRef<'_>) -> bool {
        let is = |port| line.service().is_some_and(|(_, other)| other == port);
        let was = |wanted| line.verdict().is_some_and(|it| VerdictFilter::of(it) == wanted);
        self.port.is_none_or(is) && self.verdict.is_none_or(was)
    }
}

/// The first `most` of all that are offered, in the order of `compare`.
struct Latest<'a> {
    most: usize,
    lines: Vec<ConversationRef<'a>>,
    /// There are `most` up to here.
    worst: Option<ConversationRef<'a>>,
}

impl<'a> Latest<'a> {
    fn new(most: usize) -> Self {
        Self { most, lines: Vec::new(), worst: None }
    }

    /// What was last seen then has no place here.
    fn are_after(&self, moment: Moment) -> bool {
        self.worst.is_some_and(|worst| worst.last() > moment)
    }

    fn offer(&mut self, line: ConversationRef<'a>) {
        if self.worst.is_some_and(|worst| compare(&line, &worst).is_ge()) {
            return;
        }
        self.lines.push(line);
        // Seldom enough to cost a comparison or two for each.
        if self.lines.len() >= 2 * self.most + 1024 {
            let (_, worst, _) = self.lines.select_nth_unstable_by(self.most - 1, compare);
            self.worst = Some(*worst);
            self.lines.truncate(self.most);
        }
    }

    fn sorted(mut self) -> Vec<ConversationRef<'a>> {
        self.lines.sort_unstable_by(compare);
        self.lines.truncate(self.most);
        self.lines
    }
}

impl VerdictFilter {
    pub fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Unjudged => Self::Unjudged,
            Verdict::Allowed => Self::Allowed,
            Verdict::Discovered => Self::Discovered,
            Verdict::Violates | Verdict::ViolatesUnenforced | Verdict::Stopped => Self::Violates,
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

impl FromStr for VerdictFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Unjudged, Self::Allowed, Self::Discovered, Self::Violates];
        let wrong = || format!("{text:?} is no verdict: unjudged, allowed, discovered, violates");
        all.into_iter().find(|verdict| verdict.word() == text).ok_or_else(wrong)
    }
}

impl Cursor {
    fn at(line: &ConversationRef<'_>) -> Self {
        let (Reverse(last), client, server, about) = key(line);
        Self { last, client, server, about, rest: rest(line) }
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

type Key = (Reverse<Moment>, IpAddr, IpAddr, Option<(u8, u16)>);

fn key(line: &ConversationRef<'_>) -> Key {
    let about = line.service().map(|(protocol, port)| (protocol.0, port));
    (Reverse(line.last()), line.client().address, line.server().address, about)
}

fn rest(line: &ConversationRef<'_>) -> String {
    let application = line.application().map(|name| &**name);
    let (client, server) = (&line.client().endpoint, &line.server().endpoint);
    format!("{} {client} {server}", application.unwrap_or_default())
}

/// The latest first. Words are made only for two that are otherwise the same.
fn compare(a: &ConversationRef<'_>, b: &ConversationRef<'_>) -> Ordering {
    b.last().cmp(&a.last()).then_with(|| key(a).cmp(&key(b))).then_with(|| rest(a).cmp(&rest(b)))
}

fn compare_to(line: &ConversationRef<'_>, cursor: &Cursor) -> Ordering {
    let Cursor { last, client, server, about, rest: words } = cursor;
    let key_of_cursor = (Reverse(*last), *client, *server, *about);
    key(line).cmp(&key_of_cursor).then_with(|| rest(line).cmp(words))
}

#[cfg(test)]
mod tests;

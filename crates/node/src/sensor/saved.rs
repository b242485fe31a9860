//! Saves a sensor as bytes. They have to survive the process: nothing waits for a disk. Of a machine that loses its
//! power it is enough if they are from the last minutes, which is when the kernel writes them back: a controller
//! remembers for longer what it was told since ([`Report`]). Older ones must not be used.

use std::sync::Arc;

use super::controllers::{Controllers, Holders, KnownController};
use super::named::Name;
use super::{ConversationKey, FlowCounters, FlowId, Limits, RunningTotal, Sensor};
use traffic::conversations::codec::{Reader, Torn, Writer};
use traffic::conversations::{Dropped, Moment, Protocol, Report, Totals, told_by_bytes};

/// The last is the version of the format.
const MAGIC: &[u8] = b"FLS3";
/// Knew one controller.
const WITH_ONE_CONTROLLER: &[u8] = b"FLS2";
/// Knew no applications either.
const WITHOUT_APPLICATIONS: &[u8] = b"FLS1";

impl Sensor {
    /// Goes on where the one that was `saved` left; what it knew of connections is of use if it followed the
    /// same kernel's table (`place`). What was saved for another agent, or cannot be read, begins a greater
    /// incarnation.
    pub fn begin(
        agent: Arc<str>,
        place: &str,
        saved: Option<&[u8]>,
        limits: Limits,
        now: Moment,
    ) -> Self {
        let Some(saved) = saved else { return Self::new(agent, now.0, limits, now) };
        match load(saved, &agent, place, limits, now) {
            Ok(Loaded::Whole(sensor)) => *sensor,
            Ok(Loaded::Elsewhere { incarnation }) => {
                Self::new(agent, now.0.max(incarnation.saturating_add(1)), limits, now)
            }
            // A clock that was not set back makes it greater than what cannot be read.
            Err(Torn) => Self::new(agent, now.0, limits, now),
        }
    }

    pub fn save(&self, place: &str) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(64 * (self.totals.len() + self.flows.len())));
        out.0.extend(MAGIC);
        out.number(self.incarnation);
        out.text(&self.agent);
        out.text(place);
        for moment in [self.since, self.now, self.heard] {
            out.number(moment.0);
        }
        out.byte(u8::from(self.settled) | u8::from(self.is_unconfirmed) << 1);
        out.number(self.sequence);
        out.number(self.durable);
        out.byte(u8::from(self.outstanding.is_some()));
        let controllers = self.controllers.known();
        out.count(controllers.len());
        for controller in controllers {
            out.fixed(controller.epoch);
            out.number(controller.joined.0);
        }
        out.count(self.controllers.current().map_or(0, |place| place + 1));
        out.number(self.dropped.totals);
        out.number(self.dropped.violations);
        out.totals(self.lost);
        out.count(self.flows.len());
        for (name, known) in &self.flows {
            save_flow(&mut out, name, *known);
        }
        out.count(self.totals.len());
        for (key, total) in &self.totals {
            save_total(&mut out, key, total);
        }
        out.count(self.past.len());
        for (key, total) in &self.past {
            save_total(&mut out, key, total);
        }
        out.count(self.named.known.len());
        for (key, name) in &self.named.known {
            save_key(&mut out, key);
            out.text(name.application);
            out.number(name.used.0);
        }
        out.0
    }
}

#[derive(Clone, Copy)]
struct Version {
    has_names: bool,
    has_controllers: bool,
}

enum Loaded {
    Whole(Box<Sensor>),
    Elsewhere { incarnation: u64 },
}

fn load(
    bytes: &[u8],
    agent: &Arc<str>,
    place: &str,
    limits: Limits,
    now: Moment,
) -> Result<Loaded, Torn> {
    let mut from = Reader(bytes);
    let version = match from.take(MAGIC.len())? {
        MAGIC => Version { has_names: true, has_controllers: true },
        WITH_ONE_CONTROLLER => Version { has_names: true, has_controllers: false },
        WITHOUT_APPLICATIONS => Version { has_names: false, has_controllers: false },
        _ => return Err(Torn),
    };
    let incarnation = from.number()?;
    if from.text()? != &**agent {
        return Ok(Loaded::Elsewhere { incarnation });
    }
    let is_same_table = from.text()? == place;
    let mut sensor = Sensor::new(Arc::clone(agent), incarnation, limits, now);
    sensor.since = Moment(from.number()?);
    sensor.now = now.max(Moment(from.number()?));
    sensor.heard = Moment(from.number()?);
    let flags = from.byte()?;
    (sensor.settled, sensor.is_unconfirmed) = (flags & 1 != 0, flags & 2 != 0);
    sensor.sequence = from.number()?;
    sensor.durable = from.number()?;
    let outstanding = from.byte()? != 0;
    sensor.controllers = load_controllers(&mut from, version, sensor.heard)?;
    let (totals, violations) = (from.number()?, from.number()?);
    sensor.dropped = Dropped { totals, violations, overruns: 0 };
    sensor.lost = from.totals()?;
    for _ in 0..from.count()? {
        let (name, known) = load_flow(&mut from)?;
        sensor.flows.insert(name, known);
    }
    for _ in 0..from.count()? {
        let (key, total) = load_total(&mut from, version, &sensor.controllers)?;
        sensor.totals.insert(key, total);
    }
    for _ in 0..from.count()? {
        sensor.past.push(load_total(&mut from, version, &sensor.controllers)?);
    }
    let named = if version.has_names { from.count()? } else { 0 };
    for _ in 0..named {
        let (key, name) = (load_key(&mut from)?, told_by_bytes(from.text()?).ok_or(Torn)?);
        let used = Moment(from.number()?);
        sensor.named.known.insert(key, Name { application: name, used });
    }
    if !from.0.is_empty() {
        return Err(Torn);
    }
    if outstanding {
        sensor.lose_outstanding();
    }
    if !is_same_table {
        sensor.follow_new_table(now);
    }
    Ok(Loaded::Whole(Box::new(sensor)))
}

impl Sensor {
    /// What the last report held is not saved. Whether it was counted is not known, so its number is
    /// sent without records, and what it held again in another.
    fn lose_outstanding(&mut self) {
        let (sequence, controller) = (self.sequence, self.controllers.current());
        let past = self.past.iter_mut().map(|(_, total)| total);
        for total in self.totals.values_mut().chain(past) {
            // It may have been emptied for a controller that has what it held.
            total.changed |= total.sent == sequence && !total.kept_by.has(controller);
        }
        let (agent, incarnation) = (Arc::clone(&self.agent), self.incarnation);
        let dropped = self.dropped;
        let report = Report { agent, incarnation, sequence, dropped, ..Report::default() };
        self.outstanding = Some(Arc::new(report));
    }
}

fn load_controllers(
    from: &mut Reader<'_>,
    version: Version,
    heard: Moment,
) -> Result<Controllers, Torn> {
    if !version.has_controllers {
        let has_one = from.byte()? != 0;
        let one = KnownController { epoch: from.fixed()?, joined: heard };
        let known = Some(one).filter(|_| has_one);
        return Controllers::restore(known.into_iter().collect(), known.map(|_| 0)).ok_or(Torn);
    }
    let count = from.count()?;
    let known = (0..count)
        .map(|_| Ok(KnownController { epoch: from.fixed()?, joined: Moment(from.number()?) }))
        .collect::<Result<_, Torn>>()?;
    Controllers::restore(known, from.small::<usize>()?.checked_sub(1)).ok_or(Torn)
}

fn save_flow(out: &mut Writer, id: &FlowId, known: FlowCounters) {
    out.fixed(u64::from(id.number));
    out.number(u64::from(id.zone));
    out.byte(id.protocol.0);
    out.address(id.client);
    out.number(u64::from(id.client_port));
    out.address(id.server);
    out.number(u64::from(id.port));
    // A connection that began in 1970 is none.
    out.number(id.begun.map_or(0, |begun| begun.0));
    out.number(known.bytes);
    out.number(known.packets);
}

fn load_flow(from: &mut Reader<'_>) -> Result<(FlowId, FlowCounters), Torn> {
    let name = FlowId {
        number: u32::try_from(from.fixed()?).map_err(|_| Torn)?,
        zone: from.small()?,
        protocol: Protocol(from.byte()?),
        client: from.address()?,
        client_port: from.small()?,
        server: from.address()?,
        port: from.small()?,
        begun: Some(Moment(from.number()?)).filter(|begun| begun.0 != 0),
    };
    // As of the listing that comes first.
    let known = FlowCounters { bytes: from.number()?, packets: from.number()?, listing: 0 };
    Ok((name, known))
}

fn save_key(out: &mut Writer, key: &ConversationKey) {
    out.address(key.client);
    out.address(key.server);
    out.number(u64::from(key.port));
    out.byte(key.protocol.0);
}

fn load_key(from: &mut Reader<'_>) -> Result<ConversationKey, Torn> {
    let (client, server) = (from.address()?, from.address()?);
    Ok(ConversationKey { client, server, port: from.small()?, protocol: Protocol(from.byte()?) })
}

fn save_total(out: &mut Writer, key: &ConversationKey, total: &RunningTotal) {
    save_key(out, key);
    out.totals(total.totals);
    out.number(total.first.0);
    out.number(total.last.0);
    out.totals(total.told);
    out.number(total.sent);
    out.byte(u8::from(total.changed));
    out.number(u64::from(total.told_to.0));
    out.number(u64::from(total.kept_by.0));
    out.text(total.application.unwrap_or_default());
}

fn load_total(
    from: &mut Reader<'_>,
    version: Version,
    controllers: &Controllers,
) -> Result<(ConversationKey, RunningTotal), Torn> {
    let key = load_key(from)?;
    let total = RunningTotal {
        totals: from.totals()?,
        first: Moment(from.number()?),
        last: Moment(from.number()?),
        told: Totals::ZERO,
        sent: 0,
        changed: false,
        told_to: Holders::default(),
        kept_by: Holders::default(),
        // Until the rules have come.
        alarming: false,
        application: None,
    };
    let (told, sent, changed) = (from.totals()?, from.number()?, from.byte()? != 0);
    let (mut told_to, mut kept_by) = (Holders::default(), Holders::default());
    if version.has_controllers {
        (told_to, kept_by) = (Holders(from.small()?), Holders(from.small()?));
    } else if sent > 0 {
        told_to.add(controllers.current());
    }
    let application = match if version.has_names { from.text()? } else { "" } {
        "" => None,
        // Under another name it would be another total, which was told from zero on.
        name => Some(told_by_bytes(name).ok_or(Torn)?),
    };
    Ok((key, RunningTotal { told, sent, changed, told_to, kept_by, application, ..total }))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;

#[cfg(test)]
mod tests;

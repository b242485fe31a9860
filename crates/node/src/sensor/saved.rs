//! Saves a sensor as bytes. They have to survive the process, not the machine: the kernel's table of
//! connections does not survive the machine either, so nothing waits for a disk.

use std::sync::Arc;

use super::named::Name;
use super::{ConversationKey, FlowCounters, FlowId, Limits, RunningTotal, Sensor};
use traffic::conversations::codec::{Reader, Torn, Writer};
use traffic::conversations::{Dropped, Moment, Protocol, Report, Totals, told_by_bytes};

/// The last is the version of the format. The one before knew no applications.
const MAGIC: &[u8] = b"FLS2";
const WITHOUT_APPLICATIONS: &[u8] = b"FLS1";

impl Sensor {
    /// Goes on where the one that was `saved` left, if it followed the same kernel's table
    /// (`place`); else begins a greater incarnation.
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
        out.byte(u8::from(self.settled));
        out.number(self.sequence);
        out.number(self.durable);
        out.byte(u8::from(self.outstanding.is_some()));
        out.byte(u8::from(self.epoch.is_some()));
        out.fixed(self.epoch.unwrap_or_default());
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
    let has_names = match from.take(MAGIC.len())? {
        MAGIC => true,
        WITHOUT_APPLICATIONS => false,
        _ => return Err(Torn),
    };
    let incarnation = from.number()?;
    if from.text()? != &**agent || from.text()? != place {
        return Ok(Loaded::Elsewhere { incarnation });
    }
    let mut sensor = Sensor::new(Arc::clone(agent), incarnation, limits, now);
    sensor.since = Moment(from.number()?);
    sensor.now = now.max(Moment(from.number()?));
    sensor.heard = Moment(from.number()?);
    sensor.settled = from.byte()? != 0;
    sensor.sequence = from.number()?;
    sensor.durable = from.number()?;
    let outstanding = from.byte()? != 0;
    let has_epoch = from.byte()? != 0;
    sensor.epoch = Some(from.fixed()?).filter(|_| has_epoch);
    let (totals, violations) = (from.number()?, from.number()?);
    sensor.dropped = Dropped { totals, violations, overruns: 0 };
    sensor.lost = from.totals()?;
    for _ in 0..from.count()? {
        let (name, known) = load_flow(&mut from)?;
        sensor.flows.insert(name, known);
    }
    for _ in 0..from.count()? {
        let (key, total) = load_total(&mut from, has_names)?;
        sensor.totals.insert(key, total);
    }
    for _ in 0..from.count()? {
        sensor.past.push(load_total(&mut from, has_names)?);
    }
    let named = if has_names { from.count()? } else { 0 };
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
    Ok(Loaded::Whole(Box::new(sensor)))
}

impl Sensor {
    /// What the last report held is not saved. Whether it was counted is not known, so its number is
    /// sent without records, and what it held again in another.
    fn lose_outstanding(&mut self) {
        let sequence = self.sequence;
        let past = self.past.iter_mut().map(|(_, total)| total);
        for total in self.totals.values_mut().chain(past) {
            total.changed |= total.sent == sequence;
        }
        let (agent, incarnation) = (Arc::clone(&self.agent), self.incarnation);
        let dropped = self.dropped;
        let report = Report { agent, incarnation, sequence, dropped, ..Report::default() };
        self.outstanding = Some(Arc::new(report));
    }
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
    out.text(total.application.unwrap_or_default());
}

fn load_total(
    from: &mut Reader<'_>,
    has_name: bool,
) -> Result<(ConversationKey, RunningTotal), Torn> {
    let key = load_key(from)?;
    let total = RunningTotal {
        totals: from.totals()?,
        first: Moment(from.number()?),
        last: Moment(from.number()?),
        told: Totals::ZERO,
        sent: 0,
        changed: false,
        // Until the rules have come.
        alarming: false,
        application: None,
    };
    let (told, sent, changed) = (from.totals()?, from.number()?, from.byte()? != 0);
    let application = match if has_name { from.text()? } else { "" } {
        "" => None,
        // Under another name it would be another total, which was told from zero on.
        name => Some(told_by_bytes(name).ok_or(Torn)?),
    };
    Ok((key, RunningTotal { told, sent, changed, application, ..total }))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;

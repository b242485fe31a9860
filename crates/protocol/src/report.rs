//! Converts reports to messages and back.
//!
//! Contract: any bytes are a report within the bounds or [`Malformed`]. What they make us allocate is a
//! few times their length at most, because their fields are counted before they are decoded.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use prost::Message;
use traffic::agents::Limits;
use traffic::conversations::{
    DeniedRecord, Dropped, LocalWorkload, Moment, Protocol, Record, Report, ResolvedName, Totals,
};

use crate::{Malformed, proto};

/// The most of each in a report, beside its records.
const ADDRESSES: usize = 16_384;
const APPLICATIONS: usize = 1024;
const LONGEST_APPLICATION: usize = 64;
const WORKLOADS: usize = 4096;
/// As many as a sensor keeps.
const DENIED: usize = 1024;
/// Addresses of names. What an agent has more than that is in its next report.
pub const NAMES: usize = 2048;
/// The bytes of a policy's kind and name and of its rule's.
const LONGEST_RULE: usize = 768;
/// The bytes of a workload's name, and of its namespace's.
const LONGEST_NAME: usize = 253;
/// The fields that come once, with room for those of later versions.
const OTHERS: usize = 64;

/// Decodes the report of `agent`, if it is within `limits`.
pub fn decode_report(agent: &Arc<str>, bytes: Bytes, limits: Limits) -> Result<Report, Malformed> {
    if bytes.len() > limits.batch {
        return Err(Malformed("it has too many bytes"));
    }
    let most = limits.records + APPLICATIONS + WORKLOADS + DENIED + NAMES + OTHERS;
    if fields(&bytes).is_none_or(|fields| fields > most) {
        return Err(Malformed("it is cut off, or has too many fields"));
    }
    let batch = proto::Batch::decode(bytes).map_err(|_| Malformed("it cannot be decoded"))?;
    let within = batch.records.len() <= limits.records
        && batch.applications.len() <= APPLICATIONS
        && batch.workloads.len() <= WORKLOADS
        && batch.denied.len() <= DENIED
        && batch.names.len() <= NAMES;
    if !within {
        return Err(Malformed(
            "it has too many records, applications, workloads, denials or names",
        ));
    }
    if batch.incarnation == 0 || batch.sequence == 0 {
        return Err(Malformed("incarnations and sequences begin at 1"));
    }
    let addresses = Addresses::of(&batch.addresses4, &batch.addresses6)?;
    let applications = batch
        .applications
        .iter()
        .map(|name| {
            let fits = (1..=LONGEST_APPLICATION).contains(&name.len());
            fits.then(|| Arc::from(name.as_str()))
        })
        .collect::<Option<Vec<Arc<str>>>>()
        .ok_or(Malformed("an application has 1 to 64 bytes"))?;
    let records = batch.records.iter().map(|r| record(r, &addresses, &applications));
    let records = records.collect::<Result<_, _>>()?;
    let workloads = batch
        .with_workloads
        .then(|| batch.workloads.iter().map(|w| workload(w, &addresses)).collect())
        .transpose()?;
    let denied = batch.denied.iter().map(|it| denied(it, &addresses));
    let denied = denied.collect::<Result<_, _>>()?;
    let names = batch
        .with_names
        .then(|| batch.names.iter().map(|it| resolved(it, &addresses)).collect())
        .transpose()?;
    let dropped = batch.dropped.unwrap_or_default();
    let proto::Dropped { totals, violations, overruns } = dropped;
    Ok(Report {
        agent: Arc::clone(agent),
        incarnation: batch.incarnation,
        sequence: batch.sequence,
        records,
        denied,
        dropped: Dropped { totals, violations, overruns },
        workloads,
        names,
    })
}

/// Encodes a report.
pub fn encode_report(report: &Report) -> proto::Batch {
    let mut index = Index::default();
    for record in &report.records {
        index.add(record.client);
        index.add(record.server);
    }
    for denied in &report.denied {
        index.add(denied.client);
        index.add(denied.server);
    }
    for workload in report.workloads.iter().flatten() {
        workload.addresses.iter().for_each(|address| index.add(*address));
    }
    for ResolvedName { address, .. } in report.names.iter().flatten() {
        index.add(*address);
    }
    let mut applications = Vec::new();
    let mut names: HashMap<&str, u32> = HashMap::new();
    let records = report.records.iter().map(|record| {
        let application = record.application.as_deref().map_or(0, |name| {
            *names.entry(name).or_insert_with(|| {
                applications.push(name.to_owned());
                applications.len() as u32
            })
        });
        let Record { client, server, port, protocol, totals, first, last, .. } = record;
        proto::Record {
            client: index.place(*client),
            server: index.place(*server),
            port: u32::from(*port),
            protocol: u32::from(protocol.0),
            application,
            bytes: totals.bytes,
            packets: totals.packets,
            sessions: totals.sessions,
            first: first.0,
            lasted: last.0.saturating_sub(first.0),
        }
    });
    let records = records.collect();
    let workloads = report.workloads.iter().flatten().map(|workload| proto::Workload {
        namespace: workload.namespace.to_string(),
        name: workload.name.to_string(),
        addresses: workload.addresses.iter().map(|address| index.place(*address)).collect(),
        since: workload.from.0,
    });
    let workloads = workloads.collect();
    let denied = report.denied.iter().map(|denied| proto::Denied {
        client: index.place(denied.client),
        server: index.place(denied.server),
        port: u32::from(denied.port),
        protocol: u32::from(denied.protocol.0),
        rule: denied.rule.to_string(),
        packets: denied.packets,
        first: denied.first.0,
        lasted: denied.last.0.saturating_sub(denied.first.0),
    });
    let denied = denied.collect();
    let resolved = report.names.iter().flatten().map(|it| proto::ResolvedName {
        name: it.name.to_string(),
        address: index.place(it.address),
    });
    let resolved = resolved.collect();
    let Dropped { totals, violations, overruns } = report.dropped;
    proto::Batch {
        incarnation: report.incarnation,
        sequence: report.sequence,
        addresses4: index.four,
        addresses6: index.six,
        applications,
        records,
        dropped: Some(proto::Dropped { totals, violations, overruns }),
        with_workloads: report.workloads.is_some(),
        workloads,
        denied,
        with_names: report.names.is_some(),
        names: resolved,
    }
}

fn record(
    record: &proto::Record,
    addresses: &Addresses<'_>,
    applications: &[Arc<str>],
) -> Result<Record, Malformed> {
    let proto::Record { client, server, port, protocol, application, .. } = *record;
    let application = match application {
        0 => None,
        place => {
            let name = applications.get(place as usize - 1);
            Some(name.cloned().ok_or(Malformed("a record has an application that is not there"))?)
        }
    };
    let first = Moment(record.first);
    Ok(Record {
        client: addresses.get(client)?,
        server: addresses.get(server)?,
        port: u16::try_from(port).map_err(|_| Malformed("a port has 16 bits"))?,
        protocol: Protocol(u8::try_from(protocol).map_err(|_| Malformed("a protocol has 8 bits"))?),
        application,
        totals: Totals { bytes: record.bytes, packets: record.packets, sessions: record.sessions },
        first,
        last: Moment(record.first.saturating_add(record.lasted)),
    })
}

fn denied(denied: &proto::Denied, addresses: &Addresses<'_>) -> Result<DeniedRecord, Malformed> {
    if denied.rule.len() > LONGEST_RULE {
        return Err(Malformed("a rule's name has 768 bytes at most"));
    }
    let number = |protocol| u8::try_from(protocol).map_err(|_| Malformed("a protocol has 8 bits"));
    Ok(DeniedRecord {
        client: addresses.get(denied.client)?,
        server: addresses.get(denied.server)?,
        port: u16::try_from(denied.port).map_err(|_| Malformed("a port has 16 bits"))?,
        protocol: Protocol(number(denied.protocol)?),
        rule: denied.rule.as_str().into(),
        packets: denied.packets,
        first: Moment(denied.first),
        last: Moment(denied.first.saturating_add(denied.lasted)),
    })
}

fn resolved(
    resolved: &proto::ResolvedName,
    addresses: &Addresses<'_>,
) -> Result<ResolvedName, Malformed> {
    let proto::ResolvedName { name, address } = resolved;
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(Malformed("a name has 1 to 253 bytes"));
    }
    Ok(ResolvedName { name: name.as_str().into(), address: addresses.get(*address)? })
}

fn workload(
    workload: &proto::Workload,
    addresses: &Addresses<'_>,
) -> Result<LocalWorkload, Malformed> {
    let proto::Workload { namespace, name, addresses: places, since } = workload;
    if namespace.len() > LONGEST_NAME || name.is_empty() || name.len() > LONGEST_NAME {
        return Err(Malformed("a workload's name has 1 to 253 bytes"));
    }
    Ok(LocalWorkload {
        namespace: namespace.as_str().into(),
        name: name.as_str().into(),
        addresses: places.iter().map(|place| addresses.get(*place)).collect::<Result<_, _>>()?,
        from: Moment(*since),
    })
}

/// The addresses of a message, by place.
struct Addresses<'a> {
    four: &'a [[u8; 4]],
    six: &'a [[u8; 16]],
}

impl<'a> Addresses<'a> {
    fn of(four: &'a [u8], six: &'a [u8]) -> Result<Self, Malformed> {
        let ((four, rest4), (six, rest6)) = (four.as_chunks(), six.as_chunks());
        if !rest4.is_empty() || !rest6.is_empty() {
            return Err(Malformed("an address has 4 or 16 bytes"));
        }
        if four.len() + six.len() > ADDRESSES {
            return Err(Malformed("it has too many addresses"));
        }
        Ok(Self { four, six })
    }

    fn get(&self, place: u32) -> Result<IpAddr, Malformed> {
        let place = place as usize;
        let four = self.four.get(place).map(|bytes| Ipv4Addr::from(*bytes).into());
        let six =
            || Some(Ipv6Addr::from(*self.six.get(place.checked_sub(self.four.len())?)?).into());
        four.or_else(six).ok_or(Malformed("a record has an address that is not there"))
    }
}

/// Collects addresses, each once.
#[derive(Default)]
struct Index {
    four: Vec<u8>,
    six: Vec<u8>,
    places: HashMap<IpAddr, u32>,
}

impl Index {
    fn add(&mut self, address: IpAddr) {
        let (four, six) = (&mut self.four, &mut self.six);
        self.places.entry(address).or_insert_with(|| match address {
            IpAddr::V4(address) => {
                four.extend(address.octets());
                (four.len() / 4 - 1) as u32
            }
            IpAddr::V6(address) => {
                six.extend(address.octets());
                (six.len() / 16 - 1) as u32
            }
        });
    }

    /// The place of an address, once all are added: IPv6 addresses come after those of IPv4.
    fn place(&self, address: IpAddr) -> u32 {
        let place = self.places.get(&address).copied().unwrap_or_default();
        if address.is_ipv6() { place + (self.four.len() / 4) as u32 } else { place }
    }
}

/// Counts the top-level fields of a message; none if it is cut off. Nested fields are not counted: none
/// of our messages nests anything that grows much when it is decoded.
fn fields(mut bytes: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !bytes.is_empty() {
        count += 1;
        let skip = match varint(&mut bytes)? & 7 {
            0 => {
                varint(&mut bytes)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        if skip > bytes.len() {
            return None;
        }
        bytes.advance(skip);
    }
    Some(count)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests;

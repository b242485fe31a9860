//! TCP in packets of up to 64 kB, as the kernel hands them to a TUN interface and takes them from it: cut into
//! the packets that go through the tunnel, and joined again behind it. Pure.
//!
//! ```text
//! kernel ──► one packet of 64 kB ──► Cut ──► segments with sums, one WireGuard packet each
//! kernel ◄── one packet of 64 kB ◄── Joined ◄── packets of one connection that follow each other
//! ```
//!
//! Contract:
//! - What is joined, and then cut by anybody, is what it was before, byte for byte.
//! - Only what is whole is joined: a packet whose sums are wrong is passed on as it is, for its receiver to
//!   see so. So is whatever is no plain data of TCP: other flags, fragments, options of IP.
//! - The order of a connection's packets stays. Packets of different connections may pass each other.

use std::ops::DerefMut;

use kernel::tun::{MOST_PARTS, Offload, Segments};

const IPV4: usize = 20;
const IPV6: usize = 40;
/// The smallest header of TCP.
const TCP: usize = 20;
const PROTOCOL_TCP: u8 = 6;
/// Where TCP has its sum.
const TCP_SUM: usize = 16;
const FIN: u8 = 0x01;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CONGESTION_REDUCED: u8 = 0x80;
/// The longest packet of IP.
const LONGEST: usize = 65_535;

/// Adds the bytes up as sixteen-bit numbers in this machine's order; the sum is the same in any.
fn sum(bytes: &[u8], start: u64) -> u64 {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let sum =
        numbers.iter().fold(start, |sum, number| sum + u64::from(u32::from_ne_bytes(*number)));
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

fn is_ipv4(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4
}

fn addresses(packet: &[u8]) -> &[u8] {
    if is_ipv4(packet) { &packet[12..IPV4] } else { &packet[8..IPV6] }
}

/// The sum of what TCP's sum has of the header of IP. TCP has this `length`, which is no more than IP can say.
fn pseudo_header(packet: &[u8], length: usize) -> u64 {
    let [high, low] = (length as u16).to_be_bytes();
    sum(addresses(packet), sum(&[0, PROTOCOL_TCP, high, low], 0))
}

fn put(packet: &mut [u8], at: usize, number: u16) {
    packet[at..at + 2].copy_from_slice(&number.to_be_bytes());
}

fn get(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn sequence(packet: &[u8], ip: usize) -> u32 {
    let at = ip + 4;
    u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
}

/// Says how long a packet is in its header of IP, and makes that header's sum.
fn set_length(packet: &mut [u8], ip: usize, length: usize) {
    if is_ipv4(packet) {
        put(packet, 2, length as u16);
        packet[10..12].fill(0);
        let sum = !folded(sum(&packet[..ip], 0));
        packet[10..12].copy_from_slice(&sum.to_ne_bytes());
    } else {
        put(packet, 4, (length - IPV6) as u16);
    }
}

/// Makes the sum that the kernel left to be made. Returns false if the packet has no room for it.
pub(crate) fn finish(offload: &Offload, packet: &mut [u8]) -> bool {
    let Some((start, offset)) = offload.checksum else { return true };
    let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
    if at + 2 > packet.len() || start > at {
        return false;
    }
    let mut sum = !folded(sum(&packet[start..], 0));
    if sum == 0 {
        // UDP has another meaning for zero, and to all others both are the same.
        sum = 0xffff;
    }
    packet[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
    true
}

/// A packet of the kernel that is cut into segments.
#[derive(Debug)]
pub(crate) struct Cut<'p> {
    packet: &'p [u8],
    /// The lengths of the header of IP, of all headers, and of the payload of a segment.
    ip: usize,
    headers: usize,
    size: usize,
    done: usize,
}

impl<'p> Cut<'p> {
    /// None if it is nothing that was asked for.
    pub(crate) fn new(kind: Segments, size: u16, packet: &'p [u8]) -> Option<Self> {
        let (version, ip) = match kind {
            Segments::Tcp4 => (4, IPV4),
            Segments::Tcp6 => (6, IPV6),
            Segments::Other(_) => return None,
        };
        let first = *packet.first()?;
        // The kernel's own number may be that of the whole first segment.
        let ip = if version == 4 { usize::from(first & 0xf) * 4 } else { ip };
        let tcp = usize::from(packet.get(ip + 12)? >> 4) * 4;
        let headers = ip + tcp;
        let is_whole = first >> 4 == version && ip >= IPV4 && tcp >= TCP && headers < packet.len();
        let size = usize::from(size);
        (is_whole && size > 0).then_some(Self { packet, ip, headers, size, done: 0 })
    }

    /// Writes the next segment and returns its length; none at the end, or if there is no room.
    pub(crate) fn next_into(&mut self, room: &mut [u8]) -> Option<usize> {
        let Self { packet, ip, headers, size, done } = *self;
        let payload = &packet[headers..];
        let from = done * size;
        let rest = payload.get(from..).filter(|rest| !rest.is_empty())?;
        let part = &rest[..size.min(rest.len())];
        let length = headers + part.len();
        let segment = room.get_mut(..length)?;
        segment[..headers].copy_from_slice(&packet[..headers]);
        segment[headers..].copy_from_slice(part);
        let (is_first, is_last) = (done == 0, part.len() == rest.len());
        self.done += 1;
        if is_ipv4(segment) {
            let number = get(segment, 4).wrapping_add(done as u16);
            put(segment, 4, number);
        }
        set_length(segment, ip, length);
        let number = sequence(segment, ip).wrapping_add(from as u32);
        segment[ip + 4..ip + 8].copy_from_slice(&number.to_be_bytes());
        let mut dropped = 0;
        if !is_last {
            dropped |= FIN | PUSH;
        }
        if !is_first {
            dropped |= CONGESTION_REDUCED;
        }
        segment[ip + 13] &= !dropped;
        segment[ip + TCP_SUM..ip + TCP_SUM + 2].fill(0);
        let sum = !folded(sum(&segment[ip..], pseudo_header(segment, length - ip)));
        segment[ip + TCP_SUM..ip + TCP_SUM + 2].copy_from_slice(&sum.to_ne_bytes());
        Some(length)
    }
}

/// Where a packet of TCP with plain data has what.
#[derive(Clone, Copy, Debug)]
struct Plain {
    ip: usize,
    headers: usize,
}

impl Plain {
    /// None if the packet is not to be joined with any.
    fn of(packet: &[u8]) -> Option<Self> {
        let ip = match packet.first()? >> 4 {
            4 if packet.len() >= IPV4 + TCP => {
                // No options, no fragment and none to be made, and a header that is whole.
                let is_plain = packet[0] == 0x45
                    && get(packet, 6) == 0x4000
                    && packet[9] == PROTOCOL_TCP
                    && usize::from(get(packet, 2)) == packet.len()
                    && folded(sum(&packet[..IPV4], 0)) == 0xffff;
                is_plain.then_some(IPV4)?
            }
            6 if packet.len() >= IPV6 + TCP => {
                let is_plain =
                    packet[6] == PROTOCOL_TCP && usize::from(get(packet, 4)) + IPV6 == packet.len();
                is_plain.then_some(IPV6)?
            }
            _ => return None,
        };
        let headers = ip + usize::from(packet[ip + 12] >> 4) * 4;
        let is_data = packet[ip + 13] & !PUSH == ACK
            && headers >= ip + TCP
            && headers < packet.len()
            && packet.len() <= LONGEST;
        let is_whole =
            || folded(sum(&packet[ip..], pseudo_header(packet, packet.len() - ip))) == 0xffff;
        (is_data && is_whole()).then_some(Self { ip, headers })
    }

    /// Whether two packets have the same headers but for lengths, numbers, sums and where data is pushed.
    fn is_same(self, one: &[u8], other: &[u8], that: Self) -> bool {
        let Self { ip, headers } = self;
        let same = |from: usize, to: usize| one[from..to] == other[from..to];
        let ip_is_same = || match ip {
            IPV4 => same(0, 2) && same(6, 10) && same(12, 20),
            _ => same(0, 4) && same(6, 40),
        };
        ip == that.ip
            && headers == that.headers
            && same(ip, ip + 4)
            && same(ip + 8, ip + 13)
            && same(ip + 14, ip + 16)
            && same(ip + 18, headers)
            && ip_is_same()
    }
}

/// Packets that go to the kernel as one.
#[derive(Debug)]
pub(crate) struct Joined<P> {
    packets: Vec<P>,
    /// None if none can be added.
    open: Option<Plain>,
    /// The payload of the first, which all but the last have.
    size: usize,
    /// The length of all, and the number that the next one's data begins at.
    length: usize,
    next: u32,
}

impl<P: DerefMut<Target = [u8]>> Joined<P> {
    fn new(packet: P, plain: Option<Plain>) -> Self {
        let length = packet.len();
        let (size, next) = plain.map_or((0, 0), |Plain { ip, headers }| {
            let size = length - headers;
            (size, sequence(&packet, ip).wrapping_add(size as u32))
        });
        let open = plain.filter(|plain| packet[plain.ip + 13] & PUSH == 0);
        Self { packets: vec![packet], open, size, length, next }
    }

    /// Whether a packet is of the same connection.
    fn concerns(&self, packet: &[u8], plain: Plain) -> bool {
        let Some(open) = self.open else { return false };
        let ports = |packet: &[u8]| [get(packet, open.ip), get(packet, open.ip + 2)];
        let first = &self.packets[0];
        open.ip == plain.ip
            && addresses(first) == addresses(packet)
            && ports(first) == ports(packet)
    }

    /// Takes no more if a packet goes from and to the same addresses: it must not be passed by what comes after.
    fn end_before(&mut self, packet: &[u8]) {
        let is_ip = |packet: &[u8]| packet.len() >= if is_ipv4(packet) { IPV4 } else { IPV6 };
        if self.open.is_some() && is_ip(packet) && addresses(&self.packets[0]) == addresses(packet)
        {
            self.open = None;
        }
    }

    /// Takes a packet that follows, or gives it back.
    fn add(&mut self, packet: P, plain: Plain) -> Result<(), P> {
        let payload = packet.len() - plain.headers;
        let fits = self.open.is_some_and(|open| {
            open.is_same(&self.packets[0], &packet, plain)
                && sequence(&packet, plain.ip) == self.next
                && payload <= self.size
                && self.length + payload <= LONGEST
                && self.packets.len() < MOST_PARTS
        });
        if !fits {
            return Err(packet);
        }
        self.length += payload;
        self.next = self.next.wrapping_add(payload as u32);
        let push = packet[plain.ip + 13] & PUSH;
        self.packets[0][plain.ip + 13] |= push;
        if push != 0 || payload < self.size {
            self.open = None;
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Makes the packet that the kernel is given, and gives it and what is left to do with it to `write`.
    pub(crate) fn write<T>(&mut self, write: impl FnOnce(&Offload, &[&[u8]]) -> T) -> T {
        let [first, rest @ ..] = &mut self.packets[..] else {
            return write(&Offload::default(), &[]);
        };
        if rest.is_empty() {
            return write(&Offload::default(), &[&*first]);
        }
        // All have headers of one length: those of the first.
        let ip = if is_ipv4(first) { IPV4 } else { IPV6 };
        let headers = ip + usize::from(first[ip + 12] >> 4) * 4;
        set_length(first, ip, self.length);
        let pseudo = folded(pseudo_header(first, self.length - ip));
        first[ip + TCP_SUM..ip + TCP_SUM + 2].copy_from_slice(&pseudo.to_ne_bytes());
        let kind = if ip == IPV4 { Segments::Tcp4 } else { Segments::Tcp6 };
        let offload = Offload {
            segments: Some((kind, self.size as u16)),
            checksum: Some((ip as u16, TCP_SUM as u16)),
            headers: headers as u16,
        };
        let mut parts = [&[][..]; MOST_PARTS];
        let used = &mut parts[..=rest.len()];
        used[0] = &*first;
        for (part, packet) in used[1..].iter_mut().zip(rest.iter()) {
            *part = &packet[headers..];
        }
        write(&offload, used)
    }
}

/// Joins packets that follow each other.
pub(crate) fn join<P: DerefMut<Target = [u8]>>(
    packets: impl IntoIterator<Item = P>,
    joined: &mut Vec<Joined<P>>,
) {
    for packet in packets {
        let Some(plain) = Plain::of(&packet) else {
            if !packet.is_empty() {
                joined.iter_mut().for_each(|it| it.end_before(&packet));
            }
            joined.push(Joined::new(packet, None));
            continue;
        };
        // What is of the same connection and does not follow ends what came before.
        let packet = match joined.iter_mut().rev().find(|it| it.concerns(&packet, plain)) {
            Some(before) => match before.add(packet, plain) {
                Ok(()) => continue,
                Err(packet) => {
                    before.open = None;
                    packet
                }
            },
            None => packet,
        };
        joined.push(Joined::new(packet, Some(plain)));
    }
}

#[cfg(test)]
mod tests;

//! `PackedPeer`: a peer in as few bytes as it takes. Networks, addresses and keys are kept in their own
//! bytes where they are written as everybody writes them, and as text where they are not: what comes out
//! is what went in, letter by letter.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ipnet::IpNet;
use kube::ResourceExt;

use crate::peer::{DnsOrIp, Peer, PeerEndpoint, PeerSpec, label};

/// The labels that plans read. Others are not kept.
const LABELS: [&str; 5] =
    [label::MESH, label::NAMESPACE, label::CLUSTER, label::KILO_MESH, label::KILO_CLUSTER];
/// What stands before a network: the length of its prefix, of IPv6 with this beside it.
const IPV6: u8 = 64;
/// What stands before a text where a network, an address or a key could be.
const TEXT: u8 = 255;
/// What stands before a key in its own bytes.
const KEY: u8 = 0;
const KEY_LENGTH: usize = 32;
/// What stands before an endpoint.
const NO_ENDPOINT: u8 = 0;
const IP: u8 = 1;
const NAME: u8 = 2;

/// What is kept of a peer beside its name: its version, the values of [`LABELS`] and its spec.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PackedPeer(Arc<[u8]>);

impl PackedPeer {
    pub(super) fn pack(peer: &Peer) -> Self {
        let PeerSpec {
            allowed_ips,
            endpoint,
            persistent_keepalive,
            public_key,
            next_public_key,
            within,
            routing,
            external_networks,
        } = &peer.spec;
        let mut packed = Packing::default();
        packed.optional(peer.metadata.resource_version.as_deref());
        // Those of kilo-clustermesh come last, and are rare.
        let labels = LABELS.map(|key| peer.labels().get(key));
        let count = labels.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        packed.number(count as u64);
        labels[..count].iter().for_each(|value| packed.optional(value.map(String::as_str)));
        packed.networks(allowed_ips);
        packed.endpoint(endpoint.as_ref());
        packed.number((*persistent_keepalive).into());
        packed.key(public_key);
        packed.number(next_public_key.is_some().into());
        next_public_key.iter().for_each(|key| packed.key(key));
        packed.networks(external_networks);
        // Few have either.
        if within.is_some() || !routing.is_always() {
            // Texts and numbers can always be written.
            packed.0.extend(serde_json::to_vec(&(within, routing)).unwrap_or_default());
        }
        Self(packed.0.into())
    }

    pub(super) fn unpack(&self, name: &str) -> Peer {
        let mut peer = Packed(&self.0).peer().unwrap_or_default();
        peer.metadata.name = Some(name.to_owned());
        peer
    }
}

#[derive(Default)]
struct Packing(Vec<u8>);

impl Packing {
    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.number(text.is_some().into());
        text.into_iter().for_each(|text| self.text(text));
    }

    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(it) => self.0.extend(it.octets()),
            IpAddr::V6(it) => self.0.extend(it.octets()),
        }
    }

    fn networks(&mut self, networks: &[String]) {
        self.number(networks.len() as u64);
        for text in networks {
            match text.parse::<IpNet>().ok().filter(|network| network.to_string() == *text) {
                Some(network) => {
                    let family = if network.addr().is_ipv6() { IPV6 } else { 0 };
                    self.0.push(family + network.prefix_len());
                    self.address(network.addr());
                }
                None => {
                    self.0.push(TEXT);
                    self.text(text);
                }
            }
        }
    }

    fn endpoint(&mut self, endpoint: Option<&PeerEndpoint>) {
        let Some(PeerEndpoint { dns_or_ip: DnsOrIp { dns, ip }, port }) = endpoint else {
            return self.0.push(NO_ENDPOINT);
        };
        let written = |ip: &String| ip.parse::<IpAddr>().ok().filter(|it| it.to_string() == *ip);
        match (dns, ip.as_ref().and_then(written)) {
            (None, Some(address)) => {
                self.0.push(IP);
                self.0.push(u8::from(address.is_ipv6()));
                self.address(address);
            }
            _ => {
                self.0.push(NAME);
                self.optional(dns.as_deref());
                self.optional(ip.as_deref());
            }
        }
        self.number((*port).into());
    }

    fn key(&mut self, key: &str) {
        // Only what is written in one way is read: no other text becomes the same bytes.
        match BASE64_STANDARD.decode(key).ok().filter(|bytes| bytes.len() == KEY_LENGTH) {
            Some(bytes) => {
                self.0.push(KEY);
                self.0.extend(bytes);
            }
            None => {
                self.0.push(TEXT);
                self.text(key);
            }
        }
    }
}

/// The rest of what was packed.
struct Packed<'p>(&'p [u8]);

impl<'p> Packed<'p> {
    fn peer(mut self) -> Option<Peer> {
        let mut peer = Peer::default();
        peer.metadata.resource_version = self.optional()?;
        let count = self.number()? as usize;
        let mut labels = Vec::with_capacity(count);
        for key in LABELS.into_iter().take(count) {
            labels.extend(self.optional()?.map(|value| (key.to_owned(), value)));
        }
        peer.metadata.labels = Some(labels.into_iter().collect());
        let spec = &mut peer.spec;
        spec.allowed_ips = self.networks()?;
        spec.endpoint = self.endpoint()?;
        spec.persistent_keepalive = self.number()? as u32;
        spec.public_key = self.key()?;
        if self.number()? > 0 {
            spec.next_public_key = Some(self.key()?);
        }
        spec.external_networks = self.networks()?;
        if !self.0.is_empty() {
            (spec.within, spec.routing) = serde_json::from_slice(self.0).ok()?;
        }
        Some(peer)
    }

    fn take(&mut self, count: usize) -> Option<&'p [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()? as usize;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }

    /// None if the bytes end; Some(None) where there is no text.
    #[expect(
        clippy::option_option,
        reason = "the outer one is an end of bytes, which does not come"
    )]
    fn optional(&mut self) -> Option<Option<String>> {
        Some(if self.number()? > 0 { Some(self.text()?) } else { None })
    }

    fn address(&mut self, is_ipv6: bool) -> Option<IpAddr> {
        Some(match is_ipv6 {
            false => self.array::<4>()?.into(),
            true => self.array::<16>()?.into(),
        })
    }

    fn networks(&mut self) -> Option<Vec<String>> {
        let count = self.number()?;
        let network = |rest: &mut Self| match rest.byte()? {
            TEXT => rest.text(),
            length => {
                let is_ipv6 = length >= IPV6;
                let length = if is_ipv6 { length - IPV6 } else { length };
                Some(IpNet::new(rest.address(is_ipv6)?, length).ok()?.to_string())
            }
        };
        (0..count).map(|_| network(self)).collect()
    }

    #[expect(
        clippy::option_option,
        reason = "the outer one is an end of bytes, which does not come"
    )]
    fn endpoint(&mut self) -> Option<Option<PeerEndpoint>> {
        let (dns, ip) = match self.byte()? {
            IP => {
                let is_ipv6 = self.byte()? > 0;
                (None, Some(self.address(is_ipv6)?.to_string()))
            }
            NAME => (self.optional()?, self.optional()?),
            _ => return Some(None),
        };
        Some(Some(PeerEndpoint { dns_or_ip: DnsOrIp { dns, ip }, port: self.number()? as u32 }))
    }

    fn key(&mut self) -> Option<String> {
        match self.byte()? {
            KEY => Some(BASE64_STANDARD.encode(self.take(KEY_LENGTH)?)),
            _ => self.text(),
        }
    }
}

#[cfg(test)]
mod tests;

//! Which addresses an imported cluster may not have: those that mean another thing to this process than to who
//! imports it. Without this, whoever may import a cluster reaches what only this machine reaches: its loopback,
//! and its cloud's metadata service.
//!
//! Contract: addresses are checked when a cluster is imported, for the sentence, and at every connection,
//! after names were looked up, for safety: a name that changes what it leads to changes nothing. Where a proxy
//! connects, it is the proxy that looks up names; addresses are checked all the same.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use stallproof::Deadline;

use crate::credentials::{Endpoint, Redacted, bare};
use crate::dial::Resolver;

/// What is refused of an endpoint's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddressGuard {
    /// Set for what somebody sent to us, unless that is allowed.
    pub(crate) refuse_local: bool,
    /// The proxy is of this process's environment, and not of a kubeconfig.
    pub(crate) proxy_is_ours: bool,
}

impl AddressGuard {
    /// Whether the connection to the proxy is checked.
    pub(crate) fn checks_proxy(self) -> bool {
        self.refuse_local && !self.proxy_is_ours
    }
}

/// What an address means to this machine alone; none for one that means the same to everybody.
pub(crate) fn local_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => local_v4(v4),
        IpAddr::V6(v6) => local_v6(v6),
    }
}

fn local_v4(v4: Ipv4Addr) -> Option<&'static str> {
    // The metadata services of clouds that are not link-local.
    const METADATA: [Ipv4Addr; 2] =
        [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
    match v4 {
        _ if v4.is_loopback() => Some("a loopback address"),
        _ if v4.octets()[0] == 0 => Some("an address of this machine"),
        _ if v4.is_link_local() => Some("a link-local address"),
        _ if v4.is_multicast() || v4.is_broadcast() => Some("an address of many machines"),
        _ if METADATA.contains(&v4) => Some("the address of a metadata service"),
        _ => None,
    }
}

fn local_v6(v6: Ipv6Addr) -> Option<&'static str> {
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    if v6.is_loopback() {
        return Some("a loopback address");
    }
    if v6.is_unspecified() {
        return Some("an address of this machine");
    }
    if v6.is_unicast_link_local() {
        return Some("a link-local address");
    }
    if v6.is_multicast() {
        return Some("an address of many machines");
    }
    if v6 == METADATA {
        return Some("the address of a metadata service");
    }
    embedded_v4(v6).and_then(local_v4)
}

/// The IPv4 address that an IPv6 address leads to: mapped, compatible, by NAT64 or by 6to4.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = v6.octets();
    let at = |n: usize| Ipv4Addr::new(octets[n], octets[n + 1], octets[n + 2], octets[n + 3]);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(at(12)),
        [0x2002, ..] => Some(at(2)),
        _ => None,
    }
}

/// The address that a URI names by number, if it does.
pub(crate) fn literal(uri: &Uri) -> Option<IpAddr> {
    uri.host()?.trim_matches(['[', ']']).parse().ok()
}

/// Checks where an endpoint leads, as far as it is known now.
pub(crate) async fn check(
    endpoint: &Endpoint,
    resolver: &Resolver,
    deadline: Deadline,
) -> Result<(), String> {
    let proxy = endpoint.proxy.as_ref().filter(|_| !endpoint.guard.proxy_is_ours);
    let proxy = proxy.map(|Redacted(proxy)| ("proxy", proxy));
    for (what, uri) in [Some(("server", &endpoint.server)), proxy].into_iter().flatten() {
        let host = uri.host().unwrap_or_default();
        let found = match literal(uri) {
            Some(address) => vec![address],
            None => resolver.addresses(host, deadline).await,
        };
        if let Some((address, kind)) = first_local(found) {
            return Err(format!(
                "its {what} {} is at {kind} ({address}), which an import may not name, because it means \
                 another machine to Fairlead than to you; where that is meant, set fleet.local-imports to \
                 allow, or name the kubeconfig with fleet.kubeconfig",
                bare(uri)
            ));
        }
    }
    Ok(())
}

/// The first of these addresses that is local, and what it is.
pub(crate) fn first_local(
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Option<(IpAddr, &'static str)> {
    addresses.into_iter().find_map(|address| Some((address, local_kind(address)?)))
}

#[cfg(test)]
mod tests;

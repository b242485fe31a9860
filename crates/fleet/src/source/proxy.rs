//! The proxy of the environment, by the rules of Go's programs and so of kubectl: `HTTPS_PROXY` for
//! `https://`, `HTTP_PROXY` for `http://`, except for what `NO_PROXY` lists, and never for this
//! machine itself. A context's own `proxy-url` goes before it.

use std::net::IpAddr;

use http::Uri;

/// What the environment says about reaching `server`.
pub(super) fn of_environment(server: &Uri) -> Option<String> {
    let read = |name: &str| {
        let lower = name.to_lowercase();
        let found = std::env::var(name).or_else(|_| std::env::var(lower));
        found.ok().filter(|value| !value.is_empty())
    };
    let proxy = if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" };
    choose(server, read(proxy)?, &read("NO_PROXY").unwrap_or_default())
}

fn choose(server: &Uri, proxy: String, no_proxy: &str) -> Option<String> {
    let host = server.host()?.trim_matches(['[', ']']).to_lowercase();
    let port =
        server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let address: Option<IpAddr> = host.parse().ok();
    let is_here = host == "localhost" || address.is_some_and(|address| address.is_loopback());
    let listed = || no_proxy.split(',').any(|rule| matches(rule.trim(), &host, address, port));
    if is_here || listed() {
        return None;
    }
    // As curl and Go have it: an address without a scheme is an HTTP proxy.
    Some(if proxy.contains("://") { proxy } else { format!("http://{proxy}") })
}

fn matches(rule: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if rule.is_empty() || rule == "*" {
        return rule == "*";
    }
    let rule = rule.to_lowercase();
    if let Some((network, bits)) = rule.split_once('/') {
        let network: Option<IpAddr> = network.parse().ok();
        let bits: Option<u32> = bits.parse().ok();
        return matches!((network, bits, address), (Some(n), Some(b), Some(a)) if within(a, n, b));
    }
    let (name, only) = match rule.rsplit_once(':') {
        // Colons in plenty are an address of version 6.
        Some((name, digits)) if !name.contains(':') => (name, digits.parse::<u16>().ok()),
        _ => (rule.as_str(), None),
    };
    if only.is_some_and(|only| only != port) {
        return false;
    }
    if let Ok(listed) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Some(listed) == address;
    }
    let name = name.strip_prefix('*').unwrap_or(name);
    match name.strip_prefix('.') {
        Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
    }
}

fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) if bits <= 32 => {
            let shift = 32 - bits;
            a.to_bits().checked_shr(shift) == n.to_bits().checked_shr(shift)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) if bits <= 128 => {
            let shift = 128 - bits;
            a.to_bits().checked_shr(shift) == n.to_bits().checked_shr(shift)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

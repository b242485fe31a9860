//! The proxy of the environment, by the rules of Go and so of kubectl: `HTTPS_PROXY` for `https://`,
//! `HTTP_PROXY` for `http://`, except for the hosts of `NO_PROXY`, and never for this machine itself. A
//! context's own `proxy-url` takes precedence.

use std::net::IpAddr;

use http::Uri;
use ipnet::IpNet;

/// Returns the proxy that the environment has for `server`.
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
    // As in curl and Go, an address without a scheme is an HTTP proxy.
    Some(if proxy.contains("://") { proxy } else { format!("http://{proxy}") })
}

fn matches(rule: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if rule.is_empty() || rule == "*" {
        return rule == "*";
    }
    let rule = rule.to_lowercase();
    if rule.contains('/') {
        let network: Option<IpNet> = rule.parse().ok();
        return network.zip(address).is_some_and(|(network, address)| network.contains(&address));
    }
    let (name, only) = match rule.rsplit_once(':') {
        // A name with more colons is an IPv6 address.
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

#[cfg(test)]
mod tests;

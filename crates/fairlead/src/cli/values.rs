//! How the values people write are read: times, sizes, numbers, paths.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use objects::kinds::Subnet;

pub(crate) fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| PathBuf::from(text))
}

pub(crate) fn show_path(path: Option<&Path>) -> String {
    path.map_or_else(|| "-".to_owned(), |p| p.display().to_string())
}

/// Paths separated by colons, as in `PATH`; `none` is none.
pub(crate) fn paths(text: &str) -> Option<Vec<PathBuf>> {
    if text == "none" {
        return Some(Vec::new());
    }
    let paths: Option<Vec<_>> = text.split(':').filter(|p| !p.is_empty()).map(path).collect();
    paths.filter(|paths| !paths.is_empty())
}

pub(crate) fn show_paths(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "none".to_owned();
    }
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(":")
}

/// A DNS label: what Kubernetes calls a namespace.
pub(crate) fn label(text: &str) -> Option<String> {
    let fits = (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    fits.then(|| text.to_owned())
}

/// A DNS name: what Kubernetes calls a node.
pub(crate) fn node(text: &str) -> Option<String> {
    (text.len() <= 253 && text.split('.').all(|part| label(part).is_some()))
        .then(|| text.to_owned())
}

/// What the machine calls itself, as a kubelet would name its node.
pub(crate) fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    node(&name).unwrap_or_else(|| "localhost".to_owned())
}

/// Separated by commas; `auto` is none.
pub(crate) fn addresses(text: &str) -> Option<Vec<IpAddr>> {
    if text == "auto" {
        return Some(Vec::new());
    }
    text.split(',').map(|address| address.trim().parse().ok()).collect()
}

pub(crate) fn show_addresses(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "auto".to_owned();
    }
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Separated by commas, those of a dual stack joined by `+`; `none` is none.
pub(crate) fn subnets(text: &str) -> Option<Vec<Subnet>> {
    if text == "none" {
        return Some(Vec::new());
    }
    text.split(',').map(|subnet_text| subnet(subnet_text.trim())).collect()
}

fn subnet(text: &str) -> Option<Subnet> {
    let mut subnet = Subnet::default();
    for part in text.split('+') {
        let given = if let Ok(net) = part.parse::<Ipv4Net>() {
            subnet.ipv4.replace(net.to_string())
        } else {
            subnet.ipv6.replace(part.parse::<Ipv6Net>().ok()?.to_string())
        };
        if given.is_some() {
            return None;
        }
    }
    Some(subnet)
}

pub(crate) fn show_subnets(subnets: &[Subnet]) -> String {
    if subnets.is_empty() {
        return "none".to_owned();
    }
    let show = |s: &Subnet| {
        [s.ipv4.clone(), s.ipv6.clone()].into_iter().flatten().collect::<Vec<_>>().join("+")
    };
    subnets.iter().map(show).collect::<Vec<_>>().join(",")
}

/// A routing table that is not one of the kernel's own; `none` is `None`.
#[allow(clippy::option_option, reason = "outer: does it parse; inner: is there one")]
pub(crate) fn table(text: &str) -> Option<Option<u32>> {
    if text == "none" {
        return Some(None);
    }
    text.parse().ok().filter(|table| !matches!(table, 0 | 253..=255)).map(Some)
}

/// Words separated by commas, each as `read` takes it; `none` is none.
pub(crate) fn words(text: &str, read: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    if text == "none" {
        return Some(Vec::new());
    }
    let words: Option<Vec<_>> =
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(read).collect();
    words.filter(|words| !words.is_empty())
}

pub(crate) fn show_words(words: &[String]) -> String {
    if words.is_empty() { "none".to_owned() } else { words.join(",") }
}

/// `https://host:port`, with nothing behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpsUrl {
    pub(crate) base: String,
    pub(crate) host: String,
}

pub(crate) fn https_url(text: &str) -> Option<HttpsUrl> {
    let base = text.trim_end_matches('/');
    let url: http::Uri = base.parse().ok()?;
    let plain = url.scheme_str() == Some("https") && matches!(url.path(), "" | "/");
    let place = url.authority().filter(|place| !place.as_str().contains('@'))?;
    let host = place.host().trim_start_matches('[').trim_end_matches(']');
    (plain && url.query().is_none() && !host.is_empty())
        .then(|| HttpsUrl { base: base.to_owned(), host: host.to_owned() })
}

/// Where kubectl looks.
pub(crate) fn default_kubeconfig() -> Vec<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        return std::env::split_paths(&list).filter(|p| !p.as_os_str().is_empty()).collect();
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute());
    home.map(|home| home.join(".kube/config")).into_iter().collect()
}

pub(crate) fn number(text: &str, least: usize, most: usize) -> Option<usize> {
    text.parse().ok().filter(|n| (least..=most).contains(n))
}

/// `500ms`, `10s`, `2m`, `1h`. A bare number is refused: nobody knows its unit.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let count: u64 = count.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    count.checked_mul(millis).map(Duration::from_millis)
}

/// A duration between two others, both included.
pub(crate) fn time(text: &str, least: &str, most: &str) -> Option<Duration> {
    let (least, most) = (duration(least)?, duration(most)?);
    duration(text).filter(|d| (least..=most).contains(d))
}

pub(crate) fn show_time(time: Duration) -> String {
    let millis = time.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

/// `512MiB`, `2GiB`, Kubernetes' `512Mi` and `2Gi`, or plain bytes; `auto` is `None`.
#[allow(clippy::option_option, reason = "outer: does it parse; inner: is there a limit")]
pub(crate) fn size_or_auto(text: &str, least: u64) -> Option<Option<u64>> {
    if text == "auto" {
        return Some(None);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let shift = match unit.trim_end_matches('B') {
        "" => 0,
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        _ => return None,
    };
    let bytes = count.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    (bytes >= least).then_some(Some(bytes))
}

pub(crate) fn log_level(text: &str) -> Option<String> {
    crate::daemon::logging::parse(text).ok().map(|_| text.to_owned())
}

/// Root keeps state where a service does; a person, where that person's programs do.
pub(crate) fn default_data_dir() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute());
    let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    match (is_root(), xdg, home) {
        (true, ..) => PathBuf::from("/var/lib/fairlead"),
        (false, Some(xdg), _) => xdg.join("fairlead"),
        (false, None, Some(home)) => home.join(".local/share/fairlead"),
        (false, None, None) => PathBuf::from("/var/lib/fairlead"),
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// The known name that a mistyped one most likely meant.
pub(crate) fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(text, name), name))
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;

//! Times and names as flags and settings write them, and defaults that depend on the machine.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

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

/// What Linux takes for the name of an interface, and less.
pub(crate) fn interface(text: &str) -> Option<String> {
    let fits = (1..=15).contains(&text.len());
    let letters = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    (fits && letters).then(|| text.to_owned())
}

/// What the machine calls itself, as a kubelet would name its node.
pub(crate) fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    node(&name).unwrap_or_else(|| "localhost".to_owned())
}

/// Where kubectl looks.
pub(crate) fn default_kubeconfig() -> Vec<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        return std::env::split_paths(&list).filter(|p| !p.as_os_str().is_empty()).collect();
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|h| h.is_absolute());
    home.map(|home| home.join(".kube/config")).into_iter().collect()
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

/// How far back a list goes: `10m`, `24h`. A time that lies before all time is a slip of the hand.
pub(crate) fn since(text: &str) -> Result<Duration, String> {
    time(text, "1s", "87600h").ok_or_else(|| "expected a time such as 10m, 24h".to_owned())
}

/// A moment in the past: `20h` ago, RFC 3339, or a date and time of this machine's time zone.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let local = || {
        let at = text.parse::<jiff::civil::DateTime>().ok()?;
        Some(at.to_zoned(jiff::tz::TimeZone::system()).ok()?.timestamp())
    };
    let ago = time(text, "0s", "87600h").map(|ago| Timestamp::now() - ago);
    let moment = ago.or_else(|| text.parse().ok()).or_else(local);
    let expected = "expected a moment such as 20h (ago), 2026-01-31T15:00, 2026-01-31T15:00:00Z";
    moment.ok_or_else(|| expected.to_owned())
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

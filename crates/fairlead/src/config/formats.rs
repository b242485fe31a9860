//! How values are written: a [`Format`] reads one type from text, shows it as text, and says what it
//! expects. What it shows it also reads.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use fleet::resources::usage_history::PrometheusService;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use objects::kinds::Subnet;

use crate::values;

type Read<T> = Box<dyn Fn(&str) -> Option<T> + Send + Sync>;
type Show<T> = Box<dyn Fn(&T) -> String + Send + Sync>;

pub(super) struct Format<T> {
    /// Completes "expected …".
    pub(super) expected: String,
    pub(super) read: Read<T>,
    pub(super) show: Show<T>,
}

impl<T: 'static> Format<T> {
    pub(super) fn new(
        expected: impl Into<String>,
        read: impl Fn(&str) -> Option<T> + Send + Sync + 'static,
        show: impl Fn(&T) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { expected: expected.into(), read: Box::new(read), show: Box::new(show) }
    }

    /// Also accepts `word`, which stands for no value.
    pub(super) fn or(self, word: &'static str) -> Format<Option<T>> {
        let Self { expected, read, show } = self;
        Format::new(
            format!("{word}, or {expected}"),
            move |text| if text == word { Some(None) } else { read(text).map(Some) },
            move |value| value.as_ref().map_or_else(|| word.to_owned(), &show),
        )
    }

    /// Accepts only the values that `check` accepts; `expected` describes them.
    pub(super) fn only(self, expected: &str, check: fn(&T) -> bool) -> Self {
        let Self { read, show, .. } = self;
        Self::new(expected, move |text| read(text).filter(check), show)
    }
}

/// One of several words. `true` and `false` stand for `on` and `off`, which some YAML writers replace.
pub(super) fn one_of<T, const N: usize>(choices: [(&'static str, T); N]) -> Format<T>
where
    T: Copy + PartialEq + Send + Sync + 'static,
{
    let words = choices.map(|(word, _)| word);
    let expected = match words.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.concat(),
    };
    Format::new(
        expected,
        move |text| {
            let written = |word| match text {
                "true" if word == "on" => true,
                "false" if word == "off" => true,
                _ => text.eq_ignore_ascii_case(word),
            };
            choices.iter().find(|(word, _)| written(word)).map(|(_, value)| *value)
        },
        move |value| {
            choices
                .iter()
                .find(|(_, known)| known == value)
                .map_or("-", |(word, _)| word)
                .to_owned()
        },
    )
}

pub(super) fn bool() -> Format<bool> {
    one_of([("true", true), ("false", false)])
}

pub(super) fn on_or_off() -> Format<bool> {
    one_of([("on", true), ("off", false)])
}

/// A type that is read and shown as its own traits do it.
pub(super) fn plain<T: FromStr + Display + 'static>(expected: impl Into<String>) -> Format<T> {
    Format::new(expected, |text| text.parse().ok(), ToString::to_string)
}

pub(super) fn number<T>(range: RangeInclusive<T>) -> Format<T>
where
    T: FromStr + Display + PartialOrd + Send + Sync + 'static,
{
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    let read = move |text: &str| text.parse().ok().filter(|number| range.contains(number));
    Format::new(expected, read, ToString::to_string)
}

/// A time between two others, both included.
pub(super) fn time(least: &'static str, most: &'static str) -> Format<Duration> {
    Format::new(
        format!("a time from {least} to {most} (units are ms, s, m and h)"),
        |text| values::time(text, least, most),
        |time| values::show_time(*time),
    )
}

/// A number of bytes: `512MiB`, `2GiB`, Kubernetes' `512Mi` and `2Gi`, or no unit.
pub(super) fn size(least: u64) -> Format<u64> {
    let expected = format!("a size of at least {}MiB, such as 512MiB, 2GiB", least >> 20);
    Format::new(expected, move |text| bytes(text).filter(|size| *size >= least), u64::to_string)
}

fn bytes(text: &str) -> Option<u64> {
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
    count.parse::<u64>().ok()?.checked_mul(1 << shift)
}

pub(super) fn directory() -> Format<PathBuf> {
    Format::new("a directory", path, show_path)
}

pub(super) fn file() -> Format<PathBuf> {
    Format::new("a file", path, show_path)
}

/// A file that need not be set.
pub(super) fn optional_file() -> Format<Option<PathBuf>> {
    Format { expected: file().expected, ..file().or("-") }
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains('\0')).then(|| PathBuf::from(text))
}

fn show_path(path: &impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

/// Several values with `separator` between them; `none` is the word for an empty list.
fn list<T: 'static>(
    none: &'static str,
    expected: &str,
    separator: char,
    read: fn(&str) -> Option<T>,
    show: fn(&T) -> String,
) -> Format<Vec<T>> {
    Format::new(
        format!("{none}, or {expected}"),
        move |text| {
            if text == none {
                return Some(Vec::new());
            }
            let items = text.split(separator).map(str::trim).filter(|item| !item.is_empty());
            items.map(read).collect::<Option<Vec<_>>>().filter(|items| !items.is_empty())
        },
        move |items| match items.as_slice() {
            [] => none.to_owned(),
            items => items.iter().map(show).collect::<Vec<_>>().join(&separator.to_string()),
        },
    )
}

/// Words separated by commas, each as `read` takes it.
pub(super) fn words(expected: &str, read: fn(&str) -> Option<String>) -> Format<Vec<String>> {
    list("none", expected, ',', read, String::clone)
}

/// Files separated by colons, as in `PATH`.
pub(super) fn files() -> Format<Vec<PathBuf>> {
    list("none", "files separated by colons", ':', path, show_path)
}

pub(super) fn addresses() -> Format<Vec<IpAddr>> {
    let read = |text: &str| text.parse().ok();
    list("auto", "addresses separated by commas", ',', read, IpAddr::to_string)
}

/// Networks separated by commas.
pub(super) fn networks() -> Format<Vec<IpNet>> {
    let read = |text: &str| text.parse().ok().filter(|net: &IpNet| net.trunc() == *net);
    let expected = "networks such as 10.244.0.0/16, without bits after the prefix";
    list("none", expected, ',', read, ToString::to_string)
}

/// Subnets separated by commas, those of a dual stack joined by `+`.
pub(super) fn subnets() -> Format<Vec<Subnet>> {
    let expected = "subnets such as 10.64.0.0/16 or 10.64.0.0/16+fd64::/112";
    list("none", expected, ',', subnet, show_subnet)
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

fn show_subnet(subnet: &Subnet) -> String {
    let families = [subnet.ipv4.as_deref(), subnet.ipv6.as_deref()];
    families.into_iter().flatten().collect::<Vec<_>>().join("+")
}

/// Text that `read` accepts.
pub(super) fn text(expected: &str, read: fn(&str) -> Option<String>) -> Format<String> {
    Format::new(expected, read, String::clone)
}

pub(super) fn prometheus() -> Format<PrometheusService> {
    Format::new(
        "a Service as NAMESPACE/SERVICE:PORT, such as monitoring/prometheus:9090",
        |text| text.parse().ok(),
        ToString::to_string,
    )
}

pub(super) fn namespace() -> Format<String> {
    text("the name of a namespace: at most 63 of a-z, 0-9 and -", values::label)
}

pub(super) fn log_level() -> Format<String> {
    let read = |text: &str| crate::daemon::logging::parse(text).ok().map(|_| text.to_owned());
    text("a level (error, warn, info, debug, trace) or directives such as info,fleet=debug", read)
}

/// The name of a cluster of the fleet.
pub(super) fn cluster(text: &str) -> Option<String> {
    (!text.is_empty() && !text.contains('/')).then(|| text.to_owned())
}

/// A name or an address, with nothing beside it.
/// The name of an image: the server that has it says whether it is one.
pub(super) fn image(text: &str) -> Option<String> {
    let is_one = !text.is_empty() && text.chars().all(|it| it.is_ascii_graphic());
    is_one.then(|| text.to_owned())
}

pub(super) fn host(text: &str) -> Option<String> {
    let is_address = text.parse::<IpAddr>().is_ok();
    (is_address || values::node(text).is_some()).then(|| text.to_owned())
}

pub(super) fn host_and_port(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && port != 0).then(|| text.to_owned())
}

/// A user as API servers know it; NAMESPACE/NAME stands for a service account.
/// A registry: a host, perhaps with a port, perhaps with `http://` before it.
pub(super) fn registry(text: &str) -> Option<String> {
    let place = text.strip_prefix("http://").unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    (!place.is_empty() && place.chars().all(plain)).then(|| text.to_owned())
}

pub(super) fn user(text: &str) -> Option<String> {
    let Some((namespace, name)) = text.split_once('/') else { return Some(text.to_owned()) };
    let (namespace, name) = (values::label(namespace)?, values::label(name)?);
    Some(format!("system:serviceaccount:{namespace}:{name}"))
}

#[cfg(test)]
mod tests;

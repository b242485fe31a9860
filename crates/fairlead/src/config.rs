//! Configuration: flags, then environment (`FAIRLEAD_*`), then one YAML file, then defaults.
//!
//! Every setting is one row of its section's `SETTINGS`: its flag, its environment variable, its YAML
//! key, its help and its check all come from there. A configuration is read as a whole: every problem
//! is found and told at once, and nothing starts until there is none.

mod admin;
mod admission;
mod agents;
mod api;
mod fleet;
mod guard;
mod listen;
mod log;
mod net;
mod sense;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command};

use crate::cli::values;

pub(crate) use admin::Admin;
pub(crate) use admission::{Admission, Service, Webhook};
pub(crate) use agents::{Agents, ServiceAccount};
pub(crate) use api::Api;
pub(crate) use fleet::Fleet;
pub(crate) use guard::Guard;
pub(crate) use listen::ListenAddress;
pub(crate) use log::{Log, LogFormat};
pub(crate) use net::Net;
pub(crate) use sense::Sense;
pub(crate) use tls::TlsSource;

/// Where the file is looked for when nobody names one.
const DEFAULT_FILE: &str = "/etc/fairlead/fairlead.yaml";
/// A configuration is a page, not a database; what is larger is the wrong file.
const LARGEST_FILE: u64 = 1 << 20;

/// What the daemons run with. Made only by [`Sources::resolve`], so it is valid.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) workers: usize,
    pub(crate) grace: Duration,
    /// How long listeners go on answering after a signal, while `/readyz` says no.
    pub(crate) shutdown_delay: Duration,
    pub(crate) slow: Duration,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) store: Store,
    pub(crate) fleet: Fleet,
    pub(crate) net: Net,
    pub(crate) sense: Sense,
    pub(crate) api: Api,
    pub(crate) admission: Admission,
    pub(crate) agents: Agents,
    pub(crate) guard: Guard,
    pub(crate) admin: Admin,
    pub(crate) log: Log,
}

/// Where objects live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In the data directory.
    Embedded,
    /// In the API server of this pod, or of the current kubeconfig context.
    Kubernetes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: values::default_data_dir(),
            workers: std::thread::available_parallelism().map_or(2, usize::from),
            grace: Duration::from_secs(10),
            shutdown_delay: Duration::ZERO,
            slow: Duration::from_secs(10),
            memory_limit: None,
            store: Store::Embedded,
            fleet: Fleet::default(),
            net: Net::default(),
            sense: Sense::default(),
            api: Api::default(),
            admission: Admission::default(),
            agents: Agents::default(),
            guard: Guard::default(),
            admin: Admin::default(),
            log: Log::default(),
        }
    }
}

/// One setting: the single place that knows its names, its meaning and its bounds.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    metavar: &'static str,
    help: &'static str,
    /// Completes "expected …".
    allowed: &'static str,
    take: fn(&mut Config, &str) -> Option<()>,
    show: fn(&Config) -> String,
}

/// All of them, in the order in which they are told.
const SECTIONS: [&[Setting]; 10] = [
    GENERAL,
    fleet::SETTINGS,
    net::SETTINGS,
    sense::SETTINGS,
    api::SETTINGS,
    admission::SETTINGS,
    agents::SETTINGS,
    guard::SETTINGS,
    admin::SETTINGS,
    log::SETTINGS,
];

fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.into_iter().flatten()
}

/// Of the process itself.
const GENERAL: &[Setting] = &[
    Setting {
        key: "data",
        metavar: "DIR",
        help: "Where state and evidence are kept; one process at a time",
        allowed: "a directory",
        take: |c, v| values::path(v).map(|v| c.data = v),
        show: |c| c.data.display().to_string(),
    },
    Setting {
        key: "workers",
        metavar: "N",
        help: "Threads of the main runtime",
        allowed: "a whole number from 1 to 1024",
        take: |c, v| values::number(v, 1, 1024).map(|v| c.workers = v),
        show: |c| c.workers.to_string(),
    },
    Setting {
        key: "grace",
        metavar: "TIME",
        help: "How long work may take to finish at shutdown",
        allowed: "a time from 0s to 10m, such as 500ms, 10s, 2m",
        take: |c, v| values::time(v, "0s", "10m").map(|v| c.grace = v),
        show: |c| values::show_time(c.grace),
    },
    Setting {
        key: "shutdown.delay",
        metavar: "TIME",
        help: "How long to go on answering after a signal, not ready and no longer leading, until load balancers have noticed; before grace",
        allowed: "a time from 0s to 10m, such as 500ms, 10s, 2m",
        take: |c, v| values::time(v, "0s", "10m").map(|v| c.shutdown_delay = v),
        show: |c| values::show_time(c.shutdown_delay),
    },
    Setting {
        key: "slow",
        metavar: "TIME",
        help: "Work older than this is late: it is named in the log and marked in /debug/inflight",
        allowed: "a time from 100ms to 1h, such as 500ms, 10s, 2m",
        take: |c, v| values::time(v, "100ms", "1h").map(|v| c.slow = v),
        show: |c| values::show_time(c.slow),
    },
    Setting {
        key: "memory.limit",
        metavar: "SIZE",
        help: "Memory to stay within; `auto` takes the cgroup's limit, or the machine's memory",
        allowed: "auto, or a size of at least 64MiB, such as 512MiB, 2GiB",
        take: |c, v| values::size_or_auto(v, 64 << 20).map(|v| c.memory_limit = v),
        show: |c| c.memory_limit.map_or_else(|| "auto".to_owned(), |b| b.to_string()),
    },
    Setting {
        key: "store",
        metavar: "ENGINE",
        help: "Where objects live: in the data directory, or in the API server of this pod (else of the current kubeconfig context)",
        allowed: "embedded or kubernetes",
        take: |c, v| {
            c.store = match v {
                "embedded" => Store::Embedded,
                "kubernetes" => Store::Kubernetes,
                _ => return None,
            };
            Some(())
        },
        show: |c| {
            match c.store {
                Store::Embedded => "embedded",
                Store::Kubernetes => "kubernetes",
            }
            .to_owned()
        },
    },
];

impl Setting {
    fn flag(&self) -> String {
        self.key.replace('.', "-")
    }

    fn env(&self) -> String {
        format!("FAIRLEAD_{}", self.key.replace(['.', '-'], "_").to_uppercase())
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Env(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Env(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// One thing wrong with a configuration, in a sentence for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Problem {
    pub(crate) key: String,
    pub(crate) origin: String,
    pub(crate) message: String,
}

impl Problem {
    fn new(key: &str, origin: &Origin, message: String) -> Self {
        Self { key: key.to_owned(), origin: origin.to_string(), message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.message)
        } else {
            write!(f, "{} (from {}): {}", self.key, self.origin, self.message)
        }
    }
}

/// A valid configuration and where each value came from.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) config: Config,
    origins: BTreeMap<&'static str, Origin>,
}

/// One row of `fairlead config show`.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) value: String,
    pub(crate) from: String,
}

impl Resolved {
    /// Another default for a setting that nobody set. For who reads the configuration
    /// ([`Sources::resolve_with`]): the whole is checked after it.
    pub(crate) fn unless_set(&mut self, key: &str, change: impl FnOnce(&mut Config)) {
        if !self.origins.contains_key(key) {
            change(&mut self.config);
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        settings()
            .map(|s| Row {
                key: s.key,
                value: (s.show)(&self.config),
                from: self.origins.get(s.key).unwrap_or(&Origin::Default).to_string(),
            })
            .collect()
    }
}

/// The flags of every verb that runs with a configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFlags {
    file: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
}

impl Args for ConfigFlags {
    fn augment_args(cmd: Command) -> Command {
        let file = Arg::new("config").long("config").value_name("FILE").help(format!(
            "YAML file with settings [env: FAIRLEAD_CONFIG] [default: {DEFAULT_FILE}, if it is there]"
        ));
        settings().fold(cmd.arg(file), |cmd, s| {
            let shown = (s.show)(&Config::default());
            let default = if shown == "-" { String::new() } else { format!(" [default: {shown}]") };
            cmd.arg(Arg::new(s.key).long(s.flag()).value_name(s.metavar).help(format!(
                "{} [env: {}]{default}",
                s.help,
                s.env()
            )))
        })
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        Self::augment_args(cmd)
    }
}

impl clap::FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let text = |id: &str| matches.get_one::<String>(id).cloned();
        Ok(Self {
            file: text("config").map(PathBuf::from),
            given: settings().filter_map(|s| Some((s.key, text(s.key)?))).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Everything a configuration is read from. The environment is passed in so that tests can make one.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) flags: &'a ConfigFlags,
    pub(crate) env: BTreeMap<String, String>,
}

impl<'a> Sources<'a> {
    pub(crate) fn of_this_process(flags: &'a ConfigFlags) -> Self {
        // A name or value that is not text cannot be one of ours.
        let env = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .filter(|(k, _)| k.starts_with("FAIRLEAD_"))
            .collect();
        Self { flags, env }
    }

    /// Reads all sources and checks the whole. `Err` holds every problem there is.
    pub(crate) fn resolve(&self) -> Result<Resolved, Vec<Problem>> {
        self.resolve_with(|_| ())
    }

    /// The same for a verb whose defaults differ: `imply` sets them ([`Resolved::unless_set`]) before
    /// the whole is checked.
    pub(crate) fn resolve_with(
        &self,
        imply: impl FnOnce(&mut Resolved),
    ) -> Result<Resolved, Vec<Problem>> {
        let mut draft = Draft::default();
        // Lowest precedence first: each layer overwrites the one before.
        draft.take_file(self.file());
        for s in settings() {
            if let Some(value) = self.env.get(&s.env()) {
                draft.take(s.key, value, Origin::Env(s.env()));
            }
        }
        for (key, value) in &self.flags.given {
            draft.take(key, value, Origin::Flag(key.replace('.', "-")));
        }
        imply(&mut draft.resolved);
        draft.check_whole();
        if draft.problems.is_empty() { Ok(draft.resolved) } else { Err(draft.problems) }
    }

    /// The file to read, and whether somebody asked for it (then it must be there).
    fn file(&self) -> (PathBuf, bool) {
        let named = self.flags.file.clone().or_else(|| {
            self.env.get("FAIRLEAD_CONFIG").filter(|v| !v.is_empty()).map(PathBuf::from)
        });
        named.map_or_else(|| (PathBuf::from(DEFAULT_FILE), false), |path| (path, true))
    }
}

/// A configuration in the making.
#[derive(Default)]
struct Draft {
    resolved: Resolved,
    problems: Vec<Problem>,
}

impl Draft {
    fn take(&mut self, key: &str, value: &str, origin: Origin) {
        let Some(setting) = settings().find(|s| s.key == key) else {
            let names = settings().map(|s| s.key);
            let hint = values::nearest(key, names)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            self.problems.push(Problem::new(key, &origin, format!("no such setting{hint}")));
            return;
        };
        if (setting.take)(&mut self.resolved.config, value.trim()).is_none() {
            let message = format!("expected {}, found {value:?}", setting.allowed);
            self.problems.push(Problem::new(key, &origin, message));
        }
        self.resolved.origins.insert(setting.key, origin);
    }

    fn take_file(&mut self, (path, required): (PathBuf, bool)) {
        let origin = Origin::File(path.clone());
        match read_file(&path) {
            Ok(settings) => {
                for (key, value) in settings {
                    match value {
                        Ok(value) => self.take(&key, &value, origin.clone()),
                        Err(message) => self.problems.push(Problem::new(&key, &origin, message)),
                    }
                }
            }
            Err(FileError::Missing) if !required => {}
            Err(error) => self.problems.push(Problem::new("", &origin, error.to_string())),
        }
    }

    /// What no setting can check alone.
    fn check_whole(&mut self) {
        let Config { admin, admission, api, sense, store, .. } = &self.resolved.config;
        let mut wrong = Vec::new();
        for (keys, listen, tls, cert, key) in [
            (
                ["admin.listen", "admin.tls", "admin.tls-cert", "admin.tls-key"],
                admin.listen,
                admin.tls,
                &admin.tls_cert,
                &admin.tls_key,
            ),
            (
                ["api.listen", "api.tls", "api.tls-cert", "api.tls-key"],
                api.listen,
                api.tls,
                &api.tls_cert,
                &api.tls_key,
            ),
        ] {
            let [at, tls_at, cert_at, key_at] = keys;
            match (tls, cert, key) {
                (TlsSource::Auto, None, None) => {}
                (TlsSource::Auto, ..) => wrong.push((
                    tls_at,
                    format!("auto makes a certificate; take away {cert_at} and {key_at}, or set files"),
                )),
                (_, Some(_), None) => wrong.push((cert_at, format!("needs {key_at} beside it"))),
                (_, None, Some(_)) => wrong.push((key_at, format!("needs {cert_at} beside it"))),
                (_, None, None) if !listen.is_loopback() => wrong.push((
                    at,
                    format!(
                        "an address beyond loopback needs TLS: set {cert_at} and {key_at}, or {tls_at} \
                         to auto"
                    ),
                )),
                _ => {}
            }
        }
        if sense.identity_token_file.is_some()
            && sense.ca_file.is_none()
            && *store == Store::Embedded
        {
            let message = "needs guard.ca-file, or store=kubernetes to read the agents' authority from: \
                           it is shown to controllers of that authority alone";
            wrong.push(("guard.identity-token-file", message.to_owned()));
        }
        if admission.service.is_some() && admission.url.is_some() {
            let message = "is one way to reach the webhook and admission.url another; set one";
            wrong.push(("admission.service", message.to_owned()));
        }
        if admission.service.is_some() && *store == Store::Embedded {
            let message = "needs store=kubernetes: the Service is one of the store's cluster; set \
                           admission.url for others";
            wrong.push(("admission.service", message.to_owned()));
        }
        if !admission.clusters.is_empty() && admission.url.is_none() {
            let message = "needs admission.url: their API servers are elsewhere";
            wrong.push(("admission.clusters", message.to_owned()));
        }
        for (key, message) in wrong {
            let origin = self.resolved.origins.get(key).unwrap_or(&Origin::Default).clone();
            self.problems.push(Problem::new(key, &origin, message));
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("no such file")]
    Missing,
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    #[error("larger than a configuration can be ({LARGEST_FILE} bytes); is this the right file?")]
    TooLarge,
    #[error("not valid YAML: {0}")]
    NotYaml(String),
    #[error("expected settings such as `admin: {{listen: 127.0.0.1:7682}}` at the top level")]
    NotSettings,
}

/// The file's settings by dotted key. A value that cannot be a setting carries its own problem.
type FileSettings = Vec<(String, Result<String, String>)>;

fn read_file(path: &Path) -> Result<FileSettings, FileError> {
    let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => FileError::Missing,
        _ => FileError::Unreadable(e),
    })?;
    if meta.len() > LARGEST_FILE {
        return Err(FileError::TooLarge);
    }
    let text = std::fs::read_to_string(path).map_err(FileError::Unreadable)?;
    parse_file(&text)
}

fn parse_file(text: &str) -> Result<FileSettings, FileError> {
    let tree: serde_json::Value =
        serde_saphyr::from_str(text).map_err(|e| FileError::NotYaml(e.to_string()))?;
    let mut settings = Vec::new();
    match tree {
        serde_json::Value::Null => {}
        serde_json::Value::Object(map) => flatten("", map, &mut settings),
        _ => return Err(FileError::NotSettings),
    }
    Ok(settings)
}

fn flatten(
    prefix: &str,
    map: serde_json::Map<String, serde_json::Value>,
    settings: &mut FileSettings,
) {
    use serde_json::Value;
    for (name, value) in map {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        let value = match value {
            Value::Object(inner) => {
                flatten(&key, inner, settings);
                continue;
            }
            Value::String(text) => Ok(text),
            Value::Bool(yes) => Ok(yes.to_string()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null => Err("expected a value, found nothing".to_owned()),
            Value::Array(_) => Err("expected one value, found a list".to_owned()),
        };
        settings.push((key, value));
    }
}

#[cfg(test)]
mod tests;

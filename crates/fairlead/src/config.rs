//! Configuration: flags, then environment (`FAIRLEAD_*`), then one YAML file, then defaults.
//!
//! [`settings`](mod@settings) declares every setting once; its flag, its variable, its place in YAML, its
//! help and its row in `fairlead config show` come from there. A configuration is read as a whole: every
//! problem is found and told at once, and nothing starts until there is none.

mod check;
mod file;
mod formats;
mod listen;
mod setting;
mod settings;
mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command};

use crate::values;
use file::FileError;
use settings::settings;

pub(crate) use listen::ListenAddress;
pub(crate) use settings::{Admin, Admission, Config, Log};
pub(crate) use types::{HttpsUrl, LogFormat, Service, ServiceAccount, Store, Switch, TlsSource};

/// Where the file is looked for when nobody names one.
const DEFAULT_FILE: &str = "/etc/fairlead/fairlead.yaml";

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
    /// Gives a setting that nobody set another default. [`Sources::resolve_with`] checks the whole after
    /// it.
    pub(crate) fn unless_set(&mut self, key: &str, change: impl FnOnce(&mut Config)) {
        if !self.origins.contains_key(key) {
            change(&mut self.config);
        }
    }

    fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        settings()
            .iter()
            .map(|s| Row {
                key: s.key,
                value: (s.show)(&self.config),
                from: self.origin(s.key).to_string(),
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
        settings().iter().fold(cmd.arg(file), |cmd, s| {
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
            given: settings().iter().filter_map(|s| Some((s.key, text(s.key)?))).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Everything that a configuration is read from. The environment is a field so that tests can make one.
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

    /// Does the same for a verb whose defaults differ: `imply` sets them ([`Resolved::unless_set`])
    /// before the whole is checked.
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
        draft.resolved.unless_set("fleet.secrets-namespace", |config| {
            config.fleet.secrets_namespace = Some(config.fleet.namespace.clone());
        });
        for (key, message) in check::contradictions(&draft.resolved.config) {
            draft.problems.push(Problem::new(&key, draft.resolved.origin(&key), message));
        }
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
        let Some(setting) = settings().iter().find(|s| s.key == key) else {
            let names = settings().iter().map(|s| s.key);
            let hint = values::nearest(key, names)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            self.problems.push(Problem::new(key, &origin, format!("no such setting{hint}")));
            return;
        };
        if (setting.take)(&mut self.resolved.config, value.trim()).is_none() {
            let message = format!("expected {}, found {value:?}", setting.expected);
            self.problems.push(Problem::new(key, &origin, message));
        }
        self.resolved.origins.insert(setting.key, origin);
    }

    fn take_file(&mut self, (path, required): (PathBuf, bool)) {
        let origin = Origin::File(path.clone());
        match file::read(&path) {
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
}

#[cfg(test)]
mod tests;

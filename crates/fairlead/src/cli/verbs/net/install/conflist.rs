//! The configuration list of our network: which parts of it the installer owns, and which it leaves.
//!
//! The installer owns the entry of our plugin (where the agent listens, how long an answer may take)
//! and the versions. The network's name, other plugins, their order and every field that is not known
//! here are the administrator's. Nothing here reads or writes a file.

use std::path::Path;

use cni::spec::{ANNOTATIONS, Command, Configuration, DEFAULT_SOCKET, Version};
use serde_json::{Map, Value, json};

use super::PLUGIN;
use super::chained::Chained;
use crate::output::Failure;

/// The network's name where it has none.
pub(super) const NETWORK: &str = "fairlead";
/// What runtimes that know no `cniVersions` are asked to speak: containerd 1.6 and later know it, and
/// so do the plugins that distributions ship.
const USUAL: Version = Version::V1_0_0;
/// Addresses that are chosen beforehand, and the annotations by which pods choose them.
const CAPABILITIES: [&str; 3] = ["ips", "mac", ANNOTATIONS];

/// The plugins that the installer may chain by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Chain {
    /// Host ports of pods
    Portmap,
    /// Limits of bandwidth by annotation
    Bandwidth,
    /// Nothing
    None,
}

impl Chain {
    pub(super) fn plugin(self) -> Option<&'static str> {
        match self {
            Self::Portmap => Some("portmap"),
            Self::Bandwidth => Some("bandwidth"),
            Self::None => None,
        }
    }

    fn entry(self) -> Option<Value> {
        let capability = match self {
            Self::Portmap => "portMappings",
            Self::Bandwidth => "bandwidth",
            Self::None => return None,
        };
        Some(json!({ "type": self.plugin(), "capabilities": { capability: true } }))
    }
}

/// A list with our plugin in it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli::verbs::net) struct Conflist(Map<String, Value>);

/// Why a file is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli::verbs::net) enum NotOurs {
    NotJson,
    /// The network's name.
    Network(String),
}

impl Conflist {
    /// A list that says nothing yet but which plugin is in it.
    pub(super) fn new() -> Self {
        let plugins = json!([{ "type": PLUGIN }]);
        Self(Map::from_iter([("plugins".to_owned(), plugins)]))
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, NotOurs> {
        let Ok(list) = serde_json::from_slice::<Map<String, Value>>(text) else {
            return Err(NotOurs::NotJson);
        };
        let list = Self(list);
        let ours = list.types().any(|plugin| plugin == PLUGIN);
        match ours {
            true => Ok(list),
            false => Err(NotOurs::Network(list.0.get("name").unwrap_or(&Value::Null).to_string())),
        }
    }

    pub(super) fn render(&self) -> Result<String, Failure> {
        let text = serde_json::to_string_pretty(&self.0).map_err(|e| Failure(e.to_string()))?;
        Ok(text + "\n")
    }

    pub(super) fn network(&self) -> Option<&str> {
        self.0.get("name")?.as_str()
    }

    pub(super) fn name_unless_named(&mut self, network: &str) {
        self.0.entry("name").or_insert_with(|| network.into());
    }

    /// Sets where the agent listens, and how long an answer may take where that is given.
    pub(super) fn set_own(&mut self, socket: &Path, timeout: Option<u32>) {
        let Some(own) = self.own_mut() else { return };
        let at_default = socket == Path::new(DEFAULT_SOCKET);
        match own.get("socket").and_then(Value::as_str) {
            Some(known) if Path::new(known) == socket => {}
            None if at_default => {}
            _ if at_default => drop(own.remove("socket")),
            _ => drop(own.insert("socket".to_owned(), socket.to_string_lossy().into())),
        }
        if let Some(timeout) = timeout {
            own.insert("timeout".to_owned(), timeout.into());
        }
    }

    /// Has runtimes pass on what pods and their runtimes choose themselves, unless the administrator says no.
    pub(super) fn take_choices(&mut self) {
        let Some(own) = self.own_mut() else { return };
        let capabilities = own.entry("capabilities").or_insert_with(|| json!({}));
        let Some(capabilities) = capabilities.as_object_mut() else { return };
        for capability in CAPABILITIES {
            capabilities.entry(capability).or_insert_with(|| true.into());
        }
    }

    /// Puts a plugin at the end unless it is there.
    pub(super) fn chain(&mut self, chain: Chain) {
        let (Some(plugin), Some(entry)) = (chain.plugin(), chain.entry()) else { return };
        if self.types().any(|there| there == plugin) {
            return;
        }
        if let Some(plugins) = self.0.get_mut("plugins").and_then(Value::as_array_mut) {
            plugins.push(entry);
        }
    }

    /// The other plugins, in their order.
    pub(in crate::cli::verbs::net) fn others(&self) -> impl Iterator<Item = &str> {
        self.types().filter(|plugin| *plugin != PLUGIN)
    }

    /// Chooses versions that every plugin of the list knows.
    ///
    /// A runtime of libcni 1.2 and later (containerd 2) takes the highest of `cniVersion` and
    /// `cniVersions` that it knows itself; an older one looks at `cniVersion` alone. Neither asks the
    /// plugins before it chooses. A list without `cniVersions` was pinned to one version, and stays so.
    pub(super) fn choose_versions(
        &mut self,
        pinned: Option<Version>,
        chained: &[Chained],
    ) -> Result<Vec<String>, Failure> {
        let refuses = |version| chained.iter().find(|plugin| !plugin.knows(version));
        let common: Vec<Version> =
            Version::ALL.into_iter().filter(|version| refuses(*version).is_none()).collect();
        if let Some(pinned) = pinned {
            if let Some(plugin) = refuses(pinned) {
                return Err(Failure(format!(
                    "{} is chained and does not know CNI {pinned} ({}): choose another --cni-version",
                    plugin.plugin,
                    plugin.summary()
                )));
            }
            self.0.insert("cniVersion".to_owned(), pinned.name().into());
            self.0.remove("cniVersions");
            return Ok(Vec::new());
        }
        let [first, ..] = common.as_slice() else {
            let all: Vec<_> = chained.iter().map(Chained::summary).collect();
            return Err(Failure(format!(
                "there is no version of CNI that {PLUGIN} and all chained plugins know ({}): take one of them out of the list",
                all.join("; ")
            )));
        };
        let usual = *common.iter().rfind(|version| **version <= USUAL).unwrap_or(first);
        let before = self.0.get("cniVersion").and_then(Value::as_str).map(str::to_owned);
        let stays = before.as_deref().and_then(|before| Version::parse(before).ok());
        let version = stays.filter(|version| common.contains(version)).unwrap_or(usual);
        let mut notes = Vec::new();
        if let Some(before) = before.as_deref().filter(|before| *before != version.name()) {
            notes.push(format!(
                "cniVersion was {before}, which not every plugin of the list knows: it is {version} now"
            ));
        }
        let pinned_before = before.is_some() && !self.0.contains_key("cniVersions");
        self.0.insert("cniVersion".to_owned(), version.name().into());
        if !pinned_before {
            let from_there = common.iter().filter(|later| **later >= version);
            let names: Vec<&str> = from_there.map(|version| version.name()).collect();
            self.0.insert("cniVersions".to_owned(), json!(names));
        }
        Ok(notes)
    }

    /// All versions that a runtime may choose from.
    pub(super) fn versions(&self) -> Vec<String> {
        let one = self.0.get("cniVersion").into_iter();
        let more = self.0.get("cniVersions").and_then(Value::as_array).into_iter().flatten();
        let named = one.chain(more).filter_map(Value::as_str).map(str::to_owned);
        let mut names: Vec<String> = named.collect();
        names.sort();
        names.dedup();
        names
    }

    /// What a runtime makes of the list for our plugin must be what our plugin takes.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut given = self.own().cloned().unwrap_or_default();
        for key in ["cniVersion", "name"] {
            given.insert(key.to_owned(), self.0.get(key).cloned().unwrap_or_default());
        }
        let given = Value::Object(given).to_string();
        let taken = Configuration::parse(given.as_bytes(), Command::Add);
        taken.map(|_| ()).map_err(|error| Failure(error.to_string()))
    }

    fn types(&self) -> impl Iterator<Item = &str> {
        let plugins = self.0.get("plugins").and_then(Value::as_array).into_iter().flatten();
        plugins.filter_map(|plugin| plugin.get("type")?.as_str())
    }

    fn own(&self) -> Option<&Map<String, Value>> {
        let plugins = self.0.get("plugins")?.as_array()?;
        plugins.iter().find(|plugin| plugin["type"] == PLUGIN)?.as_object()
    }

    fn own_mut(&mut self) -> Option<&mut Map<String, Value>> {
        let plugins = self.0.get_mut("plugins")?.as_array_mut()?;
        plugins.iter_mut().find(|plugin| plugin["type"] == PLUGIN)?.as_object_mut()
    }
}

#[cfg(test)]
mod tests;

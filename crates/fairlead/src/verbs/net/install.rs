//! The plugin and the network configuration, where container runtimes look for them.
//!
//! What is written is written whole or not at all, the plugin before the configuration that names
//! it. What others put there is neither changed nor removed; which of all the configurations a
//! runtime takes is said, also when it is not ours.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cni::spec::{Configuration, DEFAULT_SOCKET, Version};
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::ConfigFlags;
use crate::output::{Failure, Output, Verdict};
use crate::verbs::config::load;

/// The plugin's name, which is also its `type` in a configuration.
const PLUGIN: &str = "fairlead-cni";

/// Put the plugin and a network where this node's container runtime looks for them
///
/// Other configurations are left alone. A runtime takes the first by name: if that is not this one, or
/// if this one takes another's place, it is said.
///
/// Examples:
///   fairlead net install
///   fairlead net install --configuration 05-fairlead.conflist
///   fairlead net install --bin-dir /usr/lib/cni --cni-version 0.4.0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Install {
    #[command(flatten)]
    place: Place,
    /// The plugin to install [default: fairlead-cni beside this program]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// The network's name
    #[arg(long, value_name = "NAME", default_value = "fairlead")]
    network: String,
    /// The version of CNI to speak with runtimes that know no later one
    #[arg(long, value_name = "VERSION", default_value = "1.0.0")]
    cni_version: String,
    /// How long a runtime waits for an answer
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// Remove what `fairlead net install` put there
///
/// Refused while containers of this node have interfaces of Fairlead's: without the plugin their
/// runtime cannot remove them. Drain the node first, or say --force.
///
/// Examples:
///   fairlead net uninstall
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Uninstall {
    #[command(flatten)]
    place: Place,
    /// Also while containers have interfaces
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Place {
    /// Where runtimes look for plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Where runtimes look for networks
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
    /// The file there; runtimes take the first by name
    #[arg(long, value_name = "NAME", default_value = "10-fairlead.conflist")]
    configuration: String,
}

/// What was done, and what follows. The JSON is a contract.
#[derive(Debug, Serialize)]
struct Done {
    plugin: PathBuf,
    configuration: PathBuf,
    /// The configuration that a runtime now takes.
    taken: Option<PathBuf>,
    notes: Vec<String>,
}

pub(super) fn install(args: &Install) -> Verdict {
    let socket = load(&args.flags)?.config.net.socket;
    let conflist = conflist(args, &socket)?;
    let source = args.plugin.clone().map_or_else(beside_this, Ok)?;
    let place = &args.place;
    let (plugin, configuration) = (place.plugin(), place.configuration()?);
    if let Whose::Theirs(what) = whose(&configuration)? {
        return Err(Failure(format!(
            "{} is {what}, not a network of Fairlead's: choose another name with --configuration",
            configuration.display()
        )));
    }
    let program = fs::read(&source).map_err(|e| {
        Failure(format!(
            "the plugin {} cannot be read: {e}; name it with --plugin",
            source.display()
        ))
    })?;
    let before = taken(&place.conf_dir)?;
    write(&plugin, &program, 0o755)?;
    let text = serde_json::to_string_pretty(&conflist).map_err(|e| Failure(e.to_string()))?;
    write(&configuration, format!("{text}\n").as_bytes(), 0o644)?;
    let taken = taken(&place.conf_dir)?;
    let mut notes = Vec::new();
    let ours = taken.as_ref() == Some(&configuration);
    match (&taken, before.filter(|before| *before != configuration)) {
        (Some(other), _) if !ours => notes.push(format!(
            "runtimes go on taking {}, which comes first by name: rename or remove it, or install under an earlier name (--configuration)",
            other.display()
        )),
        (_, Some(before)) => notes.push(format!(
            "runtimes now take this network in place of {}, which is left as it is; pods that run keep what they have",
            before.display()
        )),
        _ => {}
    }
    let done = Done { plugin, configuration, taken, notes };
    args.output.print(&done, || done.told("installed"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn uninstall(args: &Uninstall) -> Verdict {
    let place = &args.place;
    let (plugin, configuration) = (place.plugin(), place.configuration()?);
    let left = interfaces();
    if !left.is_empty() && !args.force {
        return Err(Failure(format!(
            "{} containers still have an interface of Fairlead's ({}…): drain the node first, or say --force",
            left.len(),
            left[0]
        )));
    }
    if let Whose::Theirs(what) = whose(&configuration)? {
        return Err(Failure(format!(
            "{} is {what}, not a network of Fairlead's: name ours with --configuration",
            configuration.display()
        )));
    }
    // The other way round there would be a configuration without its plugin.
    remove(&configuration)?;
    remove(&plugin)?;
    let taken = taken(&place.conf_dir)?;
    let notes = match &taken {
        Some(other) => vec![format!("runtimes now take {}", other.display())],
        None => vec![
            "runtimes now find no network: their node is not ready until there is one".to_owned(),
        ],
    };
    let done = Done { plugin, configuration, taken, notes };
    args.output.print(&done, || done.told("removed"))?;
    Ok(ExitCode::SUCCESS)
}

fn conflist(args: &Install, socket: &Path) -> Result<Value, Failure> {
    let version = Version::parse(&args.cni_version).map_err(|e| Failure(e.to_string()))?;
    let mut plugin = json!({ "type": PLUGIN });
    if socket != Path::new(DEFAULT_SOCKET) {
        plugin["socket"] = socket.to_string_lossy().into();
    }
    if let Some(timeout) = args.timeout {
        plugin["timeout"] = timeout.into();
    }
    let mut list =
        json!({ "cniVersion": version.name(), "name": args.network, "plugins": [plugin] });
    if version == Version::V1_0_0 {
        // Those that know it take the later one; the others do not look here.
        list["cniVersions"] = json!([version.name(), Version::LATEST.name()]);
    }
    // What a runtime makes of it for the plugin must be what the plugin takes.
    let mut given = list["plugins"][0].clone();
    given["cniVersion"] = list["cniVersion"].clone();
    given["name"] = list["name"].clone();
    Configuration::parse(given.to_string().as_bytes(), cni::spec::Command::Add)
        .map_err(|error| Failure(error.to_string()))?;
    Ok(list)
}

impl Place {
    fn plugin(&self) -> PathBuf {
        self.bin_dir.join(PLUGIN)
    }

    fn configuration(&self) -> Result<PathBuf, Failure> {
        let name = &self.configuration;
        if Path::new(name).file_name().is_some_and(|n| n == name.as_str())
            && name.ends_with(".conflist")
        {
            return Ok(self.conf_dir.join(name));
        }
        Err(Failure(format!(
            "--configuration {name}: expected the name of a file that ends in .conflist"
        )))
    }
}

impl Done {
    fn told(&self, what: &str) -> String {
        let mut text =
            format!("{what} {}\n{what} {}", self.plugin.display(), self.configuration.display());
        for note in &self.notes {
            text.push_str("\nnote: ");
            text.push_str(note);
        }
        text
    }
}

fn beside_this() -> Result<PathBuf, Failure> {
    let this = std::env::current_exe()?;
    let plugin = this.with_file_name(PLUGIN);
    if plugin.is_file() {
        return Ok(plugin);
    }
    Err(Failure(format!("there is no {PLUGIN} beside {}: name it with --plugin", this.display())))
}

enum Whose {
    Nobodys,
    Ours,
    /// And what it is.
    Theirs(String),
}

/// Whose network a file is: ours if our plugin is in it.
fn whose(path: &Path) -> Result<Whose, Failure> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Whose::Nobodys),
        Err(e) => return Err(Failure(format!("{} cannot be read: {e}", path.display()))),
    };
    let Ok(list) = serde_json::from_slice::<Value>(&text) else {
        return Ok(Whose::Theirs("no JSON".to_owned()));
    };
    let plugins = list["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    if plugins.iter().any(|plugin| plugin["type"] == PLUGIN) {
        return Ok(Whose::Ours);
    }
    Ok(Whose::Theirs(format!("the network {}", list["name"])))
}

/// The configuration that a runtime takes: the first by name of those that it looks at.
fn taken(dir: &Path) -> Result<Option<PathBuf>, Failure> {
    let cannot = |e: std::io::Error| Failure(format!("{} cannot be read: {e}", dir.display()));
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        let looked_at =
            path.extension().is_some_and(|e| e == "conf" || e == "conflist" || e == "json");
        if looked_at {
            names.push(path);
        }
    }
    names.sort();
    Ok(names.into_iter().next())
}

/// The interfaces of containers that are ours.
fn interfaces() -> Vec<String> {
    // Not /sys: that shows the namespace it was mounted in, which need not be ours.
    let links = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = links.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let mut ours: Vec<_> = names.filter(|name| cni::interface::is_ours(name)).collect();
    ours.sort();
    ours
}

/// Under another name first, on the disk, and then in place.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let cannot = |e: std::io::Error| Failure(format!("{} cannot be written: {e}", path.display()));
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(cannot)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Hidden, and with an ending that no runtime looks at.
    let new = dir.join(format!(".{name}.new"));
    let put = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(dir)?.sync_all()
    };
    put().inspect_err(|_| drop(fs::remove_file(&new))).map_err(cannot)
}

fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Failure(format!("{} cannot be removed: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;

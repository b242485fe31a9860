//! The plugin and the network configuration, where container runtimes look for them.
//!
//! What is written is written whole or not at all, the plugin before the configuration that names
//! it; what is as it should be is not written again, so that no runtime reads it again. In a
//! configuration that is there, what the administrator put there stays (`conflist`). What others put
//! into the directories is neither changed nor removed; which of all the configurations a runtime
//! takes is said, also when it is not ours.

mod chained;
mod conflist;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cni::spec::Version;
use serde::Serialize;

use crate::cli::verbs::config::load;
use crate::config::ConfigFlags;
use crate::output::{Failure, Output, Verdict};
use chained::Chained;
use conflist::{Chain, Conflist, NETWORK, NotOurs};

/// The plugin's name, which is also its `type` in a configuration.
const PLUGIN: &str = "fairlead-cni";

/// Put the plugin and a network where this node's container runtime looks for them
///
/// Other configurations are left alone. A runtime takes the first by name: if that is not this one, or
/// if this one takes another's place, it is said. In a configuration that is there already, plugins
/// that were chained with ours stay, and so does every field that this command does not own.
///
/// Examples:
///   fairlead net install
///   fairlead net install --configuration 05-fairlead.conflist
///   fairlead net install --chain portmap --chain bandwidth
///   fairlead net install --bin-dir /usr/lib/cni --cni-version 0.4.0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Install {
    #[command(flatten)]
    paths: CniPaths,
    /// The plugin to install [default: fairlead-cni beside this program]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// The network's name, unless it has one [default: fairlead]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// The one version of CNI to speak [default: those that every plugin of the network knows]
    #[arg(long, value_name = "VERSION")]
    cni_version: Option<String>,
    /// How long a runtime waits for an answer
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// A plugin to run after ours, in addition to those that are chained already; may be repeated
    /// [default for a new network: portmap, if it is in the directory of plugins]
    #[arg(long, value_name = "PLUGIN", value_enum)]
    chain: Vec<Chain>,
    /// Write the network anew, without what others put into it
    #[arg(long)]
    reset: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

#[derive(Debug, clap::Args)]
pub(super) struct CniPaths {
    /// Directory in which runtimes look for plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Directory in which runtimes look for networks
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(super) conf_dir: PathBuf,
    /// Name of the network's file; runtimes take the first by name
    #[arg(long, value_name = "NAME", default_value = "10-fairlead.conflist")]
    configuration: String,
}

/// What was installed, and what follows. The JSON is a contract.
#[derive(Debug, Serialize)]
struct Installed {
    plugin: PathBuf,
    configuration: PathBuf,
    /// Which of the two were written; the others were as they should be.
    written: Vec<PathBuf>,
    network: String,
    /// The versions that a runtime may choose from.
    #[serde(rename = "cniVersions")]
    versions: Vec<String>,
    /// The plugins that run with ours.
    chained: Vec<Chained>,
    /// The configuration that a runtime now takes.
    taken: Option<PathBuf>,
    notes: Vec<String>,
}

pub(super) fn install(args: &Install) -> Verdict {
    let socket = load(&args.flags)?.config.net.socket;
    let version = args.cni_version.as_deref().map(Version::parse).transpose();
    let version = version.map_err(|e| Failure(e.to_string()))?;
    let source = args.plugin.clone().map_or_else(beside_this, Ok)?;
    let paths = &args.paths;
    let (plugin, configuration) = (paths.plugin(), paths.configuration()?);
    let there = match read(&configuration)? {
        Some(Err(NotOurs::NotJson)) if args.reset => None,
        Some(Err(other)) => return Err(not_ours(&configuration, &other, "choose another name")),
        Some(Ok(list)) => Some(list).filter(|_| !args.reset),
        None => None,
    };
    let mut list = there.clone().unwrap_or_else(Conflist::new);
    let mut notes = Vec::new();
    list.name_unless_named(args.network.as_deref().unwrap_or(NETWORK));
    let network = list.network().unwrap_or_default().to_owned();
    if let Some(other) = args.network.as_deref().filter(|other| *other != network) {
        notes.push(format!(
            "the network keeps its name {network}, by which its containers are known: --reset names it {other}"
        ));
    }
    list.set_own(&socket, args.timeout);
    list.take_choices();
    for chain in to_chain(args, there.is_none())? {
        list.chain(chain);
    }
    let chained: Vec<Chained> =
        list.others().map(|plugin| chained::ask(&paths.bin_dir, plugin)).collect();
    notes.extend(chained.iter().filter_map(|plugin| plugin.trouble.clone()));
    notes.extend(list.choose_versions(version, &chained)?);
    list.check().map_err(|Failure(why)| match &there {
        Some(_) => Failure(format!(
            "{} has our plugin in it and cannot be used: {why}; mend it, or have it written anew with --reset",
            configuration.display()
        )),
        None => Failure(why),
    })?;
    let program = fs::read(&source).map_err(|e| {
        Failure(format!(
            "the plugin {} cannot be read: {e}; name it with --plugin",
            source.display()
        ))
    })?;
    let before = taken(&paths.conf_dir)?;
    let mut written = Vec::new();
    if !is_program(&plugin, &program) {
        write(&plugin, &program, 0o755)?;
        written.push(plugin.clone());
    }
    if there.as_ref() != Some(&list) {
        write(&configuration, list.render()?.as_bytes(), 0o644)?;
        written.push(configuration.clone());
    }
    let taken = taken(&paths.conf_dir)?;
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
    let versions = list.versions();
    let done =
        Installed { plugin, configuration, written, network, versions, chained, taken, notes };
    args.output.print(&done, || done.summary())?;
    Ok(ExitCode::SUCCESS)
}

/// The plugins to chain. A new network gets host ports, which everybody expects of a pod network.
fn to_chain(args: &Install, is_new: bool) -> Result<Vec<Chain>, Failure> {
    let bin_dir = &args.paths.bin_dir;
    let chain = &args.chain;
    if chain.contains(&Chain::None) && chain.iter().any(|other| *other != Chain::None) {
        return Err(Failure("--chain none leaves no room for another --chain".to_owned()));
    }
    for plugin in chain.iter().filter_map(|chain| chain.plugin()) {
        if chained::executable(bin_dir, plugin).is_none() {
            return Err(Failure(format!(
                "--chain {plugin}: there is no program of that name in {}, and without it no pod could be set up; put it there (it is one of the CNI project's plugins)",
                bin_dir.display()
            )));
        }
    }
    let default = is_new && chain.is_empty() && chained::executable(bin_dir, "portmap").is_some();
    Ok(if default { vec![Chain::Portmap] } else { chain.clone() })
}

impl CniPaths {
    pub(super) fn plugin(&self) -> PathBuf {
        self.bin_dir.join(PLUGIN)
    }

    pub(super) fn configuration(&self) -> Result<PathBuf, Failure> {
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

impl Installed {
    fn summary(&self) -> String {
        let mut lines = Vec::new();
        for path in [&self.plugin, &self.configuration] {
            let what = if self.written.contains(path) { "installed" } else { "unchanged" };
            lines.push(format!("{what} {}", path.display()));
        }
        let chained: Vec<&str> = self.chained.iter().map(|c| c.plugin.as_str()).collect();
        let chained = if chained.is_empty() { "nothing".to_owned() } else { chained.join(", ") };
        lines.push(format!(
            "network {}, CNI {}, chained with {chained}",
            self.network,
            self.versions.join(" and ")
        ));
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n")
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

/// The network of a file; none if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Result<Conflist, NotOurs>>, Failure> {
    match fs::read(path) {
        Ok(text) => Ok(Some(Conflist::parse(&text))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure(format!("{} cannot be read: {e}", path.display()))),
    }
}

pub(super) fn not_ours(path: &Path, what: &NotOurs, remedy: &str) -> Failure {
    let shown = path.display();
    Failure(match what {
        NotOurs::NotJson => format!(
            "{shown} is not JSON: {remedy} with --configuration, or have it written anew (`fairlead net install --reset`)"
        ),
        NotOurs::Network(name) => format!(
            "{shown} is the network {name}, not a network of Fairlead's: {remedy} with --configuration"
        ),
    })
}

/// Whether the plugin that is installed is this one.
fn is_program(path: &Path, program: &[u8]) -> bool {
    let mode = path.metadata().map(|file| file.permissions().mode() & 0o777);
    mode.is_ok_and(|mode| mode == 0o755) && fs::read(path).is_ok_and(|there| there == program)
}

/// The configuration that a runtime takes: the first by name of those that it looks at.
pub(super) fn taken(dir: &Path) -> Result<Option<PathBuf>, Failure> {
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

/// The name of a file until it is whole: hidden, and with an ending that no runtime looks at.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

/// Under another name first, on the disk, and then in place.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let cannot = |e: std::io::Error| Failure(format!("{} cannot be written: {e}", path.display()));
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(cannot)?;
    let new = unfinished(path);
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

#[cfg(test)]
mod tests;

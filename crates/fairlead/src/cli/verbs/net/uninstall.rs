//! Undoes what `fairlead net install` and the node's agents did.
//!
//! The order is such that what is left after a failure can be removed by the same command again: the
//! configuration before the plugin that it names, the kernel before the record of what is in it. What
//! is not there is not missed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kernel::conntrack;
use kernel::lock_file::{self, LockFile};
use kernel::netns::Namespace;
use net::masquerade::{self, NatTable};
use net::node::Node;
use net::purge;
use net::routes::EXPORT_TABLE;
use serde::Serialize;

use super::install::{CniPaths, not_ours, read, taken, unfinished};
use crate::cli::verbs::config::load;
use crate::config::{Config, ConfigFlags};
use crate::daemon::process::explain;
use crate::output::{Failure, Output, Verdict};

/// How long an agent may take to answer on its socket.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// The file by which a data directory is known to be Fairlead's.
const LOCK: &str = "lock";

/// Remove what `fairlead net install` put there; with --purge, everything that agents left on the node
///
/// Refused while containers of this node have interfaces of Fairlead's: without the plugin their
/// runtime cannot remove them. Drain the node first, or say --force. Can be run again.
///
/// Examples:
///   fairlead net uninstall
///   fairlead net uninstall --purge --data /var/lib/fairlead
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Uninstall {
    #[command(flatten)]
    paths: CniPaths,
    /// Also remove the agent's data directory and socket, its routes and its nftables tables
    #[arg(long)]
    purge: bool,
    /// Do it although containers have interfaces; with --purge these are removed as well
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    flags: ConfigFlags,
}

/// What was removed, and what follows. The JSON is a contract.
#[derive(Debug, Serialize)]
struct Uninstalled {
    plugin: PathBuf,
    configuration: PathBuf,
    /// The files, interfaces, routes and tables that were removed.
    removed: Vec<String>,
    /// The configuration that a runtime now takes.
    taken: Option<PathBuf>,
    notes: Vec<String>,
}

pub(super) fn uninstall(args: &Uninstall) -> Verdict {
    let config = load(&args.flags)?.config;
    let paths = &args.paths;
    let (plugin, configuration) = (paths.plugin(), paths.configuration()?);
    let node = Node::new(Namespace::current().map_err(|e| explain(&e))?);
    let interfaces = purge::interfaces(&node).map_err(|e| explain(&e))?;
    if let [first, ..] = interfaces.as_slice()
        && !args.force
    {
        return Err(Failure(format!(
            "containers still have interfaces of Fairlead's ({} of them, the first is {}): drain the node first, or \
             say --force",
            interfaces.len(),
            first.name
        )));
    }
    let mut notes = Vec::new();
    match read(&configuration)? {
        Some(Err(other)) => return Err(not_ours(&configuration, &other, "name ours")),
        Some(Ok(list)) => {
            let others: Vec<&str> = list.others().collect();
            if !others.is_empty() {
                notes.push(format!(
                    "{} was chained in the network, which is gone as a whole: without our plugin it is none",
                    others.join(", ")
                ));
            }
        }
        None => {}
    }
    let data = args.purge.then(|| Data::take(&config)).transpose()?;
    let mut removed = Vec::new();
    for path in [&configuration, &plugin] {
        remove(&unfinished(path), &mut removed)?;
        remove(path, &mut removed)?;
    }
    if let Some(data) = data {
        empty_kernel(&node, &config, args.force, &mut removed, &mut notes)?;
        remove_socket(&config.net.socket, &mut removed)?;
        data.remove(&mut removed, &mut notes)?;
    }
    let taken = taken(&paths.conf_dir)?;
    notes.push(match &taken {
        Some(other) => format!("runtimes now take {}", other.display()),
        None => {
            "runtimes now find no network: their node is not ready until there is one".to_owned()
        }
    });
    let done = Uninstalled { plugin, configuration, removed, taken, notes };
    args.output.print(&done, || done.summary())?;
    Ok(ExitCode::SUCCESS)
}

impl Uninstalled {
    fn summary(&self) -> String {
        let mut lines: Vec<_> = self.removed.iter().map(|what| format!("removed {what}")).collect();
        if lines.is_empty() {
            lines.push("nothing was left to remove".to_owned());
        }
        lines.extend(self.notes.iter().map(|note| format!("note: {note}")));
        lines.join("\n")
    }
}

/// The data directory, while nobody uses it.
struct Data {
    dir: PathBuf,
    state: State,
}

enum State {
    Absent,
    /// Nothing in it, or nothing that says that it is ours.
    Unmarked,
    Held(#[allow(dead_code, reason = "held until the directory is removed")] LockFile),
}

impl Data {
    /// Refuses where an agent runs: it would make everything again.
    fn take(config: &Config) -> Result<Self, Failure> {
        let (dir, socket) = (config.data.clone(), &config.net.socket);
        if cni::wire::dial(socket, Instant::now() + HEARD_WITHIN).is_ok() {
            return Err(Failure(format!(
                "an agent runs on this node (it listens on {}): stop it first, or delete its DaemonSet",
                socket.display()
            )));
        }
        let state = match dir.join(LOCK).try_exists() {
            Ok(true) => match LockFile::take(&dir) {
                Ok(lock) => State::Held(lock),
                Err(error @ lock_file::Error::Held { .. }) => {
                    return Err(Failure(format!("{error}; nothing was removed")));
                }
                Err(error) => return Err(explain(&error)),
            },
            Ok(false) if dir.is_dir() => State::Unmarked,
            Ok(false) => State::Absent,
            Err(error) => return Err(Failure(format!("{}: {error}", dir.display()))),
        };
        Ok(Self { dir, state })
    }

    fn remove(self, removed: &mut Vec<String>, notes: &mut Vec<String>) -> Result<(), Failure> {
        let shown = self.dir.display().to_string();
        let cannot = |e: io::Error| Failure(format!("{shown} cannot be removed: {e}"));
        match self.state {
            State::Absent => return Ok(()),
            State::Unmarked if !is_empty(&self.dir).map_err(cannot)? => {
                notes.push(format!(
                    "{shown} is left: nothing in it says that it is a data directory of Fairlead's (name that with --data)"
                ));
                return Ok(());
            }
            State::Unmarked | State::Held(_) => {}
        }
        let was_empty = is_empty(&self.dir).map_err(cannot)?;
        // The lock goes last: until then a second command finds what this one found.
        for entry in fs::read_dir(&self.dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if entry.file_name() != LOCK {
                delete(&entry.path()).map_err(cannot)?;
            }
        }
        gone(fs::remove_file(self.dir.join(LOCK))).map_err(cannot)?;
        match fs::remove_dir(&self.dir) {
            // A volume of the container that this runs in: its host can remove it.
            Err(e) if e.kind() == ErrorKind::ResourceBusy => {
                notes.push(format!("{shown} is a mount point: it is empty, and stays"));
                if !was_empty {
                    removed.push(format!("what was in {shown}"));
                }
            }
            done => {
                gone(done).map_err(cannot)?;
                removed.push(shown.clone());
            }
        }
        Ok(())
    }
}

fn is_empty(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(dir)?.next().is_none())
}

fn delete(path: &Path) -> io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => gone(fs::remove_dir_all(path)),
        false => gone(fs::remove_file(path)),
    }
}

/// A file that is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Routes, interfaces if `force`, the policies' table and the one that has the kernel track connections.
fn empty_kernel(
    here: &Node,
    config: &Config,
    force: bool,
    removed: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    // The default as well: the setting may have been another one when the agent ran.
    let tables: Vec<u32> = config.net.export_table.into_iter().chain([EXPORT_TABLE]).collect();
    let purged = purge::purge(here, &tables, force).map_err(|e| explain(&e))?;
    removed.extend(purged.interfaces.iter().map(|name| format!("interface {name}")));
    removed.extend(purged.routes.iter().map(|route| format!("route {route}")));
    if !purged.failed.is_empty() {
        return Err(Failure(format!(
            "not everything could be taken out of the kernel: {}; run it again",
            purged.failed.join("; ")
        )));
    }
    let namespace = Namespace::current().map_err(|e| explain(&e))?;
    let left = wireguard::purge(&namespace, &config.mesh.interface).map_err(|e| explain(&e))?;
    removed.extend(left);
    for (table, gone) in [
        ("fairlead", conntrack::disable_tracking()),
        ("fairlead-guard", node::enforcement::remove()),
        (masquerade::TABLE, NatTable::remove()),
    ] {
        match gone {
            Ok(true) => removed.push(format!("nftables table inet {table}")),
            Ok(false) => {}
            Err(error) => notes.push(format!(
                "the nftables table inet {table} cannot be looked for ({error}): a kernel without nftables has none"
            )),
        }
    }
    Ok(())
}

/// The socket and what agents put beside it; the directory too, if it is empty then.
fn remove_socket(socket: &Path, removed: &mut Vec<String>) -> Result<(), Failure> {
    let with = |path: &Path, ending: &str| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        path.with_file_name(name)
    };
    let mark = cni::ready::mark_path(socket);
    for path in [with(socket, ".new"), with(&mark, ".new"), mark.clone(), socket.to_owned()] {
        remove(&path, removed)?;
    }
    let Some(dir) = socket.parent().filter(|dir| is_empty(dir).unwrap_or(false)) else {
        return Ok(());
    };
    // A volume stays, and is empty.
    if fs::remove_dir(dir).is_ok() {
        removed.push(dir.display().to_string());
    }
    Ok(())
}

fn remove(path: &Path, removed: &mut Vec<String>) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Ok(()) => removed.push(path.display().to_string()),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(Failure(format!("{} cannot be removed: {e}", path.display()))),
    }
    Ok(())
}

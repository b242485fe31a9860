//! Asks the plugins that are chained with ours which versions of CNI they know.
//!
//! The installer may run in a container that lacks what a plugin of the host needs to run (a dynamic
//! loader, say), and a plugin may not be there yet. So no answer is no error: it is said, and only
//! what every plugin has known for years is taken to be known.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cni::spec::Version;
use serde::Serialize;
use serde_json::Value;

/// A plugin answers in milliseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// More than any answer has.
const LONGEST: u64 = 64 << 10;
/// What a plugin is taken to know that has not answered: the latest that is older than STATUS, which
/// fails for the whole node where one plugin does not know it.
const SURELY: Version = Version::V1_0_0;

/// A plugin of the list that is not ours. The JSON is a contract.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Chained {
    pub(super) plugin: String,
    /// None if it has not said.
    #[serde(rename = "cniVersions")]
    pub(super) versions: Option<Vec<String>>,
    /// Why it has not.
    #[serde(skip)]
    pub(super) trouble: Option<String>,
}

impl Chained {
    pub(super) fn knows(&self, version: Version) -> bool {
        match &self.versions {
            Some(versions) => versions.iter().any(|known| known == version.name()),
            None => version <= SURELY,
        }
    }

    pub(super) fn summary(&self) -> String {
        match &self.versions {
            Some(versions) => format!("{} knows {}", self.plugin, versions.join(", ")),
            None => format!("{} has not said what it knows", self.plugin),
        }
    }
}

/// The path of a plugin, if it can be run.
pub(super) fn executable(bin_dir: &Path, plugin: &str) -> Option<PathBuf> {
    // The name of a file there, and not a way out of it.
    let name = Path::new(plugin).file_name().filter(|name| *name == plugin)?;
    let path = bin_dir.join(name);
    let file = path.metadata().ok()?;
    (file.is_file() && file.permissions().mode() & 0o111 != 0).then_some(path)
}

/// Asks one plugin.
pub(super) fn ask(bin_dir: &Path, plugin: &str) -> Chained {
    let answer = match executable(bin_dir, plugin) {
        Some(path) => versions(&path, ANSWERED_WITHIN).map_err(|why| {
            format!(
                "the chained plugin {plugin} does not say which versions of CNI it knows ({why}): it is asked for {SURELY} at most"
            )
        }),
        None => Err(format!(
            "the chained plugin {plugin} is not in {}: no pod can be set up until it is there, or is taken out of the list",
            bin_dir.display()
        )),
    };
    let (versions, trouble) = match answer {
        Ok(versions) => (Some(versions), None),
        Err(trouble) => (None, Some(trouble)),
    };
    Chained { plugin: plugin.to_owned(), versions, trouble }
}

fn versions(path: &Path, within: Duration) -> Result<Vec<String>, String> {
    let mut child = Command::new(path)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("it cannot be run here: {error}"))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (answered, answer) = sync_channel(1);
    // It ends when the plugin does, at the latest when that is killed.
    std::thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // One that does not read is heard all the same.
            let _ = write!(stdin, r#"{{"cniVersion":"{SURELY}"}}"#);
        }
        let mut text = Vec::new();
        let read = stdout.map(|stdout| stdout.take(LONGEST).read_to_end(&mut text));
        let _ = answered.send(read.transpose().map(|_| text));
    });
    let text = answer.recv_timeout(within);
    // Whether it has ended or not: nobody waits for it any more.
    let _ = child.kill();
    let _ = child.wait();
    let text = text.map_err(|_| format!("no answer within {} s", within.as_secs()))?;
    let text = text.map_err(|error| error.to_string())?;
    let answer: Value =
        serde_json::from_slice(&text).map_err(|_| "its answer is not JSON".to_owned())?;
    let supported = answer["supportedVersions"].as_array().into_iter().flatten();
    let versions: Vec<String> = supported.filter_map(Value::as_str).map(str::to_owned).collect();
    if versions.is_empty() {
        return Err("its answer names none".to_owned());
    }
    Ok(versions)
}

#[cfg(test)]
mod tests;

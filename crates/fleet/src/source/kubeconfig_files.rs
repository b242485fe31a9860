//! Clusters from kubeconfig files: every context of a `KUBECONFIG` list.
//!
//! Contract:
//! - The list has kubectl's rules: the first file that has a name wins. A file that does not exist is
//!   no error, and is read when it appears.
//! - A file that cannot be read is shown as a misconfigured cluster with the file's name, and the
//!   clusters that it had before stay: an editor that saves in two steps disconnects nobody.
//! - Each file, and each certificate that it names, is checked every second by size, time and inode.
//!   inotify would not do: it sees no change on NFS and none behind the symlinks that Kubernetes swaps
//!   in mounted volumes, and it needs a watch for each directory of the path.
//! - A file system that does not answer stalls this source alone: a check runs on a thread of its own,
//!   and the next one begins when it has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use stallproof::{Deadline, Tasks};
use tokio::time::sleep;
use tracing::warn;

use super::kubeconfig::{Kubeconfig, Merged, Trust, referenced};
use super::{Offer, SourceOutput};
use crate::view::{Source, SourceKind};

const EVERY: Duration = Duration::from_secs(1);
/// A check that takes longer is reported.
const SLOW: Duration = Duration::from_secs(10);
/// A file that was changed so recently may change again without a change of its time: the clock of a
/// file system is coarse, on some systems two seconds.
const RACY: Duration = Duration::from_secs(2);
/// A kubeconfig of a thousand clusters has 10 MB.
const MOST_FILE: u64 = 64 << 20;

pub(super) async fn run(paths: Vec<PathBuf>, output: SourceOutput, tasks: Tasks) {
    // Each check locks it on its own thread.
    let files = Arc::new(Mutex::new(Files { paths, ..Files::default() }));
    loop {
        let looked = Arc::clone(&files);
        let look = move || looked.lock().check(SystemTime::now());
        match tasks.spawn_blocking("check kubeconfigs", Deadline::after(SLOW), look).await {
            Ok(mut look) => loop {
                match Deadline::after(SLOW).bound(&mut look).await {
                    Ok(Ok(Some(offers))) => break output.tell(offers),
                    Ok(_) => break,
                    Err(_) => warn!("the file system of the kubeconfigs does not answer"),
                }
            },
            Err(_) => warn!("no thread is free to check the kubeconfigs"),
        }
        sleep(EVERY).await;
    }
}

/// The state of the files at the last check. One check at a time locks it, on its own thread.
#[derive(Debug, Default)]
struct Files {
    paths: Vec<PathBuf>,
    /// The stamps of the kubeconfigs and of the files that they name.
    stamps: BTreeMap<PathBuf, Stamp>,
    contents: BTreeMap<PathBuf, Content>,
}

/// Identifies one version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: Option<SystemTime>,
    /// Whether its time is old enough that a later change would have another one.
    settled: bool,
}

#[derive(Clone, Debug, Default)]
struct Content {
    good: Option<Kubeconfig>,
    problem: Option<String>,
}

impl Files {
    /// Returns all clusters of the files, if anything changed.
    fn check(&mut self, now: SystemTime) -> Option<Vec<Offer>> {
        let named = self
            .contents
            .iter()
            .filter_map(|(path, content)| content.good.as_ref().map(|good| referenced(path, good)));
        let watched: BTreeSet<PathBuf> =
            self.paths.iter().cloned().chain(named.flatten()).collect();
        let stamps: BTreeMap<PathBuf, Stamp> = watched
            .into_iter()
            .filter_map(|path| Some((Stamp::of(&std::fs::metadata(&path).ok()?, now), path)))
            .map(|(stamp, path)| (path, stamp))
            .collect();
        let is_first = self.contents.is_empty();
        let unsettled = self.stamps.values().any(|stamp| !stamp.settled);
        if !is_first && !unsettled && stamps == self.stamps {
            return None;
        }
        self.stamps = stamps;
        for path in &self.paths {
            let content = self.contents.entry(path.clone()).or_default();
            content.read(path, self.stamps.get(path));
            // Files that it names for the first time are checked from now on.
            for named in content.good.iter().flat_map(|good| referenced(path, good)) {
                if let Ok(metadata) = std::fs::metadata(&named) {
                    self.stamps.entry(named).or_insert_with(|| Stamp::of(&metadata, now));
                }
            }
        }
        Some(self.offers())
    }

    fn offers(&self) -> Vec<Offer> {
        let good = self
            .paths
            .iter()
            .filter_map(|path| Some((path.as_path(), self.contents.get(path)?.good.as_ref()?)));
        let merged = Merged::new(good);
        let contexts = merged.contexts().into_iter().map(|(path, name)| {
            let access = merged.access(name, Trust::Local).map(Arc::new);
            offer(name, path, access)
        });
        let broken = self.paths.iter().filter_map(|path| {
            let content = self.contents.get(path)?;
            let problem = content.problem.as_ref()?;
            let kept = match content.good {
                Some(_) => "; the clusters it had before stay as they were",
                None => "",
            };
            let shown = path.display();
            Some(offer(&shown.to_string(), path, Err(format!("{shown} {problem}{kept}"))))
        });
        contexts.chain(broken).collect()
    }
}

fn offer(
    name: &str,
    path: &Path,
    access: Result<Arc<crate::credentials::Access>, String>,
) -> Offer {
    let place = path.display().to_string();
    Offer {
        name: name.into(),
        source: Source { kind: SourceKind::Kubeconfig, place },
        labels: BTreeMap::new(),
        enabled: true,
        access,
    }
}

impl Stamp {
    fn of(metadata: &Metadata, now: SystemTime) -> Self {
        let changed = metadata.modified().ok();
        let age = changed.and_then(|changed| now.duration_since(changed).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            changed,
            settled: age.is_some_and(|age| age > RACY),
        }
    }
}

impl Content {
    fn read(&mut self, path: &Path, stamp: Option<&Stamp>) {
        let Some(stamp) = stamp else {
            // As in kubectl, a file that does not exist is no error.
            *self = Self::default();
            return;
        };
        // An editor is saving it; the next check will find it complete.
        let begun = stamp.size == 0 && !stamp.settled && self.good.is_some();
        if begun {
            return;
        }
        let mut text = String::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(MOST_FILE).read_to_string(&mut text));
        let parsed = match read {
            Ok(_) => Kubeconfig::parse(&text),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        match parsed {
            Ok(good) => *self = Self { good: Some(good), problem: None },
            Err(problem) => self.problem = Some(problem),
        }
    }
}

#[cfg(test)]
mod tests;

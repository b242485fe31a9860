//! `NamespacePools`: the address pool that each namespace chose, in memory before an ADD asks.
//!
//! Contract:
//! - An answer comes from memory. For an unknown namespace an ADD waits a moment: a pod may be scheduled
//!   before the watch has brought its new namespace.
//! - A pod gets no address of a pool that its namespace may not have chosen: an ADD of a namespace that
//!   stays unknown is refused, and the runtime tries again.
//! - The last known state is kept in a file, so that a node that starts while the API server is away
//!   knows its namespaces.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use objects::{Objects, Watched, Within};
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Snapshot, Stop, Tasks};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::node::kernel_call;
use crate::pool;

/// How long an ADD waits for the API server to bring a namespace, or all of them after the start.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the file is written, at most.
const KEEP: Duration = Duration::from_secs(5);
/// How long a write may take: a file of this size takes milliseconds.
const WRITE: Duration = Duration::from_secs(30);

/// A handle; clones share the state.
#[derive(Clone, Debug)]
pub struct NamespacePools {
    /// None where there are no namespaces: then every pod is of the default pool.
    known: Option<Snapshot<KnownNamespaces>>,
}

/// Every namespace, and the pool that it chose. Those of the file count as not synced.
type Choices = Watched<String, Option<String>>;

#[derive(Clone, Debug)]
struct KnownNamespaces {
    choices: Choices,
    /// The file counts from this moment on: an API server that is there answers sooner.
    believed_from: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("namespace {namespace} is not known on this node yet, nor the pool it chose: {why}")]
pub struct UnknownNamespace {
    pub namespace: String,
    pub why: &'static str,
}

impl NamespacePools {
    /// For a node without namespaces: every pod is of the default pool.
    pub fn none() -> Self {
        Self { known: None }
    }

    /// Follows the Namespaces of an API server until `tasks` stops. Keeps the file in `dir`.
    pub fn watch(objects: Objects, dir: &Path, tasks: &Tasks) -> Self {
        let file = dir.join("namespaces.json");
        let known = Snapshot::new(KnownNamespaces {
            choices: read(&file),
            believed_from: Instant::now() + PATIENCE,
        });
        tasks.spawn("net-namespaces-file", keep(known.subscribe(), file, tasks.clone()));
        tasks.spawn("net-namespaces", watch(objects, known.clone(), tasks.stopping()));
        Self { known: Some(known) }
    }

    /// Returns the pool of a namespace's pods: at once if the namespace is known, else as soon as it is.
    /// Gives up at the deadline, and after some seconds in any case.
    pub async fn pool_of(
        &self,
        namespace: &str,
        deadline: Deadline,
    ) -> Result<String, UnknownNamespace> {
        let Some(known) = &self.known else { return Ok(pool::DEFAULT.to_owned()) };
        let mut changes = known.subscribe();
        let found = async {
            loop {
                let view = known.load();
                match view.choices.get(namespace) {
                    Some(choice) if view.choices.synced || Instant::now() >= view.believed_from => {
                        return choice.clone();
                    }
                    Some(_) => tokio::select! {
                        _ = changes.changed() => {}
                        () = sleep_until(view.believed_from) => {}
                    },
                    None => {
                        changes.changed().await;
                    }
                }
            }
        };
        match deadline.within(2 * PATIENCE).bound(found).await {
            Ok(choice) => Ok(choice.unwrap_or_else(|| pool::DEFAULT.to_owned())),
            Err(_) => {
                let why = if known.read(|known| known.choices.synced) {
                    "the API server has not listed it"
                } else {
                    "the API server has not answered since the start"
                };
                Err(UnknownNamespace { namespace: namespace.to_owned(), why })
            }
        }
    }
}

async fn watch(objects: Objects, known: Snapshot<KnownNamespaces>, stop: Stop) {
    let mut events = objects.watch::<Namespace>(Within::default());
    while let Some(Some(event)) = stop.bound(events.next()).await {
        known.update(|known| known.choices.take(event, |one: Namespace| Some(choice(&one))));
    }
}

fn choice(namespace: &Namespace) -> Option<String> {
    let annotations = namespace.metadata.annotations.as_ref()?;
    let chosen = [pool::ANNOTATION, pool::COIL_ANNOTATION].map(|key| annotations.get(key));
    chosen.into_iter().flatten().find(|pool| !pool.is_empty()).cloned()
}

/// Writes the file when a choice changes.
async fn keep(mut changes: Changes<KnownNamespaces>, file: PathBuf, tasks: Tasks) {
    let stop = tasks.stopping();
    while let Some(view) = stop.bound(changes.changed()).await {
        let next = Instant::now() + KEEP;
        if view.choices.synced {
            let (choices, file) = (view.choices.clone(), file.clone());
            let deadline = Deadline::after(WRITE);
            let write = move || write(&file, &choices);
            match kernel_call(&tasks, "net-namespaces-file", deadline, write).await {
                Ok(Ok(())) => {}
                other => debug!(?other, "the file of namespaces is not written"),
            }
        }
        if stop.bound(sleep_until(next)).await.is_none() {
            return;
        }
    }
}

fn write(file: &Path, choices: &Choices) -> io::Result<()> {
    let choices: BTreeMap<_, _> = choices.iter().collect();
    let new = file.with_extension("json.new");
    fs::write(&new, serde_json::to_vec(&choices)?)?;
    fs::rename(new, file)
}

/// Reads the file. One that cannot be read is as good as none: the API server has the same.
fn read(file: &Path) -> Choices {
    let read = fs::read(file).and_then(|bytes| {
        serde_json::from_slice::<BTreeMap<String, Option<String>>>(&bytes).map_err(io::Error::from)
    });
    match read {
        Ok(choices) => {
            let mut choices: Choices = choices.into_iter().collect();
            choices.synced = false;
            choices
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Choices::default(),
        Err(error) => {
            warn!(file = %file.display(), %error, "the file of namespaces cannot be read");
            Choices::default()
        }
    }
}

#[cfg(test)]
mod tests;

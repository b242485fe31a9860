//! `Facts`: what ADD must know of namespaces, at hand before it asks.
//!
//! Contract:
//! - An answer comes from memory. For a namespace that was not told of yet it is waited a moment: a pod
//!   may be scheduled before a watch has told of its new namespace.
//! - A pod gets no address of a pool that its namespace may not have chosen: a namespace that stays
//!   unknown is a refusal, and the runtime tries again.
//! - What was known last is kept in a file, so that a node that starts while the API server is away
//!   knows its namespaces.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use imbl::OrdMap;
use k8s_openapi::api::core::v1::Namespace;
use objects::{Event, Objects, Within};
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Snapshot, Stop, Tasks};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::claims::name_of;
use crate::pool;

/// How long it is waited for a server to tell of a namespace, or of all after the start.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often what is known is written down, at most.
const KEEP: Duration = Duration::from_secs(5);
/// A file of this size takes milliseconds; a disk that takes longer is left alone.
const WRITE: Duration = Duration::from_secs(30);

/// Clones share what they know.
#[derive(Clone, Debug)]
pub struct Facts {
    /// None: there are no namespaces here.
    known: Option<Snapshot<Known>>,
}

/// Every namespace, and the pool that it chose.
type Choices = OrdMap<String, Option<String>>;

#[derive(Clone, Debug)]
struct Known {
    choices: Choices,
    /// Whether the server has told them all; else they are those of the file.
    synced: bool,
    /// From when on the file is believed: a server that is there tells sooner what is true now.
    believed_from: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("namespace {namespace} is not known on this node yet, nor the pool it chose: {why}")]
pub struct Unknown {
    pub namespace: String,
    pub why: &'static str,
}

impl Facts {
    /// Where there are no namespaces: every pod is of the default pool.
    pub fn none() -> Self {
        Self { known: None }
    }

    /// From the Namespaces of an API server, until `tasks` stops. What was known last is kept in
    /// `dir`, for a start while the server is away.
    pub fn watch(objects: Objects, dir: &Path, tasks: &Tasks) -> Self {
        let file = dir.join("namespaces.json");
        let known = Snapshot::new(Known::of_file(&file, Instant::now() + PATIENCE));
        tasks.spawn("net-namespaces-file", keep(known.subscribe(), file, tasks.clone()));
        tasks.spawn("net-namespaces", watch(objects, known.clone(), tasks.stopping()));
        Self { known: Some(known) }
    }

    /// The pool of a namespace's pods: at once if it is known, else as soon as it is. It is given up
    /// at the deadline, and after some seconds in any case.
    pub async fn pool_of(&self, namespace: &str, deadline: Deadline) -> Result<String, Unknown> {
        let Some(known) = &self.known else { return Ok(pool::DEFAULT.to_owned()) };
        let mut changes = known.subscribe();
        let found = async {
            loop {
                let view = known.load();
                match view.choices.get(namespace) {
                    Some(choice) if view.synced || Instant::now() >= view.believed_from => {
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
                let why = if known.read(|known| known.synced) {
                    "the API server has not told of it"
                } else {
                    "the API server has not answered since the start"
                };
                Err(Unknown { namespace: namespace.to_owned(), why })
            }
        }
    }
}

impl Known {
    fn of_file(file: &Path, believed_from: Instant) -> Self {
        Self { choices: read(file), synced: false, believed_from }
    }
}

async fn watch(objects: Objects, known: Snapshot<Known>, stop: Stop) {
    let mut events = objects.watch::<Namespace>(Within::default());
    while let Some(Some(event)) = stop.bound(events.next()).await {
        known.update(|known| match event {
            Event::Restarted(all) => {
                let all: Choices = all.iter().map(|one| (name_of(one), choice(one))).collect();
                let changed = !known.synced || all != known.choices;
                (known.choices, known.synced) = (all, true);
                changed
            }
            Event::Applied(one) => {
                let choice = choice(&one);
                known.choices.insert(name_of(&one), choice.clone()) != Some(choice)
            }
            Event::Deleted(one) => known.choices.remove(&name_of(&one)).is_some(),
        });
    }
}

fn choice(namespace: &Namespace) -> Option<String> {
    let annotations = namespace.metadata.annotations.as_ref()?;
    annotations.get(pool::ANNOTATION).filter(|pool| !pool.is_empty()).cloned()
}

/// Writes down what is known, when it changes.
async fn keep(mut changes: Changes<Known>, file: PathBuf, tasks: Tasks) {
    let stop = tasks.stopping();
    while let Some(view) = stop.bound(changes.changed()).await {
        let next = Instant::now() + KEEP;
        if view.synced {
            let (choices, file) = (view.choices.clone(), file.clone());
            let deadline = Deadline::after(WRITE);
            let write = move || write(&file, &choices);
            let written = match tasks.spawn_blocking("net-namespaces-file", deadline, write).await {
                Ok(writing) => deadline.bound(writing).await,
                Err(expired) => Err(expired),
            };
            match written {
                Ok(Ok(Ok(()))) => {}
                other => debug!(?other, "what is known of namespaces is not written down"),
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

/// A file that cannot be read is as good as none: the server tells.
fn read(file: &Path) -> Choices {
    let read = fs::read(file).and_then(|bytes| {
        serde_json::from_slice::<BTreeMap<String, Option<String>>>(&bytes).map_err(io::Error::from)
    });
    match read {
        Ok(choices) => choices.into_iter().collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Choices::default(),
        Err(error) => {
            warn!(file = %file.display(), %error, "what was known of namespaces cannot be read");
            Choices::default()
        }
    }
}

#[cfg(test)]
mod tests;

//! `SharedState`: what all replicas must know and nobody else, as JSON in one Secret. Every replica follows
//! the Secret; whoever changes it does so against the version that it read.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::{Error, Event, Expected, Id, Objects, Selector, Version, Within};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stallproof::backoff::Curve;
use stallproof::{Backoff, Deadline, Snapshot, Stop, Tasks};
use tracing::warn;

/// For one request to the store.
const REQUEST: Duration = Duration::from_secs(10);
/// How often what should be so is looked at without a word from anybody.
pub(crate) const LOOK: Duration = Duration::from_secs(60);
pub(crate) const RETRY: Curve =
    Curve { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// How often a change is tried while others write, too.
const ATTEMPTS: usize = 8;
/// The Secret's one key.
const KEY: &str = "state.json";

/// The contents of the Secret.
pub(crate) trait State:
    Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The Secret's name.
    const SECRET: &'static str;
    /// Tells our Secret from others, so that only it is watched.
    const LABEL: (&'static str, &'static str);
    /// The name of the task that follows it.
    const TASK: &'static str;

    /// Whether it can be used. What cannot is made anew.
    fn is_whole(&self) -> bool;
}

/// Why a state was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotChanged {
    #[error("the Secret is not there yet")]
    Missing,
    #[error(transparent)]
    Store(#[from] Error),
}

/// The state as this replica knows it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedState<T> {
    secret: Id,
    /// Written by the watch and by `change`; read by everybody.
    current: Snapshot<Option<T>>,
}

impl<T: State> SharedState<T> {
    /// Follows the Secret in `namespace` until `tasks` stop.
    pub(crate) fn follow(objects: &Objects, namespace: &str, tasks: &Tasks) -> Self {
        let secret = Id::namespaced(namespace, T::SECRET);
        let state = Self { secret, current: Snapshot::new(None) };
        let labels = Selector::label(T::LABEL.0, T::LABEL.1).expect("a constant");
        let within = Within { namespace: Some(namespace.to_owned()), labels: Some(labels) };
        let mut watch = objects.watch::<Secret>(within);
        let (following, stop) = (state.clone(), tasks.stopping());
        tasks.spawn(T::TASK, async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                following.take(event);
            }
        });
        state
    }

    fn take(&self, event: Event<Secret>) {
        let found = match event {
            Event::Restarted(all) => all.into_iter().find(|secret| Id::of(secret) == self.secret),
            Event::Applied(secret) => Some(secret).filter(|secret| Id::of(secret) == self.secret),
            // The leader makes another; until then this one holds.
            Event::Deleted(_) => None,
        };
        if let Some(state) = found.as_ref().and_then(parse) {
            self.current.publish(Some(state));
        }
    }

    pub(crate) fn current(&self) -> &Snapshot<Option<T>> {
        &self.current
    }

    pub(crate) fn secret(&self) -> &Id {
        &self.secret
    }

    /// Takes one step, if `next` says that one is due; returns what is kept then.
    pub(crate) async fn step<E>(
        &self,
        objects: &Objects,
        next: impl FnOnce(Option<&T>) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, Box<dyn std::error::Error + Send + Sync>>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let found = objects.get::<Secret>(&self.secret, Deadline::after(REQUEST)).await?;
        let Some(next) = next(found.as_ref().and_then(parse).as_ref())? else { return Ok(None) };
        let (secret, deadline) = (self.with(&next), Deadline::after(REQUEST));
        match found {
            None => objects.create(&secret, deadline).await?,
            Some(found) => objects.apply(&secret, same_version(&found), deadline).await?,
        };
        Ok(Some(next))
    }

    /// Changes what is there, however often others do so meanwhile.
    pub(crate) async fn change(
        &self,
        objects: &Objects,
        deadline: Deadline,
        change: impl Fn(&mut T),
    ) -> Result<(), NotChanged> {
        let mut attempt = 1;
        loop {
            let found = objects.get::<Secret>(&self.secret, deadline).await?;
            let found = found.ok_or(NotChanged::Missing)?;
            let mut state = parse::<T>(&found).ok_or(NotChanged::Missing)?;
            change(&mut state);
            match objects.apply(&self.with(&state), same_version(&found), deadline).await {
                Ok(_) => {
                    // The watch would bring it, later.
                    self.current.publish(Some(state));
                    return Ok(());
                }
                Err(Error::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn with(&self, state: &T) -> Secret {
        let state = serde_json::to_vec(state).expect("texts and times can be written as JSON");
        let labels = [(T::LABEL.0.to_owned(), T::LABEL.1.to_owned())];
        Secret {
            metadata: ObjectMeta {
                name: Some(self.secret.name.clone()),
                namespace: self.secret.namespace.clone(),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), ByteString(state))].into()),
            ..Secret::default()
        }
    }
}

fn same_version(found: &Secret) -> Expected {
    Expected::Version(Version(found.resource_version().unwrap_or_default()))
}

fn parse<T: State>(secret: &Secret) -> Option<T> {
    let state = &secret.data.as_ref()?.get(KEY)?.0;
    let state: T = serde_json::from_slice(state).ok()?;
    state.is_whole().then_some(state)
}

/// Takes steps until `stop`: at once while there are more to take, every `look` when there are none.
/// `what` is said once when steps begin to fail.
pub(crate) async fn keep_stepping<F>(
    stop: Stop,
    look: Duration,
    what: &'static str,
    mut step: impl FnMut() -> F,
) where
    F: Future<Output = Result<bool, Box<dyn std::error::Error + Send + Sync>>>,
{
    let mut backoff = Backoff::new(RETRY);
    loop {
        let wait = match step().await {
            Ok(more) => {
                backoff.succeeded();
                if more { Duration::ZERO } else { look }
            }
            Err(error) => {
                let retry = backoff.failed();
                if retry.attempt == 1 {
                    let error = stallproof::sentence(&*error);
                    warn!(error, "cannot renew {what}, trying on");
                }
                retry.wait
            }
        };
        if stop.bound(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

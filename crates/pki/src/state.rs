//! `SharedState`: what all replicas must know and nobody else, as JSON in one Secret. Every replica follows
//! the Secret; whoever changes it does so against the version that it read.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use objects::{Attempt, Error, Expected, Id, Next, Objects, Reconciler, Selector, Version};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stallproof::{Deadline, Snapshot, Tasks};
use tracing::info;

use crate::certificates::Unmade;

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
    #[error(transparent)]
    Unmade(#[from] Unmade),
}

/// The state as this replica knows it. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedState<T> {
    secret: Id,
    /// Written by the watch and by `change`; read by everybody.
    current: Snapshot<Option<T>>,
}

impl<T: State> SharedState<T> {
    /// Follows the Secret in `namespace` until `tasks` stop. While there is none that can be used, the
    /// last one holds: the leader makes another.
    pub(crate) fn follow(objects: &Objects, namespace: &str, tasks: &Tasks) -> Self {
        let secret = Id::namespaced(namespace, T::SECRET);
        let labels = Selector::label(T::LABEL.0, T::LABEL.1).expect("a constant");
        let read = |secret: Option<Secret>| parse(&secret?);
        let current = objects.watched_one(&secret, Some(labels), tasks, read);
        Self { secret, current }
    }

    pub(crate) fn current(&self) -> &Snapshot<Option<T>> {
        &self.current
    }

    pub(crate) fn secret(&self) -> &Id {
        &self.secret
    }

    /// Takes one step, if `next` says that one is due; returns what is kept then.
    pub(crate) async fn step(
        &self,
        objects: &Objects,
        deadline: Deadline,
        next: impl FnOnce(Option<&T>) -> Result<Option<T>, Unmade>,
    ) -> Result<Option<T>, NotChanged> {
        let found = objects.get::<Secret>(&self.secret, deadline).await?;
        let Some(next) = next(found.as_ref().and_then(parse).as_ref())? else { return Ok(None) };
        let secret = self.with(&next);
        match found {
            None => objects.create(&secret, deadline).await?,
            Some(found) => objects.apply(&secret, same_version(&found), deadline).await?,
        };
        Ok(Some(next))
    }

    /// What the Secret says at this moment, which the watch may not have brought yet.
    pub(crate) async fn read_now(
        &self,
        objects: &Objects,
        deadline: Deadline,
    ) -> Result<Option<T>, NotChanged> {
        Ok(objects.get::<Secret>(&self.secret, deadline).await?.as_ref().and_then(parse))
    }

    /// Changes what is there, however often others do so meanwhile; returns what is kept then.
    pub(crate) async fn change(
        &self,
        objects: &Objects,
        deadline: Deadline,
        change: impl Fn(&mut T),
    ) -> Result<T, NotChanged> {
        let mut attempt = 1;
        loop {
            let found = objects.get::<Secret>(&self.secret, deadline).await?;
            let found = found.ok_or(NotChanged::Missing)?;
            let mut state = parse::<T>(&found).ok_or(NotChanged::Missing)?;
            change(&mut state);
            match objects.apply(&self.with(&state), same_version(&found), deadline).await {
                Ok(_) => {
                    // The watch would bring it, later.
                    self.current.publish(Some(state.clone()));
                    return Ok(state);
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

/// Takes step after step, as long as one is due.
pub(crate) struct Renewal<T, N> {
    pub(crate) objects: Objects,
    pub(crate) state: SharedState<T>,
    pub(crate) next: N,
}

impl<T, N> Reconciler for Renewal<T, N>
where
    T: State,
    N: FnMut(Option<&T>) -> Result<Option<T>, Unmade> + Send + 'static,
{
    type Error = NotChanged;

    async fn reconcile(&mut self, attempt: &Attempt) -> Result<Next, NotChanged> {
        let stepped = self.state.step(&self.objects, attempt.deadline, &mut self.next).await?;
        if stepped.is_some() {
            info!(secret = %self.state.secret, "renewed");
            // There may be more to do.
            return Ok(Next::Within(std::time::Duration::ZERO));
        }
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests;

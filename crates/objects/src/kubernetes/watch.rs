//! Watches of the store on an API server: [`crate::watching`], told in the store's words. Failures are
//! counted; they are logged when they begin, when their nature changes, and when they are over.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stallproof::Deadline;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::error::Call;
use super::{list_kept, read};
use crate::Within;
use crate::store::{Error, Event, NotServed, Type, Version};
use crate::watching::{self, Change, Failure, Line, Session, Source, WatchTiming};

#[derive(Clone, Debug, Default)]
pub(super) struct Meters {
    failures: Counter,
    restarts: Counter,
}

impl Meters {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "objects_watch_failures",
            "Watch sessions that could not be opened, were cut or went silent",
            self.failures.clone(),
        );
        registry.register(
            "objects_watch_restarts",
            "Watches that began again with a full list after a gap",
            self.restarts.clone(),
        );
    }
}

/// The objects of one type, as an API server lists and watches them, and what `keep` keeps of each.
pub(super) struct Objects<F> {
    pub(super) api: Api<DynamicObject>,
    pub(super) of: Type,
    pub(super) within: Within,
    /// How many objects are on a page of a list.
    pub(super) page: u32,
    pub(super) keep: F,
    pub(super) timing: WatchTiming,
    pub(super) meters: Meters,
    /// Since when it fails, and how.
    pub(super) trouble: Option<(Instant, String)>,
}

impl<T, F> Objects<F>
where
    T: Send + 'static,
    F: Fn(DynamicObject) -> T + Clone + Send + Sync + 'static,
{
    pub(super) fn watch(self, after: Option<Version>) -> BoxStream<'static, Event<T>> {
        // A version that is no number is one of another engine's.
        let after = after.map(|Version(text)| text).filter(|text| text.parse::<u64>().is_ok());
        let timing = self.timing;
        let event = async |change| match change {
            Change::Listed(all) => Some(Event::Restarted(all)),
            Change::Applied(object) => Some(Event::Applied(object)),
            Change::Deleted(object) => Some(Event::Deleted(object)),
            Change::Interrupted { .. } | Change::Resumed => None,
        };
        watching::watch(self, after, timing).filter_map(event).boxed()
    }
}

impl<T, F> Source for Objects<F>
where
    T: Send + 'static,
    F: Fn(DynamicObject) -> T + Clone + Send + Sync + 'static,
{
    type List = Vec<T>;
    type Item = T;

    async fn list(&mut self) -> Result<(Vec<T>, String), Failure> {
        let call = Call::on_all("listing", &self.of);
        let page = || Deadline::after(self.timing.page);
        let listed = list_kept(&self.api, &call, &self.within, self.page, page, &self.keep).await;
        let (items, version) = listed?;
        Ok((items, version.0))
    }

    async fn open(&mut self, version: &str, seconds: u32) -> Result<Session<T>, Failure> {
        let call = Call::on_all("watching", &self.of);
        let params = WatchParams {
            label_selector: self.within.labels.as_ref().map(ToString::to_string),
            field_selector: self.within.field_selector(),
            timeout: Some(seconds),
            ..WatchParams::default()
        };
        let deadline = Deadline::after(self.timing.open);
        match call.bound(deadline, self.api.watch(&params, version)).await? {
            Ok(session) => {
                let (of, keep) = (self.of.clone(), self.keep.clone());
                let line = move |event: kube::Result<_>| event.map(|event| line(&of, event, &keep));
                Ok(session.map(line).map(cut).boxed())
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 410 | 422) => {
                Err(Failure::Forgotten)
            }
            Err(error) => Err(call.failed(error).into()),
        }
    }

    fn failed(&mut self, failure: &Failure, _wait: Duration) {
        self.meters.failures.inc();
        if matches!(failure, Failure::Forgotten | Failure::Reported(_)) {
            self.meters.restarts.inc();
        }
        let kind = self.of.kind;
        let cause = std::error::Error::source(failure);
        let said = failure.to_string();
        let known = self.trouble.as_ref().is_some_and(|(_, before)| *before == said);
        if !known && failure.is_of_a_kind_that_is_not_ours_to_install() {
            debug!(kind, failure = said, cause, "a kind is not served; it is looked for again");
        } else if !known {
            warn!(kind, failure = said, cause, "a watch is interrupted");
        } else {
            debug!(kind, failure = said, cause, "a watch is still interrupted");
        }
        let since = self.trouble.take().map_or_else(Instant::now, |(since, _)| since);
        self.trouble = Some((since, said));
    }

    fn works(&mut self) {
        if let Some((since, _)) = self.trouble.take() {
            let interrupted_ms = since.elapsed().as_millis();
            info!(kind = self.of.kind, interrupted_ms, "a watch goes on");
        }
    }
}

fn line<T>(
    of: &Type,
    event: WatchEvent<DynamicObject>,
    keep: &impl Fn(DynamicObject) -> T,
) -> Line<T> {
    let changed = |mut object: DynamicObject| {
        object.types.get_or_insert_with(|| of.types());
        let version = object.resource_version();
        vec![(keep(read(object)), version)]
    };
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Line::Applied(changed(object)),
        WatchEvent::Deleted(object) => Line::Deleted(changed(object)),
        WatchEvent::Bookmark(bookmark) => Line::Bookmark(Some(bookmark.metadata.resource_version)),
        WatchEvent::Error(status) => Line::Error(status),
    }
}

fn cut<T>(line: kube::Result<T>) -> Result<T, Failure> {
    line.map_err(|error| Failure::Cut(error.into()))
}

impl Failure {
    /// Whether a kind is missing that others bring: its absence is nobody's fault.
    fn is_of_a_kind_that_is_not_ours_to_install(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if matches!(error.downcast_ref(), Some(NotServed::Theirs(..))) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Asking(error.into())
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

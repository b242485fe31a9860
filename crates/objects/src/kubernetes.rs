//! The Kubernetes engine: any API server, through kube.
//!
//! Contract, beside that of [`Objects`]:
//! - Every call ends at its deadline: kube's client has no read timeout of its own. A write that
//!   ended in `TooLate` or `Unavailable` may have been made all the same.
//! - Writes are server-side applies under one field manager, forced: what we send becomes ours. A
//!   label, annotation, finalizer or field that we sent before and send no more goes away, whether
//!   it came with `create` or with `apply`; what other managers set stays. Who reads an object and
//!   applies it whole makes everything in it their own.
//! - The status has a field manager of its own (`…-status`): servers before 1.22 keep one set of
//!   fields for both endpoints, and an apply to one would give up the fields of the other.
//! - `managedFields` are the server's bookkeeping, often larger than the object: they are dropped
//!   as soon as they are read.
//! - A definition that is not installed is `Unavailable` with the command that installs it, never
//!   an absent object; it is asked for anew each time, so it may come late.
//! - A watch never ends, see [`watch`].

use std::fmt;

use futures::FutureExt;
use futures::stream::BoxStream;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::{Api, ResourceExt};
use prometheus_client::registry::Registry;
use serde_json::json;
use stallproof::Deadline;

mod error;
mod managed;
mod watch;

#[cfg(feature = "fuzzing")]
pub(crate) use watch::fuzz;

use error::Call;
use watch::Meters;

use crate::store::{
    Answer, Deletion, Done, Engine, Error, Event, Expected, Id, Keep, Kept, Listing, Objects,
    Operation, Type, Version, Within,
};
use crate::watching::WatchTiming;

/// The number of objects on a page of a list. A page is one answer, whole in memory on both sides;
/// Kubernetes' own clients use this number.
const PAGE: u32 = 500;

/// How often a write that expects nothing is made again when others come in between. The server
/// does so itself a few times; a conflict that stays is somebody's decision, not a race.
const ROUNDS: u32 = 5;

impl Objects {
    /// Opens the store of an API server. `field_manager` owns what is written, so every process of one
    /// installation passes the same.
    ///
    /// Build the client with `default_retry` off: kube would else wait out a server's "too many
    /// requests" by itself, and the caller sees `TooLate` where it could have known `Busy`.
    pub fn kubernetes(client: kube::Client, field_manager: &str) -> Self {
        Self::on(Kubernetes::new(client, field_manager, WatchTiming::default()))
    }
}

pub(crate) struct Kubernetes {
    client: kube::Client,
    manager: String,
    status_manager: String,
    timing: WatchTiming,
    meters: Meters,
}

impl Kubernetes {
    pub(crate) fn new(client: kube::Client, manager: &str, timing: WatchTiming) -> Self {
        Self {
            client,
            manager: manager.to_owned(),
            status_manager: format!("{manager}-status"),
            timing,
            meters: Meters::default(),
        }
    }

    /// The API of a kind in one namespace, in all of them, or of a cluster-scoped kind.
    fn api(&self, of: &Type, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &of.resource),
            None => Api::all_with(self.client.clone(), &of.resource),
        }
    }

    fn api_of(&self, of: &Type, id: &Id) -> Api<DynamicObject> {
        self.api(of, id.namespace.as_deref())
    }

    async fn find(
        &self,
        of: &Type,
        id: &Id,
        deadline: Deadline,
    ) -> Result<Option<DynamicObject>, Error> {
        let api = self.api_of(of, id);
        let call = Call::on("reading", of, id);
        match call.until(deadline, api.get(&id.name)).await {
            Ok(found) => Ok(Some(read(found))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn make(
        &self,
        of: &Type,
        object: &DynamicObject,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let id = Id::of(object);
        let api = self.api_of(of, &id);
        let params =
            PostParams { field_manager: Some(self.manager.clone()), ..PostParams::default() };
        let body = desired(object, None);
        let made = Call::on("creating", of, &id).until(deadline, api.create(&params, &body)).await;
        made.map(read)
    }

    async fn apply_whole(
        &self,
        of: &Type,
        object: DynamicObject,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let id = Id::of(&object);
        let api = self.api_of(of, &id);
        let call = Call::on("applying", of, &id);
        let params = PatchParams::apply(&self.manager).force();
        let mut at = self.precondition(of, &object, &expected, deadline).await?;
        let mut rounds = 0..if expected == Expected::Any { ROUNDS } else { 0 };
        loop {
            let body = desired(&object, at.as_ref());
            let patch = Patch::Apply(&body);
            let applied = match call.until(deadline, api.patch(&id.name, &params, &patch)).await {
                Err(Error::Conflict { .. }) if rounds.next().is_some() => continue,
                other => other?,
            };
            // Fields that came with `create` count as another manager's, and would outlive this
            // apply: make them ours, and let the next round drop those that were not sent.
            let Some(entries) = managed::taken_over(applied.managed_fields(), &self.manager) else {
                return Ok(read(applied));
            };
            let version = applied.resource_version();
            let patch = Patch::Merge(json!({
                "metadata": { "resourceVersion": version, "managedFields": entries },
            }));
            let merge = PatchParams::default();
            let merged = api.patch(&id.name, &merge, &patch);
            match call.until(deadline, merged).await {
                Ok(merged) if at.is_some() => at = Some(Precondition::of(&merged)),
                Ok(_) => {}
                Err(Error::Conflict { .. }) if rounds.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn apply_status(
        &self,
        of: &Type,
        object: &DynamicObject,
        expected: &Expected,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let id = Id::of(object);
        let api = self.api_of(of, &id);
        let call = Call::on("applying the status of", of, &id);
        let params = PatchParams::apply(&self.status_manager).force();
        let at = self.precondition(of, object, expected, deadline).await?;
        let patch = Patch::Apply(desired_status(object, at.as_ref()));
        let mut rounds = 0..if *expected == Expected::Any { ROUNDS } else { 0 };
        loop {
            match call.until(deadline, api.patch_status(&id.name, &params, &patch)).await {
                Err(Error::Conflict { .. }) if rounds.next().is_some() => {}
                answer => return answer.map(read),
            }
        }
    }

    /// Merges the annotation in. An apply would have to send, and so to own, the whole object.
    async fn annotate(
        &self,
        of: &Type,
        current: &DynamicObject,
        key: &str,
        value: Option<String>,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let id = Id::of(current);
        let api = self.api_of(of, &id);
        let Precondition { version, uid } = Precondition::of(current);
        let patch = Patch::Merge(json!({ "metadata": {
            "annotations": { key: value }, "resourceVersion": version, "uid": uid,
        } }));
        let params =
            PatchParams { field_manager: Some(self.manager.clone()), ..PatchParams::default() };
        let call = Call::on("annotating", of, &id);
        call.until(deadline, api.patch(&id.name, &params, &patch)).await.map(read)
    }

    async fn delete(
        &self,
        of: &Type,
        id: &Id,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<Deletion, Error> {
        let api = self.api_of(of, id);
        let mut params = DeleteParams::background();
        if let Expected::Version(Version(version)) = expected {
            let version = Some(version);
            params.preconditions = Some(Preconditions { resource_version: version, uid: None });
        }
        let call = Call::on("deleting", of, id);
        let answer = call.until(deadline, api.delete(&id.name, &params)).await?;
        // The object, if it is still there; else no more than that it worked.
        let holding = answer.left().and_then(|object| object.metadata.finalizers);
        let holding = holding.filter(|finalizers| !finalizers.is_empty());
        Ok(holding.map_or(Deletion::Gone, Deletion::Waiting))
    }

    /// The precondition that makes the server compare a write with the stored object. A version alone
    /// would not do: some servers create an object that is applied with a version and does not exist.
    async fn precondition(
        &self,
        of: &Type,
        object: &DynamicObject,
        expected: &Expected,
        deadline: Deadline,
    ) -> Result<Option<Precondition>, Error> {
        let Expected::Version(version) = expected else { return Ok(None) };
        if let Some(uid) = object.uid() {
            return Ok(Some(Precondition { version: version.0.clone(), uid }));
        }
        let id = Id::of(object);
        let found = self.find(of, &id, deadline).await?;
        let at = found.as_ref().map(Precondition::of).filter(|at| at.version == version.0);
        at.map(Some).ok_or(Error::Conflict { kind: of.kind, id })
    }
}

/// The state of an object that a write is meant for.
struct Precondition {
    version: String,
    uid: String,
}

impl Precondition {
    fn of(object: &DynamicObject) -> Self {
        Self {
            version: object.resource_version().unwrap_or_default(),
            uid: object.uid().unwrap_or_default(),
        }
    }
}

/// The object without the fields that the server sets.
fn desired(object: &DynamicObject, at: Option<&Precondition>) -> DynamicObject {
    let metadata = ObjectMeta {
        annotations: object.metadata.annotations.clone(),
        labels: object.metadata.labels.clone(),
        finalizers: object.metadata.finalizers.clone(),
        owner_references: object.metadata.owner_references.clone(),
        ..identity(object, at)
    };
    let mut data = object.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    DynamicObject { types: object.types.clone(), metadata, data }
}

/// The object's identity and its status, without anything else.
fn desired_status(object: &DynamicObject, at: Option<&Precondition>) -> DynamicObject {
    let status = object.data.get("status").filter(|status| !status.is_null());
    let data = status.map_or_else(|| json!({}), |status| json!({ "status": status }));
    DynamicObject { types: object.types.clone(), metadata: identity(object, at), data }
}

fn identity(object: &DynamicObject, at: Option<&Precondition>) -> ObjectMeta {
    ObjectMeta {
        name: object.metadata.name.clone(),
        namespace: object.metadata.namespace.clone(),
        resource_version: at.map(|at| at.version.clone()),
        uid: at.map(|at| at.uid.clone()),
        ..ObjectMeta::default()
    }
}

/// Drops the server's bookkeeping from an object that was read.
fn read(mut object: DynamicObject) -> DynamicObject {
    object.metadata.managed_fields = None;
    object
}

/// Lists all objects, page by page, each within the deadline that `page` makes. The pages of one list
/// have one version; when the server has forgotten that version, the list is read again in one piece.
async fn list_all(
    api: &Api<DynamicObject>,
    call: &Call<'_>,
    within: &Within,
    page: impl Fn() -> Deadline,
) -> Result<Listing<DynamicObject>, Error> {
    let (items, version) = list_kept(api, call, within, PAGE, page, |object| object).await?;
    Ok(Listing { items, version })
}

/// As [`list_all`], with what `keep` makes of each object as soon as its page is there.
async fn list_kept<T>(
    api: &Api<DynamicObject>,
    call: &Call<'_>,
    within: &Within,
    limit: u32,
    page: impl Fn() -> Deadline,
    mut keep: impl FnMut(DynamicObject) -> T,
) -> Result<(Vec<T>, Version), Error> {
    let mut params = ListParams {
        label_selector: within.labels.as_ref().map(ToString::to_string),
        field_selector: within.field_selector(),
        limit: Some(limit),
        ..ListParams::default()
    };
    let mut items = Vec::new();
    loop {
        let answer = call.bound(page(), api.list(&params)).await?;
        let list = match answer {
            Err(kube::Error::Api(status)) if status.code == 410 && params.limit.is_some() => {
                items.clear();
                params.limit = None;
                params.continue_token = None;
                continue;
            }
            other => other.map_err(|error| call.failed(error))?,
        };
        items.extend(list.items.into_iter().map(|mut object| {
            // The items of a list do not say what they are.
            object.types.get_or_insert_with(|| call.of.types());
            keep(read(object))
        }));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => {
                let version = Version(list.metadata.resource_version.unwrap_or_default());
                return Ok((items, version));
            }
        }
    }
}

impl Engine for Kubernetes {
    fn register(&self, registry: &mut Registry) {
        self.meters.register(registry);
    }

    fn get<'a>(
        &'a self,
        of: Type,
        id: &'a Id,
        deadline: Deadline,
    ) -> Answer<'a, Option<DynamicObject>> {
        async move { self.find(&of, id, deadline).await }.boxed()
    }

    fn list<'a>(
        &'a self,
        of: Type,
        within: &'a Within,
        deadline: Deadline,
    ) -> Answer<'a, Listing<DynamicObject>> {
        let api = self.api(&of, within.namespace.as_deref());
        async move { list_all(&api, &Call::on_all("listing", &of), within, || deadline).await }
            .boxed()
    }

    fn watch(
        &self,
        of: Type,
        within: Within,
        after: Option<Version>,
    ) -> BoxStream<'static, Event<DynamicObject>> {
        let api = self.api(&of, within.namespace.as_deref());
        let (timing, meters) = (self.timing, self.meters.clone());
        let keep = |object: DynamicObject| object;
        watch::Objects { api, of, within, page: PAGE, keep, timing, meters, trouble: None }
            .watch(after)
    }

    fn watch_kept(&self, of: Type, page: u32, keep: Keep) -> BoxStream<'static, Event<Kept>> {
        let api = self.api(&of, None);
        let (timing, meters, within) = (self.timing, self.meters.clone(), Within::default());
        let keep = move |object: DynamicObject| keep(object);
        watch::Objects { api, of, within, page, keep, timing, meters, trouble: None }.watch(None)
    }

    fn visit<'a>(
        &'a self,
        of: Type,
        page: u32,
        each: &'a (dyn Fn() -> Deadline + Send + Sync),
        visit: &'a mut (dyn FnMut(DynamicObject) + Send),
    ) -> Answer<'a, ()> {
        let api = self.api(&of, None);
        async move {
            let (call, within) = (Call::on_all("listing", &of), Within::default());
            list_kept(&api, &call, &within, page, each, visit).await.map(drop)
        }
        .boxed()
    }

    fn write(&self, of: Type, operation: Operation, deadline: Deadline) -> Answer<'_, Done> {
        async move {
            match operation {
                Operation::Create(object) => {
                    self.make(&of, &object, deadline).await.map(Done::from)
                }
                Operation::Apply(object, expected) => {
                    self.apply_whole(&of, object, expected, deadline).await.map(Done::from)
                }
                Operation::ApplyStatus(object, expected) => {
                    self.apply_status(&of, &object, &expected, deadline).await.map(Done::from)
                }
                Operation::Annotate { current, key, value } => {
                    self.annotate(&of, &current, &key, value, deadline).await.map(Done::from)
                }
                Operation::Delete(id, expected) => {
                    self.delete(&of, &id, expected, deadline).await.map(Done::Deletion)
                }
            }
        }
        .boxed()
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").field("manager", &self.manager).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;

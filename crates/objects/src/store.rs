//! `Objects`: the few operations both engines have, and their values.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, TypeMeta};
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stallproof::Deadline;

use crate::{Selector, metadata};

/// A type that the store keeps: one of ours, or one of Kubernetes' own (`Secret`, `Lease`).
pub trait Kind:
    kube::Resource<DynamicType = ()>
    + Clone
    + PartialEq
    + fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The kind's name, as in `kind:`.
    const NAME: &'static str;
    /// Whether `metadata.namespace` is part of its identity.
    const NAMESPACED: bool;

    /// Checks everything but the status, whatever the server's schema can express, and answers all
    /// problems at once.
    fn check(&self) -> Result<(), Invalid>;

    /// Checks the status that is to be written, and nothing else: it is the status that says what is
    /// wrong with the rest.
    fn check_status(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// Identifies an object of a kind: its namespace and its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// None for cluster-scoped kinds.
    pub namespace: Option<String>,
    pub name: String,
}

impl Id {
    pub fn cluster(name: impl Into<String>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    pub fn of(object: &impl ResourceExt) -> Self {
        Self { namespace: object.namespace(), name: object.name_any() }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A `resourceVersion`: a point in an object's or a list's history. Two of them are equal or not, and
/// nothing more can be said of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub String);

/// Selects some of a kind's objects; by default all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// None: all namespaces.
    pub namespace: Option<String>,
    pub labels: Option<Selector>,
    /// The one of this name. Who may read no other is asked for nothing more.
    pub name: Option<String>,
    /// The pods that are bound to this node; of no other kind.
    pub node: Option<String>,
}

impl Within {
    /// As Kubernetes writes a selection by name.
    pub(crate) fn field_selector(&self) -> Option<String> {
        let name = self.name.as_ref().map(|name| format!("metadata.name={name}"));
        name.or_else(|| self.node.as_ref().map(|node| format!("spec.nodeName={node}")))
    }
}

/// All objects that were selected, at one version.
#[derive(Clone, Debug)]
pub struct Listing<K> {
    pub items: Vec<K>,
    pub version: Version,
}

/// What an apply expects to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The object may be there in any version, or not at all.
    Any,
    /// The object has exactly this version; anything else is a conflict.
    Version(Version),
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<K> {
    /// All objects there are: at the start, and after a gap. An object that is not among them is gone.
    Restarted(Vec<K>),
    Applied(K),
    Deleted(K),
}

/// The result of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    Gone,
    /// The object is marked for deletion; these finalizers hold it.
    Waiting(Vec<String>),
}

/// All problems of an object, each a field and a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Invalid(pub Vec<(String, String)>);

impl Invalid {
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.0.push((field.into(), problem.into()));
    }

    pub fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (field, problem)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{field}: {problem}")?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} {id} already exists")]
    Exists { kind: &'static str, id: Id },
    #[error("{kind} {id} is not there")]
    NotFound { kind: &'static str, id: Id },
    #[error("{kind} {id} was changed by somebody else; read it again")]
    Conflict { kind: &'static str, id: Id },
    #[error("{kind} {id} is invalid: {problems}")]
    Invalid { kind: &'static str, id: Id, problems: Invalid },
    /// The caller lacks a permission, or no longer leads.
    #[error("{doing}: not allowed: {why}")]
    Forbidden { doing: String, why: String },
    #[error("the store is busy; come back in {retry_after:?}")]
    Busy { retry_after: Duration },
    #[error("{doing}: no answer within the deadline")]
    TooLate { doing: String },
    /// The store cannot be reached or cannot write; nothing acknowledged is lost.
    #[error("{doing}: the store is not available")]
    Unavailable {
        doing: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A kind that an API server does not serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotServed {
    #[error(
        "the definition of {0} is not there: run `fairlead install`, or `fairlead crds | kubectl \
         apply -f -`"
    )]
    Ours(&'static str),
    #[error("the server does not serve {0} of {1}")]
    Theirs(&'static str, String),
}

impl Error {
    /// Whether the server does not serve the kind.
    pub fn is_not_served(&self) -> bool {
        let Self::Unavailable { source, .. } = self else { return false };
        source.downcast_ref::<NotServed>().is_some()
    }

    /// The kind of ours whose definition the server does not have, if that is what is wrong.
    pub fn missing_definition(&self) -> Option<&'static str> {
        let Self::Unavailable { source, .. } = self else { return None };
        match source.downcast_ref() {
            Some(NotServed::Ours(kind)) => Some(kind),
            _ => None,
        }
    }
}

/// The store of objects. Clones share their engine.
#[derive(Clone, Debug)]
pub struct Objects(Arc<dyn Engine>);

impl Objects {
    pub(crate) fn on(engine: impl Engine + 'static) -> Self {
        Self(Arc::new(engine))
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.0
    }

    /// Whether both are handles of one store.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether no other process can write to the store, and nothing but Fairlead reads it.
    pub fn is_exclusive(&self) -> bool {
        self.0.exclusive()
    }

    /// Registers the engine's metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.0.register(registry);
    }

    pub async fn get<K: Kind>(&self, id: &Id, deadline: Deadline) -> Result<Option<K>, Error> {
        sane::<K>("reading", id, deadline)?;
        let found = self.0.get(Type::of::<K>(), id, deadline).await?;
        found.map(typed).transpose()
    }

    pub async fn list<K: Kind>(
        &self,
        within: &Within,
        deadline: Deadline,
    ) -> Result<Listing<K>, Error> {
        in_time(deadline, || format!("listing {}", K::NAME))?;
        let Listing { items, version } = self.0.list(Type::of::<K>(), within, deadline).await?;
        let items = items.into_iter().map(typed).collect::<Result<_, _>>()?;
        Ok(Listing { items, version })
    }

    /// Tells everything there is, then every change.
    pub fn watch<K: Kind>(&self, within: Within) -> Watch<K> {
        Watch::new(self.0.watch(Type::of::<K>(), within, None))
    }

    /// Tells every change after `version`, or begins with everything when that is too long ago.
    pub fn watch_after<K: Kind>(&self, within: Within, version: Version) -> Watch<K> {
        Watch::new(self.0.watch(Type::of::<K>(), within, Some(version)))
    }

    /// Tells what `keep` keeps of each object of a kind, then every change. Of a list no more than `page`
    /// objects are held whole at a time, so that a kind with large objects costs what is kept of them. An
    /// object of which nothing is kept is left out; of one that is deleted the id is told.
    pub fn watch_kept<T: Send + 'static>(
        &self,
        of: &UntypedKind,
        page: u32,
        keep: impl Fn(DynamicObject) -> Option<T> + Send + Sync + 'static,
    ) -> KeptWatch<T> {
        let keep: Keep = Arc::new(move |object| {
            let id = Id::of(&object);
            Kept { id, kept: keep(object).map(|kept| Box::new(kept) as Box<dyn Any + Send>) }
        });
        KeptWatch { events: self.0.watch_kept(of.erased(), page, keep), kept: PhantomData }
    }

    /// Gives each object of a kind to `visit`, page by page. Every page has the deadline that `each` makes.
    pub async fn visit(
        &self,
        of: &UntypedKind,
        page: u32,
        each: impl Fn() -> Deadline + Send + Sync,
        mut visit: impl FnMut(DynamicObject) + Send,
    ) -> Result<(), Error> {
        self.0.visit(of.erased(), page, &each, &mut visit).await
    }

    /// Creates an object. Exactly one of many creators wins; the others are told `Exists`.
    pub async fn create<K: Kind>(&self, object: &K, deadline: Deadline) -> Result<K, Error> {
        let object = checked("creating", object, K::check, deadline)?;
        self.write(Operation::Create(object), deadline).await
    }

    /// Makes labels, annotations, finalizers, owners and spec what `object` says, creating it if
    /// nothing is there and nothing was expected; the status is left alone.
    pub async fn apply<K: Kind>(
        &self,
        object: &K,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<K, Error> {
        let object = checked("applying", object, K::check, deadline)?;
        self.write(Operation::Apply(object, expected), deadline).await
    }

    /// Applies without checking the spec, for callers who change nothing but labels, annotations,
    /// finalizers or owners of an object that they read: what is wrong with its spec is not their fault,
    /// and must not keep a finalizer in its place.
    pub async fn apply_metadata<K: Kind>(
        &self,
        object: &K,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<K, Error> {
        let object = checked("applying", object, |_| Ok(()), deadline)?;
        self.write(Operation::Apply(object, expected), deadline).await
    }

    /// Makes the status what `object` says; the rest is left alone. `NotFound` when it is gone.
    pub async fn apply_status<K: Kind>(
        &self,
        object: &K,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<K, Error> {
        let object = checked("applying the status of", object, K::check_status, deadline)?;
        self.write(Operation::ApplyStatus(object, expected), deadline).await
    }

    /// Sets one annotation, or takes it away, and nothing else; `Conflict` when the object is no
    /// longer as `current` has it.
    pub async fn annotate<K: Kind>(
        &self,
        current: &K,
        key: &str,
        value: Option<String>,
        deadline: Deadline,
    ) -> Result<K, Error> {
        let current = checked("annotating", current, |_| Ok(()), deadline)?;
        let key = key.to_owned();
        self.write(Operation::Annotate { current, key, value }, deadline).await
    }

    /// Deletes an object, or marks it for deletion while finalizers hold it. The objects that it owns are
    /// deleted with it.
    pub async fn delete<K: Kind>(
        &self,
        id: &Id,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<Deletion, Error> {
        sane::<K>("deleting", id, deadline)?;
        let operation = Operation::Delete(id.clone(), expected);
        match self.0.write(Type::of::<K>(), operation, deadline).await? {
            Done::Deletion(deletion) => Ok(deletion),
            Done::Object(_) => unreachable!("a delete is answered with what became of it"),
        }
    }

    async fn write<K: Kind>(&self, operation: Operation, deadline: Deadline) -> Result<K, Error> {
        match self.0.write(Type::of::<K>(), operation, deadline).await? {
            Done::Object(object) => typed(Arc::unwrap_or_clone(object)),
            Done::Deletion(_) => unreachable!("only a delete is answered so"),
        }
    }
}

/// The changes of a kind, without an end.
pub struct Watch<K> {
    events: BoxStream<'static, Event<DynamicObject>>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Watch<K> {
    fn new(events: BoxStream<'static, Event<DynamicObject>>) -> Self {
        Self { events, kind: PhantomData }
    }

    /// Waits for the next event; none only when the store was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event<K>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event<K>>> {
        // An object that cannot be read (a newer schema, a hand-made one) is left out, not the
        // end of the others: it was reported when it was read.
        loop {
            let event = match ready!(self.events.poll_next_unpin(context)) {
                Some(Event::Restarted(all)) => {
                    Some(Event::Restarted(all.into_iter().filter_map(readable).collect()))
                }
                Some(Event::Applied(object)) => readable(object).map(Event::Applied),
                Some(Event::Deleted(object)) => readable(object).map(Event::Deleted),
                None => return Poll::Ready(None),
            };
            if event.is_some() {
                return Poll::Ready(event);
            }
        }
    }
}

impl<K> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// A kind by its names, for objects that are read without a Rust type of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntypedKind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

impl UntypedKind {
    pub(crate) fn erased(&self) -> Type {
        let gvk = GroupVersionKind::gvk(self.group, self.version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, self.plural);
        Type { resource, namespaced: self.namespaced, kind: self.kind }
    }
}

/// What is kept of an object, without its Rust type, for engines.
pub(crate) struct Kept {
    pub(crate) id: Id,
    pub(crate) kept: Option<Box<dyn Any + Send>>,
}

pub(crate) type Keep = Arc<dyn Fn(DynamicObject) -> Kept + Send + Sync>;

/// The changes of a kind of whose objects something is kept, without an end.
pub struct KeptWatch<T> {
    events: BoxStream<'static, Event<Kept>>,
    kept: PhantomData<fn() -> T>,
}

impl<T: 'static> KeptWatch<T> {
    /// Waits for the next event; none only when the store was closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event<(Id, Option<T>)>> {
        let typed = |Kept { id, kept }: Kept| {
            (id, kept.and_then(|kept| kept.downcast::<T>().ok()).map(|kept| *kept))
        };
        Some(match self.events.next().await? {
            Event::Restarted(all) => Event::Restarted(all.into_iter().map(typed).collect()),
            Event::Applied(one) => Event::Applied(typed(one)),
            Event::Deleted(one) => Event::Deleted(typed(one)),
        })
    }
}

impl<T> fmt::Debug for KeptWatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptWatch")
    }
}

/// A kind without its Rust type, for engines.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Type {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    pub(crate) kind: &'static str,
}

impl Type {
    pub(crate) fn of<K: Kind>() -> Self {
        Self { resource: ApiResource::erase::<K>(&()), namespaced: K::NAMESPACED, kind: K::NAME }
    }

    /// The `apiVersion` and `kind` of an object of this type.
    pub(crate) fn types(&self) -> TypeMeta {
        let ApiResource { api_version, kind, .. } = &self.resource;
        TypeMeta { api_version: api_version.clone(), kind: kind.clone() }
    }
}

/// One write of an object without its Rust type.
#[derive(Clone)]
pub(crate) enum Operation {
    Create(DynamicObject),
    Apply(DynamicObject, Expected),
    ApplyStatus(DynamicObject, Expected),
    /// Sets one annotation, or takes it away, if the object is still as it is given here.
    Annotate {
        current: DynamicObject,
        key: String,
        value: Option<String>,
    },
    Delete(Id, Expected),
}

impl Operation {
    pub(crate) fn id(&self) -> Id {
        match self {
            Self::Create(object) | Self::Apply(object, _) | Self::ApplyStatus(object, _) => {
                Id::of(object)
            }
            Self::Annotate { current, .. } => Id::of(current),
            Self::Delete(id, _) => id.clone(),
        }
    }

    /// What is being done, for the sentences of errors.
    pub(crate) fn doing(&self) -> &'static str {
        match self {
            Self::Create(_) => "creating",
            Self::Apply(..) => "applying",
            Self::ApplyStatus(..) => "applying the status of",
            Self::Annotate { .. } => "annotating",
            Self::Delete(..) => "deleting",
        }
    }
}

/// What came of an operation: the object as it is now, or what became of a delete.
pub(crate) enum Done {
    Object(Arc<DynamicObject>),
    Deletion(Deletion),
}

impl From<DynamicObject> for Done {
    fn from(object: DynamicObject) -> Self {
        Self::Object(Arc::new(object))
    }
}

/// An engine of the store. It works on objects without their Rust type.
pub(crate) trait Engine: fmt::Debug + Send + Sync {
    /// Whether no other process can write: then this one leads without an election.
    fn exclusive(&self) -> bool {
        false
    }

    fn register(&self, _registry: &mut Registry) {}

    fn get<'a>(
        &'a self,
        of: Type,
        id: &'a Id,
        deadline: Deadline,
    ) -> Answer<'a, Option<DynamicObject>>;

    fn list<'a>(
        &'a self,
        of: Type,
        within: &'a Within,
        deadline: Deadline,
    ) -> Answer<'a, Listing<DynamicObject>>;

    fn watch(
        &self,
        of: Type,
        within: Within,
        after: Option<Version>,
    ) -> BoxStream<'static, Event<DynamicObject>>;

    /// As `watch`, with what is kept of each object instead of the object.
    fn watch_kept(&self, of: Type, _page: u32, keep: Keep) -> BoxStream<'static, Event<Kept>> {
        let events = self.watch(of, Within::default(), None);
        let kept = move |event| match event {
            Event::Restarted(all) => {
                Event::Restarted(all.into_iter().map(|object| keep(object)).collect())
            }
            Event::Applied(object) => Event::Applied(keep(object)),
            Event::Deleted(object) => Event::Deleted(keep(object)),
        };
        events.map(kept).boxed()
    }

    /// Gives each object to `visit`, page by page.
    fn visit<'a>(
        &'a self,
        of: Type,
        _page: u32,
        each: &'a (dyn Fn() -> Deadline + Send + Sync),
        visit: &'a mut (dyn FnMut(DynamicObject) + Send),
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let listing = self.list(of, &Within::default(), each()).await?;
            listing.items.into_iter().for_each(visit);
            Ok(())
        })
    }

    fn write(&self, of: Type, operation: Operation, deadline: Deadline) -> Answer<'_, Done>;
}

pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// Checks what no engine need be asked: whether there is time, and whether `id` fits the kind.
fn sane<K: Kind>(doing: &str, id: &Id, deadline: Deadline) -> Result<(), Error> {
    in_time(deadline, || format!("{doing} {} {id}", K::NAME))?;
    let problems = metadata::identity(K::NAMESPACED, id);
    problems.into_result().map_err(|problems| invalid::<K>(id.clone(), problems))
}

fn in_time(deadline: Deadline, doing: impl FnOnce() -> String) -> Result<(), Error> {
    if deadline.has_passed() { Err(Error::TooLate { doing: doing() }) } else { Ok(()) }
}

/// Checks an object and takes its Rust type away.
fn checked<K: Kind>(
    doing: &str,
    object: &K,
    check: fn(&K) -> Result<(), Invalid>,
    deadline: Deadline,
) -> Result<DynamicObject, Error> {
    let id = Id::of(object);
    in_time(deadline, || format!("{doing} {} {id}", K::NAME))?;
    let mut problems = metadata::check(K::NAMESPACED, object.meta());
    problems.0.extend(check(object).err().unwrap_or_default().0);
    problems.into_result().map_err(|problems| invalid::<K>(id.clone(), problems))?;
    let value = serde_json::to_value(object).and_then(serde_json::from_value::<DynamicObject>);
    let mut erased = value.map_err(|error| {
        let mut problems = Invalid::default();
        problems.add("object", format!("cannot be written as JSON: {error}"));
        invalid::<K>(id, problems)
    })?;
    erased.types = Some(TypeMeta::resource::<K>());
    Ok(erased)
}

fn invalid<K: Kind>(id: Id, problems: Invalid) -> Error {
    Error::Invalid { kind: K::NAME, id, problems }
}

fn typed<K: Kind>(object: DynamicObject) -> Result<K, Error> {
    let id = Id::of(&object);
    // By hand: `try_parse` writes the whole object anew before it reads it.
    let DynamicObject { types, metadata, data } = object;
    let parse = || {
        let mut fields = match data {
            Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        };
        if let Some(types) = types {
            fields.insert("apiVersion".to_owned(), types.api_version.into());
            fields.insert("kind".to_owned(), types.kind.into());
        }
        fields.insert("metadata".to_owned(), serde_json::to_value(metadata)?);
        serde_json::from_value(Value::Object(fields))
    };
    parse().map_err(|error| Error::Unavailable {
        doing: format!("reading {} {id}", K::NAME),
        source: Box::new(error),
    })
}

fn readable<K: Kind>(object: DynamicObject) -> Option<K> {
    typed(object)
        .inspect_err(|error| {
            let cause = std::error::Error::source(error);
            tracing::warn!(%error, cause, "an object cannot be read and is left out");
        })
        .ok()
}

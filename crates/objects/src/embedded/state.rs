//! Everything that the store holds, as one value, with the last changes that led to it.
//!
//! Contract:
//! - Clones share their structure: a draft costs nothing, a commit what it changed, and a reader
//!   keeps the one it has.
//! - Every change of an object has the next revision: the version of the object is the revision of
//!   its last change, the version of a listing that of the store.
//! - The last changes are remembered, up to a number and a size; a watcher that has seen a revision
//!   among them goes on from there, one that has not begins again.
//! - A refused operation changes nothing. Nothing here does I/O.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::Value;

use crate::store::{
    Deletion, Done, Error, Event, Expected, Id, Invalid, Listing, Operation, Type, Version, Within,
};

/// The most changes that are remembered: what a busy fleet writes in some minutes, so that whoever
/// was away for a moment need not read everything again.
const HISTORY: usize = 8192;
/// The most bytes of JSON that the remembered changes may stand for, objects before and after the
/// change together: large objects shorten the history, and do not grow the memory.
const HISTORY_BYTES: usize = 64 << 20;
/// The most bytes of an object's JSON. etcd's limit is 1.5 MiB, all of a request included.
const OBJECT_BYTES: usize = 1 << 20;

/// `group/kind`: a kind keeps its objects when its version moves on.
pub(super) type Kind = Arc<str>;
type Place = (Kind, Id);
type Uid = String;

/// The state of the store. Like everything here that holds objects it has no `Debug`: Secrets are
/// among them.
#[derive(Clone, Default)]
pub(super) struct State {
    revision: u64,
    kinds: stallproof::Map<Kind, OrdMap<Id, Arc<DynamicObject>>>,
    /// Where the object with a uid is, to find owners.
    uids: stallproof::Map<Uid, Place>,
    /// The objects that name an owner by this uid, whether the owner exists or not.
    owned: stallproof::Map<Uid, OrdSet<Place>>,
    /// The change with revision `r` is the one at `r - forgotten - 1`.
    history: Vector<Arc<Change>>,
    history_bytes: usize,
    /// The last revision that is not in `history`.
    forgotten: u64,
    pub(super) closed: bool,
}

/// How one object changed.
struct Change {
    revision: u64,
    kind: Kind,
    before: Option<Arc<DynamicObject>>,
    /// None when the object was deleted.
    after: Option<Arc<DynamicObject>>,
    bytes: usize,
}

/// A write to the disk: the new JSON of an object, or none when it was deleted.
pub(super) struct Write {
    pub(super) kind: Kind,
    pub(super) id: Id,
    pub(super) json: Option<Vec<u8>>,
}

pub(super) fn kind_of(of: &Type) -> Kind {
    format!("{}/{}", of.resource.group, of.resource.kind).into()
}

impl State {
    /// Makes a state of what was read from disk, without a history.
    pub(super) fn restore(
        revision: u64,
        objects: impl IntoIterator<Item = (Kind, Id, DynamicObject)>,
    ) -> Self {
        let mut state = Self { revision, forgotten: revision, ..Self::default() };
        for (kind, id, object) in objects {
            state.insert(kind, id, Arc::new(object));
        }
        state
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&Kind, &Id, &DynamicObject)> {
        let kinds = self.kinds.iter();
        kinds.flat_map(|(kind, all)| all.iter().map(move |(id, object)| (kind, id, &**object)))
    }

    pub(super) fn get(&self, kind: &str, id: &Id) -> Option<&Arc<DynamicObject>> {
        self.kinds.get(kind)?.get(id)
    }

    pub(super) fn list(&self, kind: &str, within: &Within) -> Listing<DynamicObject> {
        Listing { items: self.select(kind, within), version: version(self.revision) }
    }

    fn select(&self, kind: &str, within: &Within) -> Vec<DynamicObject> {
        let Some(all) = self.kinds.get(kind) else { return Vec::new() };
        let chosen = |object: &&Arc<DynamicObject>| selects(within, object);
        match &within.namespace {
            None => all.values().filter(chosen).map(|object| (**object).clone()).collect(),
            Some(namespace) => {
                let from = Id::namespaced(namespace.as_str(), "");
                let there = all.range(from..).map(|(_, object)| object);
                there
                    .take_while(|object| object.metadata.namespace.as_ref() == Some(namespace))
                    .filter(chosen)
                    .map(|object| (**object).clone())
                    .collect()
            }
        }
    }

    /// The next event for a watcher that has seen everything up to revision `seen`, and the revision that
    /// it has seen then; no event when nothing has changed for it.
    pub(super) fn next(
        &self,
        kind: &str,
        within: &Within,
        seen: Option<u64>,
    ) -> (u64, Option<Event<DynamicObject>>) {
        let restart = || (self.revision, Some(Event::Restarted(self.select(kind, within))));
        let Some(seen) = seen else { return restart() };
        if seen < self.forgotten || seen > self.revision {
            return restart();
        }
        let mut at = usize::try_from(seen - self.forgotten).unwrap_or(usize::MAX);
        while let Some(change) = self.history.get(at) {
            if let Some(event) = change.event(kind, within) {
                return (change.revision, Some(event));
            }
            at += 1;
        }
        (self.revision, None)
    }

    /// Does `operation`, or refuses it, and adds its writes to `writes`.
    pub(super) fn run(
        &mut self,
        of: &Type,
        operation: Operation,
        now: Timestamp,
        writes: &mut Vec<Write>,
    ) -> Result<Done, Error> {
        let mut draft = Draft { state: self.clone(), of, now, writes: Vec::new() };
        let done = match operation {
            Operation::Create(object) => draft.create(object),
            Operation::Apply(object, expected) => draft.apply(object, &expected),
            Operation::ApplyStatus(object, expected) => draft.apply_status(object, &expected),
            Operation::Annotate { mut current, key, value } => {
                let expected =
                    Expected::Version(Version(current.resource_version().unwrap_or_default()));
                match value {
                    Some(value) => current.annotations_mut().insert(key, value),
                    None => current.annotations_mut().remove(&key),
                };
                draft.apply(current, &expected)
            }
            Operation::Delete(id, expected) => draft.delete(&id, &expected),
        }?;
        writes.append(&mut draft.writes);
        *self = draft.state;
        Ok(done)
    }

    fn insert(&mut self, kind: Kind, id: Id, object: Arc<DynamicObject>) {
        let place = (kind, id);
        for owner in owners(&object) {
            self.owned.entry(owner.clone()).or_default().insert(place.clone());
        }
        if let Some(uid) = &object.metadata.uid {
            self.uids.insert(uid.clone(), place.clone());
        }
        self.kinds.entry(place.0).or_default().insert(place.1, object);
    }

    fn remove(&mut self, kind: &Kind, id: &Id) -> Option<Arc<DynamicObject>> {
        let gone = self.kinds.get_mut(kind)?.remove(id)?;
        if let Some(uid) = &gone.metadata.uid {
            self.uids.remove(uid);
        }
        let place = (Arc::clone(kind), id.clone());
        for owner in owners(&gone) {
            if let Some(owned) = self.owned.get_mut(owner) {
                owned.remove(&place);
                if owned.is_empty() {
                    self.owned.remove(owner);
                }
            }
        }
        Some(gone)
    }

    fn remember(&mut self, change: Change) {
        self.history_bytes += change.bytes;
        self.history.push_back(Arc::new(change));
        while self.history.len() > HISTORY || self.history_bytes > HISTORY_BYTES {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_bytes -= oldest.bytes;
            self.forgotten = oldest.revision;
        }
    }
}

impl Change {
    fn event(&self, kind: &str, within: &Within) -> Option<Event<DynamicObject>> {
        if *self.kind != *kind {
            return None;
        }
        let seen = |object: &&Arc<DynamicObject>| selects(within, object);
        let before = self.before.as_ref().filter(seen);
        match (before, self.after.as_ref().filter(seen)) {
            (_, Some(after)) => Some(Event::Applied((**after).clone())),
            (Some(before), None) => {
                // With the version of its going, for whoever resumes from here.
                let mut gone = (**before).clone();
                gone.metadata.resource_version = Some(self.revision.to_string());
                Some(Event::Deleted(gone))
            }
            (None, None) => None,
        }
    }
}

/// The state as one operation changes it.
struct Draft<'a> {
    state: State,
    of: &'a Type,
    now: Timestamp,
    writes: Vec<Write>,
}

impl Draft<'_> {
    fn create(&mut self, mut object: DynamicObject) -> Result<Done, Error> {
        let kind = kind_of(self.of);
        let id = Id::of(&object);
        if self.state.get(&kind, &id).is_some() {
            return Err(Error::Exists { kind: self.of.kind, id });
        }
        object.metadata = ObjectMeta {
            uid: Some(new_uid().map_err(|e| self.unavailable("creating", &id, e))?),
            creation_timestamp: Some(Time(self.now)),
            generation: Some(1),
            name: object.metadata.name,
            namespace: object.metadata.namespace,
            labels: object.metadata.labels.filter(|labels| !labels.is_empty()),
            annotations: object.metadata.annotations.filter(|all| !all.is_empty()),
            finalizers: object.metadata.finalizers.filter(|all| !all.is_empty()),
            owner_references: object.metadata.owner_references.filter(|all| !all.is_empty()),
            ..ObjectMeta::default()
        };
        take_status(&mut object.data);
        let made = self.put(&kind, id.clone(), object)?;
        self.collect_orphan(&kind, id)?;
        Ok(Done::Object(made))
    }

    fn apply(&mut self, object: DynamicObject, expected: &Expected) -> Result<Done, Error> {
        let kind = kind_of(self.of);
        let id = Id::of(&object);
        let Some(current) = self.state.get(&kind, &id).cloned() else {
            return match expected {
                Expected::Any => self.create(object),
                Expected::Version(_) => Err(self.conflict(id)),
            };
        };
        self.expect(&current, expected)?;

        let mut next = (*current).clone();
        let DynamicObject { types, metadata, mut data } = object;
        next.types = types;
        next.metadata.labels = metadata.labels.filter(|labels| !labels.is_empty());
        next.metadata.annotations = metadata.annotations.filter(|all| !all.is_empty());
        next.metadata.finalizers = metadata.finalizers.filter(|all| !all.is_empty());
        next.metadata.owner_references = metadata.owner_references.filter(|all| !all.is_empty());
        take_status(&mut data);
        let status = take_status(&mut next.data);
        if data != next.data {
            next.metadata.generation = Some(next.metadata.generation.unwrap_or(0) + 1);
        }
        next.data = data;
        put_status(&mut next.data, status);
        if next == *current {
            return Ok(Done::Object(current));
        }
        if next.metadata.deletion_timestamp.is_some() {
            let held = finalizers(&current);
            if finalizers(&next).iter().any(|finalizer| !held.contains(finalizer)) {
                let problem = "cannot be added to while the object is being deleted";
                return Err(self.invalid(id, "metadata.finalizers", problem));
            }
            if finalizers(&next).is_empty() {
                self.take(&kind, &id);
                next.metadata.resource_version = Some(self.state.revision.to_string());
                for dependent in self.release(&next)? {
                    self.collect(dependent)?;
                }
                return Ok(Done::Object(Arc::new(next)));
            }
        }
        let made = self.put(&kind, id.clone(), next)?;
        self.collect_orphan(&kind, id)?;
        Ok(Done::Object(made))
    }

    fn apply_status(
        &mut self,
        mut object: DynamicObject,
        expected: &Expected,
    ) -> Result<Done, Error> {
        let kind = kind_of(self.of);
        let id = Id::of(&object);
        let Some(current) = self.state.get(&kind, &id).cloned() else {
            return Err(Error::NotFound { kind: self.of.kind, id });
        };
        self.expect(&current, expected)?;
        let mut next = (*current).clone();
        take_status(&mut next.data);
        put_status(&mut next.data, take_status(&mut object.data));
        if next == *current {
            return Ok(Done::Object(current));
        }
        self.put(&kind, id, next).map(Done::Object)
    }

    fn delete(&mut self, id: &Id, expected: &Expected) -> Result<Done, Error> {
        let kind = kind_of(self.of);
        let Some(current) = self.state.get(&kind, id).cloned() else {
            return Err(Error::NotFound { kind: self.of.kind, id: id.clone() });
        };
        self.expect(&current, expected)?;
        self.collect((kind, id.clone()))?;
        let held = finalizers(&current).to_vec();
        let deletion = if held.is_empty() { Deletion::Gone } else { Deletion::Waiting(held) };
        Ok(Done::Deletion(deletion))
    }

    /// Deletes an object, or marks it while finalizers hold it, and does the same to all that it owned
    /// alone.
    fn collect(&mut self, place: Place) -> Result<(), Error> {
        // Not by recursion: somebody may have made a chain that is longer than the stack.
        let mut doomed = vec![place];
        while let Some((kind, id)) = doomed.pop() {
            let Some(current) = self.state.get(&kind, &id).cloned() else { continue };
            if finalizers(&current).is_empty() {
                self.take(&kind, &id);
                doomed.append(&mut self.release(&current)?);
            } else if current.metadata.deletion_timestamp.is_none() {
                let mut next = (*current).clone();
                next.metadata.deletion_timestamp = Some(Time(self.now));
                next.metadata.deletion_grace_period_seconds = Some(0);
                self.put(&kind, id, next)?;
            }
        }
        Ok(())
    }

    /// Answers the objects that a deleted one owned and that have no other owner.
    fn release(&mut self, gone: &DynamicObject) -> Result<Vec<Place>, Error> {
        let Some(uid) = &gone.metadata.uid else { return Ok(Vec::new()) };
        let mut doomed = Vec::new();
        for (kind, id) in self.state.owned.get(uid).cloned().unwrap_or_default() {
            let Some(dependent) = self.state.get(&kind, &id) else { continue };
            if self.is_orphan(dependent) {
                doomed.push((kind, id));
                continue;
            }
            let mut kept = (**dependent).clone();
            if let Some(owners) = &mut kept.metadata.owner_references {
                owners.retain(|owner| owner.uid != *uid);
            }
            self.put(&kind, id, kept)?;
        }
        Ok(doomed)
    }

    /// Deletes an object whose owners were all deleted before it was made: its maker did not know yet.
    fn collect_orphan(&mut self, kind: &Kind, id: Id) -> Result<(), Error> {
        match self.state.get(kind, &id) {
            Some(object) if self.is_orphan(object) => self.collect((Arc::clone(kind), id)),
            _ => Ok(()),
        }
    }

    /// Whether the object has owners, and all of them were deleted.
    fn is_orphan(&self, object: &DynamicObject) -> bool {
        let mut owners = owners(object).peekable();
        owners.peek().is_some() && !owners.any(|owner| self.state.uids.contains_key(owner))
    }

    fn expect(&self, current: &DynamicObject, expected: &Expected) -> Result<(), Error> {
        let version = current.metadata.resource_version.as_ref();
        match expected {
            Expected::Version(Version(expected)) if version != Some(expected) => {
                Err(self.conflict(Id::of(current)))
            }
            _ => Ok(()),
        }
    }

    fn put(
        &mut self,
        kind: &Kind,
        id: Id,
        mut object: DynamicObject,
    ) -> Result<Arc<DynamicObject>, Error> {
        let revision = self.state.revision + 1;
        object.metadata.resource_version = Some(revision.to_string());
        let json = serde_json::to_vec(&object);
        let json = json.map_err(|e| self.invalid(id.clone(), "object", &e.to_string()))?;
        if json.len() > OBJECT_BYTES {
            let problem = format!("is {} bytes; the store takes {OBJECT_BYTES}", json.len());
            return Err(self.invalid(id, "object", &problem));
        }
        let object = Arc::new(object);
        let before = self.state.remove(kind, &id);
        self.state.insert(Arc::clone(kind), id.clone(), Arc::clone(&object));
        self.changed(kind, id, before, Some(Arc::clone(&object)), Some(json));
        Ok(object)
    }

    fn take(&mut self, kind: &Kind, id: &Id) {
        if let Some(gone) = self.state.remove(kind, id) {
            self.changed(kind, id.clone(), Some(gone), None, None);
        }
    }

    fn changed(
        &mut self,
        kind: &Kind,
        id: Id,
        before: Option<Arc<DynamicObject>>,
        after: Option<Arc<DynamicObject>>,
        json: Option<Vec<u8>>,
    ) {
        // Both are kept alive, by this alone if need be.
        let before_bytes = before
            .as_ref()
            .map_or(0, |before| serde_json::to_vec(&**before).map_or(0, |json| json.len()));
        let bytes = before_bytes + json.as_ref().map_or(0, Vec::len) + size_of::<Change>();
        self.state.revision += 1;
        self.state.remember(Change {
            revision: self.state.revision,
            kind: Arc::clone(kind),
            before,
            after,
            bytes,
        });
        self.writes.push(Write { kind: Arc::clone(kind), id, json });
    }

    fn conflict(&self, id: Id) -> Error {
        Error::Conflict { kind: self.of.kind, id }
    }

    fn invalid(&self, id: Id, field: &str, problem: &str) -> Error {
        let mut problems = Invalid::default();
        problems.add(field, problem);
        Error::Invalid { kind: self.of.kind, id, problems }
    }

    fn unavailable(
        &self,
        doing: &str,
        id: &Id,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        let doing = format!("{doing} {} {id}", self.of.kind);
        Error::Unavailable { doing, source: Box::new(source) }
    }
}

fn selects(within: &Within, object: &DynamicObject) -> bool {
    let Within { namespace, labels, name, node } = within;
    namespace.as_ref().is_none_or(|wanted| object.metadata.namespace.as_ref() == Some(wanted))
        && labels.as_ref().is_none_or(|selector| selector.matches(object.metadata.labels.as_ref()))
        && name.as_ref().is_none_or(|name| object.metadata.name.as_ref() == Some(name))
        && node.as_ref().is_none_or(|node| object.data["spec"]["nodeName"] == **node)
}

fn owners(object: &DynamicObject) -> impl Iterator<Item = &Uid> {
    object.metadata.owner_references.iter().flatten().map(|owner| &owner.uid)
}

fn finalizers(object: &DynamicObject) -> &[String] {
    object.metadata.finalizers.as_deref().unwrap_or_default()
}

fn take_status(data: &mut Value) -> Option<Value> {
    data.as_object_mut()?.remove("status")
}

fn put_status(data: &mut Value, status: Option<Value>) {
    if let (Some(fields), Some(status)) = (data.as_object_mut(), status) {
        fields.insert("status".to_owned(), status);
    }
}

pub(super) fn version(revision: u64) -> Version {
    Version(revision.to_string())
}

/// A random UUID (version 4).
fn new_uid() -> Result<Uid, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = |range: std::ops::Range<usize>| {
        bytes[range].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    Ok([hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-"))
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

//! `SimulatedStore`: an API server in memory, each of whose clients has a network of its own that delays,
//! loses and repeats requests. For simulations on one thread under tokio's paused clock.
//!
//! Contract: a request that was sent is made when it arrives, whether or not its caller still waits or lives. A
//! write is made over the version it expects, or not at all. A watch tells every change of an object in
//! order, or begins again with all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::DynamicObject;
use parking_lot::Mutex;
use stallproof::Deadline;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::store::{
    Answer, Deletion, Done, Engine, Error, Event, Expected, Id, Listing, Objects, Operation, Type,
    Version, Within,
};

/// What becomes of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// How long it is on its way; none: it is lost.
    pub there: Option<Duration>,
    /// How long its answer is on its way; none: it is lost.
    pub back: Option<Duration>,
    /// It arrives once more, so much later.
    pub again: Option<Duration>,
}

/// One client's network.
pub trait Wire: Send + Sync + 'static {
    /// Decides what becomes of a request.
    fn carry(&self, what: &str) -> Carried;
    /// Decides how long the next event of a watch is on its way.
    fn tell(&self) -> Duration;
    /// Decides whether a watch breaks before its next event.
    fn breaks(&self) -> bool;
}

/// What a store does wrong, for simulations that must find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// Writes and deletes are made over any version.
    pub no_compare: bool,
    /// Creating replaces what is there.
    pub create_replaces: bool,
}

/// The store. Clones are the same one.
#[derive(Clone)]
pub struct SimulatedStore(Arc<Shared>);

struct Shared {
    /// Changed by requests that arrive, read by watches.
    kept: Mutex<Kept>,
    /// How many events there were.
    events: watch::Sender<usize>,
    faults: StoreFaults,
    began: Instant,
}

#[derive(Default)]
struct Kept {
    version: u64,
    objects: BTreeMap<(&'static str, Id), DynamicObject>,
    log: Vec<(&'static str, Event<DynamicObject>)>,
}

impl fmt::Debug for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedStore({} objects)", self.0.kept.lock().objects.len())
    }
}

impl SimulatedStore {
    pub fn new(faults: StoreFaults) -> Self {
        let (kept, events) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Shared { kept, events, faults, began: Instant::now() }))
    }

    /// The store as one client has it.
    pub fn through(&self, wire: Arc<dyn Wire>) -> Objects {
        Objects::on(Client { store: self.clone(), wire })
    }

    /// The objects of a kind as they are now.
    pub fn now(&self, kind: &str) -> Vec<DynamicObject> {
        let kept = self.0.kept.lock();
        let of_kind = kept.objects.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|(_, object)| object.clone()).collect()
    }

    /// Every object of a kind that was ever written, in order.
    pub fn written(&self, kind: &str) -> Vec<DynamicObject> {
        let kept = self.0.kept.lock();
        let of_kind = kept.log.iter().filter(|(of, _)| *of == kind);
        let applied = of_kind.filter_map(|(_, event)| match event {
            Event::Applied(object) => Some(object.clone()),
            _ => None,
        });
        applied.collect()
    }

    /// Deletes an object at once, as somebody beside the processes does.
    pub fn delete(&self, kind: &'static str, id: &Id) {
        let mut kept = self.0.kept.lock();
        if let Some(gone) = kept.objects.remove(&(kind, id.clone())) {
            kept.version += 1;
            kept.log.push((kind, Event::Deleted(gone)));
        }
    }

    fn make(&self, of: &Type, operation: Operation) -> Result<Done, Error> {
        let mut kept = self.0.kept.lock();
        let done = kept.make(of, operation, self.0.faults, self.0.began);
        let events = kept.log.len();
        drop(kept);
        self.0.events.send_replace(events);
        done
    }
}

impl Kept {
    fn find(&self, of: &Type, id: &Id) -> Option<&DynamicObject> {
        self.objects.get(&(of.kind, id.clone()))
    }

    /// The object, if it is there in the version that is expected.
    fn at(
        &self,
        of: &Type,
        id: &Id,
        expected: &Expected,
        faults: StoreFaults,
    ) -> Result<DynamicObject, Error> {
        let not_found = || Error::NotFound { kind: of.kind, id: id.clone() };
        let found = self.find(of, id).ok_or_else(not_found)?;
        match expected {
            Expected::Version(Version(version))
                if found.resource_version().as_ref() != Some(version) && !faults.no_compare =>
            {
                Err(Error::Conflict { kind: of.kind, id: id.clone() })
            }
            _ => Ok(found.clone()),
        }
    }

    fn put(&mut self, of: &Type, mut object: DynamicObject) -> Done {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        self.objects.insert((of.kind, Id::of(&object)), object.clone());
        self.log.push((of.kind, Event::Applied(object.clone())));
        object.into()
    }

    fn create(&mut self, of: &Type, mut object: DynamicObject, began: Instant) -> Done {
        object.metadata.uid = Some(format!("uid-{}", self.version + 1));
        let second = 1_700_000_000 + i64::try_from(began.elapsed().as_secs()).unwrap_or_default();
        object.metadata.creation_timestamp = Timestamp::from_second(second).ok().map(Time);
        self.put(of, object)
    }

    fn make(
        &mut self,
        of: &Type,
        operation: Operation,
        faults: StoreFaults,
        began: Instant,
    ) -> Result<Done, Error> {
        let id = operation.id();
        let conflict = || Error::Conflict { kind: of.kind, id: id.clone() };
        match operation {
            Operation::Create(_) if self.find(of, &id).is_some() && !faults.create_replaces => {
                Err(Error::Exists { kind: of.kind, id })
            }
            Operation::Create(object) => Ok(self.create(of, object, began)),
            Operation::Apply(object, Expected::Any) if self.find(of, &id).is_none() => {
                Ok(self.create(of, object, began))
            }
            Operation::Apply(mut object, expected) => {
                let found = self.at(of, &id, &expected, faults)?;
                if object.metadata.uid.is_some() && object.metadata.uid != found.metadata.uid {
                    return Err(conflict());
                }
                object.metadata.uid = found.metadata.uid;
                object.metadata.creation_timestamp = found.metadata.creation_timestamp;
                if let Some(status) = found.data.get("status") {
                    object.data["status"] = status.clone();
                }
                Ok(self.put(of, object))
            }
            Operation::ApplyStatus(object, expected) => {
                let mut found = self.at(of, &id, &expected, faults)?;
                found.data["status"] = object.data["status"].clone();
                Ok(self.put(of, found))
            }
            Operation::Annotate { mut current, key, value } => {
                let version = Version(current.resource_version().unwrap_or_default());
                self.at(of, &id, &Expected::Version(version), faults)?;
                match value {
                    Some(value) => current.annotations_mut().insert(key, value),
                    None => current.annotations_mut().remove(&key),
                };
                Ok(self.put(of, current))
            }
            Operation::Delete(_, expected) => {
                let found = self.at(of, &id, &expected, faults)?;
                self.version += 1;
                self.objects.remove(&(of.kind, id));
                self.log.push((of.kind, Event::Deleted(found)));
                Ok(Done::Deletion(Deletion::Gone))
            }
        }
    }

    fn list(&self, kind: &str) -> Vec<DynamicObject> {
        let of_kind = self.objects.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|(_, object)| object.clone()).collect()
    }
}

/// The store through one client's network.
#[derive(Clone)]
struct Client {
    store: SimulatedStore,
    wire: Arc<dyn Wire>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Sends a request; it arrives by itself, and twice if the network says so.
    fn ask<'a, T: Send + 'static>(
        &'a self,
        what: &str,
        deadline: Deadline,
        work: impl Fn(&SimulatedStore) -> Result<T, Error> + Send + 'static,
    ) -> Answer<'a, T> {
        let Carried { there, back, again } = self.wire.carry(what);
        let (store, what) = (self.store.clone(), what.to_owned());
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let Some(there) = there else { return std::future::pending().await };
            sleep(there).await;
            let done = work(&store);
            if let Some(again) = again {
                tokio::spawn(async move {
                    sleep(again).await;
                    drop(work(&store));
                });
            }
            let Some(back) = back else { return std::future::pending().await };
            sleep(back).await;
            // An error: whoever asked is gone.
            let _ = answer.send(done);
        });
        async move {
            match deadline.bound(answered).await {
                Ok(Ok(done)) => done,
                _ => Err(Error::TooLate { doing: what }),
            }
        }
        .boxed()
    }
}

impl Engine for Client {
    fn get<'a>(
        &'a self,
        of: Type,
        id: &'a Id,
        deadline: Deadline,
    ) -> Answer<'a, Option<DynamicObject>> {
        let id = id.clone();
        let what = format!("get {} {id}", of.kind);
        self.ask(&what, deadline, move |store| Ok(store.0.kept.lock().find(&of, &id).cloned()))
    }

    fn list<'a>(
        &'a self,
        of: Type,
        _within: &'a Within,
        deadline: Deadline,
    ) -> Answer<'a, Listing<DynamicObject>> {
        self.ask(&format!("list {}", of.kind), deadline, move |store| {
            let kept = store.0.kept.lock();
            Ok(Listing { items: kept.list(of.kind), version: Version(kept.version.to_string()) })
        })
    }

    fn watch(
        &self,
        of: Type,
        _within: Within,
        _after: Option<Version>,
    ) -> BoxStream<'static, Event<DynamicObject>> {
        let events = self.store.0.events.subscribe();
        let begin = (self.clone(), events, None::<usize>);
        stream::unfold(begin, move |(client, mut events, mut told)| async move {
            loop {
                sleep(client.wire.tell()).await;
                if client.wire.breaks() {
                    told = None;
                }
                let event = {
                    let kept = client.store.0.kept.lock();
                    match told {
                        None => {
                            told = Some(kept.log.len());
                            Some(Event::Restarted(kept.list(of.kind)))
                        }
                        Some(from) => {
                            let next =
                                kept.log[from..].iter().position(|(kind, _)| *kind == of.kind);
                            told = Some(next.map_or(kept.log.len(), |next| from + next + 1));
                            next.map(|next| kept.log[from + next].1.clone())
                        }
                    }
                };
                if let Some(event) = event {
                    return Some((event, (client, events, told)));
                }
                if events.changed().await.is_err() {
                    return None;
                }
            }
        })
        .boxed()
    }

    fn write(&self, of: Type, operation: Operation, deadline: Deadline) -> Answer<'_, Done> {
        let what = format!("{} {} {}", operation.doing(), of.kind, operation.id());
        self.ask(&what, deadline, move |store| store.make(&of, operation.clone()))
    }
}

//! `MemoryStore`: a store in memory that several candidates share, and that can be taken away from one.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use kube::ResourceExt;
use kube::core::DynamicObject;
use parking_lot::Mutex;
use stallproof::Deadline;

use crate::store::{
    Answer, Deletion, Done, Engine, Error, Event, Expected, Id, Listing, Objects, Operation, Type,
    Version, Within,
};

#[derive(Debug, Default)]
struct Kept {
    version: u64,
    objects: BTreeMap<(&'static str, Id), DynamicObject>,
}

/// One process' way to the store.
#[derive(Clone, Debug, Default)]
pub(in crate::lease) struct MemoryStore {
    kept: Arc<Mutex<Kept>>,
    /// Nothing comes back.
    hole: Arc<AtomicBool>,
    exclusive: bool,
}

impl MemoryStore {
    /// The same store by another way.
    pub(in crate::lease) fn another_way(&self) -> Self {
        Self { hole: Arc::default(), ..self.clone() }
    }

    pub(in crate::lease) fn exclusive() -> Self {
        Self { exclusive: true, ..Self::default() }
    }

    pub(in crate::lease) fn black_hole(&self, on: bool) {
        self.hole.store(on, Ordering::SeqCst);
    }

    pub(in crate::lease) fn objects(&self) -> Objects {
        Objects::on(self.clone())
    }

    fn do_it<'a, T: Send + 'a>(
        &'a self,
        deadline: Deadline,
        work: impl FnOnce(&mut Kept) -> Result<T, Error> + Send + 'a,
    ) -> Answer<'a, T> {
        async move {
            let answer = async {
                if self.hole.load(Ordering::SeqCst) {
                    pending::<()>().await;
                }
                work(&mut self.kept.lock())
            };
            let late = |_| Error::TooLate { doing: "waiting".to_owned() };
            deadline.bound(answer).await.map_err(late)?
        }
        .boxed()
    }
}

impl Kept {
    fn put(&mut self, of: &Type, mut object: DynamicObject) -> DynamicObject {
        self.version += 1;
        object.metadata.resource_version = Some(self.version.to_string());
        let uid = || format!("uid-{}", self.version);
        object.metadata.uid.get_or_insert_with(uid);
        self.objects.insert((of.kind, Id::of(&object)), object.clone());
        object
    }

    fn at(&self, of: &Type, id: &Id, expected: &Expected) -> Result<DynamicObject, Error> {
        let Some(found) = self.objects.get(&(of.kind, id.clone())) else {
            return Err(Error::NotFound { kind: of.kind, id: id.clone() });
        };
        match expected {
            Expected::Version(Version(version))
                if found.resource_version().as_ref() != Some(version) =>
            {
                Err(Error::Conflict { kind: of.kind, id: id.clone() })
            }
            _ => Ok(found.clone()),
        }
    }
}

impl Engine for MemoryStore {
    fn exclusive(&self) -> bool {
        self.exclusive
    }

    fn get<'a>(
        &'a self,
        of: Type,
        id: &'a Id,
        deadline: Deadline,
    ) -> Answer<'a, Option<DynamicObject>> {
        self.do_it(deadline, move |kept| Ok(kept.at(&of, id, &Expected::Any).ok()))
    }

    fn list<'a>(
        &'a self,
        of: Type,
        _within: &'a Within,
        deadline: Deadline,
    ) -> Answer<'a, Listing<DynamicObject>> {
        self.do_it(deadline, move |kept| {
            let items = kept.objects.iter().filter(|((kind, _), _)| *kind == of.kind);
            let items = items.map(|(_, object)| object.clone()).collect();
            Ok(Listing { items, version: Version(kept.version.to_string()) })
        })
    }

    fn watch(
        &self,
        _of: Type,
        _within: Within,
        _after: Option<Version>,
    ) -> BoxStream<'static, Event<DynamicObject>> {
        stream::pending().boxed()
    }

    fn write(&self, of: Type, operation: Operation, deadline: Deadline) -> Answer<'_, Done> {
        self.do_it(deadline, move |kept| {
            let id = operation.id();
            Ok(match operation {
                Operation::Create(_) if kept.at(&of, &id, &Expected::Any).is_ok() => {
                    return Err(Error::Exists { kind: of.kind, id });
                }
                Operation::Create(object) | Operation::Apply(object, Expected::Any) => {
                    kept.put(&of, object).into()
                }
                Operation::Apply(object, expected) => {
                    kept.at(&of, &id, &expected)?;
                    kept.put(&of, object).into()
                }
                Operation::ApplyStatus(object, expected) => {
                    let mut found = kept.at(&of, &id, &expected)?;
                    found.data["status"] = object.data["status"].clone();
                    kept.put(&of, found).into()
                }
                Operation::Annotate { mut current, key, value } => {
                    let version = Version(current.resource_version().unwrap_or_default());
                    kept.at(&of, &id, &Expected::Version(version))?;
                    match value {
                        Some(value) => current.annotations_mut().insert(key, value),
                        None => current.annotations_mut().remove(&key),
                    };
                    kept.put(&of, current).into()
                }
                Operation::Delete(_, expected) => {
                    kept.at(&of, &id, &expected)?;
                    kept.objects.remove(&(of.kind, id));
                    Done::Deletion(Deletion::Gone)
                }
            })
        })
    }
}

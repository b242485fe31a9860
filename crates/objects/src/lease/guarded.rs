//! `Guarded`: an engine that writes only for as long as a fence holds, and not over a later term.
//!
//! Each write reads the object first, and is made over the version that it read, whatever the caller
//! expects. So a write of a deposed leader, however late it reaches the server, meets a conflict if
//! the object was touched since; and one that was read after a later leader's write is refused by
//! its stamp.

use std::sync::Arc;

use futures::FutureExt;
use futures::stream::BoxStream;
use kube::ResourceExt;
use kube::core::DynamicObject;
use prometheus_client::registry::Registry;
use stallproof::Deadline;

use super::fence::{ANNOTATION, Fence, Token};
use crate::store::{
    Answer, Deletion, Engine, Error, Event, Expected, Id, Listing, Objects, Type, Version, Within,
};

impl Objects {
    /// The same store, for writes in the name of a leader: each is refused when the fence no longer
    /// holds, carries its token, and leaves alone what a later leader wrote. Reads are as they were.
    ///
    /// A store that nobody else can write to needs no guard.
    #[must_use]
    pub fn guarded(&self, fence: &Fence) -> Self {
        let engine = Arc::clone(self.engine());
        if engine.exclusive() {
            return self.clone();
        }
        Self::on(Guarded { engine, fence: fence.clone() })
    }
}

/// How often a write that expects nothing is made again when others come in between.
const ROUNDS: u32 = 10;

#[derive(Debug)]
struct Guarded {
    engine: Arc<dyn Engine>,
    fence: Fence,
}

impl Guarded {
    /// `deadline`, or the end of the fence.
    fn admit(
        &self,
        doing: &str,
        of: &Type,
        id: &Id,
        deadline: Deadline,
    ) -> Result<Deadline, Error> {
        let lost = || "leadership was lost".to_owned();
        self.fence.clip(deadline).ok_or_else(|| refused(doing, of, id, lost()))
    }

    /// What is there, unless a later leader wrote it. Asking takes time, so the fence is looked at
    /// after it.
    async fn current(
        &self,
        doing: &str,
        of: &Type,
        id: &Id,
        deadline: Deadline,
    ) -> Result<Option<DynamicObject>, Error> {
        let clipped = self.admit(doing, of, id, deadline)?;
        let found = self.engine.get(of.clone(), id, clipped).await?;
        if let Some(stamp) = found.as_ref().and_then(stamp)
            && stamp.is_after(self.fence.token())
        {
            let why = format!("a later leader wrote it, in term {}", stamp.term);
            return Err(refused(doing, of, id, why));
        }
        self.admit(doing, of, id, deadline).map(|_| found)
    }

    async fn write(
        &self,
        of: Type,
        mut object: DynamicObject,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let (doing, id) = ("applying", Id::of(&object));
        self.stamp(&mut object);
        let mut rounds = rounds(&expected);
        loop {
            let current = self.current(doing, &of, &id, deadline).await?;
            let deadline = self.admit(doing, &of, &id, deadline)?;
            let made = match (current, &expected) {
                (None, Expected::Any) => {
                    self.engine.create(of.clone(), object.clone(), deadline).await
                }
                (current, _) => {
                    let current = expect(&of, &id, current, &expected)?;
                    object.metadata.uid.clone_from(&current.metadata.uid);
                    let at = Expected::Version(version(&current));
                    self.engine.apply(of.clone(), object.clone(), at, deadline).await
                }
            };
            match made {
                Err(Error::Exists { .. } | Error::Conflict { .. }) if rounds.next().is_some() => {}
                answer => return answer,
            }
        }
    }

    /// The status endpoint takes no annotation, so an object that does not carry the token yet is
    /// stamped first: one more write for each object and term.
    async fn write_status(
        &self,
        of: Type,
        mut object: DynamicObject,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<DynamicObject, Error> {
        let (doing, id) = ("applying the status of", Id::of(&object));
        let mut rounds = rounds(&expected);
        loop {
            let current = self.current(doing, &of, &id, deadline).await?;
            let deadline = self.admit(doing, &of, &id, deadline)?;
            let Some(current) = current else {
                return Err(Error::NotFound { kind: of.kind, id });
            };
            let current = expect(&of, &id, Some(current), &expected)?;
            object.metadata.uid.clone_from(&current.metadata.uid);
            let stamped = if stamp(&current).as_ref() == Some(self.fence.token()) {
                Ok(current)
            } else {
                let token = self.fence.token().to_string();
                self.engine.annotate(of.clone(), current, ANNOTATION, Some(token), deadline).await
            };
            let told = match stamped {
                Ok(stamped) => {
                    let at = Expected::Version(version(&stamped));
                    self.engine.apply_status(of.clone(), object.clone(), at, deadline).await
                }
                Err(error) => Err(error),
            };
            match told {
                Err(Error::Conflict { .. }) if rounds.next().is_some() => {}
                answer => return answer,
            }
        }
    }

    async fn remove(
        &self,
        of: Type,
        id: &Id,
        expected: Expected,
        deadline: Deadline,
    ) -> Result<Deletion, Error> {
        let mut rounds = rounds(&expected);
        loop {
            let current = self.current("deleting", &of, id, deadline).await?;
            let deadline = self.admit("deleting", &of, id, deadline)?;
            let Some(current) = current else {
                return Err(Error::NotFound { kind: of.kind, id: id.clone() });
            };
            let current = expect(&of, id, Some(current), &expected)?;
            let at = Expected::Version(version(&current));
            match self.engine.delete(of.clone(), id, at, deadline).await {
                Err(Error::Conflict { .. }) if rounds.next().is_some() => {}
                answer => return answer,
            }
        }
    }

    fn stamp(&self, object: &mut DynamicObject) {
        let token = self.fence.token().to_string();
        object.annotations_mut().insert(ANNOTATION.to_owned(), token);
    }
}

fn rounds(expected: &Expected) -> std::ops::Range<u32> {
    0..if *expected == Expected::Any { ROUNDS } else { 0 }
}

fn stamp(object: &DynamicObject) -> Option<Token> {
    object.annotations().get(ANNOTATION).and_then(|text| Token::parse(text))
}

fn version(object: &DynamicObject) -> Version {
    Version(object.resource_version().unwrap_or_default())
}

/// What is there, if it is what was expected.
fn expect(
    of: &Type,
    id: &Id,
    current: Option<DynamicObject>,
    expected: &Expected,
) -> Result<DynamicObject, Error> {
    let as_expected = |object: &DynamicObject| match expected {
        Expected::Any => true,
        Expected::Version(expected) => *expected == version(object),
    };
    let conflict = || Error::Conflict { kind: of.kind, id: id.clone() };
    current.filter(as_expected).ok_or_else(conflict)
}

fn refused(doing: &str, of: &Type, id: &Id, why: String) -> Error {
    Error::Forbidden { doing: format!("{doing} {} {id}", of.kind), why }
}

impl Engine for Guarded {
    fn register(&self, registry: &mut Registry) {
        self.engine.register(registry);
    }

    /// Without the token: it is made over the version that was read and looked at, so a later leader's
    /// write is never undone by it.
    fn annotate<'a>(
        &'a self,
        of: Type,
        current: DynamicObject,
        key: &'a str,
        value: Option<String>,
        deadline: Deadline,
    ) -> Answer<'a, DynamicObject> {
        async move {
            let (doing, id) = ("annotating", Id::of(&current));
            let found = self.current(doing, &of, &id, deadline).await?;
            let deadline = self.admit(doing, &of, &id, deadline)?;
            let expected = Expected::Version(version(&current));
            let found = expect(&of, &id, found, &expected)?;
            self.engine.annotate(of, found, key, value, deadline).await
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        of: Type,
        id: &'a Id,
        deadline: Deadline,
    ) -> Answer<'a, Option<DynamicObject>> {
        self.engine.get(of, id, deadline)
    }

    fn list<'a>(
        &'a self,
        of: Type,
        within: &'a Within,
        deadline: Deadline,
    ) -> Answer<'a, Listing<DynamicObject>> {
        self.engine.list(of, within, deadline)
    }

    fn watch(
        &self,
        of: Type,
        within: Within,
        after: Option<Version>,
    ) -> BoxStream<'static, Event<DynamicObject>> {
        self.engine.watch(of, within, after)
    }

    fn create(
        &self,
        of: Type,
        mut object: DynamicObject,
        deadline: Deadline,
    ) -> Answer<'_, DynamicObject> {
        async move {
            let deadline = self.admit("creating", &of, &Id::of(&object), deadline)?;
            self.stamp(&mut object);
            self.engine.create(of, object, deadline).await
        }
        .boxed()
    }

    fn apply(
        &self,
        of: Type,
        object: DynamicObject,
        expected: Expected,
        deadline: Deadline,
    ) -> Answer<'_, DynamicObject> {
        self.write(of, object, expected, deadline).boxed()
    }

    fn apply_status(
        &self,
        of: Type,
        object: DynamicObject,
        expected: Expected,
        deadline: Deadline,
    ) -> Answer<'_, DynamicObject> {
        self.write_status(of, object, expected, deadline).boxed()
    }

    fn delete<'a>(
        &'a self,
        of: Type,
        id: &'a Id,
        expected: Expected,
        deadline: Deadline,
    ) -> Answer<'a, Deletion> {
        self.remove(of, id, expected, deadline).boxed()
    }
}

#[cfg(test)]
mod tests;

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
    Answer, Done, Engine, Error, Event, Expected, Id, Keep, Kept, Listing, Objects, Operation,
    Type, Version, Within,
};

impl Objects {
    /// The same store for a leader's writes: each is refused when the fence no longer holds, carries the
    /// fence's token, and leaves alone what a later leader wrote. Reads are as they were.
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
    /// The earlier of `deadline` and the fence's end, or a refusal.
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

    /// Reads the object, and refuses one that a later leader wrote. Reading takes time, so the fence is
    /// looked at again after it.
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

    /// Makes a write over the version that was read, if what was read is what the caller expects.
    async fn write_over(
        &self,
        of: Type,
        mut operation: Operation,
        deadline: Deadline,
    ) -> Result<Done, Error> {
        let (doing, id) = (operation.doing(), operation.id());
        if let Operation::Create(object) | Operation::Apply(object, _) = &mut operation {
            self.stamp(object);
        }
        if matches!(operation, Operation::Create(_)) {
            let deadline = self.admit(doing, &of, &id, deadline)?;
            return self.engine.write(of, operation, deadline).await;
        }
        let expected = expected(&operation);
        let mut rounds = 0..if expected == Expected::Any { ROUNDS } else { 0 };
        loop {
            let current = self.current(doing, &of, &id, deadline).await?;
            let deadline = self.admit(doing, &of, &id, deadline)?;
            let step = match (current, operation.clone()) {
                (None, Operation::Apply(object, Expected::Any)) => Operation::Create(object),
                (None, Operation::ApplyStatus(..) | Operation::Delete(..)) => {
                    return Err(Error::NotFound { kind: of.kind, id });
                }
                (current, operation) => {
                    let current = expect(&of, &id, current, &expected)?;
                    match self.over(&of, current, operation, deadline).await {
                        Err(Error::Conflict { .. }) if rounds.next().is_some() => continue,
                        step => step?,
                    }
                }
            };
            match self.engine.write(of.clone(), step, deadline).await {
                Err(Error::Exists { .. } | Error::Conflict { .. }) if rounds.next().is_some() => {}
                answer => return answer,
            }
        }
    }

    /// The same operation over exactly `current`. The status endpoint takes no annotation, so an object
    /// that does not carry the token yet is stamped first: one more write for each object and term.
    async fn over(
        &self,
        of: &Type,
        current: DynamicObject,
        operation: Operation,
        deadline: Deadline,
    ) -> Result<Operation, Error> {
        let (uid, at) = (current.metadata.uid.clone(), Expected::Version(version(&current)));
        Ok(match operation {
            Operation::Apply(mut object, _) => {
                object.metadata.uid = uid;
                Operation::Apply(object, at)
            }
            Operation::ApplyStatus(mut object, _) => {
                object.metadata.uid = uid;
                if stamp(&current).as_ref() == Some(self.fence.token()) {
                    return Ok(Operation::ApplyStatus(object, at));
                }
                let (key, value) = (ANNOTATION.to_owned(), Some(self.fence.token().to_string()));
                let stamping = Operation::Annotate { current, key, value };
                match self.engine.write(of.clone(), stamping, deadline).await? {
                    Done::Object(stamped) => {
                        Operation::ApplyStatus(object, Expected::Version(version(&stamped)))
                    }
                    Done::Deletion(_) => unreachable!("only a delete is answered so"),
                }
            }
            // Without the token: it is made over the version that was read and looked at, so a later
            // leader's write is never undone by it.
            Operation::Annotate { key, value, .. } => Operation::Annotate { current, key, value },
            Operation::Delete(id, _) => Operation::Delete(id, at),
            Operation::Create(object) => Operation::Create(object),
        })
    }

    fn stamp(&self, object: &mut DynamicObject) {
        let token = self.fence.token().to_string();
        object.annotations_mut().insert(ANNOTATION.to_owned(), token);
    }
}

fn expected(operation: &Operation) -> Expected {
    match operation {
        Operation::Create(_) => Expected::Any,
        Operation::Apply(_, expected)
        | Operation::ApplyStatus(_, expected)
        | Operation::Delete(_, expected) => expected.clone(),
        Operation::Annotate { current, .. } => Expected::Version(version(current)),
    }
}

fn stamp(object: &DynamicObject) -> Option<Token> {
    object.annotations().get(ANNOTATION).and_then(|text| Token::parse(text))
}

fn version(object: &DynamicObject) -> Version {
    Version(object.resource_version().unwrap_or_default())
}

/// The object that was read, if it is the one that was expected.
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

    fn watch_kept(&self, of: Type, page: u32, keep: Keep) -> BoxStream<'static, Event<Kept>> {
        self.engine.watch_kept(of, page, keep)
    }

    fn visit<'a>(
        &'a self,
        of: Type,
        page: u32,
        each: &'a (dyn Fn() -> Deadline + Send + Sync),
        visit: &'a mut (dyn FnMut(DynamicObject) + Send),
    ) -> Answer<'a, ()> {
        self.engine.visit(of, page, each, visit)
    }

    fn write(&self, of: Type, operation: Operation, deadline: Deadline) -> Answer<'_, Done> {
        self.write_over(of, operation, deadline).boxed()
    }
}

#[cfg(test)]
mod tests;

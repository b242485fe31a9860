use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{HISTORY, HISTORY_BYTES, OBJECT_BYTES, State, kind_of, new_uid};
use crate::store::{Deletion, Done, Error, Event, Expected, Id, Operation, Type, Version, Within};

const FINALIZER: &str = "fairlead.dev/held";

fn of(kind: &'static str) -> Type {
    let resource = ApiResource {
        group: "test".to_owned(),
        version: "v1".to_owned(),
        api_version: "test/v1".to_owned(),
        kind: kind.to_owned(),
        plural: kind.to_lowercase(),
    };
    Type { resource, namespaced: false, kind }
}

fn object(name: &str, data: Value) -> DynamicObject {
    serde_json::from_value(json!({ "metadata": { "name": name } }))
        .map(|empty: DynamicObject| DynamicObject { data, ..empty })
        .unwrap()
}

/// What somebody asks for.
#[derive(Clone, Debug)]
struct Wanted {
    name: u8,
    spec: u8,
    label: Option<u8>,
    held: bool,
    owner: Option<u8>,
}

#[derive(Clone, Debug)]
enum Step {
    Create(Wanted),
    Apply(Wanted, Hope),
    Status(u8, u8, Hope),
    Delete(u8, Hope),
}

/// What somebody expects.
#[derive(Clone, Copy, Debug)]
enum Hope {
    Any,
    Current,
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    let wanted = || {
        let label = proptest::option::of(0..2_u8);
        let owner = proptest::option::weighted(0.4, 0..5_u8);
        (0..5_u8, 0..3_u8, label, prop::bool::weighted(0.3), owner)
            .prop_map(|(name, spec, label, held, owner)| Wanted { name, spec, label, held, owner })
    };
    let hope =
        || prop_oneof![3 => Just(Hope::Any), 3 => Just(Hope::Current), 1 => Just(Hope::Stale)];
    prop_oneof![
        3 => wanted().prop_map(Step::Create),
        4 => (wanted(), hope()).prop_map(|(wanted, hope)| Step::Apply(wanted, hope)),
        2 => (0..5_u8, 0..3_u8, hope()).prop_map(|(name, status, hope)| Step::Status(name, status, hope)),
        2 => (0..5_u8, hope()).prop_map(|(name, hope)| Step::Delete(name, hope)),
    ]
}

/// An object as the model sees it.
#[derive(Clone, Debug, PartialEq)]
struct Simple {
    /// Tells objects of the same name apart.
    life: u64,
    spec: u8,
    status: Option<u8>,
    label: Option<u8>,
    held: bool,
    /// The life of its owner.
    owner: Option<u64>,
    deleting: bool,
    generation: i64,
    /// Counts its changes.
    changes: u64,
}

#[derive(Clone, Debug, Default)]
struct Model {
    objects: BTreeMap<u8, Simple>,
    lives: u64,
    changes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Object,
    Gone,
    Waiting,
    Exists,
    NotFound,
    Conflict,
    Invalid,
}

impl Model {
    fn run(&mut self, step: &Step, owner: Option<u64>) -> Outcome {
        match step {
            Step::Create(wanted) => self.create(wanted, owner),
            Step::Apply(wanted, hope) => match (self.objects.get(&wanted.name), hope) {
                (None, Hope::Any) => self.create(wanted, owner),
                (None, _) | (Some(_), Hope::Stale) => Outcome::Conflict,
                (Some(_), _) => self.apply(wanted, owner),
            },
            Step::Status(name, status, hope) => match (self.objects.get_mut(name), hope) {
                (None, _) => Outcome::NotFound,
                (Some(_), Hope::Stale) => Outcome::Conflict,
                (Some(object), _) => {
                    if object.status != Some(*status) {
                        object.status = Some(*status);
                        object.changes += 1;
                        self.changes += 1;
                    }
                    Outcome::Object
                }
            },
            Step::Delete(name, hope) => match (self.objects.get(name), hope) {
                (None, _) => Outcome::NotFound,
                (Some(_), Hope::Stale) => Outcome::Conflict,
                (Some(object), _) => {
                    let outcome = if object.held { Outcome::Waiting } else { Outcome::Gone };
                    self.delete(*name);
                    outcome
                }
            },
        }
    }

    fn create(&mut self, wanted: &Wanted, owner: Option<u64>) -> Outcome {
        if self.objects.contains_key(&wanted.name) {
            return Outcome::Exists;
        }
        self.lives += 1;
        self.changes += 1;
        let made = Simple {
            life: self.lives,
            spec: wanted.spec,
            status: None,
            label: wanted.label,
            held: wanted.held,
            owner,
            deleting: false,
            generation: 1,
            changes: 1,
        };
        self.objects.insert(wanted.name, made);
        self.sweep(wanted.name);
        Outcome::Object
    }

    fn apply(&mut self, wanted: &Wanted, owner: Option<u64>) -> Outcome {
        let object = self.objects.get_mut(&wanted.name).unwrap();
        let before = object.clone();
        object.generation += i64::from(object.spec != wanted.spec);
        object.spec = wanted.spec;
        object.label = wanted.label;
        object.held = wanted.held;
        object.owner = owner;
        if *object == before {
            return Outcome::Object;
        }
        if before.deleting && object.held && !before.held {
            unreachable!("what is being deleted is held");
        }
        object.changes += 1;
        self.changes += 1;
        if before.deleting && !object.held {
            let life = object.life;
            self.objects.remove(&wanted.name);
            self.orphan(life);
        } else {
            self.sweep(wanted.name);
        }
        Outcome::Object
    }

    /// Goes if its owner is not there.
    fn sweep(&mut self, name: u8) {
        let owner = self.objects[&name].owner;
        if owner.is_some_and(|owner| !self.objects.values().any(|other| other.life == owner)) {
            self.delete(name);
        }
    }

    fn delete(&mut self, name: u8) {
        let Some(object) = self.objects.get_mut(&name) else { return };
        let life = object.life;
        if object.held {
            if !object.deleting {
                object.deleting = true;
                object.changes += 1;
                self.changes += 1;
            }
        } else {
            self.objects.remove(&name);
            self.changes += 1;
            self.orphan(life);
        }
    }

    fn orphan(&mut self, life: u64) {
        let owned = |(_, object): &(&u8, &Simple)| object.owner == Some(life);
        let names: Vec<_> = self.objects.iter().filter(owned).map(|(name, _)| *name).collect();
        for name in names {
            self.delete(name);
        }
    }
}

/// The real one beside the model.
#[derive(Default)]
struct Pair {
    state: State,
    model: Model,
    /// Which uid is which life, and the last version of each object.
    lives: BTreeMap<String, u64>,
}

impl Pair {
    fn run(&mut self, step: &Step) -> (Outcome, Outcome) {
        let of = of("Thing");
        let current = |name: &u8| self.state.get(&kind_of(&of), &Id::cluster(format!("n{name}")));
        let expected = |name, hope: &Hope| match hope {
            Hope::Any => Expected::Any,
            Hope::Stale => Expected::Version(Version("0".to_owned())),
            Hope::Current => {
                let version = current(name).and_then(|it| it.metadata.resource_version.clone());
                Expected::Version(Version(version.unwrap_or_default()))
            }
        };
        // One may name an owner that is not there: any uid will do.
        let owner_uid = |owner: u8| {
            current(&owner).map_or("none".to_owned(), |it| it.metadata.uid.clone().unwrap())
        };
        let build = |wanted: &Wanted| {
            let mut object = object(&format!("n{}", wanted.name), json!({ "spec": wanted.spec }));
            let metadata = &mut object.metadata;
            metadata.labels =
                wanted.label.map(|label| [("l".to_owned(), label.to_string())].into());
            metadata.finalizers = wanted.held.then(|| vec![FINALIZER.to_owned()]);
            metadata.owner_references = wanted.owner.map(|owner| {
                let reference = json!([{
                    "apiVersion": "test/v1", "kind": "Thing", "name": "o", "uid": owner_uid(owner),
                }]);
                serde_json::from_value(reference).unwrap()
            });
            object
        };
        let (operation, owner) = match step {
            Step::Create(wanted) => (Operation::Create(build(wanted)), wanted.owner),
            Step::Apply(wanted, hope) => {
                (Operation::Apply(build(wanted), expected(&wanted.name, hope)), wanted.owner)
            }
            Step::Status(name, status, hope) => {
                let object = object(&format!("n{name}"), json!({ "status": status }));
                (Operation::ApplyStatus(object, expected(name, hope)), None)
            }
            Step::Delete(name, hope) => {
                (Operation::Delete(Id::cluster(format!("n{name}")), expected(name, hope)), None)
            }
        };
        let owner_life = owner.map(|owner| self.model.objects.get(&owner).map_or(0, |it| it.life));
        let predicted = self.model.run(step, owner_life);

        let mut writes = Vec::new();
        let before = self.state.revision();
        let done = self.state.run(&of, operation, Timestamp::UNIX_EPOCH, &mut writes);
        assert_eq!(writes.len() as u64, self.state.revision() - before, "every change is written");
        if let Ok(Done::Object(made)) = &done {
            let lives = self.lives.len() as u64 + 1;
            self.lives.entry(made.metadata.uid.clone().unwrap()).or_insert(lives);
        }
        let outcome = match done {
            Ok(Done::Object(_)) => Outcome::Object,
            Ok(Done::Deletion(Deletion::Gone)) => Outcome::Gone,
            Ok(Done::Deletion(Deletion::Waiting(_))) => Outcome::Waiting,
            Err(Error::Exists { .. }) => Outcome::Exists,
            Err(Error::NotFound { .. }) => Outcome::NotFound,
            Err(Error::Conflict { .. }) => Outcome::Conflict,
            Err(Error::Invalid { .. }) => Outcome::Invalid,
            Err(error) => panic!("{error}"),
        };
        (outcome, predicted)
    }

    fn simplified(&self) -> BTreeMap<u8, Simple> {
        let listing = self.state.list(&kind_of(&of("Thing")), &Within::default());
        let simple = |object: &DynamicObject| {
            let number = |value: &Value| u8::try_from(value.as_u64().unwrap()).unwrap();
            let metadata = &object.metadata;
            let name: u8 = metadata.name.as_ref().unwrap()[1..].parse().unwrap();
            let life = |uid: &String| self.lives.get(uid).copied().unwrap_or(0);
            let simple = Simple {
                life: life(metadata.uid.as_ref().unwrap()),
                spec: number(&object.data["spec"]),
                status: object.data.get("status").map(number),
                label: metadata.labels.as_ref().map(|labels| labels["l"].parse().unwrap()),
                held: metadata.finalizers.is_some(),
                owner: metadata.owner_references.as_ref().map(|owners| life(&owners[0].uid)),
                deleting: metadata.deletion_timestamp.is_some(),
                generation: metadata.generation.unwrap(),
                changes: self.model.objects.get(&name).map_or(0, |model| model.changes),
            };
            (name, simple)
        };
        listing.items.iter().map(simple).collect()
    }
}

proptest! {
    #[test]
    fn it_does_what_a_simple_model_does(steps in vec(step(), 0..60)) {
        let mut pair = Pair::default();
        let mut past = vec![pair.state.clone()];
        for step in &steps {
            let (outcome, predicted) = pair.run(step);
            prop_assert_eq!(outcome, predicted, "{:?}", step);
            prop_assert_eq!(&pair.simplified(), &pair.model.objects);
            prop_assert_eq!(pair.state.revision(), pair.model.changes);
            past.push(pair.state.clone());
        }
        // Whoever follows the events from any point on, in any selection, ends up with what there is.
        let kind = kind_of(&of("Thing"));
        for labels in [None, Some("l=1".parse().unwrap())] {
            let within = Within { labels, ..Within::default() };
            let names = |objects: Vec<DynamicObject>| {
                let entry = |object: DynamicObject| (Id::of(&object), object);
                objects.into_iter().map(entry).collect::<BTreeMap<_, _>>()
            };
            let there = names(pair.state.list(&kind, &within).items);
            for old in &past {
                let mut mirror = names(old.list(&kind, &within).items);
                let mut seen = old.revision();
                loop {
                    let (now, event) = pair.state.next(&kind, &within, Some(seen));
                    prop_assert!(now > seen || event.is_none());
                    seen = now;
                    match event {
                        Some(Event::Restarted(_)) => prop_assert!(false, "nothing is forgotten yet"),
                        Some(Event::Applied(object)) => {
                            mirror.insert(Id::of(&object), object);
                        }
                        Some(Event::Deleted(object)) => {
                            prop_assert!(mirror.remove(&Id::of(&object)).is_some());
                        }
                        None => break,
                    }
                }
                prop_assert_eq!(seen, pair.state.revision());
                prop_assert_eq!(&mirror, &there);
            }
        }
        // What is read back from disk is the same.
        let objects = pair.state.objects().map(|(kind, id, it)| (kind.clone(), id.clone(), it.clone()));
        let restored = State::restore(pair.state.revision(), objects.collect::<Vec<_>>());
        prop_assert!(restored.objects().eq(pair.state.objects()));
        prop_assert_eq!(&restored.uids, &pair.state.uids);
        prop_assert_eq!(&restored.owned, &pair.state.owned);
    }
}

#[test]
fn the_history_is_bounded_by_number_and_by_size() {
    let of = of("Thing");
    let put = |state: &mut State, i: usize, bytes: usize| {
        let object = object("a", json!({ "spec": format!("{i}{}", "x".repeat(bytes)) }));
        let operation = Operation::Apply(object, Expected::Any);
        state.run(&of, operation, Timestamp::UNIX_EPOCH, &mut Vec::new()).unwrap();
    };
    let mut state = State::default();
    for i in 0..HISTORY + 10 {
        put(&mut state, i, 0);
    }
    assert_eq!(state.history.len(), HISTORY);
    assert_eq!(state.forgotten, 10);
    let kind = kind_of(&of);
    let within = Within::default();
    assert!(matches!(state.next(&kind, &within, Some(9)), (_, Some(Event::Restarted(_)))));
    assert!(matches!(state.next(&kind, &within, Some(10)), (11, Some(Event::Applied(_)))));
    for i in 0..100 {
        put(&mut state, i, OBJECT_BYTES / 2);
    }
    assert!(state.history_bytes <= HISTORY_BYTES);
    assert!(state.history.len() < 100);
    // What is gone is kept for those who have not heard of it, and counts.
    for i in 0..200 {
        put(&mut state, i, OBJECT_BYTES / 2);
        let delete = Operation::Delete(Id::cluster("a"), Expected::Any);
        state.run(&of, delete, Timestamp::UNIX_EPOCH, &mut Vec::new()).unwrap();
    }
    assert!(state.history_bytes <= HISTORY_BYTES);
    assert!(state.history.len() < 150, "{}", state.history.len());
}

#[test]
fn a_chain_of_owners_may_be_longer_than_the_stack() {
    let of = of("Thing");
    let mut state = State::default();
    let mut run = |operation| state.run(&of, operation, Timestamp::UNIX_EPOCH, &mut Vec::new());
    let mut owner = None;
    for i in 0..20_000 {
        let mut object = object(&format!("n{i}"), json!({}));
        object.metadata.owner_references = owner.map(|uid| {
            let owner = json!({ "apiVersion": "v1", "kind": "Thing", "name": "o", "uid": uid });
            vec![serde_json::from_value(owner).unwrap()]
        });
        let Ok(Done::Object(made)) = run(Operation::Create(object)) else { panic!("refused") };
        owner = made.metadata.uid.clone();
    }
    assert!(run(Operation::Delete(Id::cluster("n0"), Expected::Any)).is_ok());
    assert_eq!(state.objects().count(), 0);
    assert_eq!((state.uids.len(), state.owned.len()), (0, 0));
}

#[test]
fn an_object_that_is_too_large_is_refused_and_nothing_changes() {
    let large = object("a", json!({ "spec": "x".repeat(OBJECT_BYTES) }));
    let mut state = State::default();
    let mut writes = Vec::new();
    let now = Timestamp::UNIX_EPOCH;
    let refused = state.run(&of("Thing"), Operation::Create(large), now, &mut writes).map(drop);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!((state.revision(), writes.len()), (0, 0));
}

#[test]
fn uids_are_random_uuids() {
    let (a, b) = (new_uid().unwrap(), new_uid().unwrap());
    assert_ne!(a, b);
    let parts: Vec<_> = a.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    assert_eq!(&a[14..15], "4");
}

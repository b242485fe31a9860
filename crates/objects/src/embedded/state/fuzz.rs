use std::collections::BTreeMap;

use super::*;
use crate::kinds::Cluster;

/// Objects as they are in the store's file, one a line.
///
/// What was read and written again is the same. Each can be deleted, whoever owns whom, and a watcher that follows
/// the changes knows what is there.
pub fn stored_objects(bytes: &[u8]) {
    let of = Type::of::<Cluster>();
    let kind = kind_of(&of);
    let lines = bytes.split(|byte| *byte == b'\n');
    let read = lines.map_while(|line| serde_json::from_slice::<DynamicObject>(line).ok());
    let objects: Vec<_> = read.map(|object| (Arc::clone(&kind), Id::of(&object), object)).collect();
    // A number with a fraction may lose its last digit, and an object without a type, which the store never
    // writes, the half of one.
    let is_kept = |object: &DynamicObject| object.types.is_some() && !has_fraction(&object.data);
    for (_, _, object) in objects.iter().filter(|(_, _, object)| is_kept(object)) {
        let json = serde_json::to_vec(object).expect("an object is plain values");
        let again: DynamicObject = serde_json::from_slice(&json).expect("what was written is read");
        assert_eq!(again, *object);
    }
    let mut state = State::restore(1, objects.iter().cloned());
    let within = Within::default();
    let by_id = |all: Vec<DynamicObject>| -> BTreeMap<Id, DynamicObject> {
        all.into_iter().map(|object| (Id::of(&object), object)).collect()
    };
    let (mut seen, begun) = state.next(&kind, &within, None);
    let Some(Event::Restarted(all)) = begun else { panic!("a watch begins with everything") };
    let mut known = by_id(all);
    for (_, id, _) in objects {
        let held = state.get(&kind, &id).map(|object| finalizers(object).to_vec());
        let mut writes = Vec::new();
        let done = state.run(
            &of,
            Operation::Delete(id.clone(), Expected::Any),
            Timestamp::UNIX_EPOCH,
            &mut writes,
        );
        // It may have gone with its owner.
        assert_eq!(done.is_ok(), held.is_some());
        assert_eq!(state.get(&kind, &id).is_some(), held.is_some_and(|held| !held.is_empty()));
        while let (now, Some(event)) = state.next(&kind, &within, Some(seen)) {
            seen = now;
            match event {
                Event::Restarted(_) => panic!("nothing was forgotten"),
                Event::Applied(object) => drop(known.insert(Id::of(&object), object)),
                Event::Deleted(object) => drop(known.remove(&Id::of(&object))),
            }
        }
    }
    assert_eq!(known, by_id(state.list(&kind, &within).items));
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(all) => all.iter().any(has_fraction),
        Value::Object(all) => all.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

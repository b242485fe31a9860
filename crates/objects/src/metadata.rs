//! What must hold of every object's metadata, whatever its kind: what an API server would refuse is
//! refused by both engines, in the same words.

use kube::core::ObjectMeta;

use crate::name;
use crate::store::{Id, Invalid};

/// The most bytes that an API server takes for all annotations of an object together.
const ANNOTATIONS: usize = 256 * 1024;

pub(crate) fn identity(namespaced: bool, id: &Id) -> Invalid {
    let mut problems = Invalid::default();
    if let Some(problem) = name::subdomain(&id.name) {
        problems.add("metadata.name", problem);
    }
    match (&id.namespace, namespaced) {
        (None, false) => {}
        (None, true) => problems.add("metadata.namespace", "is missing: the kind is namespaced"),
        (Some(_), false) => {
            problems.add("metadata.namespace", "must not be set: the kind is cluster-scoped");
        }
        (Some(namespace), true) => {
            if let Some(problem) = name::dns_label(namespace) {
                problems.add("metadata.namespace", problem);
            }
        }
    }
    problems
}

pub(crate) fn check(namespaced: bool, metadata: &ObjectMeta) -> Invalid {
    let name = metadata.name.clone().unwrap_or_default();
    let mut problems = identity(namespaced, &Id { namespace: metadata.namespace.clone(), name });
    for (key, value) in metadata.labels.iter().flatten() {
        for problem in name::key(key).into_iter().chain(name::label_value(value)) {
            problems.add(format!("metadata.labels[{key}]"), problem);
        }
    }
    for key in metadata.annotations.iter().flat_map(|annotations| annotations.keys()) {
        // Unlike those of labels, they may be in capitals before the `/` as well.
        if let Some(problem) = name::key(&key.to_ascii_lowercase()) {
            problems.add(format!("metadata.annotations[{key}]"), problem);
        }
    }
    let annotations = metadata.annotations.iter().flatten();
    if annotations.map(|(key, value)| key.len() + value.len()).sum::<usize>() > ANNOTATIONS {
        problems.add("metadata.annotations", "must not be more than 256 KiB");
    }
    for finalizer in metadata.finalizers.iter().flatten() {
        if let Some(problem) = name::prefixed_key(finalizer) {
            problems.add(format!("metadata.finalizers[{finalizer}]"), problem);
        }
    }
    for (i, owner) in metadata.owner_references.iter().flatten().enumerate() {
        let fields = [
            ("apiVersion", &owner.api_version),
            ("kind", &owner.kind),
            ("name", &owner.name),
            ("uid", &owner.uid),
        ];
        for (field, value) in fields {
            if value.is_empty() {
                problems.add(format!("metadata.ownerReferences[{i}].{field}"), "is missing");
            }
        }
    }
    problems
}

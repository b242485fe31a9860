//! A request as the decision sees it, from an `AdmissionReview` (v1 or v1beta1) or from an object
//! alone; and the review that answers it, in the version that asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use objects::kinds::admission_rule::ContainerKind;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::compile::Settings;
use super::decide::Decision;
use super::facts::{Facts, Owner};
use super::image::Image;
use super::item::Item;
use super::ownership::believed;
use super::pod::{Claim, Container, Metadata, PodObject, PodSpec, Review, Workload};
use super::recent_owners::ReviewedOwner;
use super::unreadable;

/// Why an update is let through without a look.
pub(super) const UNCHANGED: &str = "nothing that rules look at is changed";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V1beta1,
}

impl Version {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    pub(super) fn parse(api_version: &str) -> Option<Self> {
        [Self::V1, Self::V1beta1].into_iter().find(|known| known.api_version() == api_version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    /// Let through without a look.
    Other,
}

impl Operation {
    pub fn parse(text: &str) -> Self {
        match text {
            "CREATE" => Self::Create,
            "UPDATE" => Self::Update,
            _ => Self::Other,
        }
    }
}

/// Not a request, or an object that cannot be decoded: refused, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Malformed {
    /// What to answer to, as far as that could be read.
    pub uid: String,
    pub version: Version,
    pub why: String,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub uid: String,
    pub version: Version,
    pub dry_run: bool,
    pub kind: String,
    /// Of an object that its server is to name, what the name begins with.
    pub name: String,
    pub namespace: String,
    /// The object's own, if its server gave it one already.
    pub(super) object_uid: String,
    /// Kind and name of what controls it, if that is believed.
    pub(super) controller: Option<(String, String)>,
    /// Whether it is known who asked for the object. Of one that runs it is not.
    pub(super) requester_known: bool,
    /// Who asks.
    pub user: String,
    pub groups: Vec<String>,
    pub(super) subject: ReviewedObject,
}

/// What there is to judge.
#[derive(Clone, Debug)]
pub(super) enum ReviewedObject {
    /// Why not even a look.
    Passed(&'static str),
    Claim {
        class: String,
    },
    Pod(Box<Pod>),
}

#[derive(Clone, Debug)]
pub(super) struct Pod {
    /// The object's labels with the template's over them.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    /// The uid of what controls it, if that is believed; else the requester counts.
    pub(super) owner: Option<String>,
    /// Of an update: the item as it was, if nothing but what a `customPath` may look at is changed.
    pub(super) unchanged_from: Option<Item>,
    /// Where sidecars may be exempt, what they are told by.
    sidecars: Option<Sidecars>,
    /// The pod's own annotations, for AppArmor.
    pub(super) pod_annotations: BTreeMap<String, String>,
    pub(super) spec: PodSpec,
    /// Init, regular, ephemeral, with what was parsed of each image.
    pub(super) containers: Vec<(ContainerKind, Container, Image)>,
    pub(super) classes: Classes,
    pub(super) item: Item,
}

/// What there is to tell an injected container by.
#[derive(Clone, Debug)]
struct Sidecars {
    /// The names of the containers of the pod as it was.
    before: Vec<String>,
}

impl Pod {
    /// Whether a container is exempt from some rules: one that an injector added to a pod.
    pub(super) fn is_injected(&self, container: &Container, facts: &dyn Facts) -> bool {
        let Some(Sidecars { before }) = &self.sidecars else { return false };
        !before.contains(&container.name) && facts.injected(self.owner.as_deref(), &container.name)
    }
}

/// Where the storage classes of a workload are found.
#[derive(Clone, Debug)]
pub(super) enum Classes {
    /// A StatefulSet's templates name them.
    Named(Vec<String>),
    /// The claims of the pod's volumes, to be looked up.
    Claims(Vec<String>),
}

impl Request {
    /// An `AdmissionReview` as an API server sends it.
    pub fn review(bytes: &[u8], settings: &Settings) -> Result<Self, Malformed> {
        let mut broken = Malformed { uid: String::new(), version: Version::V1, why: String::new() };
        let because = |mut broken: Malformed, why: String| {
            broken.why = why;
            broken
        };
        let review: Review<'_> = match serde_json::from_slice(bytes) {
            Ok(review) => review,
            Err(error) => {
                (broken.uid, broken.version) = unreadable::asked_by(bytes);
                return Err(because(broken, format!("the review cannot be read: {error}")));
            }
        };
        let Some(version) = Version::parse(&review.api_version) else {
            let why = "the review is neither admission.k8s.io/v1 nor v1beta1".to_owned();
            return Err(because(broken, why));
        };
        broken.version = version;
        let Some(request) = review.request else {
            return Err(because(broken, "the review has no request".to_owned()));
        };
        broken.uid = request.uid;
        let asked = Asked {
            operation: Operation::parse(&request.operation),
            group: request.kind.group,
            kind: request.kind.kind,
            subresource: request.sub_resource,
        };
        let mut read = Self {
            uid: broken.uid.clone(),
            version: broken.version,
            dry_run: request.dry_run,
            kind: asked.kind.clone(),
            name: request.name,
            namespace: request.namespace,
            object_uid: String::new(),
            controller: None,
            requester_known: true,
            user: request.user_info.username,
            groups: request.user_info.groups,
            subject: ReviewedObject::Passed("nothing to look at"),
        };
        let object = request.object.map_or("null", RawValue::get);
        let before = request.old_object.map(|before| Object::Text(before.get()));
        match read.read(&asked, Object::Text(object), before, settings) {
            Ok(()) => Ok(read),
            Err(why) => Err(because(broken, why)),
        }
    }

    /// An object by itself, as somebody would apply it.
    pub fn object(
        object: &Value,
        operation: Operation,
        user: &str,
        groups: &[String],
        settings: &Settings,
    ) -> Result<Self, Malformed> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let asked = Asked {
            operation,
            group: text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: text("kind").to_owned(),
            subresource: String::new(),
        };
        let mut read = Self {
            uid: String::new(),
            version: Version::V1,
            dry_run: false,
            kind: asked.kind.clone(),
            name: String::new(),
            namespace: String::new(),
            object_uid: String::new(),
            controller: None,
            requester_known: true,
            user: user.to_owned(),
            groups: groups.to_vec(),
            subject: ReviewedObject::Passed("nothing to look at"),
        };
        match read.read(&asked, Object::Value(object), None, settings) {
            Ok(()) => Ok(read),
            Err(why) => Err(Malformed { uid: String::new(), version: Version::V1, why }),
        }
    }

    /// A pod that runs already: who asked for it is not known any more, and its controller is believed, as
    /// it was when the pod was made.
    pub(super) fn running(pod: &Value, settings: &Settings) -> Result<Self, Malformed> {
        let mut request = Self::object(pod, Operation::Create, "", &[], settings)?;
        request.requester_known = false;
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let mut owners = owners.into_iter().flatten();
        if let Some(owner) = owners.find(|owner| owner["controller"] == true) {
            let text = |key: &str| owner[key].as_str().unwrap_or_default().to_owned();
            request.controller = Some((text("kind"), text("name")));
            if let ReviewedObject::Pod(pod) = &mut request.subject {
                pod.owner = Some(text("uid"));
            }
        }
        Ok(request)
    }

    /// Why it is let through without a look, if it is.
    pub fn passed(&self) -> Option<&'static str> {
        match self.subject {
            ReviewedObject::Passed(why) => Some(why),
            _ => None,
        }
    }

    /// What is known of its root owner.
    pub(super) fn root<'f>(&self, facts: &'f dyn Facts) -> Option<&'f Owner> {
        match &self.subject {
            ReviewedObject::Pod(pod) => facts.owner(pod.owner.as_ref()?),
            _ => None,
        }
    }

    /// The images of its containers, each once.
    pub(super) fn images(&self) -> String {
        let ReviewedObject::Pod(pod) = &self.subject else { return String::new() };
        let mut images: Vec<_> =
            pod.containers.iter().map(|(_, container, _)| container.image.as_str()).collect();
        images.dedup();
        images.join(", ")
    }

    /// What those that it may own are to be judged by. Pods and claims own nothing.
    pub(super) fn into_sighting(self) -> Option<ReviewedOwner> {
        let ReviewedObject::Pod(pod) = self.subject else { return None };
        if self.kind == "Pod" || self.object_uid.is_empty() {
            return None;
        }
        let owner = Owner {
            kind: self.kind,
            name: self.name,
            by: Some((self.user, self.groups)),
            labels: pod.labels,
            annotations: pod.annotations,
        };
        Some(ReviewedOwner { uid: self.object_uid, above: pod.owner, owner })
    }

    /// Lets it through without a look.
    pub(super) fn pass(&mut self, why: &'static str) {
        self.subject = ReviewedObject::Passed(why);
    }

    fn read(
        &mut self,
        asked: &Asked,
        object: Object<'_>,
        before: Option<Object<'_>>,
        settings: &Settings,
    ) -> Result<(), String> {
        let Some(at) = asked.template() else {
            self.pass("no rule looks at this kind");
            return Ok(());
        };
        if asked.operation == Operation::Other {
            self.pass("no rule looks at this operation");
            return Ok(());
        }
        if !matches!(asked.subresource.as_str(), "" | "ephemeralcontainers" | "resize") {
            self.pass("no rule looks at this subresource");
            return Ok(());
        }
        let now = Read::of(asked, object)
            .map_err(|error| format!("the {} cannot be read: {error}", asked.kind))?;
        // What cannot be read is not known to be the same.
        let before = before.filter(|_| asked.operation == Operation::Update);
        let before = before.and_then(|text| Some((Read::of(asked, text).ok()?, text)));
        let unchanged = before.as_ref().filter(|(before, _)| now.shows_the_same(before));
        let unchanged = unchanged.map(|(_, text)| *text);
        let Read { meta, template, classes, claim } = now;
        if !meta.name.is_empty() {
            self.name.clone_from(&meta.name);
        } else if self.name.is_empty() {
            self.name.clone_from(&meta.generate_name);
        }
        self.object_uid.clone_from(&meta.uid);
        // Who changes a part of a pod that runs does so by themselves.
        let whole = asked.subresource.is_empty();
        let owner =
            believed(&self.user, &asked.kind, &meta.owner_references, &settings.controllers);
        let owner = owner.filter(|_| whole);
        self.controller = owner.map(|owner| (owner.kind.clone(), owner.name.clone()));
        let owner = owner.map(|owner| owner.uid.clone());
        if !meta.namespace.is_empty() {
            self.namespace.clone_from(&meta.namespace);
        }
        if asked.operation == Operation::Update && meta.deletion_timestamp.is_some() {
            self.pass("it is being deleted");
            return Ok(());
        }
        if asked.kind == "PersistentVolumeClaim" {
            match claim {
                Some(_) if unchanged.is_some() => self.pass(UNCHANGED),
                Some(class) => self.subject = ReviewedObject::Claim { class },
                None => self.pass("the claim names no storage class"),
            }
            return Ok(());
        }
        let Some((pod_meta, spec)) = template else {
            self.pass("it has no pod spec");
            return Ok(());
        };
        let claims = || spec.volumes.iter().filter_map(|v| v.claim()).map(str::to_owned).collect();
        let sidecars = (settings.exempt_sidecars && asked.kind == "Pod").then(|| {
            let before = before.and_then(|(before, _)| before.template);
            let before = before.map(|(_, spec)| spec.into_container_names());
            Sidecars { before: before.unwrap_or_default() }
        });
        let mut pod = Pod {
            labels: meta.labels,
            annotations: meta.annotations,
            owner,
            unchanged_from: unchanged.map(|text| Item::new(text, at)),
            sidecars,
            classes: classes.map_or_else(|| Classes::Claims(claims()), Classes::Named),
            containers: containers(&spec, &settings.default_registries),
            spec,
            pod_annotations: BTreeMap::new(),
            item: Item::new(object, at),
        };
        // A pod's own are both.
        match pod_meta {
            None => pod.pod_annotations.clone_from(&pod.annotations),
            Some(over) => {
                pod.labels.extend(over.labels);
                pod.pod_annotations.clone_from(&over.annotations);
                pod.annotations.extend(over.annotations);
            }
        }
        self.subject = ReviewedObject::Pod(Box::new(pod));
        Ok(())
    }
}

/// Of a request, before its object.
struct Asked {
    operation: Operation,
    group: String,
    kind: String,
    subresource: String,
}

impl Asked {
    /// Where the pod template of the kind is; none for kinds that are not looked at.
    fn template(&self) -> Option<&'static str> {
        Some(match (self.group.as_str(), self.kind.as_str()) {
            ("", "Pod" | "PersistentVolumeClaim") => "",
            ("apps" | "extensions", "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet")
            | ("", "ReplicationController")
            | ("batch", "Job")
            | ("" | "apps.openshift.io", "DeploymentConfig") => "/spec/template",
            ("batch", "CronJob") => "/spec/jobTemplate/spec/template",
            _ => return None,
        })
    }
}

/// Of an object, what can matter.
struct Read {
    meta: Metadata,
    /// The template's metadata, unless it is the object's own; and the pod's spec.
    template: Option<(Option<Metadata>, PodSpec)>,
    /// What a StatefulSet's templates name.
    classes: Option<Vec<String>>,
    /// A claim's own.
    claim: Option<String>,
}

impl Read {
    fn of(asked: &Asked, object: Object<'_>) -> Result<Self, serde_json::Error> {
        let (template, classes, claim);
        let meta = match asked.kind.as_str() {
            "Pod" => {
                let pod: PodObject = object.read()?;
                (template, classes, claim) = (pod.spec.map(|spec| (None, spec)), None, None);
                pod.metadata
            }
            "PersistentVolumeClaim" => {
                let read: Claim = object.read()?;
                (template, classes) = (None, None);
                claim = read.spec.storage_class_name;
                read.metadata
            }
            kind => {
                let Workload { metadata, spec } = object.read()?;
                let found = match kind {
                    "CronJob" => spec.job_template.spec.template,
                    _ => spec.template,
                };
                template = found.and_then(|found| Some((Some(found.metadata), found.spec?)));
                let named = spec.volume_claim_templates.into_iter();
                let named = named.filter_map(|claim| claim.spec.storage_class_name);
                classes = (kind == "StatefulSet").then(|| named.collect());
                claim = None;
                metadata
            }
        };
        Ok(Self { meta, template, classes, claim })
    }

    /// Whether nothing is different that a criterion looks at. What a `customPath` finds is compared
    /// where the rules are known.
    fn shows_the_same(&self, before: &Self) -> bool {
        let same = |one: &Metadata, other: &Metadata| {
            one.labels == other.labels && one.annotations == other.annotations
        };
        let same_template = match (&self.template, &before.template) {
            (Some((None, one)), Some((None, other))) => one == other,
            (Some((Some(meta), one)), Some((Some(other_meta), other))) => {
                same(meta, other_meta) && one == other
            }
            (one, other) => one.is_none() && other.is_none(),
        };
        same_template
            && same(&self.meta, &before.meta)
            && self.classes == before.classes
            && self.claim == before.claim
    }
}

/// An object that was sent, or given.
#[derive(Clone, Copy)]
pub(super) enum Object<'a> {
    Text(&'a str),
    Value(&'a Value),
}

impl Object<'_> {
    fn read<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        match self {
            Self::Text(text) => serde_json::from_str(text),
            Self::Value(value) => T::deserialize(value),
        }
    }
}

fn containers(spec: &PodSpec, defaults: &Arc<[String]>) -> Vec<(ContainerKind, Container, Image)> {
    let lists = [
        (ContainerKind::InitContainers, &spec.init_containers),
        (ContainerKind::Containers, &spec.containers),
        (ContainerKind::EphemeralContainers, &spec.ephemeral_containers),
    ];
    let mut containers = Vec::new();
    for (kind, list) in lists {
        for container in list {
            let image = Image::parse(&container.image, defaults);
            containers.push((kind, container.clone(), image));
        }
    }
    containers
}

/// The review that answers, in the version of the request. A request that was malformed is refused.
pub fn response(request: Result<(&Request, &Decision<'_>), &Malformed>) -> Value {
    let (uid, version, allowed, message, warnings) = match request {
        Ok((request, decision)) => {
            let message = (!decision.allowed).then(|| decision.sentence());
            let warnings = decision.warnings.clone();
            (&request.uid, request.version, decision.allowed, message, warnings)
        }
        Err(broken) => (&broken.uid, broken.version, false, Some(broken.to_string()), Vec::new()),
    };
    let mut response = json!({"uid": uid, "allowed": allowed});
    if let Some(message) = message {
        response["status"] = json!({"message": message, "reason": "Forbidden", "code": 403});
    }
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    json!({"apiVersion": version.api_version(), "kind": "AdmissionReview", "response": response})
}

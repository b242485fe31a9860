//! A request as the decision sees it, from an `AdmissionReview` (v1 or v1beta1) or from an object
//! alone; and the review that answers it, in the version that asked.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use objects::kinds::admission_rule::ContainerKind;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::compile::Settings;
use super::decide::Decision;
use super::facts::{Facts, Owner};
use super::image::Image;
use super::pod::{Claim, Container, Metadata, PodObject, PodSpec, Review, Workload};
use super::seen::Sighting;

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
    /// Kind and name of what controls it.
    pub(super) controller: Option<(String, String)>,
    /// Who asks.
    pub user: String,
    pub groups: Vec<String>,
    pub(super) subject: Subject,
}

/// What there is to judge.
#[derive(Clone, Debug)]
pub(super) enum Subject {
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
    /// The uids of its owners.
    pub(super) owners: Vec<String>,
    /// Whether the requester counts, owners or not: nobody else adds ephemeral containers.
    pub(super) by_requester: bool,
    /// The pod's own annotations, for AppArmor.
    pub(super) pod_annotations: BTreeMap<String, String>,
    pub(super) spec: PodSpec,
    /// Init, regular, ephemeral, with what was parsed of each image.
    pub(super) containers: Vec<(ContainerKind, Container, Image)>,
    pub(super) classes: Classes,
    pub(super) item: Item,
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
                return Err(because(broken, format!("the review cannot be read: {error}")));
            }
        };
        broken.version = match review.api_version.as_ref() {
            "admission.k8s.io/v1" => Version::V1,
            "admission.k8s.io/v1beta1" => Version::V1beta1,
            _ => {
                let why = "the review is neither admission.k8s.io/v1 nor v1beta1".to_owned();
                return Err(because(broken, why));
            }
        };
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
            user: request.user_info.username,
            groups: request.user_info.groups,
            subject: Subject::Passed("nothing to look at"),
        };
        let object = request.object.map_or("null", RawValue::get);
        match read.read(&asked, Object::Text(object), settings) {
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
            user: user.to_owned(),
            groups: groups.to_vec(),
            subject: Subject::Passed("nothing to look at"),
        };
        match read.read(&asked, Object::Value(object), settings) {
            Ok(()) => Ok(read),
            Err(why) => Err(Malformed { uid: String::new(), version: Version::V1, why }),
        }
    }

    /// Why it is let through without a look, if it is.
    pub fn passed(&self) -> Option<&'static str> {
        match self.subject {
            Subject::Passed(why) => Some(why),
            _ => None,
        }
    }

    /// What is known of its root owner.
    pub(super) fn root<'f>(&self, facts: &'f dyn Facts) -> Option<&'f Owner> {
        match &self.subject {
            Subject::Pod(pod) if !pod.owners.is_empty() => facts.owner(&pod.owners),
            _ => None,
        }
    }

    /// The images of its containers, each once.
    pub(super) fn images(&self) -> String {
        let Subject::Pod(pod) = &self.subject else { return String::new() };
        let mut images: Vec<_> =
            pod.containers.iter().map(|(_, container, _)| container.image.as_str()).collect();
        images.dedup();
        images.join(", ")
    }

    /// What those that it may own are to be judged by. Pods and claims own nothing.
    pub(super) fn into_sighting(self) -> Option<Sighting> {
        let Subject::Pod(pod) = self.subject else { return None };
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
        Some(Sighting { uid: self.object_uid, above: pod.owners, owner })
    }

    /// Lets it through without a look.
    pub(super) fn pass(&mut self, why: &'static str) {
        self.subject = Subject::Passed(why);
    }

    fn read(
        &mut self,
        asked: &Asked,
        object: Object<'_>,
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
        let Read { meta, template, classes, claim, phase } = Read::of(asked, object)
            .map_err(|error| format!("the {} cannot be read: {error}", asked.kind))?;
        if !meta.name.is_empty() {
            self.name.clone_from(&meta.name);
        } else if self.name.is_empty() {
            self.name.clone_from(&meta.generate_name);
        }
        self.object_uid.clone_from(&meta.uid);
        let owners = &meta.owner_references;
        let controller = owners.iter().find(|owner| owner.controller).or(owners.first());
        self.controller = controller.map(|owner| (owner.kind.clone(), owner.name.clone()));
        if !meta.namespace.is_empty() {
            self.namespace.clone_from(&meta.namespace);
        }
        if asked.operation == Operation::Update && meta.deletion_timestamp.is_some() {
            self.pass("it is being deleted");
            return Ok(());
        }
        if asked.kind == "PersistentVolumeClaim" {
            match claim {
                Some(class) => self.subject = Subject::Claim { class },
                None => self.pass("the claim names no storage class"),
            }
            return Ok(());
        }
        // An API server sets the status of a new pod itself, so that this is one it runs already.
        let by_requester = asked.subresource == "ephemeralcontainers";
        let runs = asked.kind == "Pod" && phase == "Running";
        if runs && !meta.owner_references.is_empty() && !by_requester {
            self.pass("it runs already, and its owner was looked at");
            return Ok(());
        }
        let Some((pod_meta, spec)) = template else {
            self.pass("it has no pod spec");
            return Ok(());
        };
        let claims = || spec.volumes.iter().filter_map(|v| v.claim()).map(str::to_owned).collect();
        let mut pod = Pod {
            labels: meta.labels,
            annotations: meta.annotations,
            owners: meta.owner_references.into_iter().map(|owner| owner.uid).collect(),
            by_requester,
            classes: classes.map_or_else(|| Classes::Claims(claims()), Classes::Named),
            containers: containers(&spec, &settings.default_registries),
            spec,
            pod_annotations: BTreeMap::new(),
            item: Item::new(object, at, settings),
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
        self.subject = Subject::Pod(Box::new(pod));
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
    phase: String,
}

impl Read {
    fn of(asked: &Asked, object: Object<'_>) -> Result<Self, serde_json::Error> {
        let (template, classes, claim, phase);
        let meta = match asked.kind.as_str() {
            "Pod" => {
                let pod: PodObject = object.read()?;
                (template, phase) = (pod.spec.map(|spec| (None, spec)), pod.status.phase);
                (classes, claim) = (None, None);
                pod.metadata
            }
            "PersistentVolumeClaim" => {
                let read: Claim = object.read()?;
                (template, classes, phase) = (None, None, String::new());
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
                (claim, phase) = (None, String::new());
                metadata
            }
        };
        Ok(Self { meta, template, classes, claim, phase })
    }
}

/// An object that was sent, or given.
#[derive(Clone, Copy)]
enum Object<'a> {
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

/// The Pod, or the pod template, without exempt containers: `item` of a `customPath`. Few rules look
/// at it, so it is read when the first does.
#[derive(Clone, Debug)]
pub(super) struct Item {
    object: String,
    at: &'static str,
    defaults: Arc<[String]>,
    read: OnceLock<Value>,
}

impl Item {
    fn new(object: Object<'_>, at: &'static str, settings: &Settings) -> Self {
        let object = match object {
            Object::Text(text) => text.to_owned(),
            Object::Value(value) => value.to_string(),
        };
        let defaults = Arc::clone(&settings.default_registries);
        Self { object, at, defaults, read: OnceLock::new() }
    }

    pub(super) fn value(&self) -> &Value {
        self.read.get_or_init(|| {
            // It was read before, as what it is.
            let mut object: Value = serde_json::from_str(&self.object).unwrap_or_default();
            let mut item = object.pointer_mut(self.at).map(Value::take).unwrap_or_default();
            leave_out_exempt(&mut item, &self.defaults);
            item
        })
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

fn leave_out_exempt(item: &mut Value, defaults: &Arc<[String]>) {
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let list = item.get_mut("spec").and_then(|spec| spec.get_mut(list));
        if let Some(Value::Array(list)) = list {
            list.retain(|container| {
                let image = container.get("image").and_then(Value::as_str);
                !image.is_some_and(|image| Image::parse(image, defaults).exempt)
            });
        }
    }
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

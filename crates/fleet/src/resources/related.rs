//! What an object has to do with others besides owning them: selectors, references, routes, scaling.
//!
//! ```text
//! object ──► needed: the kinds to list ──► lists (by the caller, who knows what may be seen) ──► relations
//! ```
//!
//! Contract: [`relations`] is pure. It tells each relation once, and nothing that is neither in the object
//! itself nor in a list that it was given.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use serde_json::Value;

/// How another object is related to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Its selector takes this one.
    SelectedBy,
    /// This one's selector takes it.
    Selects,
    /// This one refers to it.
    Uses,
    UsedBy,
    RoutedBy,
    RoutesTo,
    ScaledBy,
    Scales,
}

impl How {
    pub fn text(self) -> &'static str {
        match self {
            Self::SelectedBy => "selected-by",
            Self::Selects => "selects",
            Self::Uses => "uses",
            Self::UsedBy => "used-by",
            Self::RoutedBy => "routed-by",
            Self::RoutesTo => "routes-to",
            Self::ScaledBy => "scaled-by",
            Self::Scales => "scales",
        }
    }
}

/// An object that is related to another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Relation {
    pub how: How,
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
    /// What relates them: `volume data`, `env`, `Service web`.
    pub via: String,
}

const SERVICES: &str = "services";
const PODS: &str = "pods";
const INGRESSES: &str = "ingresses.networking.k8s.io";
const POLICIES: &str = "networkpolicies.networking.k8s.io";
const BUDGETS: &str = "poddisruptionbudgets.policy";
const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";
const CLAIMS: &str = "persistentvolumeclaims";

/// Lists by the word for their kind, each of the object's namespace.
pub type Lists = BTreeMap<&'static str, Vec<DynamicObject>>;

/// Returns the kinds whose lists [`relations`] reads for this object.
pub fn needed(object: &DynamicObject) -> &'static [&'static str] {
    match kind(object) {
        "Pod"
        | "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "Job"
        | "CronJob"
        | "ReplicationController" => &[SERVICES, INGRESSES, POLICIES, BUDGETS, AUTOSCALERS],
        "Service" => &[PODS, INGRESSES],
        "NetworkPolicy" | "PodDisruptionBudget" | "ConfigMap" | "ServiceAccount" => &[PODS],
        "Secret" => &[PODS, INGRESSES],
        "PersistentVolumeClaim" => &[PODS],
        "PersistentVolume" => &[CLAIMS],
        _ => &[],
    }
}

/// Returns what the object is related to, in order.
pub fn relations(object: &DynamicObject, lists: &Lists) -> Vec<Relation> {
    let mut found = Found { object, lists, relations: BTreeSet::new() };
    match kind(object) {
        "Service" => found.of_service(),
        "Ingress" => found.of_ingress(),
        "HorizontalPodAutoscaler" => found.of_autoscaler(),
        "NetworkPolicy" => found.selects("podSelector"),
        "PodDisruptionBudget" => found.selects("selector"),
        "ConfigMap" | "Secret" | "PersistentVolumeClaim" | "ServiceAccount" => found.used_by(),
        "PersistentVolume" => found.of_volume(),
        _ => found.of_workload(),
    }
    found.relations.into_iter().collect()
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

struct Found<'a> {
    object: &'a DynamicObject,
    lists: &'a Lists,
    relations: BTreeSet<Relation>,
}

impl<'a> Found<'a> {
    fn list(&self, word: &str) -> &'a [DynamicObject] {
        self.lists.get(word).map_or(&[], Vec::as_slice)
    }

    fn name(&self) -> &'a str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// Adds an object that was listed.
    fn add(&mut self, how: How, other: &DynamicObject, via: impl Into<String>) {
        let Some(types) = &other.types else { return };
        self.relations.insert(Relation {
            how,
            api_version: types.api_version.clone(),
            kind: types.kind.clone(),
            namespace: other.metadata.namespace.clone(),
            name: other.metadata.name.clone().unwrap_or_default(),
            via: via.into(),
        });
    }

    /// Adds an object of the same namespace that was only named.
    fn refer(&mut self, how: How, (api_version, kind): (&str, &str), name: &Value, via: String) {
        let Some(name) = name.as_str().filter(|name| !name.is_empty()) else { return };
        self.relations.insert(Relation {
            how,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: self.object.metadata.namespace.clone(),
            name: name.to_owned(),
            via,
        });
    }

    fn of_workload(&mut self) {
        let Some(template) = template(self.object) else { return };
        for (kind, name, via) in references(template.spec) {
            self.refer(How::Uses, ("v1", kind), &name.into(), via);
        }
        let mut services = Vec::new();
        for service in self.list(SERVICES) {
            let selector = service.data.pointer("/spec/selector");
            if selector.is_some_and(|it| takes_labels(it, &template.labels)) {
                services.push(service.metadata.name.as_deref().unwrap_or_default());
                self.add(How::SelectedBy, service, "");
            }
        }
        for (list, place) in [(POLICIES, "/spec/podSelector"), (BUDGETS, "/spec/selector")] {
            for other in self.list(list) {
                let selector = other.data.pointer(place);
                if selector.is_some_and(|it| takes(it, &template.labels)) {
                    self.add(How::SelectedBy, other, "");
                }
            }
        }
        for ingress in self.list(INGRESSES) {
            for service in backends(ingress).into_iter().filter(|it| services.contains(it)) {
                self.add(How::RoutedBy, ingress, format!("Service {service}"));
            }
        }
        for scaler in self.list(AUTOSCALERS) {
            let target = scaler.data.pointer("/spec/scaleTargetRef");
            let is_this = target.is_some_and(|target| {
                target["kind"] == kind(self.object) && target["name"] == self.name()
            });
            if is_this {
                self.add(How::ScaledBy, scaler, "");
            }
        }
    }

    fn of_service(&mut self) {
        if let Some(selector) = self.object.data.pointer("/spec/selector") {
            for pod in self.list(PODS) {
                if takes_labels(selector, labels(pod)) {
                    self.add(How::Selects, pod, "");
                }
            }
        }
        for ingress in self.list(INGRESSES) {
            if backends(ingress).contains(&self.name()) {
                self.add(How::RoutedBy, ingress, "");
            }
        }
    }

    fn of_ingress(&mut self) {
        for service in backends(self.object) {
            self.refer(How::RoutesTo, ("v1", "Service"), &service.into(), String::new());
        }
        for secret in certificates(self.object) {
            self.refer(How::Uses, ("v1", "Secret"), &secret.into(), "tls".to_owned());
        }
    }

    fn of_autoscaler(&mut self) {
        let Some(target) = self.object.data.pointer("/spec/scaleTargetRef") else { return };
        let word = |key: &str| target[key].as_str().unwrap_or_default();
        let kind = (word("apiVersion"), word("kind"));
        self.refer(How::Scales, kind, &target["name"], String::new());
    }

    fn of_volume(&mut self) {
        let claim = self.object.data.pointer("/spec/claimRef/uid");
        for other in self.list(CLAIMS) {
            if claim.is_some() && other.metadata.uid.as_deref() == claim.and_then(Value::as_str) {
                self.add(How::UsedBy, other, "");
            }
        }
    }

    fn selects(&mut self, field: &str) {
        let Some(selector) = self.object.data.get("spec").and_then(|spec| spec.get(field)) else {
            return;
        };
        for pod in self.list(PODS) {
            if takes(selector, labels(pod)) {
                self.add(How::Selects, pod, "");
            }
        }
    }

    fn used_by(&mut self) {
        for pod in self.list(PODS) {
            let Some(spec) = pod.data.get("spec") else { continue };
            for (kind_, name, via) in references(spec) {
                if (kind_, name) == (kind(self.object), self.name()) {
                    self.add(How::UsedBy, pod, via);
                }
            }
        }
        for ingress in self.list(INGRESSES) {
            if certificates(ingress).contains(&self.name()) {
                self.add(How::UsedBy, ingress, "tls");
            }
        }
        if let Some(volume) = self.object.data.pointer("/spec/volumeName").and_then(Value::as_str) {
            self.relations.insert(Relation {
                how: How::Uses,
                api_version: "v1".to_owned(),
                kind: "PersistentVolume".to_owned(),
                namespace: None,
                name: volume.to_owned(),
                via: String::new(),
            });
        }
    }
}

/// The pod that an object is, or makes.
struct Template<'a> {
    spec: &'a Value,
    labels: BTreeMap<String, String>,
}

fn template(object: &DynamicObject) -> Option<Template<'_>> {
    let data = &object.data;
    if kind(object) == "Pod" {
        return Some(Template { spec: data.get("spec")?, labels: labels(object).clone() });
    }
    let template = data
        .pointer("/spec/jobTemplate/spec/template")
        .or_else(|| data.pointer("/spec/template"))?;
    let labels = template.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    Some(Template { spec: template.get("spec")?, labels: labels.collect() })
}

fn labels(object: &DynamicObject) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    object.metadata.labels.as_ref().unwrap_or(&NONE)
}

fn items<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn word<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|word| !word.is_empty())
}

/// What a pod refers to in its namespace: kind, name, and how.
fn references(spec: &Value) -> Vec<(&'static str, &str, String)> {
    let mut found = Vec::new();
    collect(spec, &mut found);
    found
}

fn collect<'v>(spec: &'v Value, found: &mut Vec<(&'static str, &'v str, String)>) {
    let mut add = |kind, name: Option<&'v str>, via: String| {
        found.extend(name.map(|name| (kind, name, via)));
    };
    let account = word(spec, "/serviceAccountName").or(Some("default"));
    add("ServiceAccount", account, String::new());
    for secret in items(spec, "imagePullSecrets") {
        add("Secret", word(secret, "/name"), "imagePullSecrets".to_owned());
    }
    for volume in items(spec, "volumes") {
        let via = format!("volume {}", word(volume, "/name").unwrap_or_default());
        add("ConfigMap", word(volume, "/configMap/name"), via.clone());
        add("Secret", word(volume, "/secret/secretName"), via.clone());
        let claim = word(volume, "/persistentVolumeClaim/claimName");
        add("PersistentVolumeClaim", claim, via.clone());
        for source in volume.get("projected").map_or(&[][..], |it| items(it, "sources")) {
            add("ConfigMap", word(source, "/configMap/name"), via.clone());
            add("Secret", word(source, "/secret/name"), via.clone());
        }
    }
    for container in ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| items(spec, list))
    {
        let via = format!("env of {}", word(container, "/name").unwrap_or_default());
        for from in items(container, "envFrom") {
            add("ConfigMap", word(from, "/configMapRef/name"), via.clone());
            add("Secret", word(from, "/secretRef/name"), via.clone());
        }
        for variable in items(container, "env") {
            let config = word(variable, "/valueFrom/configMapKeyRef/name");
            add("ConfigMap", config, via.clone());
            add("Secret", word(variable, "/valueFrom/secretKeyRef/name"), via.clone());
        }
    }
}

/// The Services that an Ingress leads to.
fn backends(ingress: &DynamicObject) -> BTreeSet<&str> {
    let Some(spec) = ingress.data.get("spec") else { return BTreeSet::new() };
    let rules = items(spec, "rules").iter().filter_map(|rule| rule.get("http"));
    let paths = rules.flat_map(|http| items(http, "paths"));
    let backends = paths.filter_map(|path| path.get("backend"));
    let backends = backends.chain(spec.get("defaultBackend")).chain(spec.get("backend"));
    // The second is how it was written before networking.k8s.io/v1.
    let name = |backend| word(backend, "/service/name").or_else(|| word(backend, "/serviceName"));
    backends.filter_map(name).collect()
}

fn certificates(ingress: &DynamicObject) -> BTreeSet<&str> {
    let tls = ingress.data.get("spec").map_or(&[][..], |spec| items(spec, "tls"));
    tls.iter().filter_map(|one| word(one, "/secretName")).collect()
}

/// Whether a Service's selector takes these labels. One that is empty takes nothing.
fn takes_labels(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let Some(wanted) = selector.as_object().filter(|wanted| !wanted.is_empty()) else {
        return false;
    };
    wanted.iter().all(|(key, value)| labels.get(key).is_some_and(|has| *value == *has.as_str()))
}

/// Whether a label selector takes these labels. One that is empty takes everything; one with an operator
/// that is not known takes nothing.
fn takes(selector: &Value, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let exact = exact.fold(true, |so_far, (key, value)| {
        so_far && labels.get(key).is_some_and(|has| *value == *has.as_str())
    });
    exact
        && items(selector, "matchExpressions").iter().all(|expression| {
            let has = word(expression, "/key").and_then(|key| labels.get(key));
            let among = has.is_some_and(|has| {
                items(expression, "values").iter().any(|value| *value == *has.as_str())
            });
            match word(expression, "/operator") {
                Some("In") => among,
                Some("NotIn") => !among,
                Some("Exists") => has.is_some(),
                Some("DoesNotExist") => has.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests;

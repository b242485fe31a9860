//! What admission reads of a pod. Fields that no criterion looks at are not decoded; `null` is
//! absent, as Kubernetes has it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use objects::kinds::admission_rule::Quantity;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::hostpath::clean;

fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Quantities may be written as numbers.
fn quantities<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let written: Option<BTreeMap<String, serde_json::Value>> = Option::deserialize(deserializer)?;
    let read = |(name, value): (String, serde_json::Value)| {
        let text = match &value {
            serde_json::Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let quantity = Quantity::parse(text.trim()).ok_or_else(|| {
            serde::de::Error::custom(format!("{name} {text:?} is not a quantity"))
        })?;
        Ok((name, quantity))
    };
    written.unwrap_or_default().into_iter().map(read).collect()
}

/// Every field may be absent or null.
macro_rules! read {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(super) struct $name {
            $($(#[$field_meta])* #[serde(deserialize_with = "nullable")] pub(super) $field: $type,)*
        }
    )*};
}

/// A review, with the object still to be read. What else is in it is skipped.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review<'a> {
    #[serde(borrow, default)]
    pub(super) api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) request: Option<Asks<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Asks<'a> {
    #[serde(deserialize_with = "nullable")]
    pub(super) uid: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) kind: AskedKind,
    #[serde(deserialize_with = "nullable")]
    pub(super) sub_resource: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) operation: String,
    #[serde(deserialize_with = "nullable")]
    pub(super) user_info: UserInfo,
    #[serde(deserialize_with = "nullable")]
    pub(super) dry_run: bool,
    #[serde(borrow)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) old_object: Option<&'a RawValue>,
}

read! {
    AskedKind {
        group: String,
        kind: String,
    }

    UserInfo {
        username: String,
        groups: Vec<String>,
    }

    PodObject {
        metadata: Metadata,
        spec: Option<PodSpec>,
    }

    Claim {
        metadata: Metadata,
        spec: ClaimSpec,
    }

    Workload {
        metadata: Metadata,
        spec: WorkloadSpec,
    }

    WorkloadSpec {
        template: Option<Template>,
        job_template: JobTemplate,
        volume_claim_templates: Vec<ClaimTemplate>,
    }

    JobTemplate {
        spec: JobSpec,
    }

    JobSpec {
        template: Option<Template>,
    }

    ClaimTemplate {
        spec: ClaimSpec,
    }

    Template {
        metadata: Metadata,
        spec: Option<PodSpec>,
    }

    Metadata {
        uid: String,
        name: String,
        generate_name: String,
        namespace: String,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<String, String>,
        owner_references: Vec<OwnerReference>,
        deletion_timestamp: Option<String>,
    }

    OwnerReference {
        uid: String,
        kind: String,
        name: String,
        controller: bool,
    }

    PodSpec {
        init_containers: Vec<Container>,
        containers: Vec<Container>,
        ephemeral_containers: Vec<Container>,
        volumes: Vec<Volume>,
        #[serde(rename = "hostPID")] host_pid: bool,
        #[serde(rename = "hostIPC")] host_ipc: bool,
        host_network: bool,
        host_users: Option<bool>,
        os: Os,
        node_name: String,
        service_account_name: String,
        security_context: PodSecurity,
    }

    Os {
        name: String,
    }

    PodSecurity {
        run_as_user: Option<i64>,
        run_as_non_root: Option<bool>,
        app_armor_profile: Option<Profile>,
        seccomp_profile: Option<Profile>,
        se_linux_options: Option<SeLinux>,
        windows_options: Windows,
        sysctls: Vec<Sysctl>,
    }

    Sysctl {
        name: String,
    }

    Profile {
        #[serde(rename = "type")] kind: String,
    }

    SeLinux {
        #[serde(rename = "type")] kind: String,
        user: String,
        role: String,
    }

    Windows {
        host_process: Option<bool>,
    }

    Container {
        name: String,
        image: String,
        env: Vec<Env>,
        volume_mounts: Vec<Mount>,
        ports: Vec<Port>,
        resources: Resources,
        security_context: Security,
        liveness_probe: Handler,
        readiness_probe: Handler,
        startup_probe: Handler,
        lifecycle: Lifecycle,
    }

    Env {
        name: String,
        value: String,
        value_from: Option<ValueFrom>,
    }

    ValueFrom {
        field_ref: Option<FieldRef>,
    }

    FieldRef {
        field_path: String,
    }

    Mount {
        name: String,
    }

    Port {
        host_port: i64,
    }

    Handler {
        http_get: Host,
        tcp_socket: Host,
    }

    Host {
        host: String,
    }

    Lifecycle {
        post_start: Handler,
        pre_stop: Handler,
    }

    Security {
        privileged: Option<bool>,
        run_as_user: Option<i64>,
        run_as_non_root: Option<bool>,
        allow_privilege_escalation: Option<bool>,
        proc_mount: Option<String>,
        capabilities: Capabilities,
        app_armor_profile: Option<Profile>,
        seccomp_profile: Option<Profile>,
        se_linux_options: Option<SeLinux>,
        windows_options: Windows,
    }

    Capabilities {
        add: Vec<String>,
        drop: Vec<String>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Resources {
    #[serde(deserialize_with = "quantities")]
    pub(super) limits: BTreeMap<String, Quantity>,
    #[serde(deserialize_with = "quantities")]
    pub(super) requests: BTreeMap<String, Quantity>,
}

/// A volume: of its sources, which one it has is what counts. The path of a hostPath is a clean one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "BTreeMap<String, serde_json::Value>")]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) sources: BTreeMap<String, serde_json::Value>,
}

impl TryFrom<BTreeMap<String, serde_json::Value>> for Volume {
    type Error = &'static str;

    fn try_from(mut sources: BTreeMap<String, serde_json::Value>) -> Result<Self, Self::Error> {
        let name = match sources.remove("name") {
            None | Some(serde_json::Value::Null) => String::new(),
            Some(serde_json::Value::String(name)) => name,
            Some(_) => return Err("the name of a volume is not a text"),
        };
        if let Some(path) = sources.get_mut("hostPath").and_then(|source| source.get_mut("path"))
            && let Some(Cow::Owned(cleaned)) = path.as_str().map(clean)
        {
            *path = cleaned.into();
        }
        Ok(Self { name, sources })
    }
}

impl PodSpec {
    pub(super) fn into_container_names(self) -> Vec<String> {
        let Self { init_containers, containers, ephemeral_containers, .. } = self;
        let lists = [init_containers, containers, ephemeral_containers];
        lists.into_iter().flatten().map(|container| container.name).collect()
    }
}

impl Volume {
    fn source(&self, name: &str) -> Option<&serde_json::Value> {
        self.sources.get(name).filter(|source| !source.is_null())
    }

    /// The path of a hostPath volume.
    pub(super) fn host_path(&self) -> Option<&str> {
        let path = self.source("hostPath")?.get("path");
        Some(path.and_then(serde_json::Value::as_str).unwrap_or_default())
    }

    pub(super) fn claim(&self) -> Option<&str> {
        self.source("persistentVolumeClaim")?.get("claimName")?.as_str()
    }

    pub(super) fn is_one_of(&self, sources: &[&str]) -> bool {
        sources.iter().any(|name| self.source(name).is_some())
    }
}

/// Only what a claim is judged by. An explicit empty class is one; an absent one is not.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaimSpec {
    pub(super) storage_class_name: Option<String>,
}

//! `Cluster`: the API server that Fairlead is installed into.
//!
//! Contract:
//! - Every call ends at its deadline, and its error names the operation.
//! - Writes are server-side applies by one field manager: fields that others set on the same objects stay.
//! - Objects are plain JSON, as the chart renders them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, LogParams, Patch,
    PatchParams, PostParams, PropagationPolicy,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use stallproof::Deadline;

/// The API version of the chart's admission policies.
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
/// The field manager of an installation.
const MANAGER: &str = "fairlead-install";
/// The limit for one request.
const REQUEST: Duration = Duration::from_secs(30);
/// The limit for connecting, so that a wrong address is reported soon.
const CONNECT: Duration = Duration::from_secs(10);
/// The interval of checks whether an object is gone.
const LOOK: Duration = Duration::from_millis(300);
/// Objects of one page.
const PAGE: u32 = 500;

/// The address of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl Reference {
    pub fn new(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Returns `None` for a value without a kind or a name.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Self {
            api_version: text(&object["apiVersion"])?,
            kind: text(&object["kind"])?,
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"])?,
        })
    }

    fn resource(&self) -> ApiResource {
        resource(&self.api_version, &self.kind)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The operation that failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("{doing} failed")]
pub struct Error {
    doing: String,
    #[source]
    cause: Cause,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(
        "the API server did not answer within {} s: look at its address in the kubeconfig (`kubectl cluster-info`)",
        .0.as_secs()
    )]
    Late(Duration),
    #[error(
        "the kubeconfig does not say where the cluster is: name one with --kubeconfig or --context"
    )]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    #[error("{0}; ask an administrator of the cluster, or use a kubeconfig of one")]
    Forbidden(String),
    /// The object or its kind does not exist.
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Refused(String),
    #[error("the API server cannot be asked")]
    Call(#[source] Box<kube::Error>),
}

impl Error {
    fn of(doing: &str, error: kube::Error) -> Self {
        let cause = match error {
            kube::Error::Api(status) if status.code == 403 => Cause::Forbidden(status.message),
            kube::Error::Api(status) if status.code == 404 => Cause::Absent(status.message),
            kube::Error::Api(status) => Cause::Refused(status.message),
            other => Cause::Call(Box::new(other)),
        };
        Self { doing: doing.to_owned(), cause }
    }
}

/// The server's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub minor: u32,
    /// The version as the server writes it, such as v1.31.2.
    pub text: String,
}

/// A cluster, by one context of a kubeconfig.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    /// The address, for messages.
    url: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.url)
    }
}

impl Cluster {
    /// Connects with this kubeconfig, or with that of the environment or of this pod.
    pub async fn connect(
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
    ) -> Result<Self, Error> {
        let doing = "reading the kubeconfig";
        let failed = |cause| Error { doing: doing.to_owned(), cause };
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let mut config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|e| failed(Cause::Kubeconfig(e)))?;
                kube::Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(|e| failed(Cause::Kubeconfig(e)))?
            }
            None => match kube::Config::from_kubeconfig(&options).await {
                Ok(config) => config,
                Err(error) => match kube::Config::incluster() {
                    Ok(config) if options.context.is_none() => config,
                    _ => return Err(failed(Cause::Kubeconfig(error))),
                },
            },
        };
        config.connect_timeout = Some(CONNECT);
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let client = kube::Client::try_from(config).map_err(|e| Error::of("connecting", e))?;
        Ok(Self { client, url })
    }

    /// Uses a client that exists already.
    pub fn of(client: kube::Client, url: &str) -> Self {
        Self { client, url: url.to_owned() }
    }

    /// The client, for requests of the caller's own.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    async fn call<T>(
        &self,
        doing: impl FnOnce() -> String,
        work: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        match Deadline::after(REQUEST).bound(work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Error::of(&doing(), error)),
            Err(_) => Err(Error { doing: doing(), cause: Cause::Late(REQUEST) }),
        }
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    fn api_of(&self, of: &Reference) -> Api<DynamicObject> {
        self.api(&of.resource(), of.namespace.as_deref())
    }

    pub async fn version(&self) -> Result<Version, Error> {
        let doing = || format!("asking {} for its version", self.url);
        let info = self.call(doing, self.client.apiserver_version()).await?;
        // Managed clusters have versions such as 31+.
        let digits = info.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
        Ok(Version { minor: digits.parse().unwrap_or_default(), text: info.git_version })
    }

    /// Returns every API version that the server serves, such as v1 and policy/v1, and for the group of
    /// admission also the kinds, such as admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy, some
    /// of which are newer than its version.
    pub async fn api_versions(&self) -> Result<BTreeSet<String>, Error> {
        let doing = || format!("asking {} for its API groups", self.url);
        let groups = self.call(doing, self.client.list_api_groups()).await?;
        let versions = groups.groups.into_iter().flat_map(|group| group.versions);
        let named = versions.map(|version| version.group_version);
        let mut served: BTreeSet<_> = named.chain(["v1".to_owned()]).collect();
        if served.contains(ADMISSION) {
            let doing = || format!("asking {} for the kinds of {ADMISSION}", self.url);
            let kinds = self.call(doing, self.client.list_api_group_resources(ADMISSION)).await?;
            served.extend(kinds.resources.iter().map(|kind| format!("{ADMISSION}/{}", kind.kind)));
        }
        Ok(served)
    }

    pub async fn get(&self, of: &Reference) -> Result<Option<Value>, Error> {
        let api = self.api_of(of);
        let found = match self.call(|| format!("reading {of}"), api.get(&of.name)).await {
            Err(Error { cause: Cause::Absent(_), .. }) => None,
            other => Some(other?),
        };
        Ok(found.map(|object| plain(&object)))
    }

    /// Lists all objects of a kind; none if the server does not serve the kind.
    pub async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<Value>, Error> {
        let api = self.api(&resource(api_version, kind), namespace);
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let params = ListParams {
                label_selector: (!labels.is_empty()).then(|| labels.to_owned()),
                limit: Some(PAGE),
                continue_token: from,
                ..ListParams::default()
            };
            let page = match self.call(|| format!("listing {kind}s"), api.list(&params)).await {
                Err(Error { cause: Cause::Absent(_), .. }) => return Ok(found),
                other => other?,
            };
            // Servers leave the type out of the items of a list.
            found.extend(page.items.iter().map(|item| {
                let mut item = plain(item);
                item["apiVersion"] = api_version.into();
                item["kind"] = kind.into();
                item
            }));
            from = page.metadata.continue_.filter(|next| !next.is_empty());
            if from.is_none() {
                return Ok(found);
            }
        }
    }

    /// Applies an object, and returns it as the server has it now.
    pub async fn apply(&self, object: &Value) -> Result<Value, Error> {
        let params = PatchParams::apply(MANAGER).force();
        self.patch(object, &params).await
    }

    /// Applies an object as a dry run.
    pub async fn try_out(&self, object: &Value) -> Result<Value, Error> {
        let params = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() };
        self.patch(object, &params).await
    }

    async fn patch(&self, object: &Value, params: &PatchParams) -> Result<Value, Error> {
        let of = named(object)?;
        let api = self.api_of(&of);
        let patch = Patch::Apply(object);
        let applied =
            self.call(|| format!("applying {of}"), api.patch(&of.name, params, &patch)).await?;
        Ok(plain(&applied))
    }

    /// Creates an object, such as a pod.
    pub async fn create(&self, object: &Value) -> Result<Value, Error> {
        let of = named(object)?;
        let body: DynamicObject = serde_json::from_value(object.clone()).map_err(|error| {
            Error { doing: format!("creating {of}"), cause: Cause::Refused(error.to_string()) }
        })?;
        let api = self.api_of(&of);
        let params = PostParams::default();
        let made = self.call(|| format!("creating {of}"), api.create(&params, &body)).await?;
        Ok(plain(&made))
    }

    /// Deletes an object after the objects that it owns, and returns whether it existed.
    pub async fn delete(&self, of: &Reference) -> Result<bool, Error> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        let api = self.api_of(of);
        match self.call(|| format!("deleting {of}"), api.delete(&of.name, &params)).await {
            Ok(_) => Ok(true),
            Err(Error { cause: Cause::Absent(_), .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until it is gone with all that it owns; false if it is still there at the deadline.
    pub async fn is_gone(&self, of: &Reference, deadline: Deadline) -> Result<bool, Error> {
        while self.get(of).await?.is_some() {
            if deadline.has_passed() {
                return Ok(false);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(true)
    }

    /// Reads the log of a pod.
    pub async fn logs(&self, namespace: &str, pod: &str, lines: i64) -> Result<String, Error> {
        let api: Api<k8s_openapi::api::core::v1::Pod> =
            Api::namespaced(self.client.clone(), namespace);
        let params = LogParams { tail_lines: Some(lines), ..LogParams::default() };
        let doing = || format!("reading the log of {namespace}/{pod}");
        self.call(doing, api.logs(pod, &params)).await
    }

    /// Whether the user of the kubeconfig may do this.
    pub async fn may(&self, verb: &str, api_version: &str, kind: &str) -> Result<bool, Error> {
        let resource = resource(api_version, kind);
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": {
                "verb": verb, "group": resource.group, "resource": resource.plural,
            }},
        });
        let body: DynamicObject = serde_json::from_value(review).map_err(|error| Error {
            doing: "asking what we may do".to_owned(),
            cause: Cause::Refused(error.to_string()),
        })?;
        let resource = self::resource("authorization.k8s.io/v1", "SelfSubjectAccessReview");
        let api = self.api(&resource, None);
        let params = PostParams::default();
        let answer =
            self.call(|| "asking what we may do".to_owned(), api.create(&params, &body)).await?;
        Ok(answer.data["status"]["allowed"] == true)
    }
}

fn named(object: &Value) -> Result<Reference, Error> {
    Reference::of(object).ok_or_else(|| Error {
        doing: "reading an object of the chart".to_owned(),
        cause: Cause::Refused("it has no kind or no name".to_owned()),
    })
}

fn plain(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    // They are often larger than the object itself.
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value
}

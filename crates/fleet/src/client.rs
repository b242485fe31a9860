//! `ClusterClient`: a client of one cluster: how it is made, and how it probes the cluster.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Request};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use objects::kinds::Impersonation;
use serde::Deserialize;
use serde_json::json;
use stallproof::Deadline;
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::actor::{self, ActingAs, Actor};
use crate::bounded::{Bounded, MOST};
use crate::context::FleetContext;
use crate::credentials::{Access, Credentials, fetch};
use crate::dial::{Dialer, Step, Steps};
use crate::error::Error;
use crate::failure::{Failure, Reason, one_line};
use crate::warnings::ListenLayer;

/// Idle connections of one client: a page of the console makes a handful of calls at once, and each
/// connection costs both sides some 50 KB.
const IDLE: usize = 4;

/// A client and the credentials that it sends. kube's client holds the credentials as well, so that
/// they are renewed for as long as any clone of it is used.
#[derive(Clone)]
pub(crate) struct ClusterClient {
    pub(crate) kube_client: kube::Client,
    pub(crate) credentials: Arc<Credentials>,
    steps: Steps,
}

/// The answer to a request for the version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VersionReply {
    /// `None` when the cluster does not allow us to read it.
    pub(crate) version: Option<String>,
    pub(crate) latency: Duration,
}

/// The answers of a cluster to a new client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FirstReply {
    pub(crate) answer: VersionReply,
    /// `None` when the cluster does not allow us to list them.
    pub(crate) nodes: Option<u64>,
}

/// An attempt to connect, with each of its steps.
pub(crate) struct Attempt {
    pub(crate) steps: Vec<Step>,
    pub(crate) result: Result<(ClusterClient, FirstReply), Failure>,
}

/// Fetches credentials, connects, and asks the cluster for its version and its nodes.
pub(crate) async fn attempt(
    cluster: &str,
    access: &Arc<Access>,
    context: &FleetContext,
    is_suspect: bool,
    deadline: Deadline,
) -> Attempt {
    let noted = Steps::default();
    let fetching = fetch(cluster, access, context, deadline.within(context.credentials_within()));
    let fetched = noted.run("credentials", fetching).await;
    let mut steps = noted.take();
    let result = match fetched {
        Ok(fetched) => {
            let credentials = Credentials::new(Arc::clone(access), fetched, context);
            connect(&credentials, context, is_suspect, deadline, &mut steps).await
        }
        Err(failure) => Err(failure),
    };
    Attempt { steps, result }
}

/// Makes a client with these credentials, and returns it once the cluster has answered.
pub(crate) async fn connect(
    credentials: &Arc<Credentials>,
    context: &FleetContext,
    is_suspect: bool,
    deadline: Deadline,
    steps: &mut Vec<Step>,
) -> Result<(ClusterClient, FirstReply), Failure> {
    let client = ClusterClient::new(Arc::clone(credentials), context)?;
    let permit = context.may_attempt(is_suspect).await;
    let asked = Instant::now();
    let answer = client.first_reply(deadline.within(context.attempt_within())).await;
    drop(permit);
    steps.extend(client.steps.take());
    // The time of the whole request, less the time to connect, is the time of the answer.
    let connecting: Duration =
        steps.iter().filter(|step| step.name != "credentials").map(|step| step.took).sum();
    let took = asked.elapsed().saturating_sub(connecting);
    let connected = steps.last().is_some_and(|step| step.ok && step.name != "credentials");
    let denied = matches!(&answer, Err(failure) if failure.reason == Reason::Unauthorised);
    if connected {
        steps.push(Step { name: "authenticate", ok: answer.is_ok() || !denied, took });
        if !denied {
            steps.push(Step { name: "version", ok: answer.is_ok(), took: Duration::ZERO });
        }
    }
    answer.map(|answer| (client, answer))
}

impl ClusterClient {
    pub(crate) fn new(
        credentials: Arc<Credentials>,
        context: &FleetContext,
    ) -> Result<Self, Failure> {
        let access = &credentials.access;
        let mut config = kube::Config::new(access.endpoint.server.clone());
        config.root_cert.clone_from(&access.endpoint.authorities);
        config.accept_invalid_certs = access.endpoint.insecure;
        config.headers = impersonation(access)?;
        if let Some(identity) = &credentials.identity {
            // Through JSON, because the key's type is from a crate that is not a dependency of ours.
            config.auth_info = serde_json::from_value(json!({
                "client-certificate-data": BASE64_STANDARD.encode(&identity.certificate),
                "client-key-data": BASE64_STANDARD.encode(&identity.key.0),
            }))
            .map_err(|_| Failure::setup("the client certificate cannot be used"))?;
        }
        let tls = config.rustls_client_config().map_err(|error| tls_setup(&error))?;
        let steps = Steps::default();
        let dialer =
            Dialer::new(&access.endpoint, tls, &context.resolver, &context.timing, &steps)?;
        let hyper = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE)
            .build::<_, Body>(dialer);
        let service = Authenticated { credentials: Arc::clone(&credentials), inner: hyper };
        let service = ListenLayer.layer(Bounded { inner: service, most: MOST });
        let headers = config
            .extra_headers_layer()
            .map_err(|error| Failure::setup(format!("the headers cannot be sent: {error}")))?;
        let kube_client = ClientBuilder::new(service, access.namespace.clone())
            .with_layer(&headers)
            .with_layer(&config.base_uri_layer())
            .build();
        Ok(Self { kube_client, credentials, steps })
    }

    /// Asks for the version and the nodes. The version alone proves nothing: a server tells it to
    /// anybody, also when a proxy has removed our client certificate.
    async fn first_reply(&self, deadline: Deadline) -> Result<FirstReply, Failure> {
        let answer = self.ask(deadline).await?;
        let nodes = self.nodes(deadline).await?;
        Ok(FirstReply { answer, nodes })
    }

    /// Asks for the version: the cheapest request that every API server answers, and refuses when it
    /// does not accept the credentials.
    pub(crate) async fn ask(&self, deadline: Deadline) -> Result<VersionReply, Failure> {
        let access = &self.credentials.access;
        let began = Instant::now();
        let within = deadline.remaining();
        let text = deadline.bound(self.kube_client.request_text(get("/version"))).await;
        let latency = began.elapsed();
        let text = match text {
            Ok(Ok(text)) => text,
            // The server knows us and does not allow us to read its version.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 && !is_anonymous(&status) => {
                return Ok(VersionReply { version: None, latency });
            }
            Ok(Err(error)) => return Err(Failure::of(&error, access)),
            Err(_) => {
                let what = format!("GET {}/version", access.endpoint.address());
                return Err(Failure::no_answer(&what, within));
            }
        };
        let version: Version = serde_json::from_str(&text)
            .map_err(|error| Failure::of(&kube::Error::SerdeError(error), access))?;
        Ok(VersionReply { version: Some(one_line(&version.git_version, 60)), latency })
    }

    /// Returns the problem that the cluster reports at `/readyz`, if it reports one.
    pub(crate) async fn complaint(&self, deadline: Deadline) -> Option<String> {
        match deadline.bound(self.kube_client.request_text(get("/readyz"))).await {
            Ok(Err(kube::Error::Api(status))) if status.code >= 500 => {
                // Such as `[-]etcd failed: reason withheld`, among lines of checks that pass.
                let bad = status.message.lines().filter_map(|line| line.strip_prefix("[-]"));
                let bad = one_line(&bad.collect::<Vec<_>>().join("; "), 200);
                Some(if bad.is_empty() {
                    "it says that it is not ready".to_owned()
                } else {
                    format!("it says that it is not ready: {bad}")
                })
            }
            // Not allowed, or an old server. Any other failure shows in the next probe.
            _ => None,
        }
    }

    /// Tries to act as somebody: the cheapest request that the server authorises.
    pub(crate) async fn act(
        &self,
        cluster: &str,
        impersonation: &Impersonation,
        actor: &Actor,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let client = ActingAs::new(cluster, impersonation, actor)?.client(&self.kube_client);
        let refused = |why| Error::Impersonation { cluster: cluster.to_owned(), why };
        match deadline.bound(client.request_text(get("/version"))).await {
            Ok(Ok(_)) => Ok(()),
            // What they may do there is the cluster's matter.
            Ok(Err(kube::Error::Api(status))) if !actor::is_refusal(&status) => Ok(()),
            Ok(Err(error)) => Err(refused(format!("the cluster does not let it ({error})"))),
            Err(_) => Err(refused("no answer in time".to_owned())),
        }
    }

    /// Counts the nodes; `None` when the cluster does not allow us to list them.
    pub(crate) async fn nodes(&self, deadline: Deadline) -> Result<Option<u64>, Failure> {
        let mut request = get("/api/v1/nodes?limit=1");
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        request.headers_mut().insert(http::header::ACCEPT, HeaderValue::from_static(metadata));
        match deadline.bound(self.kube_client.request::<Nodes>(request)).await {
            Ok(Ok(nodes)) => {
                let rest = nodes.metadata.remaining_item_count.unwrap_or(0);
                let first = nodes.items.map_or(0, |items| items.len() as u64);
                Ok(Some(first + u64::try_from(rest).unwrap_or(0)))
            }
            Ok(Err(kube::Error::Api(status))) if is_anonymous(&status) => {
                Err(Failure::of(&kube::Error::Api(status), &self.credentials.access))
            }
            _ => Ok(None),
        }
    }
}

fn impersonation(access: &Access) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let Some(who) = &access.auth.impersonate else { return Ok(Vec::new()) };
    let user = who.user.iter().map(|user| ("impersonate-user", user));
    let uid = who.uid.iter().map(|uid| ("impersonate-uid", uid));
    let groups = who.groups.iter().map(|group| ("impersonate-group", group));
    let header = |(name, value): (&'static str, &String)| {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Failure::setup("whom the context's user acts as cannot be sent in a header")
        })?;
        Ok((HeaderName::from_static(name), value))
    };
    user.chain(uid).chain(groups).map(header).collect()
}

fn tls_setup(error: &kube::Error) -> Failure {
    use kube::client::RustlsTlsError as Tls;
    Failure::setup(match error {
        kube::Error::RustlsTls(Tls::InvalidPrivateKey(_)) => {
            "the client certificate and its key do not belong together, or the key is of a kind \
             that cannot be used"
                .to_owned()
        }
        kube::Error::RustlsTls(Tls::MissingPrivateKey | Tls::UnknownPrivateKeyFormat) => {
            "client-key-data holds no private key".to_owned()
        }
        kube::Error::RustlsTls(Tls::MissingCertificate) => {
            "client-certificate-data holds no certificate".to_owned()
        }
        kube::Error::RustlsTls(Tls::InvalidIdentityPem(_)) => {
            "the client certificate or its key is not PEM".to_owned()
        }
        kube::Error::RustlsTls(Tls::AddRootCertificate(_)) => {
            "certificate-authority-data holds a certificate that cannot be read".to_owned()
        }
        other => format!("TLS cannot be set up: {other}"),
    })
}

/// Whether the server refused us as an anonymous user.
pub(crate) fn is_anonymous(status: &kube::core::Status) -> bool {
    status.code == 403 && status.message.contains("system:anonymous")
}

fn get(path: &'static str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).expect("a constant path")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

#[derive(Deserialize)]
struct Nodes {
    metadata: kube::core::ListMeta,
    /// Servers write null for an empty list of metadata.
    items: Option<Vec<serde::de::IgnoredAny>>,
}

/// Sends the newest credentials with every request.
struct Authenticated<S> {
    credentials: Arc<Credentials>,
    inner: S,
}

impl<S: Service<Request<Body>>> Service<Request<Body>> for Authenticated<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> S::Future {
        if let Some(header) = self.credentials.header() {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        self.inner.call(request)
    }
}

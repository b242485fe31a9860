//! A small world for tests: an API over a real embedded store, a fleet of contexts that lead nowhere,
//! and people with roles.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use access::audit::{Audit, Size};
use access::{Access, AuthMethod, Identity, LOCAL, LocalToken, NewUser, Secret};
use admission::{Admission, Settings};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use fleet::{Fleet, FleetConfig};
use http::{Method, Request, header};
use notify::{Notifier, NotifierSettings, OutboxLimits};
use objects::Objects;
use objects::kinds::{AccessRoleSpec, Rule};
use prometheus_client::registry::Registry;
use serde_json::Value;
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Readiness, Tasks};
use tower::ServiceExt;
use traffic::history::{HistoryFiles, HistorySettings};
use traffic::ingest::{self, ActiveIngest, PolicyStore};

use crate::api::route::{BASE, Routes};
use crate::api::{Api, Gates, ObservedCluster, Serving, Traffic, router};
use crate::serve::Peer;

pub(crate) struct TestApi {
    pub(crate) api: Api,
    pub(crate) router: Router,
    pub(crate) local: String,
    pub(crate) readiness: Readiness,
    pub(crate) objects: Objects,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

/// An answer that was read.
#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl TestApi {
    pub(crate) fn new() -> Self {
        Self::with(&[], |_| {})
    }

    /// With these clusters, none of which answers. `before` sees the data directory before the start.
    pub(crate) fn with(clusters: &[&str], before: impl FnOnce(&Path)) -> Self {
        let data = tempfile::tempdir().unwrap();
        before(data.path());
        let tasks = Tasks::new("world");
        let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
        let readiness = Readiness::default();
        let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let token = LocalToken::open(data.path()).unwrap();
        let kubeconfig = data.path().join("kubeconfig");
        std::fs::write(&kubeconfig, contexts(clusters)).unwrap();
        let config = FleetConfig { kubeconfigs: vec![kubeconfig], ..FleetConfig::default() };
        let settings = Settings::new(true);
        let admission = Admission::start(&objects, settings, vec![], &readiness, &tasks);
        let active = ActiveIngest::default();
        let mut ingest = ingest::Settings::new(data.path().join("guard"));
        ingest.history.every = Duration::from_millis(200);
        let followed = (objects.clone(), tasks.clone());
        let begin = move |ingest: &ingest::Ingest| ingest.follow_store(&followed.0, &followed.1);
        let term = active.clone().hold(ingest, ledger.clone(), tasks.clone(), begin);
        tasks.spawn("guard", term);
        let policy_store = PolicyStore::new(objects.clone());
        let history = HistoryFiles::new(HistorySettings::new(data.path().join("guard/history")));
        let observed = ObservedCluster::Unknown;
        let traffic = Traffic { active, policy_store, observed, history };
        let settings = NotifierSettings {
            dir: data.path().join("notify"),
            namespace: "fairlead".to_owned(),
            limits: OutboxLimits::default(),
            cluster: None,
        };
        let mut registry = Registry::default();
        let notifier =
            Notifier::start(settings, &objects, None, &ledger, &tasks, &mut registry).unwrap();
        let api = Api {
            fleet: Fleet::start(config, objects.clone(), ledger.clone(), &tasks),
            access: Access::start(objects.clone(), &tasks, &readiness, Some(&token)),
            audit: Audit::start(data.path(), Size::default(), &tasks),
            recordings: None,
            ledger,
            gates: Gates::default(),
            meshes: mesh::Meshes::new(objects.clone()),
            admission: Some(admission),
            agents: None,
            traffic: Some(traffic),
            notifier: Some(notifier),
            programs: None,
            leader: None,
            replicas: None,
            objects: objects.clone(),
            watchdog: None,
            tasks: tasks.clone(),
            no_clusters: "no clusters".into(),
            leaving: None,
            own_certificate: None,
            serving: Serving::default(),
        };
        let router = router(&api, true);
        let local = token.secret().expose().to_owned();
        Self { api, router, local, readiness, objects, tasks, _data: data }
    }

    /// The API with these routes instead of its own.
    pub(crate) fn serving(mut self, routes: Routes) -> Self {
        let routes = Router::new().nest(BASE, routes.router(&self.api));
        self.router = routes.with_state(self.api.clone());
        self
    }

    /// The same, with agents.
    pub(crate) fn with_agents(mut self, desk: crate::api::AgentsApi) -> Self {
        self.api.agents = Some(desk);
        self.router = router(&self.api, true);
        self
    }

    /// Waits until users are read and the fleet shows what it has.
    pub(crate) async fn ready(self) -> Self {
        while !self.readiness.report().ready || !self.api.fleet.view().synced {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> TestResponse {
        read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// As the machine's owner.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> TestResponse {
        self.ask_as(&self.local, method, path, body).await
    }

    pub(crate) async fn ask_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> TestResponse {
        let mut request = request(method, &format!("{BASE}{path}"), body);
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
        self.send(request).await
    }

    /// Somebody with the rule's permissions; their token.
    pub(crate) async fn somebody(&self, name: &str, rules: &[[&str; 4]]) -> String {
        let owner = Identity { user: LOCAL.into(), via: AuthMethod::Local };
        let administration = self.api.access.administer(&owner);
        let soon = || Deadline::after(Duration::from_secs(60));
        let words = |word: &str| vec![word.to_owned()];
        let allow = rules.iter().map(|[clusters, namespaces, resources, verbs]| Rule {
            clusters: words(clusters),
            namespaces: words(namespaces),
            resources: words(resources),
            verbs: words(verbs),
        });
        let role = format!("of-{name}");
        let spec = AccessRoleSpec { allow: allow.collect(), deny: Vec::new() };
        administration.create_role(&role, spec, soon()).await.unwrap();
        let password = Some(Secret::new("a few words will do"));
        let new = NewUser { name: name.to_owned(), roles: vec![role], password };
        administration.create_user(new, soon()).await.unwrap();
        let token = administration.create_token(name, None, None, soon()).await.unwrap();
        token.secret.expose().to_owned()
    }
}

impl Drop for TestApi {
    fn drop(&mut self) {
        self.tasks.stop("the test is over");
    }
}

#[allow(clippy::needless_pass_by_value, reason = "tests write their bodies in place")]
pub(crate) fn request(method: Method, path: &str, body: Value) -> Request<Body> {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let mut request =
        Request::builder().method(method).uri(path).header(header::HOST, "localhost").body(body);
    let peer = Peer(SocketAddr::from(([127, 0, 0, 1], 4711)));
    request.as_mut().unwrap().extensions_mut().insert(peer);
    request.unwrap()
}

pub(crate) async fn read(response: Response) -> TestResponse {
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 16 << 20).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    TestResponse { status: parts.status.as_u16(), headers: parts.headers, text }
}

fn contexts(names: &[&str]) -> String {
    // Port 1 of loopback: nobody listens there.
    let mut text = "apiVersion: v1\nkind: Config\nclusters:\n- {name: nowhere, cluster: {server: 'https://127.0.0.1:1'}}\nusers:\n- {name: nobody, user: {token: none}}\ncontexts:\n".to_owned();
    for name in names {
        text += &format!("- {{name: {name}, context: {{cluster: nowhere, user: nobody}}}}\n");
    }
    if names.is_empty() {
        text = "apiVersion: v1\nkind: Config\n".to_owned();
    }
    text
}

/// A stream of server-sent events that is being read.
pub(crate) struct EventReader {
    body: axum::body::BodyDataStream,
    text: String,
}

impl TestApi {
    /// Opens a stream of events.
    pub(crate) async fn hear(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Value,
    ) -> EventReader {
        let mut request = request(method, &format!("{BASE}{path}"), body);
        let headers = request.headers_mut();
        headers.insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        headers.insert(header::ACCEPT, "text/event-stream".parse().unwrap());
        let response = self.router.clone().oneshot(request).await.unwrap();
        if response.headers()[header::CONTENT_TYPE] != "text/event-stream" {
            panic!("{path} is no stream: {:?}", read(response).await);
        }
        EventReader { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// Imports a cluster, and waits until it is ready.
    pub(crate) async fn import(&self, name: &str, kubeconfig: &str) {
        let soon = Deadline::after(Duration::from_secs(60));
        self.api.fleet.import(name, kubeconfig, None, soon).await.unwrap();
        let ready = async {
            while self.api.fleet.connection(name).is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon.bound(ready).await.expect("the cluster is well");
    }
}

impl EventReader {
    /// The next event and its data; none at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        use futures::StreamExt;
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = event.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|value| value.trim_start().to_owned())
                };
                let (name, data) = (field("event:"), field("data:"));
                self.text = rest.to_owned();
                if let (Some(name), Some(data)) = (name, data) {
                    return Some((name, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let more = Deadline::after(Duration::from_secs(60)).bound(self.body.next()).await;
            let more = more.expect("the stream says something in time")?.unwrap();
            self.text += std::str::from_utf8(&more).unwrap();
        }
    }
}

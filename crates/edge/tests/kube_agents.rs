//! Agents that enrol with tokens of their pods' service account, on a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::time::Duration;

use edge::agents::{Server, start};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use node::client::{Client, ClientError, Endpoint};
use node::{Identity, IdentityError};
use objects::{Election, Id, Objects, Timing};
use pki::agents::{AUDIENCE, Authority, LIFETIME, PUBLISHED, TokenReviewer, lead};
use pki::published::published;
use serde_json::{Value, json};
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Snapshot, Tasks};
use tempfile::TempDir;
use testkit::KubeServer;
use traffic::agents::{Agents, JoinFacts, Limits};
use traffic::ingest::Ingest;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

async fn until<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            match found().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    soon().bound(looking).await.unwrap_or_else(|_| panic!("{what}"))
}

async fn create<K>(api: Api<K>, object: Value)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A cluster with two nodes' worth of agents, and a controller.
struct Cluster {
    admin: kube::Client,
    authority: Authority,
    /// PEM, as it is published.
    authorities: String,
    address: String,
    dir: TempDir,
    tasks: Tasks,
    _server: KubeServer,
}

impl Cluster {
    async fn start() -> Self {
        let server = KubeServer::start().await;
        let admin = server.client().await;
        create(Api::<Namespace>::all(admin.clone()), json!({"metadata": {"name": "fairlead"}}))
            .await;
        let accounts = || Api::<ServiceAccount>::namespaced(admin.clone(), "fairlead");
        for account in ["fairlead-agent", "fairlead-controller", "other"] {
            create(accounts(), json!({"metadata": {"name": account}})).await;
        }
        permit(&admin).await;
        let pods = || Api::<Pod>::namespaced(admin.clone(), "fairlead");
        for (name, account, node) in [
            ("agent-a", "fairlead-agent", Some("node-a")),
            ("agent-b", "fairlead-agent", Some("node-b")),
            ("agent-nowhere", "fairlead-agent", None),
            ("other-a", "other", Some("node-a")),
        ] {
            let spec = json!({"serviceAccountName": account, "nodeName": node,
                              "containers": [{"name": "c", "image": "i"}]});
            create(pods(), json!({"metadata": {"name": name}, "spec": spec})).await;
        }

        let tasks = Tasks::new("test");
        let mut config = server.access().config_as("fairlead-controller").await;
        config.default_retry = false;
        let controller = kube::Client::try_from(config).unwrap();
        let objects = Objects::kubernetes(controller.clone(), "fairlead");
        let authority = Authority::follow(&objects, "fairlead", LIFETIME, &tasks);
        let lease = Id::namespaced("fairlead", "fairlead-controller");
        let timing = Timing::of(Duration::from_secs(1));
        let election = Election::new(objects, lease, "test", timing);
        let (all, led) = (tasks.clone(), authority.clone());
        tasks.spawn("election", async move {
            election.run(&all, |leader| lead(&leader, &led)).await;
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts = Snapshot::new(None::<Ingest>);
        let ledger = Ledger::new(LedgerConfig::default());
        let agents = Agents::new(Limits::default());
        let reviewer = TokenReviewer::new(controller, "fairlead", "fairlead-agent");
        let service = Server::new(agents, counts, Some(authority.clone()), ledger, &tasks)
            .with_reviewer(reviewer);
        start(service, listener).unwrap();

        let maps = Api::<ConfigMap>::namespaced(admin.clone(), "fairlead");
        let authorities = until("the authority is published", async || {
            let map = maps.get_opt(PUBLISHED).await.unwrap()?;
            published(&map).map(str::to_owned)
        });
        let authorities = authorities.await;
        let dir = TempDir::new().unwrap();
        Self { admin, authority, authorities, address, dir, tasks, _server: server }
    }

    /// A token as a kubelet asks for it.
    async fn token(&self, account: &str, pod: Option<&str>, audience: &str) -> String {
        let bound = match pod {
            None => Value::Null,
            Some(name) => {
                let pods = Api::<Pod>::namespaced(self.admin.clone(), "fairlead");
                let uid = pods.get(name).await.unwrap().metadata.uid;
                json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})
            }
        };
        let asked: TokenRequest = serde_json::from_value(json!({
            "spec": {"audiences": [audience], "boundObjectRef": bound, "expirationSeconds": 3600}
        }))
        .unwrap();
        let accounts = Api::<ServiceAccount>::namespaced(self.admin.clone(), "fairlead");
        let made = accounts.create_token_request(account, &PostParams::default(), &asked).await;
        made.unwrap().status.unwrap().token.unwrap()
    }

    async fn enrol(&self, token: &str, node: &str) -> Result<Identity, IdentityError> {
        self.enrol_trusting(&self.authorities, token, node).await
    }

    async fn enrol_trusting(
        &self,
        authorities: &str,
        token: &str,
        node: &str,
    ) -> Result<Identity, IdentityError> {
        let (addresses, dir) = ([self.address.clone()], self.dir.path().join(node));
        Identity::enrol_pod(&addresses, token, authorities, node, &dir, &self.tasks, soon()).await
    }
}

/// What the controller may do here, and no more.
async fn permit(admin: &kube::Client) {
    let subjects = json!([{"kind": "ServiceAccount", "name": "fairlead-controller",
                           "namespace": "fairlead"}]);
    let reference = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "controller"});
    let metadata = json!({"name": "controller"});
    let rules = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    ]);
    create(Api::<ClusterRole>::all(admin.clone()), json!({"metadata": metadata, "rules": rules}))
        .await;
    let binding =
        json!({"metadata": metadata, "roleRef": reference("ClusterRole"), "subjects": subjects});
    create(Api::<ClusterRoleBinding>::all(admin.clone()), binding).await;
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
         "resourceNames": ["fairlead-controller"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets"],
         "resourceNames": ["fairlead-agents"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["configmaps"],
         "resourceNames": ["fairlead-agents-ca"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    let roles = Api::<Role>::namespaced(admin.clone(), "fairlead");
    create(roles, json!({"metadata": metadata, "rules": rules})).await;
    let bindings = Api::<RoleBinding>::namespaced(admin.clone(), "fairlead");
    let binding = json!({"metadata": metadata, "roleRef": reference("Role"), "subjects": subjects});
    create(bindings, binding).await;
}

fn denied(result: Result<Identity, IdentityError>) -> String {
    match result {
        Err(IdentityError::Controller(ClientError::Denied(why))) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_enrols_on_kube_as_the_agent_of_its_own_node_and_of_no_other() {
    testkit::requires!(kube);
    let cluster = Cluster::start().await;
    let token = cluster.token("fairlead-agent", Some("agent-a"), AUDIENCE).await;
    let identity = cluster.enrol(&token, "node-a").await.unwrap();
    assert_eq!(identity.node(), "node-a");
    // It is known by its certificate from now on; that nobody counts here is another matter.
    let endpoint = Endpoint { addresses: vec![cluster.address.clone()], identity: Some(identity) };
    let facts = JoinFacts { node: "node-a".to_owned(), incarnation: 1, ..JoinFacts::default() };
    let joined = Client::join(&endpoint, &facts, &cluster.tasks, soon()).await;
    assert!(matches!(&joined, Err(ClientError::Unreachable(why)) if why.contains("leader")));

    assert!(denied(cluster.enrol(&token, "node-b").await).contains("another node"));
    let elsewhere = cluster.token("fairlead-agent", Some("agent-a"), "vault").await;
    assert!(denied(cluster.enrol(&elsewhere, "node-a").await).contains("does not know this token"));
    let other = cluster.token("other", Some("other-a"), AUDIENCE).await;
    assert!(denied(cluster.enrol(&other, "node-a").await).contains("agents.service-account"));
    let unbound = cluster.token("fairlead-agent", None, AUDIENCE).await;
    assert!(denied(cluster.enrol(&unbound, "node-a").await).contains("bound to no pod"));
    for nonsense in ["", "a.b.c", "x"] {
        assert!(!denied(cluster.enrol(nonsense, "node-a").await).is_empty(), "{nonsense}");
    }
    let nowhere = cluster.token("fairlead-agent", Some("agent-nowhere"), AUDIENCE).await;
    let refused = cluster.enrol(&nowhere, "node-a").await.unwrap_err();
    assert!(refused.to_string().contains("on no node yet"), "{refused}");
    // A token of one that was made for the node still does.
    let minute = Duration::from_secs(60);
    let made = cluster.authority.make_token(Some("node-b"), minute, "test", soon()).await.unwrap();
    let (addresses, dir) = ([cluster.address.clone()], cluster.dir.path().join("made"));
    Identity::enrol(&addresses, made.token.expose(), "node-b", &dir, &cluster.tasks, soon())
        .await
        .unwrap();

    // The pod is gone, and with it what its token is worth.
    let pods = Api::<Pod>::namespaced(cluster.admin.clone(), "fairlead");
    pods.delete("agent-a", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("the token is worth nothing", async || {
        let error = cluster.enrol(&token, "node-a").await.err()?;
        matches!(error, IdentityError::Controller(ClientError::Denied(_))).then_some(())
    })
    .await;
    cluster.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_a_revoked_node_comes_back_with_a_later_token_and_no_stranger_sees_one() {
    testkit::requires!(kube);
    let cluster = Cluster::start().await;
    let token = cluster.token("fairlead-agent", Some("agent-a"), AUDIENCE).await;
    cluster.enrol(&token, "node-a").await.unwrap();
    cluster.authority.revoke("node-a", soon()).await.unwrap();
    assert!(denied(cluster.enrol(&token, "node-a").await).contains("revoked"));
    // A token says to the second when it was given out.
    until("a later token", async || {
        let later = cluster.token("fairlead-agent", Some("agent-a"), AUDIENCE).await;
        cluster.enrol(&later, "node-a").await.ok()
    })
    .await;

    // Who has a certificate of another authority is not shown a token.
    let data = TempDir::new().unwrap();
    let objects = Objects::embedded(data.path(), &cluster.tasks).unwrap();
    let other = Authority::follow(&objects, "fairlead", LIFETIME, &cluster.tasks);
    let lease = Id::namespaced("fairlead", "lease");
    let election = Election::new(objects, lease, "test", Timing::default());
    let (all, led) = (cluster.tasks.clone(), other.clone());
    cluster.tasks.spawn("election", async move {
        election.run(&all, |leader| lead(&leader, &led)).await;
    });
    let serving = until("another authority", async || other.serving()).await;
    let token = cluster.token("fairlead-agent", Some("agent-b"), AUDIENCE).await;
    let refused = cluster.enrol_trusting(&serving.authorities, &token, "node-b").await;
    assert!(denied(refused).contains("no controller that we know"));
    cluster.enrol(&token, "node-b").await.unwrap();
    cluster.tasks.shutdown(Duration::from_secs(5)).await;
}

//! Users who act on a cluster under their own names, on a real API server whose RBAC knows them.

use std::time::Duration;

use access::{AuthMethod, Identity};
use fleet::resources::exec::{self, Command};
use fleet::resources::forward;
use fleet::{Actor, Error};
use http::Method;
use kube::api::{DynamicObject, Patch, PatchParams};
use objects::kinds::Impersonation;
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{KubeServer, requires};

use super::test_api::{TestApi, TestResponse, request};

const NOTHING: Value = Value::Null;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Applies objects as the cluster's administrator.
async fn apply_all(client: &kube::Client, objects: Vec<Value>) {
    for object in objects {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) =
            types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
        let resource = kube::core::ApiResource::from_gvk(&kind);
        let api: kube::Api<DynamicObject> = match object.metadata.namespace.as_deref() {
            Some(namespace) => kube::Api::namespaced_with(client.clone(), namespace, &resource),
            None => kube::Api::all_with(client.clone(), &resource),
        };
        let name = object.metadata.name.clone().unwrap();
        api.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&object)).await.unwrap();
    }
}

/// A role and whom it is for. In no namespace, it is for the whole cluster.
#[allow(clippy::needless_pass_by_value, reason = "tests write their rules in place")]
fn role(name: &str, namespace: Option<&str>, rules: Value, subject: Value) -> Vec<Value> {
    let prefix = if namespace.is_some() { "" } else { "Cluster" };
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let version = "rbac.authorization.k8s.io/v1";
    vec![
        json!({ "apiVersion": version, "kind": format!("{prefix}Role"), "metadata": metadata,
            "rules": rules }),
        json!({ "apiVersion": version, "kind": format!("{prefix}RoleBinding"),
            "metadata": metadata, "subjects": [subject],
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": format!("{prefix}Role"),
                "name": name } }),
    ]
}

fn named(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

/// The kubeconfig of a service account, which is Fairlead's own.
async fn account(server: &KubeServer, client: &kube::Client) -> String {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "fairlead", "namespace": "default" } });
    apply_all(client, vec![account]).await;
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "metadata": {}, "spec": { "audiences": [] } });
    let path = "/api/v1/namespaces/default/serviceaccounts/fairlead/token";
    let made = http::Request::post(path)
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())
        .unwrap();
    let made: Value = client.request(made).await.unwrap();
    let token = made["status"]["token"].as_str().unwrap();
    let mut kubeconfig: Value = serde_json::from_str(server.access().kubeconfig()).unwrap();
    kubeconfig["users"] = json!([{ "name": "token", "user": { "token": token } }]);
    kubeconfig["contexts"] =
        json!([{ "name": "token", "context": { "cluster": "test", "user": "token" } }]);
    kubeconfig["current-context"] = "token".into();
    kubeconfig.to_string()
}

async fn get(world: &TestApi, token: &str, path: &str) -> TestResponse {
    world.ask_as(token, Method::GET, &format!("/clusters/real/{path}"), NOTHING).await
}

async fn test(world: &TestApi) -> Value {
    world.ask(Method::POST, "/clusters/real/test", NOTHING).await.json()
}

#[tokio::test]
async fn a_kube_server_sees_users_under_their_own_names() {
    requires!(kube);
    let (world, server) = tokio::join!(async { TestApi::new().ready().await }, KubeServer::start());
    let client = server.client().await;
    let kubeconfig = account(&server, &client).await;
    let space = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let settings = |namespace: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("of-{namespace}"), "namespace": namespace } })
    };
    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "one", "namespace": "a" },
        "spec": { "containers": [{ "name": "main", "image": "none" }] } });
    apply_all(&client, vec![space("a"), space("b"), settings("a"), settings("b"), pod]).await;
    // Fairlead's account itself may read everything: nobody must gain by that.
    let everything =
        json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"] }]);
    let own = json!({ "kind": "ServiceAccount", "name": "fairlead", "namespace": "default" });
    apply_all(&client, role("reads-all", None, everything, own.clone())).await;
    // What the cluster lets ann and those of bob's role do, by the names that it sees.
    let reads = json!([{ "apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list", "watch"] }]);
    apply_all(&client, role("ann", Some("a"), reads.clone(), named("User", "fairlead:ann"))).await;
    apply_all(&client, role("bob", Some("b"), reads, named("Group", "fairlead:role:of-bob"))).await;

    let all = ["*", "*", "*", "*"];
    let ann = world.somebody("ann", &[all]).await;
    let bob = world.somebody("bob", &[all]).await;
    let import = world.api.fleet.import_impersonating(
        "real",
        &kubeconfig,
        None,
        Some(Impersonation::default()),
        soon(),
    );
    import.await.unwrap();
    let ready = async {
        while world.api.fleet.own_connection("real").is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon().bound(ready).await.expect("the cluster is well");

    refused_without_the_right(&world, &ann).await;
    let may =
        json!([{ "apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"] }]);
    apply_all(&client, role("fairlead-impersonator", None, may, own)).await;
    // The server's authoriser hears of it by a watch.
    let allowed = async {
        while test(&world).await["ok"] != true {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon().bound(allowed).await.expect("it may impersonate");
    let steps = test(&world).await;
    assert_eq!(steps["steps"].as_array().unwrap().last().unwrap()["step"], "impersonate");

    each_as_themselves(&world, &ann, &bob).await;
    watches_are_of_one_user(&world, &ann, &bob).await;
    streams_and_changes(&world, &ann).await;
    who_is_gone_is_nobody(&world);
}

/// What Fairlead's account may not impersonate is refused, though the account itself could do it.
async fn refused_without_the_right(world: &TestApi, ann: &str) {
    let kube = get(world, ann, "proxy/api/v1/namespaces/a/configmaps").await;
    assert_eq!((kube.status, &kube.json()["kind"]), (502, &json!("Status")), "{}", kube.text);
    assert!(kube.text.contains("cannot impersonate"), "{}", kube.text);
    for path in ["resources/cm?namespace=a", "resources/cm/of-a?namespace=a"] {
        let refused = get(world, ann, path).await;
        assert_eq!((refused.status, &*refused.code()), (502, "refused"), "{}", refused.text);
        assert!(refused.text.contains("cannot impersonate"), "{}", refused.text);
        assert!(refused.text.contains("Fairlead's own name"), "{}", refused.text);
    }
    let tested = test(world).await;
    assert_eq!(tested["ok"], false);
    let last = tested["steps"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["step"], &last["ok"]), (&json!("impersonate"), &json!(false)), "{tested}");
    assert!(tested["verdict"].as_str().unwrap().contains("cannot impersonate"), "{tested}");
    // And what names nobody is not done at all.
    let nobody = world.api.fleet.connection("real").unwrap_err();
    assert!(matches!(nobody, Error::Impersonation { .. }), "{nobody}");
}

async fn each_as_themselves(world: &TestApi, ann: &str, bob: &str) {
    for (who, name, own, other) in [(ann, "ann", "a", "b"), (bob, "bob", "b", "a")] {
        let seen = get(world, who, &format!("resources/cm?namespace={own}")).await;
        assert_eq!(seen.status, 200, "{}", seen.text);
        assert!(seen.text.contains(&format!("of-{own}")), "{}", seen.text);
        for path in [format!("resources/cm?namespace={other}"), "resources/cm".to_owned()] {
            let refused = get(world, who, &path).await;
            assert_eq!((refused.status, &*refused.code()), (403, "refused"), "{}", refused.text);
            let user = format!("User \\\"fairlead:{name}\\\"");
            assert!(refused.text.contains(&user), "{}", refused.text);
        }
        // The same through the Kubernetes API.
        let kube = |namespace: &str| format!("proxy/api/v1/namespaces/{namespace}/configmaps");
        let seen = get(world, who, &kube(own)).await;
        assert_eq!(seen.status, 200, "{}", seen.text);
        assert!(seen.text.contains(&format!("of-{own}")), "{}", seen.text);
        let refused = get(world, who, &kube(other)).await;
        assert_eq!(refused.status, 403, "{}", refused.text);
        let user = format!("fairlead:{name}");
        assert!(refused.text.contains(&user), "{}", refused.text);
        let across = format!("/resources/cm?clusters=real&namespace={other}");
        let across = world.ask_as(who, Method::GET, &across, NOTHING).await;
        assert_eq!(across.json()["clusters"][0]["ok"], false, "{}", across.text);
    }
    // Headers of the caller's own change nothing.
    for path in ["resources/cm?namespace=b", "proxy/api/v1/namespaces/b/configmaps"] {
        let path = format!("/api/v1/clusters/real/{path}");
        let mut sly = request(Method::GET, &path, NOTHING);
        let headers = sly.headers_mut();
        headers.insert("authorization", format!("Bearer {ann}").parse().unwrap());
        headers.insert("impersonate-user", "fairlead:bob".parse().unwrap());
        headers.insert("impersonate-group", "system:masters".parse().unwrap());
        assert_eq!(world.send(sly).await.status, 403, "{path}");
    }
    // The owner of the machine is a user like any other there.
    let owner = world.ask(Method::GET, "/clusters/real/resources/cm?namespace=a", NOTHING).await;
    assert!(owner.text.contains("fairlead:local"), "{}", owner.text);
}

async fn watches_are_of_one_user(world: &TestApi, ann: &str, bob: &str) {
    let path = "/clusters/real/resources/cm?namespace=a";
    let mut heard = world.hear(ann, Method::GET, path, NOTHING).await;
    let (event, data) = heard.next().await.unwrap();
    assert_eq!(event, "restarted");
    assert!(data.to_string().contains("of-a"), "{data}");
    // While ann's watch is open, bob's is his own.
    let mut asked = request(Method::GET, &format!("/api/v1{path}"), NOTHING);
    let headers = asked.headers_mut();
    headers.insert("authorization", format!("Bearer {bob}").parse().unwrap());
    headers.insert("accept", "text/event-stream".parse().unwrap());
    let refused = world.send(asked).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("fairlead:bob"), "{}", refused.text);
}

/// The cluster is asked about the subresource, as the user.
async fn streams_and_changes(world: &TestApi, ann: &str) {
    let log = get(world, ann, "resources/pods/one/log?namespace=a").await;
    assert_eq!(log.status, 403, "{}", log.text);
    assert!(log.text.contains("pods/log"), "{}", log.text);

    let actor = |user: &str, roles: &[&str]| Actor {
        user: user.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        groups: Vec::new(),
    };
    let connection = world.api.fleet.connection_as("real", &actor("ann", &["of-ann"])).unwrap();
    let command =
        Command { container: None, command: vec!["true".to_owned()], stdin: false, tty: false };
    let refused = |error: Error, what: &str| {
        let said = stallproof::sentence(&error);
        assert!(said.contains("fairlead:ann") && said.contains(what), "{said}");
    };
    let shell = exec::exec(&connection, "a", "one", &command, soon()).await;
    refused(shell.err().unwrap(), "pods/exec");
    let port = forward::forward(&connection, "a", "one", 80, soon()).await;
    refused(port.err().unwrap(), "pods/portforward");

    let mut made = request(Method::POST, "/api/v1/clusters/real/apply", NOTHING);
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: new, namespace: a }\n";
    *made.body_mut() = axum::body::Body::from(yaml);
    made.headers_mut().insert("authorization", format!("Bearer {ann}").parse().unwrap());
    let made = world.send(made).await;
    assert!(made.text.contains("fairlead:ann"), "{}", made.text);
    let deleted = "/clusters/real/resources/cm/of-a?namespace=a";
    let deleted = world.ask_as(ann, Method::DELETE, deleted, NOTHING).await;
    assert_eq!(deleted.status, 403, "{}", deleted.text);
}

fn who_is_gone_is_nobody(world: &TestApi) {
    let gone = Identity { user: "gone".into(), via: AuthMethod::Local };
    assert_eq!(world.api.access.roles_and_groups(&gone), (Vec::new(), Vec::new()));
}

use std::env;
use std::path::Path;
use std::process::Stdio;

use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, WatchEvent, WatchParams,
};
use serde_json::json;

use super::*;
use crate::{Fault, requires};

const VICTIM: &str = "TESTKIT_VICTIM";

fn parse<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    parse(json!({ "metadata": { "name": name }, "data": { "key": value } }))
}

#[tokio::test]
async fn the_server_does_what_fairlead_asks_of_one() {
    requires!(kube);
    let started = Instant::now();
    let server = KubeServer::start().await;
    println!("ready after {:?}", started.elapsed());
    let (client, namespace) = (server.client().await, server.namespace().await);

    apply_and_watch(client.clone(), &namespace).await;
    define_and_use_a_kind(client.clone()).await;
    hold_a_lease(client, &namespace).await;
}

async fn apply_and_watch(client: Client, namespace: &str) {
    let config_maps = Api::<ConfigMap>::namespaced(client, namespace);
    let version = config_maps.list(&Default::default()).await.unwrap().metadata.resource_version;
    let watch = WatchParams::default().timeout(60);
    let mut events = std::pin::pin!(config_maps.watch(&watch, &version.unwrap()).await.unwrap());
    let apply = PatchParams::apply("testkit");
    for value in ["one", "two"] {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "applied" }, "data": { "key": value },
        });
        config_maps.patch("applied", &apply, &Patch::Apply(object)).await.unwrap();
    }

    let Some(WatchEvent::Added(added)) = events.try_next().await.unwrap() else { panic!() };
    let Some(WatchEvent::Modified(modified)) = events.try_next().await.unwrap() else { panic!() };
    assert_eq!(added.data.unwrap()["key"], "one");
    assert_eq!(modified.data.as_ref().unwrap()["key"], "two");
    assert_eq!(modified.managed_fields()[0].manager.as_deref(), Some("testkit"));
}

async fn define_and_use_a_kind(client: Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let definition = parse(json!({
        "metadata": { "name": "knots.test.fairlead.dev" },
        "spec": {
            "group": "test.fairlead.dev",
            "scope": "Cluster",
            "names": { "kind": "Knot", "plural": "knots" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    }));
    definitions.create(&PostParams::default(), &definition).await.unwrap();

    let kind = GroupVersionKind::gvk("test.fairlead.dev", "v1", "Knot");
    let resource = ApiResource::from_gvk(&kind);
    let knots = Api::<DynamicObject>::all_with(client, &resource);
    let knot = DynamicObject::new("bowline", &resource).data(json!({ "turns": 2 }));
    // The server serves a new kind a moment after it took the definition.
    let made = timeout(Duration::from_secs(30), async {
        loop {
            match knots.create(&PostParams::default(), &knot).await {
                Ok(made) => return made,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    });
    assert_eq!(made.await.unwrap().data["turns"], 2);
}

async fn hold_a_lease(client: Client, namespace: &str) {
    let leases = Api::<Lease>::namespaced(client, namespace);
    let lease = parse(json!({
        "metadata": { "name": "leader" },
        "spec": { "holderIdentity": "me", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-02T03:04:05.678901Z" },
    }));
    let mut mine = leases.create(&PostParams::default(), &lease).await.unwrap();
    let stale = mine.clone();
    mine.spec.as_mut().unwrap().lease_transitions = Some(1);
    leases.replace("leader", &PostParams::default(), &mine).await.unwrap();

    let refused = leases.replace("leader", &PostParams::default(), &stale).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 409));
}

#[tokio::test]
async fn the_token_is_as_good_as_the_certificate_and_no_credential_is_no_good() {
    requires!(kube);
    let server = KubeServer::shared().await;
    let list = async |config: kube::Config| {
        let namespaces = Api::<Namespace>::all(Client::try_from(config).unwrap());
        namespaces.list(&Default::default()).await.map(|list| list.items.len())
    };
    assert!(list(server.access().config_in("token").await).await.unwrap() > 0);
    assert!(list(server.access().config().await).await.unwrap() > 0);

    let mut nobody = server.access().config().await;
    nobody.auth_info = Default::default();
    let refused = list(nobody).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));

    let kubeconfig = fs::read_to_string(server.kubeconfig_path()).unwrap();
    assert_eq!(kubeconfig, server.access().kubeconfig());
    assert!(kubeconfig.contains(server.token()));
}

#[tokio::test]
async fn a_restart_keeps_data_address_and_credentials() {
    requires!(kube);
    let mut server = KubeServer::start().await;
    let namespace = server.namespace().await;
    let config_maps = Api::<ConfigMap>::namespaced(server.client().await, &namespace);
    config_maps.create(&PostParams::default(), &config_map("kept", "yes")).await.unwrap();

    server.stop();
    assert!(config_maps.get("kept").await.is_err());
    server.restart().await;
    assert_eq!(config_maps.get("kept").await.unwrap().data.unwrap()["key"], "yes");
}

#[tokio::test]
async fn a_black_hole_in_between_holds_a_request_until_it_is_healed() {
    requires!(kube);
    let server = KubeServer::shared().await;
    let proxy = Proxy::start(server.address());
    let through = Api::<Namespace>::all(server.through(&proxy).client().await);
    through.get("default").await.unwrap();

    proxy.inject(Fault::BlackHole);
    let mut request = std::pin::pin!(through.get("default"));
    assert!(timeout(Duration::from_secs(1), &mut request).await.is_err());
    let straight = Api::<Namespace>::all(server.client().await);
    straight.get("default").await.unwrap();

    proxy.heal();
    request.await.unwrap();
}

/// Those that run in `dir`, also when it is already removed.
fn processes_in(dir: &str) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|process| fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir)))
        .collect()
}

#[tokio::test]
async fn a_killed_process_leaves_no_server_and_no_directory() {
    requires!(kube);
    if let Some(note) = env::var_os(VICTIM) {
        let server = KubeServer::start().await;
        let written = Path::new(&note).with_extension("new");
        fs::write(&written, server.dir.path.to_str().unwrap()).unwrap();
        fs::rename(written, note).unwrap();
        std::future::pending::<()>().await;
    }

    let scratch = tempfile::tempdir().unwrap();
    let note = scratch.path().join("note");
    let mut victim = Command::new(env::current_exe().unwrap())
        .args(["--exact", "kube_server::tests::a_killed_process_leaves_no_server_and_no_directory"])
        .env(VICTIM, &note)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !note.exists() {
        assert!(victim.try_wait().unwrap().is_none(), "the victim died of itself");
        sleep(Duration::from_millis(50)).await;
    }
    let dir = fs::read_to_string(note).unwrap();
    assert!(processes_in(&dir).len() >= 2, "kube-apiserver and etcd");

    victim.kill().unwrap();
    victim.wait().unwrap();
    let gone = timeout(Duration::from_secs(30), async {
        while !processes_in(&dir).is_empty() || Path::new(&dir).exists() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(gone.await.is_ok(), "left: {:?}, {dir}", processes_in(&dir));
}

//! A controller that counts, on a real API server, with the permissions that the chart gives
//! for `guard` and no others.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;
use std::time::Duration;

use install::chart::{Chart, Release, namespace};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service};
use kube::api::{Api, Patch, PatchParams, PostParams};
use objects::kinds::{Group, NetworkRule};
use objects::{Election, Error, Id, Kind, Leader, Objects, Timing};
use pki::agents::{self, Authority};
use serde_json::{Value, json};
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Tasks};
use testkit::{Access, KubeServer};
use traffic::conversations::{Moment, Protocol, Record, Report, Totals, Verdict};
use traffic::ingest::{ActiveIngest, Ingest, ReportSink as _, Settings};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
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
    Deadline::after(Duration::from_secs(90))
        .bound(looking)
        .await
        .unwrap_or_else(|_| panic!("{what}"))
}

/// The store, as the controller's service account.
async fn store_of(access: &Access) -> Objects {
    let mut config = access.config_as("fairlead-controller").await;
    config.default_retry = false;
    Objects::kubernetes(kube::Client::try_from(config).unwrap(), "fairlead")
}

/// The namespace, the accounts and their permissions, as the chart has them with only these components.
async fn deploy_permissions(client: &kube::Client, components: &[&str]) {
    let mut values = install::values::Values::default();
    for component in ["net", "guard", "mesh", "console", "admission"] {
        let on = components.contains(&component);
        values.set(&format!("components.{component}={on}")).unwrap();
    }
    values.set("crds.install=false,fleet.localCluster=none").unwrap();
    let release = Release::default();
    let rendered = Chart::embedded().render(&release, &values).unwrap();
    testkit::deploy_permissions(client, &namespace(&release), &rendered.objects).await;
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A pod that runs, as a kubelet would tell of it.
async fn run_pod(client: &kube::Client, name: &str, owner: Option<&str>, address: &str) {
    let api = Api::<Pod>::namespaced(client.clone(), "shop");
    let owners = owner.map(|owner| {
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "1", "controller": true}])
    });
    let hash = owner.and_then(|owner| owner.rsplit('-').next()).unwrap_or_default();
    create(
        &api,
        json!({
            "metadata": {"name": name, "ownerReferences": owners,
                         "labels": {"app": "web", "pod-template-hash": hash}},
            "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "web:1"}]},
        }),
    )
    .await;
    let status = json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "192.0.2.10"}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

fn report(sequence: u64, server: &str, sessions: u64) -> Report {
    let now = Moment::now();
    let record = Record {
        client: "198.51.100.7".parse::<IpAddr>().unwrap(),
        server: server.parse().unwrap(),
        port: 8080,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: 1000 * sessions, packets: 10 * sessions, sessions },
        first: now,
        last: now,
    };
    Report {
        agent: "node-a".into(),
        incarnation: 1,
        sequence,
        records: vec![record],
        ..Report::default()
    }
}

/// Servers that were talked to: what they are called, and how it was judged.
fn servers(ingest: &Ingest) -> Vec<(String, Option<Verdict>)> {
    let view = ingest.view();
    let mut all: Vec<_> = view
        .conversations(|_| true, Moment(0))
        .map(|it| (it.server().endpoint.to_string(), it.verdict()))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

async fn forbidden<K: Kind>(objects: &Objects, id: &Id) {
    let refused = objects.get::<K>(id, soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Forbidden { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kube_cluster_is_looked_at_with_no_more_than_the_permissions_that_are_shipped() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    objects::install(client.clone(), Deadline::after(Duration::from_secs(60))).await.unwrap();
    deploy_permissions(&client, &["guard"]).await;
    let store = store_of(server.access()).await;
    forbidden::<Secret>(&store, &Id::namespaced("fairlead", "any")).await;
    forbidden::<Secret>(&store, &Id::namespaced("default", "fairlead-agents")).await;
    forbidden::<ConfigMap>(&store, &Id::namespaced("fairlead", "any")).await;

    create(&Api::<Namespace>::all(client.clone()), json!({"metadata": {"name": "shop"}})).await;
    let nodes = Api::<Node>::all(client.clone());
    create(&nodes, json!({"metadata": {"name": "node-a"}, "spec": {"podCIDR": "10.1.0.0/24"}}))
        .await;
    let addresses =
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}});
    nodes.patch_status("node-a", &PatchParams::default(), &Patch::Merge(addresses)).await.unwrap();
    let services = Api::<Service>::namespaced(client.clone(), "shop");
    create(&services, json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})).await;
    let service = services.get("web").await.unwrap().spec.unwrap().cluster_ip.unwrap();
    run_pod(&client, "web-5d4f-x", Some("web-5d4f"), "10.1.0.5").await;

    // One leads: it counts, and makes the agents' authority.
    let dir = tempfile::tempdir().unwrap();
    let (tasks, seat) = (Tasks::new("test"), ActiveIngest::default());
    let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
    let authority = Authority::follow(&store, "fairlead", agents::LIFETIME, &tasks);
    let lease = Id::namespaced("fairlead", "fairlead-controller");
    let election = Election::new(store.clone(), lease, "one", Timing::default());
    let (all, duty, seated) = (tasks.clone(), authority.clone(), seat.clone());
    let settings = Settings::new(dir.path().to_owned());
    tasks.spawn("election", async move {
        let lead = |leader: Leader| {
            agents::lead(&leader, &duty);
            let (objects, below) = (leader.objects.clone(), leader.tasks.clone());
            let begin = move |ingest: &Ingest| {
                ingest.follow_store(&objects, &below);
                ingest.follow_cluster(&objects, &below);
                ingest.keep_statuses(&objects, &below);
            };
            let held =
                seated.clone().hold(settings.clone(), ledger.clone(), leader.tasks.clone(), begin);
            leader.tasks.spawn("guard", held);
        };
        election.run(&all, lead).await;
    });
    let made = until("the authority is made", async || {
        authority.make_token(None, agents::DEFAULT_TTL, "test", soon()).await.ok()
    });
    assert!(made.await.token.expose().starts_with("fl1."));
    let ingest = until("it counts", async || seat.ingest()).await;
    // Whoever counts knows the cluster: nothing is counted for a stranger that is a node.
    let count = async |sequence, server: &str, sessions| {
        let report = report(sequence, server, sessions);
        let op = Ledger::default().begin("report", "n", "n");
        ingest.offer(&report, |_| true, soon(), &op).await.unwrap()
    };
    count(1, "10.1.0.5", 1).await;
    count(2, "192.0.2.10", 1).await;
    count(3, &service, 1).await;
    count(4, "10.1.0.77", 1).await;
    let seen =
        until("all are seen", async || Some(servers(&ingest)).filter(|it| it.len() == 4)).await;
    let names: Vec<_> = seen.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["host node-a", "service shop/web", "shop/web-5d4f-x", "unmanaged"]);
    let groups = ingest.inventory().groups.all_learned();
    assert_eq!(groups[0].1.as_ref(), "Deployment/web", "{groups:?}");

    // What is written through the controller's own account decides.
    let group: Group = serde_json::from_value(json!({
        "metadata": {"name": "shopfront"}, "spec": {"mode": "monitor",
        "criteria": [{"key": "name", "op": "prefix", "value": "web-"}]}}))
    .unwrap();
    store.create(&group, soon()).await.unwrap();
    let rule: NetworkRule = serde_json::from_value(json!({
        "metadata": {"name": "closed"}, "spec": {"from": "external", "to": "shopfront", "action": "deny"}}))
    .unwrap();
    store.create(&rule, soon()).await.unwrap();
    until("it is a violation", async || {
        let judged = |it: &(String, Option<Verdict>)| it.1.is_some_and(Verdict::is_violation);
        servers(&ingest).iter().any(|it| it.0 == "shop/web-5d4f-x" && judged(it)).then_some(())
    })
    .await;
    until("the group is told how many it has", async || {
        let group = store.get::<Group>(&Id::cluster("shopfront"), soon()).await.unwrap()?;
        group.status
    })
    .await;
    tasks.shutdown(Duration::from_secs(10)).await;
}

//! Services of three clusters joined by a mesh, on three real API servers.

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "how long each thing took is worth reading")]

mod stage;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use mesh::services::{EndpointSlice, ServiceExport, ServiceImport};
use objects::kinds::ClusterMesh;
use objects::{Expected, Id, Objects};
use serde_json::{Value, json};
use stage::{NAMESPACE, eventually, lead, named, soon};
use stallproof::Tasks;
use testkit::{Fault, KubeServer, Proxy};

const NAMES: [&str; 3] = ["a", "b", "c"];
struct Cluster {
    server: KubeServer,
    client: Client,
    /// Which version of EndpointSlices the server has.
    slices: ApiResource,
}

impl Cluster {
    async fn start() -> Self {
        // The server of tests has betas off; before 1.21 EndpointSlices are one.
        let beta = "--runtime-config=discovery.k8s.io/v1beta1=true";
        let server = KubeServer::start_with(&[beta]).await;
        let client = server.client().await;
        let groups = client.list_api_groups().await.unwrap();
        let group = groups.groups.iter().find(|it| it.name == "discovery.k8s.io").unwrap();
        let version = group.preferred_version.as_ref().unwrap();
        let slices = ApiResource {
            group: group.name.clone(),
            version: version.version.clone(),
            api_version: version.group_version.clone(),
            kind: "EndpointSlice".to_owned(),
            plural: "endpointslices".to_owned(),
        };
        let shop = Namespace { metadata: named("shop"), ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &shop).await.unwrap();
        Self { server, client, slices }
    }

    fn api<T>(&self) -> Api<T>
    where
        T: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "shop")
    }

    fn slice_api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "shop", &self.slices)
    }

    /// A Service with endpoints at these addresses, as a cluster's own controllers would make them.
    async fn serve(&self, port: u16, addresses: &[&str]) {
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": port}]},
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &service).await.unwrap();
        let endpoint = |it: &&str| json!({"addresses": [it], "conditions": {"ready": true}});
        let slice: DynamicObject = serde_json::from_value(json!({
            "apiVersion": self.slices.api_version, "kind": "EndpointSlice",
            "metadata": {"name": "web-abc", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }))
        .unwrap();
        self.slice_api().create(&PostParams::default(), &slice).await.unwrap();
    }

    /// Exports the Service, as soon as the cluster knows what that is.
    async fn export(&self) {
        let export: ServiceExport =
            serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        eventually("the cluster is taught the CRD", || async {
            let mut object = serde_json::to_value(&export).unwrap();
            object["apiVersion"] = json!("multicluster.x-k8s.io/v1alpha1");
            object["kind"] = json!("ServiceExport");
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let kind = ApiResource::erase::<ServiceExport>(&());
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), "shop", &kind);
            api.create(&PostParams::default(), &object).await.is_ok()
        })
        .await;
    }

    async fn import(&self) -> Option<ServiceImport> {
        self.api::<ServiceImport>().get_opt("web").await.ok().flatten()
    }

    /// The imported addresses by source.
    async fn imported(&self) -> BTreeMap<String, Vec<String>> {
        let slices = self.slice_api().list(&ListParams::default()).await.unwrap().items;
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for slice in slices {
            let mut value = serde_json::to_value(&slice).unwrap();
            value.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
            let slice: EndpointSlice = serde_json::from_value(value).unwrap();
            if let Some(source) = slice.labels().get("multicluster.kubernetes.io/source-cluster") {
                let label = |key: &str| slice.labels().get(key).cloned().unwrap_or_default();
                assert_eq!(label("multicluster.kubernetes.io/service-name"), "web");
                assert_eq!(label("endpointslice.kubernetes.io/managed-by"), "mesh.fairlead.dev");
                let addresses =
                    slice.endpoints.iter().flatten().flat_map(|it| it.addresses.clone());
                all.entry(source.clone()).or_default().extend(addresses);
            }
        }
        all
    }

    async fn condition(&self, kind: &str) -> Option<(String, String, String)> {
        let export = self.api::<ServiceExport>().get_opt("web").await.ok()??;
        let found = export.status?.conditions.into_iter().find(|it| it.type_ == kind)?;
        Some((found.status, found.reason, found.message))
    }

    /// How many objects of the mesh there are beside peers.
    async fn ours(&self) -> usize {
        let ours = ListParams::default().labels("fairlead.dev/mesh=m");
        let services = self.api::<Service>().list(&ours).await.unwrap().items.len();
        let slices = self.slice_api().list(&ours).await.unwrap().items.len();
        services + slices + usize::from(self.import().await.is_some())
    }
}

fn mesh(services: bool) -> ClusterMesh {
    let cluster = |(i, name): (usize, &&str)| {
        json!({"name": name, "kubeconfigSecretRef": {"name": name},
               "allowedNetworks": [format!("10.{i}.0.0/16")]})
    };
    let clusters: Vec<Value> = NAMES.iter().enumerate().map(cluster).collect();
    serde_json::from_value(json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "m", "namespace": NAMESPACE},
        "spec": {"services": services, "installCRDs": true, "clusters": clusters},
    }))
    .unwrap()
}

/// The second cluster is reached through a proxy.
async fn store(clusters: &[Cluster], proxy: &Proxy) -> Objects {
    let through: Vec<_> = clusters.iter().map(|it| it.server.through(proxy)).collect();
    let kubeconfig = |(i, name): (usize, &&'static str)| {
        let access = if *name == "b" { &through[i] } else { clusters[i].server.access() };
        (*name, access.kubeconfig())
    };
    let kubeconfigs: Vec<_> = NAMES.iter().enumerate().map(kubeconfig).collect();
    stage::store(&clusters[0].client, &kubeconfigs).await
}

mod kube_servers {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_exported_service_is_reached_from_every_cluster_and_follows_who_dies() {
        testkit::requires!(kube);
        let clusters: Vec<Cluster> =
            futures::future::join_all((0..3).map(|_| Cluster::start())).await;
        let [a, b, c] = &clusters[..] else { panic!() };
        println!("EndpointSlices are {}", a.slices.api_version);
        let proxy = Proxy::start(b.server.address());
        let (objects, tasks) = (store(&clusters, &proxy).await, Tasks::new("test"));
        lead(&objects, &tasks);
        objects.apply(&mesh(true), Expected::Any, soon()).await.unwrap();

        a.serve(80, &["10.0.7.1", "192.168.9.9"]).await;
        a.export().await;
        let took = eventually("the import has an address", || async {
            c.import().await.is_some_and(|it| it.spec.ips.len() == 1)
        })
        .await;
        println!("imported after {took:?}");
        let import = c.import().await.unwrap();
        let derived = &import.annotations()["multicluster.kubernetes.io/derived-service"];
        let derived = c.api::<Service>().get(derived).await.unwrap().spec.unwrap();
        assert_eq!(derived.cluster_ip.as_ref(), import.spec.ips.first());
        assert_eq!(derived.ports.unwrap()[0].port, 80);
        let only_carried = BTreeMap::from([("a".to_owned(), vec!["10.0.7.1".to_owned()])]);
        eventually("what the mesh carries is there", || async {
            c.imported().await == only_carried && b.imported().await == only_carried
        })
        .await;
        eventually("the export is told", || async {
            a.condition("Ready").await.is_some_and(|it| it.0 == "True")
        })
        .await;

        // A second cluster exports it with another port: the older export decides.
        b.serve(81, &["10.1.7.1"]).await;
        b.export().await;
        eventually("both are told of the conflict", || async {
            let told =
                |it: Option<(String, String, String)>| it.is_some_and(|it| it.1 == "PortConflict");
            told(a.condition("Conflict").await) && told(b.condition("Conflict").await)
        })
        .await;
        assert_eq!(
            c.import().await.unwrap().spec.ports.iter().find(|it| it.name == "http").unwrap().port,
            80
        );
        b.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]},
        }))
        .unwrap();
        b.api().create(&PostParams::default(), &service).await.unwrap();
        eventually("they agree", || async {
            c.imported().await.len() == 2
                && b.condition("Conflict").await.is_some_and(|it| it.1 == "NoConflicts")
        })
        .await;

        // A cluster dies: its endpoints leave, and come back with it.
        proxy.inject(Fault::BlackHole);
        let took = eventually("the dead cluster's endpoints leave", || async {
            c.imported().await == only_carried
        })
        .await;
        println!("endpoints of a silent cluster left after {took:?}");
        proxy.heal();
        let took = eventually("they come back", || async { c.imported().await.len() == 2 }).await;
        println!("and came back after {took:?}");

        // Nobody exports it any more.
        for cluster in [a, b] {
            let api = cluster.api::<ServiceExport>();
            api.delete("web", &DeleteParams::default()).await.unwrap();
        }
        for cluster in &clusters {
            eventually("the import is gone", || async { cluster.ours().await == 0 }).await;
        }

        // A mesh that does not join Services any more takes its imports along.
        a.export().await;
        eventually("it is there again", || async { c.import().await.is_some() }).await;
        objects.apply(&mesh(false), Expected::Any, soon()).await.unwrap();
        for cluster in &clusters {
            eventually("the mesh's imports are gone", || async { cluster.ours().await == 0 }).await;
        }
        objects.apply(&mesh(true), Expected::Any, soon()).await.unwrap();
        eventually("it is there once more", || async { b.import().await.is_some() }).await;
        let id = Id::namespaced(NAMESPACE, "m");
        objects.delete::<ClusterMesh>(&id, Expected::Any, soon()).await.unwrap();
        eventually("the mesh is gone", || async {
            objects.get::<ClusterMesh>(&id, soon()).await.unwrap().is_none()
        })
        .await;
        for cluster in &clusters {
            assert_eq!(cluster.ours().await, 0);
        }
        tasks.shutdown(Duration::from_secs(10)).await;
    }
}

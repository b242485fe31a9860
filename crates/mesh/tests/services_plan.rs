//! What holds of every plan of Services, and what the rules of KEP-1645 come to.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use mesh::services::{
    ClusterServices, EndpointSlice, ImportType, ServiceChange, ServiceContext, ServiceExport,
    ServiceImport, ServicePlanner, ServiceWrite, Written, service_export_crd, service_import_crd,
};
use mesh::{Index, Observed, index};

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const KEY: &str = "shop/web";
const SLICE_SERVICE: &str = "kubernetes.io/service-name";
const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
const DERIVED: &str = "multicluster.kubernetes.io/derived-service";

/// Three clusters as API servers have them. Cluster `i` has 10.i.0.0/16.
#[derive(Clone)]
struct World {
    clusters: BTreeMap<String, ClusterServices>,
    context: ServiceContext,
    version: u64,
}

fn network(cluster: &str) -> IpNet {
    let i = CLUSTERS.iter().position(|it| *it == cluster).unwrap();
    format!("10.{i}.0.0/16").parse().unwrap()
}

/// An address that the mesh carries to a cluster.
fn carried_address(cluster: &str, end: u8) -> String {
    let i = CLUSTERS.iter().position(|it| *it == cluster).unwrap();
    format!("10.{i}.7.{end}")
}

fn known<T>(part: &mut Observed<Index<T>>) -> &mut Index<T> {
    let Observed::Known(index) = part else { panic!("unknown") };
    index
}

fn empty() -> ClusterServices {
    ClusterServices {
        namespaces: Observed::Known(Index::default()),
        services: Observed::Known(Index::default()),
        slices: Observed::Known(Index::default()),
        exports: Observed::Known(Index::default()),
        imports: Observed::Known(Index::default()),
    }
}

fn namespace(name: &str) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn service(port: i32, headless: bool) -> Service {
    let ip = if headless { "None" } else { "10.96.0.1" };
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"type": "ClusterIP", "clusterIP": ip,
                 "ports": [{"name": "http", "port": port, "protocol": "TCP"}]},
    }))
    .unwrap()
}

fn slice(name: &str, addresses: &[String], ready: bool) -> EndpointSlice {
    let endpoint = |it: &String| json!({"addresses": [it], "conditions": {"ready": ready}});
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {SLICE_SERVICE: "web"}},
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }))
    .unwrap()
}

fn export(seconds: i64) -> ServiceExport {
    let created = Timestamp::from_second(1_000_000 + seconds).unwrap().to_string();
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": created},
    }))
    .unwrap()
}

fn put<T: ResourceExt + Clone>(part: &mut Observed<Index<T>>, object: T) {
    known(part).extend(index([object]));
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

/// Writes as an API server does it.
fn write<T: ResourceExt + Serialize + DeserializeOwned>(
    part: &mut Observed<Index<T>>,
    write: &ServiceWrite,
    version: u64,
) {
    let place = format!("{}/{}", write.namespace, write.name);
    let all = known(part);
    let current = all.get(place.as_str()).cloned();
    let mut object = match &write.change {
        ServiceChange::Create(object) => {
            assert!(current.is_none(), "{write:?} exists");
            object.clone()
        }
        ServiceChange::Patch { version, patch } | ServiceChange::PatchStatus { version, patch } => {
            let current = current.unwrap();
            assert_eq!(current.resource_version(), *version, "{write:?}");
            let mut object = serde_json::to_value(&*current).unwrap();
            merge(&mut object, patch);
            object
        }
        ServiceChange::Delete { version } => {
            assert_eq!(current.unwrap().resource_version(), *version, "{write:?}");
            all.remove(place.as_str());
            return;
        }
    };
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    if write.kind == Written::Service && object["spec"].get("clusterIP").is_none() {
        object["spec"]["clusterIP"] = json!(format!("10.96.1.{}", version % 250));
    }
    all.insert(place.into(), Arc::new(serde_json::from_value(object).unwrap()));
}

impl World {
    fn new() -> Self {
        let mut clusters: BTreeMap<String, ClusterServices> =
            CLUSTERS.iter().map(|it| ((*it).to_owned(), empty())).collect();
        for cluster in clusters.values_mut() {
            put(&mut cluster.namespaces, namespace("shop"));
        }
        let members = CLUSTERS.iter().map(|it| ((*it).to_owned(), vec![network(it)])).collect();
        let context = ServiceContext {
            mesh: "m".to_owned(),
            namespace: "x".to_owned(),
            members,
            frozen: BTreeSet::new(),
        };
        Self { clusters, context, version: 0 }
    }

    fn cluster(&mut self, name: &str) -> &mut ClusterServices {
        self.clusters.get_mut(name).unwrap()
    }

    /// A Service with endpoints at these ends of addresses, exported at this time.
    fn exports(&mut self, cluster: &str, seconds: i64, port: i32, headless: bool, ends: &[u8]) {
        let addresses: Vec<String> =
            ends.iter().map(|end| carried_address(cluster, *end)).collect();
        let of = self.cluster(cluster);
        put(&mut of.services, service(port, headless));
        put(&mut of.slices, slice("web-1", &addresses, true));
        put(&mut of.exports, export(seconds));
    }

    fn plan(&self, planner: &mut ServicePlanner) -> Vec<(String, Vec<ServiceWrite>)> {
        planner.set_context(self.context.clone());
        for (name, cluster) in &self.clusters {
            planner.observe(name, cluster);
        }
        let now = Time(Timestamp::from_second(2_000_000).unwrap());
        while planner.advance(1, &now) {}
        planner.writes().map(|(name, it)| (name.to_owned(), it.cloned().collect())).collect()
    }

    fn apply(&mut self, writes: &[(String, Vec<ServiceWrite>)]) {
        for (cluster, writes) in writes {
            for it in writes {
                self.version += 1;
                let version = self.version;
                let of = self.clusters.get_mut(cluster).unwrap();
                match it.kind {
                    Written::Service => write(&mut of.services, it, version),
                    Written::EndpointSlice => write(&mut of.slices, it, version),
                    Written::ServiceImport => write(&mut of.imports, it, version),
                    Written::ServiceExport => write(&mut of.exports, it, version),
                }
            }
        }
    }

    /// Writes until nothing is left to write.
    fn converge(&mut self, planner: &mut ServicePlanner) {
        for _ in 0..6 {
            let writes = self.plan(planner);
            if writes.is_empty() {
                assert_eq!(self.plan(&mut ServicePlanner::default()), [], "from nothing");
                return;
            }
            assert_eq!(writes, self.plan(&mut ServicePlanner::default()), "from nothing");
            self.apply(&writes);
        }
        panic!("it does not converge: {:?}", self.plan(planner));
    }

    fn import(&self, cluster: &str) -> Option<&ServiceImport> {
        self.clusters[cluster].imports.known()?.get(KEY).map(AsRef::as_ref)
    }

    /// The imported slices of a cluster: the source and the addresses of each.
    fn imported(&self, cluster: &str) -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for slice in self.clusters[cluster].slices.known().into_iter().flat_map(|it| it.values()) {
            if let Some(source) = slice.labels().get(SOURCE_CLUSTER) {
                let addresses =
                    slice.endpoints.iter().flatten().flat_map(|it| it.addresses.clone());
                all.entry(source.clone()).or_default().extend(addresses);
            }
        }
        all
    }

    fn condition(&self, cluster: &str, kind: &str) -> (String, String) {
        let export = &self.clusters[cluster].exports.known().unwrap()[KEY];
        let conditions = &export.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|it| it.type_ == kind).unwrap();
        (found.status.clone(), found.reason.clone())
    }
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

#[test]
fn an_exported_service_is_imported_with_an_address_and_endpoints_that_the_mesh_carries() {
    let (mut world, mut planner) = (World::new(), ServicePlanner::default());
    world.exports("a", 1, 80, false, &[1, 2]);
    let stray = slice("web-2", &["192.168.0.9".to_owned()], true);
    put(&mut world.cluster("a").slices, stray);
    put(&mut world.cluster("a").slices, slice("web-3", &["10.0.7.9".to_owned()], false));
    world.converge(&mut planner);
    for cluster in ["b", "c"] {
        let import = world.import(cluster).unwrap();
        assert_eq!(import.spec.r#type, ImportType::ClusterSetIP);
        let derived = format!("shop/{}", import.annotations()[DERIVED]);
        let derived = &world.clusters[cluster].services.known().unwrap()[derived.as_str()];
        assert!(derived.name_any().starts_with("derived-"));
        let ip = derived.spec.as_ref().unwrap().cluster_ip.clone().unwrap();
        assert_eq!(import.spec.ips, [ip]);
        let expected = vec!["10.0.7.1".to_owned(), "10.0.7.2".to_owned()];
        assert_eq!(world.imported(cluster), BTreeMap::from([("a".to_owned(), expected)]));
    }
    // The exporting cluster reaches all of its own pods.
    assert_eq!(world.imported("a")["a"].len(), 3);
    assert_eq!(world.condition("a", "Ready"), pair("True", "Exported"));
    assert_eq!(world.condition("a", "Conflict"), pair("False", "NoConflicts"));
}

#[test]
fn where_exports_differ_the_oldest_decides_and_all_are_told() {
    let (mut world, mut planner) = (World::new(), ServicePlanner::default());
    world.exports("a", 9, 8080, false, &[1]);
    world.exports("b", 5, 80, false, &[1]);
    world.converge(&mut planner);
    assert_eq!(world.import("c").unwrap().spec.ports[0].port, 80);
    for cluster in ["a", "b"] {
        assert_eq!(world.condition(cluster, "Conflict"), pair("True", "PortConflict"));
    }
    // Nothing that is sent to port 80 goes to a cluster whose Service has another port.
    assert!(!world.imported("c").contains_key("a"), "{:?}", world.imported("c"));
    world.exports("a", 9, 80, true, &[1]);
    world.converge(&mut planner);
    assert_eq!(world.condition("a", "Conflict"), pair("True", "TypeConflict"));
    assert_eq!(world.import("c").unwrap().spec.r#type, ImportType::ClusterSetIP);
    // The oldest goes, and the Service is headless: another derived Service takes over.
    known(&mut world.cluster("b").exports).remove(KEY);
    world.converge(&mut planner);
    let import = world.import("c").unwrap();
    assert_eq!((import.spec.r#type, import.spec.ips.len()), (ImportType::Headless, 0));
    let services = world.clusters["c"].services.known().unwrap();
    let derived: Vec<&Arc<str>> = services.keys().collect();
    assert_eq!(derived, [&Arc::from(format!("shop/{}", import.annotations()[DERIVED]))]);
}

#[test]
fn what_cannot_be_exported_says_why() {
    let (mut world, mut planner) = (World::new(), ServicePlanner::default());
    put(&mut world.cluster("a").exports, export(1));
    world.converge(&mut planner);
    assert_eq!(world.condition("a", "Valid"), pair("False", "NoService"));
    assert!(world.import("b").is_none());
    let mut external = service(80, false);
    external.spec.as_mut().unwrap().type_ = Some("ExternalName".to_owned());
    put(&mut world.cluster("a").services, external);
    world.converge(&mut planner);
    assert_eq!(world.condition("a", "Valid"), pair("False", "InvalidServiceType"));
}

#[test]
fn endpoints_of_a_dead_cluster_leave_unless_they_are_the_last() {
    let (mut world, mut planner) = (World::new(), ServicePlanner::default());
    world.exports("a", 1, 80, false, &[1]);
    world.exports("b", 2, 80, false, &[1]);
    world.converge(&mut planner);
    assert_eq!(world.imported("c").len(), 2);
    let alive = world.clusters["b"].clone();
    let away = || Observed::Away("no answer".to_owned());
    world.clusters.insert(
        "b".to_owned(),
        ClusterServices {
            namespaces: Observed::Away(String::new()),
            services: Observed::Away(String::new()),
            slices: Observed::Away(String::new()),
            exports: Observed::Away(String::new()),
            imports: away(),
        },
    );
    world.converge(&mut planner);
    assert_eq!(world.imported("c").keys().collect::<Vec<_>>(), ["a"]);
    // The other one has no pods any more: what the dead cluster had was taken, and comes back with it.
    world.clusters.insert("b".to_owned(), alive);
    world.converge(&mut planner);
    assert_eq!(world.imported("c").len(), 2);
    // Now the dead cluster is the last that had endpoints.
    known(&mut world.cluster("a").slices).remove("shop/web-1");
    world.converge(&mut planner);
    let of_b = world.clusters["b"].clone();
    world.cluster("b").slices = Observed::Away(String::new());
    world.converge(&mut planner);
    assert_eq!(world.imported("c").keys().collect::<Vec<_>>(), ["b"]);
    // Nobody exports it but the dead cluster: all of it stays.
    known(&mut world.cluster("a").exports).remove(KEY);
    world.converge(&mut planner);
    assert!(world.import("c").is_some() && world.imported("c").contains_key("b"));
    // The cluster is back, and does not export it: now it goes.
    world.clusters.insert("b".to_owned(), of_b);
    known(&mut world.cluster("b").exports).remove(KEY);
    world.converge(&mut planner);
    assert!(world.import("c").is_none() && world.imported("c").is_empty());
}

#[test]
fn nothing_is_planned_before_every_member_was_looked_at() {
    let (mut world, mut planner) = (World::new(), ServicePlanner::default());
    world.exports("a", 1, 80, false, &[1]);
    let b = std::mem::take(world.cluster("b"));
    assert_eq!(world.plan(&mut planner), []);
    world.clusters.insert("b".to_owned(), b);
    assert_eq!(world.plan(&mut planner).len(), 3);
}

/// What may happen.
#[derive(Clone, Debug)]
enum Event {
    Export { cluster: usize, seconds: i64, port: i32, headless: bool },
    Unexport(usize),
    Endpoints { cluster: usize, slice: u8, ends: Vec<u8>, carried: bool },
    ServiceGone(usize),
    Namespace { cluster: usize, is: bool },
    Foreign { cluster: usize, is: bool },
    Away { cluster: usize, is: bool },
    Member { cluster: usize, is: bool },
    Converge,
}

fn event() -> impl Strategy<Value = Event> {
    let c = 0usize..3;
    prop_oneof![
        4 => (c.clone(), 0i64..4, prop_oneof![Just(80), Just(81)], any::<bool>()).prop_map(
            |(cluster, seconds, port, headless)| Event::Export { cluster, seconds, port, headless }
        ),
        1 => c.clone().prop_map(Event::Unexport),
        4 => (c.clone(), 0u8..3, proptest::collection::vec(1u8..9, 0..4), any::<bool>()).prop_map(
            |(cluster, slice, ends, carried)| Event::Endpoints { cluster, slice, ends, carried }
        ),
        1 => c.clone().prop_map(Event::ServiceGone),
        1 => (c.clone(), any::<bool>()).prop_map(|(cluster, is)| Event::Namespace { cluster, is }),
        1 => (c.clone(), any::<bool>()).prop_map(|(cluster, is)| Event::Foreign { cluster, is }),
        2 => (c.clone(), any::<bool>()).prop_map(|(cluster, is)| Event::Away { cluster, is }),
        1 => (c, any::<bool>()).prop_map(|(cluster, is)| Event::Member { cluster, is }),
        3 => Just(Event::Converge),
    ]
}

/// What of the mesh's writes holds whatever happened before.
fn check(world: &World, foreign: &BTreeSet<String>) {
    let live = |name: &str| {
        let of = &world.clusters[name];
        let is_known = of.exports.known().is_some();
        is_known && world.context.members.contains_key(name)
    };
    let valid: Vec<&str> = CLUSTERS
        .into_iter()
        .filter(|name| live(name))
        .filter(|name| {
            let of = &world.clusters[*name];
            of.exports.known().unwrap().contains_key(KEY)
                && of.services.known().unwrap().contains_key(KEY)
        })
        .collect();
    for name in CLUSTERS.into_iter().filter(|name| world.clusters[*name].exports.known().is_some())
    {
        let of = &world.clusters[name];
        let imported = world.imported(name);
        for (source, addresses) in &imported {
            for address in addresses.iter().filter(|_| source != name) {
                assert!(network(source).contains(&address.parse::<std::net::IpAddr>().unwrap()));
            }
        }
        let here = of.namespaces.known().unwrap().contains_key("shop");
        let is_member = world.context.members.contains_key(name);
        if !is_member || !here || foreign.contains(name) {
            assert!(imported.is_empty(), "{name}: {imported:?}");
            let import = world.import(name);
            assert_eq!(import.is_some(), foreign.contains(name), "{name}: {import:?}");
        } else if !valid.is_empty() {
            let import = world.import(name).unwrap();
            let of = |cluster: &str| {
                let of = &world.clusters[cluster];
                let export = &of.exports.known().unwrap()[KEY];
                (export.metadata.creation_timestamp.as_ref().unwrap().0, cluster.to_owned())
            };
            let oldest = valid.iter().min_by_key(|it| of(it)).unwrap();
            let service = &world.clusters[*oldest].services.known().unwrap()[KEY];
            let headless = service.spec.as_ref().unwrap().cluster_ip.as_deref() == Some("None");
            assert_eq!(import.spec.r#type == ImportType::Headless, headless, "{name}");
            assert_eq!(import.spec.ips.len(), usize::from(!headless), "{name}");
            // Who is away is behind it only if nobody else is.
            let others = imported.keys().filter(|source| live(source)).count();
            assert!(others == 0 || others == imported.len(), "{name}: {imported:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_a_plan_converges_and_an_incremental_one_is_that_from_nothing(
        events in proptest::collection::vec(event(), 1..40)
    ) {
        let (mut world, mut planner) = (World::new(), ServicePlanner::default());
        let mut away: BTreeMap<String, ClusterServices> = BTreeMap::new();
        let mut foreign = BTreeSet::new();
        for event in events.into_iter().chain([Event::Converge]) {
            let cluster = match &event {
                Event::Export { cluster, .. } | Event::Unexport(cluster)
                | Event::Endpoints { cluster, .. } | Event::ServiceGone(cluster)
                | Event::Namespace { cluster, .. } | Event::Foreign { cluster, .. }
                | Event::Away { cluster, .. } | Event::Member { cluster, .. } => CLUSTERS[*cluster],
                Event::Converge => "",
            };
            // Nothing is seen of a cluster that is away.
            let is_away = away.contains_key(cluster);
            match event {
                Event::Export { seconds, port, headless, .. } if !is_away => {
                    let of = world.cluster(cluster);
                    put(&mut of.services, service(port, headless));
                    put(&mut of.exports, export(seconds));
                }
                Event::Unexport(_) if !is_away => drop(known(&mut world.cluster(cluster).exports).remove(KEY)),
                Event::Endpoints { slice: n, ends, carried, .. } if !is_away => {
                    let addresses: Vec<String> = ends.iter().map(|end| match carried {
                        true => carried_address(cluster, *end),
                        false => format!("192.168.0.{end}"),
                    }).collect();
                    put(&mut world.cluster(cluster).slices, slice(&format!("web-{n}"), &addresses, true));
                }
                Event::ServiceGone(_) if !is_away => drop(known(&mut world.cluster(cluster).services).remove(KEY)),
                Event::Namespace { is, .. } if !is_away => {
                    let namespaces = known(&mut world.cluster(cluster).namespaces);
                    namespaces.remove("shop");
                    if is {
                        namespaces.insert("shop".into(), Arc::new(namespace("shop")));
                    }
                }
                Event::Foreign { is, .. } if !is_away => {
                    let imports = known(&mut world.cluster(cluster).imports);
                    if is {
                        let import: ServiceImport = serde_json::from_value(json!({
                            "metadata": {"name": "web", "namespace": "shop"},
                            "spec": {"type": "ClusterSetIP", "ports": []},
                        })).unwrap();
                        imports.insert(KEY.into(), Arc::new(import));
                        foreign.insert(cluster.to_owned());
                    } else if foreign.remove(cluster) {
                        imports.remove(KEY);
                    }
                }
                Event::Away { is: true, .. } if !is_away => {
                    let none = ClusterServices {
                        namespaces: Observed::Away(String::new()), services: Observed::Away(String::new()),
                        slices: Observed::Away(String::new()), exports: Observed::Away(String::new()),
                        imports: Observed::Away(String::new()),
                    };
                    away.insert(cluster.to_owned(), world.clusters.insert(cluster.to_owned(), none).unwrap());
                }
                Event::Away { is: false, .. } => {
                    if let Some(back) = away.remove(cluster) {
                        world.clusters.insert(cluster.to_owned(), back);
                    }
                }
                Event::Member { is, .. } => {
                    world.context.members.remove(cluster);
                    if is {
                        world.context.members.insert(cluster.to_owned(), vec![network(cluster)]);
                    }
                }
                Event::Converge => {
                    world.converge(&mut planner);
                    check(&world, &foreign);
                }
                _ => {}
            }
        }
        // All are back.
        for (name, cluster) in away {
            world.clusters.insert(name, cluster);
        }
        world.converge(&mut planner);
        check(&world, &foreign);
    }

    #[test]
    fn a_list_of_many_is_the_same_in_any_order(ends in proptest::collection::vec(1u8..200, 0..30)) {
        let (mut one, mut two) = (World::new(), World::new());
        let mut back: Vec<u8> = ends.clone();
        back.reverse();
        one.exports("a", 1, 80, false, &ends);
        two.exports("a", 1, 80, false, &back);
        let plan = |world: &World| world.plan(&mut ServicePlanner::default());
        prop_assert_eq!(plan(&one), plan(&two));
    }
}

#[test]
fn definitions_name_what_is_watched() {
    let name = |definition: serde_json::Value| definition["metadata"]["name"].clone();
    assert_eq!(name(service_export_crd()), "serviceexports.multicluster.x-k8s.io");
    assert_eq!(name(service_import_crd()), "serviceimports.multicluster.x-k8s.io");
}

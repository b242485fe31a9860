//! A node and a leader on a real API server, with the permissions that the chart gives for
//! `net` and no others.

#![allow(clippy::unwrap_used, reason = "tests")]

mod stage;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use net::addresses::{AssignError, AssignRequest};
use net::claims::{BlockClaims, NodeIdentity};
use net::namespace_pools::NamespacePools;
use net::pool_controller::{self, Reclaim};
use net::{Addresses, Attachment, AttachmentKey, NamespaceId};
use objects::kinds::{
    AddressBlock, AddressBlockSpec, AddressPool, AddressPoolSpec, AddressPoolStatus, Subnet,
};
use objects::{Election, Error, Expected, Id, Kind, Objects, Timing, Within};
use serde_json::json;
use stage::{soon, store_of, until};
use stallproof::ledger::LedgerConfig;
use stallproof::{Ledger, Snapshot, Tasks};
use tempfile::TempDir;
use testkit::{Fault, KubeServer, Proxy};

fn pool(name: &str, ipv4: &str, ipv6: &str) -> AddressPool {
    let subnet = Subnet { ipv4: Some(ipv4.to_owned()), ipv6: Some(ipv6.to_owned()) };
    AddressPool::new(name, AddressPoolSpec::new(2, vec![subnet]))
}

struct Agent {
    addresses: Addresses,
    pools: NamespacePools,
    claims: BlockClaims,
    tasks: Tasks,
}

impl Agent {
    fn start(objects: &Objects, node: &str, dir: &Path) -> Self {
        let tasks = Tasks::new(node.to_owned());
        let dir = dir.join(node);
        let addresses = Addresses::open(&dir, &Ledger::default(), &tasks).unwrap();
        let here: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap()];
        let identity = NodeIdentity { name: node.to_owned(), addresses: Snapshot::new(here) };
        let ledger = Ledger::new(LedgerConfig::default());
        let claims =
            BlockClaims::start(objects.clone(), identity, addresses.clone(), &ledger, &tasks);
        let pools = NamespacePools::watch(objects.clone(), &dir, &tasks);
        Self { addresses, pools, claims, tasks }
    }

    async fn add(&self, container: &str, pool: &str) -> Result<Attachment, AssignError> {
        let wanted = AssignRequest {
            fixed: Default::default(),
            key: key(container),
            network: "k8s".to_owned(),
            pod: None,
            pool: pool.to_owned(),
            namespace: NamespaceId { device: 4, inode: 1 },
            netns: format!("/run/netns/{container}"),
            host_interface: format!("fl{container}"),
        };
        Ok((**self.addresses.assign(wanted, soon()).await?.attachment()).clone())
    }

    fn free(&self, pool: &str) -> u32 {
        let view = self.addresses.view();
        view.blocks().filter(|(_, block)| block.pool() == pool).map(|(_, block)| block.free()).sum()
    }

    async fn stop(self) {
        assert!(self.tasks.shutdown(Duration::from_secs(30)).await.is_empty());
    }
}

fn key(container: &str) -> AttachmentKey {
    AttachmentKey { container: container.to_owned(), ifname: "eth0".to_owned() }
}

async fn blocks_of(objects: &Objects, node: &str) -> usize {
    let all = objects.list::<AddressBlock>(&Within::default(), soon()).await.unwrap();
    all.items.iter().filter(|block| block.spec.node == node).count()
}

async fn forbidden<K: Kind>(objects: &Objects, id: &Id) {
    let refused = objects.get::<K>(id, soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Forbidden { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_lives_through_what_a_kube_cluster_does_with_no_more_than_its_permissions() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let admin = Objects::kubernetes(client.clone(), "test");
    stage::deploy(&client, "").await;
    for name in ["node-a", "node-b"] {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
    }
    for (name, annotations) in
        [("plain", json!({})), ("special", json!({"fairlead.dev/pool": "special"}))]
    {
        let metadata = json!({"metadata": {"name": name, "annotations": annotations}});
        let namespace = serde_json::from_value(metadata).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    admin.create(&pool("default", "10.64.0.0/24", "fd64::/120"), soon()).await.unwrap();
    admin.create(&pool("special", "10.65.0.0/24", "fd65::/120"), soon()).await.unwrap();

    // The permissions are those that are used; what is not, is not allowed.
    let proxy = Proxy::start(server.address());
    let agent_store = store_of(&server.through(&proxy), "fairlead-agent").await;
    let controller_store = store_of(server.access(), "fairlead-controller").await;
    for objects in [&agent_store, &controller_store] {
        forbidden::<Secret>(objects, &Id::namespaced("fairlead", "any")).await;
        forbidden::<ConfigMap>(objects, &Id::namespaced("fairlead", "any")).await;
        let refused = objects.create(&pool("third", "10.66.0.0/24", "fd66::/120"), soon()).await;
        assert!(matches!(refused, Err(Error::Forbidden { .. })), "{refused:?}");
    }
    // Where other nodes are is told by their Nodes; no agent writes one.
    let nodes = agent_store.list::<Node>(&Within::default(), soon()).await.unwrap();
    assert_eq!(nodes.items.len(), 2);
    let refused = agent_store.delete::<Node>(&Id::cluster("node-b"), Expected::Any, soon()).await;
    assert!(matches!(refused, Err(Error::Forbidden { .. })), "{refused:?}");
    let mut lying = pool("default", "10.64.0.0/24", "fd64::/120");
    lying.status = Some(AddressPoolStatus { used: 7, ..AddressPoolStatus::default() });
    let refused = agent_store.apply_status(&lying, Expected::Any, soon()).await;
    assert!(matches!(refused, Err(Error::Forbidden { .. })), "{refused:?}");

    // Pods of both namespaces get addresses of their pools, in both families.
    let dir = TempDir::new().unwrap();
    let agent = Agent::start(&agent_store, "node-a", dir.path());
    assert_eq!(agent.pools.pool_of("plain", soon()).await.unwrap(), "default");
    let special = agent.pools.pool_of("special", soon()).await.unwrap();
    let unknown = agent.pools.pool_of("nowhere", soon()).await.unwrap_err();
    assert_eq!(unknown.why, "the API server has not listed it");
    let first = agent.add("first", "default").await.unwrap();
    assert!(first.ipv4.unwrap().to_string().starts_with("10.64.0."));
    assert!(first.ipv6.unwrap().to_string().starts_with("fd64::"));
    let other = agent.add("other", &special).await.unwrap();
    assert!(other.ipv4.unwrap().to_string().starts_with("10.65.0."));
    until("the choice of namespaces is written down", async || {
        dir.path().join("node-a/namespaces.json").exists()
    })
    .await;

    // The server is a black hole: what is here is assigned from; then it is said what is missing.
    until("a spare is there", async || agent.free("default") >= 2).await;
    proxy.inject(Fault::BlackHole);
    let mut held = Vec::new();
    for n in 0..agent.free("default") {
        held.push(agent.add(&format!("dark-{n}"), "default").await.unwrap().key);
    }
    let refused = agent.add("too-many", "default").await.unwrap_err();
    assert!(matches!(refused, AssignError::NoBlockYet { .. }), "{refused}");

    // So it is after a restart, and namespaces are known.
    let before = agent.addresses.view().attachments().count();
    agent.stop().await;
    let agent = Agent::start(&agent_store, "node-a", dir.path());
    assert_eq!(agent.addresses.view().attachments().count(), before);
    assert_eq!(agent.pools.pool_of("special", soon()).await.unwrap(), "special");
    let unknown = agent.pools.pool_of("nowhere", soon()).await.unwrap_err();
    assert_eq!(unknown.why, "the API server has not answered since the start");
    agent.addresses.release(&held[0], soon()).await.unwrap().unwrap();
    agent.add("again", "default").await.unwrap();

    proxy.heal();
    until("claims go on", async || agent.add("too-many", "default").await.is_ok()).await;
    assert!(agent.claims.troubles().is_empty());

    // The leader says how the pools are, and takes back what a vanished node had, and no other's.
    let leading = Tasks::new("leading");
    let lease = Id::namespaced("fairlead", "fairlead-controller");
    let timing = Timing::of(Duration::from_secs(6));
    let election = Election::new(controller_store, lease, "test", timing);
    let led = leading.clone();
    leading.spawn("election", async move {
        let grace = Reclaim::WithoutNode(Duration::from_secs(3));
        election.run(&led, |leader| pool_controller::start(&leader, grace)).await;
    });
    let gone = Agent::start(&agent_store, "node-b", dir.path());
    gone.add("doomed", "default").await.unwrap();
    let status_of = async || {
        let id = Id::cluster("default");
        admin.get::<AddressPool>(&id, soon()).await.unwrap().unwrap().status.unwrap_or_default()
    };
    until("the pool says who has blocks of it", async || {
        let status = status_of().await;
        status.nodes == 2 && status.used >= 4 && status.used + status.free == 256
    })
    .await;
    let status = status_of().await;
    assert_eq!(status.blocks, 64);
    assert_eq!(status.per_node.iter().map(|node| node.blocks).sum::<u64>(), status.claimed);
    let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready").unwrap();
    assert_eq!((&*ready.status, &*ready.reason), ("True", "Open"));

    // What every agent is sent of a block that is claimed: the whole object, as the server has it.
    let blocks = Api::<AddressBlock>::all(client.clone()).list(&Default::default()).await.unwrap();
    let sizes = blocks.items.iter().map(|block| serde_json::to_vec(block).unwrap().len());
    let largest = sizes.max().unwrap();
    println!("a block: {largest} bytes at most");
    assert!(largest < 4 << 10, "{largest}");

    gone.stop().await;
    let nodes = Api::<Node>::all(client.clone());
    nodes.delete("node-b", &DeleteParams::default()).await.unwrap();
    until("its blocks are taken back", async || blocks_of(&admin, "node-b").await == 0).await;
    assert!(blocks_of(&admin, "node-a").await >= 2);
    until("the pool says so", async || status_of().await.nodes == 1).await;

    agent.stop().await;
    assert!(leading.shutdown(Duration::from_secs(30)).await.is_empty());
}

/// A pool as somebody writes it who does not ask us.
async fn write_pool(client: &kube::Client, name: &str, subnets: serde_json::Value) -> bool {
    let resource = ApiResource::erase::<AddressPool>(&());
    let mut object = DynamicObject::new(name, &resource);
    object.data = json!({"spec": {"blockSizeBits": 2, "subnets": subnets}});
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 422 => false,
        Err(error) => panic!("{error}"),
    }
}

/// A block of a node that has no `Node`.
async fn make_block(admin: &Objects, index: u32, node: &str, missing_since: Option<Timestamp>) {
    let spec = AddressBlockSpec {
        pool: "fine".to_owned(),
        index,
        node: node.to_owned(),
        ipv4: Some(format!("10.64.0.{}/30", index * 4).parse().unwrap()),
        ipv6: None,
        node_addresses: Vec::new(),
    };
    let mut block = AddressBlock::new(&AddressBlock::name_of("fine", index), spec);
    let note = missing_since.map(|since| (MISSING_SINCE.to_owned(), since.to_string()));
    block.metadata.annotations = note.map(|note| [note].into());
    admin.create(&block, soon()).await.unwrap();
}

const MISSING_SINCE: &str = "fairlead.dev/node-missing-since";

#[tokio::test(flavor = "multi_thread")]
async fn a_kube_leader_says_what_is_wrong_with_pools_and_counts_on_where_another_stopped() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let admin = Objects::kubernetes(client.clone(), "test");
    stage::deploy(&client, "").await;
    let nodes = Api::<Node>::all(client.clone());
    for name in ["here", "back"] {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }

    // No server takes what is no network. What else is wrong with a pool only one with CEL sees; where
    // it is taken all the same, the pool says so.
    assert!(!write_pool(&client, "hello", json!([{"ipv4": "hello"}])).await);
    assert!(!write_pool(&client, "large", json!([{"ipv6": "fd00::/64"}])).await);
    assert!(write_pool(&client, "fine", json!([{"ipv4": "10.64.0.0/24"}])).await);
    let mut wrong = vec![("overlap", "overlaps 10.64.0.0/24 of pool fine")];
    assert!(write_pool(&client, "overlap", json!([{"ipv4": "10.64.0.0/28"}])).await);
    for (name, subnets, sentence) in [
        ("host-bits", json!([{"ipv4": "10.65.0.1/24"}]), "has bits set after its prefix"),
        (
            "mixed",
            json!([{"ipv4": "10.66.0.0/24"}, {"ipv6": "fd66::/120"}]),
            "pods of one pool are alike",
        ),
        (
            "unequal",
            json!([{"ipv4": "10.67.0.0/24", "ipv6": "fd67::/112"}]),
            "must have as many addresses as each other",
        ),
        ("reserved", json!([{"ipv4": "169.254.0.0/16"}]), "which is for one link, not for pods"),
    ] {
        if write_pool(&client, name, subnets).await {
            wrong.push((name, sentence));
        }
    }
    let long_ago = Timestamp::now() - jiff::SignedDuration::from_hours(1);
    make_block(&admin, 0, "here", None).await;
    make_block(&admin, 1, "gone-long-ago", Some(long_ago)).await;
    make_block(&admin, 2, "gone-just-now", None).await;
    make_block(&admin, 3, "back", Some(long_ago)).await;

    let leading = Tasks::new("leading");
    let lease = Id::namespaced("fairlead", "fairlead-controller");
    let store = store_of(server.access(), "fairlead-controller").await;
    let election = Election::new(store, lease, "test", Timing::of(Duration::from_secs(6)));
    let led = leading.clone();
    leading.spawn("election", async move {
        let grace = Reclaim::WithoutNode(pool_controller::GRACE);
        election.run(&led, |leader| pool_controller::start(&leader, grace)).await;
    });
    let block = async |index| {
        let id = Id::cluster(AddressBlock::name_of("fine", index));
        admin.get::<AddressBlock>(&id, soon()).await.unwrap()
    };
    let noted = |block: &AddressBlock| {
        block.metadata.annotations.as_ref().and_then(|all| all.get(MISSING_SINCE)).cloned()
    };
    until("a block whose grace is over is taken back", async || block(1).await.is_none()).await;
    until("a block whose grace begins has a note", async || {
        noted(&block(2).await.unwrap()).is_some()
    })
    .await;
    until("the note goes when the node is back", async || {
        noted(&block(3).await.unwrap()).is_none()
    })
    .await;
    assert_eq!(noted(&block(0).await.unwrap()), None);

    for (name, sentence) in wrong {
        let message = async || {
            let pool = admin.get::<AddressPool>(&Id::cluster(name), soon()).await.unwrap().unwrap();
            let conditions = pool.status.unwrap_or_default().conditions;
            let ready = conditions.into_iter().find(|c| c.r#type == "Ready" && c.status == "False");
            ready.map(|ready| ready.message).unwrap_or_default()
        };
        until(&format!("{name} says what is wrong"), async || message().await.contains(sentence))
            .await;
    }
    assert!(leading.shutdown(Duration::from_secs(30)).await.is_empty());
}

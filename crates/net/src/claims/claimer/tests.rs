use std::net::IpAddr;
use std::path::Path;

use futures::future::join_all;
use ipnet::IpNet;
use objects::kinds::{AddressPool, AddressPoolSpec, Subnet};
use stallproof::ledger::LedgerConfig;
use stallproof::{Ledger, Snapshot, Tasks};
use tempfile::TempDir;

use super::*;
use crate::addresses::tests::wanted;
use crate::addresses::{AssignError, Assignment};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

struct Node {
    addresses: Addresses,
    claims: BlockClaims,
    here: Snapshot<Vec<IpAddr>>,
    tasks: Tasks,
}

impl Node {
    fn start(objects: &Objects, name: &str, dir: &Path) -> Self {
        let tasks = Tasks::new(name.to_owned());
        let addresses = Addresses::open(&dir.join(name), &Ledger::default(), &tasks).unwrap();
        let here = Snapshot::new(vec!["192.0.2.1".parse().unwrap()]);
        let identity = NodeIdentity { name: name.to_owned(), addresses: here.clone() };
        let ledger = Ledger::new(LedgerConfig::default());
        let claims =
            BlockClaims::start(objects.clone(), identity, addresses.clone(), &ledger, &tasks);
        Self { addresses, claims, here, tasks }
    }

    async fn assign(&self, container: &str, pool: &str) -> Result<IpAddr, AssignError> {
        match self.addresses.assign(wanted(container, pool), soon()).await? {
            Assignment::New(attachment) => Ok(attachment.ipv4.unwrap().into()),
            Assignment::Existing(attachment) => panic!("{} had it already", attachment.key),
        }
    }

    async fn stop(self) {
        assert!(self.tasks.shutdown(Duration::from_secs(30)).await.is_empty());
    }
}

async fn make_pool(objects: &Objects, name: &str, bits: u8, ipv4: &[&str]) {
    let subnet = |net: &&str| Subnet { ipv4: Some((*net).to_owned()), ipv6: None };
    let subnets = ipv4.iter().map(subnet).collect();
    let pool = AddressPool::new(name, AddressPoolSpec::new(bits, subnets));
    objects.apply(&pool, Expected::Any, soon()).await.unwrap();
}

async fn stored(objects: &Objects) -> BTreeMap<String, AddressBlock> {
    let all = objects.list::<AddressBlock>(&objects::Within::default(), soon()).await.unwrap();
    all.items.into_iter().map(|block| (name_of(&block), block)).collect()
}

/// Until it holds: by looking again, since there are many who may make it so.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looked = soon().bound(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(looked.await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_a_pool_and_no_address_is_given_twice() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make_pool(&objects, "default", 2, &["10.0.0.0/24"]).await;
    let nodes = ["a", "b", "c"].map(|name| Node::start(&objects, name, dir.path()));
    let bursts = nodes.iter().flat_map(|node| (0..50).map(move |n| (node, n.to_string())));
    let given = join_all(bursts.map(|(node, n)| async move { node.assign(&n, "default").await }));
    let given: Result<BTreeSet<_>, _> = given.await.into_iter().collect();
    assert_eq!(given.unwrap().len(), 150);

    for node in &nodes {
        let view = node.addresses.view();
        let free: u32 = view.blocks().map(|(_, block)| block.free()).sum();
        until("half a block is kept free", async || {
            let view = node.addresses.view();
            view.blocks().map(|(_, block)| block.free()).sum::<u32>() >= 2
        })
        .await;
        assert!(free <= 10, "{free} free addresses are more than a burst needs");
    }
    let names = |node: &Node| {
        node.addresses.view().blocks().map(|(name, _)| name.to_owned()).collect::<BTreeSet<_>>()
    };
    let held: BTreeSet<_> = nodes.iter().flat_map(names).collect();
    until("every block of the store is held", async || {
        stored(&objects).await.into_keys().collect::<BTreeSet<_>>()
            == nodes.iter().flat_map(names).collect()
    })
    .await;
    assert!(held.len() >= 38);
    // Routes see them all, with the way there.
    until("everybody knows all", async || {
        let all = nodes[0].claims.blocks().load();
        all.len() == stored(&objects).await.len()
            && all.values().all(|block| block.spec.node_addresses.len() == 1)
    })
    .await;
    nodes[0].here.publish(vec!["192.0.2.9".parse().unwrap()]);
    until("a node that moved says so", async || {
        let moved = |block: &AddressBlock| block.spec.node_addresses[0].to_string() == "192.0.2.9";
        stored(&objects).await.values().all(|block| (block.spec.node == "a") == moved(block))
    })
    .await;
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_says_so_and_goes_on_when_it_grows() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make_pool(&objects, "default", 1, &["10.0.0.0/30"]).await;
    // It overlaps an older one: nothing is claimed from it.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    make_pool(&objects, "younger", 1, &["10.0.0.0/24"]).await;
    let node = Node::start(&objects, "a", dir.path());
    for n in 0..4 {
        node.assign(&n.to_string(), "default").await.unwrap();
    }
    let full = node.assign("x", "default").await.unwrap_err();
    assert_eq!(
        full.to_string(),
        "address pool default has no address for this node: all its 2 blocks are claimed; append a \
         subnet to AddressPool/default"
    );
    let overlaps = node.assign("x", "younger").await.unwrap_err();
    assert_eq!(
        overlaps.to_string(),
        "address pool younger has no address for this node: nothing is claimed from it: its \
         10.0.0.0/24 overlaps 10.0.0.0/30 of pool default, which is older"
    );
    let none = node.assign("x", "none").await.unwrap_err();
    assert!(matches!(none, AssignError::NoPool { .. }), "{none}");

    make_pool(&objects, "default", 1, &["10.0.0.0/30", "10.9.0.0/30"]).await;
    until("the new subnet is used", async || node.assign("x", "default").await.is_ok()).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_its_blocks_and_what_happened_to_them_meanwhile() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make_pool(&objects, "default", 1, &["10.0.0.0/24"]).await;
    let node = Node::start(&objects, "a", dir.path());
    for n in 0..5 {
        node.assign(&n.to_string(), "default").await.unwrap();
    }
    let used: Vec<_> = node
        .addresses
        .view()
        .blocks()
        .filter(|(_, block)| block.used() == 2)
        .map(|(name, _)| name.to_owned())
        .collect();
    node.stop().await;
    let [contested, deleted] = &used[..] else { panic!("{used:?}") };

    // One is another's now, one is gone, and one was claimed without the journal hearing of it.
    let mut blocks = stored(&objects).await;
    for name in [contested, deleted] {
        objects.delete::<AddressBlock>(&Id::cluster(name), Expected::Any, soon()).await.unwrap();
    }
    let mut theirs = blocks.remove(contested).unwrap();
    theirs.metadata = AddressBlock::new(contested, theirs.spec.clone()).metadata;
    theirs.spec.node = "b".to_owned();
    objects.create(&theirs, soon()).await.unwrap();
    let free = (0..).find(|n| {
        !blocks.contains_key(&format!("default-{n}")) && format!("default-{n}") != *contested
    });
    let free = free.unwrap();
    let mut unheard = theirs.spec.clone();
    unheard.node = "a".to_owned();
    unheard.index = free;
    unheard.ipv4 = Some(format!("10.0.0.{}/31", free * 2).parse().unwrap());
    let unheard = AddressBlock::new(&format!("default-{free}"), unheard);
    objects.create(&unheard, soon()).await.unwrap();

    let node = Node::start(&objects, "a", dir.path());
    until("the contested block is cordoned", async || {
        node.addresses.view().block(contested).is_some_and(|block| block.cordoned().is_some())
    })
    .await;
    until("the deleted block is claimed again", async || {
        stored(&objects).await.get(deleted).is_some_and(|block| block.spec.node == "a")
    })
    .await;
    until("the unheard block is adopted", async || {
        node.addresses.view().block(&name_of(&unheard)).is_some()
    })
    .await;
    until("trouble is said, here and on the node's blocks", async || {
        let here = node.claims.troubles();
        let said = here.iter().any(|t| t.contains(&format!("block {contested} is node b's")));
        let told = |block: &AddressBlock| block.status.as_ref()?.trouble.clone();
        said && stored(&objects).await.values().any(|block| told(block).is_some())
    })
    .await;
    // Its pods keep their addresses; nobody gets another of it.
    let attachments = node.addresses.view().attachments().count();
    assert_eq!(attachments, 5);
    for n in 10..20 {
        let address = node.assign(&n.to_string(), "default").await.unwrap();
        assert!(!IpNet::from(theirs.spec.ipv4.unwrap()).contains(&address));
    }
    // When they are gone it is forgotten, and all is well.
    let view = node.addresses.view();
    let here = |a: &&Arc<crate::Attachment>| theirs.spec.ipv4.unwrap().contains(&a.ipv4.unwrap());
    for attachment in view.attachments().filter(here) {
        node.addresses.release(&attachment.key, soon()).await.unwrap();
    }
    until("the contested block is forgotten", async || {
        node.addresses.view().block(contested).is_none() && node.claims.troubles().is_empty()
    })
    .await;
    assert_eq!(stored(&objects).await[contested].spec.node, "b");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_block_goes_back_after_a_while_and_another_node_can_have_it() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make_pool(&objects, "default", 1, &["10.0.0.0/29"]).await;
    let node = Node::start(&objects, "a", dir.path());
    for n in 0..3 {
        node.assign(&n.to_string(), "default").await.unwrap();
    }
    for n in 0..3 {
        let key = wanted(&n.to_string(), "default").key;
        node.addresses.release(&key, soon()).await.unwrap();
    }
    let Node { addresses, claims, here, tasks: ended } = node;
    ended.stop("the test goes on by hand");
    until("nothing runs any more", async || {
        ended.list().iter().all(|t| !t.name.contains("claims"))
    })
    .await;
    drop(addresses);
    assert!(ended.shutdown(Duration::from_secs(30)).await.is_empty());

    let tasks = Tasks::new("again");
    let addresses = Addresses::open(&dir.path().join("a"), &Ledger::default(), &tasks).unwrap();
    let identity = NodeIdentity { name: "a".to_owned(), addresses: here };
    let blocks = objects.watched(objects::Within::default(), &tasks);
    let claims = BlockClaims { blocks, ..claims };
    objects::watched::synced(&claims.blocks).await;
    let mut claimer =
        BlockClaimer::new(objects.clone(), identity, addresses.clone(), claims.clone());
    let before = stored(&objects).await.len();
    assert!(before >= 2, "{before}");
    claimer.round().await;
    assert_eq!(stored(&objects).await.len(), before, "not at once");
    let long_ago = Instant::now().checked_sub(IDLE).unwrap();
    claimer.empty.values_mut().for_each(|since| *since = long_ago);
    // Whether the store has heard of it or not, it is not ours any more: but for one, since half of a
    // block is to be free.
    claimer.round().await;
    assert_eq!(addresses.view().blocks().count(), 1);
    until("the store hears of it", async || {
        claimer.round().await;
        assert_eq!(addresses.view().blocks().count(), 1);
        stored(&objects).await.len() == 1
    })
    .await;
}

/// A claimer that is asked by hand.
async fn by_hand(objects: &Objects, dir: &Path, tasks: &Tasks) -> (BlockClaimer, Addresses) {
    let addresses = Addresses::open(dir, &Ledger::default(), tasks).unwrap();
    let claims = BlockClaims {
        blocks: objects.watched(objects::Within::default(), tasks),
        pools: Pools::watch(objects, tasks),
        troubles: Snapshot::default(),
        metrics: Default::default(),
    };
    objects::watched::synced(&claims.blocks).await;
    until("the pools are known", async || claims.pools.read(|pools| !pools.is_empty())).await;
    let here = Snapshot::new(vec!["192.0.2.1".parse().unwrap()]);
    let node = NodeIdentity { name: "a".to_owned(), addresses: here };
    (BlockClaimer::new(objects.clone(), node, addresses.clone(), claims), addresses)
}

#[tokio::test]
async fn a_late_delete_of_an_earlier_process_takes_no_block_that_is_used_again() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make_pool(&objects, "default", 2, &["10.0.0.0/30"]).await;
    // A process gives its block back, and dies before the store has heard of it.
    let first = Tasks::new("first");
    let (mut claimer, addresses) = by_hand(&objects, &dir.path().join("a"), &first).await;
    claimer.round().await;
    let block = stored(&objects).await.remove("default-0").unwrap();
    assert!(addresses.drop_if_empty("default-0", soon()).await.unwrap());
    drop((claimer, addresses));
    assert!(first.shutdown(Duration::from_secs(30)).await.is_empty());

    let (mut claimer, addresses) = by_hand(&objects, &dir.path().join("a"), &tasks).await;
    claimer.round().await;
    assert!(addresses.view().block("default-0").is_some(), "it is this node's");
    addresses.assign(wanted("pod", "default"), soon()).await.unwrap();
    let late = Expected::Version(version_of(&block));
    let late = objects.delete::<AddressBlock>(&Id::of(&block), late, soon()).await;
    assert!(matches!(late, Err(Error::Conflict { .. })), "{late:?}");
    assert!(stored(&objects).await.contains_key("default-0"));
}

#[tokio::test]
async fn a_pool_that_failed_and_is_then_exhausted_is_not_tried_without_pause() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make_pool(&objects, "default", 2, &["10.0.0.0/30"]).await;
    let (mut claimer, _) = by_hand(&objects, &dir.path().join("a"), &tasks).await;
    let pool: Arc<str> = "default".into();
    claimer.failed(&pool, "the store was away");
    claimer.failing.get_mut(&pool).unwrap().until = Instant::now();
    // Another node has the only block by now.
    let spec = AddressBlockSpec {
        pool: "default".to_owned(),
        index: 0,
        node: "b".to_owned(),
        ipv4: Some("10.0.0.0/30".parse().unwrap()),
        ipv6: None,
        node_addresses: vec![],
    };
    objects.create(&AddressBlock::new("default-0", spec), soon()).await.unwrap();
    until("the watch tells", async || !claimer.claims.blocks.load().is_empty()).await;
    let again = claimer.round().await;
    assert!(claimer.exhausted.contains(&pool) && claimer.failing.is_empty());
    assert_eq!(again, Some(UNDONE));
}

#[test]
fn the_nth_free_number_is_counted_without_the_taken_ones() {
    let taken = BTreeSet::from([0, 1, 4, 9]);
    let free: Vec<_> = (0..7).map(|n| nth_free(&taken, n)).collect();
    assert_eq!(free, [2, 3, 5, 6, 7, 8, 10]);
}

mod on_kube;

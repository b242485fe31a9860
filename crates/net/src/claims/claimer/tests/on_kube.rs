//! A thousand nodes that begin together, on a real API server.

use std::collections::BTreeSet;

use testkit::KubeServer;

use super::*;

const NODES: usize = 1_000;
/// So many ask at once: as many as a small machine answers in time.
const AT_ONCE: usize = 250;

/// The worst case: none of them knows what the others have claimed, and four fifths of the pool are taken
/// in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_nodes_that_begin_together_each_have_a_block_and_few_races_are_lost() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let mut config = server.access().config().await;
    config.default_retry = false;
    objects::install(server.client().await, Deadline::after(Duration::from_secs(60)))
        .await
        .unwrap();
    let objects = Objects::kubernetes(kube::Client::try_from(config).unwrap(), "fairlead");
    make_pool(&objects, "default", 1, &["10.0.0.0/21", "10.0.8.0/23"]).await;
    let pool = objects.get::<AddressPool>(&Id::cluster("default"), soon()).await.unwrap().unwrap();
    let pools = Snapshot::new(Pools::from_iter([pool.clone()]));

    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let metrics = crate::claims::ClaimMetrics::default();
    let turns = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    let began = std::time::Instant::now();
    let nodes = (0..NODES).map(|n| {
        let name = format!("node-{n}");
        let addresses =
            Addresses::open(&dir.path().join(&name), &Ledger::default(), &tasks).unwrap();
        let claims = BlockClaims {
            blocks: Snapshot::new(Blocks::from_iter([])),
            pools: pools.clone(),
            troubles: Snapshot::default(),
            metrics: metrics.clone(),
        };
        let here = Snapshot::new(vec!["192.0.2.1".parse().unwrap()]);
        let identity = NodeIdentity { name, addresses: here };
        let mut claimer = BlockClaimer::new(objects.clone(), identity, addresses.clone(), claims);
        let turns = Arc::clone(&turns);
        tasks.spawn("node", async move {
            let _turn = turns.acquire_owned().await.unwrap();
            // As `run` does, without the watches: those would be a million events on this machine.
            while addresses.view().blocks().next().is_none() {
                claimer.round().await;
                let retry = claimer.failing.values().map(|failing| failing.until).min();
                tokio::time::sleep_until(retry.unwrap_or_else(Instant::now)).await;
            }
            let assigned = addresses.assign(wanted("pod", "default"), soon()).await.unwrap();
            let Assignment::New(attachment) = assigned else { panic!() };
            attachment.ipv4.unwrap()
        })
    });
    let nodes: Vec<_> = nodes.collect();
    let given: BTreeSet<_> = join_all(nodes).await.into_iter().map(Result::unwrap).collect();
    let took = began.elapsed();
    assert_eq!(given.len(), NODES, "an address was given twice");

    let blocks = stored(&objects).await;
    let holders: BTreeSet<_> = blocks.values().map(|block| &block.spec.node).collect();
    assert_eq!((blocks.len(), holders.len()), (NODES, NODES));
    let (lost, failed) = (metrics.lost.get(), metrics.failed.get());
    let rate = lost as f64 / NODES as f64;
    eprintln!(
        "{NODES} nodes, {} blocks in the pool: {lost} races lost ({rate:.2} a node), {failed} claims \
         refused or late and tried again, {took:.1?}",
        crate::pool::Pool::of(&pool).unwrap().blocks()
    );
    // By chance alone it is 0.95 a node: 1280/1000 × ln(1280/280) − 1, with everyone blind.
    assert!(rate < 1.5, "{rate} races lost a node");
    assert!(tasks.shutdown(Duration::from_secs(60)).await.is_empty());
}

//! On a real API server.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::{join_all, select_all};
use testkit::{Fault, KubeServer, Proxy, requires};

use super::*;
use crate::kinds::Cluster;
use crate::kubernetes::tests::{cluster, soon};
use ::kube::ResourceExt;

/// Short, since time is real here; long enough for a busy machine to renew.
const REAL: Duration = Duration::from_secs(5);

/// Every write that was acknowledged: the term, and what version came of it.
type Written = Snapshot<Vec<(i32, u64)>>;

/// Waits until a write of so many terms was acknowledged.
async fn terms_that_wrote(all: &Written, terms: usize) {
    let wrote = |writes: &Vec<(i32, u64)>| {
        writes.iter().map(|(term, _)| term).collect::<BTreeSet<_>>().len() >= terms
    };
    until(all, wrote).await;
}

/// A candidate whose work is to write to one object without a pause, and only through its guard.
fn write_on(name: &str, objects: Objects, lease: &Id, tasks: &Tasks, all: &Written) -> Witness {
    let election = Election::new(objects, lease.clone(), name, Timing::of(REAL));
    let leadership = election.leadership();
    let last = Arc::new(Mutex::new(None));
    let (own, all, kept) = (tasks.clone(), all.clone(), Arc::clone(&last));
    tasks.spawn("election", async move {
        let lead = |leader: Leader| {
            kept.lock().replace(leader.clone());
            let all = all.clone();
            let Leader { objects, fence, tasks, .. } = leader;
            let stop = tasks.stopping();
            tasks.spawn("writing", async move {
                let mut count = 0;
                while !stop.is_stopped() {
                    count += 1;
                    let mut object = cluster("guarded");
                    object.spec.context = Some(format!("{count} of {}", fence.token()));
                    if let Ok(made) = objects.apply(&object, Expected::Any, soon()).await {
                        let version = made.resource_version().unwrap().parse().unwrap();
                        all.update(|writes| {
                            writes.push((fence.token().term, version));
                            true
                        });
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        };
        election.run(&own, lead).await;
    });
    Witness { leadership, last }
}

struct Witness {
    leadership: Snapshot<Leadership>,
    /// Of its last term.
    last: Arc<Mutex<Option<Leader>>>,
}

/// In the order in which the store took them, terms only go up.
fn terms_follow_each_other(all: &Written) -> BTreeMap<i32, usize> {
    let mut writes = Vec::clone(&all.load());
    writes.sort_by_key(|(_, version)| *version);
    assert!(writes.is_sorted_by_key(|(term, _)| *term), "{writes:?}");
    let mut terms = BTreeMap::new();
    for (term, _) in writes {
        *terms.entry(term).or_default() += 1;
    }
    terms
}

async fn leader_among(witnesses: &[Witness]) -> usize {
    let leads = witnesses.iter().map(|one| Box::pin(until(&one.leadership, is_us)));
    select_all(leads).await.1
}

#[tokio::test]
async fn one_leads_whoever_dies() {
    requires!(kube);
    let server = KubeServer::start().await;
    crate::install(server.client().await, soon()).await.unwrap();
    let lease = Id::namespaced(server.namespace().await, "leader");
    let (all, mut groups, mut witnesses) = (Written::default(), Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let tasks = Tasks::new(name);
        let objects = Objects::kubernetes(server.client().await, "test");
        witnesses.push(write_on(name, objects, &lease, &tasks, &all));
        groups.push(tasks);
    }

    // Killed without a chance to give anything back.
    let first = leader_among(&witnesses).await;
    terms_that_wrote(&all, 1).await;
    let killed = Instant::now();
    groups[first].shutdown(Duration::ZERO).await;
    groups.remove(first);
    witnesses.remove(first);
    let second = leader_among(&witnesses).await;
    println!("killed: the next leads after {:?}", killed.elapsed());

    // Stopped in order.
    terms_that_wrote(&all, 2).await;
    let stopped = Instant::now();
    assert!(groups[second].shutdown(6 * REAL).await.is_empty());
    groups.remove(second);
    witnesses.remove(second);
    leader_among(&witnesses).await;
    println!("stopped: the next leads after {:?}", stopped.elapsed());
    terms_that_wrote(&all, 3).await;
    join_all(groups.iter().map(|tasks| tasks.shutdown(REAL))).await;

    let terms = terms_follow_each_other(&all);
    println!("writes by term: {terms:?}");
    assert_eq!(terms.len(), 3);
}

#[tokio::test]
async fn a_leader_in_a_black_hole_stops_before_the_next_begins() {
    requires!(kube);
    let server = KubeServer::start().await;
    let straight = Objects::kubernetes(server.client().await, "test");
    crate::install(server.client().await, soon()).await.unwrap();
    let proxy = Proxy::start(server.address());
    let through = Objects::kubernetes(server.through(&proxy).client().await, "test");
    let lease = Id::namespaced(server.namespace().await, "leader");
    let (all, a, b) = (Written::default(), Tasks::new("a"), Tasks::new("b"));
    let cut_off = write_on("a", through.clone(), &lease, &a, &all);
    until(&cut_off.leadership, is_us).await;
    let next = write_on("b", straight.clone(), &lease, &b, &all);
    until(&next.leadership, |who| *who == Leadership::Other("a".to_owned())).await;

    terms_that_wrote(&all, 1).await;
    proxy.inject(Fault::BlackHole);
    until(&next.leadership, is_us).await;
    let old = cut_off.last.lock().clone().unwrap();
    assert!(!old.fence.is_valid(), "it knew before");
    assert!(old.tasks.stopping().is_stopped());
    terms_that_wrote(&all, 2).await;

    // Its requests come through at last, and it tries new ones.
    proxy.heal();
    let refused = old.objects.apply(&cluster("guarded"), Expected::Any, soon()).await.unwrap_err();
    assert!(matches!(&refused, Error::Forbidden { .. }), "{refused:?}");
    until(&cut_off.leadership, |who| *who == Leadership::Other("b".to_owned())).await;

    // One that does not know that its term is over meets the token of the next.
    let current = old.fence.token().clone();
    let deluded = straight.guarded(&Fence::endless(current, Clock::new(boot_time)));
    let id = Id::cluster("guarded");
    let refused = [
        deluded.apply(&cluster("guarded"), Expected::Any, soon()).await.map(|_| ()),
        deluded.apply_status(&cluster("guarded"), Expected::Any, soon()).await.map(|_| ()),
        deluded.delete::<Cluster>(&id, Expected::Any, soon()).await.map(|_| ()),
    ];
    for refused in refused {
        assert!(matches!(&refused, Err(Error::Forbidden { .. })), "{refused:?}");
    }

    // A status carries the token too, and leaves the rest alone.
    let plain = straight.create(&cluster("plain"), soon()).await.unwrap();
    let new = next.last.lock().clone().unwrap();
    let told = new.objects.apply_status(&cluster("plain"), Expected::Any, soon()).await.unwrap();
    assert_eq!(told.annotations()[fence::ANNOTATION], new.fence.token().to_string());
    assert_eq!(told.spec, plain.spec);
    let refused = deluded.apply_status(&cluster("plain"), Expected::Any, soon()).await;
    assert!(matches!(&refused, Err(Error::Forbidden { .. })), "{refused:?}");

    join_all([a.shutdown(REAL), b.shutdown(REAL)]).await;
    let terms = terms_follow_each_other(&all);
    println!("writes by term: {terms:?}");
    assert!(terms.len() >= 2);
}

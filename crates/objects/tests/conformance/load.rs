//! Writers and a watcher that go on while the engine under them goes away and comes back: nothing
//! that was acknowledged is lost, and the watcher ends up with what there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use objects::kinds::Cluster;
use objects::{Event, Expected, Id, Objects, Within};
use stallproof::{Deadline, Tasks};
use tokio::sync::watch;

use crate::{cluster, context, labelled, name, soon};

const WRITERS: usize = 8;

pub(crate) struct Load {
    tasks: Tasks,
    /// The store as it is now.
    store: watch::Sender<Objects>,
    writers: Vec<stallproof::tasks::TaskHandle<BTreeMap<String, u64>>>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    /// What the watcher makes of what it is told.
    mirror: watch::Receiver<BTreeMap<String, u64>>,
}

impl Load {
    pub(crate) fn start(objects: Objects) -> Self {
        let tasks = Tasks::new("load");
        let store = watch::Sender::new(objects);
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let writer = |writer: usize| {
            let (store, stop) = (store.subscribe(), Arc::clone(&stop));
            let acknowledged = Arc::clone(&acknowledged);
            tasks.spawn(format!("writer {writer}"), write(writer, store, stop, acknowledged))
        };
        let writers = (0..WRITERS).map(writer).collect();
        let (told, mirror) = watch::channel(BTreeMap::new());
        tasks.spawn("watcher", mirror_of(store.subscribe(), told));
        Self { tasks, store, writers, stop, acknowledged, mirror }
    }

    /// From now on it is this one.
    pub(crate) fn reopened(&self, objects: Objects) {
        self.store.send_replace(objects);
    }

    /// Returns when so many writes more have been acknowledged.
    pub(crate) async fn goes_on(&self, writes: u64) {
        let enough = self.acknowledged.load(Ordering::Relaxed) + writes;
        let wait = async {
            while self.acknowledged.load(Ordering::Relaxed) < enough {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(soon().bound(wait).await.is_ok(), "the writers are stuck");
    }

    pub(crate) async fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = BTreeMap::new();
        for writer in self.writers {
            acknowledged.extend(writer.await.unwrap());
        }
        let objects = self.store.borrow().clone();
        let listing = objects.list::<Cluster>(&ours(), soon()).await.unwrap();
        let found: BTreeMap<_, _> = listing.items.iter().map(entry).collect();
        for (name, count) in &acknowledged {
            let there = found.get(name);
            assert!(there >= Some(count), "{name}: {count} was acknowledged, {there:?} is there");
        }
        let converged = self.mirror.wait_for(|mirror| *mirror == found);
        let converged = soon().bound(converged).await;
        assert!(converged.is_ok_and(|seen| seen.is_ok()), "the watcher has not seen everything");
        self.tasks.shutdown(Duration::from_secs(5)).await;
    }
}

fn ours() -> Within {
    Within { labels: Some("check=load".parse().unwrap()), ..Within::default() }
}

fn entry(cluster: &Cluster) -> (String, u64) {
    (name(cluster), context(cluster).parse().unwrap())
}

/// Counts up in objects of its own; answers what was acknowledged last of each.
async fn write(
    writer: usize,
    store: watch::Receiver<Objects>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
) -> BTreeMap<String, u64> {
    let mut last = BTreeMap::new();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let name = format!("load-{writer}-{}", count % 10);
        let wanted = labelled(cluster(&name, &count.to_string()), "check", "load");
        let objects = store.borrow().clone();
        let deadline = Deadline::after(Duration::from_secs(2));
        match objects.apply(&wanted, Expected::Any, deadline).await {
            Ok(_) => {
                acknowledged.fetch_add(1, Ordering::Relaxed);
                last.insert(name, count);
            }
            // A moment for the engine, which is away.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        if count % 37 == 0 {
            let deadline = Deadline::after(Duration::from_secs(2));
            let id = Id::cluster(format!("load-{writer}-{}", count % 10));
            // Whether it is gone is not known after an error, so nothing is expected of it.
            let _ = objects.delete::<Cluster>(&id, Expected::Any, deadline).await;
            last.remove(&id.name);
        }
    }
    last
}

async fn mirror_of(
    mut store: watch::Receiver<Objects>,
    told: watch::Sender<BTreeMap<String, u64>>,
) {
    loop {
        let mut watch = store.borrow_and_update().watch::<Cluster>(ours());
        while let Some(event) = watch.next().await {
            told.send_modify(|mirror| match &event {
                Event::Restarted(all) => *mirror = all.iter().map(entry).collect(),
                Event::Applied(one) => mirror.extend([entry(one)]),
                Event::Deleted(one) => {
                    mirror.remove(&name(one));
                }
            });
        }
        // It was closed; the next one comes.
        if store.changed().await.is_err() {
            return;
        }
    }
}

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use objects::{Election, Timing};
use stallproof::Tasks;

use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

#[tokio::test]
async fn a_bundle_is_published_once_and_put_back_when_it_was_edited() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(data.path(), &tasks).unwrap();
    let id = Id::namespaced("fairlead", "fairlead-ca");
    write(&objects, &id, "one", soon()).await.unwrap();
    let first = objects.get::<ConfigMap>(&id, soon()).await.unwrap().unwrap();
    assert_eq!(published(&first), Some("one"));
    write(&objects, &id, "one", soon()).await.unwrap();
    let same = objects.get::<ConfigMap>(&id, soon()).await.unwrap().unwrap();
    assert_eq!(same.resource_version(), first.resource_version());

    let data = BTreeMap::from([(KEY.to_owned(), "another".to_owned())]);
    let edited = ConfigMap { data: Some(data), ..first };
    objects.apply(&edited, Expected::Any, soon()).await.unwrap();
    write(&objects, &id, "one", soon()).await.unwrap();
    let back = objects.get::<ConfigMap>(&id, soon()).await.unwrap().unwrap();
    assert_eq!(published(&back), Some("one"));
    tasks.stop("done");
}

#[tokio::test]
async fn the_leader_publishes_what_comes_and_what_comes_after_it() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(data.path(), &tasks).unwrap();
    let (id, kept) = (Id::namespaced("fairlead", "ca"), Snapshot::new(None::<&'static str>));
    let lease = Id::namespaced("fairlead", "lease");
    let election = Election::new(objects.clone(), lease, "test", Timing::default());
    let (all, published_id, source) = (tasks.clone(), id.clone(), kept.clone());
    tasks.spawn("election", async move {
        let lead = |leader: Leader| {
            let bundle = |text: &&'static str| (*text).to_owned();
            publish(&leader, published_id.clone(), &source, bundle);
        };
        election.run(&all, lead).await;
    });
    for bundle in ["one", "two"] {
        kept.publish(Some(bundle));
        let mut watch = objects.watch::<ConfigMap>(objects::Within::default());
        let seen = async {
            loop {
                let now = objects.get::<ConfigMap>(&id, soon()).await.unwrap();
                if now.as_ref().and_then(published) == Some(bundle) {
                    return;
                }
                let _ = watch.next().await;
            }
        };
        soon().bound(seen).await.unwrap();
    }
    tasks.stop("done");
}

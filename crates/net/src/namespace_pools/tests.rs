use serde_json::json;
use tempfile::TempDir;

use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

async fn make(objects: &Objects, name: &str, pool: Option<&str>) {
    let annotations = pool.map(|pool| json!({ pool::ANNOTATION: pool }));
    let metadata = json!({ "metadata": { "name": name, "annotations": annotations } });
    let namespace: Namespace = serde_json::from_value(metadata).unwrap();
    objects.apply(&namespace, objects::Expected::Any, soon()).await.unwrap();
}

#[tokio::test]
async fn without_namespaces_every_pod_is_of_the_default_pool() {
    let passed = Deadline::after(Duration::ZERO);
    assert_eq!(NamespacePools::none().pool_of("any", passed).await.unwrap(), "default");
}

#[tokio::test]
async fn a_namespace_is_waited_for_and_its_choice_may_change() {
    let (dir, tasks) = (TempDir::new().unwrap(), Tasks::new("test"));
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    make(&objects, "plain", None).await;
    make(&objects, "empty", Some("")).await;
    let pools = NamespacePools::watch(objects.clone(), dir.path(), &tasks);
    assert_eq!(pools.pool_of("plain", soon()).await.unwrap(), "default");
    assert_eq!(pools.pool_of("empty", soon()).await.unwrap(), "default");

    let late = tasks.spawn("late", {
        let pools = pools.clone();
        async move { pools.pool_of("late", soon()).await }
    });
    make(&objects, "late", Some("special")).await;
    assert_eq!(late.await.unwrap().unwrap(), "special");

    make(&objects, "late", Some("other")).await;
    let mut changes = pools.known.as_ref().unwrap().subscribe();
    while pools.pool_of("late", soon()).await.unwrap() != "other" {
        soon().bound(changes.changed()).await.unwrap();
    }
}

#[tokio::test]
async fn an_unknown_namespace_is_a_refusal_and_what_was_known_is_kept_over_a_restart() {
    let dir = TempDir::new().unwrap();
    let choices: Choices =
        [("special".to_owned(), Some("pool-1".to_owned())), ("plain".to_owned(), None)]
            .into_iter()
            .collect();
    write(&dir.path().join("namespaces.json"), &choices).unwrap();
    // A store that never answers.
    let later = Instant::now() + Duration::from_millis(50);
    let choices = read(&dir.path().join("namespaces.json"));
    let known = KnownNamespaces { choices, believed_from: later };
    let pools = NamespacePools { known: Some(Snapshot::new(known)) };
    assert_eq!(pools.pool_of("special", soon()).await.unwrap(), "pool-1");
    assert!(Instant::now() >= later);
    assert_eq!(pools.pool_of("plain", soon()).await.unwrap(), "default");
    let passed = Deadline::after(Duration::ZERO);
    let unknown = pools.pool_of("other", passed).await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "namespace other is not known on this node yet, nor the pool it chose: the API server has \
         not answered since the start"
    );
    fs::write(dir.path().join("namespaces.json"), b"{half").unwrap();
    assert!(read(&dir.path().join("namespaces.json")).is_empty());
}

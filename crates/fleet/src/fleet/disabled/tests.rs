use std::time::Duration;

use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn list(text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some("fairlead".to_owned()),
            labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), text.to_owned())].into()),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_not_written_over_and_changes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(data.path(), &tasks).unwrap();
    let names = watch(&objects, "fairlead", &tasks);
    let until = async |wanted: &[&str]| {
        let wanted = Some(wanted.iter().map(|name| (*name).to_owned()).collect());
        let mut changes = names.subscribe();
        let told = async {
            while *names.load() != wanted {
                changes.changed().await;
            }
        };
        assert!(soon().bound(told).await.is_ok(), "{:?}, not {wanted:?}", *names.load());
    };
    let set = async |name, disabled| set(&objects, "fairlead", name, disabled, soon()).await;

    set("a", true).await.unwrap();
    set("b", true).await.unwrap();
    until(&["a", "b"]).await;

    // Somebody edits it and forgets a quote.
    let broken = list(r#"["a", "b]"#);
    objects.apply(&broken, Expected::Any, soon()).await.unwrap();
    for disabled in [true, false] {
        let refused = set("c", disabled).await.unwrap_err().to_string();
        assert!(refused.contains("ConfigMap fairlead/fairlead-disabled-clusters"), "{refused}");
        assert!(refused.contains("repair it, or delete the ConfigMap"), "{refused}");
    }
    let id = Id::namespaced("fairlead", NAME);
    let kept = objects.get::<ConfigMap>(&id, soon()).await.unwrap().unwrap();
    assert_eq!(kept.data, broken.data);

    // Repaired, it is heard of; everything between was told before that and has changed nothing.
    let mut changes = names.subscribe();
    objects.apply(&list(r#"["b"]"#), Expected::Any, soon()).await.unwrap();
    let next = soon().bound(changes.changed()).await.unwrap();
    assert_eq!(*next, Some(BTreeSet::from(["b".to_owned()])));
    set("b", false).await.unwrap();
    until(&[]).await;
    tasks.shutdown(Duration::from_secs(5)).await;
}

use kube::api::ObjectMeta;
use objects::Expected;

use super::*;

/// When to look again, of one who has to wait.
fn waits(read: Result<String, ClientError>) -> Duration {
    match read {
        Err(ClientError::ComeBack { after, why }) => {
            assert!(why.contains("no controller leads"), "{why}");
            after
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_waits_for_the_authority_and_takes_what_is_published_then() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    let authorities = Authorities::File(file.clone());
    assert_eq!(waits(authorities.read().await), NOT_YET);
    // As the kubelet mounts one that is not there yet, and may leave one that is gone.
    std::fs::write(&file, "").unwrap();
    waits(authorities.read().await);
    std::fs::write(&file, "one").unwrap();
    assert_eq!(authorities.read().await.unwrap(), "one");

    let tasks = Tasks::new("test");
    let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
    let id = Id::namespaced("fairlead", pki::agents::PUBLISHED);
    let authorities = Authorities::Store(objects.clone(), id.clone());
    waits(authorities.read().await);
    for bundle in ["one", "two"] {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(id.name.clone()),
                namespace: id.namespace.clone(),
                ..ObjectMeta::default()
            },
            data: Some([(pki::published::KEY.to_owned(), bundle.to_owned())].into()),
            ..ConfigMap::default()
        };
        objects.apply(&map, Expected::Any, Deadline::after(ASK)).await.unwrap();
        assert_eq!(authorities.read().await.unwrap(), bundle);
    }
    tasks.stop("done");
}

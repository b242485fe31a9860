use kube::api::ObjectMeta;
use objects::Expected;

use super::*;

#[test]
fn a_name_is_told_once_and_again_after_a_while() {
    let resolved = |number: u8| {
        let name: Arc<str> = "api.example.com".into();
        ((name, IpAddr::from([192, 0, 2, number])), Instant::now())
    };
    let (mut told, now) = (Told::default(), Instant::now());
    let mut all: Map<_, _> = [resolved(1), resolved(2)].into_iter().collect();
    let first = told.new_names(all.clone(), now);
    assert_eq!(first.len(), 2);
    // What was not counted is told again.
    assert_eq!(told.new_names(all.clone(), now).len(), 2);
    told.names(first.iter(), now);
    assert!(told.new_names(all.clone(), now).is_empty());
    all.extend([resolved(3)]);
    let next = told.new_names(all.clone(), now);
    let addresses: Vec<_> = next.iter().map(|it| it.address).collect();
    assert_eq!(addresses, [IpAddr::from([192, 0, 2, 3])]);
    assert_eq!(told.new_names(all.clone(), now + TELL_NAMES).len(), 3);
    // No report has more than a controller takes.
    for number in 0..=u16::try_from(NAMES).unwrap() {
        let [high, low] = number.to_be_bytes();
        all.insert(("x.example.com".into(), IpAddr::from([198, 51, high, low])), now);
    }
    assert_eq!(told.new_names(all, now).len(), NAMES);
}

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

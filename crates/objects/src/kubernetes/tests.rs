use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use stallproof::backoff::Curve;
use testkit::{Fault, KubeServer, Proxy, requires};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::kinds::{Cluster, ClusterSpec, ClusterStatus, KubeconfigSecret};
use crate::store::{Kind, Watch};

/// Enough for a busy machine: no test waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

pub(crate) fn soon() -> Deadline {
    Deadline::after(LONG)
}

pub(crate) fn cluster(name: &str) -> Cluster {
    let secret =
        KubeconfigSecret { namespace: "n".to_owned(), name: "s".to_owned(), key: "k".to_owned() };
    let spec = ClusterSpec {
        kubeconfig_secret: secret,
        context: None,
        enabled: true,
        impersonation: None,
    };
    Cluster::new(name, spec)
}

fn version(object: &impl ResourceExt) -> Version {
    Version(object.resource_version().unwrap())
}

fn at(object: &impl ResourceExt) -> Expected {
    Expected::Version(version(object))
}

#[tokio::test]
async fn the_operations_do_what_they_say() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    let objects = Objects::kubernetes(client.clone(), "test");

    without_its_definition(&objects).await;
    crate::install(client.clone(), soon()).await.unwrap();
    create_read_and_delete(&objects).await;
    expect_a_version(&objects).await;
    drop_what_is_no_longer_sent(&objects, &client).await;
    keep_the_status_apart(&objects).await;
    hold_with_finalizers(&objects).await;
    list_in_pages(&objects).await;
    name_what_is_wrong(&objects, &server).await;
    keep_kubernetes_own_kinds(&objects, &server.namespace().await).await;
}

async fn without_its_definition(objects: &Objects) {
    let id = Id::cluster("one");
    let errors = [
        objects.get::<Cluster>(&id, soon()).await.unwrap_err(),
        objects.list::<Cluster>(&Within::default(), soon()).await.unwrap_err(),
        objects.create(&cluster("one"), soon()).await.unwrap_err(),
        objects.apply(&cluster("one"), Expected::Any, soon()).await.unwrap_err(),
        objects.apply_status(&cluster("one"), Expected::Any, soon()).await.unwrap_err(),
        objects.delete::<Cluster>(&id, Expected::Any, soon()).await.unwrap_err(),
    ];
    for error in errors {
        let Error::Unavailable { source, .. } = error else { panic!("{error:?}") };
        assert!(source.to_string().contains("fairlead crds | kubectl apply"), "{source}");
    }
}

async fn create_read_and_delete(objects: &Objects) {
    let id = Id::cluster("one");
    assert_eq!(objects.get::<Cluster>(&id, soon()).await.unwrap(), None);
    let made = objects.create(&cluster("one"), soon()).await.unwrap();
    assert!(made.metadata.managed_fields.is_none());
    let again = objects.create(&cluster("one"), soon()).await.unwrap_err();
    assert!(matches!(again, Error::Exists { .. }), "{again:?}");
    assert_eq!(objects.get::<Cluster>(&id, soon()).await.unwrap(), Some(made));

    let gone = objects.delete::<Cluster>(&id, Expected::Any, soon()).await.unwrap();
    assert_eq!(gone, Deletion::Gone);
    let again = objects.delete::<Cluster>(&id, Expected::Any, soon()).await.unwrap_err();
    assert!(matches!(again, Error::NotFound { .. }), "{again:?}");
}

async fn expect_a_version(objects: &Objects) {
    let made = objects.apply(&cluster("two"), Expected::Any, soon()).await.unwrap();
    let mut changed = made.clone();
    changed.spec.enabled = false;
    let changed = objects.apply(&changed, at(&made), soon()).await.unwrap();
    assert_ne!(version(&changed), version(&made));
    assert!(!changed.spec.enabled);

    // Also by who kept nothing but the version.
    for mut stale in [made.clone(), cluster("two")] {
        stale.spec.context = Some("stale".to_owned());
        let late = objects.apply(&stale, at(&made), soon()).await.unwrap_err();
        assert!(matches!(late, Error::Conflict { .. }), "{late:?}");
        let late = objects.apply_status(&stale, at(&made), soon()).await.unwrap_err();
        assert!(matches!(late, Error::Conflict { .. }), "{late:?}");
    }
    let id = Id::of(&made);
    let late = objects.delete::<Cluster>(&id, at(&made), soon()).await.unwrap_err();
    assert!(matches!(late, Error::Conflict { .. }), "{late:?}");
    assert_eq!(objects.get::<Cluster>(&id, soon()).await.unwrap(), Some(changed.clone()));

    // Nothing at all is not what was expected either, and is not made.
    objects.delete::<Cluster>(&id, at(&changed), soon()).await.unwrap();
    for gone in [changed.clone(), cluster("two")] {
        let late = objects.apply(&gone, at(&changed), soon()).await.unwrap_err();
        assert!(matches!(late, Error::Conflict { .. }), "{late:?}");
    }
    assert_eq!(objects.get::<Cluster>(&id, soon()).await.unwrap(), None);
    // Who expects nothing may come with an object of an earlier life.
    objects.apply(&changed, Expected::Any, soon()).await.unwrap();
}

async fn drop_what_is_no_longer_sent(objects: &Objects, client: &kube::Client) {
    let mut sent = cluster("three");
    sent.labels_mut().insert("ours".to_owned(), "1".to_owned());
    sent.annotations_mut().insert("ours".to_owned(), "1".to_owned());
    sent.finalizers_mut().push("test.fairlead.dev/hold".to_owned());
    sent.spec.context = Some("c".to_owned());
    let made = objects.create(&sent, soon()).await.unwrap();
    let foreign = Patch::Merge(json!({ "metadata": { "labels": { "theirs": "1" } } }));
    let api = Api::<Cluster>::all(client.clone());
    let labelled = api.patch("three", &PatchParams::default(), &foreign).await.unwrap();

    let plain = cluster("three");
    let applied = objects.apply(&plain, at(&labelled), soon()).await.unwrap();
    assert_eq!(applied.uid(), made.uid());
    assert_eq!(applied.labels().keys().collect::<Vec<_>>(), ["theirs"]);
    assert!(applied.annotations().is_empty() && applied.finalizers().is_empty());
    assert_eq!(applied.spec.context, None);
    assert_eq!(objects.get::<Cluster>(&Id::of(&made), soon()).await.unwrap(), Some(applied));

    // The same again, from apply to apply.
    objects.apply(&sent, Expected::Any, soon()).await.unwrap();
    let applied = objects.apply(&plain, Expected::Any, soon()).await.unwrap();
    assert_eq!(applied.labels().keys().collect::<Vec<_>>(), ["theirs"]);
    assert!(applied.annotations().is_empty() && applied.finalizers().is_empty());
}

async fn keep_the_status_apart(objects: &Objects) {
    let mut with_status = cluster("four");
    let status = ClusterStatus { state: "Ready".to_owned(), ..ClusterStatus::default() };
    with_status.status = Some(status.clone());
    let absent = objects.apply_status(&with_status, Expected::Any, soon()).await.unwrap_err();
    assert!(matches!(absent, Error::NotFound { .. }), "{absent:?}");

    let made = objects.apply(&with_status, Expected::Any, soon()).await.unwrap();
    assert_eq!(made.status, None);
    with_status.spec.enabled = false;
    let told = objects.apply_status(&with_status, at(&made), soon()).await.unwrap();
    assert_eq!(told.status, Some(status.clone()));
    assert!(told.spec.enabled, "the rest is left alone");

    let mut changed = cluster("four");
    changed.spec.context = Some("c".to_owned());
    let changed = objects.apply(&changed, Expected::Any, soon()).await.unwrap();
    assert_eq!(changed.status, Some(status), "the status is left alone");
    let plain = objects.apply(&cluster("four"), Expected::Any, soon()).await.unwrap();
    assert_eq!(plain.spec.context, None, "a status in between takes no field out of our hands");
    let empty = objects.apply_status(&cluster("four"), Expected::Any, soon()).await.unwrap();
    assert_eq!(empty.status, None);
}

async fn hold_with_finalizers(objects: &Objects) {
    let hold = "test.fairlead.dev/hold".to_owned();
    let mut held = cluster("five");
    held.finalizers_mut().push(hold.clone());
    let mut held = objects.create(&held, soon()).await.unwrap();
    let id = Id::of(&held);
    for _ in 0..2 {
        let waiting = objects.delete::<Cluster>(&id, Expected::Any, soon()).await.unwrap();
        assert_eq!(waiting, Deletion::Waiting(vec![hold.clone()]));
    }
    held = objects.get::<Cluster>(&id, soon()).await.unwrap().unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    held.finalizers_mut().clear();
    objects.apply(&held, at(&held), soon()).await.unwrap();
    assert_eq!(objects.get::<Cluster>(&id, soon()).await.unwrap(), None);
}

async fn list_in_pages(objects: &Objects) {
    let many = 2 * PAGE as usize + 7;
    let made = futures::stream::iter(0..many).map(|n| async move {
        let mut one = cluster(&format!("many-{n}"));
        one.labels_mut().insert("many".to_owned(), (n % 2).to_string());
        objects.create(&one, soon()).await.unwrap();
    });
    made.buffer_unordered(16).collect::<()>().await;
    let within =
        |labels: &str| Within { labels: Some(labels.parse().unwrap()), ..Within::default() };
    let all = objects.list::<Cluster>(&within("many"), soon()).await.unwrap();
    assert_eq!(all.items.len(), many);
    let odd = objects.list::<Cluster>(&within("many in (1)"), soon()).await.unwrap();
    assert_eq!(odd.items.len(), many / 2);
    // The version of a listing is one to watch from.
    let mut watch = objects.watch_after::<Cluster>(within("many"), odd.version);
    objects.delete::<Cluster>(&Id::cluster("many-0"), Expected::Any, soon()).await.unwrap();
    assert!(matches!(next(&mut watch).await, Event::Deleted(gone) if gone.name_any() == "many-0"));
}

async fn name_what_is_wrong(objects: &Objects, server: &KubeServer) {
    let mut nobody = server.access().config().await;
    nobody.auth_info = kube::config::AuthInfo::default();
    let nobody = Objects::kubernetes(kube::Client::try_from(nobody).unwrap(), "test");
    let refused = nobody.get::<Cluster>(&Id::cluster("one"), soon()).await.unwrap_err();
    assert!(matches!(refused, Error::Forbidden { .. }), "{refused:?}");

    let late = objects.create(&cluster("late"), Deadline::after(Duration::ZERO)).await;
    assert!(matches!(late, Err(Error::TooLate { .. })), "{late:?}");
}

async fn keep_kubernetes_own_kinds(objects: &Objects, namespace: &str) {
    let secret = |namespace: &str| {
        let metadata = ObjectMeta {
            name: Some("s".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        };
        Secret { metadata, ..Secret::default() }
    };
    let made = objects.create(&secret(namespace), soon()).await.unwrap();
    let within = Within { namespace: Some(namespace.to_owned()), ..Within::default() };
    let all = objects.list::<Secret>(&within, soon()).await.unwrap().items;
    assert_eq!(all, std::slice::from_ref(&made));
    let gone = objects.delete::<Secret>(&Id::of(&made), at(&made), soon()).await.unwrap();
    assert_eq!(gone, Deletion::Gone);

    let nowhere = objects.create(&secret("nowhere"), soon()).await.unwrap_err();
    let Error::Invalid { problems, .. } = nowhere else { panic!("{nowhere:?}") };
    assert_eq!(problems.0[0].0, "metadata.namespace");
    let lease = Id::namespaced(namespace, "l");
    assert_eq!(objects.get::<Lease>(&lease, soon()).await.unwrap(), None);
}

async fn next<K: Kind>(watch: &mut Watch<K>) -> Event<K> {
    timeout(LONG, watch.next()).await.expect("an event").expect("a watch has no end")
}

/// Sessions so short that a test sees many.
fn hasty() -> WatchTiming {
    WatchTiming {
        first: Duration::from_secs(2),
        session: Duration::from_secs(4),
        quiet: Duration::from_secs(2),
        grace: Duration::from_secs(1),
        open: Duration::from_secs(1),
        page: Duration::from_secs(10),
        look: Duration::from_secs(30),
        retry: Curve { first: Duration::from_millis(50), most: Duration::from_millis(500) },
    }
}

#[tokio::test]
async fn faults_hold_up_a_watch_and_break_nothing() {
    requires!(kube);
    let mut server = KubeServer::start().await;
    let proxy = Proxy::start(server.address());
    let straight = Objects::kubernetes(server.client().await, "test");
    crate::install(server.client().await, soon()).await.unwrap();
    let client = server.through(&proxy).client().await;
    let through = Objects::on(Kubernetes::new(client.clone(), "test", hasty()));
    straight.create(&cluster("old"), soon()).await.unwrap();

    let mut watch = through.watch::<Cluster>(Within::default());
    let Event::Restarted(all) = next(&mut watch).await else { panic!() };
    assert_eq!(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["old"]);
    // Each change is told once, without a restart.
    let change = async |name: &str| straight.create(&cluster(name), soon()).await.unwrap();

    let made = change("well").await;
    assert_eq!(next(&mut watch).await, Event::Applied(made));

    let made = change("sessions-end").await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(next(&mut watch).await, Event::Applied(made));

    proxy.cut();
    let made = change("cut").await;
    assert_eq!(next(&mut watch).await, Event::Applied(made));

    proxy.inject(Fault::BlackHole);
    let made = change("black-hole").await;
    assert!(timeout(Duration::from_secs(5), watch.next()).await.is_err());
    let started = Instant::now();
    let late = through
        .get::<Cluster>(&Id::cluster("old"), Deadline::after(Duration::from_millis(300)))
        .await;
    assert!(matches!(late, Err(Error::TooLate { .. })), "{late:?}");
    assert!(started.elapsed() < LONG / 2);
    proxy.heal();
    assert_eq!(next(&mut watch).await, Event::Applied(made));

    proxy.inject(Fault::Refuse);
    proxy.cut();
    let made = change("refused").await;
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err());
    proxy.heal();
    assert_eq!(next(&mut watch).await, Event::Applied(made));

    let before = straight.list::<Cluster>(&Within::default(), soon()).await.unwrap().version;
    server.stop();
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err());
    server.restart().await;
    let made = change("restart").await;
    // A new server has an empty history: it may not know the version seen last.
    match next(&mut watch).await {
        Event::Applied(object) => assert_eq!(object, made),
        Event::Restarted(all) => assert!(all.contains(&made)),
        deleted @ Event::Deleted(_) => panic!("{deleted:?}"),
    }
    let gone = straight.delete::<Cluster>(&Id::of(&made), Expected::Any, soon()).await.unwrap();
    assert_eq!(gone, Deletion::Gone);
    assert!(
        matches!(next(&mut watch).await, Event::Deleted(object) if object.name_any() == "restart")
    );

    // Versions too old, and versions that never were.
    for lost in [Version("1".to_owned()), Version("not a version".to_owned())] {
        let mut watch = through.watch_after::<Cluster>(Within::default(), lost);
        let Event::Restarted(all) = next(&mut watch).await else { panic!() };
        assert_eq!(all.len(), 6);
    }
    // One that is still known goes on from there.
    let mut watch = through.watch_after::<Cluster>(Within::default(), before);
    match next(&mut watch).await {
        Event::Applied(object) => assert_eq!(object.name_any(), "restart"),
        Event::Restarted(all) => assert_eq!(all.len(), 6),
        deleted @ Event::Deleted(_) => panic!("{deleted:?}"),
    }
}

//! The webhook and the leader's part in one process, before a real API server.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use admission::{
    Admission, CONFIGURATION, FailurePolicy, LOCAL_CLUSTER, Reach, Registration, Settings,
    WebhookUpkeep, lead,
};
use edge::webhook::{Webhook, start};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, PostParams};
use objects::{Election, Id, Objects, Timing};
use pki::{Certificates, Lifetimes};
use serde_json::json;
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Map, Readiness, Snapshot, Tasks};
use testkit::{KubeServer, requires};
use tokio::time::{Instant, sleep};

/// So short that authorities and certificates are replaced several times in a test; an API server
/// takes a second to hear of a new bundle.
const LIFETIMES: Lifetimes = Lifetimes {
    authority: Duration::from_secs(24),
    certificate: Duration::from_secs(9),
    overlap: Duration::from_secs(4),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kube_api_server_notices_nothing_of_rotated_certificates() {
    requires!(kube);
    let server = KubeServer::start().await;
    let client = server.client().await;
    objects::install(client.clone(), Deadline::after(Duration::from_secs(60))).await.unwrap();
    let home: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "fairlead"}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &home).await.unwrap();
    let namespace = server.namespace().await;

    let tasks = Tasks::new("test");
    let objects = Objects::kubernetes(client.clone(), "fairlead");
    let admission =
        Admission::start(&objects, Settings::new(true), vec![], &Readiness::default(), &tasks);
    let certificates = Certificates::follow(&objects, "fairlead", &tasks);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let charge = WebhookUpkeep {
        admission: admission.clone(),
        certificates: certificates.clone(),
        names: vec!["127.0.0.1".to_owned()],
        lifetimes: LIFETIMES,
        registration: Some(Registration {
            reach: Reach::Url { base, host: "127.0.0.1".to_owned() },
            failure_policy: FailurePolicy::Fail,
            timeout: Duration::from_secs(10),
            exempt: vec![],
        }),
        clusters: Snapshot::new(Map::unit(LOCAL_CLUSTER.to_owned(), objects.clone())),
    };
    let ledger = Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) });
    start(Webhook::new(admission.clone(), ledger), listener, certificates.clone(), &tasks).unwrap();
    let election = Election::new(
        objects,
        Id::namespaced("fairlead", "lease"),
        "test",
        Timing::of(Duration::from_secs(3)),
    );
    let (all, led) = (tasks.clone(), charge.clone());
    tasks.spawn("election", async move {
        election.run(&all, |leader| lead(&leader, &led)).await;
    });

    // From when it is registered.
    let configurations = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let patience = Instant::now() + Duration::from_secs(60);
    while configurations.get_opt(CONFIGURATION).await.unwrap().is_none() {
        assert!(Instant::now() < patience, "it is not registered");
        sleep(Duration::from_millis(100)).await;
    }
    let pods = Api::<Pod>::namespaced(client, &namespace);
    let (calls, seen) = (AtomicU64::new(0), Snapshot::new(Vec::<String>::new()));
    let until = Instant::now() + Duration::from_secs(40);
    let caller = async |who: usize| {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        while Instant::now() < until {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": format!("p{who}")},
                "spec": {"containers": [{"name": "c", "image": "acme/cart:1"}]},
            }))
            .unwrap();
            // Fail is the policy: a call that fails is a pod that is refused.
            pods.create(&params, &pod).await.unwrap_or_else(|error| panic!("{error}"));
            calls.fetch_add(1, Relaxed);
            let serving = certificates.serving().unwrap().certificate;
            seen.update(|seen| {
                let new = !seen.contains(&serving);
                if new {
                    seen.push(serving);
                }
                new
            });
            sleep(Duration::from_millis(20)).await;
        }
    };
    let bundle = certificates.bundle().unwrap();
    futures::join!(caller(0), caller(1), caller(2), caller(3));
    let (calls, certificates_seen) = (calls.into_inner(), seen.load().len());
    println!("{calls} calls, {certificates_seen} certificates, none failed");
    assert!(certificates_seen >= 4, "{certificates_seen}");
    assert_ne!(certificates.bundle().unwrap(), bundle, "the authority was replaced as well");
    let reviews = admission.audit().lines.values().map(|line| line.count).sum::<u64>();
    assert!(reviews >= calls, "each of {calls} was reviewed: {reviews}");
    tasks.stop("the test is over");
}

use objects::kinds::{AddressPoolSpec, Subnet};
use stallproof::ledger::LedgerConfig;
use stallproof::{Ledger, Readiness, Snapshot, Tasks};
use tempfile::TempDir;
use testkit::KubeServer;

use super::*;
use crate::addresses::AssignError;
use crate::addresses::tests::wanted;
use crate::claims::NodeIdentity;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looked = soon().bound(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(looked.await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_definitions_on_kube_it_is_said_why_and_it_goes_on_when_they_come() {
    testkit::requires!(kube);
    let server = KubeServer::start().await;
    let objects = Objects::kubernetes(server.client().await, "fairlead");
    let (dir, tasks, readiness) =
        (TempDir::new().unwrap(), Tasks::new("test"), Readiness::default());
    let addresses = Addresses::open(dir.path(), &Ledger::default(), &tasks).unwrap();
    let here = Snapshot::new(vec!["192.0.2.1".parse().unwrap()]);
    let node = NodeIdentity { name: "node".to_owned(), addresses: here };
    let ledger = Ledger::new(LedgerConfig::default());
    let claims = BlockClaims::start(objects.clone(), node, addresses.clone(), &ledger, &tasks);
    let ready = readiness.announce("address-pools");
    claims.check_definitions(objects.clone(), addresses.clone(), ready, &ledger, &tasks);

    let missing = "the definitions of AddressPool and AddressBlock are not there: run `fairlead \
                   install`, or `fairlead crds | kubectl apply -f -`";
    until("it is not ready, and says why", async || {
        readiness.report().components[0].reason.as_deref() == Some(missing)
    })
    .await;
    until("so do the errors of pods", async || addresses.view().pools_unavailable.is_some()).await;
    let began = tokio::time::Instant::now();
    let refused = addresses.assign(wanted("early", "default"), soon()).await.unwrap_err();
    assert!(matches!(&refused, AssignError::NoBlockYet { why, .. } if **why == *missing));
    assert!(began.elapsed() < crate::addresses::PATIENCE, "nobody waits for what cannot come");

    objects::install(server.client().await, soon()).await.unwrap();
    let subnet = Subnet { ipv4: Some("10.64.0.0/24".to_owned()), ipv6: None };
    let spec = AddressPoolSpec::new(2, vec![subnet]);
    objects.create(&AddressPool::new("default", spec), soon()).await.unwrap();
    until("pods get addresses", async || {
        addresses.assign(wanted("late", "default"), soon()).await.is_ok()
    })
    .await;
    until("it is ready", async || readiness.report().ready).await;
    assert!(tasks.shutdown(Duration::from_secs(30)).await.is_empty());
}

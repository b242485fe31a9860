//! A real API server with the permissions that the chart gives, and no others.

use std::time::Duration;

use install::chart::{Chart, Release, namespace};
use install::values::Values;
use objects::Objects;
use stallproof::Deadline;
use testkit::Access;

const COMPONENTS: [&str; 5] = ["net", "guard", "mesh", "console", "admission"];

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looked = Deadline::after(Duration::from_secs(90)).bound(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(looked.await.is_ok(), "{what}");
}

/// The store, as one of the service accounts.
pub(crate) async fn store_of(access: &Access, account: &str) -> Objects {
    let mut config = access.config_as(account).await;
    config.default_retry = false;
    Objects::kubernetes(kube::Client::try_from(config).unwrap(), "fairlead")
}

/// Installs our kinds, and the namespace, the accounts and their permissions, as the chart has them with `net`
/// alone and these values.
pub(crate) async fn deploy(client: &kube::Client, more: &str) {
    objects::install(client.clone(), Deadline::after(Duration::from_secs(60))).await.unwrap();
    let mut values = Values::default();
    for component in COMPONENTS {
        values.set(&format!("components.{component}={}", component == "net")).unwrap();
    }
    values.set("crds.install=false,fleet.localCluster=none").unwrap();
    if !more.is_empty() {
        values.set(more).unwrap();
    }
    let release = Release::default();
    let rendered = Chart::embedded().render(&release, &values).unwrap();
    testkit::deploy_permissions(client, &namespace(&release), &rendered.objects).await;
}

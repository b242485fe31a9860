use std::time::Duration;

use edge::exposition::Exposition;
use objects::kinds::{AddressPool, ClusterMesh};
use objects::{Election, Expected, Id, Objects, Timing};
use serde_json::json;
use stallproof::{Deadline, Tasks};

use super::*;

/// What is served, once it is as `wanted`.
async fn served(registry: &Registry, wanted: impl Fn(&str) -> bool) -> String {
    let until = Deadline::after(Duration::from_secs(30));
    loop {
        let text = Exposition::Prometheus.encode(registry).unwrap();
        if wanted(&text) {
            return text;
        }
        assert!(!until.has_passed(), "{text}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_leader_tells_of_pools_and_meshes_and_nothing_is_left_after_its_term() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(dir.path(), &tasks).unwrap();
    let soon = || Deadline::after(Duration::from_secs(10));
    let pool = json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressPool", "metadata": {"name": "default"},
        "spec": {"blockSizeBits": 5, "subnets": [{"ipv4": "10.64.0.0/16"}]},
        "status": {"blocks": 2048, "claimed": 3, "used": 40, "free": 65_496, "nodes": 2},
    });
    let pool: AddressPool = serde_json::from_value(pool).unwrap();
    objects.create(&pool, soon()).await.unwrap();
    objects.apply_status(&pool, Expected::Any, soon()).await.unwrap();
    let mesh = json!({
        "apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
        "metadata": {"name": "prod", "namespace": "fairlead"},
        "spec": {"clusters": [
            {"name": "eu", "local": true, "allowedNetworks": ["10.1.0.0/16"]},
            {"name": "us", "clusterRef": "us", "allowedNetworks": ["10.2.0.0/16"]},
        ]},
        "status": {"clusters": [
            {"name": "eu", "state": "Converged", "wantedPeers": 3, "registeredPeers": 3},
            {"name": "us", "state": "Unreachable", "wantedPeers": 4, "registeredPeers": 1},
        ]},
    });
    let mesh: ClusterMesh = serde_json::from_value(mesh).unwrap();
    objects.create(&mesh, soon()).await.unwrap();
    objects.apply_status(&mesh, Expected::Any, soon()).await.unwrap();

    let (leading, mut registry) = (Leading::default(), Registry::with_prefix("fairlead"));
    leading.register(&mut registry);
    let before = served(&registry, |_| true).await;
    assert!(before.contains("fairlead_leader 0") && !before.contains("pool="), "{before}");

    let reign = Tasks::new("reign");
    let lease = Id::namespaced("fairlead", "fairlead-controller");
    let election = Election::new(objects.clone(), lease, "me", Timing::default());
    let (of_reign, told) = (reign.clone(), leading.clone());
    let led = tasks.spawn("election", async move {
        election.run(&of_reign, |leader| told.lead(&leader)).await;
    });
    let text = served(&registry, |text| text.contains("pool=") && text.contains("mesh=")).await;
    for line in [
        "fairlead_leader 1",
        "fairlead_leader_terms_total 1",
        r#"fairlead_net_pool_addresses_used{pool="default"} 40"#,
        r#"fairlead_net_pool_addresses_free{pool="default"} 65496"#,
        r#"fairlead_net_pool_blocks{pool="default"} 2048"#,
        r#"fairlead_net_pool_blocks_claimed{pool="default"} 3"#,
        r#"fairlead_mesh_clusters{mesh="fairlead/prod",state="unreachable"} 1"#,
        r#"fairlead_mesh_clusters{mesh="fairlead/prod",state="waiting"} 0"#,
        r#"fairlead_mesh_peers_missing{mesh="fairlead/prod"} 3"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }

    // A pool that goes takes its figures with it.
    objects.delete::<AddressPool>(&Id::cluster("default"), Expected::Any, soon()).await.unwrap();
    served(&registry, |text| !text.contains("pool=")).await;

    reign.stop("the term is over");
    let after = served(&registry, |text| text.contains("fairlead_leader 0")).await;
    assert!(!after.contains("mesh="), "{after}");
    assert!(after.contains("fairlead_leader_terms_total 1"), "{after}");
    soon().bound(led).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_task_that_is_dropped_ends_the_term_all_the_same() {
    let leads = Gauge::default();
    let term = Term::begin(&leads);
    let stuck = tokio::spawn(async move {
        let _term = term;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    assert_eq!(leads.get(), 1);
    stuck.abort();
    let _ = stuck.await;
    assert_eq!(leads.get(), 0);
    // A term that begins before the one of before is gone.
    let (one, other) = (Term::begin(&leads), Term::begin(&leads));
    drop(one);
    assert_eq!(leads.get(), 1);
    drop(other);
}

use std::time::Duration;

use kube::ResourceExt;
use objects::kinds::{ClusterMeshSpec, ClusterMeshStatus, JoinedCluster};
use objects::{Deletion, Error, Expected, Id, Objects};
use serde_json::json;
use stallproof::{Deadline, Tasks};

use super::{ForgetError, Meshes};
use crate::controller::FORGET;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn spec(clusters: &[&str]) -> ClusterMeshSpec {
    let cluster = |(i, name): (usize, &&str)| json!({"name": name, "clusterRef": name, "allowedNetworks": [format!("10.{i}.0.0/16")]});
    let clusters: Vec<_> = clusters.iter().enumerate().map(cluster).collect();
    serde_json::from_value(json!({"clusters": clusters})).unwrap()
}

#[tokio::test]
async fn a_cluster_is_forgotten_only_when_it_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("test");
    let objects = Objects::embedded(dir.path(), &tasks).unwrap();
    let meshes = Meshes::new(objects.clone());
    let id = Id::namespaced("x", "m");
    let missing = meshes.forget(&id, "c", soon()).await;
    assert!(matches!(missing, Err(ForgetError::Store(Error::NotFound { .. }))), "{missing:?}");

    meshes.put(&id, spec(&["a", "b", "c"]), soon()).await.unwrap();
    let mut mesh = meshes.put(&id, spec(&["a", "b"]), soon()).await.unwrap();
    assert_eq!(mesh.spec.clusters.len(), 2);
    let in_it = meshes.forget(&id, "a", soon()).await.unwrap_err().to_string();
    assert!(in_it.contains("is in the mesh"), "{in_it}");
    let nobody = meshes.forget(&id, "c", soon()).await.unwrap_err().to_string();
    assert_eq!(nobody, "no cluster is waited for");

    let leaving = Some("it does not answer".to_owned());
    let gone = JoinedCluster { name: "c".to_owned(), leaving, ..JoinedCluster::default() };
    mesh.status = Some(ClusterMeshStatus { joined: vec![gone], ..ClusterMeshStatus::default() });
    objects.apply_status(&mesh, Expected::Any, soon()).await.unwrap();
    let other = meshes.forget(&id, "z", soon()).await.unwrap_err().to_string();
    assert_eq!(other, "z is not waited for; these are: c");
    for _ in 0..2 {
        meshes.forget(&id, "c", soon()).await.unwrap();
        let mesh = meshes.get(&id, soon()).await.unwrap();
        assert_eq!(mesh.annotations()[FORGET], "c");
    }
    assert_eq!(meshes.list(soon()).await.unwrap().len(), 1);
    assert_eq!(meshes.delete(&id, soon()).await.unwrap(), Deletion::Gone);
}

use super::{Cluster, ClusterSpec, ClusterStatus, Impersonation, KubeconfigSecret};
use crate::Kind;

fn spec() -> ClusterSpec {
    let kubeconfig_secret = KubeconfigSecret {
        namespace: "fairlead".to_owned(),
        name: "prod.kubeconfig".to_owned(),
        key: "kubeconfig".to_owned(),
    };
    let context = Some("arn:aws:eks:eu-west-1:1234:cluster/prod".to_owned());
    ClusterSpec { kubeconfig_secret, context, enabled: true, impersonation: None }
}

#[test]
fn a_cluster_names_its_secret() {
    assert_eq!(Cluster::new("prod", spec()).check(), Ok(()));
    let mut bad = Cluster::new(&"p".repeat(64), spec());
    bad.spec.kubeconfig_secret = KubeconfigSecret {
        namespace: "a.b".to_owned(),
        name: String::new(),
        key: "a/b".to_owned(),
    };
    bad.spec.context = Some(String::new());
    bad.status = Some(ClusterStatus { why: Some("x".repeat(4097)), ..ClusterStatus::default() });
    let status = bad.check_status().unwrap_err();
    assert_eq!(status.to_string(), "status.why: has more than 4096 characters");
    let problems = bad.check().unwrap_err();
    let fields: Vec<_> = problems.0.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "spec.kubeconfigSecret.namespace",
            "spec.kubeconfigSecret.name",
            "spec.kubeconfigSecret.key",
            "spec.context",
        ]
    );
}

#[test]
fn nobody_is_given_a_name_of_the_cluster_itself() {
    assert_eq!(Impersonation::problem(&Impersonation::default().prefix), None);
    assert_eq!(Impersonation::problem("corp/"), None);
    for bad in ["", "system:", "system:serviceaccount:", "fairlead", "a b:", "a\n:"] {
        let mut cluster = Cluster::new("prod", spec());
        cluster.spec.impersonation = Some(Impersonation { prefix: bad.to_owned() });
        let problems = cluster.check().unwrap_err();
        assert_eq!(problems.0[0].0, "spec.impersonation.prefix", "{bad:?}");
    }
}

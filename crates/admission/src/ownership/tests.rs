use super::*;

fn owner(kind: &str, controller: bool) -> OwnerReference {
    let (uid, name) = (format!("uid-{kind}"), kind.to_lowercase());
    OwnerReference { uid, kind: kind.to_owned(), name, controller }
}

#[test]
fn only_who_makes_such_objects_for_such_owners_is_believed() {
    let believed = |user: &str, kind: &str, owners: &[OwnerReference]| {
        let named = ["system:serviceaccount:argo:rollouts".to_owned()];
        super::believed(user, kind, owners, &named).map(|owner| owner.uid.clone())
    };
    let system = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let set = [owner("Sidecar", false), owner("ReplicaSet", true)];
    let yes = Some("uid-ReplicaSet".to_owned());
    assert_eq!(believed(&system("replicaset-controller"), "Pod", &set), yes);
    assert_eq!(believed("system:serviceaccount:argo:rollouts", "Pod", &set), yes, "it is named");
    // An account of another namespace, another controller, another object, a person.
    let elsewhere = "system:serviceaccount:shop:replicaset-controller";
    for user in [elsewhere, "replicaset-controller", "alice", "", &system("job-controller")] {
        assert_eq!(believed(user, "Pod", &set), None, "{user}");
    }
    assert_eq!(believed(&system("replicaset-controller"), "Job", &set), None);
    assert_eq!(believed(&system("kube-proxy"), "Pod", &set), None);
    // An owner that does not control it made nothing.
    let loose = [owner("ReplicaSet", false)];
    assert_eq!(believed(&system("replicaset-controller"), "Pod", &loose), None);
    assert_eq!(believed("system:serviceaccount:argo:rollouts", "Pod", &loose), None);
    assert_eq!(believed(&system("replicaset-controller"), "Pod", &[]), None);
}

use objects::kinds::EgressSpec;

use super::*;

fn egress(spec: Value) -> Egress {
    let spec: EgressSpec = serde_json::from_value(spec).unwrap();
    let mut egress = Egress::new("nat", spec);
    egress.metadata.namespace = Some("internet".to_owned());
    egress.metadata.uid = Some("7f".to_owned());
    egress
}

fn config() -> EgressControllerConfig {
    EgressControllerConfig { image: "fairlead:test".to_owned(), port: 4788 }
}

#[test]
fn a_replica_has_one_capability_and_no_token() {
    let egress = egress(json!({ "destinations": ["0.0.0.0/0"], "replicas": 2 }));
    let made = serde_json::to_value(deployment(&egress, &config()).unwrap()).unwrap();
    assert_eq!(made["spec"]["replicas"], 2);
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "7f");
    let pod = &made["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["hostNetwork"], false);
    let container = &pod["containers"][0];
    assert_eq!(
        (&container["name"], &container["image"]),
        (&json!("egress"), &json!("fairlead:test"))
    );
    let security = &container["securityContext"];
    assert_eq!(security["capabilities"], json!({ "drop": ["ALL"], "add": ["NET_ADMIN"] }));
    assert_eq!(security["privileged"], false);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][LABEL], "nat");
}

#[test]
fn a_template_in_coils_form_is_kept_and_completed() {
    let egress = egress(json!({
        "destinations": ["0.0.0.0/0"],
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } },
        "template": {
            "metadata": { "labels": { "name": "egress", LABEL: "stolen" }, "annotations": { "a": "b" } },
            "spec": {
                "hostNetwork": true,
                "nodeSelector": { "zone": "edge" },
                "containers": [
                    { "name": "egress", "resources": { "limits": { "memory": "400Mi" } } },
                    { "name": "beside", "image": "busybox" },
                ],
            },
        },
        "podDisruptionBudget": { "maxUnavailable": "50%" },
    }));
    let made = serde_json::to_value(deployment(&egress, &config()).unwrap()).unwrap();
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 1);
    let template = &made["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["name"], "egress");
    assert_eq!(template["metadata"]["labels"][LABEL], "nat");
    assert_eq!(template["metadata"]["annotations"]["a"], "b");
    assert_eq!(template["spec"]["hostNetwork"], false);
    assert_eq!(template["spec"]["nodeSelector"]["zone"], "edge");
    let containers = template["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[0]["resources"]["limits"]["memory"], "400Mi");
    assert_eq!(containers[0]["image"], "fairlead:test");
    assert!(containers[1].get("securityContext").is_none());
    let budget = serde_json::to_value(budget(&egress).unwrap()).unwrap();
    // `policy/v1` as it is documented: selector, and one of minAvailable and maxUnavailable, of which each is
    // a number or a percentage.
    assert_eq!(
        (&budget["apiVersion"], &budget["kind"]),
        (&json!("policy/v1"), &json!("PodDisruptionBudget"))
    );
    assert_eq!(
        budget["spec"],
        json!({ "selector": { "matchLabels": { LABEL: "nat" } }, "maxUnavailable": "50%" })
    );
    assert_eq!(budget["metadata"]["ownerReferences"][0]["uid"], "7f");
}

#[test]
fn a_template_that_is_no_pod_is_refused_in_words() {
    let egress = egress(json!({
        "destinations": ["0.0.0.0/0"],
        "template": { "spec": { "nodeSelector": 7 } },
    }));
    assert!(deployment(&egress, &config()).unwrap_err().to_string().contains("invalid type"));
}

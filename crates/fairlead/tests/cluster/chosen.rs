//! What pods and namespaces choose by annotation, through a real kubelet and containerd: pool, address and
//! hardware address.

use serde_json::Value;

use crate::{SOON, Stage};

/// Each address of the pool is a block: it goes to whichever node asks for it.
const CHOSEN: &str = r#"
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: { name: chosen }
spec: { blockSizeBits: 0, subnets: [{ ipv4: 10.245.0.0/24 }] }
---
apiVersion: v1
kind: Namespace
metadata: { name: coil, annotations: { coil.cybozu.com/pool: chosen } }
"#;

const ADDRESS: &str = "10.245.0.5";
const MAC: &str = "02:00:5e:10:00:01";

fn pod(name: &str, annotations: &str) -> String {
    format!(
        r#"---
apiVersion: v1
kind: Pod
metadata: {{ name: {name}, namespace: coil, labels: {{ app: {name} }}, annotations: {{ {annotations} }} }}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: local/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "mkdir /www && echo {name} >/www/name && exec httpd -f -p 8080 -h /www"]
"#
    )
}

pub(crate) fn pods_have_what_they_chose(stage: &Stage) {
    let cluster = &stage.cluster;
    cluster.apply(CHOSEN);
    let fixed = format!("fairlead.dev/ips: {ADDRESS}, fairlead.dev/mac: \"{MAC}\"");
    cluster.apply(&format!("{}{}", pod("fixed", &fixed), pod("any", "")));
    let address = |app: &str| {
        let found = cluster.wait_pods("coil", &format!("app={app}"), 1, SOON).remove(0);
        found.pointer("/status/podIP").and_then(Value::as_str).unwrap().to_owned()
    };
    let any = address("any");
    assert!(any.starts_with("10.245.0."), "its namespace chose the pool, and it has {any}");
    assert_eq!(address("fixed"), ADDRESS);
    let shown = ["--namespace=coil", "exec", "fixed", "--", "cat", "/sys/class/net/eth0/address"];
    assert_eq!(cluster.kubectl(&shown).trim(), MAC);
    // The wget of a busybox that is linked statically ends with a fault.
    let ask =
        format!("printf 'GET /name HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {ADDRESS} 8080 | tail -n 1");
    let ask = ["--namespace=coil", "exec", "any", "--", "sh", "-c", &ask];
    cluster.wait_for("the pod with the chosen address to answer", SOON, || {
        let said = cluster.try_kubectl(&ask)?;
        if said.trim() == "fixed" { Ok(()) } else { Err(said) }
    });

    // Who chooses what another has is told whose it is.
    cluster.apply(&pod("late", &format!("fairlead.dev/ips: {ADDRESS}")));
    cluster.wait_for("the kubelet to say why the third does not start", SOON, || {
        let events = cluster.get("/api/v1/namespaces/coil/events")?;
        let said = |event: &Value| {
            let message = event["message"].as_str().unwrap_or_default();
            event["involvedObject"]["name"] == "late" && message.contains(ADDRESS)
        };
        let all = events["items"].as_array();
        match all.is_some_and(|all| all.iter().any(said)) {
            true => Ok(()),
            false => Err(events["items"].to_string()),
        }
    });
    cluster.kubectl(&["delete", "namespace", "coil", "--wait=false"]);
}

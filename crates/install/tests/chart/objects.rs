//! What the chart makes of values.

use std::collections::BTreeSet;

use install::chart::{Chart, POD_SECURITY_LABEL, Release, Rendered, namespace};
use install::values::Values;
use serde_json::{Value, json};

use crate::values::{EVERYTHING, args, error, every_choice_of_components, find, get, render};

#[test]
fn every_choice_of_components_renders() {
    for set in every_choice_of_components() {
        let rendered = render(&set);
        assert!(find(&rendered, "Deployment", "fairlead-controller").is_some());
        let agents = set.contains("net=true") || set.contains("guard=true");
        assert_eq!(find(&rendered, "DaemonSet", "fairlead-agent").is_some(), agents, "{set}");
        for (component, kind, name) in [
            ("net", "AddressPool", "default"),
            ("net", "ClusterRole", "fairlead-agent"),
            ("net", "ClusterRoleBinding", "fairlead-controller-net"),
            ("guard", "Service", "fairlead-agents"),
            ("guard", "ClusterRoleBinding", "fairlead-controller-guard"),
            ("mesh", "ClusterRoleBinding", "fairlead-controller-mesh"),
            ("console", "Service", "fairlead"),
            ("admission", "Service", "fairlead-webhook"),
            ("admission", "ClusterRoleBinding", "fairlead-controller-admission"),
        ] {
            let on = set.contains(&format!("{component}=true"));
            assert_eq!(find(&rendered, kind, name).is_some(), on, "{kind} {name}: {set}");
        }
        assert!(rendered.notes.contains("fairlead-controller"));
    }
}

#[test]
fn every_object_has_the_labels_and_one_place() {
    let rendered = render(EVERYTHING);
    let mut seen = BTreeSet::new();
    for object in &rendered.objects {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/part-of"], "fairlead", "{kind} {name}");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "fairlead", "{kind} {name}");
        assert_eq!(labels["app.kubernetes.io/instance"], "fairlead", "{kind} {name}");
        assert!(labels["app.kubernetes.io/version"].is_string(), "{kind} {name}");
        assert!(labels["helm.sh/chart"].is_string(), "{kind} {name}");
        let global =
            ["ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "AddressPool"];
        let namespaced = !global.contains(&kind.as_str().unwrap());
        assert_eq!(object["metadata"]["namespace"] == "fairlead", namespaced, "{kind} {name}");
        assert!(seen.insert((kind.to_string(), name.to_string())), "two {kind} {name}");
    }
}

#[test]
fn every_container_has_bounds_and_rights_that_are_said() {
    let rendered = render(EVERYTHING);
    let mut containers = 0;
    for object in &rendered.objects {
        let pod = &object["spec"]["template"]["spec"];
        let of = |kind: &str| pod[kind].as_array().cloned().unwrap_or_default();
        for container in of("initContainers").iter().chain(&of("containers")) {
            containers += 1;
            let name = &container["name"];
            assert!(container["resources"]["requests"]["cpu"].is_string(), "{name}");
            assert!(container["resources"]["requests"]["memory"].is_string(), "{name}");
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["privileged"], Value::Null, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            let capabilities = if name == "agent" {
                json!({"drop": ["ALL"], "add": ["NET_ADMIN", "SYS_ADMIN"]})
            } else {
                json!({"drop": ["ALL"]})
            };
            assert_eq!(security["capabilities"], capabilities, "{name}");
            assert!(container["livenessProbe"].is_object() || name == "install", "{name}");
        }
        if pod.is_object() {
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            assert!(pod["priorityClassName"].is_string());
        }
    }
    assert_eq!(containers, 3);
    let controller = get(&rendered, "Deployment", "fairlead-controller");
    assert_eq!(controller["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"], true);
}

#[test]
fn an_agent_that_only_observes_may_enter_no_namespace() {
    for (values, rights) in [
        ("components.net=false", json!(["NET_ADMIN"])),
        ("components.net=false,mesh.wireguard=true", json!(["NET_ADMIN", "NET_RAW"])),
    ] {
        let rendered = render(values);
        let agent = get(&rendered, "DaemonSet", "fairlead-agent");
        let security = &agent["spec"]["template"]["spec"]["containers"][0]["securityContext"];
        assert_eq!(security["capabilities"], json!({"drop": ["ALL"], "add": rights}));
    }
}

#[test]
fn the_command_lines_are_those_of_the_contract() {
    let rendered = render("components.net=true");
    assert_eq!(
        args(get(&rendered, "Deployment", "fairlead-controller")),
        [
            "controller",
            "--data=/var/lib/fairlead",
            "--fleet-namespace=$(POD_NAMESPACE)",
            "--fleet-secrets-namespace=$(POD_NAMESPACE)",
            "--api-listen=*:7680",
            "--api-tls=auto",
            "--agents-listen=*:7681",
            "--admin-listen=*:7682",
            "--admin-tls=auto",
            "--shutdown-delay=5s",
            "--admission-listen=*:7683",
            "--admission-service=$(POD_NAMESPACE)/fairlead-webhook",
            "--admission-mode=monitor",
            "--admission-failure-policy=ignore",
            "--admission-exempt=kube-system,kube-public,kube-node-lease",
            "--admission-timeout=10s",
        ]
    );
    let guard = [
        "--guard-controllers=fairlead-agents.$(POD_NAMESPACE).svc:7681",
        "--guard-identity-token-file=/var/run/secrets/fairlead/token",
    ];
    let agent = [
        "agent",
        "--store=kubernetes",
        "--data=/var/lib/fairlead",
        "--fleet-namespace=$(POD_NAMESPACE)",
    ];
    let both = get(&rendered, "DaemonSet", "fairlead-agent");
    assert_eq!(args(both), [&agent[..], &guard[..], &["--policy-enforce=on"]].concat());
    assert_eq!(
        both["spec"]["template"]["spec"]["initContainers"][0]["args"],
        json!(["net", "install"])
    );
    let watching = render("components.net=false");
    let watching = get(&watching, "DaemonSet", "fairlead-agent");
    assert_eq!(args(watching), [&agent[..], &["--net-serve=off"], &guard[..]].concat());
    assert_eq!(watching["spec"]["template"]["spec"]["initContainers"], Value::Null);
    // Agents are there for meshes alone, too; and not for Kilo's.
    let meshed = render("components.guard=false,mesh.wireguard=true");
    let meshed = get(&meshed, "DaemonSet", "fairlead-agent");
    let mesh = ["--net-serve=off", "--mesh-wireguard=on", "--mesh-port=51821"];
    assert_eq!(args(meshed), [&agent[..], &mesh[..]].concat());
    // Encryption has the interface without a mesh, and nothing of meshes.
    let encrypting =
        render("components.net=true,components.guard=false,net.encryption=required,mesh.port=7");
    let role = get(&encrypting, "ClusterRole", "fairlead-agent-mesh");
    let rules = json!([
        {"apiGroups": ["fairlead.dev"], "resources": ["wireguardnodes"],
         "verbs": ["list", "watch", "create", "patch"]},
        {"apiGroups": ["fairlead.dev"], "resources": ["wireguardnodes/status"], "verbs": ["patch"]},
    ]);
    assert_eq!(role["rules"], rules);
    let encrypting = get(&encrypting, "DaemonSet", "fairlead-agent");
    let encrypts = ["--net-encryption=required", "--mesh-port=7"];
    assert_eq!(args(encrypting), [&agent[..], &encrypts[..]].concat());
    let security = &encrypting["spec"]["template"]["spec"]["containers"][0]["securityContext"];
    let rights = json!(["NET_ADMIN", "SYS_ADMIN", "NET_RAW"]);
    assert_eq!(security["capabilities"]["add"], rights);
    let off = render("components.guard=false,components.mesh=false,mesh.wireguard=true");
    assert!(off.objects.iter().all(|object| object["kind"] != "DaemonSet"));
}

/// Egresses beside another plugin: agents have nothing of the pod network but what egresses need.
#[test]
fn preshared_keys_are_a_file_that_the_agent_alone_reads() {
    let rendered =
        render("components.guard=false,mesh.wireguard=true,mesh.presharedKeysSecret=mesh-keys");
    let agent = get(&rendered, "DaemonSet", "fairlead-agent");
    let flag = "--mesh-preshared-keys=/var/run/secrets/fairlead-mesh/keys";
    assert!(args(agent).contains(&flag), "{:?}", args(agent));
    let pod = &agent["spec"]["template"]["spec"];
    let named = |list: &Value| {
        let list = list.as_array().unwrap();
        list.iter().find(|it| it["name"] == "preshared-keys").cloned().unwrap_or_default()
    };
    assert_eq!(
        named(&pod["volumes"])["secret"],
        json!({"secretName": "mesh-keys", "defaultMode": 0o400, "items": [{"key": "keys", "path": "keys"}]})
    );
    let mount = named(&pod["containers"][0]["volumeMounts"]);
    assert_eq!(
        (&mount["mountPath"], &mount["readOnly"]),
        (&json!("/var/run/secrets/fairlead-mesh"), &json!(true))
    );
    // Nobody asks the API server for it.
    let without = render("components.guard=false,mesh.wireguard=true");
    let roles = |of: &Rendered| -> Vec<Value> {
        let is_role = |it: &&Value| it["kind"].as_str().is_some_and(|kind| kind.ends_with("Role"));
        of.objects.iter().filter(is_role).cloned().collect()
    };
    assert_eq!(roles(&rendered), roles(&without));
    assert_eq!(
        named(&get(&without, "DaemonSet", "fairlead-agent")["spec"]["template"]["spec"]["volumes"]),
        Value::Null
    );
}

#[test]
fn pods_of_another_plugin_may_use_egresses() {
    let alone = "components.guard=false,components.net=false,net.egress=true";
    let rendered = render(&format!(
        "{alone},net.podNetworks[0]=10.244.0.0/16,net.podNetworks[1]=fd00:244::/48"
    ));
    let agent = get(&rendered, "DaemonSet", "fairlead-agent");
    let args = args(agent);
    let networks = "--net-pod-networks=10.244.0.0/16,fd00:244::/48";
    assert_eq!(args[args.len() - 3..], ["--net-serve=off", "--net-egress=on", networks]);
    let pod = &agent["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"], Value::Null);
    let rights = &pod["containers"][0]["securityContext"]["capabilities"]["add"];
    assert_eq!(*rights, json!(["NET_ADMIN"]));
    let roles: Vec<_> = rendered
        .objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .filter_map(|object| object["metadata"]["name"].as_str())
        .filter(|name| name.contains("agent") || name.contains("net") || name.contains("egress"))
        .collect();
    assert_eq!(roles, ["fairlead-agent-egress", "fairlead-controller-egress"]);
    for (values, why) in [
        (alone, "say in net.podNetworks where it takes their addresses from"),
        ("net.podNetworks[0]=10.0.0.0/8", "set net.egress to true"),
        (
            "components.net=true,net.egress=true,net.podNetworks[0]=10.0.0.0/8",
            "have addresses of net.pools",
        ),
    ] {
        assert!(error(values).contains(why), "{values}: {}", error(values));
    }
}

#[test]
fn settings_are_flags_in_the_order_of_their_names() {
    let rendered = render(
        r"controller.settings.log\.level=debug,controller.settings.workers=4,controller.settings.memory\.limit=1073741824,controller.settings.admin\.profiling=true",
    );
    let args = args(get(&rendered, "Deployment", "fairlead-controller"));
    assert_eq!(
        args[args.len() - 4..],
        ["--admin-profiling=true", "--log-level=debug", "--memory-limit=1073741824", "--workers=4"]
    );
    let message = error(r"controller.settings.api\.listen=x");
    assert_eq!(message, "controller.settings: api.listen is set by the chart itself; take it out");
    let message = error("agent.settings.store=embedded");
    assert_eq!(message, "agent.settings: store is set by the chart itself; take it out");
}

#[test]
fn an_image_is_named_by_tag_or_by_digest() {
    let digest = format!("sha256:{}", "a".repeat(64));
    for (set, expected) in [
        ("image.tag=".to_owned(), format!("fairlead:{}", env!("CARGO_PKG_VERSION"))),
        (
            "image.repository=r.example:5000/x,image.tag=v1".to_owned(),
            "r.example:5000/x:v1".to_owned(),
        ),
        (format!("image.tag=v1,image.digest={digest}"), format!("fairlead@{digest}")),
    ] {
        let rendered = render(&format!("components.net=true,{set}"));
        for (kind, name) in [("Deployment", "fairlead-controller"), ("DaemonSet", "fairlead-agent")]
        {
            let pod = &get(&rendered, kind, name)["spec"]["template"]["spec"];
            assert_eq!(pod["containers"][0]["image"], expected, "{set}");
            if kind == "DaemonSet" {
                assert_eq!(pod["initContainers"][0]["image"], expected, "{set}");
            }
        }
    }
    assert!(
        error("image.digest=latest").starts_with("the values cannot be used:\n  image.digest: ")
    );
}

#[test]
fn definitions_are_kept_unless_told_otherwise() {
    let count = |set: &str| {
        let rendered = render(set);
        let crds =
            rendered.objects.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
        let kept =
            |crd: &&Value| crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep";
        (crds.clone().count(), crds.filter(kept).count())
    };
    let all =
        Chart::embedded().files().keys().filter(|path| path.starts_with("crds-files/")).count();
    assert!(all >= 10);
    assert_eq!(count("crds.install=true"), (all, all));
    assert_eq!(count("crds.keep=false"), (all, 0));
    assert_eq!(count("crds.install=false"), (0, 0));
}

#[test]
fn what_a_definition_says_is_not_touched() {
    let chart = Chart::embedded();
    let rendered = render("crds.keep=true");
    for (path, text) in chart.files().iter().filter(|(path, _)| path.starts_with("crds-files/")) {
        let file: Value = serde_saphyr::from_str(text).unwrap();
        let name = file["metadata"]["name"].as_str().unwrap();
        let crd = get(&rendered, "CustomResourceDefinition", name);
        assert_eq!(crd["spec"], file["spec"], "{path}");
    }
}

#[test]
fn pools_are_as_they_were_given_and_outlive_the_chart() {
    let rendered = render(
        "components.net=true,net.pools[0].name=default,net.pools[0].subnets[0].ipv4=10.0.0.0/16,\
         net.pools[0].subnets[0].ipv6=fd00::/112,net.pools[1].name=dmz,net.pools[1].blockSizeBits=0,\
         net.pools[1].subnets[0].ipv4=10.1.0.0/24",
    );
    let pool = get(&rendered, "AddressPool", "default");
    assert_eq!(pool["spec"], json!({"subnets": [{"ipv4": "10.0.0.0/16", "ipv6": "fd00::/112"}]}));
    assert_eq!(pool["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let pool = get(&rendered, "AddressPool", "dmz");
    assert_eq!(pool["spec"]["blockSizeBits"], 0);
    assert_eq!(rendered.objects.last().unwrap()["kind"], "AddressPool");
    assert!(
        error("components.net=true,net.pools[0].name=x")
            .contains("net.pools[0].subnets: is missing")
    );
}

#[test]
fn the_budget_has_the_version_that_the_cluster_knows() {
    let old = Release { api_versions: BTreeSet::new(), ..Release::default() };
    let rendered = Chart::embedded().render(&old, &Values::default()).unwrap();
    let budget = get(&rendered, "PodDisruptionBudget", "fairlead-controller");
    assert_eq!(budget["apiVersion"], "policy/v1beta1");
    let rendered = render("controller.replicas=3");
    assert_eq!(
        get(&rendered, "PodDisruptionBudget", "fairlead-controller")["apiVersion"],
        "policy/v1"
    );
}

#[test]
fn agents_are_bound_to_their_nodes_where_the_server_has_policies() {
    let policy = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy";
    let of = |with: &str, versions: &[&str]| {
        let mut values = Values::default();
        values.set(with).unwrap();
        let api_versions = versions.iter().map(ToString::to_string).collect();
        let release =
            Release { namespace: "harbour".to_owned(), api_versions, ..Release::default() };
        Chart::embedded().render(&release, &values).unwrap()
    };
    for (component, name, role) in [
        ("components.net", "fairlead-agent-own-node", "fairlead-agent"),
        ("mesh.wireguard", "fairlead-agent-own-key", "fairlead-agent-mesh"),
    ] {
        let (on, off) = (format!("{component}=true"), format!("{component}=false"));
        for (with, versions) in [(&on, &[][..]), (&off, &[policy])] {
            assert!(find(&of(with, versions), "ValidatingAdmissionPolicy", name).is_none());
        }
        own_node_alone(&of(&on, &[policy]), name, role);
    }
}

fn own_node_alone(rendered: &Rendered, name: &str, role: &str) {
    let binding = get(rendered, "ValidatingAdmissionPolicyBinding", name);
    assert_eq!(binding["spec"], json!({"policyName": name, "validationActions": ["Deny"]}));
    let found = get(rendered, "ValidatingAdmissionPolicy", name);
    assert_eq!(
        found["spec"]["matchConditions"][0]["expression"],
        "request.userInfo.username == 'system:serviceaccount:harbour:fairlead-agent'"
    );

    // Everything that an agent may write is bound, whatever its role is given later.
    let role = get(rendered, "ClusterRole", role);
    let reads = ["get", "list", "watch"].map(Value::from);
    let mut written = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        if rule["verbs"].as_array().unwrap().iter().any(|verb| !reads.contains(verb)) {
            written.extend(rule["resources"].as_array().unwrap().iter().map(Value::to_string));
        }
    }
    let bound = &found["spec"]["matchConstraints"]["resourceRules"][0];
    let resources: BTreeSet<_> =
        bound["resources"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(resources, written);
    assert_eq!(bound["operations"], json!(["CREATE", "UPDATE", "DELETE"]));
}

#[test]
fn values_that_are_not_known_are_named_with_a_hint() {
    assert_eq!(
        error("controller.replica=2,admission.mode=protected,components.nett=true"),
        "the values cannot be used:\
         \n  admission.mode: expected one of monitor, protect; found \"protected\"; did you mean protect?\
         \n  components.nett: there is no such value; did you mean net?\
         \n  controller.replica: there is no such value; did you mean replicas?"
    );
    assert_eq!(
        error("metrics.podMonitor.enabled=true"),
        "metrics.podMonitor.enabled needs metrics.tokenSecret: a Secret of the installation's \
         namespace with a key `token`"
    );
}

#[test]
fn another_name_and_namespace_are_used_throughout() {
    let release =
        Release { name: "boat".to_owned(), namespace: "harbour".to_owned(), ..Release::default() };
    let mut values = Values::default();
    values.set(EVERYTHING).unwrap();
    let rendered = Chart::embedded().render(&release, &values).unwrap();
    let text = serde_json::to_string(&rendered.objects).unwrap();
    assert!(!text.contains(r#""namespace":"fairlead""#));
    assert!(text.contains(r#""app.kubernetes.io/instance":"boat""#));
    let namespace = namespace(&release);
    assert_eq!(namespace["metadata"]["labels"][POD_SECURITY_LABEL.0], POD_SECURITY_LABEL.1);
    assert_eq!(namespace["metadata"]["name"], "harbour");
}

#[test]
fn a_local_cluster_is_open_as_far_as_was_said() {
    for (choice, role) in [("none", None), ("view", Some("view")), ("admin", Some("cluster-admin"))]
    {
        let rendered = render(&format!("fleet.localCluster={choice}"));
        let bound: Vec<_> = rendered
            .objects
            .iter()
            .filter(|object| object["kind"] == "ClusterRoleBinding")
            .map(|object| object["roleRef"]["name"].as_str().unwrap())
            .filter(|name| !name.starts_with("fairlead-"))
            .collect();
        assert_eq!(bound, role.into_iter().collect::<Vec<_>>(), "{choice}");
    }
    let rendered = render("components.console=false,fleet.localCluster=admin");
    assert!(find(&rendered, "ClusterRoleBinding", "fairlead-controller-admin").is_none());
}

#[test]
fn alerts_and_dashboards_are_those_of_the_repository() {
    let chart = Chart::embedded();
    let rendered = render("alerts.enabled=true,dashboards.enabled=true,alerts.labels.release=p");
    let rule = get(&rendered, "PrometheusRule", "fairlead");
    let file: Value = serde_saphyr::from_str(&chart.files()["monitoring/alerts.yaml"]).unwrap();
    assert_eq!(rule["spec"], file);
    assert_eq!(rule["metadata"]["labels"]["release"], "p");
    let mut dashboards = 0;
    for (path, text) in chart.files() {
        let Some(file) = path.strip_prefix("monitoring/dashboards/") else { continue };
        dashboards += 1;
        let name = format!("fairlead-dashboard-{}", file.trim_end_matches(".json"));
        let map = get(&rendered, "ConfigMap", &name);
        let shown: Value = serde_json::from_str(map["data"][file].as_str().unwrap()).unwrap();
        assert_eq!(shown, serde_json::from_str::<Value>(text).unwrap(), "{path}");
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    }
    assert!(dashboards > 0);
    let without = render("alerts.enabled=false");
    assert!(find(&without, "PrometheusRule", "fairlead").is_none());
}

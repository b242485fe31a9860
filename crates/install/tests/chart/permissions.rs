//! What the service accounts may do, in one list that a reviewer can read.

use std::collections::BTreeSet;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;

use crate::values::{get, render};

const UPDATE: &str = "UPDATE=1 cargo nextest run -p install permissions";

fn rules(role: &Value) -> impl Iterator<Item = &Value> {
    role["rules"].as_array().into_iter().flatten()
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn the_permissions_are_those_of_the_list() {
    let rendered = render(
        "components.net=true,net.encryption=required,mesh.wireguard=true,mesh.services=true,fleet.secretsFromAllNamespaces=true",
    );
    let off = render("components.admission=false");
    let mut lines = BTreeSet::new();
    let roles = rendered.objects.iter().chain(&off.objects);
    for role in roles.filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role") {
        for rule in rules(role) {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    let group = if group.is_empty() { "core" } else { group };
                    let names = list(&rule["resourceNames"]);
                    let names = if names.is_empty() {
                        String::new()
                    } else {
                        format!(" of {}", names.join(" "))
                    };
                    let (kind, name) = (
                        role["kind"].as_str().unwrap(),
                        role["metadata"]["name"].as_str().unwrap(),
                    );
                    let verbs = list(&rule["verbs"]).join(" ");
                    lines.insert(format!("{kind} {name}: {group}/{resource}{names}: {verbs}\n"));
                }
            }
        }
    }
    let expected: String = lines.into_iter().collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/permissions.txt");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "the roles are not those of tests/permissions.txt; {UPDATE}\n{expected}"
    );
}

#[test]
fn no_role_is_wider_than_it_looks() {
    let rendered = render("components.net=true");
    for role in rendered
        .objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role")
    {
        let name = &role["metadata"]["name"];
        for rule in rules(role) {
            for field in ["apiGroups", "resources", "verbs"] {
                assert!(!list(&rule[field]).contains(&"*"), "{name} has a *");
            }
            for verb in ["escalate", "bind", "impersonate", "deletecollection"] {
                assert!(!list(&rule["verbs"]).contains(&verb), "{name} may {verb}");
            }
            if role["kind"] == "ClusterRole" {
                let secrets = list(&rule["resources"]).iter().any(|resource| {
                    ["secrets", "configmaps", "pods/exec", "serviceaccounts/token"]
                        .contains(resource)
                });
                assert!(!secrets, "{name} reaches secrets of the whole cluster");
            }
        }
    }
}

#[test]
fn a_component_that_is_off_has_no_role() {
    let off = "components.net=false,components.guard=false,components.mesh=false,\
               components.console=false,components.admission=false,fleet.localCluster=none";
    let rendered = render(off);
    let roles: Vec<_> = rendered
        .objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["fairlead-controller-core"]);
    let role = get(&rendered, "Role", "fairlead-controller");
    let unnamed_secrets = rules(role).any(|rule| {
        list(&rule["resources"]) == ["secrets"]
            && rule["resourceNames"].is_null()
            && ["get", "list", "watch"].iter().any(|verb| list(&rule["verbs"]).contains(verb))
    });
    assert!(!unnamed_secrets, "without console and mesh nobody imports clusters");
    let controller = get(&rendered, "Deployment", "fairlead-controller");
    let args = &controller["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(list(args).contains(&"--fleet-secrets=none"), "it asks for none that it may not read");
}

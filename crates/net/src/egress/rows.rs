//! The rows of `fairlead net egress list`. The JSON is a contract.

use std::collections::BTreeSet;

use objects::Id;
use objects::kinds::Egress;
use serde_json::{Value, json};

use super::reconciler::EgressSeen;

impl EgressSeen {
    /// A row for each egress, and for each that pods of this node chose and that is not there.
    pub(crate) fn rows(&self, egresses: &[Egress]) -> Vec<Value> {
        let (mut here, held) = (self.pods.chosen(), self.pods.held());
        let mut rows: Vec<Value> = egresses
            .iter()
            .map(|egress| {
                let id = Id::of(egress).to_string();
                self.row(egress, here.remove(&id).unwrap_or(0), held)
            })
            .collect();
        rows.extend(here.into_iter().map(|(id, clients)| absent(&id, clients)));
        rows.sort_by_key(|row| (row["namespace"].to_string(), row["name"].to_string()));
        rows
    }

    fn row(&self, egress: &Egress, here: usize, held: usize) -> Value {
        let status = egress.status.clone().unwrap_or_default();
        let silent = self.silent.load();
        let unanswered: BTreeSet<&str> = status
            .endpoints
            .iter()
            .filter(|replica| replica.addresses.iter().any(|it| silent.contains(it)))
            .map(|replica| replica.pod.as_str())
            .collect();
        let mut waits = Vec::new();
        match status.conditions.iter().find(|it| it.r#type == "Ready") {
            Some(ready) if ready.status != "True" => waits.push(ready.message.clone()),
            Some(_) => {}
            None => waits.push("no controller has looked at it yet".to_owned()),
        }
        if !self.egresses.read(|it| it.contains_key(&Id::of(egress))) {
            waits.push("this node has not heard of it yet".to_owned());
        }
        for pod in &unanswered {
            waits.push(format!(
                "replica {pod} does not answer this node: others have its connections"
            ));
        }
        if held > 0 {
            waits.push(format!(
                "{held} new pods of this node are held until it is known what they chose"
            ));
        }
        let id = Id::of(egress).to_string();
        let bypasses = self.bypasses.load();
        waits.extend(bypasses.iter().filter(|it| it.egress == id).map(|it| it.why.clone()));
        let draining = status.endpoints.iter().filter(|replica| replica.draining).count();
        json!({
            "namespace": egress.metadata.namespace,
            "name": egress.metadata.name,
            "destinations": egress.spec.destinations,
            "replicas": egress.spec.replicas,
            "ready": status.endpoints.len() - draining,
            "draining": draining,
            "silent": unanswered,
            "clients": status.clients,
            "clientsHere": here,
            "sessionAffinity": egress.spec.session_affinity,
            "failure": egress.spec.failure,
            "waits": waits,
        })
    }
}

fn absent(id: &str, clients: usize) -> Value {
    let (namespace, name) = id.split_once('/').unwrap_or(("", id));
    json!({
        "namespace": namespace, "name": name, "destinations": [], "replicas": 0, "ready": 0,
        "draining": 0, "silent": [], "clients": clients, "clientsHere": clients,
        "sessionAffinity": null, "failure": null,
        "waits": [format!("{clients} pods of this node chose it, and it is not there")],
    })
}

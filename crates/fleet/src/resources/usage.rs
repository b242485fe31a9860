//! What pods and nodes use, as the cluster's metrics server says (`metrics.k8s.io`), and quantities.

use serde::Serialize;
use serde_json::Value;
use stallproof::Deadline;

use super::list::{ListQuery, list};
use crate::{Connection, Error};

/// What one pod or node uses.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Thousandths of a CPU.
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageOf {
    Pods,
    Nodes,
}

/// Lists what all pods, of one namespace if said, or all nodes use.
pub async fn usage(
    connection: &Connection,
    of: UsageOf,
    namespace: Option<&str>,
    deadline: Deadline,
) -> Result<Vec<Usage>, Error> {
    let kind = match of {
        UsageOf::Pods => "pods.v1beta1.metrics.k8s.io",
        UsageOf::Nodes => "nodes.v1beta1.metrics.k8s.io",
    };
    let query = ListQuery { limit: Some(u32::MAX), ..ListQuery::of(kind).within(namespace) };
    let page = list(connection, &query, deadline).await?;
    let used = page.items.into_iter().map(|object| {
        let data = &object.data;
        let containers = data.get("containers").and_then(Value::as_array);
        let each = containers.into_iter().flatten().chain(containers.is_none().then_some(data));
        let (mut cpu, mut memory) = (0.0, 0.0);
        for one in each {
            cpu += amount(one.pointer("/usage/cpu"));
            memory += amount(one.pointer("/usage/memory"));
        }
        Usage {
            namespace: object.metadata.namespace,
            name: object.metadata.name.unwrap_or_default(),
            cpu_millis: (cpu * 1000.0).round() as u64,
            memory_bytes: memory.round() as u64,
        }
    });
    Ok(used.collect())
}

/// The number of a quantity in an object; zero where there is none.
pub fn amount(value: Option<&Value>) -> f64 {
    match value {
        Some(Value::String(text)) => quantity(text).unwrap_or_default(),
        Some(Value::Number(number)) => number.as_f64().unwrap_or_default(),
        _ => 0.0,
    }
}

/// Reads a quantity as Kubernetes writes it: `100m`, `1.5`, `128Mi`, `12e6`.
pub fn quantity(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(at);
    let factor = match unit {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_writes_them() {
        for (text, expected) in [
            ("100m", 0.1),
            ("1.5", 1.5),
            ("128Mi", 134_217_728.0),
            ("12e6", 12e6),
            ("250n", 250e-9),
            ("2Gi", 2_147_483_648.0),
            ("1E", 1e18),
        ] {
            let read = quantity(text).unwrap();
            assert!((read - expected).abs() <= expected * 1e-12, "{text}: {read}");
        }
        for wrong in ["", "m", "1.2.3", "five", "1Zi", "NaN", "inf"] {
            assert_eq!(quantity(wrong), None, "{wrong}");
        }
    }
}

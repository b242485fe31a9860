//! `resourceLimit`: its sub-criteria are alternatives, each on this container alone.

use objects::kinds::admission_rule::{Amount, Resource};

use crate::pod::Resources;

pub(super) fn any_holds(amounts: &[Amount], resources: &Resources) -> bool {
    amounts.iter().any(|amount| {
        let have = have(amount.resource, resources);
        if amount.above { have > amount.value } else { have <= amount.value }
    })
}

/// Cores or bytes. An unset request takes the limit; what is unset then is 0.
#[allow(clippy::cast_precision_loss, reason = "rules are written in doubles")]
fn have(resource: Resource, resources: &Resources) -> f64 {
    let (name, request) = match resource {
        Resource::CpuLimit => ("cpu", false),
        Resource::CpuRequest => ("cpu", true),
        Resource::MemoryLimit => ("memory", false),
        Resource::MemoryRequest => ("memory", true),
    };
    let requested = if request { resources.requests.get(name) } else { None };
    let Some(quantity) = requested.or_else(|| resources.limits.get(name)) else { return 0.0 };
    // Thousandths divided are the double nearest to the decimal, as a rule's number is.
    if name == "cpu" { quantity.millis() as f64 / 1000.0 } else { quantity.whole() as f64 }
}

pub(super) fn said(resources: &Resources) -> String {
    format!(
        "cpuLimit {}, cpuRequest {}, memoryLimit {}, memoryRequest {}",
        have(Resource::CpuLimit, resources),
        have(Resource::CpuRequest, resources),
        have(Resource::MemoryLimit, resources),
        have(Resource::MemoryRequest, resources),
    )
}

//! `/debug/stalls`: what the watchdog has not seen move.

use serde::Deserialize;

use crate::analysis::remedy;
use crate::figures::seconds;
use crate::metrics::slug;
use crate::report::{
    Confidence, Evidence, FaultClass, Finding, Level, Resource, ResourceKind, Severity, Since,
};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Stall {
    name: String,
    #[serde(default)]
    critical: bool,
    stalled_ms: f64,
    #[serde(default)]
    fails_liveness: bool,
}

impl Stall {
    pub(super) fn finding(&self, input: &str) -> Finding {
        let Self { name, .. } = self;
        let stalled = seconds(self.stalled_ms / 1000.0);
        let text = format!("{name} has not moved for {stalled}");
        let liveness = "it fails the liveness probe: the kubelet will restart the process";
        Finding {
            id: format!("stall-{}", slug(name)),
            class: FaultClass::Queue,
            severity: if self.critical { Severity::Critical } else { Severity::Serious },
            title: text.clone(),
            resource: Resource {
                kind: ResourceKind::Other,
                name: name.clone(),
                ..Resource::default()
            },
            since: Some(Since { text: format!("stalled for {stalled}"), ..Since::default() }),
            no_holder: Some("the watchdog sees that it stands still, not why".into()),
            remedy: remedy(FaultClass::Queue).into(),
            collect_next: vec![
                "`/debug/inflight` and `/debug/locks`: what it waits on".into(),
                "`/debug/stacks`: where its thread is".into(),
            ],
            evidence: vec![Evidence { input: input.to_owned(), line: None, text }],
            confidence: Confidence {
                level: Level::Certain,
                why: "the watchdog measures it".into(),
            },
            details: if self.fails_liveness { vec![liveness.into()] } else { Vec::new() },
            ..Finding::default()
        }
    }
}

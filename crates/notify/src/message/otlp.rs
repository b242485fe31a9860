//! An event as a log record of OpenTelemetry.

use crate::event::Event;
use crate::otlp::LogRecord;

/// Names of Kubernetes are those of OpenTelemetry's semantic conventions, others begin with `fairlead.`.
pub(crate) fn record(event: &Event) -> LogRecord {
    let mut attributes = vec![
        ("log.record.uid".to_owned(), event.id.clone()),
        ("fairlead.kind".to_owned(), event.kind.to_string()),
        ("k8s.cluster.name".to_owned(), event.cluster.clone()),
    ];
    let optional = [
        ("k8s.namespace.name", &event.namespace),
        ("fairlead.workload", &event.workload),
        ("k8s.pod.name", &event.pod),
    ];
    let named = |(name, value): (&str, &Option<String>)| Some((name.to_owned(), value.clone()?));
    attributes.extend(optional.into_iter().filter_map(named));
    if !event.groups.is_empty() {
        attributes.push(("fairlead.groups".to_owned(), event.groups.join(",")));
    }
    let details = event.details.iter();
    attributes.extend(details.map(|(name, value)| (format!("fairlead.{name}"), value.clone())));
    LogRecord {
        at: event.at,
        level: event.level,
        name: format!("fairlead.{}", event.name),
        body: event.message.clone(),
        attributes,
        numbers: vec![("fairlead.count".to_owned(), event.count)],
    }
}

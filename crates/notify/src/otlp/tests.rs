use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

use super::*;

fn record(level: EventLevel, body: &str) -> LogRecord {
    LogRecord {
        at: "2026-01-02T03:04:05.678901234Z".parse().unwrap(),
        level,
        name: "fairlead.violation.denied".to_owned(),
        body: body.to_owned(),
        attributes: vec![("k8s.namespace.name".to_owned(), "shop".to_owned())],
        numbers: vec![("fairlead.count".to_owned(), 3)],
    }
}

fn text(value: Option<&AnyValue>) -> &str {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Any::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn find<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a AnyValue> {
    attributes.iter().find(|it| it.key == key).and_then(|it| it.value.as_ref())
}

#[test]
fn opentelemetry_reads_the_same_of_protobuf_and_of_json() {
    let levels = [
        (EventLevel::Info, 9),
        (EventLevel::Notice, 10),
        (EventLevel::Warning, 13),
        (EventLevel::Error, 17),
        (EventLevel::Critical, 21),
    ];
    let records = levels.map(|(level, _)| record(level, "two\nlines \u{1b} ünïcödé 🚢 \" \\ {}"));
    let decoded = ExportLogsServiceRequest::decode(&protobuf(&records)[..]).unwrap();
    let read: ExportLogsServiceRequest = serde_json::from_value(json(&records)).unwrap();
    assert_eq!(decoded, read);
    let [logs] = &decoded.resource_logs[..] else { panic!("{decoded:?}") };
    let resource = logs.resource.as_ref().unwrap();
    assert_eq!(text(find(&resource.attributes, "service.name")), "fairlead");
    let [scope] = &logs.scope_logs[..] else { panic!("{logs:?}") };
    assert_eq!(scope.scope.as_ref().unwrap().name, "fairlead");
    assert_eq!(scope.log_records.len(), levels.len());
    for ((read, sent), (_, severity)) in scope.log_records.iter().zip(&records).zip(levels) {
        assert_eq!(read.time_unix_nano, 1_767_323_045_678_901_234);
        assert_eq!((read.severity_number, read.event_name.as_str()), (severity, &*sent.name));
        assert_eq!(text(read.body.as_ref()), sent.body);
        assert_eq!(text(find(&read.attributes, "k8s.namespace.name")), "shop");
        let count = find(&read.attributes, "fairlead.count").unwrap();
        assert_eq!(count.value, Some(Any::IntValue(3)));
    }
}

//! OpenTelemetry's log records, as OTLP 1.x has them: protobuf for a request, JSON for a request or a line of
//! a file (the collector's `otlpjsonfile`).
//!
//! Only the messages that logs need are here, with the numbers of opentelemetry-proto's `logs/v1`,
//! `common/v1`, `resource/v1` and `collector/logs/v1`; a test reads them with the types that OpenTelemetry
//! generates. In JSON, times are decimal strings and enumerations are numbers, as OTLP asks for.

use jiff::Timestamp;
use objects::kinds::EventLevel;
use prost::Message;
use serde_json::{Value, json};

/// The path of logs below the address of a receiver.
pub(crate) const PATH: &str = "/v1/logs";
const SCOPE: &str = "fairlead";

/// One log record, before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    pub at: Timestamp,
    pub level: EventLevel,
    /// What happened, as `violation.denied`.
    pub name: String,
    pub body: String,
    /// Names and texts.
    pub attributes: Vec<(String, String)>,
    /// Names and counts.
    pub numbers: Vec<(String, u64)>,
}

/// OTLP's number and word for a level.
fn severity(level: EventLevel) -> (i32, &'static str) {
    match level {
        EventLevel::Info => (9, "INFO"),
        EventLevel::Notice => (10, "INFO2"),
        EventLevel::Warning => (13, "WARN"),
        EventLevel::Error => (17, "ERROR"),
        EventLevel::Critical => (21, "FATAL"),
    }
}

fn resource() -> [(&'static str, &'static str); 2] {
    [("service.name", SCOPE), ("service.version", env!("CARGO_PKG_VERSION"))]
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

/// An `ExportLogsServiceRequest` in protobuf.
pub fn protobuf(records: &[LogRecord]) -> Vec<u8> {
    let text = |key: &str, value: &str| wire::KeyValue {
        key: key.to_owned(),
        value: Some(wire::AnyValue { value: Some(wire::Any::Text(value.to_owned())) }),
    };
    let number = |key: &str, value: u64| wire::KeyValue {
        key: key.to_owned(),
        value: Some(wire::AnyValue {
            value: Some(wire::Any::Number(i64::try_from(value).unwrap_or(i64::MAX))),
        }),
    };
    let records = records.iter().map(|record| {
        let (number_of_level, word) = severity(record.level);
        let attributes = record.attributes.iter().map(|(key, value)| text(key, value));
        let numbers = record.numbers.iter().map(|(key, value)| number(key, *value));
        let body = wire::Any::Text(record.body.clone());
        wire::LogRecord {
            time_unix_nano: nanoseconds(record.at),
            observed_time_unix_nano: nanoseconds(record.at),
            severity_number: number_of_level,
            severity_text: word.to_owned(),
            body: Some(wire::AnyValue { value: Some(body) }),
            attributes: attributes.chain(numbers).collect(),
            event_name: record.name.clone(),
        }
    });
    let scope =
        wire::Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let logs = wire::ScopeLogs { scope: Some(scope), log_records: records.collect() };
    let attributes = resource().iter().map(|(key, value)| text(key, value)).collect();
    let logs = wire::ResourceLogs {
        resource: Some(wire::Resource { attributes }),
        scope_logs: vec![logs],
    };
    wire::Request { resource_logs: vec![logs] }.encode_to_vec()
}

/// The same as JSON.
pub fn json(records: &[LogRecord]) -> Value {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    // 64-bit numbers are texts in protobuf's JSON.
    let number = |key: &str, value: u64| {
        let value = i64::try_from(value).unwrap_or(i64::MAX).to_string();
        json!({"key": key, "value": {"intValue": value}})
    };
    let records = records.iter().map(|record| {
        let (number_of_level, word) = severity(record.level);
        let attributes = record.attributes.iter().map(|(key, value)| text(key, value));
        let numbers = record.numbers.iter().map(|(key, value)| number(key, *value));
        let at = nanoseconds(record.at).to_string();
        json!({
            "timeUnixNano": at,
            "observedTimeUnixNano": at,
            "severityNumber": number_of_level,
            "severityText": word,
            "eventName": record.name,
            "body": {"stringValue": record.body},
            "attributes": attributes.chain(numbers).collect::<Vec<_>>(),
        })
    });
    let attributes: Vec<_> = resource().iter().map(|(key, value)| text(key, value)).collect();
    json!({"resourceLogs": [{
        "resource": {"attributes": attributes},
        "scopeLogs": [{
            "scope": {"name": SCOPE, "version": env!("CARGO_PKG_VERSION")},
            "logRecords": records.collect::<Vec<_>>(),
        }],
    }]})
}

/// The messages of opentelemetry-proto that logs need.
mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Request {
        #[prost(message, repeated, tag = "1")]
        pub(super) resource_logs: Vec<ResourceLogs>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceLogs {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scope_logs: Vec<ScopeLogs>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeLogs {
        #[prost(message, optional, tag = "1")]
        pub(super) scope: Option<Scope>,
        #[prost(message, repeated, tag = "2")]
        pub(super) log_records: Vec<LogRecord>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Scope {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(string, tag = "2")]
        pub(super) version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LogRecord {
        #[prost(fixed64, tag = "1")]
        pub(super) time_unix_nano: u64,
        #[prost(fixed64, tag = "11")]
        pub(super) observed_time_unix_nano: u64,
        #[prost(int32, tag = "2")]
        pub(super) severity_number: i32,
        #[prost(string, tag = "3")]
        pub(super) severity_text: String,
        #[prost(message, optional, tag = "5")]
        pub(super) body: Option<AnyValue>,
        #[prost(message, repeated, tag = "6")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(string, tag = "12")]
        pub(super) event_name: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct KeyValue {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct AnyValue {
        #[prost(oneof = "Any", tags = "1, 3")]
        pub(super) value: Option<Any>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Any {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(int64, tag = "3")]
        Number(i64),
    }
}

#[cfg(test)]
mod tests;

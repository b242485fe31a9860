use std::error::Error as _;

use kube::core::response::{StatusCause, StatusDetails};

use super::*;
use crate::kinds::Cluster;
use crate::store::Kind;

fn details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

fn answered(code: u16, reason: &str, details: StatusDetails) -> Error {
    let (of, id) = (Type::of::<Cluster>(), Id::cluster("one"));
    let status = Status::failure("so it is", reason).with_code(code).with_details(details);
    Call::on("reading", &of, &id).failed(kube::Error::Api(status.boxed()))
}

fn named() -> StatusDetails {
    StatusDetails { name: "one".to_owned(), kind: "clusters".to_owned(), ..details() }
}

#[test]
fn every_refusal_is_a_value_to_branch_on() {
    assert!(matches!(answered(409, "AlreadyExists", named()), Error::Exists { .. }));
    assert!(matches!(answered(409, "Conflict", named()), Error::Conflict { .. }));
    assert!(matches!(answered(404, "NotFound", named()), Error::NotFound { .. }));
    for code in [401, 403] {
        let Error::Forbidden { doing, why } = answered(code, "", details()) else { panic!() };
        assert_eq!((doing.as_str(), why.as_str()), ("reading Cluster one", "so it is"));
    }
    assert!(matches!(answered(500, "InternalError", details()), Error::Unavailable { .. }));
    assert!(matches!(answered(503, "ServiceUnavailable", details()), Error::Unavailable { .. }));
}

#[test]
fn an_invalid_object_comes_with_the_fields_at_fault() {
    let cause = |field: &str| StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message: "no good".to_owned(),
        field: field.to_owned(),
    };
    let details = StatusDetails { causes: vec![cause("spec.a"), cause("spec.b")], ..named() };
    let Error::Invalid { problems, .. } = answered(422, "Invalid", details) else { panic!() };
    assert_eq!(problems.to_string(), "spec.a: no good; spec.b: no good");

    let Error::Invalid { problems, .. } = answered(400, "BadRequest", self::details()) else {
        panic!()
    };
    assert_eq!(problems.0, [(String::new(), "so it is".to_owned())]);
}

#[test]
fn a_busy_server_says_when_to_come_back() {
    let after = |code, seconds| {
        let details = StatusDetails { retry_after_seconds: seconds, ..details() };
        match answered(code, "", details) {
            Error::Busy { retry_after } => retry_after.as_secs(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(after(429, 7), 7);
    assert_eq!(after(429, 0), 1);
    assert_eq!(after(503, 3), 3);
}

#[test]
fn a_missing_definition_is_not_an_absent_object() {
    let error = answered(404, "Failed to parse error data", details());
    assert_eq!(error.missing_definition(), Some("Cluster"));
    assert_eq!(answered(500, "broken", details()).missing_definition(), None);
    let Error::Unavailable { source, .. } = error else { panic!("{error:?}") };
    let sentence = "the definition of Cluster is not there: run `fairlead install`, or \
                    `fairlead crds | kubectl apply -f -`";
    assert_eq!(source.to_string(), sentence);
}

#[test]
fn what_the_network_does_keeps_its_cause() {
    let (of, id) = (Type::of::<Cluster>(), Id::cluster("one"));
    let broken = kube::Error::ReadEvents(std::io::ErrorKind::BrokenPipe.into());
    let error = Call::on("reading", &of, &id).failed(broken);
    assert_eq!(error.to_string(), "reading Cluster one: the store is not available");
    assert!(error.source().is_some());
    assert_eq!(Cluster::NAME, "Cluster");
}

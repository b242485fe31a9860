use kube::core::response::{StatusCause, StatusDetails};

use super::*;

fn document(api_version: &str, kind: &str) -> Document {
    Document {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: None,
        name: "it".to_owned(),
        object: Value::Null,
    }
}

#[test]
fn what_others_need_comes_first_and_what_calls_us_last() {
    let order = [
        ("v1", "Namespace"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("v1", "Secret"),
        ("apps/v1", "Deployment"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ];
    let steps = order.map(|(api_version, kind)| step(&document(api_version, kind)));
    assert_eq!(steps, [0, 1, 2, 3, 4]);
    assert_eq!(step(&document("example.com/v1", "Namespace")), 3);
}

#[test]
fn a_conflict_names_the_field_and_its_manager() {
    let cause = |reason: &str, message: &str, field: &str| StatusCause {
        reason: reason.to_owned(),
        message: message.to_owned(),
        field: field.to_owned(),
    };
    let status = Status::failure("Apply failed with 1 conflict", "Conflict").with_details(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: vec![
            cause(
                "FieldManagerConflict",
                r#"conflict with "kube-controller-manager" with subresource "scale" using apps/v1"#,
                ".spec.replicas",
            ),
            cause("FieldValueInvalid", "no", ".spec"),
        ],
        retry_after_seconds: 0,
    });
    let expected = Conflict {
        field: ".spec.replicas".to_owned(),
        manager: "kube-controller-manager".to_owned(),
    };
    assert_eq!(conflicts_in(&status), [expected]);
}

#[test]
fn what_a_server_quotes_of_a_secret_is_left_out() {
    let why = "test: Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at \
               input byte 3, error found in #10 byte of ...|{\"k\":\"hunter2\"}|...";
    assert_eq!(
        without_quotation(why),
        "test: Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input \
         byte 3"
    );
}

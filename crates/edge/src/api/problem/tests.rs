use super::*;

#[test]
fn codes_are_told_apart_and_each_refuses() {
    let mut texts: Vec<_> = Code::ALL.iter().map(|code| code.text()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Code::ALL.len());
    assert!(
        Code::ALL
            .iter()
            .all(|code| code.status().is_client_error() || code.status().is_server_error())
    );
}

#[test]
fn a_time_to_come_back_is_rounded_up() {
    let problem = Problem::new(Code::Overloaded, "busy").come_back(Duration::from_millis(1100));
    assert_eq!(problem.body().retry_after_ms, Some(1100));
    let response = problem.into_response();
    assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
}

#[test]
fn what_an_api_server_said_is_passed_on() {
    let status =
        kube::core::Status::failure("pods \"a\" not found", "NotFound").with_code(404).boxed();
    let problem = Problem::from(fleet::Error::Refused { cluster: "prod".to_owned(), status });
    assert_eq!(problem.code, Code::NotFound);
    let body = serde_json::to_value(problem.body()).unwrap();
    assert_eq!(body["cluster"], "prod");
    assert_eq!(body["cause"]["reason"], "NotFound");
    assert_eq!(body["detail"], "prod: pods \"a\" not found");
}

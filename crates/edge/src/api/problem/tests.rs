use super::*;

#[test]
fn a_time_to_come_back_is_rounded_up() {
    let problem =
        Problem::new(ErrorCode::Overloaded, "busy").come_back(Duration::from_millis(1100));
    assert_eq!(problem.body().retry_after_ms, Some(1100));
    let response = problem.into_response();
    assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
}

fn refused(message: &str, reason: &str, code: u16) -> Problem {
    let status = kube::core::Status::failure(message, reason).with_code(code).boxed();
    Problem::from(fleet::Error::Refused { cluster: "prod".to_owned(), status })
}

#[test]
fn what_an_api_server_said_is_passed_on() {
    let problem = refused("pods is forbidden", "Forbidden", 403);
    assert_eq!(problem.code, ErrorCode::Refused);
    let body = serde_json::to_value(problem.body()).unwrap();
    assert_eq!((&body["cluster"], &body["status"]), (&"prod".into(), &403.into()));
    assert_eq!(body["cause"]["reason"], "Forbidden");
    assert_eq!(body["detail"], "prod: pods is forbidden");
}

#[test]
fn of_what_is_not_there_nothing_more_is_said() {
    let problem = refused("pods \"a\" not found", "NotFound", 404);
    assert_eq!(problem.code, ErrorCode::NotFound);
    let body = serde_json::to_value(problem.body()).unwrap();
    assert_eq!(body["detail"], "prod: pods \"a\" not found");
    assert!(body.get("cause").is_none(), "{body}");
}

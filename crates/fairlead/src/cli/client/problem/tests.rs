use super::*;
use crate::output::NO;

fn read(status: u16, body: &str) -> Problem {
    let status = StatusCode::from_u16(status).unwrap();
    Problem::read(status, body.as_bytes(), "http://127.0.0.1:7680")
}

#[test]
fn a_problem_is_its_sentence_and_what_to_do_next() {
    let problem = read(
        404,
        r#"{"type":"urn:fairlead:problem:no-such-cluster","code":"no-such-cluster","title":"No such cluster","status":404,"detail":"there is no cluster prod","requestId":"r1"}"#,
    );
    assert_eq!(
        problem.to_string(),
        "there is no cluster prod\n  `fairlead clusters list` shows the clusters you may see"
    );
    assert_eq!(problem.exit_code(), NO);
}

#[test]
fn a_hint_that_the_server_gave_is_not_repeated() {
    let problem = read(
        404,
        r#"{"code":"no-such-cluster","detail":"there is no cluster x; `fairlead clusters list` shows those there are"}"#,
    );
    assert_eq!(problem.to_string().lines().count(), 1, "{problem}");
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let problem = read(
        429,
        r#"{"code":"slow-down","status":429,"detail":"prod is busy","retryAfterMs":1200}"#,
    );
    assert_eq!(problem.to_string(), "prod is busy\n  try again in 2 s");
    assert_eq!(problem.exit_code(), FAILED);
}

#[test]
fn a_fault_of_the_server_names_the_request() {
    let problem = read(500, r#"{"code":"internal","status":500,"detail":"oh","requestId":"r7"}"#);
    assert!(problem.to_string().contains("r7"), "{problem}");
}

#[test]
fn what_is_no_problem_document_is_told_as_it_came() {
    let problem = read(502, "<html>Bad gateway</html>\nmore");
    assert_eq!(
        problem.to_string(),
        "http://127.0.0.1:7680 answers 502 Bad Gateway: <html>Bad gateway</html>\n  is this a Fairlead server? (--server)"
    );
    assert_eq!(problem.exit_code(), FAILED);
    assert_eq!(read(401, "").code, "unauthenticated");
    assert_eq!(read(429, "").code, "slow-down");
}

#[test]
fn the_answer_no_is_one_and_could_not_is_two() {
    for (code, exit) in [
        ("forbidden", NO),
        ("not-found", NO),
        ("refused", NO),
        ("conflict", NO),
        ("invalid", FAILED),
        ("unauthenticated", FAILED),
        ("not-ready", FAILED),
        ("too-late", FAILED),
        ("audit", FAILED),
    ] {
        let problem = Problem { code: code.to_owned(), ..Problem::default() };
        assert_eq!(problem.exit_code(), exit, "{code}");
    }
}

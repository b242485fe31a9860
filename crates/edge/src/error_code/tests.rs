use std::time::Duration;

use super::*;

#[test]
fn codes_are_told_apart_and_each_refuses() {
    let mut texts: Vec<_> = ErrorCode::ALL.iter().map(|code| code.text()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), ErrorCode::ALL.len());
    for code in ErrorCode::ALL {
        assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        assert_ne!(code.grpc(), tonic::Code::Ok, "{code:?}");
        assert_eq!(ErrorCode::parse(code.text()), Some(*code));
    }
    assert_eq!(ErrorCode::parse("of a later version"), None);
}

/// Clients and scripts depend on these.
#[test]
fn each_code_keeps_its_status_its_grpc_code_and_its_exit_code() {
    let table: String = ErrorCode::ALL
        .iter()
        .map(|code| {
            let (status, grpc) = (code.status().as_u16(), code.grpc());
            format!("{} {status} {grpc:?} {} {:?}\n", code.text(), code.exit_code(), code.outcome())
        })
        .collect();
    let expected = "\
        invalid 400 InvalidArgument 2 Done\n\
        unauthenticated 401 Unauthenticated 2 Done\n\
        forbidden 403 PermissionDenied 1 Done\n\
        csrf 403 PermissionDenied 2 Done\n\
        no-such-cluster 404 NotFound 1 Done\n\
        no-such-kind 404 NotFound 1 Done\n\
        not-found 404 NotFound 1 Done\n\
        exists 409 AlreadyExists 1 Done\n\
        conflict 409 Aborted 1 Done\n\
        outdated 409 FailedPrecondition 1 Done\n\
        refused 502 FailedPrecondition 1 Failed\n\
        not-served 404 FailedPrecondition 1 Done\n\
        too-large 413 OutOfRange 2 Done\n\
        slow-body 408 DeadlineExceeded 2 Expired\n\
        slow-down 429 ResourceExhausted 2 Refused\n\
        internal 500 Internal 2 Failed\n\
        unreachable 502 Unavailable 2 Failed\n\
        overloaded 503 ResourceExhausted 2 Refused\n\
        not-ready 503 Unavailable 2 Failed\n\
        audit 503 Unavailable 2 Refused\n\
        too-late 504 DeadlineExceeded 2 Expired\n";
    assert_eq!(table, expected);
}

#[test]
fn a_time_to_come_back_is_rounded_up_to_whole_seconds() {
    for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2)] {
        assert_eq!(retry_after_seconds(Duration::from_millis(millis)), seconds, "{millis}");
    }
}

#[test]
fn the_documentation_has_every_code_with_its_exit_code() {
    let documented = include_str!("../../../../docs/api.md");
    for code in ErrorCode::ALL {
        let text = format!("`{}`", code.text());
        let mut rows = documented.lines().filter(|line| line.starts_with("| `"));
        let row = rows.find(|row| row.split('|').nth(1).is_some_and(|codes| codes.contains(&text)));
        let exit = row.and_then(|row| row.split('|').nth(4)).map(str::trim);
        assert_eq!(exit, Some(&*code.exit_code().to_string()), "{text}");
    }
}

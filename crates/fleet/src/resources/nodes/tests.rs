use super::*;

fn refused(code: u16) -> Error {
    let status = Status::failure("no", "").with_code(code).boxed();
    Error::Refused { cluster: "test".to_owned(), status }
}

#[test]
fn only_what_may_pass_is_asked_again() {
    assert!(passes(&refused(429)) && passes(&refused(503)));
    assert!(!passes(&refused(403)) && !passes(&refused(422)));
    let late = Error::TooLate { cluster: "test".to_owned(), doing: "waiting".to_owned() };
    assert!(passes(&late));
    assert!(!passes(&Error::Invalid("no".to_owned())));
}

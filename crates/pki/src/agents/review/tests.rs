use super::*;

#[test]
fn a_token_says_when_it_was_given_out() {
    let token = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
    let at = Timestamp::from_second(1_700_000_000).unwrap();
    assert_eq!(issued(&token(r#"{"iat":1700000000}"#)), Some(at));
    for silent in
        [token("{}"), token("no json"), token(r#"{"iat":"x"}"#), "a.%%.b".into(), "a".into()]
    {
        assert_eq!(issued(&silent), None, "{silent}");
    }
}

#[test]
fn a_reviewer_shows_whom_it_takes_and_no_more() {
    let user = UserInfo {
        extra: Some([(NODE.to_owned(), vec!["node-1".to_owned()])].into()),
        ..UserInfo::default()
    };
    assert_eq!(extra(&user, NODE), Some("node-1"));
    assert_eq!(extra(&user, POD), None);
    let empty = UserInfo { extra: Some([(NODE.to_owned(), vec![])].into()), ..UserInfo::default() };
    assert_eq!(extra(&empty, NODE), None);
}

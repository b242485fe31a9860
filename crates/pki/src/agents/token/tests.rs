use proptest::prelude::*;

use super::*;

const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

fn claim(node: Option<&str>) -> Claim {
    let made = Timestamp::from_second(1_800_000_000).unwrap();
    Claim { nonce: Nonce(7), made, until: made + DEFAULT_TTL, node: node.map(str::to_owned) }
}

#[test]
fn what_was_signed_is_read_back_and_only_with_the_same_key() {
    for node in [None, Some("node-1.example.com")] {
        let claim = claim(node);
        let token = claim.sign(KEY, &[9; 32]);
        assert_eq!(Claim::verify(token.expose(), KEY), Some(claim));
        assert_eq!(Claim::verify(token.expose(), b"another"), None);
        assert_eq!(Token::pin(token.expose()), Some([9; 32]));
    }
}

#[test]
fn a_token_is_not_shown() {
    assert_eq!(format!("{:?}", claim(None).sign(KEY, &[0; 32])), "Token");
}

proptest! {
    #[test]
    fn one_changed_character_is_no_token(at in 0usize..200, to in "[A-Za-z0-9_.-]") {
        let token = claim(Some("node-1")).sign(KEY, &[9; 32]);
        let (signed, _) = token.expose().rsplit_once('.').unwrap();
        let at = at % signed.len();
        let mut changed = token.expose().to_owned();
        changed.replace_range(at..=at, &to);
        // Base64's last character of a part may have bits that mean nothing.
        prop_assume!(changed != token.expose());
        let read = Claim::verify(&changed, KEY);
        prop_assert!(read.is_none() || read == Some(claim(Some("node-1"))));
    }

    #[test]
    fn anything_may_be_offered(text in ".{0,200}") {
        prop_assert_eq!(Claim::verify(&text, KEY), None);
        let _ = Token::pin(&text);
    }
}

use super::super::Bearer;
use super::*;

/// A token of a new node, and the name in a node's certificate. A token that was not signed by us is nobody's; one
/// that was says what it says, and its pin is no part of that.
pub fn agent_token(bytes: &[u8]) {
    const KEY: &[u8] = &[7; 32];
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = Token::pin(text);
    assert!(Claim::verify(text, KEY).is_none());
    if let Some(bearer) = Bearer::parse(text) {
        assert!(objects::is_subdomain(&bearer.node) && text.ends_with(&*bearer.node));
        let uri = format!("fairlead:agent:{}:{}", bearer.given.as_millisecond(), bearer.node);
        assert_eq!(Bearer::parse(&uri), Some(bearer));
    }
    // The same words under our signature: what was read is signed as the same.
    let signed = format!("{VERSION}.{}", BASE64.encode(bytes));
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY), signed.as_bytes());
    let (mac, pin) = (BASE64.encode(mac), [1; 32]);
    let token = format!("{signed}.{mac}.{}", BASE64.encode(pin));
    assert_eq!(Token::pin(&token), Some(pin));
    let Some(claim) = Claim::verify(&token, KEY) else { return };
    assert_eq!(Claim::verify(&format!("{signed}.{mac}.other"), KEY).as_ref(), Some(&claim));
    let again = claim.sign(KEY, &pin);
    assert_eq!(again.expose(), token);
    assert!(Claim::verify(again.expose(), &[8; 32]).is_none());
}

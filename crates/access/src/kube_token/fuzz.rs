use super::*;

/// Tokens that we made no proof for, and `authorization: Basic`: nobody is let in.
pub fn kube_token(bytes: &[u8]) {
    thread_local!(static TOKENS: KubeTokens = KubeTokens::new());
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = basic_password(text);
    TOKENS.with(|tokens| {
        assert!(tokens.read(text, Timestamp::UNIX_EPOCH).is_none());
        assert!(tokens.read(&format!("{PREFIX}{text}"), Timestamp::UNIX_EPOCH).is_none());
        // The same words with a proof of ours say what they say, or nothing.
        let proof = URL_SAFE_NO_PAD.encode(hmac::sign(&tokens.0, bytes));
        let signed = format!("{PREFIX}{}.{proof}", URL_SAFE_NO_PAD.encode(bytes));
        if let Some(who) = tokens.read(&signed, Timestamp::UNIX_EPOCH) {
            assert!(text.ends_with(&*who.user));
        }
    });
}

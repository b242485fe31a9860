use super::*;

/// A kubeconfig that somebody sent: it names no file and no program of this machine.
pub fn kubeconfig(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(access) = sent(text, None) else { return };
    assert!(!matches!(access.auth.bearer, Bearer::TokenFile(_) | Bearer::Exec(_)));
    assert!(matches!(access.endpoint.server.scheme_str(), Some("http" | "https")));
    assert!(access.endpoint.server.host().is_some_and(|host| !host.is_empty()));
}

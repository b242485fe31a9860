use super::*;

/// Tokens of the command line: what is read has a plain number, and no proof of ours.
pub fn session_token(bytes: &[u8]) {
    thread_local!(static ROTATION: Rotation = Rotation::new());
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for kind in [TokenKind::Access, TokenKind::Refresh] {
        for text in [text.to_owned(), format!("{}{text}", kind.prefix())] {
            let Some((session, number, proof)) = parse(kind, &text) else { continue };
            assert!(text.starts_with(&format!("{}{}.", kind.prefix(), session.to_base64())));
            assert!(!ROTATION.with(|rotation| rotation.proves(kind, number, proof)));
        }
    }
}

use futures::FutureExt;
use objects::kinds::{EventKind, EventLevel};

use super::*;
use crate::target::Hidden;

/// Submits a mail to a server that says these bytes: with a login if the first one is odd, over a connection that
/// is taken for a secure one.
///
/// The mail was taken only if the server said so, reply by reply.
pub(in super::super) fn submitted(bytes: &[u8]) -> Result<(), DeliveryError> {
    thread_local!(static TLS: Arc<ClientConfig> = tls());
    let (first, said) = bytes.split_first().unwrap_or((&0, bytes));
    let login = (first % 2 == 1).then(|| ("user".to_owned(), Hidden("password".to_owned())));
    let target = MailTarget {
        host: "host".to_owned(),
        port: 25,
        security: MailSecurity::None,
        from: "a@b".to_owned(),
        to: vec!["c@d".to_owned(), "e@f".to_owned()],
        login,
    };
    let event = Event::new(EventKind::Scan, "seen", EventLevel::Warning, "seen");
    let stream = tokio::io::join(std::io::Cursor::new(said.to_vec()), tokio::io::sink());
    let session =
        Session { stream: Box::new(stream), buffer: Vec::new(), host: target.host.clone() };
    let submitting = TLS.with(|tls| {
        Box::pin(submit(session, &target, &event, tls)).now_or_never().expect("nothing waits")
    });
    if submitting.is_ok() {
        let lines = said.split(|byte| *byte == b'\n');
        let last = lines.filter(|line| line.get(3) != Some(&b'-')).map(String::from_utf8_lossy);
        let codes: Vec<u16> = last.map_while(|line| line.get(..3)?.parse().ok()).collect();
        let login: &[u16] = match codes.get(2) {
            _ if target.login.is_none() => &[],
            Some(334) => &[334, 334, 235],
            _ => &[235],
        };
        let wanted = [&[220, 250], login, &[250, 250, 250, 354, 250]].concat();
        let is_right =
            |(said, wanted): (&u16, &u16)| said == wanted || (*said, *wanted) == (251, 250);
        assert!(codes.len() >= wanted.len(), "{codes:?}");
        assert!(codes.iter().zip(&wanted).all(is_right), "{codes:?}");
    }
    submitting
}

fn tls() -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.expect("they are safe").with_root_certificates(rustls::RootCertStore::empty());
    Arc::new(config.with_no_client_auth())
}

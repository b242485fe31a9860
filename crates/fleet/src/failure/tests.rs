use super::*;

#[test]
fn words_of_others_become_one_short_line() {
    assert_eq!(one_line("a\n\n\tb \u{1b}[31mc\r\n", 100), "a b [31mc");
    assert_eq!(one_line("äöü", 2), "äö…");
}

#[test]
fn a_certificate_problem_names_its_fix() {
    let why = |problem| {
        let error = rustls::Error::InvalidCertificate(problem);
        Failure::of_tls(&error, "https://a:6443").why
    };
    let unknown = why(CertificateError::UnknownIssuer);
    assert!(unknown.contains("certificate-authority-data"), "{unknown}");
    let other = why(CertificateError::NotValidForNameContext {
        expected: "a".try_into().unwrap(),
        presented: vec!["DnsName(\"kubernetes\")".to_owned(), "IpAddress(10.0.0.1)".to_owned()],
    });
    assert!(other.contains("is for kubernetes, 10.0.0.1 and not"), "{other}");
    assert!(other.contains("tls-server-name"), "{other}");
    let not_after =
        rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
    let expired = why(CertificateError::ExpiredContext { time: not_after, not_after });
    assert!(expired.contains("expired on 2023-11-14T22:13:20Z"), "{expired}");
}

#[test]
fn a_tls_error_is_found_however_it_is_wrapped() {
    use std::io::{Error, ErrorKind};
    let tls = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    let once = Error::new(ErrorKind::InvalidData, tls());
    let twice = Error::other(Error::new(ErrorKind::InvalidData, tls()));
    assert!(tls_error(&tls()).is_some());
    assert!(tls_error(&once).is_some());
    assert!(tls_error(&twice).is_some());
    assert!(tls_error(&Error::other("something else")).is_none());
}

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::*;

/// Writes a new self-signed pair and returns its certificate. `age` makes each one's time differ.
fn write_pair(dir: &Path, age: u64) -> CertificateDer<'static> {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), pair.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    touch(dir, age);
    pair.cert.der().clone()
}

fn touch(dir: &Path, age: u64) {
    let time = SystemTime::now() - Duration::from_secs(age);
    for name in ["cert.pem", "key.pem"] {
        File::options().write(true).open(dir.join(name)).unwrap().set_modified(time).unwrap();
    }
}

#[test]
fn a_rotated_pair_is_taken_and_a_half_written_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let first = write_pair(dir.path(), 30);
    let certificate = CertificateFiles::load(cert.clone(), key).unwrap();
    let served = || certificate.current.load().certified.cert[0].clone();
    assert_eq!(served(), first);
    assert!(!certificate.refresh().unwrap(), "nothing changed");

    std::fs::write(&cert, "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
    assert!(certificate.refresh().is_err());
    assert_eq!(served(), first, "the old pair stays in use");

    let second = write_pair(dir.path(), 10);
    assert!(certificate.refresh().unwrap());
    assert_eq!(served(), second);
}

#[test]
fn what_cannot_be_used_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let error = CertificateFiles::load(cert.clone(), key.clone()).unwrap_err();
    assert!(error.to_string().contains("cert.pem"), "{error}");
    write_pair(dir.path(), 0);
    std::fs::write(&key, "no key").unwrap();
    let error = CertificateFiles::load(cert.clone(), key.clone()).unwrap_err();
    assert!(error.to_string().contains("key.pem"), "{error}");
    write_pair(dir.path(), 0);
    std::fs::write(&cert, "").unwrap();
    assert!(matches!(CertificateFiles::load(cert, key), Err(TlsError::NoCertificate { .. })));
}

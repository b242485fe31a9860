//! The keys of one API server: its own, and its administrator's.

use std::fs;
use std::io;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// What the administrator holds; PEM, except the token.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) ca: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) token: String,
}

/// The names under which a test, or a proxy in between, may call the server.
const SERVER_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "kubernetes.default.svc"];

impl Credentials {
    /// Makes a CA and what it signs, and leaves in `dir` the files that the server reads: `ca.crt`,
    /// `server.crt`, `server.key`, `service-account.pub`, `service-account.key`, `tokens.csv`.
    pub(crate) fn make(dir: &Path) -> io::Result<Self> {
        let made = generate().expect("P-256 keys and constant names make certificates");
        // A public key is random enough, and needs no crate for random numbers.
        let token = KeyPair::generate().expect("a P-256 key").public_key_raw()[1..17]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        let files = [
            ("ca.crt", &made.ca),
            ("server.crt", &made.server.0),
            ("server.key", &made.server.1),
            ("service-account.pub", &made.service_account.0),
            ("service-account.key", &made.service_account.1),
            ("tokens.csv", &format!("{token},token,token,system:masters\n")),
        ];
        for (name, content) in files {
            fs::write(dir.join(name), content)?;
        }
        Ok(Self { ca: made.ca, certificate: made.admin.0, key: made.admin.1, token })
    }
}

/// PEM; in pairs, the private part second.
struct Made {
    ca: String,
    server: (String, String),
    admin: (String, String),
    service_account: (String, String),
}

fn generate() -> Result<Made, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "testkit");
    let key = KeyPair::generate()?;
    let ca = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);

    let mut server = CertificateParams::new(SERVER_NAMES.map(str::to_owned))?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut admin = CertificateParams::default();
    admin.distinguished_name.push(DnType::CommonName, "admin");
    admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
    admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];

    let service_account = KeyPair::generate()?;
    Ok(Made {
        ca,
        server: sign(&server, &issuer)?,
        admin: sign(&admin, &issuer)?,
        service_account: (service_account.public_key_pem(), service_account.serialize_pem()),
    })
}

/// The certificate and its key.
fn sign(
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
}

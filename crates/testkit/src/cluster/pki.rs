//! The cluster's authority, and what it signs: as kubeadm makes it, but one authority for all.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

/// Files `NAME.crt`, `NAME.key` and `NAME.kubeconfig` in a directory, and the key that signs more.
pub(super) struct Pki {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    ca: String,
}

/// A certificate and its key, PEM.
pub(super) struct Signed {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Pki {
    /// Makes the authority (`ca.crt`, `ca.key`) and the key of service accounts (`sa.pub`, `sa.key`).
    pub(super) fn new(dir: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let key = key();
        let ca = params.self_signed(&key).expect("a constant name makes a certificate").pem();
        let accounts = self::key();
        let pki = Self { dir: dir.to_owned(), ca, issuer: Issuer::new(params, key) };
        pki.write("ca.crt", &pki.ca);
        pki.write("ca.key", &pki.issuer.key().serialize_pem());
        pki.write("sa.key", &accounts.serialize_pem());
        pki.write("sa.pub", &accounts.public_key_pem());
        pki
    }

    pub(super) fn ca(&self) -> &str {
        &self.ca
    }

    /// The path of a file of ours.
    pub(super) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Signs a certificate for the user `user` of the group `group`, or for a server with `names`.
    pub(super) fn sign(
        &self,
        file: &str,
        (user, group): (&str, Option<&str>),
        names: &[&str],
    ) -> Signed {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().expect("a name of ours is ASCII")),
            })
            .collect();
        let key = key();
        let signed =
            params.signed_by(&key, &self.issuer).expect("constant names make certificates");
        let signed = Signed { certificate: signed.pem(), key: key.serialize_pem() };
        self.write(&format!("{file}.crt"), &signed.certificate);
        self.write(&format!("{file}.key"), &signed.key);
        signed
    }

    /// Signs for a client of the API server, writes its kubeconfig, and returns the path of that.
    pub(super) fn client(&self, file: &str, who: (&str, Option<&str>), server: &str) -> String {
        let signed = self.sign(file, who, &[]);
        let name = format!("{file}.kubeconfig");
        self.write(&name, &self.kubeconfig(&signed, server));
        self.path(&name)
    }

    /// JSON, which is YAML.
    pub(super) fn kubeconfig(&self, user: &Signed, server: &str) -> String {
        let data = |pem: &str| BASE64_STANDARD.encode(pem);
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "default",
            "clusters": [{ "name": "default", "cluster": {
                "server": server, "certificate-authority-data": data(&self.ca),
            } }],
            "users": [{ "name": "default", "user": {
                "client-certificate-data": data(&user.certificate),
                "client-key-data": data(&user.key),
            } }],
            "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
        })
        .to_string()
    }

    pub(super) fn write(&self, name: &str, content: &str) {
        let path = self.dir.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("ring makes a P-256 key")
}

/// A secret that nobody guesses. A public key is random enough, and needs no crate for it.
pub(super) fn secret() -> String {
    key().public_key_raw()[1..17].iter().map(|byte| format!("{byte:02x}")).collect()
}

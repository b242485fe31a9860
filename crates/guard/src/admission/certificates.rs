//! `Certificates`: an authority of our own and the certificate that the webhook and the API serve with, in
//! one Secret that every replica reads. The leader makes and renews them ([`super::lead`]), and publishes
//! whom to trust in the ConfigMap [`PUBLISHED`].
//!
//! Contract:
//! - **Trusted before served.** A new authority is in the bundle for [`Lifetimes::overlap`], and at
//!   every API server that can be reached, before a certificate of it is served. An old one stays in
//!   the bundle for as long after the last certificate of it was replaced. So at no moment does an API
//!   server meet a certificate that it does not trust.
//! - One that cannot be reached holds up a rotation, but not into the last tenth of the old
//!   authority's time.
//! - What must be done is a pure function of what is there and of the time ([`next`]).
//! - Private keys are in the Secret and in memory; not in `Debug`, nor in logs or errors.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use objects::{Event, Id, Leader, Objects, Selector, Within};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use serde::{Deserialize, Serialize};
use stallproof::snapshot::Changes;
use stallproof::{Snapshot, Tasks};

use crate::published::keep_published;

/// The Secret's name, and its one key.
const SECRET: &str = "fairlead-admission-certificates";
const KEY: &str = "state.json";
/// The ConfigMap with the bundle, in the Secret's namespace.
pub const PUBLISHED: &str = "fairlead-ca";
/// What tells our Secret from others, so that only it is watched.
const LABEL: (&str, &str) = ("fairlead.dev/admission", "certificates");
/// In the names of its authorities and certificates.
const WHOSE: &str = "admission webhook";
/// For clocks that are late.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// How long things hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    pub authority: Duration,
    pub certificate: Duration,
    /// Longer than the watches and the caches between a write and its last reader.
    pub overlap: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { authority: 730 * DAY, certificate: 90 * DAY, overlap: Duration::from_secs(10 * 60) }
    }
}

/// A private key (PEM), which is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(String);

impl PrivateKey {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Authority {
    /// Its common name; no two have the same.
    name: String,
    /// PEM.
    pub(crate) certificate: String,
    key: PrivateKey,
    since: Timestamp,
    until: Timestamp,
}

/// What is served with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// PEM.
    pub certificate: String,
    pub key: PrivateKey,
    /// The hosts that it is for.
    names: Vec<String>,
    /// Its authority's name.
    by: String,
    since: Timestamp,
    pub until: Timestamp,
}

/// Everything that is in the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Oldest first; never empty.
    authorities: Vec<Authority>,
    pub(crate) serving: Serving,
}

#[derive(Debug, thiserror::Error)]
#[error("a certificate cannot be made")]
pub(crate) struct Unmade(#[from] rcgen::Error);

impl Kept {
    /// Whom an API server is to trust: PEM.
    pub(crate) fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.certificate.as_str()).collect()
    }

    /// The authority of the certificate that is served with.
    pub(crate) fn signer(&self) -> &Authority {
        let by = &self.serving.by;
        self.authorities.iter().find(|authority| authority.name == *by).unwrap_or(self.newest())
    }

    fn new(
        whose: &str,
        names: &[String],
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<Self, Unmade> {
        let authority = Authority::new(whose, lifetimes, now)?;
        let serving = authority.sign(whose, names, lifetimes, now)?;
        Ok(Self { authorities: vec![authority], serving })
    }

    /// Whether it can be used.
    pub(crate) fn is_whole(&self) -> bool {
        !self.authorities.is_empty()
    }

    /// None of what cannot be used, which is then made anew.
    pub(super) fn read(secret: &Secret) -> Option<Self> {
        let state = &secret.data.as_ref()?.get(KEY)?.0;
        let kept: Self = serde_json::from_slice(state).ok()?;
        kept.is_whole().then_some(kept)
    }

    pub(super) fn secret(&self, id: &Id) -> Secret {
        let state = serde_json::to_vec(self).expect("texts and times can be written as JSON");
        let labels = [(LABEL.0.to_owned(), LABEL.1.to_owned())];
        Secret {
            metadata: ObjectMeta {
                name: Some(id.name.clone()),
                namespace: id.namespace.clone(),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), ByteString(state))].into()),
            ..Secret::default()
        }
    }
}

/// What should be kept instead of `kept`, if anything: one step of a rotation. `trusted` is whether
/// every API server that can be reached has the bundle that is kept.
pub(super) fn next(
    kept: Option<&Kept>,
    names: &[String],
    lifetimes: Lifetimes,
    trusted: bool,
    now: Timestamp,
) -> Result<Option<Kept>, Unmade> {
    next_of(WHOSE, kept, names, lifetimes, trusted, now)
}

/// As `next`, for certificates that are in somebody else's Secret.
pub(crate) fn next_of(
    whose: &str,
    kept: Option<&Kept>,
    names: &[String],
    lifetimes: Lifetimes,
    trusted: bool,
    now: Timestamp,
) -> Result<Option<Kept>, Unmade> {
    let Some(kept) = kept.filter(|kept| kept.newest().until > now) else {
        return Kept::new(whose, names, lifetimes, now).map(Some);
    };
    let newest = kept.newest();
    if is_aged(newest.since, newest.until, now) {
        let mut kept = kept.clone();
        kept.authorities.push(Authority::new(whose, lifetimes, now)?);
        return Ok(Some(kept));
    }
    let overlap = SignedDuration::try_from(lifetimes.overlap).unwrap_or(SignedDuration::MAX);
    let Serving { by, since, until, .. } = &kept.serving;
    let signer = kept.authorities.iter().find(|authority| authority.name == *by);
    let signer = signer.filter(|signer| signer.until > now);
    let overlapped = now.duration_since(newest.since) >= overlap;
    let takes_over = signer.is_none_or(|signer| {
        let waited = trusted || is_past(9, 10, signer.since, signer.until, now);
        signer.name != newest.name && overlapped && waited
    });
    let signer = signer.filter(|_| !takes_over).unwrap_or(newest);
    if takes_over || is_aged(*since, *until, now) || kept.serving.names != names {
        let mut next = kept.clone();
        next.serving = signer.sign(whose, names, lifetimes, now)?;
        return Ok(Some(next));
    }
    let unused = kept.authorities.iter().take_while(|authority| authority.name != *by).count();
    if unused > 0 && now.duration_since(*since) >= overlap {
        let mut next = kept.clone();
        next.authorities.drain(..unused);
        return Ok(Some(next));
    }
    Ok(None)
}

/// To be replaced: past two thirds of its time.
fn is_aged(since: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    is_past(2, 3, since, until, now)
}

/// Whether this part of a time is over.
fn is_past(part: i32, of: i32, since: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since) >= until.duration_since(since) / of * part
}

impl Kept {
    fn newest(&self) -> &Authority {
        self.authorities.last().expect("an empty one does not parse and is not made")
    }
}

impl Authority {
    fn new(whose: &str, lifetimes: Lifetimes, now: Timestamp) -> Result<Self, Unmade> {
        let key = KeyPair::generate()?;
        // Named by its key: two of one second are two.
        let id: String =
            key.public_key_raw().iter().rev().take(8).map(|b| format!("{b:02x}")).collect();
        let name = format!("fairlead {whose} {id}");
        let until = now + lifetimes.authority;
        let mut params = Self::params(&name);
        validity(&mut params, now, until);
        let certificate = params.self_signed(&key)?.pem();
        let key = PrivateKey(key.serialize_pem());
        Ok(Self { name, certificate, key, since: now, until })
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, Unmade> {
        Ok(Issuer::new(Self::params(&self.name), KeyPair::from_pem(&self.key.0)?))
    }

    /// A certificate (PEM) for somebody else's key, good for being a client.
    pub(crate) fn certify(
        &self,
        key: &impl PublicKeyData,
        called: &str,
        uri: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<String, Unmade> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, called);
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        validity(&mut params, now, until.min(self.until));
        Ok(params.signed_by(key, &self.issuer()?)?.pem())
    }

    fn sign(
        &self,
        whose: &str,
        names: &[String],
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<Serving, Unmade> {
        let issuer = self.issuer()?;
        let key = KeyPair::generate()?;
        let until = (now + lifetimes.certificate).min(self.until);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, format!("fairlead {whose}"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        validity(&mut params, now, until);
        Ok(Serving {
            certificate: params.signed_by(&key, &issuer)?.pem(),
            key: PrivateKey(key.serialize_pem()),
            names: names.to_vec(),
            by: self.name.clone(),
            since: now,
            until,
        })
    }
}

fn validity(params: &mut CertificateParams, since: Timestamp, until: Timestamp) {
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (at(since - BACKDATED), at(until));
}

/// What the Secret says now. Clones share it.
#[derive(Clone, Debug)]
pub struct Certificates {
    secret: Id,
    /// Written by the watch, read by who serves and by who registers.
    kept: Snapshot<Option<Kept>>,
}

impl Certificates {
    /// Reads them from the Secret in `namespace`, from now on.
    pub fn follow(objects: &Objects, namespace: &str, tasks: &Tasks) -> Self {
        let secret = Id::namespaced(namespace, SECRET);
        let certificates = Self { secret, kept: Snapshot::new(None) };
        let labels = Selector::label(LABEL.0, LABEL.1).expect("a constant");
        let within = Within { namespace: Some(namespace.to_owned()), labels: Some(labels) };
        let mut watch = objects.watch::<Secret>(within);
        let (following, stop) = (certificates.clone(), tasks.stopping());
        tasks.spawn("admission-certificates", async move {
            while let Some(Some(event)) = stop.bound(watch.next()).await {
                following.take(event);
            }
        });
        certificates
    }

    fn take(&self, event: Event<Secret>) {
        let found = match event {
            Event::Restarted(all) => all.into_iter().find(|secret| Id::of(secret) == self.secret),
            Event::Applied(secret) => Some(secret).filter(|secret| Id::of(secret) == self.secret),
            // The leader makes another; until then this one holds.
            Event::Deleted(_) => None,
        };
        if let Some(kept) = found.as_ref().and_then(Kept::read) {
            self.kept.publish(Some(kept));
        }
    }

    pub fn serving(&self) -> Option<Serving> {
        self.kept.read(|kept| kept.as_ref().map(|kept| kept.serving.clone()))
    }

    /// Whom to trust: PEM.
    pub fn bundle(&self) -> Option<String> {
        self.kept.read(|kept| kept.as_ref().map(Kept::bundle))
    }

    pub fn changes(&self) -> CertificateChanges {
        CertificateChanges(self.kept.subscribe())
    }

    pub(super) fn secret(&self) -> &Id {
        &self.secret
    }

    /// Keeps the bundle where everybody may read it, until the term ends.
    pub(super) async fn keep_published(self, leader: Leader) {
        let id = Id { name: PUBLISHED.to_owned(), ..self.secret };
        keep_published(leader, id, self.kept, Kept::bundle).await;
    }
}

/// Tells when certificates change.
#[derive(Debug)]
pub struct CertificateChanges(Changes<Option<Kept>>);

impl CertificateChanges {
    pub async fn changed(&mut self) {
        self.0.changed().await;
    }
}

#[cfg(test)]
mod tests;

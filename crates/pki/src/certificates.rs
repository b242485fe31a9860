//! `Certificates`: an authority of our own and the certificate that the webhook and the API serve with, in
//! one Secret that every replica reads. The leader makes and renews them ([`Certificates::lead`]), and
//! publishes whom to trust in the ConfigMap [`PUBLISHED`].
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
use objects::{Id, Leader, Objects, Pace};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, SanType,
};
use serde::{Deserialize, Serialize};
use stallproof::Tasks;
use stallproof::snapshot::Changes;

use crate::published::publish;
use crate::state::{Renewal, SharedState, State};

/// The ConfigMap with the bundle, in the Secret's namespace.
pub const PUBLISHED: &str = "fairlead-ca";
/// In the names of its authorities and certificates.
const WHOSE: &str = "admission webhook";
/// How often what should be so is looked at, at the least.
const LOOK: Duration = Duration::from_secs(60);
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
}

impl State for Kept {
    const SECRET: &'static str = "fairlead-admission-certificates";
    const LABEL: (&'static str, &'static str) = ("fairlead.dev/admission", "certificates");

    fn is_whole(&self) -> bool {
        !self.authorities.is_empty()
    }
}

/// What should be kept instead of `kept`, if anything: one step of a rotation. `trusted` is whether
/// every API server that can be reached has the bundle that is kept.
fn next(
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
pub struct Certificates(SharedState<Kept>);

impl Certificates {
    /// Reads them from the Secret in `namespace`, from now on.
    pub fn follow(objects: &Objects, namespace: &str, tasks: &Tasks) -> Self {
        Self(SharedState::follow(objects, namespace, tasks))
    }

    pub fn serving(&self) -> Option<Serving> {
        self.0.current().read(|kept| kept.as_ref().map(|kept| kept.serving.clone()))
    }

    /// Whom to trust: PEM.
    pub fn bundle(&self) -> Option<String> {
        self.0.current().read(|kept| kept.as_ref().map(Kept::bundle))
    }

    pub fn changes(&self) -> CertificateChanges {
        CertificateChanges(self.0.current().subscribe())
    }

    /// The Secret that they are in.
    pub fn secret(&self) -> &Id {
        self.0.secret()
    }

    /// Makes, renews and publishes them until the term ends. Returns at once. `trusted` says whether every
    /// API server that can be reached has a bundle; `renewed` hears until when the certificate holds, at
    /// every look.
    pub fn lead(
        &self,
        leader: &Leader,
        names: Vec<String>,
        lifetimes: Lifetimes,
        trusted: impl Fn(&str) -> bool + Send + 'static,
        renewed: impl Fn(Timestamp) + Send + 'static,
    ) {
        let id = Id { name: PUBLISHED.to_owned(), ..self.secret().clone() };
        publish(leader, id, self.0.current(), Kept::bundle);
        // An overlap that is over should be noticed soon after.
        let look = (lifetimes.overlap / 10).clamp(Duration::from_millis(100), LOOK);
        let next = move |kept: Option<&Kept>| {
            if let Some(kept) = kept {
                renewed(kept.serving.until);
            }
            let trusted = kept.is_some_and(|kept| trusted(&kept.bundle()));
            next(kept, &names, lifetimes, trusted, Timestamp::now())
        };
        let renewal = Renewal { objects: leader.objects.clone(), state: self.0.clone(), next };
        let pace = Pace { resync: look, ..Pace::default() };
        leader.reconcile("renew-certificates", self.secret(), pace, renewal);
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

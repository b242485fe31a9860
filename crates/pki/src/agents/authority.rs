//! `Authority`: who is who between agents and controllers, in one Secret that every replica follows.
//! The leader makes and renews it ([`lead`]), and publishes whom to trust in the ConfigMap [`PUBLISHED`];
//! tokens and certificates are given out by any replica,
//! revocations are written by any.
//!
//! Contract:
//! - A node's certificate says its name and when it was given ([`Bearer`]). The node's key never
//!   leaves the node; what comes of it is its public half.
//! - An agent trusts the authorities it was given with its last certificate, and has one that lives
//!   [`LIFETIME`] at most. So a new authority signs what is served only after that time, and an old
//!   one is trusted for as long after: an agent that renews in time notices nothing.
//! - A token counts while it is kept; it is kept from when it is made until it is revoked or expires. How
//!   often a node may enrol is bounded, by each replica.
//! - Revoking a node refuses everything that was given to it before, tokens included, on every replica
//!   as soon as it follows; what is given after holds. It is remembered until all that it speaks of
//!   has expired.
//! - Keys are in the Secret and in memory; not in `Debug`, nor in logs or errors.

mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use objects::{Error, Id, Leader, Objects, Pace, is_subdomain};
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use ring::hmac;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stallproof::snapshot::Changes;
use stallproof::{Deadline, Rates, Tasks};

pub use tokens::{MadeToken, NotMade, NotRevokedToken, TokenRecord};

use super::review::Reviewed;
use super::token::{Claim, LONGEST_TTL, Token};
use crate::certificates::{Kept as Certificates, Lifetimes, PrivateKey, Unmade, next_of};
use crate::published::publish;
use crate::state::{NotChanged, Renewal, SharedState, State};

/// The ConfigMap with the bundle by which an agent knows a controller before it has a certificate.
pub const PUBLISHED: &str = "fairlead-agents-ca";
const WHOSE: &str = "agents";
/// The name that every controller's certificate is for: an agent knows a controller by its
/// authority, not by the address at which it happened to reach it.
pub const SERVER_NAME: &str = "controller.agents.fairlead.dev";
/// Stands for tokens for any node among what is revoked; no node has such a name.
const ANY_NODE: &str = "*";
/// How often a node may enrol: an agent that is started anew enrols anew, if it has lost its certificate.
const ENROLS_AT_ONCE: u32 = 10;
const ENROLS_EVERY: Duration = Duration::from_secs(60);
/// Nodes that enrolled within the last minutes; a token for any node has any name.
const ENROLLING: usize = 16_384;
/// Of a node's certificate, unless set otherwise.
pub const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Everything that is in the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    certificates: Certificates,
    /// Base64; signs tokens.
    token_key: PrivateTokenKey,
    /// What a node was given until then is refused; of [`ANY_NODE`], tokens for any node.
    #[serde(default)]
    revoked: BTreeMap<String, Timestamp>,
    /// The tokens that hold, by id.
    #[serde(default)]
    tokens: BTreeMap<String, TokenRecord>,
}

/// Not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct PrivateTokenKey(String);

impl std::fmt::Debug for PrivateTokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateTokenKey")
    }
}

impl PrivateTokenKey {
    fn new() -> Self {
        let key: Vec<u8> = (0..4).flat_map(|_| super::random().to_be_bytes()).collect();
        Self(STANDARD.encode(key))
    }

    fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.0).unwrap_or_default()
    }

    fn is_whole(&self) -> bool {
        self.bytes().len() == 32
    }
}

impl State for Kept {
    const SECRET: &'static str = "fairlead-agents";
    const LABEL: (&'static str, &'static str) = ("fairlead.dev/agents", "authority");

    fn is_whole(&self) -> bool {
        self.certificates.is_whole() && self.token_key.is_whole()
    }
}

impl Kept {
    fn is_revoked(&self, node: &str, given: Timestamp) -> bool {
        self.revoked.get(node).is_some_and(|until| given <= *until)
    }

    /// For what replicas say to each other. Not the key of tokens, but made of it: no seal is a token.
    fn replicas_key(&self) -> hmac::Key {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.token_key.bytes());
        let made = hmac::sign(&key, b"fairlead: what replicas say to each other");
        hmac::Key::new(hmac::HMAC_SHA256, made.as_ref())
    }

    /// The hash that a token pins.
    fn pin(&self) -> Option<[u8; 32]> {
        let body: String = self
            .certificates
            .signer()
            .certificate
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .collect();
        Some(Sha256::digest(STANDARD.decode(body).ok()?).into())
    }
}

/// What should be kept instead of `kept`, if anything.
fn next(kept: Option<&Kept>, lifetime: Duration, now: Timestamp) -> Result<Option<Kept>, Unmade> {
    let names = [SERVER_NAME.to_owned()];
    // A margin for clocks that differ.
    let overlap = lifetime + Duration::from_secs(60 * 60);
    let lifetimes = Lifetimes { overlap, ..Lifetimes::default() };
    let before = kept.map(|kept| &kept.certificates);
    let certificates = next_of(WHOSE, before, &names, lifetimes, true, now)?;
    let forgotten = now - lifetime.max(LONGEST_TTL) - Duration::from_secs(60 * 60);
    let is_old = |until: &Timestamp| *until < forgotten;
    let is_over = |token: &TokenRecord| token.until < now;
    if certificates.is_none()
        && kept.is_some_and(|kept| {
            !kept.revoked.values().any(is_old) && !kept.tokens.values().any(is_over)
        })
    {
        return Ok(None);
    }
    let mut next = match (kept, certificates) {
        (Some(kept), None) => kept.clone(),
        (Some(kept), Some(certificates)) => Kept { certificates, ..kept.clone() },
        (None, Some(certificates)) => {
            let token_key = PrivateTokenKey::new();
            Kept { certificates, token_key, revoked: BTreeMap::new(), tokens: BTreeMap::new() }
        }
        (None, None) => return Ok(None),
    };
    next.revoked.retain(|_, until| !is_old(until));
    next.tokens.retain(|_, token| !is_over(token));
    Ok(Some(next))
}

/// Whom a certificate speaks of: in the one name that it has, `fairlead:agent:WHEN:NODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    pub node: Arc<str>,
    pub given: Timestamp,
}

impl Bearer {
    fn uri(&self) -> String {
        format!("fairlead:agent:{}:{}", self.given.as_millisecond(), self.node)
    }

    /// Of a name in a certificate that was verified.
    pub fn parse(uri: &str) -> Option<Self> {
        let (given, node) = uri.strip_prefix("fairlead:agent:")?.split_once(':')?;
        let given = Timestamp::from_millisecond(given.parse().ok()?).ok()?;
        is_subdomain(node).then(|| Self { node: node.into(), given })
    }
}

/// A node's certificate, and whom it is to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub authorities: String,
    pub until: Timestamp,
}

/// What a controller is reached with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// PEM: the certificate, then its authority, which who has only a token knows by its hash.
    pub chain: String,
    pub key: PrivateKey,
    /// PEM: whose clients are ours.
    pub authorities: String,
}

/// Why somebody is not certified. Says nothing that helps to guess.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the authority is not there yet; come back in a moment")]
    NotYet,
    #[error("this token is not one of ours; make one with `fairlead agents token`")]
    NotOurs,
    #[error("the token has expired; make another with `fairlead agents token`")]
    Expired,
    #[error("the token is for another node")]
    OtherNode,
    #[error(
        "this was revoked, or given before the node was revoked, or is a token for any node from before \
         some node was; make a token with `fairlead agents token`, or delete the agent's pod for it to be \
         given another of its own"
    )]
    Revoked,
    #[error("the node enrolled too often within the last minutes; come back in {}s", .0.as_secs() + 1)]
    TooOften(Duration),
    #[error("a node's name has 1 to 253 characters of a-z, 0-9, '-' and '.'")]
    BadName,
    #[error("a public key is an uncompressed point of P-256, 65 bytes")]
    BadKey,
    #[error("a token holds for a week at most, and for a second at least")]
    BadTtl,
    #[error("a certificate cannot be made")]
    Unmade,
}

#[derive(Debug, thiserror::Error)]
pub enum NotRevoked {
    #[error("a node's name has 1 to 253 characters of a-z, 0-9, '-' and '.'")]
    BadName,
    #[error("the authority is not there yet; come back in a moment")]
    NotYet,
    #[error("the revocation cannot be kept")]
    Store(#[source] Error),
}

/// A point that somebody sent. One that is on no curve makes a certificate that nobody can use.
struct Point<'a>(&'a [u8]);

impl PublicKeyData for Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// What the Secret says now. Clones share it.
#[derive(Clone, Debug)]
pub struct Authority {
    objects: Objects,
    lifetime: Duration,
    /// Read by every handshake and call.
    state: SharedState<Kept>,
    /// Those of this replica.
    enrolments: Arc<Rates<String>>,
}

impl Authority {
    /// Reads it from the Secret in `namespace`, from now on. Nodes' certificates live for `lifetime`.
    pub fn follow(objects: &Objects, namespace: &str, lifetime: Duration, tasks: &Tasks) -> Self {
        let state = SharedState::follow(objects, namespace, tasks);
        let enrolments = Arc::new(Rates::new(ENROLS_AT_ONCE, ENROLS_EVERY, ENROLLING));
        Self { objects: objects.clone(), lifetime, state, enrolments }
    }

    pub fn serving(&self) -> Option<Serving> {
        self.state.current().read(|kept| {
            let certificates = &kept.as_ref()?.certificates;
            let serving = &certificates.serving;
            Some(Serving {
                chain: format!("{}{}", serving.certificate, certificates.signer().certificate),
                key: serving.key.clone(),
                authorities: certificates.bundle(),
            })
        })
    }

    /// Whether what was given to this bearer still holds. A connection may be older than that.
    pub fn holds(&self, bearer: &Bearer) -> bool {
        let lives = Timestamp::now() < bearer.given + self.lifetime;
        lives
            && self.state.current().read(|kept| {
                kept.as_ref().is_some_and(|kept| !kept.is_revoked(&bearer.node, bearer.given))
            })
    }

    /// Certifies the key of a node that has a token.
    pub async fn enrol(
        &self,
        token: &str,
        node: &str,
        key: &[u8],
        deadline: Deadline,
    ) -> Result<Certified, Refused> {
        if !is_subdomain(node) {
            return Err(Refused::BadName);
        }
        let (kept, now) = (self.state.current().load(), Timestamp::now());
        let kept = kept.as_ref().ok_or(Refused::NotYet)?;
        let claim = Claim::verify(token, &kept.token_key.bytes()).ok_or(Refused::NotOurs)?;
        if claim.until <= now {
            return Err(Refused::Expired);
        }
        if claim.node.as_deref().is_some_and(|only| only != node) {
            return Err(Refused::OtherNode);
        }
        // Whoever was revoked may have a token for any node, and any name is as good as another.
        let for_any = claim.node.is_none() && kept.is_revoked(ANY_NODE, claim.made);
        if for_any || kept.is_revoked(node, claim.made) {
            return Err(Refused::Revoked);
        }
        if !self.is_kept(&claim, kept, deadline).await? {
            return Err(Refused::Revoked);
        }
        self.enrolments.take(node, Instant::now()).map_err(Refused::TooOften)?;
        self.certify(kept, node, key, now)
    }

    /// Certifies the key of a node whose agent's pod has a token of its service account.
    pub fn enrol_pod(
        &self,
        reviewed: &Reviewed,
        node: &str,
        key: &[u8],
    ) -> Result<Certified, Refused> {
        if !is_subdomain(node) {
            return Err(Refused::BadName);
        }
        if reviewed.node != node {
            return Err(Refused::OtherNode);
        }
        let (kept, now) = (self.state.current().load(), Timestamp::now());
        let kept = kept.as_ref().ok_or(Refused::NotYet)?;
        if kept.is_revoked(node, reviewed.issued) {
            return Err(Refused::Revoked);
        }
        self.enrolments.take(node, Instant::now()).map_err(Refused::TooOften)?;
        self.certify(kept, node, key, now)
    }

    /// A mark under `message` that every replica can make and know, and nobody else.
    pub fn seal(&self, message: &[u8]) -> Option<String> {
        let key = self.state.current().read(|kept| kept.as_ref().map(Kept::replicas_key))?;
        Some(URL_SAFE_NO_PAD.encode(hmac::sign(&key, message)))
    }

    pub fn is_sealed(&self, message: &[u8], seal: &str) -> bool {
        let key = self.state.current().read(|kept| kept.as_ref().map(Kept::replicas_key));
        let seal = URL_SAFE_NO_PAD.decode(seal);
        key.zip(seal.ok()).is_some_and(|(key, seal)| hmac::verify(&key, message, &seal).is_ok())
    }

    /// Certifies another key of a node that has a certificate.
    pub fn renew(&self, bearer: &Bearer, key: &[u8]) -> Result<Certified, Refused> {
        let (kept, now) = (self.state.current().load(), Timestamp::now());
        let kept = kept.as_ref().ok_or(Refused::NotYet)?;
        if kept.is_revoked(&bearer.node, bearer.given) {
            return Err(Refused::Revoked);
        }
        self.certify(kept, &bearer.node, key, now)
    }

    fn certify(
        &self,
        kept: &Kept,
        node: &str,
        key: &[u8],
        now: Timestamp,
    ) -> Result<Certified, Refused> {
        if key.len() != 65 || key[0] != 4 {
            return Err(Refused::BadKey);
        }
        let bearer = Bearer { node: node.into(), given: now };
        let until = now + self.lifetime;
        let signer = kept.certificates.signer();
        let certificate = signer
            .certify(&Point(key), node, &bearer.uri(), now, until)
            .map_err(|_| Refused::Unmade)?;
        Ok(Certified { certificate, authorities: kept.certificates.bundle(), until })
    }

    /// Refuses, from now on, everything that `node` was given until now, and every token for any node that
    /// was made until now: its machine may have one.
    pub async fn revoke(&self, node: &str, deadline: Deadline) -> Result<(), NotRevoked> {
        if !is_subdomain(node) {
            return Err(NotRevoked::BadName);
        }
        let revoke = |kept: &mut Kept| {
            let now = Timestamp::now();
            kept.revoked.extend([node, ANY_NODE].map(|whose| (whose.to_owned(), now)));
            kept.tokens.retain(|_, token| token.node.as_deref().is_some_and(|only| only != node));
        };
        let revoked = self.state.change(&self.objects, deadline, revoke).await;
        revoked.map(drop).map_err(|error| match error {
            NotChanged::Store(error) => NotRevoked::Store(error),
            NotChanged::Missing | NotChanged::Unmade(_) => NotRevoked::NotYet,
        })
    }

    pub fn changes(&self) -> AuthorityChanges {
        AuthorityChanges(self.state.current().subscribe())
    }
}

/// Tells when the authority, or what it has revoked, changes.
#[derive(Debug)]
pub struct AuthorityChanges(Changes<Option<Kept>>);

impl AuthorityChanges {
    pub async fn changed(&mut self) {
        self.0.changed().await;
    }
}

/// Keeps the authority until the term ends. Returns at once.
pub fn lead(leader: &Leader, authority: &Authority) {
    let Authority { state, lifetime, .. } = authority.clone();
    let id = Id { name: PUBLISHED.to_owned(), ..state.secret().clone() };
    publish(leader, id, state.current(), |kept| kept.certificates.bundle());
    let key = state.secret().clone();
    let next = move |kept: Option<&Kept>| next(kept, lifetime, Timestamp::now());
    let renewal = Renewal { objects: leader.objects.clone(), state, next };
    leader.reconcile("renew-agents-authority", key, Pace::default(), renewal);
}

#[cfg(test)]
mod tests;

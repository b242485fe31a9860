//! Users of OpenID providers: how they log in, which roles they have, and how it is noticed that they
//! changed.
//!
//! ```text
//! browser ──► begin ──► provider ──► finish (state, code) ──► tokens ──► claims ──► Session
//! CLI ──► begin_device ──► poll_device ──────────────────────► tokens ──► claims ──► Session
//! every few seconds, for users who are active: refresh ──► claims ──► Directory ──► Snapshot
//! ```
//!
//! Contract:
//! - No request of a user who is logged in waits for a provider: roles are in the directory's snapshot,
//!   and a task of its own asks again. A provider that hangs holds up its own logins and nothing else.
//! - Every call to a provider has a deadline, an entry on the ledger, and a place among a bounded number.
//! - A provider that is away ends no session; one that says no does, within its `recheckSeconds`.
//! - Refresh tokens are in memory only.
//!
//! HTTP is brought by the caller ([`Transport`]): this crate does not import it.

mod claims;
mod device;
mod endpoints;
mod jwt;
mod login_state;
mod recheck;
mod visitor;

#[cfg(feature = "fuzzing")]
pub(crate) use jwt::fuzz;

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use objects::kinds::IdentityProvider;
use stallproof::{Deadline, Ledger, Tasks, TrackedMutex};

pub(crate) use claims::UserClaims;
pub use device::{DevicePoll, DeviceStart};
pub use endpoints::CheckStep;
pub(crate) use endpoints::ProviderCalls;
pub(crate) use visitor::Visitors;

use crate::access::Access;
use crate::secret::{Fingerprint, Secret};
use crate::session::OpenedSession;
use crate::session::rotation::CliCredential;
use device::Devices;
use endpoints::{ProviderError, Tokens};
use login_state::{Begun, LoginStates};

/// The path below the API's address to which browsers are sent back.
pub fn callback_path(provider: &str) -> String {
    format!("/auth/oidc/{provider}/callback")
}

/// A call to a provider, for the [`Transport`].
#[derive(Clone, Debug)]
pub struct OutboundRequest {
    pub url: String,
    /// The fields of a POST; none makes it a GET.
    pub form: Option<Vec<(String, Secret)>>,
    pub authorization: Option<Secret>,
    /// The authorities (PEM) of the server; the public ones if none are given.
    pub ca: Option<String>,
}

#[derive(Clone, Debug)]
pub struct OutboundReply {
    pub status: u16,
    pub body: Vec<u8>,
}

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Sends requests to providers. An error is a sentence that says why there was no answer.
pub trait Transport: fmt::Debug + Send + Sync {
    fn send(
        &self,
        request: OutboundRequest,
        deadline: Deadline,
    ) -> BoxFuture<Result<OutboundReply, String>>;
}

/// A provider as the directory has it.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) name: Arc<str>,
    pub(crate) object: IdentityProvider,
    /// Changes with what its users are known by: those of another issuer are others.
    pub(crate) stamp: Fingerprint,
    pub(crate) calls: ProviderCalls,
}

impl Provider {
    pub(crate) fn new(name: &str, object: IdentityProvider) -> Self {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let spec = &object.spec;
        let stamp = Fingerprint::of_all(&[uid, &spec.issuer, &spec.client_id, &spec.user_claim]);
        Self { name: name.into(), stamp, object, calls: ProviderCalls::new() }
    }

    pub(crate) fn recheck(&self) -> Duration {
        Duration::from_secs(self.object.spec.recheck_seconds.into())
    }
}

/// What a provider gave for one session.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) provider: Arc<str>,
    pub(crate) provider_stamp: Fingerprint,
    pub(crate) subject: Arc<str>,
    /// Written and read by the one check that is under way.
    refresh: TrackedMutex<Option<Secret>>,
    /// When the next check is due, in milliseconds since the first one could have been.
    due: AtomicU64,
}

impl Grant {
    fn new(provider: &Provider, subject: &str, refresh: Option<Secret>) -> Self {
        Self {
            provider: Arc::clone(&provider.name),
            provider_stamp: provider.stamp,
            subject: subject.into(),
            refresh: TrackedMutex::new("access oidc grant", refresh),
            due: AtomicU64::new(0),
        }
    }

    pub(crate) fn can_be_checked(&self) -> bool {
        self.refresh.lock().is_some()
    }
}

/// Whom a provider vouches for: what an account of the directory is made of.
#[derive(Clone, Debug)]
pub(crate) struct Federated {
    pub(crate) user: Arc<str>,
    pub(crate) provider: Arc<str>,
    pub(crate) provider_stamp: Fingerprint,
    pub(crate) subject: Arc<str>,
    pub(crate) claims: UserClaims,
}

impl Federated {
    pub(crate) fn stamp(&self) -> Fingerprint {
        Fingerprint::of_all(&[&self.provider_stamp.to_hex(), &self.subject])
    }
}

/// Why somebody is not logged in with a provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    #[error("there is no identity provider {0}; `fairlead oidc providers` shows those there are")]
    NoSuchProvider(String),
    #[error("this process asks no identity providers")]
    NotServed,
    #[error(
        "the identity provider {provider} cannot be asked: {why}; who is logged in stays so, and users \
         of Fairlead's own can log in with their password"
    )]
    Away { provider: String, why: String },
    #[error("too many logins with {provider} are under way; come back in {retry_after:?}")]
    Busy { provider: String, retry_after: Duration },
    /// The provider said no, or the user did there.
    #[error("the identity provider {provider} refused the login: {why}")]
    Refused { provider: String, why: String },
    /// What the provider sent is not believed.
    #[error("the answer of the identity provider {provider} is not accepted: {why}")]
    NotAccepted { provider: String, why: String },
    #[error("this login was not begun here, was used already or is too old; begin again")]
    BadState,
}

impl OidcError {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::NoSuchProvider(_) | Self::NotServed => "no_provider",
            Self::Away { .. } => "provider_away",
            Self::Busy { .. } => "busy",
            Self::Refused { .. } => "provider_refused",
            Self::NotAccepted { .. } => "not_accepted",
            Self::BadState => "bad_state",
        }
    }
}

/// A login that a browser is sent away for.
#[derive(Debug)]
pub struct OidcStart {
    /// Where to.
    pub location: String,
    /// The value of the cookie that the browser has to bring back.
    pub cookie: Secret,
    pub lasts: Duration,
}

/// What a browser brings back from a provider.
#[derive(Debug, Default)]
pub struct OidcAnswer {
    pub state: String,
    pub code: Option<Secret>,
    pub error: Option<String>,
    pub error_description: Option<String>,
    pub issuer: Option<String>,
}

/// What logins with providers need; see the module.
#[derive(Debug)]
pub(crate) struct Federation {
    transport: Arc<dyn Transport>,
    /// The namespace of the clients' secrets.
    namespace: String,
    ledger: Ledger,
    states: LoginStates,
    devices: Devices,
}

/// A user who has shown a provider who they are.
struct Vouched {
    federated: Federated,
    grant: Grant,
}

impl Access {
    /// Lets users of identity providers log in. `namespace` has the Secrets of their clients.
    pub fn federate(
        &self,
        transport: Arc<dyn Transport>,
        namespace: &str,
        ledger: &Ledger,
        tasks: &Tasks,
    ) {
        let federation = Federation {
            transport,
            namespace: namespace.to_owned(),
            ledger: ledger.clone(),
            states: LoginStates::new(),
            devices: Devices::new(),
        };
        if self.0.federation.set(federation).is_ok() {
            recheck::start(self, tasks);
        }
    }

    /// The names of the providers that users can log in with.
    pub fn identity_providers(&self) -> Vec<String> {
        if self.0.federation.get().is_none() {
            return Vec::new();
        }
        let names = |directory: &crate::directory::Directory| {
            directory.providers().map(|provider| provider.name.to_string()).collect()
        };
        let mut names: Vec<String> = self.0.directory.read(names);
        names.sort();
        names
    }

    /// Begins the login of a browser. `redirect_uri` is used unless the provider has one of its own.
    pub async fn begin_oidc(
        &self,
        provider: &str,
        redirect_uri: &str,
        deadline: Deadline,
    ) -> Result<OidcStart, OidcError> {
        let (federation, provider) = self.provider(provider)?;
        let found = federation.discovered(&provider, deadline).await;
        let found = found.map_err(|error| error.of(&provider))?;
        let Begun { cookie, state, nonce, challenge } = federation.states.begin(&provider.name);
        let spec = &provider.object.spec;
        let scopes = format!("openid {}", spec.scopes.join(" "));
        let location = endpoints::with_query(
            &found.authorization_endpoint,
            &[
                ("response_type", "code"),
                ("client_id", &spec.client_id),
                ("redirect_uri", spec.redirect_uri.as_deref().unwrap_or(redirect_uri)),
                ("scope", scopes.trim()),
                ("state", &state),
                ("nonce", &nonce),
                ("code_challenge", &challenge),
                ("code_challenge_method", "S256"),
            ],
        );
        Ok(OidcStart { location, cookie, lasts: login_state::LASTS })
    }

    /// Opens a session by what a browser brings back.
    pub async fn finish_oidc(
        &self,
        provider: &str,
        redirect_uri: &str,
        answer: OidcAnswer,
        cookie: &str,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<OpenedSession, OidcError> {
        let opened = async {
            let vouched =
                self.redeem_code(provider, redirect_uri, answer, cookie, deadline).await?;
            self.open_vouched(vouched, |user, stamp, grant| {
                let opened = self.0.sessions.open(user, stamp, Some(grant), from);
                (opened.id, opened)
            })
        };
        let opened = opened.await;
        self.0.metrics.oidc_login(opened.as_ref().err());
        opened
    }

    async fn redeem_code(
        &self,
        provider: &str,
        redirect_uri: &str,
        answer: OidcAnswer,
        cookie: &str,
        deadline: Deadline,
    ) -> Result<Vouched, OidcError> {
        let (federation, provider) = self.provider(provider)?;
        // First of all: what did not begin here says nothing about anybody.
        let login = federation.states.answer(&provider.name, cookie, &answer.state);
        let login = login.ok_or(OidcError::BadState)?;
        let spec = &provider.object.spec;
        if let Some(error) = answer.error {
            let why = endpoints::said(&error, answer.error_description.as_deref());
            return Err(OidcError::Refused { provider: provider.name.to_string(), why });
        }
        if answer.issuer.is_some_and(|issuer| issuer != spec.issuer) {
            let why = "it comes from another provider".to_owned();
            return Err(OidcError::NotAccepted { provider: provider.name.to_string(), why });
        }
        let code = answer.code.ok_or(OidcError::BadState)?;
        let form = vec![
            ("grant_type".to_owned(), Secret::new("authorization_code")),
            ("code".to_owned(), code),
            (
                "redirect_uri".to_owned(),
                Secret::new(spec.redirect_uri.as_deref().unwrap_or(redirect_uri)),
            ),
            ("code_verifier".to_owned(), login.verifier),
        ];
        let vouched = async {
            let tokens = federation.tokens(self, &provider, form, deadline).await?;
            federation.vouched(&provider, tokens, Some(&login.nonce), deadline).await
        };
        vouched.await.map_err(|error| error.of(&provider))
    }

    /// Opens a session for somebody whom a provider vouches for. The account is made once the session is
    /// there, because an account without a session is removed.
    fn open_vouched<T>(
        &self,
        vouched: Vouched,
        open: impl FnOnce(&Arc<str>, Fingerprint, Grant) -> (crate::identity::SessionId, T),
    ) -> Result<T, OidcError> {
        let Vouched { federated, grant } = vouched;
        let (user, stamp) = (Arc::clone(&federated.user), federated.stamp());
        let provider = federated.provider.to_string();
        let (id, opened) = open(&user, stamp, grant);
        self.0.directory.update(|directory| directory.federate(federated));
        if self.holds(&user, stamp) {
            return Ok(opened);
        }
        self.0.sessions.end(id);
        Err(OidcError::NoSuchProvider(provider))
    }

    /// Asks a provider for a code that a user enters in a browser, for a command line.
    pub async fn begin_device(
        &self,
        provider: &str,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<DeviceStart, OidcError> {
        let (federation, provider) = self.provider(provider)?;
        let start = federation.begin_device(self, &provider, from, deadline).await;
        start.map_err(|error| error.of(&provider))
    }

    /// Asks whether the user has entered the code. The credential is answered once.
    pub async fn poll_device(
        &self,
        handle: &str,
        from: IpAddr,
        deadline: Deadline,
    ) -> Result<DevicePoll, OidcError> {
        let federation = self.0.federation.get().ok_or(OidcError::NotServed)?;
        let polled = async {
            let Some(vouched) = federation.poll_device(self, handle, deadline).await? else {
                return Ok(None);
            };
            let opened = self.open_vouched(vouched, |user, stamp, grant| {
                let opened = self.0.sessions.open_cli(user, stamp, Some(grant), from);
                (opened.session, opened)
            });
            opened.map(Some)
        };
        match polled.await {
            Ok(None) => Ok(DevicePoll::Pending),
            Ok(Some(credential)) => {
                self.0.metrics.oidc_login(None);
                Ok(DevicePoll::LoggedIn(credential))
            }
            Err(error) => {
                self.0.metrics.oidc_login(Some(&error));
                Err(error)
            }
        }
    }

    /// Tries a provider step by step, as far as that goes without a user.
    pub async fn check_provider(
        &self,
        provider: &str,
        deadline: Deadline,
    ) -> Result<Vec<CheckStep>, OidcError> {
        let (federation, provider) = self.provider(provider)?;
        Ok(federation.check(self, &provider, deadline).await)
    }

    fn provider(&self, name: &str) -> Result<(&Federation, Arc<Provider>), OidcError> {
        let federation = self.0.federation.get().ok_or(OidcError::NotServed)?;
        let provider = self.0.directory.read(|directory| directory.provider(name).cloned());
        let provider = provider.ok_or_else(|| OidcError::NoSuchProvider(name.to_owned()))?;
        Ok((federation, provider))
    }
}

impl Federation {
    /// The namespace of the clients' secrets.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Makes a user of a provider's tokens, once they are proven to be its own, for us and current.
    async fn vouched(
        &self,
        provider: &Provider,
        tokens: Tokens,
        nonce: Option<&Secret>,
        deadline: Deadline,
    ) -> Result<Vouched, ProviderError> {
        let refresh = tokens.refresh_token.clone();
        let federated = self.federated(provider, &tokens, nonce, None, deadline).await?;
        let grant = Grant::new(provider, &federated.subject, refresh);
        Ok(Vouched { federated, grant })
    }
}

/// The credential of a command line, however it was logged in.
pub(crate) type Credential = CliCredential;

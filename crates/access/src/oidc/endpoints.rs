//! The endpoints of a provider: what it says of itself, its keys, its tokens.
//!
//! Contract:
//! - Each provider has its own places for calls, those of logins apart from those of rechecks: neither a
//!   provider that hangs nor a flood of logins is in anybody else's way.
//! - What a provider says of itself and its keys are kept while they are fresh; lookups are single-flight.
//!   A token with an unknown key has the keys read again, so often at most.
//! - Endpoints are https, or http on loopback, like the issuer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use objects::Within;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stallproof::fresh::{FreshConfig, LookupError};
use stallproof::ledger::Outcome;
use stallproof::{Deadline, Fresh};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::claims::{Expected, UserClaims};
use super::jwt::{JwtError, KeySet, Unverified};
use super::{Federated, Federation, OidcError, OutboundReply, OutboundRequest, Provider};
use crate::access::Access;
use crate::buckets::{Buckets, Rate};
use crate::secret::Secret;

/// The time for one call. A login makes three.
const CALL: Duration = Duration::from_secs(5);
/// Logins that wait for one provider at once.
const LOGINS: usize = 32;
/// Rechecks of one provider at once: each takes some milliseconds when it is well.
const RECHECKS: usize = 8;
const SOON: Duration = Duration::from_secs(2);
/// How long what a provider says of itself, and its keys, are kept.
const KEPT: Duration = Duration::from_secs(10 * 60);
/// How long the client's secret is kept: a new one is there within this time.
const SECRET_KEPT: Duration = Duration::from_secs(10);
/// How often keys are read again because a token has an unknown one.
const REFETCH: Rate = Rate { burst: 5, every: Duration::from_secs(10) };

/// What belongs to one provider of all that is asked; see the module.
pub(crate) struct ProviderCalls {
    logins: Semaphore,
    rechecks: Arc<Semaphore>,
    discovered: Fresh<(), Discovered, String>,
    keys: Fresh<(), KeySet, String>,
    refetch: Buckets<()>,
    secret: Fresh<(), Secret, String>,
}

/// What a call is for: which places it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Login,
    Recheck,
}

/// What a provider says of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Discovered {
    issuer: String,
    pub(crate) authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    pub(crate) device_authorization_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
}

/// What a token endpoint answers.
#[derive(Deserialize)]
pub(crate) struct Tokens {
    access_token: Option<Secret>,
    id_token: Option<Secret>,
    pub(crate) refresh_token: Option<Secret>,
}

/// Why a call to a provider came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProviderError {
    Away(String),
    Busy {
        retry_after: Duration,
    },
    /// An error of OAuth, with its code.
    Said {
        error: String,
        why: String,
    },
    Refused(String),
    NotAccepted(String),
}

impl ProviderError {
    pub(crate) fn of(self, provider: &Provider) -> OidcError {
        let provider = provider.name.to_string();
        match self {
            Self::Away(why) => OidcError::Away { provider, why },
            Self::Busy { retry_after } => OidcError::Busy { provider, retry_after },
            Self::Said { why, .. } | Self::Refused(why) => OidcError::Refused { provider, why },
            Self::NotAccepted(why) => OidcError::NotAccepted { provider, why },
        }
    }
}

/// A step of a check of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckStep {
    pub step: &'static str,
    pub ok: bool,
    /// What was found, or what is wrong and what to do.
    pub says: String,
}

#[derive(Deserialize)]
struct OauthError {
    error: String,
    error_description: Option<String>,
}

impl ProviderCalls {
    pub(crate) fn new() -> Self {
        let fresh = |name, yes, no| FreshConfig {
            name,
            yes,
            no,
            lookup: CALL,
            answers: 1,
            // One under way, and those that a reset disowned.
            lookups: 4,
        };
        Self {
            logins: Semaphore::new(LOGINS),
            rechecks: Arc::new(Semaphore::new(RECHECKS)),
            discovered: Fresh::new(fresh("oidc-discovery", KEPT, Duration::ZERO)),
            keys: Fresh::new(fresh("oidc-keys", KEPT, Duration::ZERO)),
            refetch: Buckets::new(REFETCH, 1),
            secret: Fresh::new(fresh("oidc-secret", SECRET_KEPT, Duration::ZERO)),
        }
    }

    /// A place for a recheck, if there is one at the moment.
    pub(crate) fn recheck_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.rechecks).try_acquire_owned().ok()
    }
}

impl Federation {
    /// Makes one call within its time and its place.
    async fn call(
        &self,
        provider: &Provider,
        doing: &'static str,
        request: OutboundRequest,
        purpose: Purpose,
        deadline: Deadline,
    ) -> Result<OutboundReply, ProviderError> {
        let _place = match purpose {
            Purpose::Login => {
                let place = provider.calls.logins.try_acquire();
                Some(place.map_err(|_| ProviderError::Busy { retry_after: SOON })?)
            }
            // It has one for all of its calls.
            Purpose::Recheck => None,
        };
        let op = self.ledger.begin("identity-provider", doing, provider.name.to_string());
        let deadline = deadline.within(CALL);
        let sent = deadline.bound(self.transport.send(request, deadline)).await;
        match sent {
            Ok(Ok(reply)) => {
                op.finish(Outcome::Done);
                Ok(reply)
            }
            Ok(Err(why)) => {
                op.finish(Outcome::Failed);
                Err(ProviderError::Away(why))
            }
            Err(_) => {
                op.finish(Outcome::Expired);
                Err(ProviderError::Away(format!("no answer to {doing} in time")))
            }
        }
    }

    /// What the provider says of itself.
    pub(crate) async fn discovered(
        &self,
        provider: &Provider,
        deadline: Deadline,
    ) -> Result<Discovered, ProviderError> {
        let spec = &provider.object.spec;
        let issuer = spec.issuer.clone();
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let request = get(url, spec.ca.clone(), None);
        let transport = Arc::clone(&self.transport);
        let op = self.ledger.begin("identity-provider", "discovery", provider.name.to_string());
        let lookup = move |deadline| async move {
            let reply = transport.send(request, deadline).await?;
            let found: Discovered = read(&reply)?;
            found.check(&issuer)?;
            Ok(Some(found))
        };
        let found = provider.calls.discovered.get(&(), deadline.within(CALL), lookup).await;
        op.finish(if found.is_ok() { Outcome::Done } else { Outcome::Failed });
        looked_up(found, "its description")
    }

    async fn keys(&self, provider: &Provider, deadline: Deadline) -> Result<KeySet, ProviderError> {
        let found = self.discovered(provider, deadline).await?;
        let request = get(found.jwks_uri, provider.object.spec.ca.clone(), None);
        let transport = Arc::clone(&self.transport);
        let op = self.ledger.begin("identity-provider", "keys", provider.name.to_string());
        let lookup = move |deadline| async move {
            let reply: OutboundReply = transport.send(request, deadline).await?;
            if reply.status != 200 {
                return Err(format!("it answered {} for its keys", reply.status));
            }
            KeySet::read(&reply.body).map(Some)
        };
        let keys = provider.calls.keys.get(&(), deadline.within(CALL), lookup).await;
        op.finish(if keys.is_ok() { Outcome::Done } else { Outcome::Failed });
        looked_up(keys, "its keys")
    }

    /// The claims of a token that the provider signed.
    async fn verified(
        &self,
        provider: &Provider,
        token: &Secret,
        deadline: Deadline,
    ) -> Result<Map<String, Value>, ProviderError> {
        let not_accepted = |error: JwtError| ProviderError::NotAccepted(error.to_string());
        let token = Unverified::read(token.expose()).map_err(not_accepted)?;
        match token.verify(&self.keys(provider, deadline).await?) {
            Ok(claims) => Ok(claims),
            Err(JwtError::UnknownKey) if provider.calls.refetch.take(&()).is_ok() => {
                provider.calls.keys.reset(&());
                let keys = self.keys(provider, deadline).await?;
                token.verify(&keys).map_err(not_accepted)
            }
            Err(error) => Err(not_accepted(error)),
        }
    }

    /// Whom the provider's tokens are about. `subject` is who they must be about, if that is known.
    pub(crate) async fn federated(
        &self,
        provider: &Provider,
        tokens: &Tokens,
        nonce: Option<&Secret>,
        subject: Option<&str>,
        deadline: Deadline,
    ) -> Result<Federated, ProviderError> {
        let spec = &provider.object.spec;
        let not_accepted = |why: &str| ProviderError::NotAccepted(why.to_owned());
        let mut of_token = Map::new();
        let mut known = subject.map(str::to_owned);
        if let Some(id_token) = &tokens.id_token {
            of_token = self.verified(provider, id_token, deadline).await?;
            let expected = Expected {
                issuer: &spec.issuer,
                client_id: &spec.client_id,
                nonce: nonce.map(Secret::expose),
                now: Timestamp::now(),
            };
            let named = expected.check(&of_token).map_err(ProviderError::NotAccepted)?;
            if subject.is_some_and(|subject| subject != named) {
                return Err(not_accepted("it is about somebody else than before"));
            }
            known = Some(named);
        }
        let known = known.ok_or_else(|| not_accepted("it sent no ID token"))?;
        let mut claims = UserClaims::of(&[&of_token]);
        if !claims.has(&spec.groups_claim) || !claims.has(&spec.user_claim) {
            let purpose = if subject.is_some() { Purpose::Recheck } else { Purpose::Login };
            let more = self.user_info(provider, tokens, purpose, deadline).await?;
            if let Some(more) = more {
                if more.get("sub").and_then(Value::as_str) != Some(&known) {
                    return Err(not_accepted("what it says of the user is about somebody else"));
                }
                claims = UserClaims::of(&[&of_token, &more]);
            }
        }
        let user = claims.user(&provider.name, &spec.user_claim);
        Ok(Federated {
            user: user.map_err(ProviderError::Refused)?,
            provider: Arc::clone(&provider.name),
            provider_stamp: provider.stamp,
            subject: known.into(),
            claims,
        })
    }

    async fn user_info(
        &self,
        provider: &Provider,
        tokens: &Tokens,
        purpose: Purpose,
        deadline: Deadline,
    ) -> Result<Option<Map<String, Value>>, ProviderError> {
        let found = self.discovered(provider, deadline).await?;
        let (Some(url), Some(token)) = (found.userinfo_endpoint, &tokens.access_token) else {
            return Ok(None);
        };
        let bearer = Secret::new(format!("Bearer {}", token.expose()));
        let request = get(url, provider.object.spec.ca.clone(), Some(bearer));
        let reply = self.call(provider, "user info", request, purpose, deadline).await?;
        read(&reply).map(Some).map_err(ProviderError::Away)
    }

    /// Asks the token endpoint.
    pub(crate) async fn tokens(
        &self,
        access: &Access,
        provider: &Provider,
        form: Vec<(String, Secret)>,
        deadline: Deadline,
    ) -> Result<Tokens, ProviderError> {
        self.tokens_for(access, provider, form, Purpose::Login, deadline).await
    }

    pub(crate) async fn tokens_for(
        &self,
        access: &Access,
        provider: &Provider,
        form: Vec<(String, Secret)>,
        purpose: Purpose,
        deadline: Deadline,
    ) -> Result<Tokens, ProviderError> {
        let found = self.discovered(provider, deadline).await?;
        self.post(access, provider, &found.token_endpoint, form, purpose, deadline).await
    }

    /// Posts a form as the provider's client.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        access: &Access,
        provider: &Provider,
        url: &str,
        mut form: Vec<(String, Secret)>,
        purpose: Purpose,
        deadline: Deadline,
    ) -> Result<T, ProviderError> {
        let found = self.discovered(provider, deadline).await?;
        let spec = &provider.object.spec;
        let secret = self.client_secret(access, provider, deadline).await?;
        let methods = &found.token_endpoint_auth_methods_supported;
        let has = |method: &str| methods.iter().any(|has| has == method);
        let mut authorization = None;
        match secret {
            Some(secret) if has("client_secret_post") && !has("client_secret_basic") => {
                form.push(("client_id".to_owned(), Secret::new(&spec.client_id)));
                form.push(("client_secret".to_owned(), secret));
            }
            Some(secret) => {
                let pair = format!("{}:{}", encode(&spec.client_id), encode(secret.expose()));
                authorization = Some(Secret::new(format!("Basic {}", STANDARD.encode(pair))));
            }
            None => form.push(("client_id".to_owned(), Secret::new(&spec.client_id))),
        }
        let ca = spec.ca.clone();
        let request = OutboundRequest { url: url.to_owned(), form: Some(form), authorization, ca };
        let reply = self.call(provider, "tokens", request, purpose, deadline).await?;
        if reply.status == 200 {
            let answer = serde_json::from_slice(&reply.body);
            return answer.map_err(|_| ProviderError::Away("its answer is not JSON".to_owned()));
        }
        match serde_json::from_slice::<OauthError>(&reply.body) {
            // A server that fails says nothing about the user.
            Ok(OauthError { error, error_description }) if reply.status < 500 => {
                let why = said(&error, error_description.as_deref());
                Err(ProviderError::Said { error, why })
            }
            _ => Err(ProviderError::Away(format!("it answered {}", reply.status))),
        }
    }

    /// The client's secret; none for a public client.
    async fn client_secret(
        &self,
        access: &Access,
        provider: &Provider,
        deadline: Deadline,
    ) -> Result<Option<Secret>, ProviderError> {
        let Some(wanted) = provider.object.spec.client_secret.clone() else { return Ok(None) };
        let (objects, namespace) = (access.0.objects.clone(), self.namespace.clone());
        let lookup = move |deadline| async move {
            let missing = format!(
                "the Secret {namespace}/{} has no key {} with its client's secret; create it",
                wanted.name, wanted.key
            );
            // Listed and not got: what Fairlead's account may do with the Secrets of its namespace.
            let within = Within { namespace: Some(namespace), ..Within::default() };
            let all = objects.list::<KubeSecret>(&within, deadline).await;
            let all = all.map_err(|error| stallproof::sentence(&error))?;
            let named =
                |secret: &&KubeSecret| secret.metadata.name.as_deref() == Some(&wanted.name);
            let found = all.items.iter().find(named).and_then(|secret| secret.data.as_ref());
            let text =
                found.and_then(|data| String::from_utf8(data.get(&wanted.key)?.0.clone()).ok());
            let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
            text.map(|text| Some(Secret::new(text))).ok_or(missing)
        };
        let found = provider.calls.secret.get(&(), deadline.within(CALL), lookup).await;
        looked_up(found, "its client's secret").map(Some)
    }

    /// Tries what can be tried without a user.
    pub(crate) async fn check(
        &self,
        access: &Access,
        provider: &Provider,
        deadline: Deadline,
    ) -> Vec<CheckStep> {
        let mut steps = Vec::new();
        let says = |error: ProviderError| match error {
            ProviderError::Away(why)
            | ProviderError::Said { why, .. }
            | ProviderError::Refused(why)
            | ProviderError::NotAccepted(why) => why,
            ProviderError::Busy { .. } => "too many calls are under way; try again".to_owned(),
        };
        let mut step = |step, result: Result<String, String>| {
            let ok = result.is_ok();
            steps.push(CheckStep { step, ok, says: result.unwrap_or_else(|why| why) });
            ok
        };
        provider.calls.discovered.reset(&());
        provider.calls.keys.reset(&());
        provider.calls.secret.reset(&());
        let found = match self.discovered(provider, deadline).await {
            Ok(found) => found,
            Err(error) => {
                step("discovery", Err(says(error)));
                return steps;
            }
        };
        step("discovery", Ok(format!("{} describes itself", found.issuer)));
        let pkce = found.code_challenge_methods_supported.iter().any(|method| method == "S256");
        step(
            "pkce",
            if pkce || found.code_challenge_methods_supported.is_empty() {
                Ok("S256".to_owned())
            } else {
                Err("it does not take S256, which every login here uses".to_owned())
            },
        );
        let keys = self.keys(provider, deadline).await;
        step("keys", keys.map(|keys| keys.to_string()).map_err(says));
        let secret = self.client_secret(access, provider, deadline).await;
        let secret_ok = step(
            "client secret",
            match secret {
                Ok(Some(_)) => Ok("found".to_owned()),
                Ok(None) => Ok("none: a public client".to_owned()),
                Err(error) => Err(says(error)),
            },
        );
        if secret_ok {
            // A code that cannot exist: who is not known as a client is told so before that.
            let form = vec![
                ("grant_type".to_owned(), Secret::new("refresh_token")),
                ("refresh_token".to_owned(), Secret::new("none")),
            ];
            let told = self.tokens(access, provider, form, deadline).await;
            step(
                "client",
                match told {
                    Err(ProviderError::Said { error, .. }) if error == "invalid_grant" => {
                        Ok(format!("{} is known there", provider.object.spec.client_id))
                    }
                    Err(error) => Err(says(error)),
                    Ok(_) => Err("it gives tokens for anything".to_owned()),
                },
            );
        }
        step(
            "command lines",
            match &found.device_authorization_endpoint {
                Some(_) => Ok("device authorization is offered".to_owned()),
                None => {
                    Err("it offers no device authorization: `fairlead login` cannot use it"
                        .to_owned())
                }
            },
        );
        let mapped = access.0.directory.read(|directory| directory.mappings_of(&provider.name));
        step(
            "mappings",
            if mapped == 0 {
                Err("no mapping gives its users a role: `fairlead oidc map --help`".to_owned())
            } else {
                Ok(format!("{mapped} give roles to its users"))
            },
        );
        steps
    }
}

impl Discovered {
    fn check(&self, issuer: &str) -> Result<(), String> {
        if self.issuer != issuer {
            return Err(format!(
                "it calls itself {:?}, not {issuer:?}: the issuer must be written as it is there",
                self.issuer
            ));
        }
        let endpoints = [
            Some(&self.authorization_endpoint),
            Some(&self.token_endpoint),
            Some(&self.jwks_uri),
            self.userinfo_endpoint.as_ref(),
            self.device_authorization_endpoint.as_ref(),
        ];
        // The issuer was checked: with https nothing of it may lead elsewhere.
        let scheme = if issuer.starts_with("https://") { "https://" } else { "http" };
        match endpoints.into_iter().flatten().find(|url| !url.starts_with(scheme)) {
            Some(url) => Err(format!("its endpoint {url:?} is not {scheme}")),
            None => Ok(()),
        }
    }
}

fn get(url: String, ca: Option<String>, authorization: Option<Secret>) -> OutboundRequest {
    OutboundRequest { url, form: None, authorization, ca }
}

fn read<T: DeserializeOwned>(reply: &OutboundReply) -> Result<T, String> {
    if reply.status != 200 {
        return Err(format!("it answered {}", reply.status));
    }
    serde_json::from_slice(&reply.body)
        .map_err(|error| format!("its answer is not understood: {error}"))
}

fn looked_up<T: Clone>(
    found: Result<stallproof::fresh::CachedAnswer<T>, LookupError<String>>,
    what: &str,
) -> Result<T, ProviderError> {
    match found {
        Ok(answer) => {
            let value =
                answer.value.ok_or_else(|| ProviderError::Away(format!("{what} is not there")))?;
            Ok((*value).clone())
        }
        Err(LookupError::Failed(why)) => Err(ProviderError::Away((*why).clone())),
        Err(LookupError::Busy { retry_after }) => Err(ProviderError::Busy { retry_after }),
        Err(_) => Err(ProviderError::Away(format!("{what} did not come in time"))),
    }
}

/// An error of OAuth as a sentence. It comes from elsewhere, so that it is cut.
pub(crate) fn said(error: &str, description: Option<&str>) -> String {
    let plain =
        |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(200).collect() };
    match description {
        Some(description) => format!("{} ({})", plain(description), plain(error)),
        None => plain(error),
    }
}

/// Adds a query to a URL that may have one.
pub(crate) fn with_query(url: &str, pairs: &[(&str, &str)]) -> String {
    let mut text = url.to_owned();
    for (name, value) in pairs {
        text.push(if text.contains('?') { '&' } else { '?' });
        text += &format!("{}={}", encode(name), encode(value));
    }
    text
}

/// Percent-encodes all but RFC 3986's unreserved characters.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

impl fmt::Debug for ProviderCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderCalls").finish_non_exhaustive()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

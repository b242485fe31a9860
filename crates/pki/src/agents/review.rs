//! `TokenReviewer`: which node a pod with a service account's token is the agent of, as the API server
//! says it.
//!
//! Contract:
//! - A token counts if the API server knows it, it was given out for [`AUDIENCE`], and it is one of the
//!   agents' service account. What is shown to us is of no use elsewhere, nor the other way round.
//! - The node is that of the pod which the token is bound to: the API server says so itself (1.30 and
//!   later), or names the pod, which is looked up. An agent cannot choose it.
//! - Every call ends at its deadline.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use stallproof::Deadline;

/// Whom an agent's token is for.
pub const AUDIENCE: &str = "fairlead-agents";
/// For both questions together.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the API server says of a token that is bound to a pod.
const NODE: &str = "authentication.kubernetes.io/node-name";
const POD: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// What a token that counts says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewed {
    pub node: String,
    /// When it was given out, to the second; what does not say so is as old as can be.
    pub issued: Timestamp,
}

/// Why a token does not count.
#[derive(Debug, thiserror::Error)]
pub enum NotReviewed {
    #[error(
        "the API server does not know this token{0}; is it this cluster's, and for the audience {AUDIENCE}?"
    )]
    Unknown(String),
    #[error("the token is of {user}; agents are {wanted} (agents.service-account)")]
    OtherAccount { user: String, wanted: String },
    #[error("the token is bound to no pod; agents take a projected one (serviceAccountToken)")]
    Unbound,
    #[error("the pod {0} that the token is bound to is gone, or on no node yet")]
    NoPod(String),
    #[error("the API server cannot be asked about the token")]
    Unavailable(#[source] Box<kube::Error>),
    #[error("the API server did not say in time whose the token is")]
    TooLate,
}

/// Asks the API server of the store about tokens. Clones are cheap.
#[derive(Clone)]
pub struct TokenReviewer {
    client: kube::Client,
    namespace: String,
    account: String,
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviewer").field("user", &self.user()).finish_non_exhaustive()
    }
}

impl TokenReviewer {
    /// Takes tokens of the service account `account` in `namespace`.
    pub fn new(client: kube::Client, namespace: &str, account: &str) -> Self {
        Self { client, namespace: namespace.to_owned(), account: account.to_owned() }
    }

    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    /// Which node the bearer of `token` is the agent of.
    pub async fn review(&self, token: &str, deadline: Deadline) -> Result<Reviewed, NotReviewed> {
        let asked = deadline.within(PATIENCE).bound(self.ask(token)).await;
        asked.unwrap_or(Err(NotReviewed::TooLate))
    }

    async fn ask(&self, token: &str) -> Result<Reviewed, NotReviewed> {
        if !looks_like_one(token) {
            return Err(NotReviewed::Unknown(String::new()));
        }
        let spec =
            TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: token.to_owned() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.client.clone());
        let made = api.create(&PostParams::default(), &review).await;
        let status = made.map_err(unavailable)?.status.unwrap_or_default();
        let audiences = status.audiences.unwrap_or_default();
        if status.authenticated != Some(true) || !audiences.iter().any(|it| it == AUDIENCE) {
            let why = status.error.map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(NotReviewed::Unknown(why));
        }
        let user = status.user.unwrap_or_default();
        let name = user.username.clone().unwrap_or_default();
        if name != self.user() {
            return Err(NotReviewed::OtherAccount { user: name, wanted: self.user() });
        }
        let node = match extra(&user, NODE) {
            Some(node) => node.to_owned(),
            None => self.node_of_pod(&user).await?,
        };
        Ok(Reviewed { node, issued: issued(token).unwrap_or(Timestamp::MIN) })
    }

    /// For servers that name the pod alone. Another pod may have its name by now.
    async fn node_of_pod(&self, user: &UserInfo) -> Result<String, NotReviewed> {
        let (Some(name), Some(uid)) = (extra(user, POD), extra(user, POD_UID)) else {
            return Err(NotReviewed::Unbound);
        };
        let api = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let found = api.get_opt(name).await.map_err(unavailable)?;
        let pod = found.filter(|pod| pod.metadata.uid.as_deref() == Some(uid));
        let node = pod.and_then(|pod| pod.spec?.node_name).filter(|node| !node.is_empty());
        node.ok_or_else(|| NotReviewed::NoPod(format!("{}/{name}", self.namespace)))
    }
}

/// Whether it is worth a question: three parts, each of them there.
fn looks_like_one(token: &str) -> bool {
    token.split('.').filter(|part| !part.is_empty()).count() == 3
}

fn unavailable(error: kube::Error) -> NotReviewed {
    NotReviewed::Unavailable(Box::new(error))
}

fn extra<'a>(user: &'a UserInfo, key: &str) -> Option<&'a str> {
    let values = user.extra.as_ref()?.get(key)?;
    values.first().map(String::as_str).filter(|value| !value.is_empty())
}

/// When a token was given out, by its own words. Only of one that the API server knows: it is not
/// verified here.
fn issued(token: &str) -> Option<Timestamp> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("iat")?.as_i64()?).ok()
}

#[cfg(test)]
mod tests;

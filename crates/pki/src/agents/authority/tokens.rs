//! The tokens that a node may enrol with: each is kept, without its secret, from when it is made until it
//! is revoked or expires. One that is not kept is worth nothing.

use super::*;
use crate::agents::token::Nonce;

/// Tokens at once. One is for setting up a node or some nodes, and lives for a week at most.
const MOST: usize = 1024;

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The one node that may use it; none is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub made: Timestamp,
    pub until: Timestamp,
    /// Who made it.
    pub by: String,
}

/// Why a token was not made.
#[derive(Debug, thiserror::Error)]
pub enum NotMade {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("there are {MOST} tokens already; revoke some (`fairlead agents tokens list`)")]
    TooMany,
    #[error("the token cannot be kept")]
    Store(#[source] Error),
}

/// Why a token was not revoked.
#[derive(Debug, thiserror::Error)]
pub enum NotRevokedToken {
    #[error("there is no token {0}; it may have expired, or was revoked before")]
    Unknown(String),
    #[error("the authority is not there yet; come back in a moment")]
    NotYet,
    #[error("the revocation cannot be kept")]
    Store(#[source] Error),
}

impl From<NotChanged> for NotRevokedToken {
    fn from(error: NotChanged) -> Self {
        match error {
            NotChanged::Store(error) => Self::Store(error),
            NotChanged::Missing | NotChanged::Unmade(_) => Self::NotYet,
        }
    }
}

/// A token that was made.
#[derive(Clone, Debug)]
pub struct MadeToken {
    pub id: String,
    pub token: Token,
    pub record: TokenRecord,
}

impl Authority {
    /// A token for `node`, or for any, made by `by`. It is kept before it is handed out.
    pub async fn make_token(
        &self,
        node: Option<&str>,
        ttl: Duration,
        by: &str,
        deadline: Deadline,
    ) -> Result<MadeToken, NotMade> {
        if node.is_some_and(|node| !is_subdomain(node)) {
            return Err(Refused::BadName.into());
        }
        if ttl > LONGEST_TTL || ttl < Duration::from_secs(1) {
            return Err(Refused::BadTtl.into());
        }
        let (made, nonce) = (Timestamp::now(), Nonce::new());
        let claim = Claim { nonce, made, until: made + ttl, node: node.map(str::to_owned) };
        let (id, until) = (nonce.id(), claim.until);
        let record = TokenRecord { node: claim.node.clone(), made, until, by: by.to_owned() };
        let keep = |kept: &mut Kept| {
            kept.tokens.retain(|_, token| token.until > made);
            if kept.tokens.len() < MOST {
                kept.tokens.insert(id.clone(), record.clone());
            }
        };
        let changed = self.state.change(&self.objects, deadline, keep).await;
        let kept = changed.map_err(|error| match error {
            NotChanged::Store(error) => NotMade::Store(error),
            NotChanged::Missing | NotChanged::Unmade(_) => Refused::NotYet.into(),
        })?;
        if !kept.tokens.contains_key(&id) {
            return Err(NotMade::TooMany);
        }
        let pin = kept.pin().ok_or(Refused::NotYet)?;
        let token = claim.sign(&kept.token_key.bytes(), &pin);
        Ok(MadeToken { id, token, record })
    }

    /// The tokens that a node may enrol with, by id; none before there is an authority.
    pub fn tokens(&self) -> Option<Vec<(String, TokenRecord)>> {
        let now = Timestamp::now();
        self.state.current().read(|kept| {
            let lives = kept.as_ref()?.tokens.iter().filter(|(_, token)| token.until > now);
            Some(lives.map(|(id, token)| (id.clone(), token.clone())).collect())
        })
    }

    /// Refuses the token from now on. What nodes were given for it holds: revoke those nodes, too.
    pub async fn revoke_token(&self, id: &str, deadline: Deadline) -> Result<(), NotRevokedToken> {
        let known = self.state.read_now(&self.objects, deadline).await?;
        let known = known.ok_or(NotRevokedToken::NotYet)?;
        if known.tokens.get(id).is_none_or(|token| token.until <= Timestamp::now()) {
            return Err(NotRevokedToken::Unknown(id.to_owned()));
        }
        let forget = |kept: &mut Kept| {
            kept.tokens.remove(id);
        };
        self.state.change(&self.objects, deadline, forget).await?;
        Ok(())
    }

    /// Whether a genuine token is among those that are kept. Another replica may have made it a moment
    /// ago, so what is not known here is looked up.
    pub(super) async fn is_kept(
        &self,
        claim: &Claim,
        known: &Kept,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        let id = claim.nonce.id();
        if known.tokens.contains_key(&id) {
            return Ok(true);
        }
        let now =
            self.state.read_now(&self.objects, deadline).await.map_err(|_| Refused::NotYet)?;
        Ok(now.is_some_and(|kept| kept.tokens.contains_key(&id)))
    }
}

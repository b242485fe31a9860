//! Users of providers at another replica: a replica that asks another one on behalf of such a user says
//! who that is, because no store has them.
//!
//! Contract: what is said comes sealed by a replica, as its name does without this. It counts for
//! [`LASTS`], of [`MOST`] users; what this replica knows itself of a user counts more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use stallproof::TrackedMutex;
use tokio::time::Instant;

use super::{Federated, UserClaims};
use crate::access::Access;
use crate::identity::Identity;

/// A request between replicas is shorter.
const LASTS: Duration = Duration::from_secs(60);
const MOST: usize = 4096;
/// What fits in a header beside others. A user with more groups is answered by each replica alone.
const LONGEST: usize = 16 << 10;

/// What a replica says of a user.
#[derive(Deserialize, Serialize)]
struct Introduction {
    provider: String,
    subject: String,
    claims: BTreeMap<String, Vec<String>>,
}

/// The users whom other replicas have named, and until when.
#[derive(Debug)]
pub(crate) struct Visitors(TrackedMutex<HashMap<Arc<str>, Instant>>);

impl Visitors {
    pub(crate) fn new() -> Self {
        Self(TrackedMutex::new("access visitors", HashMap::new()))
    }

    pub(crate) fn has(&self, user: &str) -> bool {
        self.0.lock().get(user).is_some_and(|until| Instant::now() < *until)
    }

    fn add(&self, user: &Arc<str>) {
        let now = Instant::now();
        let mut all = self.0.lock();
        if all.len() >= MOST {
            all.retain(|_, until| now < *until);
        }
        if all.len() < MOST || all.contains_key(user) {
            all.insert(Arc::clone(user), now + LASTS);
        }
    }
}

impl Access {
    /// The name of a user for another replica; for one of a provider with what that replica has to know.
    pub fn name_for_replica(&self, who: &Identity) -> String {
        let introduction = self.0.directory.read(|directory| {
            let federated = directory.active(&who.user)?.federated.as_ref()?;
            let provider = directory.provider(&federated.provider)?;
            let mapped = directory.mappings().filter_map(|mapping| mapping.spec.claim.as_deref());
            let named = mapped.chain([provider.object.spec.groups_claim.as_str()]);
            let values = |claim: &str| (claim.to_owned(), federated.claims.values(claim).to_vec());
            serde_json::to_vec(&Introduction {
                provider: federated.provider.to_string(),
                subject: federated.subject.to_string(),
                claims: named.map(values).collect(),
            })
            .ok()
        });
        match introduction.map(|text| URL_SAFE_NO_PAD.encode(text)) {
            Some(text) if text.len() <= LONGEST => format!("{}#{text}", who.user),
            _ => who.user.to_string(),
        }
    }

    /// The user whom another replica names. Only what is proven to come from a replica may be given here.
    pub fn named_by_replica(&self, name: &str) -> Option<Arc<str>> {
        let Some((user, introduction)) = name.split_once('#') else { return Some(name.into()) };
        let user: Arc<str> = user.into();
        let text = URL_SAFE_NO_PAD.decode(introduction).ok()?;
        let said: Introduction = serde_json::from_slice(&text).ok()?;
        if !user.starts_with(&format!("{}:", said.provider)) {
            return None;
        }
        self.0.visitors.add(&user);
        if !self.0.sessions.has_any(&user) {
            self.0.directory.update(|directory| {
                let Some(provider) = directory.provider(&said.provider) else { return false };
                let federated = Federated {
                    user: Arc::clone(&user),
                    provider: Arc::clone(&provider.name),
                    provider_stamp: provider.stamp,
                    subject: said.subject.as_str().into(),
                    claims: UserClaims::from_texts(said.claims.clone()),
                };
                directory.federate(federated)
            });
        }
        Some(user)
    }
}

#[cfg(test)]
mod tests;

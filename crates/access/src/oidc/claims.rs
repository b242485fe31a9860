//! The claims of an ID token: whether they are meant for us, now, and whom they name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

/// How far the provider's clock and ours may differ.
pub(crate) const SKEW: Duration = Duration::from_secs(60);
/// The oldest ID token that is taken from a provider: it was made for this very answer.
const OLDEST: Duration = Duration::from_secs(10 * 60);
/// OpenID Connect allows 255 characters.
const LONGEST_SUBJECT: usize = 255;
const LONGEST_USER: usize = 200;
/// The most values that are kept of a user's claims, and the most characters of each.
const MOST_VALUES: usize = 2048;
const LONGEST_VALUE: usize = 512;
/// How deep claims are looked into for dotted names.
const DEEPEST: usize = 4;

/// What an ID token must say.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) client_id: &'a str,
    /// The nonce of a login; none for a refresh.
    pub(crate) nonce: Option<&'a str>,
    pub(crate) now: Timestamp,
}

impl Expected<'_> {
    /// Returns the subject of claims that are meant for us and current, or what is wrong with them.
    pub(crate) fn check(&self, claims: &Map<String, Value>) -> Result<String, String> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        match text("iss") {
            Some(issuer) if issuer == self.issuer => {}
            other => return Err(format!("its issuer is {other:?}, not {:?}", self.issuer)),
        }
        self.check_audience(claims)?;
        let time = |name: &str| -> Result<Option<f64>, String> {
            match claims.get(name) {
                None => Ok(None),
                Some(value) => {
                    let seconds = value.as_f64().filter(|seconds| seconds.is_finite());
                    seconds.map(Some).ok_or_else(|| format!("{name} is not a time"))
                }
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of this century are exact")]
        let now = self.now.as_millisecond() as f64 / 1000.0;
        let skew = SKEW.as_secs_f64();
        let expires = time("exp")?.ok_or("it does not say when it expires")?;
        if now >= expires + skew {
            return Err("it has expired".to_owned());
        }
        let issued = time("iat")?.ok_or("it does not say when it was made")?;
        if issued > now + skew {
            return Err("it was made in the future; compare the clocks of both machines".to_owned());
        }
        if now > issued + OLDEST.as_secs_f64() + skew {
            return Err("it is too old".to_owned());
        }
        if time("nbf")?.is_some_and(|begins| begins > now + skew) {
            return Err("it is not valid yet; compare the clocks of both machines".to_owned());
        }
        let nonce = text("nonce");
        if let Some(expected) = self.nonce {
            let same = |nonce: &str| bool::from(nonce.as_bytes().ct_eq(expected.as_bytes()));
            if !nonce.is_some_and(same) {
                return Err("it was not made for this login (its nonce is another)".to_owned());
            }
        }
        let subject = text("sub").filter(|sub| (1..=LONGEST_SUBJECT).contains(&sub.len()));
        subject.map(str::to_owned).ok_or_else(|| "it names no subject".to_owned())
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), String> {
        let ours = |value: &Value| value.as_str() == Some(self.client_id);
        let (named, others) = match claims.get("aud") {
            Some(Value::String(audience)) => (audience == self.client_id, false),
            Some(Value::Array(all)) => (all.iter().any(ours), all.len() > 1),
            _ => (false, false),
        };
        if !named {
            return Err("it was made for another client".to_owned());
        }
        match claims.get("azp") {
            Some(party) if !ours(party) => Err("it was given to another client".to_owned()),
            None if others => Err("it has several audiences and names no party".to_owned()),
            _ => Ok(()),
        }
    }
}

/// What a provider says of a user: every claim as a list of texts, objects by dotted names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserClaims(Arc<BTreeMap<String, Vec<String>>>);

impl UserClaims {
    /// Of several sources the first that has a claim counts.
    pub(crate) fn of(sources: &[&Map<String, Value>]) -> Self {
        let mut all = BTreeMap::new();
        let mut left = MOST_VALUES;
        for source in sources {
            let mut own = BTreeMap::new();
            for (name, value) in *source {
                flatten(name, value, &mut own, &mut left, DEEPEST);
            }
            for (name, values) in own {
                all.entry(name).or_insert(values);
            }
        }
        Self(Arc::new(all))
    }

    /// Claims that were read before.
    pub(crate) fn from_texts(texts: BTreeMap<String, Vec<String>>) -> Self {
        Self(Arc::new(texts))
    }

    pub(crate) fn values(&self, claim: &str) -> &[String] {
        self.0.get(claim).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn has(&self, claim: &str) -> bool {
        self.0.contains_key(claim)
    }

    /// The user's name here: `PROVIDER:CLAIM`. No user of the store can have such a name.
    pub(crate) fn user(&self, provider: &str, claim: &str) -> Result<Arc<str>, String> {
        let [name] = self.values(claim) else {
            return Err(format!(
                "the provider says no {claim} of the user; ask for the scope that has it, or name \
                 another claim as userClaim"
            ));
        };
        // Who may write any address into their profile must not take somebody else's name.
        if claim == "email" && self.values("email_verified") == ["false"] {
            return Err(format!("the provider has not verified the address {name:?}"));
        }
        let in_name = |b: u8| b.is_ascii_alphanumeric() || b"@._-+|/=".contains(&b);
        if name.is_empty() || name.len() > LONGEST_USER || !name.bytes().all(in_name) {
            return Err(format!("{name:?}, the claim {claim}, cannot be the name of a user"));
        }
        Ok(format!("{provider}:{name}").into())
    }
}

fn flatten(
    name: &str,
    value: &Value,
    into: &mut BTreeMap<String, Vec<String>>,
    left: &mut usize,
    deep: usize,
) {
    let mut add = |text: String| {
        if *left > 0 && text.chars().count() <= LONGEST_VALUE {
            *left -= 1;
            into.entry(name.to_owned()).or_default().push(text);
        }
    };
    match value {
        Value::String(text) => add(text.clone()),
        Value::Bool(is) => add(is.to_string()),
        Value::Number(number) => add(number.to_string()),
        Value::Array(items) => {
            items.iter().filter_map(Value::as_str).for_each(|item| add(item.to_owned()));
            // That it is there and empty is known: nobody needs to be asked for it.
            into.entry(name.to_owned()).or_default();
        }
        Value::Object(fields) if deep > 0 => {
            for (field, value) in fields {
                flatten(&format!("{name}.{field}"), value, into, left, deep - 1);
            }
        }
        Value::Object(_) | Value::Null => {}
    }
}

#[cfg(test)]
mod tests;

//! Whom to answer, of a review that cannot be read whole: it was cut off, or is no JSON further on.
//!
//! An API server writes version and uid before everything that its users had a hand in.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::request::Version;

/// What the beginning of a review says, as far as it does.
#[derive(Debug, Default)]
struct Beginning {
    version: String,
    uid: String,
}

/// The uid and the version; an empty uid was not found.
pub(super) fn asked_by(review: &[u8]) -> (String, Version) {
    let mut found = Beginning::default();
    let mut json = serde_json::Deserializer::from_slice(review);
    // It ends in an error where the bytes do; what was found until then stays.
    let _ = Within(&mut found, Level::Review).deserialize(&mut json);
    let version = Version::parse(&found.version).unwrap_or(Version::V1);
    (found.uid, version)
}

#[derive(Clone, Copy)]
enum Level {
    Review,
    Request,
}

struct Within<'f>(&'f mut Beginning, Level);

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Within<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(found, level) = self;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match (level, &*key) {
                (Level::Review, "apiVersion") => found.version = map.next_value()?,
                (Level::Review, "request") => {
                    map.next_value_seed(Within(&mut *found, Level::Request))?;
                }
                (Level::Request, "uid") => found.uid = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

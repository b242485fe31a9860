use std::fmt;

use serde_json::{Value, json};

use super::{Code, Error};

/// A version of the specification, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    pub const ALL: [Self; 4] = [Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    pub const LATEST: Self = Self::V1_1_0;

    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|version| version.name() == text).ok_or_else(|| {
            Error::new(Code::IncompatibleVersion, format!("cniVersion {text:?} is not supported"))
                .details(format!("set cniVersion in the network configuration to {}", Self::list()))
        })
    }

    /// Renders the result of VERSION. A runtime that names an unknown version gets the latest one, and
    /// the list of those that are known.
    pub fn report(stdin: &[u8]) -> Value {
        let given = serde_json::from_slice::<Value>(stdin).ok();
        let given = given.and_then(|value| Self::parse(value.get("cniVersion")?.as_str()?).ok());
        json!({
            "cniVersion": given.unwrap_or(Self::LATEST).name(),
            "supportedVersions": Self::ALL.map(Self::name),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    pub(super) fn list() -> String {
        let [first @ .., last] = Self::ALL.map(Self::name);
        format!("{} or {last}", first.join(", "))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Version;

/// The specification's error codes, and Fairlead's own from 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub enum Code {
    IncompatibleVersion,
    UnsupportedField,
    /// The runtime need not clean up.
    UnknownContainer,
    InvalidEnvironment,
    Io,
    Decoding,
    InvalidConfiguration,
    TryAgainLater,
    /// STATUS: ADD cannot be served.
    NotAvailable,
    /// STATUS: ADD cannot be served, and existing containers may have limited connectivity.
    LimitedConnectivity,
    /// A step in the kernel failed.
    Wiring,
    /// There is no address: the pool does not exist, or has none left.
    NoAddress,
    /// The record of addresses cannot be written.
    Record,
    /// CHECK found the container's network to be other than it was made.
    Differs,
}

const CODES: [(Code, u32, &str); 14] = [
    (Code::IncompatibleVersion, 1, "incompatible_version"),
    (Code::UnsupportedField, 2, "unsupported_field"),
    (Code::UnknownContainer, 3, "unknown_container"),
    (Code::InvalidEnvironment, 4, "invalid_environment"),
    (Code::Io, 5, "io"),
    (Code::Decoding, 6, "decoding"),
    (Code::InvalidConfiguration, 7, "invalid_configuration"),
    (Code::TryAgainLater, 11, "try_again_later"),
    (Code::NotAvailable, 50, "not_available"),
    (Code::LimitedConnectivity, 51, "limited_connectivity"),
    (Code::Wiring, 100, "wiring"),
    (Code::NoAddress, 101, "no_address"),
    (Code::Record, 102, "record"),
    (Code::Differs, 103, "differs"),
];

impl Code {
    pub fn number(self) -> u32 {
        self.row().1
    }

    /// The name in logs and labels.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    fn row(self) -> (Self, u32, &'static str) {
        CODES.into_iter().find(|(code, ..)| *code == self).expect("every code is in the table")
    }
}

impl From<Code> for u32 {
    fn from(code: Code) -> Self {
        code.number()
    }
}

impl TryFrom<u32> for Code {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        let row = CODES.into_iter().find(|(_, known, _)| *known == number);
        row.map(|(code, ..)| code).ok_or_else(|| format!("no such code: {number}"))
    }
}

/// CNI's error result. `msg` says what is wrong, `details` what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    pub code: Code,
    pub msg: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl Error {
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new() }
    }

    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    pub fn render(&self, version: Version) -> Value {
        let mut error = json!({
            "cniVersion": version.name(),
            "code": self.code.number(),
            "msg": self.msg,
        });
        if !self.details.is_empty() {
            error["details"] = self.details.as_str().into();
        }
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, "; {}", self.details) }
    }
}

impl std::error::Error for Error {}

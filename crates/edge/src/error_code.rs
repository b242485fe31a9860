//! The one table of what can go wrong at an edge: what each code is in REST, in gRPC, to an API server
//! that asks the webhook, to a shell, and on the ledger.
//!
//! A code is a different thing to do next. Whoever refuses chooses the code and writes the sentence;
//! the status of each protocol comes from here and from nowhere else.

use http::StatusCode;
use stallproof::ledger::Outcome;

/// Exit codes of commands: the answer is no.
pub const NO: u8 = 1;
/// Exit codes of commands: it could not be done, and might be another time or another way.
pub const FAILED: u8 = 2;

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $text:literal, $http:ident, $grpc:ident, $exit:ident,
        $outcome:ident, $title:literal;)*) => {
        /// The kind of an error, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode { $($(#[$doc])* $code),* }

        impl ErrorCode {
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// As problem documents and the audit name it.
            pub fn text(self) -> &'static str {
                match self { $(Self::$code => $text),* }
            }

            /// The status of a REST answer, and of the webhook's where it makes no decision.
            pub fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$http),* }
            }

            pub fn grpc(self) -> tonic::Code {
                match self { $(Self::$code => tonic::Code::$grpc),* }
            }

            /// The exit code of a command that got this answer.
            pub fn exit_code(self) -> u8 {
                match self { $(Self::$code => $exit),* }
            }

            /// How an operation that ends so counts on the ledger: a "no" is an answer.
            pub fn outcome(self) -> Outcome {
                match self { $(Self::$code => Outcome::$outcome),* }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$code => $title),* }
            }
        }
    };
}

codes! {
    // code, its text: REST and webhook, gRPC, exit code, ledger, title

    /// The input cannot be; the detail says what to change.
    Invalid = "invalid", BAD_REQUEST, InvalidArgument, FAILED, Done,
        "The request cannot be understood";
    Unauthenticated = "unauthenticated", UNAUTHORIZED, Unauthenticated, FAILED, Done,
        "Who are you?";
    Forbidden = "forbidden", FORBIDDEN, PermissionDenied, NO, Done, "Not allowed";
    /// A cookie came without the token that proves whose page sent it.
    Csrf = "csrf", FORBIDDEN, PermissionDenied, FAILED, Done,
        "The request does not prove where it comes from";
    /// There is none of this name, or none that the caller may see.
    NoSuchCluster = "no-such-cluster", NOT_FOUND, NotFound, NO, Done, "No such cluster";
    NoSuchKind = "no-such-kind", NOT_FOUND, NotFound, NO, Done, "No such kind";
    NotFound = "not-found", NOT_FOUND, NotFound, NO, Done, "Not there";
    Exists = "exists", CONFLICT, AlreadyExists, NO, Done, "Already there";
    /// Somebody else has changed it, or another field manager owns it.
    Conflict = "conflict", CONFLICT, Aborted, NO, Done, "Changed by somebody else";
    /// Another that began later has taken its place.
    Outdated = "outdated", CONFLICT, FailedPrecondition, NO, Done, "Replaced by a later one";
    /// The cluster's API server said no; REST passes its own status on.
    Refused = "refused", BAD_GATEWAY, FailedPrecondition, NO, Failed, "The cluster refused";
    /// This process was started without it.
    NotServed = "not-served", NOT_FOUND, FailedPrecondition, NO, Done, "Not served here";
    TooLarge = "too-large", PAYLOAD_TOO_LARGE, OutOfRange, FAILED, Done, "Too large";
    /// The body of a request did not come in time.
    SlowBody = "slow-body", REQUEST_TIMEOUT, DeadlineExceeded, FAILED, Expired, "Too slow";
    /// This caller, or this cluster's share, has had enough for now.
    SlowDown = "slow-down", TOO_MANY_REQUESTS, ResourceExhausted, FAILED, Refused,
        "Too many requests";
    Internal = "internal", INTERNAL_SERVER_ERROR, Internal, FAILED, Failed, "Our fault";
    Unreachable = "unreachable", BAD_GATEWAY, Unavailable, FAILED, Failed,
        "The cluster cannot be reached";
    /// More has come than can be answered in time.
    Overloaded = "overloaded", SERVICE_UNAVAILABLE, ResourceExhausted, FAILED, Refused,
        "Overloaded";
    /// The cluster, the store or the leader is known and not usable now.
    NotReady = "not-ready", SERVICE_UNAVAILABLE, Unavailable, FAILED, Failed, "Not ready";
    /// Nothing was done, because it could not have been recorded.
    Audit = "audit", SERVICE_UNAVAILABLE, Unavailable, FAILED, Refused,
        "The audit cannot be written";
    TooLate = "too-late", GATEWAY_TIMEOUT, DeadlineExceeded, FAILED, Expired,
        "No answer in time";
}

impl ErrorCode {
    /// The code of this text; none for a text that a later version may have.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.text() == text)
    }
}

/// Seconds for a `Retry-After`, rounded up: a client that comes back on the dot should find room.
pub(crate) fn retry_after_seconds(after: std::time::Duration) -> u64 {
    (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests;

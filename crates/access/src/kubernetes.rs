//! What a request to a cluster's Kubernetes API asks of a user's roles.
//!
//! Contract:
//! - [`KubeRequest::parse`] is a pure function of method, path and query. A path that another reader could
//!   take for another one (`..`, `//`, escaped characters) is refused, and so is every form that it does not
//!   know: nothing unknown is passed on.
//! - The verbs are those of roles: a log needs `log`, a shell `exec`, a port-forward `forward`, an eviction
//!   `delete`. A subresource that has no word of its own needs the verb on the object and on
//!   `RESOURCE/SUBRESOURCE`.
//! - What one may do oneself is no request to the cluster: Fairlead answers it ([`SelfReview`]).
//! - Which kinds a cluster serves, its version and its health are for everybody who sees the cluster.

use crate::role::Verb;

/// A request to a cluster's API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeRequest<'a> {
    /// Kinds, schemas, version, health.
    Discovery,
    /// What the client itself may do: `kubectl auth can-i`.
    Review(SelfReview),
    Resource(KubeResource<'a>),
}

/// A question about one's own rights, of the group `authorization.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelfReview {
    /// Whether one request is allowed.
    Access,
    /// Everything that is allowed in a namespace.
    Rules,
}

/// A request about objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeResource<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    pub plural: &'a str,
    pub namespace: Option<&'a str>,
    /// None for a collection.
    pub name: Option<&'a str>,
    pub subresource: Option<&'a str>,
    /// The verb in the audit, and the first that is asked for.
    pub verb: Verb,
    /// Whether a PUT or a server-side apply could make the object as well.
    makes: bool,
}

/// Why a request is not passed on, whoever asks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPassedOn {
    #[error("the path cannot be read: {0}")]
    Path(&'static str),
    #[error("{0}")]
    Never(&'static str),
}

impl<'a> KubeRequest<'a> {
    /// Reads a request: its method, its path without the first slash, as it was sent, and its query.
    pub fn parse(
        method: &str,
        path: &'a str,
        query: Option<&str>,
        is_apply: bool,
    ) -> Result<Self, NotPassedOn> {
        let parts = segments(path)?;
        let reads = matches!(method, "GET" | "HEAD");
        let (group, rest) = match parts.as_slice() {
            ["version" | "api" | "apis" | "healthz" | "livez" | "readyz"]
            | ["api", _]
            | ["apis", _]
            | ["apis", _, _]
            | ["openapi", ..]
            | ["healthz" | "livez" | "readyz", ..] => {
                let read = "kinds, schemas and health can only be read";
                return if reads { Ok(Self::Discovery) } else { Err(NotPassedOn::Never(read)) };
            }
            [
                "apis",
                "authorization.k8s.io",
                version,
                review @ ("selfsubjectaccessreviews" | "selfsubjectrulesreviews"),
            ] => {
                return match (method, *version, *review) {
                    ("POST", "v1", "selfsubjectaccessreviews") => {
                        Ok(Self::Review(SelfReview::Access))
                    }
                    ("POST", "v1", _) => Ok(Self::Review(SelfReview::Rules)),
                    _ => Err(NotPassedOn::Never(
                        "what one may do is asked by POST, in authorization.k8s.io/v1",
                    )),
                };
            }
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => {
                return Err(NotPassedOn::Never(
                    "only /api, /apis, /openapi, /version and the health of a cluster are passed on",
                ));
            }
        };
        if matches!(rest, ["watch" | "proxy" | "redirect", ..]) {
            return Err(NotPassedOn::Never(
                "this old form of the path is not passed on; watch with ?watch=true",
            ));
        }
        let (namespace, object) = match rest {
            // A namespace's own subresources.
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, object @ ..] if !object.is_empty() => {
                (Some(*namespace), object)
            }
            _ => (None, rest),
        };
        let (plural, name, subresource) = match object {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return Err(NotPassedOn::Never(NO_PROXY)),
        };
        let verb = match (method, name) {
            ("GET" | "HEAD", Some(_)) => Verb::Get,
            ("GET" | "HEAD", None) if watches(query) => Verb::Watch,
            ("GET" | "HEAD", None) => Verb::List,
            ("POST", _) => Verb::Create,
            ("PUT" | "PATCH", _) => Verb::Update,
            ("DELETE", _) => Verb::Delete,
            _ => return Err(NotPassedOn::Never("this method is not passed on")),
        };
        let verb = verb_of(verb, (group, plural, subresource), reads)?;
        let makes = subresource.is_none() && (method == "PUT" || is_apply);
        Ok(Self::Resource(KubeResource {
            group,
            plural,
            namespace,
            name,
            subresource,
            verb,
            makes,
        }))
    }
}

const NO_PROXY: &str = "a proxy of the API server to pods, services or nodes is not passed on; \
                        `fairlead forward` reaches a port of a pod or a Service";

/// The verb of roles, for what is done to an object or to a subresource of it.
fn verb_of(verb: Verb, of: (&str, &str, Option<&str>), reads: bool) -> Result<Verb, NotPassedOn> {
    let (group, plural, subresource) = of;
    Ok(match (group, plural, subresource, reads) {
        (_, _, Some("proxy"), _) => return Err(NotPassedOn::Never(NO_PROXY)),
        ("", "pods", Some("log"), true) => Verb::Log,
        ("", "pods", Some("exec" | "attach"), _) => Verb::Exec,
        ("", "pods", Some("portforward"), _) => Verb::Forward,
        ("", "pods", Some("eviction"), _) => Verb::Delete,
        ("", "pods", Some("ephemeralcontainers"), false) => Verb::Exec,
        (_, _, Some("scale"), false) => Verb::Scale,
        _ => verb,
    })
}

impl<'a> KubeResource<'a> {
    /// The request that a client asks about, by Kubernetes' own verb: `get`, `patch`, `deletecollection`.
    /// A verb that no request has is refused.
    pub fn asked_about(
        verb: &str,
        (group, plural, subresource): (&'a str, &'a str, Option<&'a str>),
        namespace: Option<&'a str>,
        name: Option<&'a str>,
    ) -> Result<Self, NotPassedOn> {
        let (plain, reads) = match verb {
            "get" => (Verb::Get, true),
            "list" => (Verb::List, true),
            "watch" => (Verb::Watch, true),
            "create" => (Verb::Create, false),
            "update" | "patch" => (Verb::Update, false),
            "delete" | "deletecollection" => (Verb::Delete, false),
            _ => return Err(NotPassedOn::Never("no request through Fairlead has this verb")),
        };
        let verb_of_role = verb_of(plain, (group, plural, subresource), reads)?;
        // As a PUT does.
        let makes = subresource.is_none() && verb == "update";
        Ok(Self { group, plural, namespace, name, subresource, verb: verb_of_role, makes })
    }
}

impl KubeResource<'_> {
    /// As roles name it: `pods`, `deployments.apps`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Everything that has to be allowed.
    pub fn asks(&self) -> Vec<(String, Verb)> {
        let resource = self.resource();
        let mut asks = vec![(resource.clone(), self.verb)];
        if self.makes {
            asks.push((resource.clone(), Verb::Create));
        }
        match (self.group, self.plural, self.subresource) {
            (_, _, None | Some("scale" | "status"))
            | ("", "pods", Some("log" | "exec" | "attach" | "portforward" | "eviction")) => {}
            ("", "pods", Some("ephemeralcontainers")) => {
                // A container that is added to a pod is a shell in it, and a change of it.
                if self.verb == Verb::Exec {
                    asks.push((resource, Verb::Update));
                }
            }
            (group, plural, Some(subresource)) => {
                asks.push((format!("{resource}/{subresource}"), self.verb));
                // The answer is a secret.
                if (group, plural, subresource) == ("", "serviceaccounts", "token") {
                    asks.push(("secrets".to_owned(), Verb::Create));
                }
            }
        }
        asks
    }

    /// Whether the connection becomes a stream of raw bytes.
    pub fn upgrades(&self) -> bool {
        let raw = matches!(self.subresource, Some("exec" | "attach" | "portforward"));
        self.group.is_empty() && self.plural == "pods" && raw
    }

    /// Whether the answer may go on for ever.
    pub fn streams(&self) -> bool {
        matches!(self.verb, Verb::Watch | Verb::Log)
    }
}

/// The parts of a path, none of which anybody could read as more or less than a name.
fn segments(path: &str) -> Result<Vec<&str>, NotPassedOn> {
    let parts: Vec<&str> = path.split('/').collect();
    for part in &parts {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:@+=,~".contains(&b);
        match *part {
            "" => return Err(NotPassedOn::Path("it has an empty part")),
            "." | ".." => return Err(NotPassedOn::Path("it has a part `.` or `..`")),
            part if part.contains('%') => {
                return Err(NotPassedOn::Path("it has an escaped character"));
            }
            part if !part.bytes().all(plain) => {
                return Err(NotPassedOn::Path("it has a character that no name has"));
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// API servers take every value but these for yes. A key that is escaped is still the key.
fn watches(query: Option<&str>) -> bool {
    let pairs = query.unwrap_or_default().split('&');
    pairs.filter(|pair| !pair.is_empty()).any(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // Rather a watch too many: who may list and not watch is refused what cannot be read.
        let is_key = key.contains('%') || key.contains('+') || key == "watch";
        is_key && !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
    })
}

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;

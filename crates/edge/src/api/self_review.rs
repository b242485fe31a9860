//! What a client of the Kubernetes API may do itself: `kubectl auth can-i`, answered from Fairlead's roles and from
//! what the cluster lets through.
//!
//! Contract:
//! - Yes needs both: the rights of the roles, decided as they are for the request itself, and the cluster's
//!   own yes to whomever it is asked as. The cluster is asked only about what the roles allow, by a question
//!   that is written anew here.
//! - What is not known (a kind that the cluster does not serve, a verb that no request has, a cluster that does
//!   not answer) is never a yes. A cluster that does not answer is an error, not a no.
//! - Nothing is changed, so that nothing is in the audit.

use std::collections::BTreeMap;

use access::kubernetes::{KubeRequest, KubeResource, SelfReview};
use access::{AccessRequest, Reach, Verb};
use axum::Json;
use axum::response::{IntoResponse, Response};
use fleet::Connection;
use fleet::discovery::ServedKind;
use http::StatusCode;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, NonResourceRule, ResourceAttributes, ResourceRule,
    SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec, SubjectAccessReviewStatus, SubjectRulesReviewStatus,
};
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::kube_api::{NeededRights, decide};
use super::{Caller, ErrorCode, Problem};

/// What is not a kind of its own and has a right of its own: group, kind, subresource and Kubernetes' verbs.
const SUBRESOURCES: [(&str, &str, &str, &[&str]); 9] = [
    ("", "pods", "log", &["get"]),
    ("", "pods", "exec", &["create", "get"]),
    ("", "pods", "attach", &["create", "get"]),
    ("", "pods", "portforward", &["create", "get"]),
    ("", "pods", "eviction", &["create"]),
    ("", "pods", "ephemeralcontainers", &["patch", "update"]),
    ("apps", "deployments", "scale", &["get", "patch", "update"]),
    ("apps", "statefulsets", "scale", &["get", "patch", "update"]),
    ("apps", "replicasets", "scale", &["get", "patch", "update"]),
];
/// What everybody who sees the cluster may read of it.
const PATHS: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

/// Answers a question about the caller's own rights.
pub(super) async fn answer(
    caller: &Caller,
    connection: &Connection,
    review: SelfReview,
    body: &[u8],
) -> Result<Response, Problem> {
    match review {
        SelfReview::Access => {
            let asked: SelfSubjectAccessReview = read(body)?;
            made(&access_review(caller, connection, asked.spec).await?)
        }
        SelfReview::Rules => {
            let asked: SelfSubjectRulesReview = read(body)?;
            let namespace = asked.spec.namespace.filter(|namespace| !namespace.is_empty());
            let namespace = namespace.ok_or_else(|| Problem::invalid("name a namespace"))?;
            made(&rules_review(caller, connection, namespace).await?)
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::invalid(format!("the review cannot be read as JSON: {error}")))
}

fn made(review: &impl Serialize) -> Result<Response, Problem> {
    let review = serde_json::to_value(review)
        .map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    Ok((StatusCode::CREATED, Json(review)).into_response())
}

async fn access_review(
    caller: &Caller,
    connection: &Connection,
    spec: SelfSubjectAccessReviewSpec,
) -> Result<SelfSubjectAccessReview, Problem> {
    let refused = match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (Some(asked), None) => refusal(caller, connection, asked).await?,
        (None, Some(asked)) => refusal_of_path(asked),
        _ => {
            let one = "name either resourceAttributes or nonResourceAttributes";
            return Err(Problem::invalid(one));
        }
    };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    if let Some(reason) = refused {
        let status = SubjectAccessReviewStatus { reason: Some(reason), ..Default::default() };
        return Ok(SelfSubjectAccessReview { status: Some(status), ..review });
    }
    let asking = connection.call("asking what one may do", caller.deadline, |client| async move {
        kube::Api::all(client).create(&PostParams::default(), &review).await
    });
    Ok(asking.await?)
}

/// Why the roles do not allow what is asked about; none if they do.
async fn refusal(
    caller: &Caller,
    connection: &Connection,
    asked: &ResourceAttributes,
) -> Result<Option<String>, Problem> {
    let text = |field: &'_ Option<String>| field.clone().unwrap_or_default();
    let (verb, group, plural) = (text(&asked.verb), text(&asked.group), text(&asked.resource));
    let subresource = asked.subresource.as_deref().filter(|it| !it.is_empty());
    let namespace = asked.namespace.as_deref().filter(|it| !it.is_empty());
    let name = asked.name.as_deref().filter(|it| !it.is_empty());
    let is_any = |word: &str| word == "*";
    if is_any(&group) || is_any(&plural) || subresource.is_some_and(is_any) {
        return Ok(refusal_of_all(caller, connection, &verb, namespace));
    }
    let resource = match group.is_empty() {
        true => plural.clone(),
        false => format!("{plural}.{group}"),
    };
    let found = match connection.find(&resource, caller.deadline).await {
        Ok(found) => found,
        Err(error @ fleet::Error::NoSuchKind { .. }) => {
            return Ok(Some(stallproof::sentence(&error)));
        }
        Err(error) => return Err(error.into()),
    };
    let namespace = namespace.filter(|_| found.namespaced);
    if is_any(&verb) {
        let may = |verb: &Verb| may(caller, connection, (&resource, &found), namespace, *verb);
        let missing = Verb::ALL.iter().find(|verb| !may(verb));
        let who = &caller.who.user;
        return Ok(missing.map(|verb| format!("{who} may not {verb} {resource} there")));
    }
    // In all namespaces there is no object of one name.
    let name = name.filter(|_| namespace.is_some() || !found.namespaced);
    let of = (&*group, &*plural, subresource);
    let asked = match KubeResource::asked_about(&verb, of, namespace, name) {
        Ok(asked) => asked,
        Err(never) => return Ok(Some(never.to_string())),
    };
    match decide(caller, connection, &asked).await {
        Ok(_) => Ok(None),
        Err(problem) if matches!(problem.code, ErrorCode::Forbidden | ErrorCode::NotFound) => {
            Ok(Some(problem.detail().to_owned()))
        }
        Err(problem) => Err(problem),
    }
}

fn may(
    caller: &Caller,
    connection: &Connection,
    (resource, found): (&str, &ServedKind),
    namespace: Option<&str>,
    verb: Verb,
) -> bool {
    let (cluster, permissions) = (connection.cluster(), &caller.permissions);
    if found.namespaced && namespace.is_none() {
        return permissions.reach(cluster, resource, verb) == Reach::Everywhere;
    }
    let ask = AccessRequest { cluster, namespace, resource, verb };
    access::decide(permissions, &ask).is_allowed()
}

/// As [`refusal`], of every resource there is.
fn refusal_of_all(
    caller: &Caller,
    connection: &Connection,
    verb: &str,
    namespace: Option<&str>,
) -> Option<String> {
    let one = [match KubeResource::asked_about(verb, ("", "*", None), namespace, None) {
        Ok(asked) => asked.verb,
        Err(_) if verb == "*" => Verb::Get,
        Err(never) => return Some(never.to_string()),
    }];
    let verbs = if verb == "*" { Verb::ALL } else { &one[..] };
    let all =
        |verb: &&Verb| caller.permissions.reaches_all(connection.cluster(), namespace, **verb);
    let missing = verbs.iter().find(|verb| !all(verb))?;
    Some(format!("{} may not {missing} every resource there", caller.who.user))
}

fn refusal_of_path(asked: &NonResourceAttributes) -> Option<String> {
    let path = asked.path.as_deref().unwrap_or_default().trim_start_matches('/');
    let reads = asked.verb.as_deref() == Some("get");
    let known = KubeRequest::parse("GET", path, None, false) == Ok(KubeRequest::Discovery);
    let why = "only the kinds, the version and the health of a cluster are read by path";
    (!reads || !known).then(|| why.to_owned())
}

async fn rules_review(
    caller: &Caller,
    connection: &Connection,
    namespace: String,
) -> Result<SelfSubjectRulesReview, Problem> {
    let kinds = connection.kinds(caller.deadline).await?;
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.clone()) };
    let review = SelfSubjectRulesReview { spec, ..Default::default() };
    let asking = connection.call("asking what one may do", caller.deadline, |client| async move {
        kube::Api::all(client).create(&PostParams::default(), &review).await
    });
    let mut review: SelfSubjectRulesReview = asking.await?;
    let theirs = review.status.unwrap_or_default();
    let allowed = |verb: &str, of: (&str, &str, Option<&str>), namespaced: bool| {
        let namespace = namespaced.then_some(&*namespace);
        let asked = KubeResource::asked_about(verb, of, namespace, None);
        asked.is_ok_and(|asked| {
            NeededRights::within(connection.cluster(), &asked).are_in(&caller.permissions)
        })
    };
    let mut ours: Vec<AllowedVerb> = Vec::new();
    for kind in &kinds.kinds {
        let (group, plural) = (&*kind.resource.group, &*kind.resource.plural);
        for verb in &kind.verbs {
            if allowed(verb, (group, plural, None), kind.namespaced) {
                ours.push(AllowedVerb::new(group, plural.to_owned(), verb));
            }
        }
        let of = SUBRESOURCES.iter().filter(|(of, name, ..)| (*of, *name) == (group, plural));
        for (_, _, subresource, verbs) in of {
            for verb in *verbs {
                if allowed(verb, (group, plural, Some(subresource)), kind.namespaced) {
                    ours.push(AllowedVerb::new(group, format!("{plural}/{subresource}"), verb));
                }
            }
        }
    }
    let unknown: Vec<_> = kinds.failed.iter().map(|failed| &*failed.api_version).collect();
    let mut errors: Vec<String> = theirs.evaluation_error.into_iter().collect();
    if !unknown.is_empty() {
        errors.push(format!("the cluster does not say what {} serves", unknown.join(", ")));
    }
    review.status = Some(SubjectRulesReviewStatus {
        evaluation_error: (!errors.is_empty()).then(|| errors.join("; ")),
        incomplete: theirs.incomplete || !unknown.is_empty(),
        non_resource_rules: paths_in_both(&theirs.non_resource_rules),
        resource_rules: in_both(&ours, &theirs.resource_rules),
    });
    Ok(review)
}

/// A verb of Kubernetes on one resource, which the roles allow.
#[derive(Debug, PartialEq, Eq)]
struct AllowedVerb {
    group: String,
    /// `pods`, or `pods/log`.
    resource: String,
    verb: String,
}

impl AllowedVerb {
    fn new(group: &str, resource: String, verb: &str) -> Self {
        Self { group: group.to_owned(), resource, verb: verb.to_owned() }
    }

    fn is_in(&self, rule: &ResourceRule) -> bool {
        let has = |words: &Option<Vec<String>>, word: &str| {
            words.iter().flatten().any(|it| it == "*" || it == word)
        };
        let of_any = self.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        has(&rule.api_groups, &self.group)
            && (has(&rule.resources, &self.resource)
                || of_any.is_some_and(|any| has(&rule.resources, &any)))
            && rule.verbs.iter().any(|it| it == "*" || *it == self.verb)
    }
}

/// What both the roles and the cluster allow; resources with the same verbs are in one rule.
fn in_both(ours: &[AllowedVerb], theirs: &[ResourceRule]) -> Vec<ResourceRule> {
    // By group and resource, and by the names that the cluster limits it to.
    let mut verbs: BTreeMap<(&str, &str, Vec<String>), Vec<&str>> = BTreeMap::new();
    for allowed in ours {
        let names_of = |rule: &ResourceRule| rule.resource_names.clone().unwrap_or_default();
        let mut limits: Vec<_> =
            theirs.iter().filter(|rule| allowed.is_in(rule)).map(names_of).collect();
        if limits.iter().any(Vec::is_empty) {
            limits = vec![Vec::new()];
        }
        limits.sort();
        limits.dedup();
        for names in limits {
            let key = (&*allowed.group, &*allowed.resource, names);
            verbs.entry(key).or_default().push(&allowed.verb);
        }
    }
    let mut rules: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for ((group, resource, names), mut verbs) in verbs {
        verbs.sort_unstable();
        rules.entry((group, names, verbs)).or_default().push(resource.to_owned());
    }
    let rule =
        |((group, names, verbs), resources): ((&str, Vec<String>, Vec<&str>), _)| ResourceRule {
            api_groups: Some(vec![group.to_owned()]),
            resource_names: (!names.is_empty()).then_some(names),
            resources: Some(resources),
            verbs: verbs.into_iter().map(ToOwned::to_owned).collect(),
        };
    rules.into_iter().map(rule).collect()
}

fn paths_in_both(theirs: &[NonResourceRule]) -> Vec<NonResourceRule> {
    let reads = |rule: &&NonResourceRule| rule.verbs.iter().any(|it| it == "*" || it == "get");
    let covers = |path: &str, pattern: &String| match pattern.strip_suffix('*') {
        Some(start) => path.trim_end_matches('*').starts_with(start),
        None => path == pattern,
    };
    let has = |path: &&str| {
        let mut patterns =
            theirs.iter().filter(reads).flat_map(|rule| rule.non_resource_urls.iter());
        patterns.any(|urls| urls.iter().any(|pattern| covers(path, pattern)))
    };
    let paths: Vec<_> = PATHS.iter().copied().filter(has).map(ToOwned::to_owned).collect();
    if paths.is_empty() {
        return Vec::new();
    }
    vec![NonResourceRule { non_resource_urls: Some(paths), verbs: vec!["get".to_owned()] }]
}

#[cfg(test)]
mod tests;

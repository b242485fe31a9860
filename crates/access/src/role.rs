//! Roles and decisions, as pure functions.
//!
//! Contract:
//! - [`decide`] allocates nothing and waits for nothing. Deny wins over allow, whichever roles they come
//!   from; what no rule allows is refused.
//! - A rule applies to an [`AccessRequest`] when one of its globs matches in each of clusters, namespaces,
//!   resources and verbs. A resource without a namespace is in the namespace [`NO_NAMESPACE`].
//! - The fleet itself is the cluster [`FLEET`]: connecting clusters (`clusters.fairlead.dev`) and
//!   joining them (`clustermeshes`), users, roles and tokens (`users`, `accessroles`, `accesstokens`),
//!   the audit (`audit`). No glob matches it: a rule names it, so that "all clusters" does not make an
//!   administrator.
//! - A part of a rule that cannot be parsed allows nothing and denies everything that it could mean.
//!   [`Role::problems`] names it.
//!
//! Three roles are built in; their names are reserved:
//!
//! | role | in every cluster | in the fleet |
//! |---|---|---|
//! | `admin` | everything | everything |
//! | `operator` | everything but Secrets and access (RBAC, Fairlead's own users, roles, tokens) | connects, changes and removes clusters and meshes |
//! | `viewer` | get, list, watch, log, of the same | sees clusters and meshes |
//!
//! A built-in role's deny wins like any other: a viewer who should read Secrets needs a role of one's own
//! instead. Whoever may create or exec into a pod reaches what its service account and volumes reach: that
//! an operator cannot read Secrets keeps them off screens; only a namespace separates them.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use objects::kinds::{AccessRoleSpec, Rule};
use serde::{Deserialize, Serialize};

use crate::glob::Glob;

/// The cluster name of the fleet's own objects.
pub const FLEET: &str = "-";
/// The namespace name of resources without a namespace.
pub const NO_NAMESPACE: &str = "-";
/// The role that may do everything.
pub const ADMIN: &str = "admin";

macro_rules! verbs {
    ($($name:ident $text:literal),* $(,)?) => {
        /// An action on a resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Verb { $($name),* }

        impl Verb {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

verbs! {
    Get "get", List "list", Watch "watch", Create "create", Update "update", Delete "delete",
    Scale "scale", Restart "restart", Cordon "cordon", Drain "drain", Log "log", Exec "exec",
    Forward "forward",
}

impl Verb {
    /// Whether it changes something, and so is audited.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch | Self::Log)
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request to do something to a resource, to decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRequest<'a> {
    pub cluster: &'a str,
    /// `None` for a resource without namespaces.
    pub namespace: Option<&'a str>,
    /// `plural.group`, without a group for the core group: `pods`, `deployments.apps`.
    pub resource: &'a str,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allowed {
        /// The role that allows it.
        by: Arc<str>,
    },
    Denied {
        by: Arc<str>,
    },
    /// No role allows it.
    NotAllowed,
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

/// The namespaces of a cluster in which something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is allowed in all namespaces.
    Everywhere,
    /// It may be allowed in some namespaces: each needs a decision.
    Somewhere,
    Nowhere,
}

/// The permissions of a user: all of the user's roles.
#[derive(Clone, Debug, Default)]
pub struct Permissions(Vec<Arc<Role>>);

impl Permissions {
    pub fn new(roles: Vec<Arc<Role>>) -> Self {
        Self(roles)
    }

    /// The permissions of the role [`ADMIN`].
    pub fn admin() -> Self {
        Self(BUILT_IN.iter().filter(|role| &*role.name == ADMIN).map(Arc::clone).collect())
    }

    /// The roles, as they were written.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.0.iter().map(|role| &**role)
    }

    /// The namespaces of the cluster that rules name without a glob, as far as they may be seen: what
    /// is known of namespaces when nobody can list them.
    pub fn named_namespaces(&self, cluster: &str) -> BTreeSet<String> {
        let rules = self.0.iter().flat_map(|role| role.allow.iter().zip(&role.spec.allow));
        let named = rules.filter(|(rule, _)| rule.names(cluster));
        let named = named.flat_map(|(_, written)| &written.namespaces);
        let is_name = |name: &&String| !name.contains(['*', '?']) && *name != NO_NAMESPACE;
        let named = named.filter(is_name).filter(|name| self.may_see_namespace(cluster, name));
        named.cloned().collect()
    }

    /// Whether both have the same roles with the same rules.
    pub fn are(&self, others: &Self) -> bool {
        self.0.len() == others.0.len()
            && self.0.iter().zip(&others.0).all(|(one, other)| {
                Arc::ptr_eq(one, other) || (one.name == other.name && one.spec == other.spec)
            })
    }

    /// Whether any verb on any resource of the cluster is allowed. Where two globs have to be compared it
    /// errs on the side of yes: that reveals a name, and [`decide`] still decides about its content.
    pub fn may_see_cluster(&self, cluster: &str) -> bool {
        self.sees(cluster, None)
    }

    /// The same as `may_see_cluster`, for a namespace.
    pub fn may_see_namespace(&self, cluster: &str, namespace: &str) -> bool {
        self.sees(cluster, Some(namespace))
    }

    /// Returns where a request for all namespaces is allowed.
    pub fn reach(&self, cluster: &str, resource: &str, verb: Verb) -> Reach {
        let speaks =
            |rule: &&Compiled| rule.verbs.has(verb) && rule.names(cluster) && rule.of(resource);
        let all = |rule: &Compiled| rule.namespaces.iter().any(Glob::is_any);
        let mut denies = self.denies().filter(speaks).peekable();
        let mut allows = self.allows().filter(speaks).peekable();
        if allows.peek().is_none() {
            return Reach::Nowhere;
        }
        if denies.peek().is_none() {
            return if allows.any(all) { Reach::Everywhere } else { Reach::Somewhere };
        }
        if denies.any(all) { Reach::Nowhere } else { Reach::Somewhere }
    }

    /// Whether the verb is allowed on every resource, in `namespace`; without one, in all namespaces and
    /// outside of them. A deny of anything there makes it no.
    pub fn reaches_all(&self, cluster: &str, namespace: Option<&str>, verb: Verb) -> bool {
        let speaks = |rule: &&Compiled| rule.verbs.has(verb) && rule.names(cluster);
        let all = |rule: &&Compiled| match namespace {
            Some(namespace) => rule.within(namespace),
            None => rule.namespaces.iter().any(Glob::is_any),
        };
        let denied = |rule: &Compiled| namespace.is_none_or(|namespace| rule.within(namespace));
        let mut allows = self.allows().filter(speaks).filter(all);
        allows.any(|rule| rule.resources.iter().any(Glob::is_any))
            && !self.denies().filter(speaks).any(denied)
    }

    fn sees(&self, cluster: &str, namespace: Option<&str>) -> bool {
        let there = |rule: &&Compiled| {
            rule.names(cluster) && namespace.is_none_or(|namespace| rule.within(namespace))
        };
        // Whether any verb is left of an allowed resource.
        self.allows().filter(there).any(|allow| {
            allow.resources.iter().any(|resource| {
                let denied = self
                    .denies()
                    .filter(there)
                    .filter(|deny| namespace.is_some() || deny.covers_namespaces_of(allow))
                    .filter(|deny| deny.resources.iter().any(|glob| glob.covers(resource)));
                !allow.verbs.without(denied.map(|deny| deny.verbs)).is_empty()
            }) && !allow.namespaces.is_empty()
        })
    }

    fn allows(&self) -> impl Iterator<Item = &Compiled> {
        self.0.iter().flat_map(|role| &role.allow)
    }

    fn denies(&self) -> impl Iterator<Item = &Compiled> {
        self.0.iter().flat_map(|role| &role.deny)
    }
}

/// Decides about a request. It is a pure function.
pub fn decide(permissions: &Permissions, ask: &AccessRequest<'_>) -> Decision {
    let role_with = |rules: fn(&Role) -> &[Compiled]| {
        let speaks = |role: &&Arc<Role>| rules(role).iter().any(|rule| rule.applies_to(ask));
        permissions.0.iter().find(speaks).map(|role| Arc::clone(&role.name))
    };
    if let Some(by) = role_with(|role| &role.deny) {
        return Decision::Denied { by };
    }
    match role_with(|role| &role.allow) {
        Some(by) => Decision::Allowed { by },
        None => Decision::NotAllowed,
    }
}

/// A compiled role.
#[derive(Clone, Debug)]
pub struct Role {
    name: Arc<str>,
    allow: Vec<Compiled>,
    deny: Vec<Compiled>,
    spec: AccessRoleSpec,
    problems: Vec<String>,
}

impl Role {
    pub fn compile(name: &str, spec: &AccessRoleSpec) -> Self {
        let mut problems = Vec::new();
        let mut all = |rules: &[Rule], kind, otherwise| {
            let rules = rules.iter().enumerate();
            let compile = |(i, rule)| {
                let mut told = Vec::new();
                let compiled = Compiled::new(rule, otherwise, &mut told);
                problems.extend(told.into_iter().map(|problem| format!("{kind}[{i}]: {problem}")));
                compiled
            };
            rules.map(compile).collect()
        };
        let allow = all(&spec.allow, "allow", Unreadable::MatchesNothing);
        let deny = all(&spec.deny, "deny", Unreadable::MatchesAll);
        Self { name: name.into(), allow, deny, spec: spec.clone(), problems }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The role as it was written.
    pub fn spec(&self) -> &AccessRoleSpec {
        &self.spec
    }

    /// Sentences about parts that cannot be parsed or never apply.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// How a part that cannot be parsed is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    MatchesNothing,
    MatchesAll,
}

#[derive(Clone, Debug)]
struct Compiled {
    /// Whether it names [`FLEET`].
    fleet: bool,
    clusters: Vec<Glob>,
    namespaces: Vec<Glob>,
    resources: Vec<Glob>,
    verbs: Verbs,
}

impl Compiled {
    fn new(rule: &Rule, otherwise: Unreadable, problems: &mut Vec<String>) -> Self {
        let Rule { clusters, namespaces, resources, verbs } = rule;
        let mut globs = |patterns: &[String], field: &str| {
            if patterns.is_empty() {
                problems.push(format!("{field} is empty, so the rule never applies"));
            }
            let mut all = Vec::new();
            for pattern in patterns {
                match Glob::new(pattern) {
                    Ok(glob) => all.push(glob),
                    Err(too_long) => {
                        problems.push(format!("{field}: {too_long}"));
                        all.extend((otherwise == Unreadable::MatchesAll).then(Glob::any));
                    }
                }
            }
            all
        };
        let fleet = clusters.iter().any(|cluster| cluster == FLEET);
        let clusters = globs(clusters, "clusters");
        let namespaces = globs(namespaces, "namespaces");
        let resources = globs(resources, "resources");
        if verbs.is_empty() {
            problems.push("verbs is empty, so the rule never applies".to_owned());
        }
        let mut set = Verbs::default();
        for pattern in verbs {
            let meant = Glob::new(pattern).map_or(Verbs::default(), |glob| Verbs::matching(&glob));
            if meant.is_empty() {
                problems.push(format!("verbs: there is no verb {pattern:?}"));
            }
            let unreadable = meant.is_empty() && otherwise == Unreadable::MatchesAll;
            set = set.and(if unreadable { Verbs::matching(&Glob::any()) } else { meant });
        }
        Self { fleet, clusters, namespaces, resources, verbs: set }
    }

    fn applies_to(&self, ask: &AccessRequest<'_>) -> bool {
        self.verbs.has(ask.verb)
            && self.of(ask.resource)
            && self.within(ask.namespace.unwrap_or(NO_NAMESPACE))
            && self.names(ask.cluster)
    }

    fn names(&self, cluster: &str) -> bool {
        if cluster == FLEET {
            return self.fleet;
        }
        self.clusters.iter().any(|glob| glob.matches(cluster))
    }

    fn within(&self, namespace: &str) -> bool {
        self.namespaces.iter().any(|glob| glob.matches(namespace))
    }

    fn of(&self, resource: &str) -> bool {
        self.resources.iter().any(|glob| glob.matches(resource))
    }

    fn covers_namespaces_of(&self, other: &Self) -> bool {
        other.namespaces.iter().all(|theirs| self.namespaces.iter().any(|own| own.covers(theirs)))
    }
}

/// A set of verbs, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Verbs(u16);

impl Verbs {
    fn matching(glob: &Glob) -> Self {
        let meant = Verb::ALL.iter().filter(|verb| glob.matches(verb.as_str()));
        Self(meant.fold(0, |set, verb| set | 1 << *verb as u16))
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u16) != 0
    }

    fn without(self, others: impl Iterator<Item = Self>) -> Self {
        Self(others.fold(self.0, |left, other| left & !other.0))
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Returns the built-in roles.
pub fn built_in() -> &'static [Arc<Role>] {
    &*BUILT_IN
}

pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|role| &*role.name == name)
}

static BUILT_IN: LazyLock<[Arc<Role>; 3]> = LazyLock::new(|| {
    let rule = |clusters: &[&str], resources: &[&str], verbs: &[&str]| {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Rule {
            clusters: words(clusters),
            namespaces: words(&["*"]),
            resources: words(resources),
            verbs: words(verbs),
        }
    };
    // Fairlead's own kinds are resources of the cluster that Fairlead runs in.
    let guarded = [
        "secrets",
        "*.rbac.authorization.k8s.io",
        "users.fairlead.dev",
        "accessroles.fairlead.dev",
        "accesstokens.fairlead.dev",
        "identityproviders.fairlead.dev",
        "rolemappings.fairlead.dev",
        // Both make somebody else: a service account, or whoever a certificate names.
        "serviceaccounts/token",
        "certificatesigningrequests.certificates.k8s.io/approval",
        // A shell on a node is root there, and so all that its cluster has.
        "nodes/shell",
    ];
    let joined = ["clusters.fairlead.dev", "clustermeshes.fairlead.dev"];
    let looking = ["get", "list", "watch", "log"];
    let role = |name, allow, deny| Arc::new(Role::compile(name, &AccessRoleSpec { allow, deny }));
    [
        role(ADMIN, vec![rule(&["*", FLEET], &["*"], &["*"])], vec![]),
        role(
            "operator",
            vec![rule(&["*"], &["*"], &["*"]), rule(&[FLEET], &joined, &["*"])],
            vec![rule(&["*"], &guarded, &["*"])],
        ),
        role(
            "viewer",
            vec![rule(&["*"], &["*"], &looking), rule(&[FLEET], &joined, &looking)],
            vec![rule(&["*"], &guarded, &["*"])],
        ),
    ]
});

#[cfg(test)]
mod tests;

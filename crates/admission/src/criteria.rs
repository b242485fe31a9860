//! Criteria, compiled: each is met by a container (or a claim), or is not.

mod environment;
mod lists;
mod path;
mod pss;
mod resources;
mod scan;
mod secrets;

use std::cell::Cell;

use objects::kinds::admission_rule::{
    Action, Amount, List, Name, Parsed, PssLevel, Regex, RiskyTag, key_value,
};

use super::facts::{Facts, Owner};
use super::glob::Glob;
use super::hostpath::clean_glob;
use super::image::{Image, ImageItem, registry_item};
use super::images::{Excepted, Found, ImageConfig, ImageRecord, Images};
use super::item::Item;
use super::pod::Container;
use super::request::{Classes, Pod, Request};
use lists::{Pair, holds};
use scan::ScanTest;

/// What a criterion is held against.
pub(super) struct Context<'r> {
    request: &'r Request,
    facts: &'r dyn Facts,
    subject: Target<'r>,
    /// Whether a criterion asked for the roles of a service account and got no answer.
    pub(super) bindings_unknown: Cell<bool>,
    /// Whether it is a sidecar that some rules leave out.
    pub(super) exempt: bool,
    images: Option<&'r Images>,
    /// What is known of the container's image.
    found: Found<'r>,
    excepted: Excepted<'r>,
    now: i64,
}

/// A context as one rule looks at it: with one of the records of the container's image, if there are any.
#[derive(Clone, Copy)]
pub(super) struct Judged<'c, 'r> {
    context: &'c Context<'r>,
    action: Action,
    record: Option<&'r ImageRecord>,
}

impl<'r> Judged<'_, 'r> {
    /// What the image says of its containers, if that is known.
    fn config(&self) -> Option<&'r ImageConfig> {
        self.record?.config.as_deref()
    }
}

enum Target<'r> {
    Claim(&'r str),
    Container(Around<'r>),
}

/// A container and what is around it.
#[derive(Clone, Copy)]
struct Around<'r> {
    pod: &'r Pod,
    owner: Option<&'r Owner>,
    container: &'r Container,
    image: &'r Image,
}

impl<'r> Context<'r> {
    pub(super) fn claim(request: &'r Request, class: &'r str, facts: &'r dyn Facts) -> Self {
        Self::new(request, facts, Target::Claim(class))
    }

    fn new(request: &'r Request, facts: &'r dyn Facts, subject: Target<'r>) -> Self {
        Self {
            request,
            facts,
            subject,
            bindings_unknown: Cell::new(false),
            exempt: false,
            images: None,
            found: Found::default(),
            excepted: Excepted::default(),
            now: 0,
        }
    }

    pub(super) fn container(
        request: &'r Request,
        pod: &'r Pod,
        owner: Option<&'r Owner>,
        container: &'r Container,
        image: &'r Image,
        facts: &'r dyn Facts,
    ) -> Self {
        let subject = Target::Container(Around { pod, owner, container, image });
        let context = Self::new(request, facts, subject);
        let Some(images) = facts.images() else { return context };
        let now = facts.now();
        Self {
            images: Some(images),
            found: images.find(image),
            excepted: images.excepted(image, &request.namespace, now),
            now,
            ..context
        }
    }

    /// The context as a rule of this action looks at it: once for each record of the image that counts
    /// for such a rule, the newest first; once if there is none.
    pub(super) fn judged(&self, action: Action) -> impl Iterator<Item = Judged<'_, 'r>> {
        let records = match action {
            Action::Deny => self.found.for_deny(),
            Action::Allow => self.found.for_allow(),
        };
        let none = records.is_empty().then_some(None);
        let records = records.iter().copied().map(Some).chain(none);
        records.map(move |record| Judged { context: self, action, record })
    }

    /// Whether a deny rule finds the vulnerabilities of the container's image.
    pub(super) fn is_scanned(&self) -> bool {
        self.found.for_deny().iter().any(|record| record.scanned_at.is_some())
    }

    fn around(&self) -> Option<&Around<'r>> {
        match &self.subject {
            Target::Container(around) => Some(around),
            Target::Claim(_) => None,
        }
    }

    pub(super) fn container_name(&self) -> Option<&'r str> {
        self.around().map(|around| around.container.name.as_str())
    }

    pub(super) fn image_text(&self) -> Option<&'r str> {
        self.around().map(|around| around.image.text.as_str())
    }

    /// Where claims and service accounts are looked up.
    fn lookup_namespace(&self) -> &'r str {
        if self.request.namespace.is_empty() { "default" } else { &self.request.namespace }
    }

    /// User and groups; unknown for an object whose owner is believed and whose owner's review was not
    /// seen.
    fn by(&self, around: &Around<'r>) -> Option<(&'r str, &'r [String])> {
        if around.pod.owner.is_none() {
            let known = self.request.requester_known;
            return known.then_some((&self.request.user, &self.request.groups));
        }
        let (user, groups) = around.owner?.by.as_ref()?;
        Some((user, groups))
    }

    fn service_account(around: &Around<'r>) -> &'r str {
        match around.pod.spec.service_account_name.as_str() {
            "" => "default",
            name => name,
        }
    }
}

impl<'r> Around<'r> {
    fn pairs(
        self,
        name: Name,
        request: &'r Request,
        known: Option<&'r ImageConfig>,
    ) -> Vec<(&'r str, &'r str)> {
        let (own, of_owner, of_image) = match name {
            Name::EnvVars => return environment::variables(&self, request, known),
            Name::Labels => (
                &self.pod.labels,
                self.owner.map(|owner| &owner.labels),
                known.map(|known| &known.labels),
            ),
            _ => (&self.pod.annotations, self.owner.map(|owner| &owner.annotations), None),
        };
        let pairs = of_owner.unwrap_or(own).iter().chain(of_image.into_iter().flatten());
        pairs.map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    /// Paths of the host that this container mounts.
    fn host_paths(self) -> impl Iterator<Item = &'r str> + Clone {
        let mounts = &self.container.volume_mounts;
        let mounted = |volume: &&super::pod::Volume| mounts.iter().any(|m| m.name == volume.name);
        self.pod.spec.volumes.iter().filter(mounted).filter_map(|volume| volume.host_path())
    }

    fn flag(&self, name: Name, known: Option<&ImageConfig>) -> bool {
        let security = &self.container.security_context;
        let spec = &self.pod.spec;
        match name {
            Name::EnvVarSecrets => secrets::find(&self.container.env).is_some(),
            Name::RunAsPrivileged => security.privileged == Some(true),
            Name::RunAsRoot => {
                let user = security.run_as_user.or(spec.security_context.run_as_user);
                let by_image = || known.is_some_and(|known| known.runs_as_root);
                user.map_or_else(by_image, |user| user == 0)
            }
            Name::AllowPrivEscalation => {
                security.privileged == Some(true)
                    || security.allow_privilege_escalation == Some(true)
                    || security.capabilities.add.iter().any(|name| gains_privileges(name))
            }
            Name::SharePidWithHost => spec.host_pid,
            Name::ShareIpcWithHost => spec.host_ipc,
            Name::ShareNetWithHost => spec.host_network,
            Name::PspCompliance => [
                Name::RunAsPrivileged,
                Name::RunAsRoot,
                Name::AllowPrivEscalation,
                Name::SharePidWithHost,
                Name::ShareIpcWithHost,
                Name::ShareNetWithHost,
            ]
            .into_iter()
            .any(|name| self.flag(name, known)),
            _ => false,
        }
    }
}

/// Whether a process that has this capability may gain privileges, whatever
/// `allowPrivilegeEscalation` says. Container runtimes take `ALL` in any case.
fn gains_privileges(capability: &str) -> bool {
    capability == "SYS_ADMIN" || capability.eq_ignore_ascii_case("ALL")
}

#[derive(Clone, Debug)]
pub(super) enum Test {
    Image(List, Vec<ImageItem>),
    Registry(List, Vec<Glob>),
    Texts(Name, List, Vec<Glob>),
    Pairs(Name, List, Vec<Pair>),
    Regex(Name, bool, Regex),
    Flag(Name, bool),
    Pss(PssLevel),
    Resources(Vec<Amount>),
    RiskyRole(Vec<RiskyTag>),
    Path(path::PathTest),
    Scan(ScanTest),
}

impl Test {
    pub(super) fn new(parsed: Parsed) -> Self {
        match parsed {
            Parsed::List(Name::Image, op, items) => {
                Self::Image(op, items.iter().map(|item| ImageItem::new(item)).collect())
            }
            Parsed::List(Name::ImageRegistry, op, items) => {
                Self::Registry(op, items.iter().flat_map(|item| registry_item(item)).collect())
            }
            Parsed::List(name @ (Name::Labels | Name::Annotations | Name::EnvVars), op, items) => {
                let pair = |item: &String| {
                    let (key, value) = key_value(item);
                    Pair { key: key.into(), value: value.map(Glob::new) }
                };
                Self::Pairs(name, op, items.iter().map(pair).collect())
            }
            Parsed::List(name @ Name::MountVolumes, op, items) => {
                let glob = |item: &String| Glob::new(&clean_glob(item));
                Self::Texts(name, op, items.iter().map(glob).collect())
            }
            Parsed::List(Name::CveNames, op, items) => {
                Self::Scan(ScanTest::vulnerabilities(op, &items))
            }
            Parsed::List(Name::Modules, op, items) => Self::Scan(ScanTest::modules(op, &items)),
            Parsed::List(Name::ImageVerifiers, op, items) => {
                Self::Scan(ScanTest::verifiers(op, &items))
            }
            Parsed::List(name, op, items) => {
                Self::Texts(name, op, items.iter().map(|item| Glob::new(item)).collect())
            }
            Parsed::Regex { name, negative, regex } => Self::Regex(name, negative, regex),
            Parsed::Count(count) => Self::Scan(ScanTest::Count(count)),
            Parsed::Scores { tenths, count } => Self::Scan(ScanTest::Scores { tenths, count }),
            Parsed::ScannedWithin { value, days } => {
                Self::Scan(ScanTest::Scanned { value, days: Some(days) })
            }
            Parsed::Flag(Name::ImageScanned, value) => {
                Self::Scan(ScanTest::Scanned { value, days: None })
            }
            Parsed::Flag(name, value) if name.needs_scan() => {
                Self::Scan(ScanTest::Flag(name, value))
            }
            Parsed::Flag(name, value) => Self::Flag(name, value),
            Parsed::Pss(level) => Self::Pss(level),
            Parsed::Resources(amounts) => Self::Resources(amounts),
            Parsed::RiskyRole(tags) => Self::RiskyRole(tags),
            Parsed::Path(test) => Self::Path(path::PathTest::new(test)),
        }
    }

    pub(super) fn met(&self, judged: &Judged<'_, '_>) -> bool {
        let context = judged.context;
        let namespace = context.request.namespace.as_str();
        if let Self::Texts(Name::Namespace, op, items) = self {
            return holds(*op, items, std::iter::once(namespace), Glob::matches);
        }
        let Some(around) = context.around() else {
            let Target::Claim(class) = context.subject else { return false };
            return match self {
                Self::Texts(Name::StorageClassName, op, items) => {
                    holds(*op, items, std::iter::once(class), Glob::matches)
                }
                // A claim has nothing else.
                _ => false,
            };
        };
        match self {
            Self::Image(op, items) => {
                let any = items.iter().any(|item| item.matches(around.image));
                if *op == List::NotAny { !any } else { any }
            }
            Self::Registry(op, items) => {
                let hosts = around.image.hosts.iter().map(String::as_str);
                holds(*op, items, hosts, Glob::matches)
            }
            Self::Texts(name, op, items) => texts(*name, *op, items, context, around),
            Self::Pairs(name, op, items) => {
                let pairs = around.pairs(*name, context.request, judged.config());
                holds(*op, items, pairs.iter().copied(), Pair::matches)
            }
            Self::Regex(name, negative, regex) => {
                let Some((user, groups)) = context.by(around) else { return false };
                let found = match name {
                    Name::User => regex.is_match(user.as_bytes()),
                    _ => groups.iter().any(|group| regex.is_match(group.as_bytes())),
                };
                found != *negative
            }
            Self::Flag(name, value) => around.flag(*name, judged.config()) == *value,
            Self::Pss(level) => pss::violation(*level, around.pod, around.container).is_some(),
            Self::Resources(amounts) => resources::any_holds(amounts, &around.container.resources),
            Self::RiskyRole(tags) => {
                let account = Context::service_account(around);
                let known = context.facts.risky_tags(context.lookup_namespace(), account);
                if known.is_none() {
                    context.bindings_unknown.set(true);
                }
                known.is_some_and(|known| tags.iter().any(|tag| known.contains(*tag)))
            }
            Self::Path(test) => test.met(around.pod.item.value()),
            Self::Scan(test) => test.met(judged),
        }
    }

    /// Whether a `customPath` finds the same in both; true of every other criterion.
    pub(super) fn finds_the_same(&self, item: &Item, before: &Item) -> bool {
        match self {
            Self::Path(test) => test.finds_the_same(item.value(), before.value()),
            _ => true,
        }
    }

    /// What met it, where its words do not say so. Of a secret, the variable's name and the kind.
    pub(super) fn detail(&self, judged: &Judged<'_, '_>) -> Option<String> {
        matches!(self, Self::Flag(Name::EnvVarSecrets, true) | Self::Pss(_) | Self::Scan(_))
            .then(|| self.saw(judged))
    }

    /// What the object has there, for a person. Values of variables are not repeated.
    pub(super) fn saw(&self, judged: &Judged<'_, '_>) -> String {
        let context = judged.context;
        let Some(around) = context.around() else {
            let Target::Claim(class) = context.subject else { return String::new() };
            return match self {
                Self::Texts(Name::Namespace, ..) => context.request.namespace.clone(),
                Self::Texts(Name::StorageClassName, ..) => class.to_owned(),
                _ => "a claim has no such thing".to_owned(),
            };
        };
        match self {
            Self::Image(..) => around.image.text.clone(),
            Self::Registry(..) => around.image.hosts.join(", "),
            Self::Texts(Name::Namespace, ..) => context.request.namespace.clone(),
            Self::Texts(Name::User | Name::UserGroups, ..) | Self::Regex(..) => {
                context.by(around).map_or_else(
                    || "user and groups are not known".to_owned(),
                    |(user, groups)| format!("{user:?} in [{}]", groups.join(", ")),
                )
            }
            Self::Texts(Name::MountVolumes, ..) => {
                around.host_paths().collect::<Vec<_>>().join(", ")
            }
            Self::Texts(..) => match &around.pod.classes {
                Classes::Named(classes) => classes.join(", "),
                Classes::Claims(claims) => format!("claims {}", claims.join(", ")),
            },
            Self::Pairs(name, ..) => {
                let pairs = around.pairs(*name, context.request, judged.config());
                let text = |(key, value): &(&str, &str)| match name {
                    Name::EnvVars => (*key).to_owned(),
                    _ => format!("{key}={value}"),
                };
                pairs.iter().map(text).collect::<Vec<_>>().join(", ")
            }
            Self::Flag(Name::EnvVarSecrets, _) => secrets::find(&around.container.env).map_or_else(
                || "nothing that looks like a secret".to_owned(),
                |(variable, kind)| format!("{variable} looks like: {kind}"),
            ),
            Self::Flag(name, _) => around.flag(*name, judged.config()).to_string(),
            Self::Pss(level) => pss::violation(*level, around.pod, around.container)
                .unwrap_or("no violation")
                .to_owned(),
            Self::Resources(_) => resources::said(&around.container.resources),
            Self::RiskyRole(_) => format!("service account {}", Context::service_account(around)),
            Self::Path(test) => test.saw(around.pod.item.value()),
            Self::Scan(test) => test.saw(judged),
        }
    }
}

fn texts(name: Name, op: List, items: &[Glob], context: &Context<'_>, around: &Around<'_>) -> bool {
    match name {
        Name::MountVolumes => holds(op, items, around.host_paths(), Glob::matches),
        Name::User | Name::UserGroups => {
            let Some((user, groups)) = context.by(around) else { return false };
            if name == Name::User {
                holds(op, items, std::iter::once(user), Glob::matches)
            } else {
                holds(op, items, groups.iter().map(String::as_str), Glob::matches)
            }
        }
        // One class that meets the operator is enough; none at all meets nothing.
        Name::StorageClassName => {
            let meets = |class: &str| holds(op, items, std::iter::once(class), Glob::matches);
            match &around.pod.classes {
                Classes::Named(classes) => classes.iter().any(|class| meets(class)),
                Classes::Claims(claims) => claims.iter().any(|claim| {
                    let class = context.facts.storage_class(context.lookup_namespace(), claim);
                    class.is_some_and(meets)
                }),
            }
        }
        _ => false,
    }
}

//! The decision: a pure function of the program, the request and the facts. No lock, no I/O.

use std::borrow::Cow;
use std::sync::Arc;

use objects::kinds::admission_rule::{Action, ContainerKind};
use serde::Serialize;

use super::compile::{Compare, Compiled, Fold, Program, index};
use super::criteria::{Context, Judged};
use super::facts::Facts;
use super::request::{Request, ReviewedObject, UNCHANGED};

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit<'p> {
    pub rule: &'p str,
    /// None for a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Those that were met, with what met them where the words do not say it.
    pub criteria: Vec<Cow<'p, str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision<'p> {
    pub allowed: bool,
    /// The deny rule that refused; else the allow rule of the first container that one let in.
    pub decided: Option<Hit<'p>>,
    /// Deny rules in monitor mode that matched, each once.
    pub monitored: Vec<Hit<'p>>,
    pub warnings: Vec<String>,
    /// Why no rule looked at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<&'static str>,
}

impl Decision<'_> {
    /// For the person who was refused, or let in.
    pub fn sentence(&self) -> String {
        let verdict = if self.allowed { "allowed" } else { "denied" };
        match (&self.decided, self.passed) {
            (Some(hit), _) => format!("{verdict} by {}", hit.sentence()),
            (None, Some(why)) => format!("{verdict}: {why}"),
            (None, None) => format!("{verdict}: no rule decides"),
        }
    }
}

impl Hit<'_> {
    pub fn sentence(&self) -> String {
        let criteria = self.criteria.join("; ");
        match &self.container {
            Some(container) => {
                let image = self.image.as_deref().unwrap_or_default();
                format!("rule {:?}: container {container:?} ({image}): {criteria}", self.rule)
            }
            None => format!("rule {:?}: {criteria}", self.rule),
        }
    }
}

/// Decides a request.
pub fn decide<'p>(program: &'p Program, request: &Request, facts: &dyn Facts) -> Decision<'p> {
    let mut decision = Decision {
        allowed: true,
        decided: None,
        monitored: Vec::new(),
        warnings: Vec::new(),
        passed: passed(program, request),
    };
    if decision.passed.is_some() {
        return decision;
    }
    for_each_context(request, facts, |kind, context| {
        let goes_on = decide_one(program, kind, &context, &mut decision);
        if context.bindings_unknown.get() && decision.warnings.is_empty() {
            let warning = "the roles of the pod's service account are not known, so that \
                           saBindRiskyRole was not met";
            decision.warnings.push(warning.to_owned());
        }
        goes_on
    });
    decision
}

/// Why no rule looks at it, if none does: also an update that changes nothing of what rules look at.
fn passed(program: &Program, request: &Request) -> Option<&'static str> {
    if let ReviewedObject::Pod(pod) = &request.subject
        && let Some(before) = &pod.unchanged_from
    {
        let criteria = program.rules.iter().flat_map(|rule| &rule.folds);
        let mut criteria = criteria.flat_map(|fold| &fold.criteria);
        return criteria
            .all(|criterion| criterion.test.finds_the_same(&pod.item, before))
            .then_some(UNCHANGED);
    }
    request.passed()
}

/// Each container, or the claim, until `visit` has seen enough.
fn for_each_context<'r>(
    request: &'r Request,
    facts: &'r dyn Facts,
    mut visit: impl FnMut(Option<ContainerKind>, Context<'r>) -> bool,
) {
    match &request.subject {
        ReviewedObject::Passed(_) => {}
        ReviewedObject::Claim { class } => {
            visit(None, Context::claim(request, class, facts));
        }
        ReviewedObject::Pod(pod) => {
            let owner = pod.owner.as_ref().and_then(|uid| facts.owner(uid));
            for (kind, container, image) in &pod.containers {
                let mut context = Context::container(request, pod, owner, container, image, facts);
                context.exempt = image.sidecar && pod.is_injected(container, facts);
                if !visit(Some(*kind), context) {
                    return;
                }
            }
        }
    }
}

/// Whether to look at the next container.
fn decide_one<'p>(
    program: &'p Program,
    kind: Option<ContainerKind>,
    context: &Context<'_>,
    decision: &mut Decision<'p>,
) -> bool {
    let selected = |rule: &&Arc<Compiled>| rule.looks_at(kind, context);
    for rule in program.rules.iter().filter(selected) {
        if rule.asks_scans && rule.action == Action::Deny && !context.is_scanned() {
            let image = context.image_text().unwrap_or_default();
            let warning = format!("image not scanned: {image}");
            if !decision.warnings.contains(&warning) {
                decision.warnings.push(warning);
            }
        }
        let Some(judged) = rule.matches(context) else { continue };
        match (rule.action, rule.protect) {
            (Action::Allow, _) => {
                if decision.decided.is_none() {
                    decision.decided = Some(rule.hit(context, &judged));
                }
                return true;
            }
            (Action::Deny, true) => {
                decision.allowed = false;
                decision.decided = Some(rule.hit(context, &judged));
                return false;
            }
            (Action::Deny, false) => {
                if !decision.monitored.iter().any(|hit| hit.rule == rule.name) {
                    decision.monitored.push(rule.hit(context, &judged));
                }
            }
        }
    }
    true
}

impl Compiled {
    fn looks_at(&self, kind: Option<ContainerKind>, context: &Context<'_>) -> bool {
        kind.is_none_or(|kind| self.selects[index(kind)])
            && !(context.exempt && self.spares_sidecars)
    }

    /// How the rule looked at what it matches. Of several records of an image, one is enough for a rule
    /// that refuses; one that lets in must match with each.
    fn matches<'c, 'r>(&self, context: &'c Context<'r>) -> Option<Judged<'c, 'r>> {
        let holds = |judged: &Judged<'_, '_>| {
            !self.folds.is_empty() && self.folds.iter().all(|fold| fold.holds(judged))
        };
        let mut judged = context.judged(self.action);
        match self.action {
            Action::Deny => judged.find(holds),
            Action::Allow => {
                let newest = judged.next().filter(holds)?;
                judged.all(|other| holds(&other)).then_some(newest)
            }
        }
    }

    fn hit(&self, context: &Context<'_>, judged: &Judged<'_, '_>) -> Hit<'_> {
        let criteria = self.folds.iter().flat_map(|fold| &fold.criteria);
        let met = criteria.filter(|criterion| criterion.test.met(judged));
        Hit {
            rule: &self.name,
            container: context.container_name().map(str::to_owned),
            image: context.image_text().map(str::to_owned),
            criteria: met.map(|criterion| criterion.said(judged)).collect(),
        }
    }
}

impl Compare {
    fn said(&self, judged: &Judged<'_, '_>) -> Cow<'_, str> {
        match self.test.detail(judged) {
            Some(detail) => format!("{} ({detail})", self.text).into(),
            None => self.text.as_str().into(),
        }
    }
}

impl Fold {
    /// Negatives are ANDed until the first positive one; from there on everything is ORed.
    fn holds(&self, judged: &Judged<'_, '_>) -> bool {
        let mut criteria = self.criteria.iter();
        let Some(first) = criteria.next() else { return false };
        let mut held = first.test.met(judged);
        let mut all_negative = first.negative;
        for criterion in criteria {
            if criterion.negative && all_negative {
                held = held && criterion.test.met(judged);
            } else {
                all_negative = false;
                held = held || criterion.test.met(judged);
            }
        }
        held
    }
}

/// One rule held against one container, or the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained<'p> {
    pub rule: &'p str,
    pub action: Action,
    /// Whether a match decides, rather than being recorded.
    pub decides: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// False where the rule does not look at this container: at its kind, or at sidecars.
    pub selected: bool,
    pub matched: bool,
    pub criteria: Vec<Checked<'p>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked<'p> {
    pub criterion: &'p str,
    pub met: bool,
    /// What the object has there.
    pub saw: String,
}

/// Every rule in decision order on every container, whatever was decided before it.
pub fn explain<'p>(
    program: &'p Program,
    request: &Request,
    facts: &dyn Facts,
) -> Vec<Explained<'p>> {
    let mut explained = Vec::new();
    if passed(program, request).is_some() {
        return explained;
    }
    for_each_context(request, facts, |kind, context| {
        for rule in &program.rules {
            let selected = rule.looks_at(kind, &context);
            let matched = rule.matches(&context);
            let criteria = rule.folds.iter().flat_map(|fold| &fold.criteria);
            // Shown is the look that decided, or the newest record.
            let judged = matched.or_else(|| context.judged(rule.action).next());
            let criteria = judged.iter().flat_map(|judged| {
                criteria.clone().map(|criterion| Checked {
                    criterion: &criterion.text,
                    met: criterion.test.met(judged),
                    saw: criterion.test.saw(judged),
                })
            });
            explained.push(Explained {
                rule: &rule.name,
                action: rule.action,
                decides: rule.action == Action::Allow || rule.protect,
                container: context.container_name().map(str::to_owned),
                selected,
                matched: selected && matched.is_some(),
                criteria: criteria.collect(),
            });
        }
        true
    });
    explained
}

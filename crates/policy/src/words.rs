//! Decisions in words.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::evaluate::{DecidedBy, DirectionDecision, TierTrace};
use crate::probe::Probe;
use crate::program::{Direction, PolicyKind, Source, TierKind, Verdict};
use crate::spec::Policies;

/// Why one direction allows a connection or does not, in a sentence.
pub fn why(decision: &DirectionDecision, direction: Direction) -> String {
    let end = match direction {
        Direction::Egress => "source",
        Direction::Ingress => "destination",
    };
    match &decision.by {
        DecidedBy::NotSelectable => format!("the {end} is no pod that policies select"),
        DecidedBy::Itself => "a pod always reaches itself".to_owned(),
        DecidedBy::OwnNode => match direction {
            Direction::Egress => "no NetworkPolicy keeps a pod from its own node".to_owned(),
            Direction::Ingress => "a node always reaches its own pods".to_owned(),
        },
        DecidedBy::Default => match decision.tiers.is_empty() {
            true => format!("no policy selects the {end}"),
            false => "no policy decides, so it is allowed".to_owned(),
        },
        DecidedBy::Rule { source, .. } => decided(decision.allowed, source),
        DecidedBy::Isolation { policies } => {
            let names: Vec<_> = policies.iter().map(|it| it.policy.as_ref()).collect();
            let (noun, verb) = if names.len() == 1 {
                ("NetworkPolicy", "selects")
            } else {
                ("NetworkPolicies", "select")
            };
            format!("{noun} {} {verb} the {end}, and no rule accepts it", names.join(", "))
        }
    }
}

fn decided(allowed: bool, source: &Source) -> String {
    let word = if allowed { "accepts" } else { "denies" };
    match source.kind {
        PolicyKind::Quarantine => {
            format!("the {} {} puts the workload apart", source.rule, source.policy)
        }
        PolicyKind::Group => {
            format!("no rule of guard allows it, and the laxer end is in {}", source.policy)
        }
        PolicyKind::NetworkRule => format!("NetworkRule {} {word} it", source.policy),
        _ => format!("{} {}, {}, {word} it", source.kind, source.policy, source.rule),
    }
}

/// A probe's answer, with what each tier of each direction said, as JSON. The error is a sentence that begins
/// with the field.
pub fn explain(probe: &Probe, cluster: &Cluster, policies: &Policies) -> Result<Value, String> {
    let mut value = json!(probe.answer(cluster, policies)?);
    let decision = probe.decide(cluster, policies)?;
    for (name, decided) in [("egress", &decision.egress), ("ingress", &decision.ingress)] {
        let said = tiers(decided);
        let said =
            said.iter().map(|(tier, words)| json!({"tier": tier.to_string(), "said": words}));
        value[name]["tiers"] = said.collect();
    }
    Ok(value)
}

/// What each tier said, a line each, in the order in which they were asked.
pub fn tiers(decision: &DirectionDecision) -> Vec<(TierKind, String)> {
    decision.tiers.iter().map(|trace| (trace.tier, tier(trace))).collect()
}

fn tier(trace: &TierTrace) -> String {
    let policies = match (trace.tier, trace.policies) {
        (TierKind::Guard | TierKind::Quarantine, _) => String::new(),
        (_, 1) => "1 policy: ".to_owned(),
        (_, count) => format!("{count} policies: "),
    };
    let said = match &trace.decided {
        None => "no rule matches; the next tier is asked".to_owned(),
        Some((Verdict::Accept, source)) if &*source.rule == "own-node" => {
            "no NetworkPolicy keeps a pod from its own node".to_owned()
        }
        Some((Verdict::Accept, source)) => decided(true, source),
        Some((Verdict::Deny(_), source)) if &*source.rule == "isolation" => {
            format!("no rule accepts it, and {} isolates the pod", source.policy)
        }
        Some((Verdict::Deny(_), source)) => decided(false, source),
        Some((Verdict::Pass, source)) => {
            format!(
                "{} {}, {}, passes it to the next tier",
                source.kind, source.policy, source.rule
            )
        }
        Some((Verdict::Report, source)) => match source.kind {
            PolicyKind::NetworkRule => {
                format!(
                    "NetworkRule {} denies it, which is reported and not stopped",
                    source.policy
                )
            }
            _ => "no rule of guard allows it, which is reported and not stopped".to_owned(),
        },
    };
    format!("{policies}{said}")
}

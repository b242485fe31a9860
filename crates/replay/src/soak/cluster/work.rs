//! The steady work: writes and reads through the fleet, reviews, policies and rules that come and go, pods
//! that come and go, credentials that rotate, logs, reports on images.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::Answer;
use super::history::{Read, Write};
use super::packets::{Change, GATE};
use super::scope::{Part, now};
use super::stage::NAMESPACE;
use super::{NODES, Run, deadlines};

/// How long an answer is worth having.
const WITHIN: Duration = Duration::from_secs(10);
/// A register has so many values at most: what is asked of the audit stays small.
const VALUES: u64 = 100;
/// After it was acknowledged, so long until every replica goes by it.
const KNOWN: u64 = 10_000;

/// One user, who stays with a controller while that answers.
struct Client<'a> {
    run: &'a Run<'a>,
    node: u32,
}

impl<'a> Client<'a> {
    fn new(run: &'a Run<'a>, number: u32) -> Self {
        Self { run, node: number % NODES + 1 }
    }

    /// Asks, and has it checked that there is an answer in time.
    fn ask(&mut self, what: &str, route: (&str, &str), content: Option<(&str, String)>) -> Answer {
        let (node, from) = (self.node, now());
        let answer = self.run.stage.ask(node, route, content, WITHIN);
        let answered = (!matches!(answer, Answer::Silence)).then(now);
        let asked = deadlines::Asked {
            what: format!("{what} at the controller of node {node}"),
            from,
            within: WITHIN.as_secs() * 1000,
            answered,
            parts: vec![Part::Controller(node)],
        };
        self.run.looked("answers");
        let late = deadlines::unanswered(&asked, &self.run.scope.lock());
        self.run.broken("answers", late);
        if answer.ok().is_none() {
            self.node = node % NODES + 1;
        }
        answer
    }

    fn pause(&self, answer: &Answer, short: u64) {
        self.run.sleep(if answer.ok().is_some() { short } else { 1000 });
    }
}

fn resource(run: &Run<'_>, kind: &str, name: &str) -> String {
    format!("/api/v1/clusters/{}/resources/{kind}/{name}?namespace={NAMESPACE}", run.stage.name)
}

fn apply(run: &Run<'_>) -> String {
    format!("/api/v1/clusters/{}/apply?force=true", run.stage.name)
}

fn was_applied(answer: &Answer) -> bool {
    let outcome =
        answer.ok().and_then(|it| it["results"][0]["outcome"].as_str().map(str::to_owned));
    outcome
        .is_some_and(|outcome| ["created", "configured", "unchanged"].contains(&outcome.as_str()))
}

pub(super) fn writes(run: &Run<'_>, number: u32) {
    let mut client = Client::new(run, number);
    let (mut epoch, mut value) = (0, 0);
    while !run.is_over() {
        value += 1;
        let register = format!("register-{number}-{epoch}");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "value": value.to_string() },
            "metadata": { "name": register, "namespace": NAMESPACE, "labels": { "soak": "register" } },
        });
        let place = {
            let mut history = run.history.lock();
            history.writes.push(Write { register, value, from: now(), acknowledged: None });
            history.writes.len() - 1
        };
        let answer = client.ask(
            "a write",
            ("POST", &apply(run)),
            Some(("application/yaml", object.to_string())),
        );
        if was_applied(&answer) {
            run.history.lock().writes[place].acknowledged = Some(now());
            run.did("writes");
        }
        // Nobody knows what became of it, or whether it still comes: that register has had its last write.
        if !was_applied(&answer) || value >= VALUES {
            epoch += 1;
            value = 0;
        }
        client.pause(&answer, 400);
    }
}

pub(super) fn reads(run: &Run<'_>, number: u32) {
    let mut client = Client::new(run, number);
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    while !run.is_over() {
        let register = {
            let history = run.history.lock();
            // The latest are the ones that change.
            let last = history.writes.len();
            let first = if random.bool() { last.saturating_sub(8) } else { 0 };
            (last > first).then(|| history.writes[random.usize(first..last)].register.clone())
        };
        let Some(register) = register else {
            run.sleep(100);
            continue;
        };
        let from = now();
        let answer = client.ask("a read", ("GET", &resource(run, "configmaps", &register)), None);
        let value = match &answer {
            Answer::Said(404, body) if body.contains(&register) => Some(0),
            answer => answer.ok().and_then(|object| value_of(&object)),
        };
        if let Some(value) = value {
            let client = format!("reader {number}");
            run.history.lock().reads.push(Read { client, register, value, from, until: now() });
            run.did("reads");
        }
        client.pause(&answer, 150);
    }
}

pub(super) fn value_of(object: &Value) -> Option<u64> {
    // The API answers with the object, or with the object and what is known of it.
    let object = object.get("object").unwrap_or(object);
    object["data"]["value"].as_str()?.parse().ok()
}

fn pod(labels: &Value, privileged: bool) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "generateName": "review-", "namespace": NAMESPACE, "labels": labels },
        "spec": { "containers": [{
            "name": "c", "image": "local/busybox:1", "securityContext": { "privileged": privileged },
        }] },
    })
    .to_string()
}

/// Pods that nobody wants, as the API server would admit them; and a rule that comes and goes.
pub(super) fn reviews(run: &Run<'_>) {
    let route = ("POST", "/api/v1/namespaces/soak/pods?dryRun=All");
    let review = |labels: &Value, privileged| {
        let from = now();
        let body = Some(("application/json", pod(labels, privileged)));
        let answer = run.stage.kube(route, body, Duration::from_secs(15));
        run.looked("reviews");
        if matches!(answer, Answer::Said(..)) {
            run.did("reviews");
        }
        (from, answer)
    };
    let mut client = Client::new(run, 0);
    // When the rule was last changed, and whether it is there; none while nobody knows.
    let mut rule: (u64, Option<bool>) = (now(), Some(false));
    let mut turn = 0;
    while !run.is_over() {
        let (from, answer) = review(&json!({}), true);
        if let Answer::Said(200..=299, _) = answer {
            run.broken("reviews", Some(format!("a privileged pod was admitted at {from}")));
        }
        let (from, answer) = review(&json!({}), false);
        let excused = |from| run.excuses(&[Part::Reviews, Part::Api], from);
        if answer.ok().is_none() && !excused(from) {
            run.broken(
                "reviews",
                Some(format!(
                    "a pod that no rule forbids was refused at {from}: {}",
                    answer.told()
                )),
            );
        }
        let (changed, is_there) = rule;
        let (from, answer) = review(&json!({ "soak": "toggled" }), false);
        if let Some(is_there) = is_there
            && changed + KNOWN < from
            && !excused(changed)
            && answer.ok().is_some() == is_there
        {
            let is = if is_there { "forbidden" } else { "allowed" };
            run.broken(
                "reviews",
                Some(format!(
                    "what is {is} since {changed} was decided otherwise at {from}: {}",
                    answer.told()
                )),
            );
        }
        turn += 1;
        if turn % 12 == 0 {
            let write = is_there != Some(true);
            let path = "/api/v1/admission/rules/soak-toggled";
            let spec = json!({ "spec": { "action": "deny", "mode": "protect",
                "criteria": [{ "name": "labels", "op": "containsAny", "value": "soak=toggled" }] } });
            let answer = match write {
                true => client.ask(
                    "a rule",
                    ("PUT", path),
                    Some(("application/json", spec.to_string())),
                ),
                false => client.ask("a rule's end", ("DELETE", path), None),
            };
            let is_done = matches!(answer, Answer::Said(200..=299, _));
            // A DELETE that was done already is one that is done.
            let is_done = is_done || (!write && matches!(answer, Answer::Said(404, _)));
            rule = (now(), is_done.then_some(write));
            if is_done {
                run.did("rules");
            }
        }
        run.sleep(1200);
    }
}

/// A NetworkPolicy that opens a port comes and goes.
pub(super) fn gate(run: &Run<'_>) {
    let mut client = Client::new(run, 1);
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": { "name": "gate", "namespace": NAMESPACE },
        "spec": { "podSelector": { "matchLabels": { "app": "probe" } }, "ingress": [{ "ports": [{ "port": GATE }] }] },
    });
    let mut opens = true;
    while !run.is_over() {
        let place = {
            let mut packets = run.packets.lock();
            packets.gate.push(Change { asked: now(), acknowledged: None, opens });
            packets.gate.len() - 1
        };
        let is_done = match opens {
            true => {
                let body = Some(("application/yaml", policy.to_string()));
                was_applied(&client.ask("a policy", ("POST", &apply(run)), body))
            }
            false => {
                let answer = client.ask(
                    "a policy's end",
                    ("DELETE", &resource(run, "networkpolicies", "gate")),
                    None,
                );
                matches!(answer, Answer::Said(200..=299 | 404, _))
            }
        };
        if is_done {
            run.packets.lock().gate[place].acknowledged = Some(now());
            run.did("policies");
            opens = !opens;
            run.sleep(28_000);
        } else {
            run.sleep(1000);
        }
    }
}

/// A Deployment whose pods come and go, on all nodes.
pub(super) fn churn(run: &Run<'_>) {
    let mut random = fastrand::Rng::with_seed(run.plan.seed);
    let within = Duration::from_secs(10);
    let labels = json!({ "app": "churn" });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "churn", "namespace": NAMESPACE },
        "spec": { "replicas": 3, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "terminationGracePeriodSeconds": 0, "containers": [{
                "name": "c", "image": "local/busybox:1", "imagePullPolicy": "Never", "command": ["sleep", "100000"],
            }] },
        } },
    });
    let deployments = "/apis/apps/v1/namespaces/soak/deployments";
    let mut made = false;
    while !run.is_over() {
        if !made {
            let body = Some(("application/json", object.to_string()));
            let answer = run.stage.kube(("POST", deployments), body, within);
            made = matches!(answer, Answer::Said(200..=299 | 409, _));
        } else {
            let scale = json!({ "spec": { "replicas": random.u32(2..=7) } });
            let body = Some(("application/merge-patch+json", scale.to_string()));
            run.stage.kube(("PATCH", &format!("{deployments}/churn")), body, within);
            if let Ok(pods) = run.stage.cluster.pods(NAMESPACE, "app=churn")
                && let Some(pod) =
                    random.choice(&pods).and_then(|pod| pod["metadata"]["name"].as_str())
            {
                run.stage.kube(
                    ("DELETE", &format!("/api/v1/namespaces/soak/pods/{pod}")),
                    None,
                    within,
                );
            }
        }
        run.sleep(random.u64(6000..12_000));
    }
}

/// The user's token is changed for another, and the one of before is refused.
pub(super) fn tokens(run: &Run<'_>) {
    let mut name: Option<String> = None;
    while !run.is_over() {
        let before = run.stage.token.lock().clone();
        if let Ok((new, token)) = run.stage.make_token() {
            // Every replica knows it within seconds, or its API server is away.
            let since = now();
            run.sleep(KNOWN);
            if !run.is_over() && all_know(run, &token, true, since) {
                *run.stage.token.lock() = token;
                run.did("tokens");
                if let Some(old) = name.replace(new)
                    && run.stage.revoke_token(&old).is_ok()
                {
                    let since = now();
                    run.sleep(KNOWN);
                    if !run.is_over() {
                        all_know(run, &before, false, since);
                    }
                }
            }
        }
        run.sleep(15_000);
    }
}

/// Whether every replica takes a token, or refuses it. What is not so is broken, unless a fault explains it.
fn all_know(run: &Run<'_>, token: &str, good: bool, since: u64) -> bool {
    let mut all = true;
    for node in 1..=NODES {
        let answer =
            run.stage.ask_with(token, node, ("GET", "/api/v1/me"), None, Duration::from_secs(5));
        run.looked("tokens");
        let is_right = match good {
            true => answer.ok().is_some(),
            false => answer.ok().is_none(),
        };
        all &= is_right;
        if !is_right && !run.excuses(&[Part::Controller(node), Part::Api], since) {
            let should = if good { "taken" } else { "refused" };
            run.broken("tokens", Some(format!("the controller of node {node} does not go by a token that is to be {should} since {since}: {}", answer.told())));
        }
    }
    all
}

/// What people look at: logs of pods, the overview, images.
pub(super) fn looks(run: &Run<'_>) {
    let mut client = Client::new(run, 0);
    let mut turn: u32 = 0;
    while !run.is_over() {
        turn += 1;
        let node = turn % NODES + 1;
        let log = format!(
            "/api/v1/clusters/{}/resources/pods/probe-{node}/log?namespace={NAMESPACE}&tailLines=3",
            run.stage.name
        );
        let report = image_report(turn % 5);
        let paths = [
            log.as_str(),
            "/api/v1/overview",
            "/api/v1/images",
            "/api/v1/guard/conversations?limit=50",
        ];
        let mut last = Answer::Silence;
        for path in paths {
            last = client.ask(path, ("GET", path), None);
            if matches!(last, Answer::Said(200..=299, _)) {
                run.did("looks");
            }
        }
        let body = Some(("application/json", report));
        if client
            .ask("a report on an image", ("POST", "/api/v1/images/import"), body)
            .ok()
            .is_some()
        {
            run.did("reports");
        }
        client.pause(&last, 3000);
    }
}

/// As `trivy image -f json` prints it.
fn image_report(number: u32) -> String {
    json!({
        "SchemaVersion": 2, "ArtifactName": format!("local/soak:{number}"), "ArtifactType": "container_image",
        "Metadata": { "ImageID": format!("sha256:{number:064x}"), "RepoTags": [format!("local/soak:{number}")] },
        "Results": [{ "Target": "os", "Class": "os-pkgs", "Type": "debian", "Vulnerabilities": [{
            "VulnerabilityID": "CVE-2021-0001", "PkgName": "x", "InstalledVersion": "1", "Severity": "HIGH",
        }] }],
    })
    .to_string()
}

//! Rules tried out, written and imported.

use access::Verb;
use admission::{
    Facts, Images, LOCAL_CLUSTER, Malformed, Operation, Program, Request, Settings, decide, explain,
};
use axum::Json;
use axum::extract::{Path, Request as HttpRequest, State};
use http::StatusCode;
use objects::kinds::{AdmissionRule, AdmissionRuleSpec};
use objects::{Expected, Id};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stallproof::snapshot::View;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::RULES;
use crate::api::extract::whole;
use crate::api::yaml::documents;
use crate::api::{Api, Body, Caller, Problem, Query, Route, Routes};

/// An application's manifests, or all the rules that somebody exports.
const LARGEST: usize = 4 << 20;
/// Objects that are tried at once.
const OBJECTS: usize = 500;

pub(super) fn routes() -> Routes {
    Routes::default()
        .with(Route::read().question().body(LARGEST), routes!(test))
        .with(Route::write(Verb::Update, RULES), routes!(put_rule))
        .with(Route::write(Verb::Delete, RULES), routes!(delete_rule))
        .with(Route::write(Verb::Create, RULES).body(LARGEST), routes!(import))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct AdmissionTest {
    /// The objects, as YAML or JSON, several documents if wanted.
    manifest: String,
    /// The rules, as YAML or JSON: AdmissionRules, or in short. Those in force unless said.
    rules: Option<String>,
    /// Who applies the objects.
    #[serde(default)]
    user: String,
    #[serde(default)]
    groups: Vec<String>,
    /// Whether the objects are there already.
    #[serde(default)]
    update: bool,
}

#[derive(Serialize, ToSchema)]
struct AdmissionTested {
    /// Whether all of them are.
    allowed: bool,
    /// As `fairlead admission explain -o json` has them: object, allowed, rule, decided, monitored,
    /// warnings, message, and every rule held against every container.
    #[schema(value_type = Vec<Object>)]
    objects: Vec<Value>,
}

/// The facts without a cluster: what is known of images. Where sidecars are spared, those of a pod count as
/// injected.
struct NoCluster(Option<View<Images>>);

impl Facts for NoCluster {
    fn images(&self) -> Option<&Images> {
        self.0.as_deref()
    }

    fn injected(&self, _controller: Option<&str>, _container: &str) -> bool {
        true
    }
}

/// Try objects against rules
///
/// What would be decided of them, and why: every rule with what it looked for and what it found. Nothing
/// is written, nobody is asked; what only a cluster knows, such as owners, is unknown here.
#[utoipa::path(
    post, path = "/admission/test", tag = "admission", request_body = AdmissionTest,
    responses((status = 200, description = "What would be decided", body = AdmissionTested))
)]
async fn test(
    State(api): State<Api>,
    caller: Caller,
    Body(asked): Body<AdmissionTest>,
) -> Result<Json<AdmissionTested>, Problem> {
    caller.may_in_fleet(RULES, Verb::List)?;
    let settings = Settings::new(true);
    let rules = match &asked.rules {
        Some(text) => rules_of(text)?,
        None => {
            let rules = super::admission(&api)?.rules();
            rules
                .list()
                .iter()
                .map(|rule| AdmissionRule::new(&rule.name, rule.spec.clone()))
                .collect()
        }
    };
    // Those in force may have one that is not right, which decides nothing there either.
    let rules: Vec<_> = match &asked.rules {
        Some(_) => rules,
        None => rules.into_iter().filter(|rule| objects::Kind::check(rule).is_ok()).collect(),
    };
    let program = Program::compile(&rules, &settings)
        .map_err(|problems| Problem::invalid(format!("the rules are not right: {problems}")))?;
    let objects = documents(&asked.manifest).map_err(Problem::invalid)?;
    if objects.is_empty() || objects.len() > OBJECTS {
        return Err(Problem::invalid(format!("send 1 to {OBJECTS} objects")));
    }
    let operation = if asked.update { Operation::Update } else { Operation::Create };
    let facts = NoCluster(super::admission(&api)?.images(LOCAL_CLUSTER));
    let mut all = true;
    let mut tried = Vec::new();
    for object in objects {
        if object.get("kind").and_then(Value::as_str).is_none() {
            return Err(Problem::invalid("a document has no kind"));
        }
        let request = Request::object(&object, operation, &asked.user, &asked.groups, &settings);
        let value = explained(&program, &request, &facts);
        all &= value["allowed"] == true;
        tried.push(value);
    }
    Ok(Json(AdmissionTested { allowed: all, objects: tried }))
}

/// What is decided of one object, and every rule held against it.
fn explained(program: &Program, request: &Result<Request, Malformed>, facts: &NoCluster) -> Value {
    match request {
        Ok(request) => {
            let decision = decide(program, request, facts);
            let hit = decision.decided.as_ref();
            let monitored: Vec<_> = decision.monitored.iter().map(|hit| hit.rule).collect();
            json!({
                "object": format!("{}/{}", request.kind.to_lowercase(), request.name),
                "allowed": decision.allowed,
                "rule": hit.map(|hit| hit.rule), "decided": hit, "monitored": monitored,
                "monitoredHits": decision.monitored, "warnings": decision.warnings,
                "message": decision.sentence(),
                "rules": explain(program, request, facts),
            })
        }
        Err(broken) => json!({
            "object": null, "allowed": false, "rule": null, "decided": null, "monitored": [],
            "monitoredHits": [], "warnings": [], "message": broken.why, "rules": [],
        }),
    }
}

/// AdmissionRules; or rules in short: a list, or `rules:` with one, each with its name.
fn rules_of(text: &str) -> Result<Vec<AdmissionRule>, Problem> {
    let mut rules = Vec::new();
    for document in documents(text).map_err(Problem::invalid)? {
        match document {
            Value::Array(short) => rules.extend(short.into_iter().map(manifest)),
            Value::Object(mut object) if !object.contains_key("kind") => {
                match object.remove("rules") {
                    Some(Value::Array(short)) => rules.extend(short.into_iter().map(manifest)),
                    _ => rules.push(manifest(Value::Object(object))),
                }
            }
            other => rules.push(other),
        }
    }
    let parse = |rule: Value| {
        let name = rule.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("-").to_owned();
        if rule.get("kind").and_then(Value::as_str) != Some("AdmissionRule") {
            let detail =
                format!("rule {name}: its kind is not AdmissionRule; import NeuVector's first");
            return Err(Problem::invalid(detail));
        }
        serde_json::from_value(rule)
            .map_err(|error| Problem::invalid(format!("rule {name}: {error}")))
    };
    rules.into_iter().map(parse).collect()
}

/// A rule in short as a manifest.
fn manifest(rule: Value) -> Value {
    let Value::Object(mut spec) = rule else {
        return json!({ "kind": "AdmissionRule", "spec": rule });
    };
    if spec.contains_key("kind") {
        return Value::Object(spec);
    }
    let name = spec.remove("name").unwrap_or_default();
    json!({ "apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
            "metadata": { "name": name }, "spec": spec })
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutAdmissionRule {
    /// The spec of an `AdmissionRule`.
    #[schema(value_type = Object)]
    spec: AdmissionRuleSpec,
}

#[derive(Serialize, ToSchema)]
struct WrittenAdmissionRule {
    name: String,
    #[schema(value_type = Object)]
    spec: AdmissionRuleSpec,
}

/// Write an admission rule
#[utoipa::path(
    put, path = "/admission/rules/{name}", tag = "admission", request_body = PutAdmissionRule,
    responses((status = 200, description = "As stored", body = WrittenAdmissionRule))
)]
async fn put_rule(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
    Body(PutAdmissionRule { spec }): Body<PutAdmissionRule>,
) -> Result<Json<WrittenAdmissionRule>, Problem> {
    caller.may_in_fleet(RULES, Verb::Update)?;
    let (before, written) = write(&api, &caller, &name, spec).await?;
    caller.trail.before(&before);
    caller.trail.after(&written.spec);
    Ok(Json(WrittenAdmissionRule { name, spec: written.spec }))
}

/// Writes a rule; returns what it was, if it was there, and what it is.
async fn write(
    api: &Api,
    caller: &Caller,
    name: &str,
    spec: AdmissionRuleSpec,
) -> Result<(Option<AdmissionRuleSpec>, AdmissionRule), Problem> {
    // Labels and the like of a rule that is there are not this route's to change.
    let there = api.objects.get::<AdmissionRule>(&Id::cluster(name), caller.deadline).await?;
    let (before, rule) = match there {
        Some(rule) => {
            let written = AdmissionRule { spec, status: None, metadata: rule.metadata };
            (Some(rule.spec), written)
        }
        None => (None, AdmissionRule::new(name, spec)),
    };
    Ok((before, api.objects.apply(&rule, Expected::Any, caller.deadline).await?))
}

/// Delete an admission rule
#[utoipa::path(
    delete, path = "/admission/rules/{name}", tag = "admission",
    responses((status = 204, description = "Gone"))
)]
async fn delete_rule(
    State(api): State<Api>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.may_in_fleet(RULES, Verb::Delete)?;
    let id = Id::cluster(name.as_str());
    let there = api.objects.get::<AdmissionRule>(&id, caller.deadline).await?;
    caller.trail.before(&there.map(|rule| rule.spec));
    api.objects.delete::<AdmissionRule>(&id, Expected::Any, caller.deadline).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Importing {
    /// Says what the rules would be, and writes none.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
struct ImportedRules {
    #[schema(value_type = Vec<Object>)]
    rules: Vec<AdmissionRule>,
    /// What is not as it was: `rule`, `carried`, `why`.
    #[schema(value_type = Vec<Object>)]
    notes: Vec<admission::Note>,
    /// Whether the rules were written.
    written: bool,
}

/// Import rules that were exported from NeuVector
///
/// The body is the export, YAML or JSON. A rule is carried over whole or not at all; the notes say what
/// is not as it was.
#[utoipa::path(
    post, path = "/admission/import", tag = "admission", params(Importing),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 200, description = "The rules as they are here", body = ImportedRules))
)]
async fn import(
    State(api): State<Api>,
    caller: Caller,
    Query(Importing { dry_run }): Query<Importing>,
    request: HttpRequest,
) -> Result<Json<ImportedRules>, Problem> {
    caller.may_in_fleet(RULES, Verb::Create)?;
    let body = whole(request, &()).await?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| Problem::invalid("the body is neither YAML nor JSON: it is not UTF-8"))?;
    let documents = documents(text).map_err(Problem::invalid)?;
    let imported = admission::import(&documents).map_err(Problem::invalid)?;
    if !dry_run {
        for rule in &imported.rules {
            let name = rule.metadata.name.as_deref().unwrap_or_default();
            write(&api, &caller, name, rule.spec.clone()).await?;
        }
        let names = imported.rules.iter().map(|rule| rule.metadata.name.as_deref());
        caller.trail.after(&names.collect::<Vec<_>>());
    }
    Ok(Json(ImportedRules { rules: imported.rules, notes: imported.notes, written: !dry_run }))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api::tests::test_api::TestApi;

    const RULE: &str = "- name: no-latest\n  action: deny\n  mode: protect\n  criteria:\n  - {name: image, op: containsAny, value: '*:latest'}\n";
    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: 'nginx:latest'}]}\n";

    #[tokio::test]
    async fn objects_are_tried_against_rules_that_are_sent_or_in_force() {
        let world = TestApi::new().ready().await;
        let sent = json!({"manifest": POD, "rules": RULE, "user": "ann"});
        let sent = world.ask(Method::POST, "/admission/test", sent).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
        let told = sent.json();
        assert_eq!(
            (&told["allowed"], &told["objects"][0]["rule"]),
            (&json!(false), &json!("no-latest")),
            "{told}"
        );
        assert_eq!(told["objects"][0]["rules"][0]["matched"], true, "{told}");
        let none = world.ask(Method::POST, "/admission/test", json!({"manifest": POD})).await;
        assert_eq!(none.json()["allowed"], true, "{}", none.text);

        let spec = json!({"spec": {"action": "deny", "mode": "protect",
            "criteria": [{"name": "image", "op": "containsAny", "value": "*:latest"}]}});
        let put = world.ask(Method::PUT, "/admission/rules/no-latest", spec.clone()).await;
        assert_eq!(put.status, 200, "{}", put.text);
        let again = world.ask(Method::PUT, "/admission/rules/no-latest", spec).await;
        assert_eq!(again.status, 200, "{}", again.text);
        loop {
            let now = world.ask(Method::POST, "/admission/test", json!({"manifest": POD})).await;
            if now.json()["allowed"] == false {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let gone = world.ask(Method::DELETE, "/admission/rules/no-latest", Value::Null).await;
        assert_eq!(gone.status, 204, "{}", gone.text);
        for wrong in [json!({"manifest": "a: ["}), json!({"manifest": POD, "rules": "kind: Pod"})] {
            let wrong = world.ask(Method::POST, "/admission/test", wrong).await;
            assert_eq!((wrong.status, &*wrong.code()), (400, "invalid"), "{}", wrong.text);
        }
    }
}

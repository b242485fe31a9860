use http::Method;
use pki::agents::LIFETIME;
use serde_json::{Value, json};
use stallproof::Tasks;
use traffic::agents::{JoinFacts, Limits};

use super::*;
use crate::api::tests::test_api::TestApi;

/// With an authority, unless it is without TLS.
async fn world(tls: bool, tasks: &Tasks) -> TestApi {
    let world = TestApi::new().ready().await;
    let authority = tls.then(|| Authority::follow(&world.objects, "fairlead", LIFETIME, tasks));
    let desk = AgentsApi {
        agents: Agents::new(Limits::default()),
        authority,
        active: ActiveIngest::default(),
    };
    world.with_agents(desk)
}

#[tokio::test]
async fn agents_are_with_who_leads_and_need_a_permission() {
    let tasks = Tasks::new("test");
    let world = world(false, &tasks).await;
    let facts = JoinFacts { node: "node-1".to_owned(), incarnation: 7, ..JoinFacts::default() };
    world.api.agents.as_ref().unwrap().agents.join(facts).unwrap();
    let answer = world.ask(Method::GET, "/guard/agents", Value::Null).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "not-ready"));

    let dir = tempfile::tempdir().unwrap();
    let active = world.api.agents.as_ref().unwrap().active.clone();
    let settings = traffic::ingest::Settings::new(dir.path().to_owned());
    let term = active.clone().hold(settings, world.api.ledger.clone(), tasks.clone(), |_| {});
    tasks.spawn("term", term);
    while active.ingest().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = world.ask(Method::GET, "/guard/agents", Value::Null).await.json();
    assert_eq!(answer["intervalMs"], 5000);
    let agent = &answer["agents"][0];
    assert_eq!((&agent["node"], &agent["state"]), (&json!("node-1"), &json!("away")));
    assert_eq!(agent["incarnation"], 7);
    tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn without_tls_there_is_no_token_to_make_and_before_the_authority_none_yet() {
    let tasks = Tasks::new("test");
    let plain = world(false, &tasks).await;
    let answer = plain.ask(Method::POST, "/guard/agents/token", json!({})).await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "not-found"));
    let world = world(true, &tasks).await;
    let answer = world.ask(Method::POST, "/guard/agents/token", json!({"node": "a"})).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "not-ready"));
    let answer = world.ask(Method::POST, "/guard/agents/token", json!({"node": "A b"})).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid"));
    let answer = world.ask(Method::POST, "/guard/agents/x/revoke", Value::Null).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "not-ready"));
    let audit = "/audit?resource=agents.fairlead.dev&verb=delete";
    let audit = world.ask(Method::GET, audit, Value::Null).await.json();
    assert_eq!(audit["entries"][0]["name"], "x", "the audit names the node: {audit}");
}

use http::Method;
use serde_json::{Value, json};

use crate::api::tests::test_api::TestApi;

fn spec() -> Value {
    json!({"spec": {"clusters": [
        {"name": "a", "clusterRef": "a", "allowedNetworks": ["10.1.0.0/16"]},
        {"name": "b", "clusterRef": "b", "allowedNetworks": ["10.2.0.0/16"]},
    ]}})
}

#[tokio::test]
async fn a_mesh_is_made_shown_checked_and_removed() {
    let world = TestApi::new().ready().await;
    let made = world.ask(Method::PUT, "/meshes/x/m", spec()).await;
    assert_eq!(made.status, 200, "{made:?}");
    let all = world.ask(Method::GET, "/meshes", Value::Null).await.json();
    assert_eq!(all["meshes"][0]["name"], "m");
    let checked = world.ask(Method::GET, "/meshes/x/m/check?from=a&to=b", Value::Null).await.json();
    assert_eq!(checked["reaches"], false);
    assert_eq!(checked["reasons"][0]["reason"], "NotObserved");
    let stranger = world.ask(Method::GET, "/meshes/x/m/check?from=a&to=z", Value::Null).await;
    assert_eq!((stranger.status, stranger.code()), (400, "invalid".to_owned()));
    let body = json!({"cluster": "a"});
    let forgotten = world.ask(Method::POST, "/meshes/x/m/forget", body).await;
    assert_eq!((forgotten.status, forgotten.code()), (400, "invalid".to_owned()));
    let removed = world.ask(Method::DELETE, "/meshes/x/m", Value::Null).await;
    assert_eq!(removed.json()["gone"], true);
    assert_eq!(world.ask(Method::GET, "/meshes/x/m", Value::Null).await.status, 404);
}

#[tokio::test]
async fn a_mesh_that_cannot_be_is_refused_with_what_to_change() {
    let world = TestApi::new().ready().await;
    let one = json!({"spec": {"clusters": [
        {"name": "a", "clusterRef": "a", "allowedNetworks": ["10.1.0.0"]},
    ]}});
    let refused = world.ask(Method::PUT, "/meshes/x/m", one).await;
    assert_eq!(refused.status, 400);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("at least two") && detail.contains("10.1.0.0/16"), "{detail}");
}

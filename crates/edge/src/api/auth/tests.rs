use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};

use crate::api::tests::test_api::{TestApi, TestResponse, request};

async fn post(world: &TestApi, path: &str, body: Value) -> TestResponse {
    world.send(request(Method::POST, &format!("/api/v1/auth/{path}"), body)).await
}

fn get(path: &str) -> Request<axum::body::Body> {
    request(Method::GET, path, Value::Null)
}

#[tokio::test]
async fn a_command_line_s_tokens_are_exchanged_and_used_up() {
    let world = TestApi::new().ready().await;
    world.somebody("ann", &[["*", "*", "*", "*"]]).await;
    let wrong = post(&world, "cli/login", json!({ "user": "ann", "password": "no" })).await;
    assert_eq!((wrong.status, &*wrong.code()), (401, "unauthenticated"));
    let login = json!({ "user": "ann", "password": "a few words will do" });
    let first = post(&world, "cli/login", login.clone()).await.json();
    let text = |tokens: &Value, name: &str| tokens[name].as_str().unwrap().to_owned();
    let me = |token: String| {
        let world = &world;
        async move { world.ask_as(&token, Method::GET, "/me", Value::Null).await }
    };
    assert_eq!(me(text(&first, "access")).await.json()["user"], "ann");
    // A refresh token is for refreshing.
    assert_eq!(me(text(&first, "refresh")).await.status, 401);
    let refresh = |tokens: &Value| json!({ "refresh": tokens["refresh"] });
    let second = post(&world, "cli/refresh", refresh(&first)).await.json();
    assert_eq!(me(text(&second, "access")).await.status, 200);
    assert_eq!(post(&world, "cli/refresh", refresh(&first)).await.status, 401);
    assert_eq!(me(text(&second, "access")).await.status, 401, "stolen");
    assert_eq!(post(&world, "cli/refresh", refresh(&second)).await.status, 401);

    let third = post(&world, "cli/login", login).await.json();
    assert_eq!(post(&world, "cli/logout", refresh(&third)).await.status, 204);
    assert_eq!(me(text(&third, "access")).await.status, 401);
    assert_eq!(post(&world, "cli/logout", json!({ "refresh": "none" })).await.status, 204);
}

#[tokio::test]
async fn without_a_provider_nobody_is_sent_anywhere() {
    let world = TestApi::new().ready().await;
    let methods = world.send(get("/auth/methods")).await;
    assert_eq!(methods.json(), json!({ "password": true, "oidc": [] }));
    assert_eq!(world.send(get("/api/v1/auth/methods")).await.json(), methods.json());
    let none = post(&world, "device", json!({})).await;
    assert_eq!((none.status, &*none.code()), (400, "invalid"), "{}", none.text);
    // A page, not a problem document: browsers come here.
    let start = world.send(get("/auth/oidc/%3Cb%3E/start")).await;
    assert_eq!(start.status, StatusCode::NOT_FOUND, "{}", start.text);
    let kind = start.headers[header::CONTENT_TYPE].to_str().unwrap();
    assert!(kind.starts_with("text/html"), "{kind}");
    assert!(!start.text.contains("<b>"), "{}", start.text);
    let back = world.send(get("/auth/oidc/corp/callback?state=x&code=y")).await;
    assert_eq!(back.status, StatusCode::NOT_FOUND, "{}", back.text);
}

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Method};
use serde_json::{Value, json};
use utoipa_axum::routes;

use super::*;
use crate::api::route::{BASE, Routes};
use crate::api::tests::test_api::{TestApi, request};

const NOTHING: Value = Value::Null;

/// Never answers.
#[utoipa::path(get, path = "/hang")]
async fn hang() {
    std::future::pending::<()>().await;
}

/// Answers what it has read once it is told to.
#[utoipa::path(get, path = "/slow")]
async fn slow(axum::extract::State(api): axum::extract::State<Api>) -> &'static str {
    let there = || api.access.local_login_code().is_some();
    while READ.load(Relaxed) == 0 && there() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    "a secret"
}

/// Whether `slow` may answer.
static READ: AtomicUsize = AtomicUsize::new(0);

/// A body that follows when it is sent.
fn following() -> (futures::channel::mpsc::UnboundedSender<Result<String, std::io::Error>>, Body) {
    let (send, receive) = futures::channel::mpsc::unbounded();
    (send, Body::from_stream(receive))
}

fn asked_by(token: &str, method: Method, path: &str, body: Body) -> Request {
    let mut asked = request(method, &format!("{BASE}{path}"), NOTHING);
    let bearer = format!("Bearer {token}").parse().unwrap();
    asked.headers_mut().insert(header::AUTHORIZATION, bearer);
    *asked.body_mut() = body;
    asked
}

#[tokio::test]
async fn who_is_deleted_before_the_body_has_come_does_nothing() {
    let world = TestApi::new().ready().await;
    let importer = [["-", "*", "clusters.fairlead.dev", "*"], ["team-*", "*", "*", "*"]];
    let eve = world.somebody("eve", &importer).await;
    let kubeconfig = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n";
    let import = |name: &str| json!({"name": name, "kubeconfig": kubeconfig}).to_string();
    // What she may, while she is there: names that her roles speak of.
    let own = asked_by(&eve, Method::POST, "/clusters", Body::from(import("team-a")));
    let own = world.send(own).await;
    assert_eq!(own.status, 201, "{}", own.text);
    let other = asked_by(&eve, Method::POST, "/clusters", Body::from(import("prod")));
    let other = world.send(other).await;
    assert_eq!((other.status, &*other.code()), (403, "forbidden"), "{}", other.text);

    // Headers and half of the body; the rest follows when she is gone.
    let (send, body) = following();
    let whole = import("team-b");
    let (first, rest) = whole.split_at(20);
    send.unbounded_send(Ok(first.to_owned())).unwrap();
    let router = world.router.clone();
    let asked = asked_by(&eve, Method::POST, "/clusters", body);
    let under_way = tokio::spawn(async move {
        use tower::ServiceExt;
        crate::api::tests::test_api::read(router.oneshot(asked).await.unwrap()).await
    });
    let waits = || {
        world
            .api
            .ledger
            .in_flight(&stallproof::ledger::Filter::default())
            .iter()
            .any(|op| op.step == "body")
    };
    while !waits() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(world.ask(Method::DELETE, "/users/eve", NOTHING).await.status, 204);
    send.unbounded_send(Ok(rest.to_owned())).unwrap();
    drop(send);
    let answer = under_way.await.unwrap();
    assert_eq!((answer.status, &*answer.code()), (401, "unauthenticated"), "{}", answer.text);
    let clusters = world.ask(Method::GET, "/clusters", NOTHING).await.json();
    let names: Vec<_> =
        clusters["clusters"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["team-a"]);
}

#[tokio::test]
async fn what_was_read_for_who_is_gone_is_not_told() {
    let world = TestApi::new().ready().await;
    let routes = Routes::default().with(Route::read(), routes!(slow));
    let world = world.serving(routes);
    let eve = world.somebody("eve", &[["*", "*", "*", "*"]]).await;
    let (router, asked) =
        (world.router.clone(), asked_by(&eve, Method::GET, "/slow", Body::empty()));
    let under_way = tokio::spawn(async move {
        use tower::ServiceExt;
        crate::api::tests::test_api::read(router.oneshot(asked).await.unwrap()).await
    });
    while !world
        .api
        .ledger
        .in_flight(&stallproof::ledger::Filter::default())
        .iter()
        .any(|op| op.step == "handler")
    {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let owner = Identity { user: access::LOCAL.into(), via: access::AuthMethod::Local };
    let soon = Deadline::after(Duration::from_secs(30));
    world.api.access.administer(&owner).delete_user("eve", soon).await.unwrap();
    READ.store(1, Relaxed);
    let answer = under_way.await.unwrap();
    assert_eq!(answer.status, 401, "{}", answer.text);
}

#[tokio::test]
async fn nobody_unknown_comes_in() {
    let world = TestApi::new().ready().await;
    for token in ["", "nonsense", "flt_local_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        let answer = world.ask_as(token, Method::GET, "/clusters", NOTHING).await;
        assert_eq!((answer.status, &*answer.code()), (401, "unauthenticated"), "{token}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    let answer = world.send(request(Method::GET, "/api/v1/clusters", NOTHING)).await;
    assert_eq!(answer.status, 401);
    assert_eq!(world.ask(Method::GET, "/clusters", NOTHING).await.status, 200);
}

#[tokio::test]
async fn strangers_are_told_what_this_is_and_nothing_else() {
    let world = TestApi::new();
    for open in ["/", "/api/v1/openapi.json"] {
        let answer = world.send(request(Method::GET, open, NOTHING)).await;
        assert_eq!(answer.status, 200, "{open}");
        assert!(answer.headers["content-security-policy"].to_str().unwrap().contains("'none'"));
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    let open: Vec<_> = crate::api::routes()
        .facts()
        .into_iter()
        .filter(|(_, _, route)| route.gate.is_open())
        .map(|(method, path, _)| format!("{method} {path}"))
        .collect();
    assert_eq!(
        open,
        [
            "POST /login",
            "GET /auth/methods",
            "POST /auth/device",
            "POST /auth/device/poll",
            "POST /auth/cli/login",
            "POST /auth/cli/refresh",
            "POST /auth/cli/logout",
            "GET /openapi.json",
        ]
    );
}

#[tokio::test]
async fn what_may_not_be_seen_is_answered_as_what_is_not_there() {
    let world = TestApi::with(&["secret", "shown"], |_| {}).ready().await;
    let token = world.somebody("ann", &[["shown", "*", "*", "*"]]).await;
    let seen = world.ask_as(&token, Method::GET, "/clusters", NOTHING).await.json();
    let names: Vec<_> = seen["clusters"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["shown"]);
    for (method, path) in [
        (Method::GET, "/clusters/NAME"),
        (Method::DELETE, "/clusters/NAME"),
        (Method::POST, "/clusters/NAME/test"),
        (Method::GET, "/clusters/NAME/kinds"),
    ] {
        let mut answers = Vec::new();
        for name in ["secret", "absent"] {
            let path = path.replace("NAME", name);
            let answer = world.ask_as(&token, method.clone(), &path, NOTHING).await;
            assert_eq!(answer.status, 404, "{path}");
            let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
            assert!(answer.text.contains(&id));
            let mut headers: Vec<_> = answer
                .headers
                .iter()
                .filter(|(name, _)| *name != "x-request-id")
                .map(|(name, value)| format!("{name}: {value:?}"))
                .collect();
            headers.sort();
            answers.push((answer.text.replace(&id, "ID").replace(name, "NAME"), headers));
        }
        assert_eq!(answers[0], answers[1], "{method} {path}");
    }
}

#[tokio::test]
async fn a_cookie_counts_only_with_its_proof() {
    let world = TestApi::new().ready().await;
    let code = world.api.access.local_login_code().unwrap();
    let login = request(Method::POST, "/api/v1/login", json!({"code": code.expose()}));
    let answer = world.send(login).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let set = answer.headers["set-cookie"].to_str().unwrap().to_owned();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    let (cookie, _) = set.split_once(';').unwrap();
    let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();

    let with = |method: Method, path: &str, headers: &[(&'static str, &str)]| {
        let mut request = request(method, &format!("{BASE}{path}"), NOTHING);
        request.headers_mut().insert("cookie", cookie.parse().unwrap());
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        world.send(request)
    };
    let me = with(Method::GET, "/me", &[]).await.json();
    assert_eq!((&me["user"], &me["csrf"]), (&json!("local"), &json!(csrf)));
    assert_eq!(with(Method::POST, "/logout", &[]).await.code(), "csrf");
    assert_eq!(with(Method::POST, "/logout", &[("x-csrf-token", "guess")]).await.code(), "csrf");
    let elsewhere = [("x-csrf-token", &*csrf), ("origin", "http://127.0.0.1:9999")];
    assert_eq!(with(Method::POST, "/logout", &elsewhere).await.code(), "csrf");
    // A page sets no header on a WebSocket: there its origin counts, and must be there.
    assert_eq!(with(Method::GET, "/me", &[("upgrade", "websocket")]).await.code(), "csrf");
    let own = [("upgrade", "websocket"), ("origin", "http://localhost")];
    assert_eq!(with(Method::GET, "/me", &own).await.status, 200);
    let foreign = [("upgrade", "websocket"), ("origin", "http://localhost:9999")];
    assert_eq!(with(Method::GET, "/me", &foreign).await.code(), "csrf");

    assert_eq!(with(Method::POST, "/logout", &[("x-csrf-token", &csrf)]).await.status, 204);
    assert_eq!(with(Method::GET, "/me", &[]).await.status, 401);
    // And the code is used up.
    let again = request(Method::POST, "/api/v1/login", json!({"code": code.expose()}));
    assert_eq!(world.send(again).await.status, 401);
}

#[tokio::test]
async fn strangers_who_send_slowly_lock_nobody_out_of_login() {
    let world = TestApi::new().ready().await;
    let mut held = Vec::new();
    let mut strangers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let (send, body) = following();
        send.unbounded_send(Ok("{".to_owned())).unwrap();
        held.push(send);
        let mut slow = request(Method::POST, "/api/v1/login?timeout=300s", NOTHING);
        *slow.body_mut() = body;
        let router = world.router.clone();
        strangers.spawn(async move {
            use tower::ServiceExt;
            crate::api::tests::test_api::read(router.oneshot(slow).await.unwrap()).await.status
        });
    }
    let all = stallproof::ledger::Filter::default();
    while world.api.ledger.in_flight(&all).len() < 200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let code = world.api.access.local_login_code().unwrap();
    let login = request(Method::POST, "/api/v1/login", json!({"code": code.expose()}));
    let answer = world.send(login).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(strangers.len(), 200);
    assert!(strangers.try_join_next().is_none(), "they should be sending still");
    // They are not waited for as long as they would like.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let statuses = strangers.join_all().await;
    assert!(begun.elapsed() <= ANONYMOUS + Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(statuses.iter().all(|status| *status == 504), "{statuses:?}");
}

#[tokio::test]
async fn the_link_that_is_printed_logs_in_once() {
    let world = TestApi::new().ready().await;
    let code = world.api.access.local_login_code().unwrap();
    let path = format!("/login?code={}", code.expose());
    // A preview does not use it up.
    assert_eq!(world.send(request(Method::HEAD, &path, NOTHING)).await.status, 200);
    let answer = world.send(request(Method::GET, &path, NOTHING)).await;
    assert_eq!((answer.status, &answer.headers["location"]), (303, &HeaderValue::from_static("/")));
    assert!(answer.headers.contains_key("set-cookie"));
    assert_eq!(world.send(request(Method::GET, &path, NOTHING)).await.status, 401);
    assert_eq!(world.send(request(Method::GET, "/login", NOTHING)).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_misses_the_deadline_is_answered_for() {
    let world = TestApi::new().serving(Routes::default().with(Route::read(), routes!(hang)));
    let began = tokio::time::Instant::now();
    let answer = world.ask(Method::GET, "/hang?timeout=3s", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (504, "too-late"));
    assert_eq!(began.elapsed().as_secs(), 3);
    let answer = world.ask(Method::GET, "/hang?timeout=soon", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (400, "invalid"));
    assert!(world.api.ledger.in_flight(&Default::default()).iter().all(|op| op.kind != "rest"));
}

#[tokio::test]
async fn a_cluster_that_is_full_is_nobody_elses_matter() {
    let world = TestApi::with(&["dead", "well"], |_| {}).ready().await;
    let gate = world.api.gates.at(RouteGate::Cluster("dead"));
    let mut held = Vec::new();
    let soon = || Deadline::after(Duration::from_millis(1));
    while let Ok(permit) = gate.admit(stallproof::Priority::Normal, soon()).await {
        held.push(permit);
    }
    let answer = world.ask(Method::GET, "/clusters/dead/kinds?timeout=0.1", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    assert!(answer.headers.contains_key("retry-after"));
    // Nobody answers there; but the question went through.
    let answer = world.ask(Method::GET, "/clusters/well/kinds", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (503, "not-ready"), "{}", answer.text);
    // And what does not ask the cluster does not wait for it.
    assert_eq!(world.ask(Method::GET, "/clusters/dead", NOTHING).await.status, 200);
    let off = world.ask(Method::PATCH, "/clusters/dead", json!({"enabled": false})).await;
    assert_eq!((off.status, &off.json()["state"]), (200, &json!("disabled")));
}

#[tokio::test]
async fn one_viewer_who_fills_a_cluster_keeps_no_other_user_out() {
    let world = TestApi::with(&["busy"], |_| {}).ready().await;
    let gate = world.api.gates.at(RouteGate::Cluster("busy"));
    let mut held = Vec::new();
    let soon = || Deadline::after(Duration::from_millis(1));
    let viewer = |_| gate.admit_for("viewer", stallproof::Priority::Normal, soon());
    while let Ok(permit) = viewer(()).await {
        held.push(permit);
    }
    // Nobody answers there; but the question went through.
    let answer = world.ask(Method::GET, "/clusters/busy/kinds?timeout=0.1", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (503, "not-ready"), "{}", answer.text);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    // A file where the audit's directory should be.
    let world = TestApi::with(&[], |data| std::fs::write(data.join("audit"), "").unwrap());
    let world = world.ready().await;
    let body = json!({"name": "ann", "roles": []});
    let answer = world.ask(Method::POST, "/users", body).await;
    assert_eq!((answer.status, &*answer.code()), (503, "audit"), "{}", answer.text);
    assert!(answer.headers.contains_key("retry-after"));
    let users = world.ask(Method::GET, "/users", NOTHING).await.json();
    let names = users["users"].as_array().unwrap().iter().map(|user| user["name"].as_str());
    assert!(!names.into_iter().any(|name| name == Some("ann")), "{users}");
}

#[tokio::test]
async fn whatever_changes_something_is_in_the_audit() {
    let world = TestApi::with(&["here"], |_| {}).ready().await;
    let (mut sent, mut questions) = (Vec::new(), Vec::new());
    for (method, path, route) in crate::api::routes().facts() {
        let opens = ["/exec", "/forward", "/shell", "/debug"];
        let writes = !matches!(method, Method::GET | Method::HEAD)
            || opens.iter().any(|end| path.ends_with(end));
        if !writes || route.question || route.gate.is_open() {
            assert!(route.writes.is_none(), "{method} {path}");
            questions.extend(route.question.then_some(path));
            continue;
        }
        assert!(route.writes.is_some(), "{method} {path} changes something and is not audited");
        let path = path.replace("{cluster}", "here").replace("{kind}", "pods");
        let path = path.replace("{name}", "absent");
        let path = path.replace("{*path}", "api/v1/namespaces/default/pods");
        let answer = world.ask(method.clone(), &path, json!({"odd": 1})).await;
        let id = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        sent.push((id, answer, format!("{method} {path}")));
    }
    assert!(sent.len() > 10);
    // Those that only look by what they are sent.
    questions.sort();
    assert_eq!(questions, ["/admission/test", "/doctor", "/guard/rules/compare", "/me/can"]);
    // Outcomes are written without being waited for, in order: those before this one are on disk.
    world.ask(Method::POST, "/logout", NOTHING).await;
    let audit = world.ask(Method::GET, "/audit?limit=1000", NOTHING).await.json();
    let entries = audit["entries"].as_array().unwrap();
    for (id, answer, what) in sent {
        let entry = entries.iter().find(|entry| entry["requestId"] == *id);
        let entry = entry.unwrap_or_else(|| panic!("{what} is not in the audit"));
        assert_eq!(entry["user"], "local");
        let outcome = match answer.status {
            ..300 => "ok".to_owned(),
            // In the words of Kubernetes, which has no such codes.
            _ if route_is_kubernetes(&what) => "not-ready".to_owned(),
            _ => answer.code(),
        };
        assert_eq!(entry["outcome"], outcome, "{what}");
    }
}

fn route_is_kubernetes(what: &str) -> bool {
    what.contains("/proxy/")
}

/// The newest entry of the audit with this resource and name.
async fn newest(world: &TestApi, resource: &str, name: &str) -> Value {
    // Outcomes are on disk before what is begun after them.
    world.ask(Method::POST, "/logout", NOTHING).await;
    let path = format!("/audit?limit=1&resource={resource}&name={name}");
    let page = world.ask(Method::GET, &path, NOTHING).await.json();
    page["entries"][0].clone()
}

#[tokio::test]
async fn the_audit_says_who_became_what_and_what_they_were_and_keeps_no_secret() {
    let world = TestApi::with(&["here"], |_| {}).ready().await;
    let users = "users.fairlead.dev";
    let password = "a few words will do";
    let ann = json!({"name": "ann", "roles": ["viewer"], "password": password});
    assert_eq!(world.ask(Method::POST, "/users", ann).await.status, 201);
    let made = newest(&world, users, "ann").await;
    assert_eq!((&made["verb"], &made["details"]["roles"]), (&json!("create"), &json!(["viewer"])));
    assert_eq!(made["after"], json!({"roles": ["viewer"], "disabled": false, "hasPassword": true}));
    assert_eq!(made["before"], Value::Null);

    assert_eq!(
        world.ask(Method::PATCH, "/users/ann", json!({"roles": ["admin"]})).await.status,
        200
    );
    let risen = newest(&world, users, "ann").await;
    assert_eq!((&risen["user"], &risen["verb"]), (&json!("local"), &json!("update")));
    assert_eq!(risen["before"]["roles"], json!(["viewer"]));
    assert_eq!(risen["after"]["roles"], json!(["admin"]));

    let role = json!({"name": "look", "allow": [
        {"clusters": ["*"], "namespaces": ["*"], "resources": ["pods"], "verbs": ["get"]}]});
    assert_eq!(world.ask(Method::POST, "/roles", role).await.status, 201);
    assert_eq!(world.ask(Method::PUT, "/roles/look", json!({"allow": []})).await.status, 200);
    let changed = newest(&world, "accessroles.fairlead.dev", "look").await;
    assert_eq!(changed["before"]["allow"][0]["resources"], json!(["pods"]));
    assert_eq!(changed["after"]["allow"], json!([]));

    let token =
        world.ask(Method::POST, "/tokens", json!({"user": "ann", "description": "ci"})).await;
    let token = token.json();
    let (name, secret) = (token["name"].as_str().unwrap(), token["token"].as_str().unwrap());
    let expires: jiff::Timestamp = token["expires"].as_str().unwrap().parse().unwrap();
    let days = expires.duration_since(jiff::Timestamp::now()).as_hours() / 24;
    assert_eq!(days, 89, "tokens expire unless somebody says otherwise");
    let never = json!({"user": "ann", "expires": "never"});
    assert_eq!(world.ask(Method::POST, "/tokens", never).await.json()["expires"], "never");
    let wrong = json!({"user": "ann", "expires": "someday"});
    assert_eq!(world.ask(Method::POST, "/tokens", wrong).await.status, 400);
    let made = newest(&world, "accesstokens.fairlead.dev", name).await;
    assert_eq!(
        (&made["after"]["user"], &made["after"]["description"]),
        (&json!("ann"), &json!("ci"))
    );

    let set = json!({"password": "other words will do", "revokeTokens": true});
    let set = world.ask(Method::PUT, "/users/ann/password", set).await;
    assert_eq!(set.json(), json!({"tokensRevoked": 2, "tokensKept": 0}), "{}", set.text);
    assert_eq!(world.ask_as(secret, Method::GET, "/me", NOTHING).await.status, 401);
    let set = newest(&world, users, "ann").await;
    assert_eq!(
        (&set["details"]["change"], &set["details"]["tokensRevoked"]),
        (&json!("password"), &json!(2))
    );

    assert_eq!(world.ask(Method::DELETE, "/users/ann", NOTHING).await.status, 204);
    let gone = newest(&world, users, "ann").await;
    assert_eq!((&gone["verb"], &gone["before"]["roles"]), (&json!("delete"), &json!(["admin"])));

    assert_eq!(
        world.ask(Method::PATCH, "/clusters/here", json!({"enabled": false})).await.status,
        200
    );
    world.ask(Method::POST, "/logout", NOTHING).await;
    let page = world.ask(Method::GET, "/audit?limit=1&cluster=here", NOTHING).await.json();
    let off = &page["entries"][0];
    assert_eq!(
        (&off["before"]["enabled"], &off["after"]["enabled"]),
        (&json!(true), &json!(false))
    );

    let all = world.ask(Method::GET, "/audit/export", NOTHING).await.text;
    for hidden in [password, "other words", secret] {
        assert!(!all.contains(hidden), "{hidden} is in the audit");
    }
}

#[tokio::test]
async fn a_new_password_keeps_tokens_unless_told_and_says_how_many() {
    let world = TestApi::new().ready().await;
    let token = world.somebody("ann", &[["*", "*", "*", "*"]]).await;
    let set = json!({"password": "other words will do"});
    let set = world.ask(Method::PUT, "/users/ann/password", set).await;
    assert_eq!((set.status, set.json()), (200, json!({"tokensRevoked": 0, "tokensKept": 1})));
    assert_eq!(world.ask_as(&token, Method::GET, "/me", NOTHING).await.status, 200);
    // Of oneself, who has no session any more by then.
    let body = json!({"user": "ann", "password": "other words will do"});
    let login = world.send(request(Method::POST, "/api/v1/login", body)).await;
    let cookie = login.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    let set = json!({
        "password": "yet other words will do", "present": "other words will do", "revokeTokens": true,
    });
    let mut own = request(Method::PUT, "/api/v1/users/ann/password", set);
    let headers = own.headers_mut();
    headers.insert("cookie", cookie.parse().unwrap());
    headers.insert("x-csrf-token", login.json()["csrf"].as_str().unwrap().parse().unwrap());
    let set = world.send(own).await;
    assert_eq!(
        (set.status, set.json()),
        (200, json!({"tokensRevoked": 1, "tokensKept": 0})),
        "{}",
        set.text
    );
    assert_eq!(world.ask_as(&token, Method::GET, "/me", NOTHING).await.status, 401);
}

#[tokio::test]
async fn logins_are_in_the_audit_and_a_flood_of_failures_is_a_few_lines() {
    let world = TestApi::new().ready().await;
    world.somebody("ann", &[["*", "*", "*", "*"]]).await;
    let login = |body| world.send(request(Method::POST, "/api/v1/login", body));
    let right = json!({"user": "ann", "password": "a few words will do"});
    assert_eq!(login(right).await.status, 200);
    let code = world.api.access.local_login_code().unwrap();
    assert_eq!(login(json!({"code": code.expose()})).await.status, 200);
    for _ in 0..30 {
        let wrong = json!({"user": "ann", "password": "hunter22hunter22"});
        assert!(login(wrong).await.status >= 400);
        let odd = json!({"user": "my-secret-password", "password": "x"});
        assert!(login(odd).await.status >= 400);
    }
    world.ask(Method::POST, "/logout", NOTHING).await;
    let page = world.ask(Method::GET, "/audit?limit=1000&verb=login", NOTHING).await;
    assert!(!page.text.contains("my-secret-password") && !page.text.contains("hunter22"));
    let entries = page.json()["entries"].as_array().unwrap().clone();
    let of =
        |outcome: &str| entries.iter().filter(|it| it["outcome"] == outcome).collect::<Vec<_>>();
    let methods: Vec<_> =
        of("ok").iter().map(|it| (&it["user"], &it["details"]["method"])).collect();
    assert_eq!(methods, [(&json!("local"), &json!("link")), (&json!("ann"), &json!("password"))]);
    assert!(of("ok").iter().all(|it| it["via"].as_str().unwrap().starts_with("session/")));
    let wrong = of("wrong");
    assert!(wrong.iter().any(|it| it["name"] == "ann" && it["from"] == "127.0.0.1"), "{wrong:?}");
    assert!(entries.len() < 12, "{} lines of 62 logins", entries.len());
}

#[tokio::test]
async fn the_owner_gets_a_link_that_logs_in_once_and_a_token_gets_none() {
    let world = TestApi::new().ready().await;
    let token = world.somebody("ann", &[["*", "*", "*", "*"], ["-", "-", "*", "*"]]).await;
    let refused = world.ask_as(&token, Method::POST, "/login-links", NOTHING).await;
    assert_eq!((refused.status, &*refused.code()), (403, "forbidden"));
    let made = world.ask(Method::POST, "/login-links", NOTHING).await;
    assert_eq!((made.status, &made.json()["user"]), (201, &json!("local")));
    let path = made.json()["path"].as_str().unwrap().to_owned();
    assert_eq!(world.send(request(Method::GET, &path, NOTHING)).await.status, 303);
    assert_eq!(world.send(request(Method::GET, &path, NOTHING)).await.status, 401);
    let all = world.ask(Method::GET, "/audit/export", NOTHING).await.text;
    assert!(all.contains("loginlinks") && !all.contains(path.split('=').nth(1).unwrap()));
}

#[tokio::test]
async fn who_may_look_may_not_change() {
    let world = TestApi::with(&["here"], |_| {}).ready().await;
    let token = world.somebody("ann", &[["*", "*", "*", "get"]]).await;
    let answer = world.ask_as(&token, Method::DELETE, "/clusters/here", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (403, "forbidden"));
    assert!(answer.json()["detail"].as_str().unwrap().contains("delete clusters.fairlead.dev"));
    for hidden in ["/inflight", "/audit", "/users", "/roles"] {
        let answer = world.ask_as(&token, Method::GET, hidden, NOTHING).await;
        assert_eq!(answer.status, 403, "{hidden}: {}", answer.text);
    }
    let own = world.ask_as(&token, Method::GET, "/users/ann", NOTHING).await.json();
    assert_eq!(own["name"], "ann");
}

#[tokio::test]
async fn what_does_not_fit_is_a_problem_that_says_why() {
    let world = TestApi::new().ready().await;
    let answer = world.ask(Method::GET, "/nowhere", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (404, "not-found"));
    let answer = world.ask(Method::PUT, "/clusters", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (405, "invalid"));
    let answer = world.ask(Method::POST, "/users", json!({"name": "ann", "rolls": []})).await;
    assert_eq!((answer.status, &*answer.code()), (400, "invalid"));
    assert!(answer.text.contains("rolls"), "{}", answer.text);
    let large = json!({"name": "a".repeat(70 << 10)});
    let answer = world.ask(Method::POST, "/users", large).await;
    assert_eq!((answer.status, &*answer.code()), (413, "too-large"));
    let answer = world.ask(Method::GET, "/audit?since=yesterday", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (400, "invalid"));
    let answer = world.ask(Method::GET, "/clusters/%ff", NOTHING).await;
    assert_eq!((answer.status, &*answer.code()), (400, "invalid"));
    let mut foreign = request(Method::GET, "/", NOTHING);
    foreign.headers_mut().insert("host", HeaderValue::from_static("evil.example"));
    let answer = world.send(foreign).await;
    assert_eq!((answer.status, &*answer.code()), (403, "forbidden"));
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_once() {
    let world = TestApi::new().ready().await;
    let token = world.somebody("ann", &[["*", "*", "*", "*"]]).await;
    let mine = world.ask_as(&token, Method::GET, "/tokens", NOTHING).await.json();
    let name = mine["tokens"][0]["name"].as_str().unwrap();
    let path = format!("/tokens/{name}");
    assert_eq!(world.ask(Method::DELETE, &path, NOTHING).await.status, 204);
    assert_eq!(world.ask_as(&token, Method::GET, "/tokens", NOTHING).await.status, 401);
}

#[tokio::test]
async fn a_stream_of_clusters_tells_changes_and_ends_with_its_reader_s_rights() {
    let world = TestApi::with(&["here"], |_| {}).ready().await;
    let token = world.somebody("ann", &[["here", "*", "*", "get"]]).await;
    let mut heard = world.hear(&token, Method::GET, "/clusters", NOTHING).await;
    let (event, first) = heard.next().await.unwrap();
    assert_eq!((&*event, &first["clusters"][0]["name"]), ("clusters", &json!("here")));
    let off = world.ask(Method::PATCH, "/clusters/here", json!({"enabled": false})).await;
    assert_eq!((off.status, &off.json()["state"]), (200, &json!("disabled")));
    while heard.next().await.unwrap().1["clusters"][0]["state"] != "disabled" {}
    assert_eq!(world.ask(Method::DELETE, "/users/ann", NOTHING).await.status, 204);
    while heard.next().await.unwrap().0 != "end" {}
    assert!(heard.next().await.is_none());
}

/// An API server reads the options of a deletion from its body, if there is one.
#[test]
fn a_deletion_with_a_body_is_tried_only_if_the_body_says_so() {
    let dry_run = |route: Route, method: Method, body: &str| {
        is_dry_run(route, &request(method, "/x?dryRun=All", NOTHING), body.as_bytes())
    };
    let (kube, own) = (Route::list().kubernetes(), Route::list());
    assert!(dry_run(kube, Method::DELETE, ""));
    assert!(dry_run(kube, Method::POST, "{}"));
    assert!(dry_run(own, Method::DELETE, "{}"));
    assert!(dry_run(kube, Method::DELETE, r#"{"kind":"DeleteOptions","dryRun":["All"]}"#));
    for really in ["{}", r#"{"dryRun":[]}"#, r#"{"dryRun":"All"}"#, "k8s\0protobuf"] {
        assert!(!dry_run(kube, Method::DELETE, really), "{really}");
    }
}

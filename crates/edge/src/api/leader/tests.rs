use objects::{Election, Id, Timing};
use serde_json::Value;

use super::*;
use crate::api::tests::test_api::{TestApi, request};

#[test]
fn a_replica_is_named_with_its_address_where_it_gave_one() {
    let replica = LeaseHolder::parse("fairlead-controller-0@10.0.0.5");
    assert_eq!(replica.address, Some(IpAddr::from([10, 0, 0, 5])));
    assert_eq!(replica.to_string(), "fairlead-controller-0 (10.0.0.5)");
    assert_eq!(LeaseHolder::parse("a@fd00::1").to_string(), "a (fd00::1)");
    for named in ["node-1", "node@1", "node@"] {
        let replica = LeaseHolder::parse(named);
        assert_eq!((replica.to_string().as_str(), replica.address), (named, None));
    }
}

#[test]
fn a_pass_is_of_one_user_and_one_request() {
    let uri = |text: &'static str| Uri::from_static(text);
    let (here, there) = (uri("/guard/agents?limit=1"), uri("/api/v1/guard/agents?limit=1"));
    let text = |until, user, uri| PassClaims { until, user, method: &Method::GET, uri }.written();
    // The same wherever in the router one looks.
    assert_eq!(text(1, "ann", &here), text(1, "ann", &there));
    let other = uri("/guard/agents?limit=2");
    for different in [text(2, "ann", &here), text(1, "bob", &here), text(1, "ann", &other)] {
        assert_ne!(different, text(1, "ann", &here));
    }
}

/// A world whose API takes passes, and how they are made.
async fn with_passes() -> (TestApi, LeaderReach) {
    let mut world = TestApi::new().ready().await;
    let (objects, tasks) = (world.objects.clone(), world.api.tasks.clone());
    let authority = Authority::follow(&objects, "fairlead", pki::agents::LIFETIME, &tasks);
    let certificates = Certificates::follow(&objects, "fairlead", &tasks);
    let lease = Id::namespaced("fairlead", "lease");
    let election = Election::new(objects, lease, "test", Timing::default());
    let (all, led) = (tasks.clone(), authority.clone());
    tasks.spawn("election", async move {
        election.run(&all, |leader| pki::agents::lead(&leader, &led)).await;
    });
    let reach = LeaderReach { port: 1, name: "fairlead".to_owned(), certificates, authority };
    let patience = Deadline::after(Duration::from_secs(30));
    while reach.authority.seal(b"").is_none()
        || world.api.traffic.as_ref().unwrap().active.ingest().is_none()
    {
        assert!(!patience.has_passed(), "there is no authority");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let leadership = Snapshot::new(Leadership::Unknown);
    let route = LeaderRoute { leadership, reach: Some(reach.clone()) };
    world.api.leader = Some(route);
    world.router = crate::api::router(&world.api, true);
    (world, reach)
}

fn asked(path: &str) -> Request {
    request(Method::GET, &format!("{BASE}{path}"), Value::Null)
}

fn pass(reach: &LeaderReach, user: &str, path: &str) -> HeaderValue {
    let host = SocketAddr::from(([127, 0, 0, 1], 1));
    reach.request(user, &asked(path), host).unwrap().headers()[PASS].clone()
}

async fn status(world: &TestApi, path: &str, pass: HeaderValue) -> u16 {
    let mut request = asked(path);
    request.headers_mut().insert(PASS, pass);
    world.send(request).await.status
}

#[tokio::test]
async fn a_pass_counts_for_its_user_its_request_and_its_time_alone() {
    let (world, reach) = with_passes().await;
    world.somebody("ann", &[["-", "*", "agents.fairlead.dev", "list"]]).await;
    let path = "/guard/conversations?limit=7";
    let local = pass(&reach, access::LOCAL, path);
    assert_eq!(status(&world, path, local.clone()).await, 200);
    // It is the user's permissions that count.
    assert_eq!(status(&world, path, pass(&reach, "ann", path)).await, 403);
    assert_eq!(status(&world, "/guard/conversations?limit=8", local.clone()).await, 401);
    assert_eq!(status(&world, "/guard/groups", local.clone()).await, 401);
    // Of no use where every replica answers for itself.
    assert_eq!(status(&world, "/clusters", pass(&reach, access::LOCAL, "/clusters")).await, 401);
    let text = local.to_str().unwrap();
    let (until, rest) = text.split_once('.').unwrap();
    let (seal, _) = rest.split_once('.').unwrap();
    let stolen = pass(&reach, "ann", path);
    let stolen = stolen.to_str().unwrap().replace(".ann", &format!(".{}", access::LOCAL));
    let later = until.parse::<i64>().unwrap() + 1;
    let forged = [
        stolen,
        format!("{later}.{seal}.{}", access::LOCAL),
        format!("{until}..{}", access::LOCAL),
        "nonsense".to_owned(),
        String::new(),
    ];
    for forged in forged {
        let header = HeaderValue::from_str(&forged).unwrap();
        assert_eq!(status(&world, path, header).await, 401, "{forged}");
    }
    let (uri, past) = (Uri::try_from(path).unwrap(), 1_700_000_000_000);
    let old = PassClaims { until: past, user: access::LOCAL, method: &Method::GET, uri: &uri };
    let seal = reach.authority.seal(old.written().as_bytes()).unwrap();
    let old = HeaderValue::from_str(&format!("{past}.{seal}.{}", access::LOCAL)).unwrap();
    assert_eq!(status(&world, path, old).await, 401);
}

/// As a replica that does not lead asks, for somebody at `client`.
async fn passed_on(
    world: &TestApi,
    reach: &LeaderReach,
    (method, path, body): (Method, &str, Value),
    client: [u8; 4],
) -> crate::api::tests::test_api::TestResponse {
    let mut asked = request(method, &format!("{BASE}{path}"), body);
    asked.extensions_mut().insert(Peer(SocketAddr::from((client, 9))));
    let host = SocketAddr::from(([127, 0, 0, 1], 1));
    let posed = reach.request(access::LOCAL, &asked, host).unwrap();
    let (parts, _) = posed.into_parts();
    let (_, body) = asked.into_parts();
    world.send(Request::from_parts(parts, body)).await
}

#[tokio::test]
async fn what_is_changed_with_a_pass_is_in_the_audit_with_the_callers_address() {
    let (mut world, reach) = with_passes().await;
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let here = IpAddr::from([127, 0, 0, 1]);
    let replicas = crate::api::Replicas { client, namespace: "fairlead".to_owned(), here };
    world.api.replicas = Some(replicas);
    world.router = crate::api::router(&world.api, true);
    let promote = |names: Value| (Method::POST, "/guard/rules/promote", names);
    let all = serde_json::json!({"all": true});
    let done = passed_on(&world, &reach, promote(all.clone()), [192, 0, 2, 7]).await;
    assert_eq!(done.status, 200, "{}", done.text);
    let none = passed_on(&world, &reach, promote(serde_json::json!({})), [192, 0, 2, 7]).await;
    assert_eq!(none.status, 400, "the body is looked at: {}", none.text);
    let gone = (Method::DELETE, "/guard/rules/nobody", Value::Null);
    assert_eq!(passed_on(&world, &reach, gone, [192, 0, 2, 7]).await.status, 404);
    let compare = (Method::POST, "/guard/rules/compare", serde_json::json!({"alone": true}));
    assert_eq!(passed_on(&world, &reach, compare, [192, 0, 2, 7]).await.json()["compared"], 0);
    // A pass to read is none to write.
    let path = "/guard/rules/promote";
    let mut stolen = request(Method::POST, &format!("{BASE}{path}"), all);
    stolen.headers_mut().insert(PASS, pass(&reach, access::LOCAL, path));
    assert_eq!(world.send(stolen).await.status, 401);
    let audit =
        world.ask(Method::GET, "/audit?resource=networkrules.fairlead.dev", Value::Null).await;
    let entries = audit.json()["entries"].clone();
    let from: Vec<_> = entries.as_array().unwrap().iter().map(|it| it["from"].clone()).collect();
    assert_eq!(from, ["192.0.2.7", "192.0.2.7", "192.0.2.7"], "{entries}");
}

#[tokio::test]
async fn who_does_not_lead_names_who_does() {
    let mut world = TestApi::new().ready().await;
    let traffic = world.api.traffic.clone().unwrap();
    let active = ::traffic::ingest::ActiveIngest::default();
    world.api.traffic = Some(crate::api::Traffic { active, ..traffic });
    let leadership = Snapshot::new(Leadership::Other("fairlead-controller-b@10.0.0.9".to_owned()));
    let route = LeaderRoute { leadership: leadership.clone(), reach: None };
    world.api.leader = Some(route);
    world.router = crate::api::router(&world.api, true);
    for path in ["/guard/conversations", "/guard/groups", "/guard/violations"] {
        let answer = world.ask(Method::GET, path, Value::Null).await;
        assert_eq!((answer.code().as_str(), answer.status), ("not-ready", 503), "{path}");
        assert!(answer.text.contains("fairlead-controller-b (10.0.0.9)"), "{}", answer.text);
        assert!(answer.headers.contains_key(header::RETRY_AFTER));
    }
    let all = serde_json::json!({"all": true});
    let answer = world.ask(Method::POST, "/guard/rules/promote", all).await;
    assert!(answer.status == 503 && answer.text.contains("10.0.0.9"), "{}", answer.text);
    leadership.publish(Leadership::Unknown);
    let answer = world.ask(Method::GET, "/guard/conversations", Value::Null).await;
    assert!(answer.text.contains("not known at the moment"), "{}", answer.text);
}

#[tokio::test]
async fn who_is_asked_with_a_pass_answers_for_itself_and_by_its_own_roles() {
    let (mut world, reach) = with_passes().await;
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let replicas = crate::api::Replicas {
        client: kube::Client::try_from(config).unwrap(),
        namespace: "fairlead".to_owned(),
        here: IpAddr::from([127, 0, 0, 1]),
    };
    world.api.replicas = Some(replicas);
    world.router = crate::api::router(&world.api, true);
    world.somebody("ann", &[["-", "*", "users.fairlead.dev", "list"]]).await;
    for path in ["/audit?limit=3", "/admission/audit?outcome=denied"] {
        let told = world.ask(Method::GET, path, Value::Null).await.json();
        assert!(told.get("missing").is_some(), "it asks the others: {told}");
        let mut request = asked(path);
        request.headers_mut().insert(PASS, pass(&reach, access::LOCAL, path));
        let told = world.send(request).await;
        assert_eq!(told.status, 200, "{}", told.text);
        assert!(told.json().get("missing").is_none(), "it asks nobody: {}", told.text);
        assert_eq!(status(&world, path, pass(&reach, "ann", path)).await, 403);
        // Nobody of this name, or nobody any more.
        let unknown = status(&world, path, pass(&reach, "nobody", path)).await;
        assert!(matches!(unknown, 401 | 403), "{unknown}");
        assert_eq!(status(&world, path, pass(&reach, access::LOCAL, "/audit")).await, 401);
    }
}

//! Requests of users who are logged in with an identity provider, while it is well and while it hangs:
//! it takes every connection and answers nothing. Logins and rechecks go on in both. What waits for a
//! provider must be in nobody's way.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use access::audit::{Audit, Size};
use access::oidc::OidcAnswer;
use access::{Access, LocalToken, Secret};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bench::Table;
use edge::api::{Api, Gates, Serving, start};
use edge::outbound::Outbound;
use edge::tls::ListenerTls;
use fleet::{Fleet, FleetConfig};
use jiff::Timestamp;
use objects::kinds::{IdentityProvider, RoleMapping};
use objects::{Expected, Objects};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Readiness, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PAIRS: usize = 9;
const USERS: usize = 32;
const REQUESTS: usize = 400;
/// Logins that are tried beside the requests, each of them every [`PAUSE`].
const LOGINS: usize = 16;
const PAUSE: Duration = Duration::from_millis(100);
const CALLBACK: &str = "http://127.0.0.1/auth/oidc/corp/callback";

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// A provider that takes its nonce from the code, and everybody for a user.
struct Provider {
    issuer: String,
    key: Ed25519KeyPair,
    hangs: AtomicBool,
}

impl Provider {
    fn answer(&self, path: &str, body: &str) -> Value {
        let issuer = &self.issuer;
        match path {
            "/.well-known/openid-configuration" => json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/auth"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            }),
            "/keys" => {
                let x = URL_SAFE_NO_PAD.encode(self.key.public_key());
                json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x }] })
            }
            _ => {
                let field = |name: &str| {
                    let mut pairs = form_urlencoded::parse(body.as_bytes());
                    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
                };
                // `USER.NONCE`, as a code and as a refresh token.
                let said = field("code").or_else(|| field("refresh_token")).unwrap_or_default();
                let (user, nonce) = said.split_once('.').unwrap_or((&said, ""));
                let now = Timestamp::now().as_second();
                let claims = json!({
                    "iss": issuer, "aud": "fairlead", "sub": user, "iat": now, "exp": now + 600,
                    "nonce": nonce, "email": format!("{user}@shop.example"), "groups": ["devs"],
                });
                let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
                let signed =
                    format!("{}.{}", part(&json!({ "alg": "EdDSA", "kid": "one" })), part(&claims));
                let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()));
                json!({
                    "id_token": format!("{signed}.{signature}"), "access_token": "none",
                    "refresh_token": format!("{user}."),
                })
            }
        }
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut text = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let Ok(read @ 1..) = stream.read(&mut bytes).await else { return };
            text.extend_from_slice(&bytes[..read]);
            let said = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = said.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
                continue;
            }
            if self.hangs.load(Relaxed) {
                // Until the other side has had enough.
                while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
                return;
            }
            let path = head.split(' ').nth(1).unwrap_or_default();
            let answer = self.answer(path, body).to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n",
                answer.len()
            );
            let _ = stream.write_all((head + &answer).as_bytes()).await;
            return;
        }
    }
}

struct World {
    provider: Arc<Provider>,
    access: Access,
    at: SocketAddr,
    cookies: Vec<String>,
    tasks: Tasks,
    _data: tempfile::TempDir,
}

/// Logs a user in; the session's cookie.
async fn log_in(access: &Access, user: &str) -> Option<String> {
    let begun = access.begin_oidc("corp", CALLBACK, soon()).await.ok()?;
    let (_, query) = begun.location.split_once('?')?;
    let asked = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let code = Some(Secret::new(format!("{user}.{}", asked("nonce")?)));
    let answer = OidcAnswer { state: asked("state")?, code, ..OidcAnswer::default() };
    let from = std::net::IpAddr::from([192, 0, 2, 1]);
    let cookie = begun.cookie.expose();
    let opened = access.finish_oidc("corp", CALLBACK, answer, cookie, from, soon()).await.ok()?;
    Some(opened.cookie.expose().to_owned())
}

async fn world() -> World {
    let data = tempfile::tempdir().unwrap();
    let tasks = Tasks::new("bench");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = Arc::new(Provider {
        issuer: format!("http://{}", listener.local_addr().unwrap()),
        key: Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap(),
        hangs: AtomicBool::new(false),
    });
    let (serving, all) = (provider.clone(), tasks.clone());
    tasks.spawn("provider", async move {
        while let Ok((stream, _)) = listener.accept().await {
            all.spawn("provider's answer", serving.clone().serve(stream));
        }
    });

    let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
    let spec = json!({ "issuer": provider.issuer, "clientId": "fairlead", "recheckSeconds": 2 });
    let corp = IdentityProvider::new("corp", serde_json::from_value(spec).unwrap());
    objects.apply(&corp, Expected::Any, soon()).await.unwrap();
    let spec = json!({ "provider": "corp", "values": ["devs"], "roles": ["viewer"] });
    let devs = RoleMapping::new("devs", serde_json::from_value(spec).unwrap());
    objects.apply(&devs, Expected::Any, soon()).await.unwrap();
    let (readiness, ledger) =
        (Readiness::default(), Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) }));
    let token = LocalToken::open(data.path()).unwrap();
    let access = Access::start(objects.clone(), &tasks, &readiness, Some(&token));
    access.federate(Arc::new(Outbound::new(&tasks).unwrap()), "fairlead", &ledger, &tasks);
    let api = Api {
        fleet: Fleet::start(FleetConfig::default(), objects.clone(), ledger.clone(), &tasks),
        access: access.clone(),
        audit: Audit::start(data.path(), Size::default(), &tasks),
        recordings: None,
        ledger,
        gates: Gates::new(1024),
        meshes: mesh::Meshes::new(objects.clone()),
        admission: None,
        agents: None,
        traffic: None,
        notifier: None,
        programs: None,
        leader: None,
        replicas: None,
        objects: objects.clone(),
        watchdog: None,
        tasks: tasks.clone(),
        no_clusters: "no clusters".into(),
        leaving: None,
        own_certificate: None,
        serving: Serving::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    start(api, listener, ListenerTls::Plain, &tasks).unwrap();
    while access.identity_providers().is_empty() || !readiness.report().ready {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut cookies = Vec::new();
    for user in 0..USERS {
        cookies.push(log_in(&access, &format!("user-{user}")).await.unwrap());
    }
    World { provider, access, at, cookies, tasks, _data: data }
}

/// One keep-alive connection of a user; how long each request took.
async fn user(at: SocketAddr, cookie: String) -> Vec<Duration> {
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let request = format!(
        "GET /api/v1/me HTTP/1.1\r\nhost: {at}\r\ncookie: fairlead-session={cookie}\r\n\r\n"
    );
    let (mut took, mut answer) = (Vec::with_capacity(REQUESTS), vec![0; 16 << 10]);
    for _ in 0..REQUESTS {
        let began = Instant::now();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut have = 0;
        loop {
            have += stream.read(&mut answer[have..]).await.unwrap();
            let text = std::str::from_utf8(&answer[..have]).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.unwrap().parse::<usize>().unwrap() {
                assert!(head.starts_with("HTTP/1.1 200") && body.contains("viewer"), "{text}");
                break;
            }
        }
        took.push(began.elapsed());
    }
    took
}

struct Figures {
    p50: f64,
    p99: f64,
}

async fn measure(world: &World, hangs: bool) -> Figures {
    world.provider.hangs.store(hangs, Relaxed);
    let beside = world.tasks.child("logins");
    for login in 0..LOGINS {
        let access = world.access.clone();
        let stop = beside.stopping();
        beside.spawn("login", async move {
            let name = format!("other-{login}");
            while stop.bound(tokio::time::sleep(PAUSE)).await.is_some() {
                stop.bound(log_in(&access, &name)).await;
            }
        });
    }
    // Until every place is taken that can be.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let users: Vec<_> = world
        .cookies
        .iter()
        .map(|cookie| world.tasks.spawn("user", user(world.at, cookie.clone())))
        .collect();
    let mut took = Vec::new();
    for user in users {
        took.extend(user.await.unwrap());
    }
    beside.stop("measured");
    world.provider.hangs.store(false, Relaxed);
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_nanos() as f64;
    Figures { p50: at(0.5), p99: at(0.99) }
}

fn main() -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    let world = runtime.block_on(world());
    runtime.block_on(measure(&world, false));
    let pair = bench::in_turn(
        PAIRS,
        |hangs| runtime.block_on(measure(&world, hangs)),
        |figures| figures.p99,
    );
    let [well, hung] = pair;
    world.tasks.stop("done");
    let mut table = Table::new("identity provider");
    let rivals = [("a provider that is well", well.p50)];
    table.row("a request beside a provider that hangs, p50", "ns", hung.p50, &rivals);
    let rivals = [("a provider that is well", well.p99)];
    table.row("a request beside a provider that hangs, p99", "ns", hung.p99, &rivals);
    table.must("within 1.05 times", hung.p99 <= well.p99 * 1.05);
    table.finish()
}

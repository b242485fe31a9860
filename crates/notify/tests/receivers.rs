//! Notifications reach real servers as they should: rsyslog over UDP, TCP and TLS, an Alertmanager, a mail server,
//! an HTTP server that checks signatures. A receiver that does not answer holds up no other.

#![allow(clippy::unwrap_used, reason = "tests")]

mod http_server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_server::{Behaviour, HttpServer};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use notify::{Emitted, Event, Notifier, NotifierSettings, OutboxLimits, SECRET_LABEL, TestError};
use objects::kinds::{EventKind, EventLevel, Receiver, ResponseRule};
use objects::{Expected, Objects};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use stallproof::{Deadline, Ledger, Tasks};
use tempfile::TempDir;
use testkit::receivers::{AlertServer, MailServer, MailServerTls, ServerCertificate, SyslogServer};

/// Texts that have broken somebody's parser.
const NASTY: [&str; 8] = [
    "web reached db:5432/tcp, which no rule allows",
    "two\nlines\r\n<13>1 - - - - - - forged",
    "quotes \" brackets ] [x@1 a=\"b\"] backslash \\",
    "\u{0}\u{1b}[31mred\u{7f}\u{9b}",
    "\u{202e}desrever \u{feff}bom \u{2028}separator",
    "ünïcödé 日本語 🚢",
    "%s%n%jsonmesg% $!all ${jndi:ldap://x}",
    "\r\n.\r\nMAIL FROM:<x@y>\r\n",
];

const NAMESPACE: &str = "fairlead";

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

struct Stage {
    objects: Objects,
    notifier: Notifier,
    tasks: Tasks,
    dir: TempDir,
}

impl Stage {
    fn new(limits: OutboxLimits) -> Self {
        let (dir, tasks) = (tempfile::tempdir().unwrap(), Tasks::new("test"));
        let objects = Objects::embedded(&dir.path().join("objects"), &tasks).unwrap();
        let settings = NotifierSettings {
            dir: dir.path().join("notify"),
            namespace: NAMESPACE.to_owned(),
            limits,
            cluster: None,
        };
        let (ledger, mut registry) = (Ledger::default(), Registry::default());
        let notifier =
            Notifier::start(settings, &objects, None, &ledger, &tasks, &mut registry).unwrap();
        Self { objects, notifier, tasks, dir }
    }

    async fn receiver(&self, name: &str, spec: Value) {
        let spec = serde_json::from_value(spec).unwrap();
        self.objects.apply(&Receiver::new(name, spec), Expected::Any, soon()).await.unwrap();
    }

    async fn secret(&self, name: &str, values: &[(&str, &str)]) {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        secret.metadata.namespace = Some(NAMESPACE.to_owned());
        secret.metadata.labels = Some([(SECRET_LABEL.to_owned(), String::new())].into());
        let data = values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        secret.data = Some(data.collect());
        self.objects.apply(&secret, Expected::Any, soon()).await.unwrap();
    }

    /// Has events of one kind told to receivers.
    async fn tell(&self, rule: &str, event: &str, receivers: &[&str]) {
        let spec = json!({"event": event, "actions": ["notify"], "receivers": receivers});
        let spec = serde_json::from_value(spec).unwrap();
        self.objects.apply(&ResponseRule::new(rule, spec), Expected::Any, soon()).await.unwrap();
    }

    /// Waits until receivers and rules are followed.
    async fn settled(&self, receivers: usize, rules: usize) {
        loop {
            let (known, _) = self.notifier.receivers();
            let right = known.iter().filter(|view| view.wrong.is_none()).count();
            if right == receivers && self.notifier.rules().len() == rules {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn emit(&self, message: &str) -> String {
        let mut event = Event::new(EventKind::Violation, "denied", EventLevel::Error, message);
        event.workload = Some("shop/Deployment/web".to_owned());
        event.namespace = Some("shop".to_owned());
        let event = event.with("rule", message);
        let id = event.id.clone();
        assert_eq!(self.notifier.bus().emit(event), Emitted::Taken);
        id
    }

    /// Waits until a receiver's queue is empty.
    async fn drained(&self, name: &str) {
        let until = Deadline::after(Duration::from_secs(60));
        loop {
            let (known, _) = self.notifier.receivers();
            let view = known.iter().find(|view| view.name == name).unwrap();
            if view.queued == 0 && view.delivered > 0 {
                return;
            }
            assert!(!until.has_passed(), "{view:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A certificate for 127.0.0.1 that is its own authority, in files.
struct Pem {
    dir: TempDir,
    cert: String,
    key: String,
}

impl Pem {
    fn until(year: i32) -> Self {
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().pem();
        let (dir, key) = (tempfile::tempdir().unwrap(), key.serialize_pem());
        std::fs::write(dir.path().join("cert.pem"), &cert).unwrap();
        std::fs::write(dir.path().join("key.pem"), &key).unwrap();
        Self { dir, cert, key }
    }

    fn files(&self) -> (PathBuf, PathBuf) {
        (self.dir.path().join("cert.pem"), self.dir.path().join("key.pem"))
    }
}

/// Undoes what hides: the text as an event had it is compared with what a server understood.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        let hidden = c.is_control() || "\u{202e}\u{feff}\u{2028}".contains(c);
        match hidden {
            true => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn rsyslog_parses_every_message_over_udp_tcp_and_tls() {
    testkit::requires!(rsyslog);
    let pem = Pem::until(2090);
    let (cert, key) = pem.files();
    let server = SyslogServer::start(Some(ServerCertificate { cert: &cert, key: &key }));
    let stage = Stage::new(OutboxLimits::default());
    let address = |port: u16| format!("127.0.0.1:{port}");
    stage
        .receiver("udp", json!({"syslog": {"address": address(server.udp), "transport": "udp"}}))
        .await;
    stage
        .receiver("tcp", json!({"syslog": {"address": address(server.tcp), "facility": 10}}))
        .await;
    let tls = json!({"address": address(server.tls.unwrap()), "transport": "tls"});
    stage.receiver("tls", json!({"ca": pem.cert, "syslog": tls})).await;
    stage.tell("all", "violation", &["udp", "tcp", "tls"]).await;
    stage.settled(3, 1).await;
    let mut ids = BTreeMap::new();
    for text in NASTY {
        ids.insert(stage.emit(text), text);
    }
    let messages = server.messages(NASTY.len() * 3);
    assert_eq!(messages.len(), NASTY.len() * 3, "none was split or joined");
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for message in &messages {
        let field = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(field("protocol-version"), "1", "{message}");
        assert_eq!(
            (field("app-name"), field("msgid")),
            ("fairlead".into(), "violation.denied".into())
        );
        assert_eq!(field("syslogseverity"), "3", "{message}");
        let data = field("structured-data");
        let id = data.split(" id=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let text = ids.get(id).unwrap_or_else(|| panic!("{message}"));
        // rsyslog may keep the mark that says UTF-8.
        let said = field("msg").trim_start_matches('\u{feff}').to_owned();
        assert_eq!(said, shown(text), "{message}");
        *seen.entry((id.to_owned(), field("inputname") + &field("syslogfacility"))).or_default() +=
            1;
    }
    assert!(seen.values().all(|count| *count <= 2), "{seen:?}");
    let by_tcp = seen.keys().filter(|(_, input)| input == "imtcp10").count();
    assert_eq!(by_tcp, NASTY.len());
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alertmanager_takes_alerts_and_resolves_them() {
    testkit::requires!(alertmanager);
    let server = AlertServer::start();
    let stage = Stage::new(OutboxLimits::default());
    let url = format!("http://127.0.0.1:{}", server.port);
    stage
        .receiver("am", json!({"alertmanager": {"url": url, "labels": {"team": "platform"}}}))
        .await;
    stage.tell("violations", "violation", &["am"]).await;
    stage.tell("agents", "agent", &["am"]).await;
    stage.settled(1, 2).await;
    for text in NASTY {
        stage.emit(text);
    }
    let agent =
        |what, level| Event::new(EventKind::Agent, what, level, "node-1").with("node", "node-1");
    stage.notifier.bus().emit(agent("lost", EventLevel::Error));
    stage.drained("am").await;
    let alerts = server.alerts();
    let of = |name: &str| {
        let named = |alert: &&Value| alert["labels"]["alertname"] == name;
        alerts.iter().filter(named).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of("FairleadViolationDenied").len(), NASTY.len(), "one for each rule: {alerts:?}");
    assert_eq!(of("FairleadAgentLost").len(), 1);
    assert_eq!(of("FairleadAgentLost")[0]["labels"]["team"], "platform");
    stage.notifier.bus().emit(agent("back", EventLevel::Info));
    let until = soon();
    // What is resolved is not among those that are active.
    while server.alerts().iter().any(|alert| alert["labels"]["alertname"] == "FairleadAgentLost") {
        assert!(!until.has_passed(), "{:?}", server.alerts());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_takes_mail_under_tls_with_a_login() {
    testkit::requires!(mail_server);
    let pem = Pem::until(2090);
    let (cert, key) = pem.files();
    let certificate = ServerCertificate { cert: &cert, key: &key };
    let stage = Stage::new(OutboxLimits::default());
    stage
        .secret("mail", &[("username", MailServer::USER), ("password", MailServer::PASSWORD)])
        .await;
    let starttls = MailServer::start(MailServerTls::Starttls, "PLAIN", certificate);
    let implicit = MailServer::start(MailServerTls::Implicit, "LOGIN", certificate);
    for (name, server, security) in [("starttls", &starttls, "starttls"), ("tls", &implicit, "tls")]
    {
        let email = json!({
            "server": format!("127.0.0.1:{}", server.port), "security": security,
            "from": "fairlead@example.com", "to": ["ops@example.com", "sec@example.com"],
        });
        stage.receiver(name, json!({"secret": "mail", "ca": pem.cert, "email": email})).await;
    }
    stage.tell("all", "violation", &["starttls", "tls"]).await;
    stage.settled(2, 1).await;
    stage.emit("refuse me");
    for text in NASTY {
        stage.emit(text);
    }
    for server in [&starttls, &implicit] {
        let mails = server.mails(NASTY.len());
        // The one that was refused is dropped and holds up none behind it.
        assert_eq!(mails.len(), NASTY.len());
        for (mail, text) in mails.iter().zip(NASTY) {
            assert_eq!(mail["to"], json!(["ops@example.com", "sec@example.com"]));
            assert_eq!((&mail["user"], &mail["tls"]), (&json!("fairlead"), &json!(true)));
            let body = mail["body"].as_str().unwrap();
            assert!(body.starts_with(&format!("{}\n", shown(text))), "{mail}");
            assert!(mail["subject"].as_str().unwrap().starts_with("[error] "), "{mail}");
        }
    }
    // A wrong password is said, and nothing of it is shown.
    stage.secret("mail", &[("username", MailServer::USER), ("password", "hush")]).await;
    let refused = stage.notifier.test("tls", "a test", soon()).await;
    let Err(TestError::NotTaken(error)) = refused else { panic!("{refused:?}") };
    assert!(
        error.to_string().contains("does not accept the login")
            && !error.to_string().contains("hush")
    );
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_signed_in_order_and_at_least_once() {
    let pem = Pem::until(2090);
    let server = HttpServer::start(
        Some((&pem.cert, &pem.key)),
        Behaviour::Verify("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    )
    .await;
    let stage = Stage::new(OutboxLimits::default());
    stage.secret("hook", &[("hmac-key", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]).await;
    let url = format!("https://127.0.0.1:{}/events?a=b", server.port());
    stage
        .receiver("hook", json!({"secret": "hook", "ca": pem.cert, "webhook": {"url": url}}))
        .await;
    stage.tell("all", "violation", &["hook"]).await;
    stage.settled(1, 1).await;
    // It is away at first, then back: nothing is lost, and the order is kept.
    server.behave(Behaviour::Status(503)).await;
    let ids: Vec<_> = NASTY.iter().map(|text| stage.emit(text)).collect();
    server.asked(1).await;
    server.behave(Behaviour::Verify("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).await;
    stage.drained("hook").await;
    let taken = server.taken().await;
    let mut told: Vec<_> =
        taken.iter().map(|body| body["id"].as_str().unwrap().to_owned()).collect();
    told.dedup();
    assert_eq!(told, ids);
    assert_eq!(taken.last().unwrap()["message"], NASTY[7]);
    // A key that is not the server's: the server refuses, and the receiver is told apart from a broken one.
    stage.secret("hook", &[("hmac-key", "another key of the same length")]).await;
    let refused = stage.notifier.test("hook", "a test", soon()).await;
    assert!(refused.is_err_and(|error| stallproof::sentence(&error).contains("401")));
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_takes_logs_of_opentelemetry_in_both_encodings() {
    let pem = Pem::until(2090);
    let certificate = Some((&*pem.cert, &*pem.key));
    let takes = Behaviour::Collect("Bearer of good news");
    let binary = HttpServer::start(certificate, takes).await;
    let text = HttpServer::start(certificate, takes).await;
    let stage = Stage::new(OutboxLimits::default());
    stage.secret("otel", &[("authorization", "Bearer of good news")]).await;
    for (name, server, encoding) in [("binary", &binary, "protobuf"), ("text", &text, "json")] {
        let url = format!("https://127.0.0.1:{}", server.port());
        let otlp = json!({"url": url, "encoding": encoding});
        stage.receiver(name, json!({"secret": "otel", "ca": pem.cert, "otlp": otlp})).await;
    }
    stage.tell("all", "violation", &["binary", "text"]).await;
    stage.settled(2, 1).await;
    // It is away at first: what it was not told it is told when it is back.
    binary.behave(Behaviour::Status(503)).await;
    let ids: Vec<_> = NASTY.iter().map(|text| stage.emit(text)).collect();
    binary.asked(1).await;
    binary.behave(takes).await;
    for (name, server) in [("binary", &binary), ("text", &text)] {
        stage.drained(name).await;
        let records = server.taken().await;
        let of = |field: &str| -> Vec<_> {
            records.iter().map(|record| record[field].as_str().unwrap().to_owned()).collect()
        };
        let mut told = of("id");
        told.dedup();
        assert_eq!(told, ids, "{name}");
        assert_eq!(of("body").last().map(String::as_str), NASTY.last().copied());
        let first = &records[0];
        assert_eq!((&first["path"], &first["severity"]), (&json!("/v1/logs"), &json!(17)));
        assert_eq!(first["event"], "fairlead.violation.denied");
        assert_eq!(first["workload"], "shop/Deployment/web");
    }
    // A token that is not the server's is said, and is not shown.
    stage.secret("otel", &[("authorization", "Bearer hush")]).await;
    let refused = stage.notifier.test("binary", "a test", soon()).await;
    let Err(TestError::NotTaken(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("401") && !error.to_string().contains("hush"), "{error}");
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_refuses_or_has_expired_holds_up_nobody() {
    let (expired, hangs) = (Pem::until(2021), HttpServer::start(None, Behaviour::Hang).await);
    let old = HttpServer::start(Some((&expired.cert, &expired.key)), Behaviour::Status(200)).await;
    let refuses = HttpServer::start(None, Behaviour::Status(503)).await;
    let well = HttpServer::start(None, Behaviour::Status(200)).await;
    let stage = Stage::new(OutboxLimits { events: 5, bytes: 1 << 20 });
    let url = |port: u16| json!({"webhook": {"url": format!("http://127.0.0.1:{port}/")}});
    stage.receiver("hangs", url(hangs.port())).await;
    stage.receiver("refuses", url(refuses.port())).await;
    stage.receiver("well", url(well.port())).await;
    let https = format!("https://127.0.0.1:{}/", old.port());
    stage.receiver("expired", json!({"ca": expired.cert, "webhook": {"url": https}})).await;
    stage.tell("all", "violation", &["hangs", "refuses", "expired", "well"]).await;
    stage.settled(4, 1).await;
    for number in 0..20 {
        stage.emit(&format!("number {number}"));
        // The queue of one that is well has room again at once.
        well.asked(number + 1).await;
    }
    stage.drained("well").await;
    let (views, _) = stage.notifier.receivers();
    let view = |name: &str| views.iter().find(|view| view.name == name).unwrap().clone();
    assert_eq!((view("well").delivered, view("well").dropped), (20, 0));
    for name in ["hangs", "refuses", "expired"] {
        assert_eq!((view(name).queued, view(name).dropped), (5, 15), "{name}");
    }
    assert!(view("refuses").failing.unwrap().0.contains("503"));
    assert!(view("expired").failing.unwrap().0.contains("xpired"), "{:?}", view("expired"));
    // When it is back it is told what it has, then how many it was not told of.
    refuses.behave(Behaviour::Status(200)).await;
    let until = soon();
    let told = loop {
        let taken = refuses.taken().await;
        if taken.iter().any(|body| body["name"] == "receiver.dropped") {
            break taken;
        }
        assert!(!until.has_passed(), "{taken:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(told.len(), 6);
    assert_eq!((&told[0]["message"], &told[5]["count"]), (&json!("number 0"), &json!(15)));
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_without_the_label_is_given_to_nobody() {
    let server = HttpServer::start(None, Behaviour::Status(200)).await;
    let stage = Stage::new(OutboxLimits::default());
    let mut secret = Secret::default();
    secret.metadata.name = Some("fairlead-admission-certificates".to_owned());
    secret.metadata.namespace = Some(NAMESPACE.to_owned());
    secret.data = Some([("authorization".to_owned(), ByteString(b"hush".to_vec()))].into());
    stage.objects.apply(&secret, Expected::Any, soon()).await.unwrap();
    let url = format!("http://127.0.0.1:{}/", server.port());
    let spec = json!({"secret": "fairlead-admission-certificates", "webhook": {"url": url}});
    stage.receiver("thief", spec).await;
    let until = soon();
    loop {
        let (views, _) = stage.notifier.receivers();
        // Until the Secret is seen it is said to be missing.
        let wrong = views.first().and_then(|view| view.wrong.clone());
        if wrong.as_ref().is_some_and(|wrong| wrong.contains(SECRET_LABEL)) {
            break;
        }
        assert!(!until.has_passed(), "{wrong:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(stage.notifier.test("thief", "a test", soon()).await.is_err());
    assert!(server.taken().await.is_empty());
    stage.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_removed_takes_its_queue_with_it() {
    let hangs = HttpServer::start(None, Behaviour::Hang).await;
    let stage = Stage::new(OutboxLimits::default());
    stage
        .receiver(
            "gone",
            json!({"webhook": {"url": format!("http://127.0.0.1:{}/", hangs.port())}}),
        )
        .await;
    stage.tell("all", "violation", &["gone"]).await;
    stage.settled(1, 1).await;
    stage.emit("one");
    hangs.asked(1).await;
    stage
        .objects
        .delete::<Receiver>(&objects::Id::cluster("gone"), Expected::Any, soon())
        .await
        .unwrap();
    stage.settled(0, 1).await;
    // Nobody is sent what the one before was not told.
    let well = HttpServer::start(None, Behaviour::Status(200)).await;
    stage
        .receiver("gone", json!({"webhook": {"url": format!("http://127.0.0.1:{}/", well.port())}}))
        .await;
    stage.settled(1, 1).await;
    stage.emit("two");
    stage.drained("gone").await;
    let taken = well.taken().await;
    assert_eq!(taken.iter().map(|body| body["message"].clone()).collect::<Vec<_>>(), ["two"]);
    stage.tasks.shutdown(Duration::from_secs(5)).await;
    drop(stage.dir);
    drop(Arc::new(hangs));
}

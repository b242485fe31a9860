//! The admin surface over real sockets, with and without TLS, and while everything else is stuck.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use edge::admin::{self, Admin, AdminListener, AdminThread, LogLevel, Token};
use edge::tls::{CertificateFiles, ListenerTls, ManagedCertificate};
use prometheus_client::registry::Registry;
use stallproof::watchdog::{Severity, WatchdogLimits};
use stallproof::{Ledger, Readiness, Watchdog};

const TOKEN: &str = "a-token-of-enough-letters";

#[derive(Default)]
struct Level(Mutex<String>);

impl LogLevel for Level {
    fn get(&self) -> String {
        self.0.lock().unwrap().clone()
    }
    fn set(&self, directives: &str) -> Result<(), String> {
        if directives.contains(' ') {
            return Err(format!("not a level: {directives}"));
        }
        *self.0.lock().unwrap() = directives.to_owned();
        Ok(())
    }
}

struct Running {
    address: SocketAddr,
    ledger: Ledger,
    readiness: Readiness,
    watchdog: Arc<Watchdog>,
    _admin: AdminThread,
}

fn start(reach: impl FnOnce(TcpListener) -> AdminListener) -> Running {
    start_with(false, reach)
}

fn start_with(profiling: bool, reach: impl FnOnce(TcpListener) -> AdminListener) -> Running {
    start_on("127.0.0.1:0", profiling, reach)
}

fn start_on(
    at: &str,
    profiling: bool,
    reach: impl FnOnce(TcpListener) -> AdminListener,
) -> Running {
    let listener = TcpListener::bind(at).unwrap();
    let address = listener.local_addr().unwrap();
    let ledger = Ledger::default();
    let readiness = Readiness::default();
    let watchdog = Arc::new(Watchdog::start(WatchdogLimits::default(), None));
    let mut registry = Registry::with_prefix("fairlead");
    ledger.register(&mut registry);
    watchdog.register(&mut registry);
    let admin = Admin {
        ledger: ledger.clone(),
        watchdog: watchdog.clone(),
        readiness: readiness.clone(),
        registry: Arc::new(registry),
        log: Box::new(Level(Mutex::new("info".to_owned()))),
        profiling,
    };
    let admin = admin::start(admin, reach(listener)).unwrap();
    Running { address, ledger, readiness, watchdog, _admin: admin }
}

fn plain(listener: TcpListener) -> AdminListener {
    AdminListener { listener, tls: ListenerTls::Plain, token: None, owner: Some(Token::new(TOKEN)) }
}

/// A request as curl would send it: status and body.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    split(&answer)
}

fn split(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// As the owner of the machine asks.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(
        address,
        &format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
        ),
    )
}

/// As any program on the machine asks.
fn get_as_anybody(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"))
}

#[test]
fn on_loopback_whoever_has_no_token_sees_health_and_metrics_and_changes_nothing() {
    let running = start_with(true, plain);
    let at = running.address;
    for path in ["/livez", "/readyz", "/metrics", "/"] {
        assert_eq!(get_as_anybody(at, path).0, 200, "{path}");
    }
    for path in [
        "/debug/inflight",
        "/debug/stalls",
        "/debug/locks",
        "/debug/stacks",
        "/debug/log",
        "/debug/pprof/heap",
        "/debug/pprof/profile?seconds=1",
    ] {
        let (status, why) = get_as_anybody(at, path);
        assert!(status == 401 && why.contains("data directory"), "{path}: {status} {why}");
    }
    let put = |bearer: &str| {
        ask(
            at,
            &format!(
                "PUT /debug/log HTTP/1.1\r\nhost: {at}\r\n{bearer}connection: close\r\ncontent-length: 5\r\n\r\ntrace"
            ),
        )
    };
    assert_eq!(put("").0, 401);
    assert_eq!(put("authorization: Bearer a-token-of-other-letters\r\n").0, 401);
    assert_eq!(get(at, "/debug/log"), (200, "info\n".to_owned()), "nothing was changed");
    assert_eq!(put(&format!("authorization: Bearer {TOKEN}\r\n")).0, 200);
}

fn json(address: SocketAddr, path: &str) -> serde_json::Value {
    let (status, body) = get(address, path);
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path} is not JSON ({e}): {body}"))
}

#[test]
fn every_endpoint_answers_people_and_programs() {
    let running = start(plain);
    let at = running.address;
    let op = running.ledger.begin("apply", "default/web", "cluster-a");
    op.step("connect");
    op.waits_on("lane cluster-a", None);

    assert_eq!(get(at, "/livez"), (200, "live\n".to_owned()));
    let (_, table) = get(at, "/debug/inflight");
    assert!(table.contains("default/web") && table.contains("waits on lane cluster-a"), "{table}");
    let answer = json(at, "/debug/inflight?format=json&kind=apply");
    assert_eq!(answer["operations"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["operations"][0]["tenant"], "cluster-a");
    assert_eq!(answer["operations"][0]["step"], "connect");
    assert_eq!(json(at, "/debug/stalls?format=json")["stalls"], serde_json::json!([]));
    assert!(json(at, "/debug/locks?format=json")["locks"].is_array());
    let (status, stacks) = get(at, "/debug/stacks");
    assert_eq!(status, 200);
    assert!(stacks.contains("admin"), "{stacks}");
    let (_, metrics) = get(at, "/metrics");
    assert!(metrics.contains("fairlead_operations_in_flight{kind=\"apply\"} 1"), "{metrics}");
    let (status, index) = get(at, "/");
    assert!(status == 200 && index.contains("/debug/inflight"));
}

#[test]
fn what_is_not_ready_says_why() {
    let running = start(plain);
    let store = running.readiness.announce("store");
    assert_eq!(
        get(running.address, "/readyz"),
        (503, "[-] store not ready: starting\nnot ready\n".to_owned())
    );
    store.ready();
    assert_eq!(get(running.address, "/readyz"), (200, "[+] store ready\nready\n".to_owned()));
}

#[test]
fn bad_requests_get_a_sentence() {
    let running = start(plain);
    let at = running.address;
    for (path, status, part) in [
        ("/nowhere", 404, "no such page"),
        ("/debug/inflight?limit=many", 400, "limit"),
        ("/debug/inflight?colour=red", 400, "colour"),
        ("/debug/pprof/heap", 404, "--admin-profiling true"),
    ] {
        let (got, body) = get(at, path);
        assert!(got == status && body.contains(part), "{path}: {got} {body}");
    }
    let put = |body: &str| {
        let length = body.len();
        ask(
            at,
            &format!(
                "PUT /debug/log HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
            ),
        )
    };
    assert_eq!(put("debug"), (200, "debug\n".to_owned()));
    assert_eq!(get(at, "/debug/log"), (200, "debug\n".to_owned()));
    let (status, body) = put("no such level");
    assert!(status == 400 && body.contains("send a level"), "{status} {body}");
}

#[test]
fn a_profile_is_taken_when_allowed_and_holds_up_no_other_answer() {
    let running = start_with(true, plain);
    let address = running.address;
    let taking = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        let path = "/debug/pprof/profile?seconds=2";
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    // While it is in flight the ledger shows it, so others are answered meanwhile.
    let until = Instant::now() + Duration::from_secs(10);
    while !get(address, "/debug/inflight").1.contains("/debug/pprof/profile") {
        assert!(Instant::now() < until, "the profile was never seen in flight");
    }
    assert!(!taking.is_finished(), "the others were answered after it, not beside it");
    let answer = taking.join().unwrap();
    let body = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..body]));
    assert_eq!(answer[body..body + 2], [0x1f, 0x8b], "pprof's own format is gzipped");
    let (status, said) = get(address, "/debug/pprof/profile?seconds=0");
    assert!(status == 400 && said.contains("expected 1 to"), "{status} {said}");
}

#[test]
fn a_page_from_elsewhere_is_refused() {
    let running = start(plain);
    let (status, _) = ask(
        running.address,
        "GET /metrics HTTP/1.1\r\nhost: rebound.example\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(status, 403);
}

#[test]
fn probes_are_answered_whoever_holds_connections() {
    let running = start(plain);
    let connect = || {
        let stream = TcpStream::connect(running.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    };
    // Clients that say nothing, and clients that ask and never read, as many as there are places.
    let mut idle: Vec<_> = (0..64).map(|_| connect()).collect();
    let asked = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", running.address).repeat(50);
    let mut never_read = Vec::new();
    for _ in 0..64 {
        let mut stream = connect();
        stream.set_nonblocking(true).unwrap();
        // Until nothing more is taken: the answers fill what there is of buffers.
        let until = Instant::now() + Duration::from_millis(100);
        let mut stuck = 0;
        while stuck < 3 && Instant::now() < until {
            match stream.write(asked.as_bytes()) {
                Ok(_) => stuck = 0,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    stuck += 1;
                    std::thread::yield_now();
                }
                Err(_) => break,
            }
        }
        never_read.push(stream);
        assert_eq!(get(running.address, "/livez").0, 200);
    }
    for _ in 0..100 {
        assert_eq!(get(running.address, "/livez").0, 200);
        assert_eq!(get(running.address, "/readyz").0, 200);
    }
    // It is the oldest who had to go.
    let mut byte = [0];
    assert!(matches!(idle[0].read(&mut byte), Ok(0) | Err(_)), "the oldest should be cut off");
    drop((idle, never_read));
    assert_eq!(get(running.address, "/livez").0, 200);
}

/// Blocks threads until dropped.
struct Block(Arc<(AtomicBool, Mutex<()>, Condvar)>);

impl Block {
    fn every_worker_of(runtime: &tokio::runtime::Runtime, workers: usize) -> Self {
        let gate = Arc::new((AtomicBool::new(false), Mutex::new(()), Condvar::new()));
        let inside = Arc::new(std::sync::Barrier::new(workers + 1));
        for _ in 0..workers {
            let (gate, inside) = (gate.clone(), inside.clone());
            runtime.spawn(async move {
                inside.wait();
                let mut held = gate.1.lock().unwrap();
                while !gate.0.load(SeqCst) {
                    held = gate.2.wait(held).unwrap();
                }
            });
        }
        inside.wait();
        Self(gate)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.0.0.store(true, SeqCst);
        let _held = self.0.1.lock().unwrap();
        self.0.2.notify_all();
    }
}

#[test]
fn it_answers_while_every_worker_of_the_main_runtime_is_blocked() {
    let running = start(plain);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    running.watchdog.watch_runtime("main", runtime.handle().clone(), Severity::Critical);
    let block = Block::every_worker_of(&runtime, 2);
    let paths =
        ["/livez", "/readyz", "/metrics", "/debug/inflight", "/debug/stalls", "/debug/locks"];
    // The promise is a second; the machine that runs this may be busy, so the best of three counts.
    for path in paths {
        let best = (0..3)
            .map(|_| {
                let began = Instant::now();
                assert_eq!(get(running.address, path).0, 200, "{path}");
                began.elapsed()
            })
            .min();
        assert!(best < Some(Duration::from_secs(1)), "{path} took {best:?}");
    }
    // And it names the runtime that makes no progress.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let stalls = json(running.address, "/debug/stalls?format=json");
        let named = stalls["stalls"].as_array().unwrap().iter().any(|s| s["name"] == "main");
        if named {
            break;
        }
        assert!(Instant::now() < until, "the blocked runtime was never named: {stalls}");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(block);
    let until = Instant::now() + Duration::from_secs(30);
    while !running.watchdog.stalls().is_empty() {
        assert!(Instant::now() < until, "it did not recover");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn over_tls_the_token_opens_all_but_the_probes() {
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&cert, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&token, open).unwrap();
    let error = Token::read(&token).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, private).unwrap();

    let running = start(|listener| AdminListener {
        listener,
        tls: ListenerTls::Files(CertificateFiles::load(cert, key).unwrap()),
        token: Some(Token::read(&token).unwrap()),
        owner: None,
    });
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pair.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let ask = |path: &str, header: &str| {
        let mut session =
            rustls::ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
        let mut stream = TcpStream::connect(running.address).unwrap();
        let mut tls = rustls::Stream::new(&mut session, &mut stream);
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{header}connection: close\r\n\r\n");
        tls.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // Whether the server closes with a TLS alert or plainly is of no interest here.
        let _ = tls.read_to_string(&mut answer);
        split(&answer).0
    };
    assert_eq!(ask("/livez", ""), 200);
    assert_eq!(ask("/metrics", ""), 401);
    assert_eq!(ask("/metrics", "authorization: Bearer wrong\r\n"), 401);
    assert_eq!(ask("/debug/pprof/heap", ""), 401);
    assert_eq!(ask("/metrics", &format!("authorization: Bearer {TOKEN}\r\n")), 200);
    // Plain HTTP on the TLS port gets nothing.
    let mut plain = TcpStream::connect(running.address).unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&answer));
}

/// A TLS client that believes whatever it is shown, as a kubelet's probe does.
#[derive(Debug)]
struct Believes(rustls::crypto::CryptoProvider);

impl rustls::client::danger::ServerCertVerifier for Believes {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn ask_tls(address: SocketAddr, path: &str, header: &str) -> (u16, String) {
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(provider.clone()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believes(provider)))
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::from(address.ip());
    let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{header}connection: close\r\n\r\n");
    tls.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = tls.read_to_string(&mut answer);
    split(&answer)
}

/// An address of this machine that is not loopback's.
fn beyond_loopback() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent; the kernel says what it would be sent from.
    socket.connect("198.51.100.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn beyond_loopback_without_a_token_only_the_probes_are_answered() {
    let Some(ip) = beyond_loopback() else {
        return testkit::need::skip("admin beyond loopback", "no address but loopback's");
    };
    let security = || {
        ListenerTls::ManagedBeyondLoopback(
            ManagedCertificate::self_signed(&["x".to_owned()]).unwrap(),
        )
    };
    for at in ["0.0.0.0:0", "[::]:0"] {
        let reach = |listener| AdminListener {
            listener,
            tls: security(),
            token: None,
            owner: Some(Token::new(TOKEN)),
        };
        let running = start_on(at, true, reach);
        let port = running.address.port();
        let (outside, inside) =
            (SocketAddr::new(ip, port), SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!(ask_tls(outside, "/livez", ""), (200, "live\n".to_owned()));
        assert_eq!(ask_tls(outside, "/readyz", "").0, 200);
        for path in ["/", "/metrics", "/debug/inflight", "/debug/log", "/debug/pprof/heap"] {
            let (status, why) = ask_tls(outside, path, "");
            assert_eq!(status, 403, "{path}: {why}");
            assert!(why.contains("set admin.token-file"), "{path}: {why}");
            // A header changes nothing of where a connection goes.
            assert_eq!(ask_tls(outside, path, "x-forwarded-for: 127.0.0.1\r\n").0, 403);
        }
        // Plain HTTP from beyond gets nothing.
        let mut plain = TcpStream::connect(outside).unwrap();
        plain.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP"), "{:?}", String::from_utf8_lossy(&answer));

        // Who is on this machine is answered as on loopback, in plain words or under TLS.
        assert_eq!(get(inside, "/debug/inflight").0, 200);
        assert_eq!(ask_tls(inside, "/metrics", "").0, 200);
        let page = "GET /metrics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
        assert_eq!(ask(inside, page).0, 403, "a page of another site");
    }
}

#[test]
fn beyond_loopback_the_token_opens_everything_with_a_certificate_of_our_own() {
    let Some(ip) = beyond_loopback() else {
        return testkit::need::skip("admin beyond loopback", "no address but loopback's");
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, private).unwrap();
    let running = start_on("[::]:0", false, |listener| AdminListener {
        listener,
        tls: ListenerTls::ManagedBeyondLoopback(
            ManagedCertificate::self_signed(&["x".to_owned()]).unwrap(),
        ),
        token: Some(Token::read(&file).unwrap()),
        owner: None,
    });
    let port = running.address.port();
    let outside = SocketAddr::new(ip, port);
    assert_eq!(ask_tls(outside, "/livez", "").0, 200);
    assert_eq!(ask_tls(outside, "/metrics", "").0, 401);
    assert_eq!(ask_tls(outside, "/metrics", &format!("authorization: Bearer {TOKEN}\r\n")).0, 200);
    // With a token everybody is asked for it.
    assert_eq!(get_as_anybody(SocketAddr::from(([127, 0, 0, 1], port)), "/metrics").0, 401);
}

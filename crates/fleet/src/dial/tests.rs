use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

fn endpoint(server: &str, proxy: Option<String>) -> Endpoint {
    Endpoint {
        server: server.parse().unwrap(),
        authorities: None,
        insecure: false,
        tls_server_name: None,
        proxy: proxy.map(|proxy| Redacted(proxy.parse().unwrap())),
        guard: AddressGuard::default(),
    }
}

async fn dial(endpoint: &Endpoint) -> (Vec<&'static str>, Result<Transport, DialError>) {
    let tls = kube::Config::new(endpoint.server.clone()).rustls_client_config().unwrap();
    let (resolver, steps) = (Resolver::new(&Tasks::new("test")), Steps::default());
    let timing = Timing { connect: Duration::from_secs(20), ..Timing::default() };
    let mut dialer = Dialer::new(endpoint, tls, &resolver, &timing, &steps).unwrap();
    let wire = dialer.call(endpoint.server.clone()).await;
    (steps.take().iter().map(|step| step.name).collect(), wire)
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Takes one CONNECT and answers with this line; gives back what it was asked.
async fn http_proxy(answer: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let (listener, address) = listen().await;
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let read = stream.read(&mut asked).await.unwrap();
        stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
        String::from_utf8(asked[..read].to_vec()).unwrap()
    });
    (address, asked)
}

#[tokio::test]
async fn an_http_proxy_is_asked_for_the_server_with_its_own_password() {
    let (proxy, asked) = http_proxy("200 OK").await;
    let endpoint = endpoint("http://api.test:6443", Some(format!("http://me:p%40ss@{proxy}")));
    let (steps, wire) = dial(&endpoint).await;
    assert!(wire.is_ok());
    assert_eq!(steps, ["resolve", "tcp", "proxy"]);
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("CONNECT api.test:6443 "), "{asked}");
    // me:p@ss
    assert!(asked.to_lowercase().contains("proxy-authorization: basic bwu6cebzcw=="), "{asked}");
}

#[tokio::test]
async fn what_a_proxy_does_not_do_is_its_failure_and_not_the_servers() {
    let failure = async |proxy: String| {
        let endpoint = endpoint("http://api.test:6443", Some(proxy));
        let failure = dial(&endpoint).await.1.err().unwrap().failure("http://api.test:6443");
        assert_eq!(failure.reason, Reason::Proxy);
        assert!(!failure.why.contains("s3cret"), "{}", failure.why);
        failure.why
    };
    let (proxy, _) = http_proxy("407 Proxy Authentication Required").await;
    let why = failure(format!("http://me:s3cret@{proxy}")).await;
    assert!(why.contains("connect us to http://api.test:6443: proxy authorization"), "{why}");
    let (closed, address) = listen().await;
    drop(closed);
    let why = failure(format!("http://{address}")).await;
    assert!(why.contains("refuses connections"), "{why}");
}

#[tokio::test]
async fn a_socks_proxy_is_given_the_name() {
    let (listener, proxy) = listen().await;
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = [0; 512];
        // Greeting: no authentication is fine.
        let _ = stream.read(&mut asked).await.unwrap();
        stream.write_all(&[5, 0]).await.unwrap();
        let read = stream.read(&mut asked).await.unwrap();
        stream.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
        asked[..read].to_vec()
    });
    let endpoint = endpoint("http://api.test:6443", Some(format!("socks5://{proxy}")));
    let (steps, wire) = dial(&endpoint).await;
    assert!(wire.is_ok(), "{:?}", wire.err());
    assert_eq!(steps, ["resolve", "tcp", "proxy"]);
    let asked = asked.await.unwrap();
    assert!(asked.windows(8).any(|part| part == b"api.test"), "{asked:?}");
}

#[tokio::test]
async fn each_step_is_noted_and_the_first_that_fails_is_the_last() {
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 64]).await;
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
    });
    let (steps, wire) = dial(&endpoint(&format!("https://{address}"), None)).await;
    assert_eq!(steps, ["resolve", "tcp", "tls"]);
    let failure = wire.err().unwrap().failure("it");
    assert_eq!(failure.reason, Reason::NotAnApiServer);

    let (steps, wire) = dial(&endpoint("https://no-such-host.invalid", None)).await;
    assert_eq!(steps, ["resolve"]);
    assert_eq!(wire.err().unwrap().failure("it").reason, Reason::Name);
}

#[test]
fn an_escaped_password_is_read_as_it_was_meant() {
    assert_eq!(decoded("me:p%40ss%3aw%2"), "me:p@ss:w%2");
    assert_eq!(decoded("%zz%"), "%zz%");
}

#[test]
fn a_proxy_of_another_kind_is_a_sentence() {
    let tcp = Tcp {
        resolver: Resolver::new(&Tasks::new("test")),
        limit: Duration::from_secs(1),
        steps: Steps::default(),
        proxy_tls: None,
        to_proxy: false,
        refuse_local: false,
    };
    let proxy = Redacted("ftp://p".parse().unwrap());
    let failure = Route::new(Some(&proxy), tcp, &Timing::default()).err().unwrap();
    assert_eq!(failure.reason, Reason::Setup);
}

#[tokio::test]
async fn what_others_import_is_not_connected_to_on_this_machine_by_number_name_or_proxy() {
    let (listener, address) = listen().await;
    let guarded = |server: String, proxy: Option<String>, proxy_is_ours: bool| {
        let guard = AddressGuard { refuse_local: true, proxy_is_ours };
        Endpoint { guard, ..endpoint(&server, proxy) }
    };
    let port = address.port();
    for server in [
        format!("http://127.0.0.1:{port}"),
        format!("http://[::ffff:127.0.0.1]:{port}"),
        // A name leads there only when it is looked up, as one does that changes its mind.
        format!("http://localhost:{port}"),
        format!("http://0.0.0.0:{port}"),
    ] {
        let (_, wire) = dial(&guarded(server.clone(), None, true)).await;
        let failure = wire.err().unwrap_or_else(|| panic!("{server} was connected to"));
        let why = failure.failure(&server).why;
        assert!(why.contains("fleet.local-imports"), "{server}: {why}");
    }
    let there = Some(format!("http://{address}"));
    let (_, wire) = dial(&guarded("http://api.test:6443".to_owned(), there.clone(), false)).await;
    assert!(wire.is_err(), "a proxy of a kubeconfig is a way there too");
    let (_, wire) = dial(&guarded("http://169.254.169.254".to_owned(), there, true)).await;
    assert!(wire.is_err(), "nor through a proxy of ours");
    let nobody = Deadline::after(Duration::from_millis(100)).bound(listener.accept()).await;
    assert!(nobody.is_err(), "somebody connected");
}

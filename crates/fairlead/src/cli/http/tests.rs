//! Against servers of a few lines on loopback: the faults are theirs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// Answers each connection with the next of these, whatever it asks; tells what was asked.
fn server(answers: Vec<Vec<u8>>) -> (Uri, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let _ = sender.send(head.join("\n"));
            let _ = stream.write_all(&answer);
        }
    });
    (url, requests)
}

fn get(url: &Uri, token: Option<&str>) -> Result<(StatusCode, Vec<u8>), HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let origin = Origin::of(url, Trust::Public, PATIENCE).unwrap();
    runtime.block_on(origin.get("/metrics?x=1", token, PATIENCE, 1 << 20))
}

#[test]
fn a_redirect_is_an_answer_and_is_not_followed() {
    let redirect = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/steal\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (url, requests) = server(vec![redirect.to_vec()]);
    assert_eq!(get(&url, Some("s3cret")).unwrap().0, StatusCode::FOUND);
    let asked = requests.recv().unwrap().to_lowercase();
    assert!(asked.starts_with("get /metrics?x=1 http/1.1\n"), "{asked}");
    assert!(asked.contains("authorization: bearer s3cret"), "{asked}");
    assert!(asked.contains(&format!("host: {}", url.authority().unwrap())), "{asked}");
}

#[test]
fn what_is_packed_is_unpacked_and_bounded() {
    let pack = |bytes: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        let body = packer.finish().unwrap();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    };
    let (url, _requests) = server(vec![pack(b"hello"), pack(&vec![0; 2 << 20])]);
    assert_eq!(get(&url, None).unwrap().1, b"hello");
    assert!(matches!(get(&url, None), Err(HttpError::TooLarge(_))));
}

#[test]
fn an_answer_that_breaks_off_is_no_answer() {
    let (url, _requests) =
        server(vec![b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal".to_vec()]);
    assert!(matches!(get(&url, None), Err(HttpError::BrokenOff(_))));
}

#[test]
fn nobody_there_is_told_from_nobody_called_so() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}").parse().unwrap();
    assert!(matches!(get(&url, None), Err(HttpError::Unreachable(_))));
    let url = "http://no-such-host.invalid".parse().unwrap();
    assert!(matches!(get(&url, None), Err(HttpError::NoSuchHost)));
}

#[tokio::test]
async fn a_connection_serves_the_next_request_and_one_that_was_closed_does_not() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    // Two answers on the first connection, which the server then closes; one on the second.
    let served = std::thread::spawn(move || {
        for last in [1, 0] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in 0..=last {
                while !lines.next().unwrap().unwrap().is_empty() {}
                let then = if answer == last { "close" } else { "keep-alive" };
                let head = format!("HTTP/1.1 200 OK\r\nconnection: {then}\r\ncontent-length: 2");
                stream.write_all(format!("{head}\r\n\r\nok").as_bytes()).unwrap();
            }
        }
    });
    let origin = Origin::of(&url, Trust::Public, PATIENCE).unwrap();
    for _ in 0..3 {
        let (status, body) = origin.get("/", None, PATIENCE, 1 << 20).await.unwrap();
        assert_eq!((status, &body[..]), (StatusCode::OK, &b"ok"[..]));
    }
    served.join().unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let origin = Origin::of(&url, Trust::Public, PATIENCE).unwrap();
    let answer = origin.get("/", None, Duration::from_millis(100), 1 << 20).await;
    assert!(matches!(answer, Err(HttpError::AnswerTimeout(_))), "{answer:?}");
}

#[test]
fn an_origin_is_a_host_and_a_port() {
    let origin = |url: &str| {
        let origin = Origin::of(&url.parse().unwrap(), Trust::Public, PATIENCE).unwrap();
        (origin.host, origin.port, origin.tls.is_some())
    };
    assert_eq!(origin("http://127.0.0.1:7680/"), ("127.0.0.1".to_owned(), 7680, false));
    assert_eq!(origin("http://[::1]:80"), ("::1".to_owned(), 80, false));
    assert_eq!(origin("https://fairlead.example"), ("fairlead.example".to_owned(), 443, true));
    let wrong = Origin::of(&"ftp://a".parse().unwrap(), Trust::Public, PATIENCE);
    assert!(matches!(wrong, Err(HttpError::NotAnAddress(_))));
}

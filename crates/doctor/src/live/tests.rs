use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use super::*;

/// A process that answers these paths, and 404 to the rest; ends with the last connection it is
/// told to expect.
fn process(answers: &'static [(&'static str, &'static str)], requests: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for _ in 0..requests {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let headers: Vec<String> =
                lines.map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
            let path = first.split(' ').nth(1).unwrap();
            let found = answers.iter().find(|(p, _)| *p == path).map(|(_, answer)| *answer);
            let answer = match found {
                Some("echo token") => {
                    let token = headers
                        .iter()
                        .find(|h| h.to_lowercase().starts_with("authorization"))
                        .cloned();
                    let body = token.unwrap_or_default();
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    )
                }
                Some(raw) if raw.starts_with("HTTP/") => raw.to_owned(),
                Some(body) => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                ),
                None => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    .to_owned(),
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    address
}

fn quick() -> LiveOptions {
    LiveOptions { pause: Duration::ZERO, ..LiveOptions::default() }
}

fn names(answers: &Answers, address: &str) -> Vec<String> {
    answers.pieces.iter().map(|(name, _)| name.replace(address, "")).collect()
}

#[test]
fn dumps_and_metrics_are_taken_twice_and_the_rest_once() {
    let address = process(
        &[
            ("/debug/pprof/goroutine?debug=2", "goroutine 1 [running]:\n"),
            ("/metrics", "up 1\n"),
            ("/debug/inflight?format=json", "{}"),
        ],
        9,
    );
    let answers = ask(&format!("{address}/debug/pprof/"), &quick(), &mut |_| {});
    assert_eq!(
        names(&answers, &address),
        [
            "/metrics",
            "/debug/pprof/goroutine?debug=2",
            "/debug/inflight?format=json",
            "/debug/pprof/goroutine?debug=2 (after 0 s)",
            "/metrics (after 0 s)"
        ]
    );
    assert!(answers.refused.is_empty(), "{:?}", answers.refused);
}

#[test]
fn a_redirect_is_not_followed() {
    let address = process(
        &[(
            "/metrics",
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/steal\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )],
        8,
    );
    let answers = ask(&address, &quick(), &mut |_| {});
    assert!(answers.pieces.is_empty());
    assert!(answers.refused[0].1.contains("redirects"), "{:?}", answers.refused);
}

#[test]
fn nobody_there_is_one_refusal() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let answers = ask(&address, &quick(), &mut |_| {});
    assert!(answers.pieces.is_empty());
    assert_eq!(answers.refused.len(), 1, "{:?}", answers.refused);
    let nothing = process(&[], 8);
    let answers = ask(&nothing, &quick(), &mut |_| {});
    assert!(answers.refused[0].1.contains("net/http/pprof"));
}

#[test]
fn the_token_comes_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let address = process(&[("/metrics", "echo token")], 9);
    let options = LiveOptions { token_file: Some(file.path().to_owned()), ..quick() };
    let answers = ask(&address, &options, &mut |_| {});
    assert!(String::from_utf8_lossy(&answers.pieces[0].1).ends_with("Bearer s3cret"));
    let options = LiveOptions { token_file: Some("/does/not/exist".into()), ..quick() };
    assert!(
        ask("http://127.0.0.1:1", &options, &mut |_| {}).refused[0].1.contains("/does/not/exist")
    );
}

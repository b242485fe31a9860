use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &[&str]) -> Args {
    Line::parse_from(std::iter::once(&"doctor").chain(line)).args
}

#[test]
fn a_live_process_is_shown_the_token_of_the_file() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        head.join("\n").to_lowercase()
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let with_token = args(&[&address, "--token-file", file.path().to_str().unwrap()]);
    let answer = Process { args: &with_token }.get(&format!("{address}/metrics"));
    assert_eq!(answer, Ok((200, b"ok".to_vec())));
    let asked = served.join().unwrap();
    assert!(asked.starts_with("get /metrics http/1.1\n"), "{asked}");
    assert!(asked.lines().any(|line| line == "authorization: bearer s3cret"), "{asked}");
    let missing = args(&[&address, "--token-file", "/does/not/exist"]);
    let answer = Process { args: &missing }.get(&address).unwrap_err();
    assert!(answer.contains("/does/not/exist"), "{answer}");
}

//! A stand-in for the edge: canned answers of its contract on a real socket, so that the command
//! line can be tested for what it does with each of them, faults included.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;
use tokio_tungstenite::tungstenite::WebSocket;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

pub(crate) const TOKEN: &str = "fl_stand-in";

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub(crate) type Conversation = fn(WebSocket<Box<dyn Stream>>);

pub(crate) enum Reply {
    Json(u16, Value),
    Text(u16, String),
    Events(Vec<(&'static str, Value)>),
    Socket(Conversation),
    /// Takes the request and never answers.
    Silence,
}

pub(crate) fn ok(value: Value) -> Reply {
    Reply::Json(200, value)
}

pub(crate) fn problem(status: u16, code: &str, detail: &str) -> Reply {
    let body = serde_json::json!({
        "type": format!("urn:fairlead:problem:{code}"), "code": code, "title": code,
        "status": status, "detail": detail, "requestId": "r1",
    });
    Reply::Json(status, body)
}

/// Serves until the process ends.
pub(crate) struct StandIn {
    pub(crate) url: String,
    pub(crate) token_file: PathBuf,
    /// Some when it speaks TLS.
    pub(crate) ca_file: Option<PathBuf>,
    requests: Arc<Mutex<Vec<Request>>>,
    _dir: tempfile::TempDir,
}

impl StandIn {
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(answer, false)
    }

    pub(crate) fn start_tls(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(answer, true)
    }

    fn start_with(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static, tls: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token_file = dir.path().join("token");
        std::fs::write(&token_file, format!("{TOKEN}\n")).unwrap();
        let certified = tls.then(|| {
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
                .unwrap()
        });
        let ca_file = certified.as_ref().map(|certified| {
            let file = dir.path().join("ca.pem");
            std::fs::write(&file, certified.cert.pem()).unwrap();
            file
        });
        let config = certified.map(|certified| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let key =
                rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certified.cert.der().clone()], key.into())
                .unwrap();
            Arc::new(config)
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), requests.clone());
        thread::spawn(move || {
            for tcp in listener.incoming() {
                let (answer, log, tcp) = (answer.clone(), log.clone(), tcp.unwrap());
                let stream: Box<dyn Stream> = match &config {
                    Some(config) => {
                        let connection = ServerConnection::new(config.clone()).unwrap();
                        Box::new(StreamOwned::new(connection, tcp))
                    }
                    None => Box::new(tcp),
                };
                thread::spawn(move || serve(stream, &*answer, &log));
            }
        });
        Self { url, token_file, ca_file, requests, _dir: dir }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.requests().into_iter().map(|r| format!("{} {}", r.method, r.path)).collect()
    }

    /// The binary, pointed at this server and at nothing of the machine's own.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .env("FAIRLEAD_SERVER", &self.url)
            .env("FAIRLEAD_TOKEN_FILE", &self.token_file)
            .args(line);
        if let Some(file) = &self.ca_file {
            command.env("FAIRLEAD_CA_FILE", file);
        }
        command
    }

    /// Runs it: exit code, stdout, stderr.
    pub(crate) fn run(&self, line: &str) -> (i32, String, String) {
        let words: Vec<&str> = line.split_whitespace().collect();
        said(&self.command(&words).output().unwrap())
    }
}

pub(crate) fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn serve(stream: Box<dyn Stream>, answer: &dyn Fn(&Request) -> Reply, log: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream);
    let Some(request) = read(&mut reader) else { return };
    assert_eq!(request.headers["authorization"], format!("Bearer {TOKEN}"));
    log.lock().unwrap().push(request.clone());
    let mut stream = reader.into_inner();
    match answer(&request) {
        Reply::Json(status, value) => {
            let kind = if status < 400 { "application/json" } else { "application/problem+json" };
            whole(&mut stream, status, kind, &value.to_string());
        }
        Reply::Text(status, text) => whole(&mut stream, status, "text/plain", &text),
        Reply::Events(events) => {
            let text: String = events
                .iter()
                .map(|(name, data)| format!("event: {name}\ndata: {data}\n\n"))
                .collect();
            whole(&mut stream, 200, "text/event-stream", &format!(": begin\n\n{text}"));
        }
        Reply::Socket(converse) => {
            let key = derive_accept_key(request.headers["sec-websocket-key"].as_bytes());
            let head = format!(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {key}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.flush().unwrap();
            converse(WebSocket::from_raw_socket(stream, Role::Server, None));
        }
        Reply::Silence => loop {
            thread::park();
        },
    }
}

fn read(reader: &mut BufReader<Box<dyn Stream>>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body: String::from_utf8(body).unwrap() })
}

fn whole(stream: &mut Box<dyn Stream>, status: u16, kind: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The client may have heard enough.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).and_then(|()| stream.flush());
}

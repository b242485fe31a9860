//! An HTTP server for notifications: it takes them, checks their signatures, refuses or hangs.

#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use prost::Message;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// Takes what is signed with this key of Standard Webhooks within five minutes of now, and answers 401 else.
    Verify(&'static str),
    /// Takes logs of OpenTelemetry that come with this header `authorization`, as the types read them that
    /// OpenTelemetry generates; each record is taken as its most telling fields.
    Collect(&'static str),
    Status(u16),
    Hang,
}

#[derive(Clone, Debug)]
pub(crate) struct HttpServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    asked: Arc<watch::Sender<usize>>,
}

#[derive(Debug)]
struct State {
    behaviour: Behaviour,
    taken: Vec<Value>,
}

impl HttpServer {
    pub(crate) async fn start(certificate: Option<(&str, &str)>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { behaviour, taken: Vec::new() };
        let asked = Arc::new(watch::Sender::new(0));
        let server = Self { address, state: Arc::new(Mutex::new(state)), asked };
        let tls = certificate.map(|(cert, key)| {
            let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .unwrap();
            TlsAcceptor::from(Arc::new(config))
        });
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let Ok((tcp, _)) = listener.accept().await else { return };
                let (server, tls) = (accepting.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => server.answer(tcp).await,
                        Some(tls) => match tls.accept(tcp).await {
                            Ok(stream) => server.answer(stream).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) async fn behave(&self, behaviour: Behaviour) {
        self.state.lock().await.behaviour = behaviour;
    }

    /// Waits until it was asked so many times.
    pub(crate) async fn asked(&self, count: usize) {
        let mut asked = self.asked.subscribe();
        let waited =
            tokio::time::timeout(Duration::from_secs(60), asked.wait_for(|it| *it >= count));
        assert!(waited.await.is_ok(), "asked {} times, not {count}", *self.asked.borrow());
    }

    pub(crate) async fn taken(&self) -> Vec<Value> {
        self.state.lock().await.taken.clone()
    }

    async fn answer(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<()> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        let head = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            let got = stream.read(&mut piece).await.ok().filter(|got| *got > 0)?;
            bytes.extend_from_slice(&piece[..got]);
        };
        let text = String::from_utf8(bytes[..head].to_vec()).ok()?;
        let header = |name: &str| {
            let found = text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            });
            found.unwrap_or_default()
        };
        let length: usize = header("content-length").parse().ok()?;
        while bytes.len() < head + 4 + length {
            let got = stream.read(&mut piece).await.ok().filter(|got| *got > 0)?;
            bytes.extend_from_slice(&piece[..got]);
        }
        let body = &bytes[head + 4..];
        let behaviour = self.state.lock().await.behaviour;
        self.asked.send_modify(|asked| *asked += 1);
        let status = match behaviour {
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Status(status) => status,
            Behaviour::Collect(authorization) if header("authorization") != authorization => 401,
            Behaviour::Collect(_) => match records(&text, &header("content-type"), body) {
                Some(_) => 200,
                None => 400,
            },
            Behaviour::Verify(key) => {
                let key = STANDARD.decode(key.trim_start_matches("whsec_")).ok()?;
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
                let (id, at) = (header("webhook-id"), header("webhook-timestamp"));
                let mut signed = format!("{id}.{at}.").into_bytes();
                signed.extend_from_slice(body);
                let signature = header("webhook-signature");
                let signature = STANDARD.decode(signature.strip_prefix("v1,").unwrap_or_default());
                let good = signature.is_ok_and(|s| ring::hmac::verify(&key, &signed, &s).is_ok());
                let age = jiff::Timestamp::now().as_second() - at.parse::<i64>().unwrap_or(0);
                if good && age.abs() < 300 { 204 } else { 401 }
            }
        };
        if (200..300).contains(&status) {
            let taken = match behaviour {
                Behaviour::Collect(_) => records(&text, &header("content-type"), body)?,
                _ => vec![serde_json::from_slice(body).ok()?],
            };
            self.state.lock().await.taken.extend(taken);
        }
        let answer =
            format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()
    }
}

/// The log records of a request, as OpenTelemetry reads them; none if it does not.
fn records(head: &str, kind: &str, body: &[u8]) -> Option<Vec<Value>> {
    let request = match kind {
        "application/x-protobuf" => ExportLogsServiceRequest::decode(body).ok()?,
        "application/json" => serde_json::from_slice(body).ok()?,
        _ => return None,
    };
    let path = head.split(' ').nth(1)?.to_owned();
    let text = |value: Option<AnyValue>| match value?.value? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    };
    let scopes = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs);
    let records = scopes.flat_map(|scope| scope.log_records).map(|record| {
        let attribute = |name: &str| {
            let found = record.attributes.iter().find(|it| it.key == name);
            found.and_then(|it| text(it.value.clone()))
        };
        json!({
            "path": path, "event": record.event_name, "severity": record.severity_number,
            "id": attribute("log.record.uid"), "workload": attribute("fairlead.workload"),
            "body": text(record.body.clone()),
        })
    });
    Some(records.collect())
}

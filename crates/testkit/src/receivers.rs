//! Servers that take notifications, the real ones: rsyslog, Alertmanager, and a mail server (aiosmtpd).

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::leash::Leash;
use crate::port;

const PATIENCE: Duration = Duration::from_secs(60);

/// A certificate and its key, in files.
#[derive(Clone, Copy, Debug)]
pub struct ServerCertificate<'a> {
    pub cert: &'a Path,
    pub key: &'a Path,
}

#[derive(Debug)]
struct Server {
    _process: Leash,
    dir: tempfile::TempDir,
}

impl Server {
    /// Runs a program until it listens on `port`.
    fn run(dir: tempfile::TempDir, command: &Command, port: u16) -> Self {
        let log = File::create(dir.path().join("log")).expect("a log");
        let mut process = Leash::run(command, log).expect("a shell");
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = process.ended().expect("a child");
            let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < until, "it does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { _process: process, dir }
    }
}

fn free_port() -> u16 {
    port::pick().local_addr().expect("a bound socket has an address").port()
}

/// rsyslog, listening on UDP, TCP and, with a certificate, TLS.
#[derive(Debug)]
pub struct SyslogServer {
    server: Server,
    pub udp: u16,
    pub tcp: u16,
    pub tls: Option<u16>,
}

impl SyslogServer {
    pub fn start(certificate: Option<ServerCertificate<'_>>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (udp, tcp, tls) = (free_port(), free_port(), certificate.map(|_| free_port()));
        let mut config = format!(
            "global(workDirectory=\"{0}\" maxMessageSize=\"64k\")\n\
             module(load=\"imudp\")\nmodule(load=\"imtcp\")\n\
             template(name=\"all\" type=\"string\" string=\"%jsonmesg%\\n\")\n\
             ruleset(name=\"all\") {{\n  action(type=\"omfile\" file=\"{0}/messages\" template=\"all\" \
             asyncWriting=\"off\" flushOnTXEnd=\"on\")\n}}\n\
             input(type=\"imudp\" address=\"127.0.0.1\" port=\"{udp}\" ruleset=\"all\")\n\
             input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{tcp}\" ruleset=\"all\")\n",
            dir.path().display()
        );
        if let (Some(ServerCertificate { cert, key }), Some(port)) = (certificate, tls) {
            let (cert, key) = (cert.display(), key.display());
            config.push_str(&format!(
                "input(type=\"imtcp\" address=\"127.0.0.1\" port=\"{port}\" ruleset=\"all\" \
                 streamDriver.name=\"ossl\" streamDriver.mode=\"1\" streamDriver.authMode=\"anon\" \
                 streamDriver.certFile=\"{cert}\" streamDriver.keyFile=\"{key}\" \
                 streamDriver.caFile=\"{cert}\")\n"
            ));
        }
        let file = dir.path().join("rsyslog.conf");
        std::fs::write(&file, config).expect("a configuration");
        let mut command = Command::new("rsyslogd");
        command.arg("-n").arg("-f").arg(&file).arg("-i").arg(dir.path().join("pid"));
        Self { server: Server::run(dir, &command, tcp), udp, tcp, tls }
    }

    /// Waits until it has written so many messages, and gives them as rsyslog understood them.
    pub fn messages(&self, count: usize) -> Vec<Value> {
        lines(&self.server.dir.path().join("messages"), count)
    }
}

/// An Alertmanager.
#[derive(Debug)]
pub struct AlertServer {
    _server: Server,
    pub port: u16,
}

impl AlertServer {
    pub fn start() -> Self {
        let (dir, port) = (tempfile::tempdir().expect("a directory"), free_port());
        let file = dir.path().join("alertmanager.yml");
        std::fs::write(&file, "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
            .expect("a configuration");
        let mut command = Command::new("prometheus-alertmanager");
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=");
        Self { _server: Server::run(dir, &command, port), port }
    }

    /// Every alert that it has, those that are resolved as well.
    pub fn alerts(&self) -> Vec<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let request = "GET /api/v2/alerts HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("a request");
        let answer = std::io::read_to_string(stream).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("a list of alerts")
    }
}

/// How a [`MailServer`] is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailServerTls {
    None,
    Starttls,
    Implicit,
}

/// A mail server that takes mail of one user.
#[derive(Debug)]
pub struct MailServer {
    server: Server,
    pub port: u16,
}

/// Writes each mail, with its envelope, as a line of JSON.
const MAIL_SERVER: &str = r#"
import asyncio, json, ssl, sys
from email import message_from_bytes, policy
from aiosmtpd.smtp import SMTP, AuthResult
port, tls, mechanism, cert, key, out = sys.argv[1:]
context = None
if tls != "none":
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
class Handler:
    async def handle_DATA(self, server, session, envelope):
        mail = message_from_bytes(envelope.original_content, policy=policy.default)
        if "refuse me" in mail["subject"]:
            return "554 not this one"
        said = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "subject": mail["subject"],
                "headers": dict(mail.items()), "body": mail.get_content(), "tls": server.transport.get_extra_info("sslcontext") is not None,
                "user": session.auth_data.decode() if session.auth_data else None}
        with open(out, "a") as file:
            file.write(json.dumps(said) + "\n")
        return "250 OK"
def authenticate(server, session, envelope, mechanism, data):
    good = data.login == b"fairlead" and data.password == "the mail password: ünïcode".encode()
    return AuthResult(success=good, handled=False, auth_data=data.login if good else None)
async def main():
    loop = asyncio.get_running_loop()
    exclude = ["LOGIN"] if mechanism == "PLAIN" else ["PLAIN"]
    make = lambda: SMTP(Handler(), tls_context=context if tls == "starttls" else None,
        require_starttls=tls == "starttls", authenticator=authenticate, auth_exclude_mechanism=exclude,
        auth_required=tls != "none", auth_require_tls=tls == "starttls", enable_SMTPUTF8=True)
    server = await loop.create_server(make, "127.0.0.1", int(port), ssl=context if tls == "implicit" else None)
    await server.serve_forever()
asyncio.run(main())
"#;

impl MailServer {
    pub const USER: &'static str = "fairlead";
    pub const PASSWORD: &'static str = "the mail password: ünïcode";

    /// `mechanism` is the one it offers: PLAIN or LOGIN.
    pub fn start(tls: MailServerTls, mechanism: &str, certificate: ServerCertificate<'_>) -> Self {
        let (dir, port) = (tempfile::tempdir().expect("a directory"), free_port());
        let tls = match tls {
            MailServerTls::None => "none",
            MailServerTls::Starttls => "starttls",
            MailServerTls::Implicit => "implicit",
        };
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", MAIL_SERVER, &port.to_string(), tls, mechanism]);
        command.arg(certificate.cert).arg(certificate.key).arg(dir.path().join("mails"));
        Self { server: Server::run(dir, &command, port), port }
    }

    /// Waits until it has taken so many mails, and gives them.
    pub fn mails(&self, count: usize) -> Vec<Value> {
        lines(&self.server.dir.path().join("mails"), count)
    }
}

fn lines(file: &PathBuf, count: usize) -> Vec<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let found = whole.lines().filter(|line| !line.is_empty()).count();
        if found >= count {
            let parse =
                |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            return whole.lines().filter(|line| !line.is_empty()).map(parse).collect();
        }
        assert!(Instant::now() < until, "{found} of {count} in {}: {text}", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! Mail submission (RFC 6409): STARTTLS or TLS from the beginning, AUTH PLAIN or LOGIN.
//!
//! Contract: without TLS no password is sent. What a server sent before TLS was begun is not believed after it.

use std::sync::Arc;

use objects::kinds::MailSecurity;
use rustls::ClientConfig;
use stallproof::Deadline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::DeliveryError;
use super::stream::{Connection, connect, secure, unavailable};
use crate::event::Event;
use crate::message::mail::mail;
use crate::target::{MailTarget, base64};

/// The most bytes of one reply: lines are of 512 at most, and extensions some dozens.
const LONGEST_REPLY: usize = 16 << 10;

struct Session {
    stream: Box<dyn Connection>,
    buffer: Vec<u8>,
    host: String,
}

struct Reply {
    code: u16,
    text: String,
}

pub(super) async fn send(
    target: &MailTarget,
    event: &Event,
    tls: &Arc<ClientConfig>,
    deadline: Deadline,
) -> Result<(), DeliveryError> {
    let host = target.host.as_str();
    let tcp = connect(host, target.port, deadline).await?;
    let stream: Box<dyn Connection> = match target.security {
        MailSecurity::Tls => Box::new(secure(host, tcp, tls).await?),
        MailSecurity::Starttls | MailSecurity::None => Box::new(tcp),
    };
    let session = Session { stream, buffer: Vec::new(), host: host.to_owned() };
    submit(session, target, event, tls).await
}

/// Submits the mail over a connection on which nothing was said yet.
async fn submit(
    mut session: Session,
    target: &MailTarget,
    event: &Event,
    tls: &Arc<ClientConfig>,
) -> Result<(), DeliveryError> {
    let host = target.host.as_str();
    session.expect("the greeting", 220).await?;
    let mut extensions = session.hello().await?;
    if target.security == MailSecurity::Starttls {
        if !extensions.lines().any(|line| line.eq_ignore_ascii_case("STARTTLS")) {
            return Err(unavailable(format!("{host} offers no STARTTLS")));
        }
        session.command("STARTTLS", 220).await?;
        if !session.buffer.is_empty() {
            return Err(unavailable(format!("{host} says more than its answer to STARTTLS")));
        }
        let Session { stream, host, .. } = session;
        let stream = Box::new(secure(&host, stream, tls).await?);
        session = Session { stream, buffer: Vec::new(), host };
        extensions = session.hello().await?;
    }
    if let Some((user, password)) = &target.login {
        session.log_in(&extensions, user, &password.0).await?;
    }
    session.command(&format!("MAIL FROM:<{}>", target.from), 250).await?;
    for to in &target.to {
        session.command(&format!("RCPT TO:<{to}>"), 250).await?;
    }
    session.command("DATA", 354).await?;
    let mut text = mail(event, &target.from, &target.to);
    text.push_str(".\r\n");
    session.write(&text).await?;
    session.expect("the mail", 250).await?;
    // It was taken; how the session ends does not matter.
    let _ = session.write("QUIT\r\n").await;
    Ok(())
}

impl Session {
    async fn hello(&mut self) -> Result<String, DeliveryError> {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let name: String = name.chars().filter(|c| allowed(*c)).collect();
        let name = if name.is_empty() { "localhost".to_owned() } else { name };
        self.write(&format!("EHLO {name}\r\n")).await?;
        self.expect("EHLO", 250).await.map(|reply| reply.text)
    }

    async fn log_in(
        &mut self,
        extensions: &str,
        user: &str,
        password: &str,
    ) -> Result<(), DeliveryError> {
        let offered = extensions.lines().find_map(|line| {
            let (word, rest) = line.split_once([' ', '='])?;
            word.eq_ignore_ascii_case("AUTH").then(|| rest.to_ascii_uppercase())
        });
        let offered = offered.unwrap_or_default();
        let offers = |word: &str| offered.split_whitespace().any(|offer| offer == word);
        if offers("PLAIN") {
            let initial = base64(format!("\0{user}\0{password}"));
            self.write(&format!("AUTH PLAIN {initial}\r\n")).await?;
        } else if offers("LOGIN") {
            self.write("AUTH LOGIN\r\n").await?;
            for word in [user, password] {
                self.expect("AUTH LOGIN", 334).await?;
                self.write(&format!("{}\r\n", base64(word))).await?;
            }
        } else {
            let why = format!("{} offers neither AUTH PLAIN nor AUTH LOGIN", self.host);
            return Err(unavailable(why));
        }
        // A server that does not know the password may take mail tomorrow, but from nobody of ours today.
        let reply = self.reply().await?;
        if reply.code == 235 {
            return Ok(());
        }
        Err(unavailable(format!("{} does not accept the login: {}", self.host, reply.code)))
    }

    async fn command(&mut self, command: &str, code: u16) -> Result<(), DeliveryError> {
        self.write(&format!("{command}\r\n")).await?;
        self.expect(command, code).await.map(|_| ())
    }

    async fn write(&mut self, text: &str) -> Result<(), DeliveryError> {
        let written = async {
            self.stream.write_all(text.as_bytes()).await?;
            self.stream.flush().await
        };
        written.await.map_err(|error| unavailable(format!("{}: {error}", self.host)))
    }

    async fn expect(&mut self, to: &str, code: u16) -> Result<Reply, DeliveryError> {
        let reply = self.reply().await?;
        // RCPT may be answered 251: it will be forwarded.
        if reply.code == code || (code == 250 && reply.code == 251) {
            return Ok(reply);
        }
        let text: String = reply.text.chars().filter(|c| !c.is_control()).take(200).collect();
        let why = format!("{} answered {} {text} to {to}", self.host, reply.code);
        // Of a mail that it has read, a permanent refusal is about that mail.
        if to == "the mail" && (500..600).contains(&reply.code) {
            return Err(DeliveryError::Refused(why));
        }
        Err(unavailable(why))
    }

    async fn reply(&mut self) -> Result<Reply, DeliveryError> {
        let mut text = String::new();
        let mut read = 0;
        loop {
            let line = self.line(&mut read).await?;
            let wrong = || unavailable(format!("{} does not speak SMTP", self.host));
            let code = line.get(..3).and_then(|code| code.parse().ok()).ok_or_else(wrong)?;
            text.push_str(line.get(4..).unwrap_or_default());
            text.push('\n');
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(Reply { code, text });
            }
        }
    }

    async fn line(&mut self, read: &mut usize) -> Result<String, DeliveryError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                *read += line.len();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if *read + self.buffer.len() > LONGEST_REPLY {
                return Err(unavailable(format!("{} answers without end", self.host)));
            }
            let mut piece = [0; 1024];
            let got = self.stream.read(&mut piece).await;
            match got.map_err(|error| unavailable(format!("{}: {error}", self.host)))? {
                0 => return Err(unavailable(format!("{} closed the connection", self.host))),
                got => self.buffer.extend_from_slice(&piece[..got]),
            }
        }
    }
}

#[cfg(feature = "fuzzing")]
pub(super) mod fuzz;

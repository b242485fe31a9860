//! `IdentityProvider`: a real OpenID provider on loopback (panva's oidc-provider under Node.js), and the
//! browser that a user of it has.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::leash::Leash;
use crate::{need, port};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running provider with one client.
#[derive(Debug)]
pub struct IdentityProvider {
    process: Option<Leash>,
    address: SocketAddr,
    redirect_uri: String,
    log: tempfile::TempDir,
}

/// An answer to a browser.
#[derive(Debug)]
struct Page {
    status: u16,
    location: Option<String>,
    text: String,
}

impl IdentityProvider {
    pub const CLIENT: &'static str = "fairlead";
    pub const SECRET: &'static str = "the client's secret: 100% & more";

    /// Starts a provider that sends browsers back to `redirect_uri`.
    pub fn start(redirect_uri: &str) -> Self {
        loop {
            let log = tempfile::tempdir().unwrap_or_else(|error| panic!("no directory: {error}"));
            let address = port::pick().local_addr().expect("a bound socket has an address");
            let redirect_uri = redirect_uri.to_owned();
            let mut provider = Self { process: None, address, redirect_uri, log };
            // Between our picking the port and its using it, another may take it.
            if provider.launch() {
                return provider;
            }
        }
    }

    /// Starts it again, after [`Self::stop`]; it has forgotten everything but its address.
    pub fn restart(&mut self) {
        assert!(self.launch(), "the provider does not start: {}", self.output());
    }

    /// Kills it.
    pub fn stop(&mut self) {
        self.process = None;
    }

    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Says from now on that the user is in these groups.
    pub fn set_groups(&self, user: &str, groups: &[&str]) {
        self.switch(&format!("/test/groups?user={user}&groups={}", groups.join(",")));
    }

    /// Signs with another key, and publishes the one before no more.
    pub fn rotate_keys(&self) {
        self.switch("/test/rotate");
    }

    /// Knows the user no more.
    pub fn forget(&self, user: &str) {
        self.switch(&format!("/test/forget?user={user}"));
    }

    /// Logs a user in: from the address that a browser is sent to, to the one that it is sent back to.
    pub fn log_in(&self, location: &str, user: &str) -> String {
        let mut browser = Browser::default();
        let away = browser.get(location);
        let interaction = away.location.unwrap_or_else(|| panic!("no login: {}", away.text));
        let done = browser.get(&self.absolute(&format!("{interaction}?user={user}")));
        let resume = done.location.unwrap_or_else(|| panic!("no login: {}", done.text));
        let back = browser.get(&self.absolute(&resume));
        back.location.unwrap_or_else(|| panic!("not sent back: {}", back.text))
    }

    /// Enters the code of a command line, as a user.
    pub fn enter_code(&self, verification_uri_complete: &str, user: &str) {
        let mut browser = Browser::default();
        let form = browser.get(verification_uri_complete);
        let value = |name: &str| {
            let (_, rest) = form.text.split_once(&format!("name=\"{name}\" value=\""))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        let (xsrf, code) = value("xsrf").zip(value("user_code")).expect("a form with the code");
        let device = self.absolute("/device");
        let body = format!("xsrf={xsrf}&user_code={code}&confirm=yes");
        let sent = browser.send("POST", &device, &body);
        let interaction = sent.location.unwrap_or_else(|| panic!("no login: {}", sent.text));
        let done = browser.get(&self.absolute(&format!("{interaction}?user={user}")));
        let resume = done.location.unwrap_or_else(|| panic!("no login: {}", done.text));
        let end = browser.get(&self.absolute(&resume));
        assert_eq!(end.status, 200, "{}", end.text);
    }

    fn launch(&mut self) -> bool {
        let modules = need::identity_provider_modules();
        let modules = modules.unwrap_or_else(|why| panic!("{why}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc-provider/provider.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(self.address.port().to_string());
        command.args([Self::CLIENT, Self::SECRET, &self.redirect_uri]);
        command.env("FAIRLEAD_OIDC_PROVIDER", modules).env("NODE_ENV", "test");
        let log = File::create(self.log.path().join("log"))
            .unwrap_or_else(|error| panic!("no log of the provider: {error}"));
        let mut process =
            Leash::run(&command, log).unwrap_or_else(|error| panic!("no provider: {error}"));
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if process.ended().is_ok_and(|ended| ended.is_some()) {
                return false;
            }
            assert!(Instant::now() < until, "the provider does not listen: {}", self.output());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
        true
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.log.path().join("log")).unwrap_or_default()
    }

    fn switch(&self, path: &str) {
        let page = Browser::default().get(&self.absolute(path));
        assert_eq!(page.status, 200, "{path}: {}", page.text);
    }

    fn absolute(&self, location: &str) -> String {
        if location.starts_with('/') {
            format!("{}{location}", self.issuer())
        } else {
            location.to_owned()
        }
    }
}

/// A browser that follows nothing by itself and keeps every cookie.
#[derive(Debug, Default)]
struct Browser {
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn get(&mut self, url: &str) -> Page {
        self.send("GET", url, "")
    }

    fn send(&mut self, method: &str, url: &str, body: &str) -> Page {
        let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url} is not http"));
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let cookies: Vec<_> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {host}\r\ncookie: {}\r\ncontent-length: {}\r\n\
             content-type: application/x-www-form-urlencoded\r\n\r\n{body}",
            cookies.join("; "),
            body.len()
        );
        let mut stream = TcpStream::connect(host).unwrap_or_else(|error| panic!("{url}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).unwrap_or_else(|error| panic!("{error}"));
        stream.write_all(request.as_bytes()).unwrap_or_else(|error| panic!("{url}: {error}"));
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap_or_else(|error| panic!("{url}: {error}"));
        self.read(&text)
    }

    fn read(&mut self, text: &str) -> Page {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let mut location = None;
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            match name.to_ascii_lowercase().as_str() {
                "location" => location = Some(value.to_owned()),
                "set-cookie" => {
                    let pair = value.split(';').next().and_then(|pair| pair.split_once('='));
                    if let Some((name, value)) = pair {
                        self.cookies.insert(name.to_owned(), value.to_owned());
                    }
                }
                _ => {}
            }
        }
        Page { status: status.unwrap_or_default(), location, text: body.to_owned() }
    }
}

//! A real `fairlead up` as a process of its own, whose memory is its own, and in which one writer can be
//! held: it obeys what it reads on stdin, and ends when that ends.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::incident::Cannot;

const HOLD: &str = "hold";
const RELEASE: &str = "release";
/// Which shard of the conversations hangs.
const SHARD: usize = 0;

/// The child's side: begins to obey. A line that it does not know is none for it.
pub fn obey() {
    std::thread::spawn(|| {
        let mut held = None;
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match line.as_str() {
                HOLD => held = Some(traffic::faults::hold_shard(SHARD)),
                RELEASE => held = None,
                _ => {}
            }
        }
        drop(held);
        // Whoever started this is gone, and wants nothing kept.
        std::process::exit(0);
    });
}

/// Our side. The child is ended when this is dropped.
pub(crate) struct Server {
    child: Child,
    orders: ChildStdin,
    pub(crate) api: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) webhook: SocketAddr,
    pub(crate) agents: SocketAddr,
    pub(crate) token: String,
}

impl Server {
    pub(crate) fn start(program: &Path, data: &Path) -> Result<Self, Cannot> {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command.env("FAIRLEAD_CONFIG", "/dev/null").args(["replay", "server"]);
        for listen in ["--admin-listen", "--api-listen", "--admission-listen", "--agents-listen"] {
            command.args([listen, "127.0.0.1:0"]);
        }
        command
            .args(["--admission-webhook", "on", "--fleet-kubeconfig", "none", "--data"])
            .arg(data);
        let log = std::fs::File::create(data.with_extension("log"))?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let (orders, stdout) = (child.stdin.take(), child.stdout.take());
        let (orders, stdout) = orders.zip(stdout).ok_or("a child without pipes")?;
        let mut told = std::collections::HashMap::new();
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        for line in lines.by_ref() {
            let Some((name, place)) = line.trim().split_once(' ') else { continue };
            told.insert(name.to_owned(), place.trim().to_owned());
            if name == "data" {
                break;
            }
        }
        // What it says after that is nobody's, and must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let of = |name: &str| -> Result<SocketAddr, Cannot> {
            let place =
                told.get(name).ok_or_else(|| format!("the server does not say where {name} is"))?;
            let place = place.split("://").last().unwrap_or_default();
            let place = place.split(['/', ' ']).next().unwrap_or_default();
            Ok(place.parse()?)
        };
        let token = std::fs::read_to_string(told.get("token").ok_or("the server names no token")?)?;
        let (api, admin, webhook, agents) = (of("api")?, of("admin")?, of("hook")?, of("agents")?);
        Ok(Self { child, orders, api, admin, webhook, agents, token: token.trim().to_owned() })
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// From now on one writer hangs.
    pub(crate) fn hold(&mut self) -> Result<(), Cannot> {
        Ok(writeln!(self.orders, "{HOLD}")?)
    }

    pub(crate) fn release(&mut self) -> Result<(), Cannot> {
        Ok(writeln!(self.orders, "{RELEASE}")?)
    }

    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let until = Instant::now() + Duration::from_secs(10);
        while self.runs() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

//! A real `fairlead up` to test against.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "../http/mod.rs"]
pub(crate) mod http;

pub(crate) use http::Answer;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a run of the command line came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Run {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

/// A running `fairlead up`, killed when dropped.
pub(crate) struct Up {
    child: Child,
    pub(crate) api: String,
    pub(crate) admin: String,
    /// Where agents are listened to.
    pub(crate) agents: String,
    pub(crate) token: String,
    pub(crate) token_file: PathBuf,
}

impl Up {
    pub(crate) fn start(data: &Path, kubeconfig: &str) -> Self {
        Self::start_with(data, kubeconfig, |command| command)
    }

    pub(crate) fn start_with(
        data: &Path,
        kubeconfig: &str,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .args(["up", "--admin-listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"])
            // Not flags: a test may set them otherwise.
            .env("FAIRLEAD_AGENTS_LISTEN", "127.0.0.1:0")
            .env("FAIRLEAD_GUARD_OBSERVE", "off")
            .args(["--fleet-kubeconfig", kubeconfig, "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = set(&mut command).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let [mut api, mut admin, mut file, mut agents] = [const { String::new() }; 4];
        for line in lines.map_while(Result::ok) {
            let Some((name, place)) = line.trim().split_once(' ') else { continue };
            match name {
                "api" => place.trim().trim_end_matches('/').clone_into(&mut api),
                "admin" => place.trim().trim_end_matches('/').clone_into(&mut admin),
                "agents" => place.split_whitespace().next().unwrap().clone_into(&mut agents),
                // No link where stdout is no terminal.
                "login" => assert!(place.contains("fairlead login-link"), "{place}"),
                "token" => place.trim().clone_into(&mut file),
                "data" => break,
                _ => {}
            }
        }
        let token_file = PathBuf::from(file);
        let token = std::fs::read_to_string(&token_file).unwrap().trim().to_owned();
        Self { child, api, admin, agents, token, token_file }
    }

    pub(crate) fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        http::send(method, url, headers, &text, PATIENCE)
    }

    pub(crate) fn ask_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let url = format!("{}/api/v1{path}", self.api);
        self.send(method, &url, &[("authorization", &bearer)], body)
    }

    /// As the machine's owner.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.ask_as(&self.token, method, path, body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    /// A link that logs in once, as the machine's owner.
    pub(crate) fn login_link(&self) -> String {
        let made = self.ask("POST", "/login-links", &Value::Null);
        assert_eq!(made.status, 201, "{}", made.text);
        format!("{}{}", self.api, made.json()["path"].as_str().unwrap())
    }

    /// Asks until the answer is as `wanted`.
    pub(crate) fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if answer.status == 200 && wanted(&answer.json()) {
                return answer.json();
            }
            assert!(Instant::now() < until, "{path}: {}", answer.text);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn wait_until_ready_says(&self, wanted: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.send("GET", &format!("{}/readyz", self.admin), &[], &Value::Null);
            if answer.text.contains(wanted) {
                return;
            }
            assert!(Instant::now() < until, "{}", answer.text);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// One run of the command line against it.
    pub(crate) fn fairlead(&self, args: &[&str]) -> Run {
        self.fairlead_with(args, "")
    }

    pub(crate) fn fairlead_with(&self, args: &[&str], input: &str) -> Run {
        use std::io::Write;
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairlead"))
            .args(args)
            .args(["--server", &self.api, "--token-file"])
            .arg(&self.token_file)
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let began = Instant::now();
        let output = child.wait_with_output().unwrap();
        Run {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            took: began.elapsed(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

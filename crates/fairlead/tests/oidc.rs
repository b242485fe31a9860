//! Logins with a real identity provider: browsers, command lines, what the provider changes its mind
//! about, and what is of no use a second time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use running::{Answer, PATIENCE, Up};
use serde_json::{Value, json};
use testkit::{IdentityProvider, requires};

mod running;

/// A Fairlead whose users log in with a provider of its own.
struct World {
    up: Up,
    provider: IdentityProvider,
    _data: tempfile::TempDir,
}

impl World {
    /// The group `devs` has the role `viewer`.
    fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let up = Up::start(data.path(), "none");
        up.wait_until_ready_says("\nready");
        let provider = IdentityProvider::start(&format!("{}/auth/oidc/corp/callback", up.api));
        let secret = data.path().join("secret");
        std::fs::write(&secret, IdentityProvider::SECRET).unwrap();
        let manifest = json!({
            "apiVersion": "fairlead.dev/v1alpha1", "kind": "IdentityProvider",
            "metadata": { "name": "corp" },
            "spec": {
                "issuer": provider.issuer(), "clientId": IdentityProvider::CLIENT,
                "scopes": ["email", "groups", "offline_access"], "recheckSeconds": 2,
            },
        });
        let secret = secret.to_str().unwrap();
        let applied = up.fairlead_with(
            &["oidc", "apply", "-f", "-", "--client-secret-file", secret],
            &manifest.to_string(),
        );
        assert_eq!(applied.code, 0, "{applied:?}");
        let mapped = up.fairlead(&[
            "oidc",
            "map",
            "devs",
            "--provider",
            "corp",
            "--value",
            "devs",
            "--role",
            "viewer",
        ]);
        assert_eq!(mapped.code, 0, "{mapped:?}");
        Self { up, provider, _data: data }
    }

    fn get(&self, path: &str, cookie: &str) -> Answer {
        let headers = [("cookie", cookie)];
        self.up.send("GET", &format!("{}{path}", self.up.api), &headers, &Value::Null)
    }

    /// Begins a login; where the browser is sent, and the cookie that it has to bring back.
    fn begin(&self) -> (String, String) {
        let away = self.get("/auth/oidc/corp/start", "");
        assert_eq!(away.status, 303, "{}", away.text);
        let location = away.headers["location"].to_str().unwrap().to_owned();
        (location, cookie(&away, "fairlead-oidc="))
    }

    /// The path of the answer that a browser brings back.
    fn answer(&self, location: &str, user: &str) -> String {
        let back = self.provider.log_in(location, user);
        back.strip_prefix(&self.up.api).expect("back to where it began").to_owned()
    }

    /// Logs somebody in; the cookie of the session.
    fn log_in(&self, user: &str) -> String {
        let (location, bound) = self.begin();
        let answer = self.get(&self.answer(&location, user), &bound);
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert_eq!(answer.headers["location"], "/");
        cookie(&answer, "fairlead-session=")
    }

    fn me(&self, cookie: &str) -> Value {
        let me = self.get("/api/v1/me", cookie);
        assert_eq!(me.status, 200, "{}", me.text);
        me.json()
    }

    /// A command of a machine that knows nothing but what it logs in with.
    fn command(&self, home: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command
            .args(args)
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("FAIRLEAD_CONFIG", "/dev/null")
            .env("FAIRLEAD_SERVER", &self.up.api)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, home: &Path, args: &[&str], input: &str) -> (i32, String, String) {
        let mut child = self.command(home, args).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

/// The cookie that an answer sets, as a browser sends it.
fn cookie(answer: &Answer, name: &str) -> String {
    let mut all = answer.headers.get_all("set-cookie").iter().map(|it| it.to_str().unwrap());
    let set = all.find(|it| it.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    assert!(set.contains("HttpOnly"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

/// An open stream of events.
struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(world: &World, path: &str, cookie: &str) -> Self {
        let host = world.up.api.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "GET {path} HTTP/1.0\r\nhost: {host}\r\ncookie: {cookie}\r\naccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut opened = Self(BufReader::new(stream));
        let head = opened.until("\r\n");
        assert!(head.contains(" 200 "), "{head}");
        opened
    }

    fn until(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.0.read_line(&mut line).unwrap();
            assert!(read > 0, "the stream ended before {wanted:?}");
            if line.contains(wanted) {
                return line;
            }
        }
    }
}

#[test]
fn a_browser_logs_in_and_what_it_brought_back_is_of_no_use_again() {
    requires!(identity_provider);
    let world = World::new();
    world.provider.set_groups("ann", &["devs", "other"]);

    let methods = world.get("/auth/methods", "").json();
    assert_eq!(
        methods,
        json!({ "password": true, "oidc": [{ "name": "corp", "start": "/auth/oidc/corp/start" }] })
    );
    let (location, bound) = world.begin();
    let back = world.answer(&location, "ann");
    // Somebody else's browser, one that tampers, and one that began another login.
    let (_, other) = world.begin();
    assert_eq!(world.get(&back, "").status, 401);
    assert_eq!(world.get(&back, &other).status, 401);
    assert_eq!(world.get(&back.replace("state=", "state=x"), &bound).status, 401);
    let answer = world.get(&back, &bound);
    assert_eq!(answer.status, 303, "{}", answer.text);
    let session = cookie(&answer, "fairlead-session=");
    // The same answer again, with all that belongs to it.
    let again = world.get(&back, &bound);
    assert_eq!(again.status, 401);
    assert!(again.text.contains("begin again"), "{}", again.text);

    let me = world.me(&session);
    assert_eq!((&me["user"], &me["roles"]), (&json!("corp:ann@shop.example"), &json!(["viewer"])));
    let users = world.up.fairlead(&["users", "list", "-o", "json"]).json();
    let listed = users["users"].as_array().unwrap().iter();
    let listed = listed.filter(|user| user["provider"] == "corp").collect::<Vec<_>>();
    assert_eq!(listed.len(), 1, "{users}");
    // Whom no group is mapped of sees nothing.
    let stranger = world.log_in("eve");
    assert_eq!(world.me(&stranger)["roles"], json!([]));
    assert_eq!(world.get("/api/v1/users", &stranger).status, 403);
    // An answer that says no is said to the user, and not taken for markup.
    let (_, bound) = world.begin();
    let (location, bound_too) = world.begin();
    assert_ne!(bound, bound_too);
    let state = location.split("state=").nth(1).unwrap().split('&').next().unwrap();
    let refused = world.get(
        &format!("/auth/oidc/corp/callback?state={state}&error=%3Cb%3Eaccess_denied"),
        &bound_too,
    );
    assert_eq!(refused.status, 401);
    assert!(refused.text.contains("&lt;b&gt;access_denied"), "{}", refused.text);
    assert_eq!(world.get("/auth/oidc/none/start", "").status, 404);

    let tested = world.up.fairlead(&["oidc", "test", "corp", "-o", "json"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    let shown = world.up.fairlead(&["oidc", "providers", "-o", "json"]);
    assert!(!shown.out.contains("100%"), "{}", shown.out);
    let audit = world.up.fairlead(&["audit", "-o", "json"]);
    assert!(audit.out.contains("identityproviders.fairlead.dev"), "{}", audit.out);
    assert!(!audit.out.contains("100%"), "{}", audit.out);
}

#[test]
fn a_removed_group_ends_an_open_stream_and_a_removed_user_the_session() {
    requires!(identity_provider);
    let world = World::new();
    let deny = json!({ "name": "traffic", "allow": [{
        "clusters": ["-", "*"], "namespaces": ["*"], "resources": ["*"], "verbs": ["*"],
    }] });
    assert_eq!(world.up.ask("POST", "/roles", &deny).status, 201);
    let mapping = json!({ "provider": "corp", "values": ["ops"], "roles": ["traffic"] });
    assert_eq!(world.up.ask("PUT", "/oidc/mappings/ops", &mapping).status, 204);
    world.provider.set_groups("ann", &["devs", "ops"]);
    let session = world.log_in("ann");
    assert_eq!(world.me(&session)["roles"], json!(["traffic", "viewer"]));

    let mut stream = Stream::open(&world, "/api/v1/guard/violations", &session);
    world.provider.set_groups("ann", &["devs"]);
    stream.until("event: end");
    assert_eq!(world.me(&session)["roles"], json!(["viewer"]));

    let mut stream = Stream::open(&world, "/api/v1/clusters", &session);
    world.provider.forget("ann");
    stream.until("event: end");
    assert_eq!(world.get("/api/v1/me", &session).status, 401);
}

#[test]
fn new_keys_are_found_and_a_provider_that_is_away_ends_no_session() {
    requires!(identity_provider);
    let mut world = World::new();
    world.provider.set_groups("ann", &["devs"]);
    let session = world.log_in("ann");
    world.provider.rotate_keys();
    let second = world.log_in("ann");
    assert_eq!(world.me(&second)["roles"], json!(["viewer"]));
    world.provider.rotate_keys();
    // A recheck is signed with the new key as well.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(world.me(&session)["roles"], json!(["viewer"]));

    let password = json!({ "name": "root", "roles": ["admin"], "password": "a few words will do" });
    assert_eq!(world.up.ask("POST", "/users", &password).status, 201);
    world.provider.stop();
    let refused = world.get("/auth/oidc/corp/start", "");
    let started = refused.status;
    // What it says of itself is still known; what comes after it is not there.
    assert!(started == 303 || refused.text.contains("corp"), "{started}: {}", refused.text);
    let tested = world.up.fairlead(&["oidc", "test", "corp", "-o", "json"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    let away = world.get("/auth/oidc/corp/start", "");
    assert_eq!(away.status, 503, "{}", away.text);
    assert!(away.text.contains("the identity provider corp cannot be asked"), "{}", away.text);
    // Longer than two rechecks take.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(world.me(&session)["roles"], json!(["viewer"]));
    let login = json!({ "user": "root", "password": "a few words will do" });
    let local = world.up.send("POST", &format!("{}/api/v1/login", world.up.api), &[], &login);
    assert_eq!(local.status, 200, "{}", local.text);
}

#[test]
fn mappings_give_no_more_than_their_writer_has() {
    requires!(identity_provider);
    let world = World::new();
    let role = json!({ "name": "mapper", "allow": [{
        "clusters": ["-"], "namespaces": ["*"],
        "resources": ["rolemappings.fairlead.dev", "identityproviders.fairlead.dev"], "verbs": ["*"],
    }] });
    assert_eq!(world.up.ask("POST", "/roles", &role).status, 201);
    let mapping = json!({ "provider": "corp", "values": ["mappers"], "roles": ["mapper"] });
    assert_eq!(world.up.ask("PUT", "/oidc/mappings/mappers", &mapping).status, 204);
    world.provider.set_groups("max", &["mappers"]);
    let session = world.log_in("max");
    let csrf = world.me(&session)["csrf"].as_str().unwrap().to_owned();
    let put = |path: &str, body: &Value| {
        let headers = [("cookie", session.as_str()), ("x-csrf-token", csrf.as_str())];
        world.up.send("PUT", &format!("{}/api/v1{path}", world.up.api), &headers, body)
    };
    for roles in [json!(["admin"]), json!(["mapper", "viewer"])] {
        let more = json!({ "provider": "corp", "values": ["mappers"], "roles": roles });
        let refused = put("/oidc/mappings/mine", &more);
        assert_eq!(refused.status, 403, "{}", refused.text);
    }
    // What others wrote and gives more cannot be taken over, nor can the provider.
    let own = json!({ "provider": "corp", "values": ["mappers"], "roles": ["mapper"] });
    assert_eq!(put("/oidc/mappings/devs", &own).status, 403);
    let provider = json!({ "provider": { "issuer": "https://evil.example", "clientId": "x" } });
    assert_eq!(put("/oidc/providers/corp", &provider).status, 403);
    assert_eq!(put("/oidc/mappings/mine", &own).status, 204);
    // A mapping that is gone takes its roles with it, at once.
    assert_eq!(world.up.ask("DELETE", "/oidc/mappings/mappers", &Value::Null).status, 204);
    assert_eq!(world.up.ask("DELETE", "/oidc/mappings/mine", &Value::Null).status, 204);
    assert_eq!(world.me(&session)["roles"], json!([]));
    // And a provider that is gone, its users.
    assert_eq!(world.up.ask("DELETE", "/oidc/providers/corp", &Value::Null).status, 204);
    let until = Instant::now() + PATIENCE;
    while world.get("/api/v1/me", &session).status != 401 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits for the line of a child's output that begins so.
fn line_of(child: &mut Child, beginning: &str) -> String {
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let found = lines.find_map(|line| line.unwrap().strip_prefix(beginning).map(str::to_owned));
    found.unwrap_or_else(|| panic!("no line {beginning:?}"))
}

/// The login that a command line keeps.
fn kept(home: &Path) -> std::path::PathBuf {
    let found = std::fs::read_dir(home.join("config/fairlead/logins")).unwrap();
    let paths = found.map(|entry| entry.unwrap().path());
    paths.into_iter().find(|path| path.extension().is_some_and(|it| it == "json")).unwrap()
}

/// Makes the token of a kept login one that has ended.
fn expire(file: &Path) -> String {
    let mut login: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    login["expires"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(file, login.to_string()).unwrap();
    login["refresh"].as_str().unwrap().to_owned()
}

#[test]
fn a_command_line_logs_in_by_a_code_and_renews_what_it_keeps() {
    requires!(identity_provider);
    let world = World::new();
    world.provider.set_groups("bob", &["devs"]);
    let home = tempfile::tempdir().unwrap();
    let home = home.path();

    let mut child = world.command(home, &["login"]).spawn().unwrap();
    let place = line_of(&mut child, "open ");
    world.provider.enter_code(&place, "bob");
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && out.contains("corp:bob@shop.example"), "{out}");
    let file = kept(home);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);

    let (code, out, err) = world.run(home, &["clusters", "list", "-o", "json"], "");
    assert_eq!(code, 0, "{out}{err}");
    // A viewer is no administrator, whoever's machine the server runs on.
    let (code, _, err) = world.run(home, &["users", "list"], "");
    assert_eq!(code, 1, "{err}");

    let first = expire(&file);
    // Several commands at once renew it once.
    let many: Vec<_> =
        (0..4).map(|_| world.command(home, &["clusters", "list"]).spawn().unwrap()).collect();
    for child in many {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let second = expire(&file);
    assert_ne!(first, second);

    // Whoever comes with a refresh token that was used ends the login for everybody.
    let url = format!("{}/api/v1/auth/cli/refresh", world.up.api);
    let stolen = world.up.send("POST", &url, &[], &json!({ "refresh": first }));
    assert_eq!(stolen.status, 401, "{}", stolen.text);
    let (code, _, err) = world.run(home, &["clusters", "list"], "");
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("log in again: `fairlead login"), "{err}");
}

#[test]
fn a_command_line_logs_in_with_a_password_and_out() {
    requires!(identity_provider);
    let world = World::new();
    let user = json!({ "name": "ann", "roles": ["viewer"], "password": "a few words will do" });
    assert_eq!(world.up.ask("POST", "/users", &user).status, 201);
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (code, _, err) = world.run(home, &["login", "--user", "ann"], "another word or two\n");
    assert_eq!(code, 2, "{err}");
    let (code, out, err) = world.run(home, &["login", "--user", "ann"], "a few words will do\n");
    assert_eq!(code, 0, "{out}{err}");
    let login: Value = serde_json::from_slice(&std::fs::read(kept(home)).unwrap()).unwrap();
    let access = login["access"].as_str().unwrap();
    assert_eq!(world.up.ask_as(access, "GET", "/me", &Value::Null).json()["user"], "ann");

    let (code, out, err) = world.run(home, &["logout"], "");
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(world.up.ask_as(access, "GET", "/me", &Value::Null).status, 401);
    let url = format!("{}/api/v1/auth/cli/refresh", world.up.api);
    let gone = world.up.send("POST", &url, &[], &json!({ "refresh": login["refresh"] }));
    assert_eq!(gone.status, 401);
    let (code, _, err) = world.run(home, &["clusters", "list"], "");
    assert_eq!(code, 2, "{err}");
    // A user who is disabled is logged out wherever they are.
    let (code, _, err) = world.run(home, &["login", "--user", "ann"], "a few words will do\n");
    assert_eq!(code, 0, "{err}");
    let disabled = json!({ "disabled": true });
    assert_eq!(world.up.ask("PATCH", "/users/ann", &disabled).status, 200);
    let (code, _, err) = world.run(home, &["clusters", "list"], "");
    assert_eq!(code, 2, "{err}");
}

//! What operators are given must be true of what runs: every metric that an alert or a panel names is
//! served by a real process, every runbook is there, every command in it exists.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cni::wire::{self, AddRequest, AttachmentKey, Operation, Reply, Request};
use kernel::netns::Namespace;
use running::{PATIENCE, Up};
use serde_json::Value;
use testkit::{Host, Sandbox, requires};

/// Labels that Prometheus adds to whatever it scrapes in Kubernetes.
const ADDED: [&str; 3] = ["namespace", "pod", "instance"];
/// Functions and words of the query language that are used here.
const WORDS: [&str; 16] = [
    "absent",
    "and",
    "by",
    "count",
    "delta",
    "histogram_quantile",
    "increase",
    "le",
    "max",
    "min",
    "or",
    "rate",
    "sum",
    "time",
    "unless",
    "without",
];
/// Metrics of a leader that has pools, which takes a Kubernetes API server; `leading` tests them.
const OF_POOLS: [&str; 4] = [
    "fairlead_net_pool_addresses_free",
    "fairlead_net_pool_addresses_used",
    "fairlead_net_pool_blocks",
    "fairlead_net_pool_blocks_claimed",
];
/// Only with a store in Kubernetes, when something stalls, and when an agent reports.
const OF_OTHERS: [&str; 4] = [
    "fairlead_objects_watch_failures_total",
    "fairlead_objects_watch_restarts_total",
    "fairlead_watchdog_stalls_total",
    "fairlead_conversations_records_total",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Where an expression is from, and the expression.
type Expressions = Vec<(String, String)>;

fn alerts() -> Value {
    let text = fs::read_to_string(root().join("deploy/monitoring/alerts.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn rules(alerts: &Value) -> Vec<&Value> {
    let groups = alerts["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect()
}

fn dashboards() -> Vec<(String, Value)> {
    let dir = fs::read_dir(root().join("deploy/monitoring/dashboards")).unwrap();
    let mut paths: Vec<PathBuf> = dir.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let read = |path: &Path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    paths.iter().map(|path| (name(path), read(path))).collect()
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

fn expressions() -> Expressions {
    let alerts = alerts();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all: Expressions = rules(&alerts)
        .into_iter()
        .map(|rule| (text(&rule["alert"]), text(&rule["expr"])))
        .collect();
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().unwrap() {
                all.push((format!("{name}: {}", panel["title"]), text(&target["expr"])));
            }
        }
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            if variable["type"] == "query" {
                let query = text(&variable["query"]["query"]);
                let inside =
                    query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
                let metric = inside.split(',').next().unwrap().to_owned();
                all.push((format!("{name}: ${}", variable["name"]), metric));
            }
        }
    }
    all
}

/// A metric in an expression: its name, what is compared with what, and the function around it.
#[derive(Debug)]
struct Named {
    metric: String,
    labels: Vec<(String, String, String)>,
    function: String,
}

/// Words, with what stands before them; good enough for the expressions that are written here.
fn named(expression: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let bytes = expression.as_bytes();
    let mut at = 0;
    while let Some(start) = expression[at..].find("fairlead_").map(|start| at + start) {
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = bytes[start..].iter().take_while(|byte| word(byte)).count();
        let end = start + length;
        let before = expression[..start].trim_end_matches(['(', ' ']);
        let function = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let labels = match expression[end..].strip_prefix('{') {
            Some(rest) => selectors(&rest[..rest.find('}').unwrap()]),
            None => Vec::new(),
        };
        found.push(Named {
            metric: expression[start..end].to_owned(),
            labels,
            function: function.unwrap_or_default().to_owned(),
        });
        at = end;
    }
    found
}

/// `a="b",c!="d"`, in which no value has a comma.
fn selectors(text: &str) -> Vec<(String, String, String)> {
    let one = |part: &str| {
        let end = part.find(['=', '!']).unwrap();
        let value = part[end..].trim_start_matches(['=', '!', '~']);
        let how = part[end..].trim_end_matches(value);
        (part[..end].trim().to_owned(), how.to_owned(), value.trim_matches('"').to_owned())
    };
    text.split(',').filter(|part| !part.is_empty()).map(one).collect()
}

/// What a process serves: the type of each metric, and its samples' labels.
#[derive(Debug, Default)]
struct Served {
    types: BTreeMap<String, String>,
    labels: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

impl Served {
    fn read(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                self.types.insert(name.to_owned(), kind.trim().to_owned());
            } else if !line.starts_with('#')
                && let Some((series, _)) = line.rsplit_once(' ')
            {
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let known = self.labels.entry(name.to_owned()).or_default();
                for (label, _, value) in selectors(labels.trim_end_matches('}')) {
                    known.entry(label).or_default().insert(value);
                }
            }
        }
    }

    /// The type of the family that a name in an expression belongs to.
    fn kind(&self, name: &str) -> Option<&str> {
        let family = ["_bucket", "_sum", "_count", "_total", "_info"];
        let family = family.iter().find_map(|suffix| name.strip_suffix(suffix));
        let of = |name: &str| self.types.get(name).map(String::as_str);
        of(name).or_else(|| of(family?))
    }
}

/// `fairlead agent` on a node that is a namespace; killed when dropped.
struct Agent {
    child: Child,
    namespace: Namespace,
    admin: String,
}

impl Agent {
    fn start(host: &Host, dir: &Path) -> Self {
        let mut command = host.command(env!("CARGO_BIN_EXE_fairlead"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAIRLEAD_")) {
            command.env_remove(name);
        }
        command.env("FAIRLEAD_CONFIG", "/dev/null");
        command.args(["agent", "--net-node", "node1", "--net-addresses", "192.0.2.1"]);
        command.args(["--net-subnets", "10.64.0.0/24", "--admin-listen", "127.0.0.1:0"]);
        // Nobody is there; that it is looked for is enough.
        command.args(["--guard-controllers", "127.0.0.1:1"]);
        command.arg("--data").arg(dir.join("data")).arg("--net-socket").arg(dir.join("cni.sock"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap().trim().to_owned());
        let line = lines.find(|line| line.starts_with("admin")).expect("it says where it listens");
        let admin = line.rsplit("http://").next().unwrap().trim_end_matches('/').to_owned();
        Self { child, namespace: Namespace::open(host.netns()).unwrap(), admin }
    }

    fn get(&self, path: &str) -> String {
        let get = || {
            let mut stream = TcpStream::connect(&self.admin).unwrap();
            let admin = &self.admin;
            write!(stream, "GET {path} HTTP/1.0\r\nhost: {admin}\r\nconnection: close\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        self.namespace.run_in(get).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A node that gives one pod its network.
fn agent_serves(served: &mut Served) {
    let sandbox = Sandbox::new();
    let [node, pod] = ["node", "pod"].map(|name| sandbox.host(name));
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(&node, dir.path());
    let until = Instant::now() + PATIENCE;
    let namespace = Namespace::open(pod.netns()).unwrap();
    loop {
        let ask = Operation::Add(AddRequest {
            key: AttachmentKey { container: "web".to_owned(), ifname: "eth0".to_owned() },
            network: "pods".to_owned(),
            netns: pod.netns().display().to_string(),
            pod: None,
            pool: None,
            fixed: Default::default(),
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let request = Request::within(deadline, ask);
        let reply =
            wire::call(&dir.path().join("cni.sock"), &request, Some(namespace.as_fd()), deadline);
        if matches!(reply, Ok(Reply::Added(_))) {
            break;
        }
        assert!(Instant::now() < until, "{reply:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    served.read(&agent.get("/metrics"));
}

/// A controller with its webhook, which has answered somebody, and a mesh.
fn controller_serves(served: &mut Served) {
    let dir = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let up = Up::start_with(&dir.path().join("data"), "none", |command| {
        command
            .args(["--admission-listen", &format!("127.0.0.1:{port}")])
            .args(["--admission-url", &format!("https://127.0.0.1:{port}")])
    });
    let _ = up.get("/clusters");
    let _ = up.send(
        "POST",
        &format!("{}/api/v1/login", up.api),
        &[("content-type", "application/json")],
        &serde_json::json!({"user": "nobody", "password": "wrong wrong wrong"}),
    );
    let _ = up.ask_as("flt_wrong_0123456789abcdefghijklmnop", "GET", "/clusters", &Value::Null);
    let mesh = dir.path().join("mesh.yaml");
    fs::write(
        &mesh,
        "apiVersion: fairlead.dev/v1alpha1\nkind: ClusterMesh\nmetadata: {name: prod, namespace: fairlead}\n\
         spec: {clusters: [{name: eu, clusterRef: eu, allowedNetworks: [10.1.0.0/16]}, {name: us, clusterRef: us, allowedNetworks: [10.2.0.0/16]}]}\n",
    )
    .unwrap();
    let applied = up.fairlead(&["mesh", "apply", mesh.to_str().unwrap()]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = up.send("GET", &format!("{}/metrics", up.admin), &[], &Value::Null);
        if answer.text.contains("fairlead_leader 1")
            && answer.text.contains("fairlead_mesh_clusters{")
        {
            served.read(&answer.text);
            return;
        }
        assert!(Instant::now() < until, "{}", answer.text);
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Every text in double quotes of our sources: what a label may be set to.
fn literals() -> BTreeSet<String> {
    fn walk(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.extend(text.split('"').skip(1).step_by(1).map(str::to_owned));
            }
        }
    }
    let mut found = BTreeSet::new();
    for krate in fs::read_dir(root().join("crates")).unwrap() {
        walk(&krate.unwrap().path().join("src"), &mut found);
    }
    found
}

#[test]
fn every_metric_and_label_of_alerts_and_panels_is_served() {
    requires!(netns);
    let mut served = Served::default();
    agent_serves(&mut served);
    controller_serves(&mut served);
    let literals = literals();
    let mut wrong = BTreeSet::new();
    let mut looked = 0;
    for (place, expression) in expressions() {
        for Named { metric, labels, function } in named(&expression) {
            looked += 1;
            let elsewhere = |name: &str| {
                let quoted = name.trim_start_matches("fairlead_").trim_end_matches("_total");
                let quiet = OF_POOLS.contains(&name) || OF_OTHERS.contains(&name);
                quiet && literals.contains(quoted)
            };
            let Some(kind) = served.kind(&metric).or(elsewhere(&metric).then_some("elsewhere"))
            else {
                wrong.insert(format!("{place}: nobody serves {metric}"));
                continue;
            };
            let counts = matches!(function.as_str(), "rate" | "increase");
            let is_counter = metric.ends_with("_total") || metric.ends_with("_bucket");
            if kind != "elsewhere"
                && (counts != is_counter || (kind == "counter") != metric.ends_with("_total"))
            {
                wrong.insert(format!("{place}: {metric} is a {kind}, used with {function}"));
            }
            let known = served.labels.get(&metric);
            for (label, how, value) in labels {
                if ADDED.contains(&label.as_str()) {
                    continue;
                }
                if let Some(known) = known.filter(|known| !known.is_empty())
                    && !known.contains_key(&label)
                {
                    wrong.insert(format!("{place}: {metric} has no label {label}"));
                }
                // What is compared must be something that is ever said.
                let said = |value: &str| {
                    let values = known.and_then(|known| known.get(&label));
                    values.is_some_and(|values| values.contains(value)) || literals.contains(value)
                };
                let words = value.split('|').filter(|word| !how.is_empty() && !said(word));
                for word in words.filter(|word| !word.chars().all(|c| c.is_ascii_digit())) {
                    wrong.insert(format!("{place}: nobody sets {label} of {metric} to {word}"));
                }
            }
        }
    }
    assert!(looked > 100, "only {looked} metrics were looked at");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_expression_is_whole_and_every_dashboard_can_be_imported() {
    for (place, expression) in expressions() {
        for (open, close) in [('(', ')'), ('{', '}'), ('[', ']')] {
            let count = |c| expression.chars().filter(|found| *found == c).count();
            assert_eq!(count(open), count(close), "{place}: {expression}");
        }
        // Outside quotes and braces only functions, metrics, labels and numbers are words.
        let outside: String =
            expression.split('{').map(|p| p.split_once('}').map_or(p, |(_, p)| p)).collect();
        let labels: BTreeSet<&str> = outside
            .split("by (")
            .skip(1)
            .flat_map(|rest| rest.split(')').next().unwrap().split(','))
            .map(str::trim)
            .collect();
        for word in outside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$') {
            let known = word.is_empty()
                || word.starts_with("fairlead_")
                || word.starts_with(|c: char| c.is_ascii_digit() || c == '$')
                || WORDS.contains(&word)
                || labels.contains(word);
            assert!(known, "{place}: what is {word}? {expression}");
        }
    }
    let mut uids = BTreeSet::new();
    for (name, dashboard) in dashboards() {
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 38, "{name}");
        assert!(
            uids.insert(dashboard["uid"].as_str().unwrap().to_owned()),
            "{name}: its uid is taken"
        );
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: two panels of one id");
        }
        for panel in panels(&dashboard) {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {}", panel["title"]);
            for target in panel["targets"].as_array().unwrap() {
                assert_eq!(
                    target["datasource"]["uid"], "${datasource}",
                    "{name}: {}",
                    panel["title"]
                );
                // A legend that names a label has it.
                let legend = target["legendFormat"].as_str().unwrap();
                let expression = target["expr"].as_str().unwrap();
                for label in legend.split("{{").skip(1).map(|l| l.split("}}").next().unwrap()) {
                    let by = expression.split("by (").skip(1).any(|rest| {
                        rest.split(')').next().unwrap().split(',').any(|l| l.trim() == label)
                    });
                    assert!(by, "{name}: {}: no {label} in {expression}", panel["title"]);
                }
            }
        }
    }
    assert!(uids.len() >= 4);
    // The real thing, where it is there.
    let rules = root().join("deploy/monitoring/alerts.yaml");
    match Command::new("promtool").args(["check", "rules"]).arg(rules).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => println!("promtool: {error}; the rules were checked by this test alone"),
    }
}

#[test]
fn every_alert_has_a_runbook_whose_commands_exist() {
    let text = fs::read_to_string(root().join("docs/monitoring.md")).unwrap();
    let sections: BTreeMap<&str, &str> =
        text.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap()).collect();
    let alerts = alerts();
    let mut names = BTreeSet::new();
    for rule in rules(&alerts) {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name), "{name} is there twice");
        let annotations = &rule["annotations"];
        let url = annotations["runbook_url"].as_str().unwrap();
        assert_eq!(url, format!("docs/monitoring.md#{}", name.to_lowercase()));
        assert!(
            ["critical", "warning", "info"].contains(&rule["labels"]["severity"].as_str().unwrap())
        );
        for said in ["summary", "description"] {
            assert!(annotations[said].as_str().unwrap().len() > 20, "{name}: {said}");
        }
        let section = sections
            .get(name)
            .unwrap_or_else(|| panic!("docs/monitoring.md has no section {name}"));
        assert!(
            section.contains(rule["expr"].as_str().unwrap()),
            "{name}: the section has another rule"
        );
    }
    assert_eq!(names, sections.keys().copied().collect(), "sections without an alert");

    // Commands are tried as far as their names go.
    let mut tried = BTreeSet::new();
    let blocks = text.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    for line in blocks.flat_map(str::lines) {
        let Some(at) = line.find("fairlead ").filter(|at| *at == 0 || line[..*at].ends_with("-- "))
        else {
            continue;
        };
        let words = line[at..].split_whitespace().skip(1);
        let verb: Vec<&str> =
            words.take_while(|w| w.chars().all(|c| c.is_ascii_lowercase())).collect();
        if tried.insert(verb.clone()) {
            let output =
                Command::new(env!("CARGO_BIN_EXE_fairlead")).args(&verb).arg("--help").output();
            assert!(output.unwrap().status.success(), "there is no `fairlead {}`", verb.join(" "));
        }
    }
    assert!(tried.len() > 8, "{tried:?}");
}

//! What a cluster's users do with it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{PODS, SOON, Stage, WEB, fairlead, text};

fn field(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn addresses(pods: &[Value]) -> Vec<String> {
    pods.iter().map(|pod| field(pod, "/status/podIP")).collect()
}

/// From inside a pod: every one of these answers.
#[track_caller]
fn reaches(stage: &Stage, pod: &str, urls: &[String]) {
    let ask =
        "for to; do timeout 5 wget -qO /dev/null $to || { echo no answer from $to; exit 1; }; done";
    let mut command = vec!["exec", pod, "--", "sh", "-c", ask, "sh"];
    command.extend(urls.iter().map(String::as_str));
    stage.cluster.kubectl(&command);
}

pub(crate) fn pods_and_services_work(stage: &Stage) {
    let cluster = &stage.cluster;
    cluster.apply(WEB);
    let pods = cluster.wait_pods("default", "app=web", 3, SOON);
    let nodes: BTreeSet<_> = pods.iter().map(|pod| field(pod, "/spec/nodeName")).collect();
    assert_eq!(nodes.len(), 3);
    let mut urls: Vec<_> =
        addresses(&pods).iter().map(|address| format!("http://{address}:8080/name")).collect();
    urls.push("http://web.default/name".to_owned());
    urls.extend(
        cluster
            .nodes()
            .iter()
            .map(|node| format!("http://{}:30080/name", cluster.node_address(*node))),
    );
    for pod in &pods {
        reaches(stage, &field(pod, "/metadata/name"), &urls);
    }
}

/// A burst over three nodes, with the agent of one of them killed in the middle of it.
pub(crate) fn a_hundred_pods_start_while_an_agent_is_killed(stage: &Stage) {
    let cluster = &stage.cluster;
    let began = Instant::now();
    cluster.kubectl(&["scale", "deployment/web", &format!("--replicas={PODS}")]);
    cluster.wait_for("a third of the pods", SOON, || {
        let pods = cluster.pods("default", "app=web")?;
        let with = pods.iter().filter(|pod| pod.pointer("/status/podIP").is_some()).count();
        if with > PODS / 3 { Ok(()) } else { Err(format!("{with} have an address")) }
    });
    cluster.in_node(2, &["pkill", "-KILL", "-f", "^/usr/local/bin/fairlead agent"]);
    let pods = cluster.wait_pods("default", "app=web", PODS, SOON);
    eprintln!(
        "{PODS} pods Ready after {:.1} s, an agent killed meanwhile",
        began.elapsed().as_secs_f64()
    );
    let found: BTreeSet<_> = addresses(&pods).into_iter().collect();
    assert_eq!(found.len(), PODS, "an address was given twice");
    let urls: Vec<_> = found.iter().map(|address| format!("http://{address}:8080/name")).collect();
    // One pod of each node asks all.
    let mut asked = BTreeSet::new();
    for pod in &pods {
        if asked.insert(field(pod, "/spec/nodeName")) {
            reaches(stage, &field(pod, "/metadata/name"), &urls);
        }
    }
    assert_eq!(asked.len(), 3);
    cluster.kubectl(&["scale", "deployment/web", "--replicas=3"]);
    stage.cluster.wait_for("three pods to be left", SOON, || match live(stage)?.len() {
        3 => Ok(()),
        more => Err(format!("{more} pods")),
    });
}

/// The pods that stay. An old kubelet lets the API forget one that ends only after up to a minute.
fn live(stage: &Stage) -> Result<Vec<Value>, String> {
    let mut pods = stage.cluster.pods("default", "app=web")?;
    pods.retain(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    Ok(pods)
}

pub(crate) fn a_rule_refuses_what_it_forbids(stage: &Stage) {
    let cluster = &stage.cluster;
    cluster.apply(
        r#"
apiVersion: fairlead.dev/v1alpha1
kind: AdmissionRule
metadata: { name: no-privileged }
spec:
  action: deny
  mode: protect
  criteria: [{ name: runAsPrivileged, op: "=", value: "true" }]
"#,
    );
    let forbidden = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: forbidden }
spec:
  selector: { matchLabels: { app: forbidden } }
  template:
    metadata: { labels: { app: forbidden } }
    spec: { containers: [{ name: x, image: "local/busybox:1", securityContext: { privileged: true } }] }
"#;
    let file = stage.home.path().join("forbidden.yaml");
    std::fs::write(&file, forbidden).unwrap();
    let file = file.to_str().unwrap();
    let why = cluster.wait_for("the Deployment to be refused", SOON, || {
        match cluster.try_kubectl(&["create", "--dry-run=server", "--filename", file]) {
            Ok(said) => Err(format!("admitted: {said}")),
            Err(why) => Ok(why),
        }
    });
    assert!(why.contains("no-privileged"), "{why}");
}

pub(crate) fn the_map_names_workloads(stage: &Stage) {
    let cluster = &stage.cluster;
    let pods = live(stage).unwrap();
    let (from, to) = (field(&pods[0], "/metadata/name"), field(&pods[1], "/status/podIP"));
    reaches(stage, &from, &[format!("http://{to}:8080/name")]);
    let began = Instant::now();
    let line = cluster.wait_for("the conversation of two pods", SOON, || {
        let command = [
            "--namespace=fairlead",
            "exec",
            "deployment/fairlead-controller",
            "--",
            "/usr/local/bin/fairlead",
            "conversations",
            "-o",
            "json",
        ];
        let said = cluster.try_kubectl(&command)?;
        let found: Value =
            serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
        let named = said.contains("web") && said.contains("8080");
        if named { Ok(found) } else { Err(said) }
    });
    eprintln!("the map has it after {:.1} s", began.elapsed().as_secs_f64());
    drop(line);
    let agents = stage.inside(&["agents", "-o", "json"]);
    for node in cluster.nodes() {
        assert!(agents.contains(&cluster.node_name(node)), "{agents}");
    }
}

/// A server on the administrator's machine.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Our own command line, through a server of ours and the cluster's API server, at a real kubelet.
pub(crate) fn logs_exec_and_forward_work(stage: &Stage) {
    let data = stage.home.path().join("up");
    let mut command = stage.command(&[
        "up",
        "--api-listen=127.0.0.1:0",
        "--admin-listen=127.0.0.1:0",
        "--agents-listen=127.0.0.1:0",
    ]);
    command.arg("--data").arg(&data).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut up = Up(command.spawn().unwrap());
    let mut lines = BufReader::new(up.0.stdout.take().unwrap()).lines();
    let server = lines
        .find_map(|line| Some(line.unwrap().trim().strip_prefix("api")?.trim().to_owned()))
        .expect("up tells where its API is");
    let ask = |args: &[&str]| -> Command {
        let mut command = stage.command(args);
        command.env("FAIRLEAD_SERVER", &server).env("FAIRLEAD_DATA", &data);
        command.env("FAIRLEAD_CLUSTER", "certificate");
        command
    };
    let pods = live(stage).unwrap();
    let pod = field(&pods[0], "/metadata/name");
    let said = stage.cluster.wait_for("logs", SOON, || {
        let output = ask(&["logs", &pod]).output().unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    });
    assert!(said.contains("started"), "{said}");
    let output = ask(&["exec", &pod, "--", "cat", "/www/name"]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), pod, "{}", text(&output.stderr));

    // By pod and by Service, one request after the other: none is refused. containerd ends each connection a
    // second after the server did, so the two go side by side.
    thread::scope(|scope| {
        for (target, port) in [(pod.as_str(), "0:8080"), ("svc/web", "0:80")] {
            let mut forward = ask(&["forward", target, port]);
            scope.spawn(move || {
                let forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut child = Up(forward.spawn().unwrap());
                let told = BufReader::new(child.0.stdout.take().unwrap()).lines().next();
                let told = told.expect("forward tells where it listens").unwrap();
                let address = told.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
                let address = address.unwrap_or_else(|| panic!("{told}")).trim_end_matches(',');
                for n in 0..70 {
                    let answer = get(address)
                        .unwrap_or_else(|error| panic!("{target}, request {n}: {error}"));
                    assert!(answer.contains("web-"), "{target}, request {n}: {answer}");
                }
            });
        }
    });
    the_doctor_asks_a_pod(stage, &ask);
    assert!(fairlead().is_file());
}

/// The doctor finds the debug port of our own controller through the fleet and a real kubelet, and has
/// nothing to say against it.
fn the_doctor_asks_a_pod(stage: &Stage, ask: &dyn Fn(&[&str]) -> Command) {
    let pods = stage.cluster.try_kubectl(&["get", "pods", "-n", "fairlead", "-o", "name"]).unwrap();
    let pod = pods.lines().find(|name| name.contains("controller")).expect("a controller runs");
    let output = ask(&["doctor", pod, "-n", "fairlead", "--pause", "1s", "-o", "json"]).output();
    let output = output.unwrap();
    let said = text(&output.stdout);
    assert!(output.status.code().is_some_and(|code| code < 2), "{}{said}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    let names: Vec<&str> =
        report["inputs"].as_array().unwrap().iter().filter_map(|i| i["name"].as_str()).collect();
    for page in ["/metrics", "/debug/inflight"] {
        assert!(names.iter().any(|name| name.contains(page)), "{page}: {names:?}");
    }
    let findings = report["findings"].as_array().into_iter().flatten();
    assert_eq!(findings.filter(|f| f["severity"] == "critical").count(), 0, "{said}");
}

fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"GET /name HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub(crate) fn a_node_reboots(stage: &Stage) {
    let cluster = &stage.cluster;
    let began = Instant::now();
    cluster.reboot(3);
    cluster.wait_node_ready(3, SOON);
    eprintln!("a node is Ready {:.1} s after its reboot", began.elapsed().as_secs_f64());
    // A pod's readiness of before the reboot is believed until the kubelet has looked again.
    cluster.wait_for("every pod to answer", SOON, || {
        let pods = live(stage)?;
        let urls: Vec<_> =
            addresses(&pods).iter().map(|address| format!("http://{address}:8080/name")).collect();
        for pod in &pods {
            let name = field(pod, "/metadata/name");
            let ask = "for to; do timeout 2 wget -qO /dev/null $to || exit 1; done";
            let mut command = vec!["exec", &name, "--", "sh", "-c", ask, "sh"];
            command.extend(urls.iter().map(String::as_str));
            cluster.try_kubectl(&command)?;
        }
        Ok(())
    });
    stage.is_well();
}

//! Policies from a real API server, through a real `fairlead up`, to agents over TLS, and by the command
//! line.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use node::Identity;
use node::client::{Answer, Client, ClientError, Endpoint, ProgramChanges, Reporting};
use policy::program::{Fingerprint, Packet, Program, RuleTotal};
use running::Up;
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks};
use testkit::{KubeServer, requires};
use traffic::agents::JoinFacts;
use traffic::conversations::{Moment, Protocol, Record, Report, ResolvedName, Totals};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

async fn create<K>(api: Api<K>, object: Value)
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// An API server with pods on two nodes, and a controller that makes programs of it.
struct Stage {
    kube: kube::Client,
    up: Up,
    tasks: Tasks,
    data: tempfile::TempDir,
    _server: KubeServer,
}

/// An agent that enforces nothing, and knows what it should.
struct Agent {
    client: Client,
    changes: ProgramChanges,
    program: Program,
}

impl Stage {
    async fn set() -> Self {
        let server = KubeServer::start().await;
        let kube = server.client().await;
        for name in ["shop", "bank"] {
            create(Api::<Namespace>::all(kube.clone()), json!({"metadata": {"name": name}})).await;
        }
        for name in ["node-a", "node-b"] {
            create(Api::<Node>::all(kube.clone()), json!({"metadata": {"name": name}})).await;
        }
        let data = tempfile::tempdir().unwrap();
        let kubeconfig = server.kubeconfig_path();
        let up = Up::start_with(data.path(), kubeconfig.to_str().unwrap(), |command| {
            command
                .env("FAIRLEAD_AGENTS_LISTEN", "0.0.0.0:0")
                .env("FAIRLEAD_GUARD_CLUSTER", "certificate")
        });
        up.wait_for("/guard/agents", |list| list["agents"] == json!([]));
        Self { kube, up, tasks: Tasks::new("agents"), data, _server: server }
    }

    async fn pod(&self, namespace: &str, name: &str, node: &str, address: &str) {
        let pods = Api::<Pod>::namespaced(self.kube.clone(), namespace);
        let labels = json!({"app": name});
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i",
                          "ports": [{"name": "http", "containerPort": 8080}]}]});
        create(pods.clone(), json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))
            .await;
        let status =
            json!({"status": {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// Only `from` may reach the pods of a namespace, on port 8080.
    async fn policy(&self, namespace: &str, name: &str, from: &str) {
        let spec = json!({"podSelector": {}, "ingress": [{
            "from": [{"podSelector": {"matchLabels": {"app": from}}}],
            "ports": [{"port": 8080}]}]});
        let api = Api::<NetworkPolicy>::namespaced(self.kube.clone(), namespace);
        create(api, json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    fn endpoint(&self) -> Vec<String> {
        let (_, port) = self.up.agents.rsplit_once(':').unwrap();
        vec![format!("127.0.0.1:{port}")]
    }

    async fn join(&self, node: &str, incarnation: u64) -> Client {
        let dir = self.data.path().join(node);
        let identity = match Identity::open(&dir).unwrap() {
            Some(identity) => identity,
            None => {
                let made = self.up.fairlead(&["agents", "token", "--node", node]);
                assert_eq!(made.code, 0, "{made:?}");
                let token = made.out.trim();
                Identity::enrol(&self.endpoint(), token, node, &dir, &self.tasks, soon())
                    .await
                    .unwrap()
            }
        };
        let endpoint = Endpoint { addresses: self.endpoint(), identity: Some(identity) };
        let facts = JoinFacts { node: node.to_owned(), incarnation, ..JoinFacts::default() };
        Client::join(&endpoint, &facts, &self.tasks, soon()).await.unwrap().0
    }

    /// An agent that begins with a program.
    async fn agent(&self, node: &str, incarnation: u64, program: Program) -> Agent {
        let client = self.join(node, incarnation).await;
        let fingerprint = program.fingerprint();
        let changes = client.programs(program.generation, fingerprint, soon()).await.unwrap();
        Agent { client, changes, program }
    }

    /// What the command line says, once it is as wanted.
    fn until(&self, args: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        for _ in 0..300 {
            let said = self.up.fairlead(args);
            if let Ok(value) = serde_json::from_str(&said.out)
                && wanted(&value)
            {
                return value;
            }
            last = Some(said);
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("{args:?}: {last:?}");
    }
}

impl Agent {
    /// Takes the next change; says what it led from and how much it touched.
    async fn take(&mut self) -> (u64, usize) {
        let delta = soon().bound(self.changes.next()).await.unwrap().unwrap();
        self.program.apply(&delta).unwrap();
        self.client.applied(delta.to, None, soon()).await.unwrap();
        (delta.from, delta.size())
    }

    /// Takes changes until the program is as wanted.
    async fn until(&mut self, wanted: impl Fn(&Program) -> bool) -> Vec<(u64, usize)> {
        let mut taken = Vec::new();
        while !wanted(&self.program) {
            taken.push(self.take().await);
        }
        taken
    }

    fn passes(&self, from: &str, to: &str, port: u16) -> bool {
        passes(&self.program, from, to, port)
    }
}

fn passes(program: &Program, from: &str, to: &str, port: u16) -> bool {
    program.judge(&Packet::tcp(from.parse().unwrap(), to.parse().unwrap(), port)).passes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_policies_reach_the_agents_of_their_nodes_and_no_others() {
    requires!(kube);
    let stage = Stage::set().await;
    stage.pod("shop", "web", "node-a", "10.1.0.1").await;
    stage.pod("shop", "db", "node-a", "10.1.0.2").await;
    stage.pod("bank", "vault", "node-b", "10.1.0.3").await;
    stage.policy("shop", "only-web", "web").await;

    // Whole at first, and of its own node alone.
    let mut a = stage.agent("node-a", 1, Program::default()).await;
    let mut b = stage.agent("node-b", 1, Program::default()).await;
    let first = a.until(|program| program.pods.len() == 2 && !program.chains.is_empty()).await;
    assert_eq!(first[0].0, 0);
    b.until(|program| program.pods.len() == 1).await;
    let of = |agent: &Agent| -> BTreeSet<String> {
        agent.program.pods.values().map(|pod| pod.pod.to_string()).collect()
    };
    assert_eq!(of(&a), BTreeSet::from(["shop/db".to_owned(), "shop/web".to_owned()]));
    assert_eq!(of(&b), BTreeSet::from(["bank/vault".to_owned()]));
    assert!(a.passes("10.1.0.1", "10.1.0.2", 8080));
    assert!(!a.passes("10.1.0.1", "10.1.0.2", 9090));
    assert!(!a.passes("10.1.0.3", "10.1.0.2", 8080));

    // A pod that comes is a small change, on its own node and where a set has it.
    stage.pod("shop", "web-2", "node-b", "10.1.0.4").await;
    let taken = b.until(|program| program.pods.len() == 2).await;
    assert!(taken.iter().all(|(from, size)| *from != 0 && *size < 16), "{taken:?}");
    assert!(!b.passes("10.1.0.3", "10.1.0.4", 8080), "it is born isolated");

    // A certificate speaks for its own node: it may neither follow another's program nor acknowledge it.
    let foreign = foreign_ask(&stage, &a, "node-b").await;
    assert!(matches!(foreign, ClientError::Denied(_)), "{foreign:?}");

    // The connection breaks, a policy changes, and the agent goes on from what it has.
    let Agent { client, changes, program } = a;
    drop((client, changes));
    stage.policy("shop", "from-db", "db").await;
    let kept = program.generation;
    let mut a = stage.agent("node-a", 2, program).await;
    let taken = a.until(|program| passes(program, "10.1.0.2", "10.1.0.1", 8080)).await;
    assert_eq!(taken[0].0, kept, "{taken:?}");

    // What nobody here knows is answered with a whole program.
    let mut strange = a.program.clone();
    strange.generation += 5;
    strange.pods.clear();
    let client = stage.join("node-a", 3).await;
    let changes = client.programs(strange.generation, Fingerprint(7), soon()).await.unwrap();
    let mut strange = Agent { client, changes, program: strange };
    assert_eq!(strange.take().await.0, 0);
    assert_eq!(strange.program.pods.len(), 2);

    // The stream that it replaced has ended.
    let ended = soon().bound(a.changes.next()).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");

    // A policy that goes opens what it closed.
    let policies = Api::<NetworkPolicy>::namespaced(stage.kube.clone(), "shop");
    for name in ["only-web", "from-db"] {
        policies.delete(name, &DeleteParams::default()).await.unwrap();
    }
    strange.until(|program| passes(program, "10.1.0.3", "10.1.0.2", 9090)).await;
    stage.tasks.shutdown(Duration::from_secs(2)).await;
}

/// Asks for a node's program with the id of another node's agent.
async fn foreign_ask(stage: &Stage, own: &Agent, other: &str) -> ClientError {
    // The other node's agent, joined anew, and its id told to this one.
    let joined = stage.join(other, 9).await;
    own.client.with_agent_of(&joined).programs(0, Fingerprint(0), soon()).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_an_agent_that_never_reads_holds_up_nobody() {
    requires!(kube);
    let stage = Stage::set().await;
    stage.pod("shop", "db", "node-a", "10.1.0.2").await;
    stage.pod("bank", "vault", "node-b", "10.1.0.3").await;
    // It takes nothing of what it is sent, and says so to nobody.
    let asleep = stage.agent("node-a", 1, Program::default()).await;
    let mut b = stage.agent("node-b", 1, Program::default()).await;
    b.until(|program| program.pods.len() == 1).await;
    for place in 10..40 {
        let address = format!("10.1.0.{place}");
        stage.pod("bank", &format!("p{place}"), "node-b", &address).await;
    }
    b.until(|program| program.pods.len() == 31).await;
    drop(asleep);
    stage.tasks.shutdown(Duration::from_secs(2)).await;
}

/// What an agent's rules counted is shown with the rules, and what netfilter does not see with the node.
async fn counts_and_bypasses_are_told(stage: &Stage, a: &Agent) {
    let chain = a.program.chains.values().next().unwrap();
    let counters: Vec<_> = chain.counters().collect();
    let total = |at: usize, packets| RuleTotal { counter: counters[at], packets, bytes: 1234 };
    a.client.enforced(&[], &[total(0, 12), total(1, 3)], true, soon()).await.unwrap();
    let listed = ["policy", "list", "--rules", "-o", "json"];
    let said = stage.until(&listed, |it| it["rules"][0]["packets"] == 12);
    let first = &said["rules"][0];
    assert_eq!(
        (&first["rules"][0]["policy"], &first["rules"][0]["rule"], &first["nodes"]),
        (&json!("shop/only-web"), &json!("ingress[0]"), &json!(1)),
        "{said}"
    );
    let shown = stage.up.fairlead(&["policy", "list", "--rules"]);
    assert!(shown.out.contains("NetworkPolicy shop/only-web isolation"), "{shown:?}");
    let explained = stage.up.fairlead(&["policy", "explain", "shop/web", "shop/db", "8080"]);
    let counted = "counted: 12 packets, 1234 bytes on 1 node";
    assert!(explained.out.contains(counted), "{explained:?}");
    let denied = ["policy", "explain", "bank/vault", "shop/db", "8080", "-o", "json"];
    let denied = stage.up.fairlead(&denied).json();
    assert_eq!(denied["ingress"]["counted"]["packets"], 3, "{denied}");
    assert_eq!(denied["egress"]["counted"], Value::Null, "{denied}");

    let bridge = "shop/db is not judged: pods on the bridge cni0 reach each other";
    a.client.enforced(&[bridge.to_owned()], &[], false, soon()).await.unwrap();
    let status = ["policy", "status", "-o", "json"];
    let said = stage.until(&status, |it| it["nodes"][0]["state"] == "bypassed");
    assert_eq!(said["policies"][0]["applied"], 0, "{said}");
    let shown = stage.up.fairlead(&["policy", "status"]);
    assert!(shown.code == 1 && shown.out.contains("the bridge cni0"), "{shown:?}");
    a.client.enforced(&[], &[], false, soon()).await.unwrap();
    stage.until(&status, |it| it["nodes"][0]["state"] == "applied");
    // Of its own node alone.
    let joined = stage.join("node-c", 1).await;
    let forged = a.client.with_agent_of(&joined).enforced(&[], &[], true, soon()).await;
    assert!(matches!(forged, Err(ClientError::Denied(_))), "{forged:?}");
}

/// Rules by domain name: what nobody told is not judged, and what an agent told is, wherever a verdict is shown.
async fn names_are_judged_as_agents_tell_them(stage: &Stage, reports: &mut Reporting) {
    let file = stage.data.path().join("names.json");
    let kind = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let one = |key: &str, value: &str| json!([{"key": key, "op": "=", "value": value}]);
    let shop = json!({"criteria": one("namespace", "shop")});
    let allows = json!({"from": "shop", "to": "names", "action": "allow"});
    let denies = json!({"from": "shop", "to": "external", "action": "deny", "priority": 2000});
    for (verb, object) in [
        ("groups", kind("Group", "shop", shop)),
        ("groups", kind("Group", "names", json!({"criteria": one("domain", "*.example.com")}))),
        ("rules", kind("NetworkRule", "to-names", allows)),
        ("rules", kind("NetworkRule", "nowhere-else", denies)),
    ] {
        std::fs::write(&file, object.to_string()).unwrap();
        let applied = stage.up.fairlead(&[verb, "apply", file.to_str().unwrap()]);
        assert_eq!(applied.code, 0, "{applied:?}");
    }
    let now = Moment::now();
    let record = |last: u8| Record {
        client: "10.1.0.1".parse().unwrap(),
        server: [203, 0, 113, last].into(),
        port: 443,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: 10, packets: 2, sessions: 1 },
        first: now,
        last: now,
    };
    let mut tell = async |sequence: u64, names: Option<Vec<ResolvedName>>| {
        let records = vec![record(7), record(8)];
        let report = Report { incarnation: 1, sequence, records, names, ..Report::default() };
        reports.send(&report).await.unwrap();
        assert!(matches!(reports.next().await.unwrap(), Answer::Counted { .. }));
    };
    let is = |it: &Value, last: u8, verdict: &str, rule: &Value| {
        let lines = it["conversations"].as_array().unwrap();
        let address = format!("203.0.113.{last}");
        let line = lines.iter().find(|line| line["server"]["address"] == *address);
        line.is_some_and(|line| line["verdict"] == verdict && line["rule"] == *rule)
    };
    let shown = ["conversations", "-o", "json"];
    let explain = ["policy", "explain", "shop/web", "203.0.113.7", "443", "-o", "json"];
    tell(2, None).await;
    let (by, otherwise) = (json!("to-names"), json!("nowhere-else"));
    stage.until(&shown, |it| is(it, 7, "unjudged", &by) && is(it, 8, "unjudged", &by));
    let said = stage.until(&explain, |it| it["dependsOn"].is_string());
    assert!(said["dependsOn"].as_str().unwrap().contains("node-a"), "{said}");
    let words = stage.up.fairlead(&explain[..5]);
    assert!(words.out.contains("it depends on rules by domain name"), "{words:?}");

    let address = record(7).server;
    tell(3, Some(vec![ResolvedName { name: "api.example.com".into(), address }])).await;
    let told =
        stage.until(&shown, |it| is(it, 7, "allowed", &by) && is(it, 8, "violates", &otherwise));
    let lines = told["conversations"].as_array().unwrap();
    let named = lines.iter().find(|line| line["serverNames"] == json!(["api.example.com"]));
    assert_eq!(named.unwrap()["server"]["address"], "203.0.113.7", "{told}");
    let said = stage.up.fairlead(&explain).json();
    assert_eq!((&said["toName"], &said["dependsOn"]), (&json!("api.example.com"), &Value::Null));
    // It is written down a moment after it is judged.
    let violations = stage
        .until(&["violations", "-o", "json"], |it| it.to_string().contains("203.0.113.8"))
        .to_string();
    assert!(!violations.contains("203.0.113.7"), "{violations}");

    // A policy by name would have stopped the other one, and not this.
    let rules = json!([{"action": "Accept", "to": [{"domainNames": ["*.example.com"]}]},
                       {"action": "Deny", "to": [{"networks": ["203.0.113.0/24"]}]}]);
    let policy = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "out"}, "spec": {"tier": "Admin", "priority": 1,
        "subject": {"namespaces": {}}, "egress": rules}});
    std::fs::write(&file, policy.to_string()).unwrap();
    let dry = ["policy", "dry-run", "--policies", file.to_str().unwrap(), "-o", "json"];
    let stopped = stage.up.fairlead(&dry).json()["stopped"].clone();
    assert_eq!(
        (&stopped[0]["to"], &stopped[1]),
        (&json!("203.0.113.8"), &Value::Null),
        "{stopped}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_the_command_line_tells_of_policies_in_force_and_puts_a_workload_apart() {
    requires!(kube);
    let stage = Stage::set().await;
    stage.pod("shop", "web", "node-a", "10.1.0.1").await;
    stage.pod("shop", "db", "node-a", "10.1.0.2").await;
    stage.pod("bank", "vault", "node-b", "10.1.0.3").await;
    stage.policy("shop", "only-web", "web").await;

    // Without an agent it says so, and that is not well.
    let status = ["policy", "status", "-o", "json"];
    let said = stage.until(&status, |it| it["policies"][0]["nodes"] == 1);
    assert_eq!(
        (&said["policies"][0]["policy"], &said["policies"][0]["applied"]),
        (&json!("shop/only-web"), &json!(0))
    );
    assert_eq!(said["nodes"][0]["state"], "noAgent", "{said}");
    assert_eq!(stage.up.fairlead(&status).code, 1);

    let mut a = stage.agent("node-a", 1, Program::default()).await;
    a.until(|program| program.pods.len() == 2 && !program.chains.is_empty()).await;
    let said = stage.until(&status, |it| it["policies"][0]["applied"] == 1);
    assert_eq!(
        (&said["nodes"][0]["state"], &said["nodes"][1]["state"]),
        (&json!("applied"), &json!("noAgent"))
    );
    assert_eq!(said["nodes"][0]["generation"], a.program.generation, "{said}");
    let shown = stage.up.fairlead(&["policy", "status"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    assert!(shown.out.contains("1 of 1 nodes"), "{shown:?}");
    counts_and_bypasses_are_told(&stage, &a).await;
    // A change that an agent could not make is told in its words.
    stage.policy("shop", "from-db", "db").await;
    let delta = soon().bound(a.changes.next()).await.unwrap().unwrap();
    a.client.applied(delta.to, Some("no netfilter here".to_owned()), soon()).await.unwrap();
    let said = stage.until(&status, |it| it["nodes"][0]["state"] == "failing");
    assert!(
        said["nodes"][0]["waitingFor"].as_str().unwrap().contains("no netfilter here"),
        "{said}"
    );

    let listed = stage.up.fairlead(&["policy", "list", "-o", "json"]).json();
    assert_eq!(
        (&listed[0]["policy"], &listed[0]["pods"]),
        (&json!("shop/from-db"), &json!(2)),
        "{listed}"
    );
    let yes = stage.up.fairlead(&["policy", "explain", "shop/web", "shop/db", "http"]);
    assert_eq!(yes.code, 0, "{yes:?}");
    assert!(yes.out.contains("shop/only-web, ingress[0], accepts it"), "{yes:?}");
    let no =
        stage.up.fairlead(&["policy", "explain", "bank/vault", "10.1.0.2", "8080", "-o", "json"]);
    assert_eq!((no.code, &no.json()["ingress"]["tier"]), (1, &json!("NetworkPolicy")), "{no:?}");
    let wrong = stage.up.fairlead(&["policy", "explain", "bank/nobody", "shop/db", "8080"]);
    assert!(wrong.code == 2 && wrong.err.contains("there is no pod bank/nobody"), "{wrong:?}");
    let stranger = stage.up.ask_as("nonsense", "GET", "/policies/objects", &Value::Null);
    assert_eq!(stranger.status, 401);

    // What a policy would have stopped of what was seen.
    let mut reports = a.client.report(soon()).await.unwrap();
    let now = Moment::now();
    let record = Record {
        client: "10.1.0.1".parse().unwrap(),
        server: "10.1.0.2".parse().unwrap(),
        port: 8080,
        protocol: Protocol::TCP,
        application: None,
        totals: Totals { bytes: 10, packets: 2, sessions: 1 },
        first: now,
        last: now,
    };
    let report = Report { incarnation: 1, sequence: 1, records: vec![record], ..Report::default() };
    reports.send(&report).await.unwrap();
    assert!(matches!(reports.next().await.unwrap(), Answer::Counted { .. }));
    stage.until(&["conversations", "-o", "json"], |it| it["conversations"][0]["port"] == 8080);
    let file = stage.data.path().join("new.yaml");
    let policy = |name: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{podSelector: {{matchLabels: {{app: web}}}}, policyTypes: [Egress]}}\n"
        )
    };
    std::fs::write(&file, policy("no-way-out")).unwrap();
    let dry = ["policy", "dry-run", "--policies", file.to_str().unwrap(), "-o", "json"];
    let stopped = stage.up.fairlead(&dry);
    assert_eq!(
        (stopped.code, &stopped.json()["stopped"][0]["egress"]["policy"]),
        (1, &json!("shop/no-way-out")),
        "{stopped:?}"
    );
    std::fs::write(&file, policy("no-way-out").replace("app: web", "app: nobody")).unwrap();
    let stopped = stage.up.fairlead(&dry);
    assert_eq!((stopped.code, &stopped.json()["judged"]), (0, &json!(1)), "{stopped:?}");

    names_are_judged_as_agents_tell_them(&stage, &mut reports).await;

    // A workload is put apart by one command, and let back.
    let mut b = stage.agent("node-b", 1, Program::default()).await;
    b.until(|program| program.pods.len() == 1).await;
    assert!(b.passes("10.1.0.3", "10.9.9.9", 443));
    let apart = stage.up.fairlead(&["guard", "quarantine", "bank/vault"]);
    assert_eq!(apart.code, 0, "{apart:?}");
    b.until(|program| !passes(program, "10.1.0.3", "10.9.9.9", 443)).await;
    assert!(!b.passes("10.9.9.9", "10.1.0.3", 8080));
    let why = stage.up.fairlead(&["policy", "explain", "bank/vault", "shop/web", "8080"]);
    assert!(
        why.code == 1
            && why.out.contains("group quarantine.bank.pod.vault puts the workload apart"),
        "{why:?}"
    );
    let back = stage.up.fairlead(&["guard", "quarantine", "bank/Pod/vault", "--release"]);
    assert_eq!(back.code, 0, "{back:?}");
    b.until(|program| passes(program, "10.1.0.3", "10.9.9.9", 443)).await;
    stage.tasks.shutdown(Duration::from_secs(2)).await;
}

//! What changes a cluster, on a real API server.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use fleet::resources::apply::{self, Applied, ApplyOutcome, Conflict, apply};
use fleet::resources::delete::{self, Deleted, Propagation, delete};
use fleet::resources::nodes::{Allow, Progress, Reason, Skip, cordon, drain, uncordon};
use fleet::resources::restart::restart;
use fleet::resources::scale::{Scaled, scale};
use fleet::resources::{FIELD_MANAGER, Target};
use fleet::{Connection, Error};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use stallproof::Deadline;
use testkit::{KubeServer, requires};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn is_refused(result: Result<impl Sized, Error>, code: u16) -> bool {
    matches!(result, Err(Error::Refused { status, .. }) if status.code == code)
}

const APPLICATION: &str = r#"
apiVersion: test.fairlead.dev/v1
kind: Knot
metadata: { name: bowline, namespace: harbour }
strands: 3
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: { name: web, namespace: harbour }
  spec:
    replicas: 1
    selector: { matchLabels: { app: web } }
    template:
      metadata: { labels: { app: web } }
      spec: { containers: [{ name: main, image: "web:1" }] }
- apiVersion: v1
  kind: ConfigMap
  metadata: { name: settings }
  data: { port: "80" }
---
apiVersion: v1
kind: Secret
metadata: { name: login }
stringData: { password: hunter2 }
---
apiVersion: v1
kind: Namespace
metadata: { name: harbour }
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: knots.test.fairlead.dev }
spec:
  group: test.fairlead.dev
  scope: Namespaced
  names: { kind: Knot, plural: knots }
  versions:
  - name: v1
    served: true
    storage: true
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
"#;

#[tokio::test]
async fn a_kube_server_takes_what_is_applied() {
    requires!(kube);
    let server = KubeServer::start().await;
    let connection = Connection::new("test", server.client().await);
    let into_harbour =
        apply::How { namespace: Some("harbour".to_owned()), ..apply::How::default() };
    let applied = async |input: &str, how: &apply::How| {
        apply(&connection, input, how, |_| Ok(()), soon()).await.unwrap()
    };
    let outcomes = |applied: &[Applied]| -> Vec<ApplyOutcome> {
        applied.iter().map(|it| it.outcome.clone()).collect()
    };

    // What needs the definition and the namespace comes before them in the file.
    let made = applied(APPLICATION, &into_harbour).await;
    assert_eq!(outcomes(&made), vec![ApplyOutcome::Created; 6], "{made:#?}");
    let places: Vec<_> =
        made.iter().map(|it| (it.kind.as_str(), it.namespace.as_deref())).collect();
    let expected = [
        ("Knot", Some("harbour")),
        ("Deployment", Some("harbour")),
        ("ConfigMap", Some("harbour")),
        ("Secret", Some("harbour")),
        ("Namespace", None),
        ("CustomResourceDefinition", None),
    ];
    assert_eq!(places, expected);
    assert!(made[2].diff.contains("+  port: '80'") || made[2].diff.contains("+  port: \"80\""));
    assert!(
        !format!("{made:?}").contains("hunter2") && !format!("{made:?}").contains("aHVudGVyMg")
    );

    let again = applied(APPLICATION, &into_harbour).await;
    // The server keeps what it makes of a `stringData` elsewhere; it is the same for all that.
    assert_eq!(outcomes(&again), vec![ApplyOutcome::Unchanged; 6], "{again:#?}");
    assert!(again.iter().all(|it| it.diff.is_empty()));

    // A dry run says what would change, and changes nothing.
    let maps = Api::<ConfigMap>::namespaced(server.client().await, "harbour");
    let changed = APPLICATION.replace("port: \"80\"", "port: \"8080\"");
    let dry = apply::How { dry_run: true, ..into_harbour.clone() };
    let tried = applied(&changed, &dry).await;
    assert_eq!(tried[2].outcome, ApplyOutcome::Configured);
    assert!(tried[2].diff.contains("8080"), "{}", tried[2].diff);
    assert_eq!(maps.get("settings").await.unwrap().data.unwrap()["port"], "80");
    let done = applied(&changed, &into_harbour).await;
    assert_eq!((&done[2].outcome, &done[2].diff), (&tried[2].outcome, &tried[2].diff));
    let live = maps.get("settings").await.unwrap();
    assert_eq!(live.data.unwrap()["port"], "8080");
    assert_eq!(live.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some(FIELD_MANAGER));

    what_others_manage_is_theirs(&server, &changed, &into_harbour, &applied).await;
    one_that_fails_stops_no_other(&connection).await;
}

async fn what_others_manage_is_theirs(
    server: &KubeServer,
    input: &str,
    how: &apply::How,
    applied: &impl AsyncFn(&str, &apply::How) -> Vec<Applied>,
) {
    let deployments = Api::<Deployment>::namespaced(server.client().await, "harbour");
    let theirs = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web" }, "spec": { "replicas": 5 },
    });
    let params = PatchParams::apply("autoscaler").force();
    deployments.patch("web", &params, &Patch::Apply(theirs)).await.unwrap();
    let refused = applied(input, how).await.remove(1);
    let ApplyOutcome::Failed { conflicts, .. } = &refused.outcome else { panic!("{refused:#?}") };
    let expected =
        Conflict { field: ".spec.replicas".to_owned(), manager: "autoscaler".to_owned() };
    assert_eq!(conflicts, &[expected]);
    assert_eq!(deployments.get("web").await.unwrap().spec.replicas, Some(5));

    let force = apply::How { force: true, ..how.clone() };
    let taken = applied(input, &force).await.remove(1);
    assert_eq!(taken.outcome, ApplyOutcome::Configured);
    assert!(taken.diff.contains("-  replicas: 5\n+  replicas: 1\n"), "{}", taken.diff);
}

async fn one_that_fails_stops_no_other(connection: &Connection) {
    let input = r"
apiVersion: v1
kind: Secret
metadata: { name: broken }
data: { password: '!hunter2!' }
---
apiVersion: no.such/v1
kind: Thing
metadata: { name: it }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: 'a/b' }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: good }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: good, namespace: default }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: forbidden }
";
    let permit = |target: &Target| match target.name() {
        "forbidden" => Err("you may not".to_owned()),
        _ => Ok(()),
    };
    let how = apply::How::default();
    let applied = apply(connection, input, &how, permit, soon()).await.unwrap();
    let why = |place: usize| match &applied[place].outcome {
        ApplyOutcome::Failed { why, .. } => why.as_str(),
        other => panic!("{other:?}"),
    };
    assert!(why(0).contains("illegal base64") && !why(0).contains("hunter2"), "{}", why(0));
    assert!(why(1).contains("has no resource"), "{}", why(1));
    assert!(why(2).contains("cannot be the name of a ConfigMap"), "{}", why(2));
    assert_eq!(applied[3].outcome, ApplyOutcome::Created);
    assert!(why(4).contains("twice"), "{}", why(4));
    assert_eq!(why(5), "you may not");
}

#[tokio::test]
async fn a_kube_server_does_what_it_is_told() {
    requires!(kube);
    // Disruption budgets were beta in the oldest servers.
    let server = KubeServer::start_with(&["--runtime-config=policy/v1beta1=true"]).await;
    // Kube's own retries would keep a budget's "not now" from whoever has to decide about it.
    let mut config = server.access().config().await;
    config.default_retry = false;
    let connection = Connection::new("test", kube::Client::try_from(config).unwrap());
    let namespace = server.namespace().await;

    deleting(&connection, &server, &namespace).await;
    scaling_and_restarting(&connection, &server, &namespace).await;
    draining(&connection, &server, &namespace).await;
}

async fn target(connection: &Connection, word: &str, namespace: &str, name: &str) -> Target {
    let found = connection.find(word, soon()).await.unwrap();
    Target::new(&found, Some(namespace), name).unwrap()
}

async fn deleting(connection: &Connection, server: &KubeServer, namespace: &str) {
    let maps = Api::<ConfigMap>::namespaced(server.client().await, namespace);
    let make = async |name: &str, finalizers: &[&str]| {
        let map = json!({ "metadata": { "name": name, "finalizers": finalizers } });
        maps.create(&PostParams::default(), &parse(map)).await.unwrap().metadata.uid
    };
    let it = target(connection, "cm", namespace, "it").await;
    let delete =
        async |target: &Target, how: delete::How| delete(connection, target, &how, soon()).await;

    assert!(is_refused(delete(&it, delete::How::default()).await, 404));
    make("it", &[]).await;
    let dry = delete::How { dry_run: true, ..Default::default() };
    assert_eq!(delete(&it, dry).await.unwrap(), Deleted::WouldDelete);
    let another = delete::How { uid: Some("another".to_owned()), ..Default::default() };
    assert!(is_refused(delete(&it, another).await, 409));
    assert_eq!(delete(&it, delete::How::default()).await.unwrap(), Deleted::Gone);

    let uid = make("it", &["test.fairlead.dev/held"]).await;
    let this = delete::How { uid, ..Default::default() };
    let held = Deleted::Waiting {
        finalizers: vec!["test.fairlead.dev/held".to_owned()],
        grace_seconds: Some(0),
    };
    assert_eq!(delete(&it, this).await.unwrap(), held);
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("it", &PatchParams::default(), &free).await.unwrap();

    make("owner", &[]).await;
    let owner = target(connection, "configmaps", namespace, "owner").await;
    let how = delete::How { propagation: Some(Propagation::Foreground), ..Default::default() };
    let Deleted::Waiting { finalizers, .. } = delete(&owner, how).await.unwrap() else { panic!() };
    assert_eq!(finalizers, ["foregroundDeletion"]);

    // A pod on a node waits for its kubelet; without a grace it does not.
    pod(server, namespace, "nowhere", "slow", &json!({})).await;
    let slow = target(connection, "po", namespace, "slow").await;
    let stopping = Deleted::Waiting { finalizers: Vec::new(), grace_seconds: Some(30) };
    assert_eq!(delete(&slow, delete::How::default()).await.unwrap(), stopping);
    let now = delete::How { grace_seconds: Some(0), ..Default::default() };
    assert_eq!(delete(&slow, now).await.unwrap(), Deleted::Gone);
}

async fn scaling_and_restarting(connection: &Connection, server: &KubeServer, namespace: &str) {
    let deployments = Api::<Deployment>::namespaced(server.client().await, namespace);
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
            },
        },
    });
    deployments.create(&PostParams::default(), &parse(deployment)).await.unwrap();
    let web = target(connection, "deploy", namespace, "web").await;
    let scaled = scale(connection, &web, 3, soon()).await.unwrap();
    assert_eq!(scaled, Scaled { before: 1, after: 3 });
    assert_eq!(deployments.get("web").await.unwrap().spec.replicas, Some(3));
    let map = target(connection, "cm", namespace, "it").await;
    assert!(matches!(scale(connection, &map, 1, soon()).await, Err(Error::Invalid(_))));
    let nobody = target(connection, "deploy", namespace, "nobody").await;
    assert!(is_refused(scale(connection, &nobody, 1, soon()).await, 404));
    assert!(matches!(scale(connection, &web, u32::MAX, soon()).await, Err(Error::Invalid(_))));

    let restarted = restart(connection, &web, soon()).await.unwrap();
    let annotations =
        deployments.get("web").await.unwrap().spec.template.metadata.unwrap().annotations;
    assert_eq!(
        annotations.unwrap()["kubectl.kubernetes.io/restartedAt"],
        restarted.restarted_at.to_string()
    );
    let pause = Patch::Merge(json!({ "spec": { "paused": true } }));
    deployments.patch("web", &PatchParams::default(), &pause).await.unwrap();
    assert!(matches!(restart(connection, &web, soon()).await, Err(Error::Invalid(_))));
    assert!(matches!(restart(connection, &map, soon()).await, Err(Error::Invalid(_))));
}

async fn pod(server: &KubeServer, namespace: &str, node: &str, name: &str, more: &Value) {
    let pods = Api::<Pod>::namespaced(server.client().await, namespace);
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "none" }] },
    });
    merge(&mut pod, more);
    pods.create(&PostParams::default(), &parse(pod)).await.unwrap();
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

async fn draining(connection: &Connection, server: &KubeServer, namespace: &str) {
    let nodes = Api::<Node>::all(server.client().await);
    nodes
        .create(&PostParams::default(), &parse(json!({ "metadata": { "name": "n1" } })))
        .await
        .unwrap();
    let unschedulable = async || {
        nodes.get("n1").await.unwrap().spec.unwrap_or_default().unschedulable.unwrap_or(false)
    };
    let owned_by = |kind: &str| {
        json!({ "metadata": { "labels": { "app": "web" }, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": kind, "name": "it", "uid": "1", "controller": true,
        }] } })
    };
    let run = async |name: &str, more: &Value| pod(server, namespace, "n1", name, more).await;
    run("web", &owned_by("ReplicaSet")).await;
    run("agent", &owned_by("DaemonSet")).await;
    run("alone", &json!({})).await;
    let volumes = json!({ "spec": { "volumes": [{ "name": "tmp", "emptyDir": {} }] } });
    run("cache", &volumes).await;
    pod(server, namespace, "n2", "elsewhere", &json!({})).await;
    // Budgets are about what runs and is ready.
    let pods = Api::<Pod>::namespaced(server.client().await, namespace);
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    let running = json!({ "status": { "phase": "Running", "conditions": ready } });
    let running = Patch::Merge(running);
    pods.patch_status("web", &PatchParams::default(), &running).await.unwrap();
    let budget = Budget::forbidding(server, namespace, "web").await;
    let name = |pod: &str| (namespace.to_owned(), pod.to_owned());

    // What would be lost is refused, and then nothing is touched.
    let refused: Vec<_> = drain(connection, "n1", Allow::default(), soon()).collect().await;
    let against = |name: &str| {
        refused.iter().find_map(|step| match step {
            Progress::Refused { pod, reasons, .. } if pod == name => Some(reasons.clone()),
            _ => None,
        })
    };
    assert_eq!(against("agent"), Some(vec![Reason::DaemonSet]));
    assert_eq!(against("cache"), Some(vec![Reason::EmptyDir, Reason::Unmanaged]));
    assert_eq!(against("alone"), Some(vec![Reason::Unmanaged]));
    assert_eq!(against("web"), None);
    let finished = |cordoned| Progress::Finished { gone: 0, failed: 0, refused: 3, cordoned };
    assert_eq!(refused.last(), Some(&finished(false)));
    assert!(!unschedulable().await, "{refused:?}");
    cordon(connection, "n1", soon()).await.unwrap();
    let refused: Vec<_> = drain(connection, "n1", Allow::default(), soon()).collect().await;
    assert_eq!(refused.last(), Some(&finished(true)), "somebody has cordoned it before");
    uncordon(connection, "n1", soon()).await.unwrap();

    // A budget holds one pod, and no other, until it gives way.
    let allow =
        Allow { daemon_sets: true, unmanaged: true, empty_dir: true, grace_seconds: Some(0) };
    let mut progress = Box::pin(drain(connection, "n1", allow, soon()));
    let mut told = Vec::new();
    let mut gone_before_the_budget_gave_way = 0;
    while let Some(step) = progress.next().await {
        told.push(step);
        let gone = told.iter().filter(|step| matches!(step, Progress::Gone { .. })).count();
        let blocked = told.iter().any(|step| {
            matches!(step, Progress::Blocked { why, .. } if why.contains("disruption budget web"))
        });
        if blocked && gone == 2 && gone_before_the_budget_gave_way == 0 {
            gone_before_the_budget_gave_way = gone;
            budget.allow().await;
        }
    }
    assert_eq!(gone_before_the_budget_gave_way, 2, "{told:#?}");
    assert_eq!(told.first(), Some(&Progress::Cordoned));
    let (namespace_, agent) = name("agent");
    let skipped = Progress::Skipped { namespace: namespace_, pod: agent, why: Skip::DaemonSet };
    assert!(told.contains(&skipped));
    assert_eq!(
        told.last(),
        Some(&Progress::Finished { gone: 3, failed: 0, refused: 0, cordoned: true })
    );
    assert!(unschedulable().await);
    let mut left: Vec<_> = pods
        .list(&Default::default())
        .await
        .unwrap()
        .into_iter()
        .map(|pod| pod.metadata.name.unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["agent", "elsewhere"]);

    // At the deadline, who is still there is told with what it waits for.
    run("held", &json!({ "metadata": { "finalizers": ["test.fairlead.dev/held"] } })).await;
    run("torn", &owned_by("ReplicaSet")).await;
    pods.patch_status("torn", &PatchParams::default(), &running).await.unwrap();
    Budget::forbidding(server, namespace, "another").await;
    let short = Deadline::after(Duration::from_secs(4));
    let told: Vec<_> = drain(connection, "n1", allow, short).collect().await;
    let why = |name: &str| {
        told.iter().find_map(|step| match step {
            Progress::Failed { pod, why, .. } if pod == name => Some(why.as_str()),
            _ => None,
        })
    };
    assert_eq!(why("held"), Some("it waits for the finalizers test.fairlead.dev/held"));
    assert!(why("torn").unwrap().contains("more than one PodDisruptionBudget"), "{told:#?}");
    assert_eq!(
        told.last(),
        Some(&Progress::Finished { gone: 0, failed: 2, refused: 0, cordoned: true })
    );

    uncordon(connection, "n1", soon()).await.unwrap();
    assert!(!unschedulable().await);
    let nobody: Vec<_> = drain(connection, "nobody", allow, soon()).collect().await;
    assert!(matches!(&nobody[..], [Progress::Stopped { .. }]), "{nobody:?}");
}

/// A disruption budget over `app=web`, whose status is written here for want of a controller.
struct Budget {
    name: &'static str,
    budgets: Api<DynamicObject>,
}

impl Budget {
    async fn forbidding(server: &KubeServer, namespace: &str, name: &'static str) -> Self {
        // policy/v1 since 1.21, and policy/v1beta1 until 1.24: the server says which.
        let client = server.client().await;
        let connection = Connection::new("test", client.clone());
        let found = connection.find("poddisruptionbudgets.policy", soon()).await.unwrap();
        let budgets = Api::namespaced_with(client, namespace, &found.resource);
        let budget = parse(json!({
            "apiVersion": found.resource.api_version, "kind": "PodDisruptionBudget",
            "metadata": { "name": name },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
        }));
        budgets.create(&PostParams::default(), &budget).await.unwrap();
        let budget = Self { name, budgets };
        budget.set(0).await;
        budget
    }

    async fn allow(&self) {
        self.set(1).await;
    }

    async fn set(&self, allowed: u32) {
        let status = json!({ "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1,
            "expectedPods": 2, "observedGeneration": 1,
        } });
        let params = PatchParams::default();
        self.budgets.patch_status(self.name, &params, &Patch::Merge(status)).await.unwrap();
    }
}

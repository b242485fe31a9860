//! Controllers as they run in pods: several of them on one API server, each on an address of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod controllers;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use controllers::{
    Controller, DELAY, PATIENCE, bundle, create, eventually, http, leader, log, prepared,
    replica_pod, texts,
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use objects::kinds::{AddressPool, AdmissionRule, Cluster, ClusterMesh, Group};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::json;
use testkit::{KubeServer, requires};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_any_replica_answers_and_one_that_stops_hands_over_first() {
    requires!(kube);
    let server = prepared().await;
    let client = server.client().await;
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = ("127.77.0.1", "127.77.0.2");
    let port = TcpListener::bind((first, 0)).unwrap().local_addr().unwrap().port();
    let kubeconfig = server.kubeconfig_path();
    let replicas = [first, second].map(|at| Controller::start(&kubeconfig, dir.path(), at, port));
    let leases = Api::<Lease>::namespaced(client.clone(), "fairlead");

    // All are ready once the first leader has made the certificate.
    for replica in &replicas {
        eventually("every replica is ready", async || {
            let (status, why) = replica.readyz();
            (status == 200 && replica.ca().exists()).then_some(why)
        })
        .await;
    }
    let leads = eventually("somebody leads", async || leader(&leases).await).await;
    let [mut old, new] = {
        let [one, two] = replicas;
        if one.address == leads { [one, two] } else { [two, one] }
    };

    // The authority is where clients can read it, and the command line trusts it.
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "fairlead");
    let [published, agents] =
        [bundle(&maps, "fairlead-ca").await, bundle(&maps, "fairlead-agents-ca").await];
    assert_eq!(std::fs::read_to_string(old.ca()).unwrap(), published);
    assert!(agents.contains("BEGIN CERTIFICATE") && agents != published);
    let (code, out, err) = old.fairlead(&["clusters", "list"]);
    assert_eq!(code, 0, "{out}{err}");

    // What is in flight is shown to who is in the pod, without a setting but the port.
    let admin = format!("127.0.0.1:{}", old.admin);
    let (code, out, err) = old.fairlead(&["inflight", "--admin-listen", &admin]);
    assert_eq!(code, 0, "{out}{err}");

    // Every replica answers what only the leader has: by asking it.
    for replica in [&old, &new] {
        for verb in [["agents", "list"], ["conversations", "-o=json"], ["groups", "list"]] {
            eventually("it is answered", async || {
                let (code, out, err) = replica.fairlead(&verb);
                let is_term = err.contains("replica that leads") || err.contains("which leads");
                assert!(code == 0 || is_term, "{verb:?} of {}: {out}{err}", replica.address);
                (code == 0).then_some(())
            })
            .await;
        }
    }

    // A browser that logged in to one is known to any.
    let cookies = logged_in(&old, &old);
    let me = |replica: &Controller, cookies: &str| {
        let url = format!("{}/api/v1/me", replica.api);
        http::send("GET", &url, &[("cookie", cookies)], "", PATIENCE)
    };
    for replica in [&old, &new] {
        let answer = me(replica, &cookies);
        assert_eq!(answer.status, 200, "{}: {}", replica.address, answer.text);
        assert_eq!(answer.json()["user"], "local", "{}", answer.text);
        assert!(a_socket_answers(replica, &cookies), "{}", replica.address);
    }
    // Only by what a replica sealed: who names another address is nobody, and so is who names none.
    let stranger = TcpListener::bind(("127.77.0.9", port)).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let (session, _) = cookies.split_once("; fairlead-replica=").unwrap();
    let renamed = cookies.replace(&old.address, "127.77.0.9");
    for unsealed in [session, &renamed] {
        assert_eq!(me(&new, unsealed).status, 401, "{unsealed}");
    }
    assert!(stranger.accept().is_err(), "a replica connected to an address of a stranger's");
    // The client's address is what a replica says it is, not what the client says.
    let csrf = me(&new, &cookies).json()["csrf"].as_str().unwrap().to_owned();
    let forged = [("cookie", &*cookies), ("fairlead-client", "9999999999999.x.192.0.2.1")];
    assert_eq!(
        http::send("GET", &format!("{}/api/v1/me", new.api), &forged, "", PATIENCE).status,
        200
    );
    let out = [("cookie", &*cookies), ("x-csrf-token", &csrf)];
    let answer = http::send("POST", &format!("{}/api/v1/logout", new.api), &out, "", PATIENCE);
    assert_eq!(answer.status, 204, "{}", answer.text);
    for replica in [&old, &new] {
        assert_eq!(me(replica, &cookies).status, 401, "{}", replica.address);
    }
    // So is who followed a link of another replica's.
    let cookies = logged_in(&old, &new);
    assert_eq!(me(&new, &cookies).status, 200);

    // And a command line: its tokens say which replica knows them, also to be renewed and to be ended.
    let password = "correct horse battery";
    typing(&mut old.command(&["users", "add", "ann"]), password);
    let tokens = eventually("she logs in", async || {
        let body = json!({ "user": "ann", "password": password }).to_string();
        let url = format!("{}/api/v1/auth/cli/login", old.api);
        let kind = [("content-type", "application/json")];
        let answer = http::send("POST", &url, &kind, &body, PATIENCE);
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    let asked = |replica: &Controller, token: &str| {
        let header = format!("Bearer {token}");
        let url = format!("{}/api/v1/me", replica.api);
        http::send("GET", &url, &[("authorization", &*header)], "", PATIENCE)
    };
    let (access, refresh) =
        (tokens["access"].as_str().unwrap(), tokens["refresh"].as_str().unwrap());
    for replica in [&old, &new] {
        let answer = asked(replica, access);
        assert_eq!(answer.json()["user"], "ann", "{}: {}", replica.address, answer.text);
    }
    for unsealed in [access.split_once('~').unwrap().0, &access.replace(&old.address, "127.77.0.9")]
    {
        assert_eq!(asked(&new, unsealed).status, 401);
    }
    assert!(stranger.accept().is_err(), "a replica connected to an address of a stranger's");
    let post = |replica: &Controller, path: &str, refresh: &str| {
        let header = format!("Bearer {refresh}");
        let body = json!({ "refresh": refresh }).to_string();
        let headers = [("authorization", &*header), ("content-type", "application/json")];
        http::send(
            "POST",
            &format!("{}/api/v1/auth/cli/{path}", replica.api),
            &headers,
            &body,
            PATIENCE,
        )
    };
    let next = post(&new, "refresh", refresh);
    assert_eq!(next.status, 200, "{}", next.text);
    let (next_access, next) = (next.json()["access"].clone(), next.json()["refresh"].clone());
    assert_eq!(asked(&new, next_access.as_str().unwrap()).status, 200);
    assert_eq!(post(&new, "logout", next.as_str().unwrap()).status, 204);
    assert_eq!(asked(&old, next_access.as_str().unwrap()).status, 401);

    // It says that it goes, hands over, and answers meanwhile.
    let told = Instant::now();
    old.terminate();
    eventually("it is not ready", async || {
        let (status, why) = old.readyz();
        (status == 503 && why.contains("shutting down")).then_some(())
    })
    .await;
    eventually("another leads", async || leader(&leases).await.filter(|it| *it == new.address))
        .await;
    let handed_over = told.elapsed();
    assert!(handed_over < DELAY, "another leads after {handed_over:?}");
    let (code, out, err) = old.fairlead(&["clusters", "list"]);
    assert!(code == 0 || told.elapsed() >= DELAY, "{out}{err}");
    assert!(!old.has_ended() || told.elapsed() >= DELAY, "it left before its delay was over");
    eventually("it ends", async || old.has_ended().then_some(())).await;
    let (code, out, err) = new.fairlead(&["clusters", "list"]);
    assert_eq!(code, 0, "{out}{err}");
    // Its sessions went with it, and whoever had one is asked to log in.
    assert_eq!(me(&new, &cookies).status, 401);
    eprintln!("handed over after {} ms", handed_over.as_millis());
}

/// Runs a command to whose question this is the answer.
fn typing(command: &mut Command, answer: &str) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{answer}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The cookies of a browser that followed a login link of one replica, at another one.
fn logged_in(replica: &Controller, at: &Controller) -> String {
    let (code, out, err) = replica.fairlead(&["login-link"]);
    assert_eq!(code, 0, "{out}{err}");
    let link = out.trim().replace(&replica.api, &at.api);
    let answer = http::get(&link, None, PATIENCE);
    assert_eq!(answer.status, 303, "{}", answer.text);
    let set = answer.headers.get_all("set-cookie").iter();
    let cookies = set.map(|cookie| cookie.to_str().unwrap().split(';').next().unwrap());
    let cookies = cookies.collect::<Vec<_>>().join("; ");
    assert!(cookies.contains("fairlead-session=") && cookies.contains("; fairlead-replica="));
    cookies
}

/// Whether a page's socket is open, to and fro.
fn a_socket_answers(replica: &Controller, cookies: &str) -> bool {
    let host = replica.api.trim_start_matches("https://");
    let tcp = TcpStream::connect(host).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from(replica.address.clone()).unwrap();
    let config = Arc::new(http::any_certificate());
    let tls = StreamOwned::new(ClientConnection::new(config, name).unwrap(), tcp);
    let mut request = format!("wss://{host}/api/v1/socket").into_client_request().unwrap();
    request.headers_mut().insert("cookie", cookies.parse().unwrap());
    request.headers_mut().insert("origin", format!("https://{host}").parse().unwrap());
    let (mut socket, _) = tungstenite::client(request, tls).unwrap();
    socket.send(Message::Ping("are you there?".into())).unwrap();
    loop {
        match socket.read() {
            Ok(Message::Pong(said)) => return said == "are you there?",
            Ok(_) => {}
            Err(error) => panic!("the socket ended: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_any_replica_answers_for_the_audits_of_all() {
    requires!(kube);
    let server = prepared().await;
    let client = server.client().await;
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = ("127.77.0.1", "127.77.0.2");
    let pods = Api::<Pod>::namespaced(client.clone(), "fairlead");
    replica_pod(&pods, "replica-1", "Running", first).await;
    replica_pod(&pods, "replica-2", "Running", second).await;
    // It was evicted: what it had is gone, and nobody waits for it.
    replica_pod(&pods, "replica-0", "Failed", "127.77.0.9").await;
    let port = TcpListener::bind((first, 0)).unwrap().local_addr().unwrap().port();
    let kubeconfig = server.kubeconfig_path();
    let [one, mut two] =
        [first, second].map(|at| Controller::start(&kubeconfig, dir.path(), at, port));
    for replica in [&one, &two] {
        eventually("every replica is ready", async || {
            (replica.readyz().0 == 200 && replica.ca().exists()).then_some(())
        })
        .await;
    }

    // Each has decided and changed what the other has not.
    for (replica, names) in [(&one, ["ann", "bob"]), (&two, ["eve", "joe"])] {
        for name in names {
            let (code, out, err) = replica.fairlead(&["users", "add", name, "--no-password"]);
            assert_eq!(code, 0, "{out}{err}");
        }
    }
    for (replica, reviews) in
        [(&one, [("both", 2), ("first", 1)]), (&two, [("both", 3), ("second", 1)])]
    {
        for (pod, times) in reviews {
            (0..times).for_each(|_| replica.review(pod, "web/cart:1"));
        }
    }

    // Any of them tells all of it, and the same.
    let whole = async |replica: &Controller| {
        eventually("nobody is missing", async || {
            let (changes, decided) = (replica.ask("/audit"), replica.ask("/admission/audit"));
            let is_all = [&changes, &decided].iter().all(|it| it.get("missing").is_none());
            let counted = decided["lines"].as_array().unwrap().iter();
            let counted: u64 = counted.map(|line| line["count"].as_u64().unwrap()).sum();
            (is_all && counted == 7).then_some((changes, decided))
        })
        .await
    };
    let (changes, decided) = whole(&one).await;
    assert_eq!((changes.clone(), decided.clone()), whole(&two).await);
    let mut changed = texts(&changes["entries"], "resource");
    changed.dedup();
    assert_eq!((changed.len(), changes["entries"].as_array().unwrap().len()), (1, 4), "{changes}");
    assert_eq!(changes["complete"], true);
    let lines = decided["lines"].as_array().unwrap().iter();
    let mut counts: Vec<_> =
        lines.map(|line| (line["owner"].as_str().unwrap(), &line["count"])).collect();
    counts.sort_by_key(|(owner, _)| *owner);
    let expected = [("Pod/both", json!(5)), ("Pod/first", json!(1)), ("Pod/second", json!(1))];
    assert_eq!(counts, expected.each_ref().map(|(owner, count)| (*owner, count)));

    // Page by page it is the same, although the last entry of a page may be another replica's.
    let all = texts(&changes["entries"], "id");
    for replica in [&one, &two] {
        let mut paged: Vec<String> = Vec::new();
        loop {
            let after = paged.last().map(|id| format!("&olderThan={id}")).unwrap_or_default();
            let page = replica.ask(&format!("/audit?limit=1{after}"));
            assert!(page.get("missing").is_none(), "{page}");
            paged.extend(texts(&page["entries"], "id"));
            if page["complete"] == true || paged.len() > all.len() {
                break;
            }
        }
        assert_eq!(paged, all, "{}", replica.address);
    }
    assert_eq!(one.ask("/admission/audit?limit=1")["lines"].as_array().unwrap().len(), 1);

    // Who is gone costs what only it had, and is named.
    two.child.kill().unwrap();
    two.child.wait().unwrap();
    let left = one.ask("/audit");
    assert_eq!(texts(&left["missing"], "replica"), ["replica-2"], "{left}");
    let own: Vec<_> = all.iter().filter(|id| texts(&left["entries"], "id").contains(id)).collect();
    assert_eq!((own.len(), left["entries"].as_array().unwrap().len()), (2, 2), "{left}");
    for (verb, shown) in [(&["audit"][..], "users"), (&["admission", "audit"], "Pod/first")] {
        let (code, out, err) = one.fairlead(verb);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains(shown) && !out.contains("Pod/second"), "{out}");
        assert!(err.contains("note: what the replica replica-2 has is not in this"), "{err}");
    }
}

/// What the chart grants, applied by an administrator.
async fn grant(client: &kube::Client) {
    let rendered = Command::new(env!("CARGO_BIN_EXE_fairlead"))
        .args(["install", "--dry-run", "--components=net,guard,mesh,console,admission"])
        // What users reach in this cluster through the controller is not what it needs itself.
        .args(["--set", "fleet.localCluster=none"])
        .output()
        .unwrap();
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    let text = String::from_utf8(rendered.stdout).unwrap();
    let mut granted = 0;
    for document in text.split("\n---\n").filter(|it| it.contains("kind: ")) {
        let object: DynamicObject = serde_saphyr::from_str(document).unwrap();
        let types = object.types.clone().unwrap();
        if !types.api_version.starts_with("rbac.") && types.kind != "ServiceAccount" {
            continue;
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let name = object.metadata.name.clone().unwrap();
        let params = PatchParams::apply("test").force();
        api.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
        granted += 1;
    }
    assert!(granted > 8, "the chart grants {granted} things:\n{text}");
}

/// A kubeconfig of the controller's service account.
async fn kubeconfig_of_the_account(
    server: &KubeServer,
    client: &kube::Client,
    dir: &Path,
) -> PathBuf {
    let asked: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 3600}}))
            .unwrap();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "fairlead");
    let params = PostParams::default();
    let made = accounts.create_token_request("fairlead-controller", &params, &asked);
    let token = made.await.unwrap().status.unwrap().token.unwrap();
    let mut config =
        serde_json::to_value(Kubeconfig::from_yaml(server.access().kubeconfig()).unwrap()).unwrap();
    config["users"] = json!([{"name": "certificate", "user": {"token": token}}]);
    config["contexts"] =
        json!([{"name": "certificate", "context": {"cluster": "test", "user": "certificate"}}]);
    let path = dir.join("account.kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_kube_what_the_chart_grants_is_all_that_a_controller_needs() {
    requires!(kube);
    let server = prepared().await;
    let client = server.client().await;
    grant(&client).await;
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig_of_the_account(&server, &client, dir.path()).await;
    let pools = Api::<AddressPool>::all(client.clone());
    let pool = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AddressPool",
                      "metadata": {"name": "default"}, "spec": {"subnets": [{"ipv4": "10.64.0.0/16"}]}});
    create(&pools, pool).await;
    let rules = Api::<AdmissionRule>::all(client.clone());
    let rule = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "AdmissionRule",
                      "metadata": {"name": "no-privileged"}, "spec": {"action": "deny",
                      "criteria": [{"name": "runAsPrivileged", "op": "=", "value": "true"}]}});
    create(&rules, rule).await;
    let groups = Api::<Group>::all(client.clone());
    let group = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Group",
                       "metadata": {"name": "office"}, "spec": {"criteria": [
                       {"key": "address", "op": "=", "value": "192.0.2.0/24"}]}});
    create(&groups, group).await;
    let meshes = Api::<ClusterMesh>::namespaced(client.clone(), "fairlead");
    let mesh = json!({"apiVersion": "fairlead.dev/v1alpha1", "kind": "ClusterMesh",
                      "metadata": {"name": "prod"}, "spec": {"clusters": [
                      {"name": "eu", "clusterRef": "eu", "allowedNetworks": ["10.1.0.0/16"]},
                      {"name": "us", "clusterRef": "us", "allowedNetworks": ["10.2.0.0/16"]}]}});
    create(&meshes, mesh).await;

    let address = "127.77.0.3";
    let port = TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
    let controller = Controller::start(&kubeconfig, dir.path(), address, port);
    let patience = || log(dir.path(), address);
    eventually("it is ready", async || {
        let (status, why) = controller.readyz();
        assert!(!why.contains("forbidden"), "{why}");
        (status == 200 && controller.ca().exists()).then_some(())
    })
    .await;
    // What users do through it.
    let imported = dir.path().join("imported.kubeconfig");
    std::fs::write(&imported, server.access().kubeconfig()).unwrap();
    for verb in [
        &["clusters", "add", "prod", "--kubeconfig", imported.to_str().unwrap()][..],
        &["clusters", "disable", "prod"],
        &["clusters", "enable", "prod"],
        &["agents", "token"],
        &["agents", "revoke", "node-1"],
    ] {
        let (code, out, err) = controller.fairlead(verb);
        assert_eq!(code, 0, "{verb:?}: {out}{err}\n{}", patience());
    }
    // It may look for the other replicas.
    let (audit, decided) = (controller.ask("/audit"), controller.ask("/admission/audit"));
    assert!(!audit["entries"].as_array().unwrap().is_empty(), "{audit}");
    assert!(audit.get("missing").is_none() && decided.get("missing").is_none(), "{audit}{decided}");
    let clusters = Api::<Cluster>::all(client.clone());
    let hooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "fairlead");
    eventually("all that the leader writes is written", async || {
        let told = log(dir.path(), address).to_lowercase();
        assert!(!told.contains("forbidden") && !told.contains("cannot "), "{told}");
        pools.get("default").await.unwrap().status?;
        rules.get("no-privileged").await.unwrap().status?;
        clusters.get("prod").await.unwrap().status?;
        groups.get("office").await.unwrap().status?;
        meshes.get("prod").await.unwrap().status?;
        hooks.get_opt("fairlead-admission").await.unwrap()?;
        maps.get_opt("fairlead-ca").await.unwrap()?;
        maps.get_opt("fairlead-agents-ca").await.unwrap().map(|_| ())
    })
    .await;
    let (code, out, err) = controller.fairlead(&["clusters", "remove", "prod"]);
    assert_eq!(code, 0, "{out}{err}");
}

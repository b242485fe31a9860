//! Agents of a real `fairlead up`, from the token to the revocation, by the command line.

#![allow(clippy::unwrap_used, reason = "tests")]

mod running;

use std::time::Duration;

use node::Identity;
use node::client::{Answer, Client, ClientError, Endpoint};
use running::Up;
use serde_json::json;
use stallproof::{Deadline, Tasks};
use traffic::agents::JoinFacts;
use traffic::conversations::Report;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

fn facts(node: &str) -> JoinFacts {
    let (node, version) = (node.to_owned(), "0.1.0".to_owned());
    JoinFacts { node, incarnation: 1, version, ..JoinFacts::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_let_in_with_a_token_and_shut_out_by_name() {
    let data = tempfile::tempdir().unwrap();
    // Beyond loopback, so with TLS.
    let up = Up::start_with(data.path(), "none", |command| {
        command.env("FAIRLEAD_AGENTS_LISTEN", "0.0.0.0:0")
    });
    let (_, port) = up.agents.rsplit_once(':').unwrap();
    let addresses = vec![format!("127.0.0.1:{port}")];
    // The leader is counting.
    up.wait_for("/guard/agents", |list| list["agents"] == json!([]));

    let made = up.fairlead(&["agents", "token", "--node", "node-1", "--ttl", "10m"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("for node node-1") && !made.err.contains("fl1."), "{made:?}");
    let (token, tasks) = (made.out.trim(), Tasks::new("agent"));
    let dir = data.path().join("agent");
    let other = Identity::enrol(&addresses, token, "node-2", &dir, &tasks, soon()).await;
    assert!(other.unwrap_err().to_string().contains("another node"));
    let identity =
        Identity::enrol(&addresses, token, "node-1", &dir, &tasks, soon()).await.unwrap();

    let endpoint = Endpoint { addresses, identity: Some(identity) };
    let (client, _) = Client::join(&endpoint, &facts("node-1"), &tasks, soon()).await.unwrap();
    let mut stream = client.report(soon()).await.unwrap();
    stream.send(&Report { incarnation: 1, sequence: 1, ..Report::default() }).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), Answer::Counted { through: 1, .. }));
    let listed = up.fairlead(&["agents", "-o", "json"]).json();
    let agent = &listed["agents"][0];
    assert_eq!((&agent["node"], &agent["state"]), (&json!("node-1"), &json!("alive")));
    let table = up.fairlead(&["agents", "list"]).out;
    let row: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(table.starts_with("NODE") && row.starts_with(&["node-1", "alive"]), "{table}");

    let revoked = up.fairlead(&["agents", "revoke", "node-1"]);
    assert!(revoked.code == 0 && revoked.out.contains("node-1 revoked"), "{revoked:?}");
    let ended = soon().bound(stream.next()).await.unwrap();
    assert!(matches!(ended, Err(ClientError::Denied(_))), "{ended:?}");
    let again = Client::join(&endpoint, &facts("node-1"), &tasks, soon()).await;
    assert!(matches!(again, Err(ClientError::Denied(_))));
    let bad = up.fairlead(&["agents", "revoke", "No Node"]);
    assert!(bad.code != 0 && bad.err.contains("a node's name"), "{bad:?}");
    tasks.shutdown(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_loopback_an_agent_needs_no_token() {
    let data = tempfile::tempdir().unwrap();
    let up = Up::start(data.path(), "none");
    let refused = up.fairlead(&["agents", "token"]);
    assert!(refused.code != 0 && refused.err.contains("need no token"), "{refused:?}");
    up.wait_for("/guard/agents", |_| true);
    let (endpoint, tasks) =
        (Endpoint { addresses: vec![up.agents.clone()], identity: None }, Tasks::new("agent"));
    Client::join(&endpoint, &facts("node-1"), &tasks, soon()).await.unwrap();
    up.wait_for("/guard/agents", |list| list["agents"][0]["node"] == "node-1");
    tasks.shutdown(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_listed_and_revoked_by_its_id_and_the_audit_says_so() {
    let data = tempfile::tempdir().unwrap();
    let up = Up::start_with(data.path(), "none", |command| {
        command.env("FAIRLEAD_AGENTS_LISTEN", "0.0.0.0:0")
    });
    let (_, port) = up.agents.rsplit_once(':').unwrap();
    let addresses = [format!("127.0.0.1:{port}")];
    up.wait_for("/guard/agents", |list| list["agents"] == json!([]));

    let [lost, kept] = [["--ttl", "10m"], ["--node", "node-1"]].map(|flags| {
        let made = up.fairlead(&[&["agents", "token", "-o", "json"], &flags[..]].concat());
        assert_eq!(made.code, 0, "{made:?}");
        made.json()
    });
    let id = lost["id"].as_str().unwrap();
    let listed = up.fairlead(&["agents", "tokens", "list", "-o", "json"]).json();
    assert_eq!(listed["tokens"][0]["id"], lost["id"]);
    assert_eq!(listed["tokens"][0]["createdBy"], "local", "{listed}");
    assert_eq!(listed["tokens"][1]["node"], "node-1");
    let table = up.fairlead(&["agents", "tokens", "ls"]).out;
    let row: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(table.starts_with("ID") && row.starts_with(&[id, "any", "local"]), "{table}");
    assert!(!table.contains(lost["token"].as_str().unwrap()));

    let revoked = up.fairlead(&["agents", "tokens", "revoke", id]);
    assert!(revoked.code == 0 && revoked.out.contains(id), "{revoked:?}");
    let (tasks, dir) = (Tasks::new("agent"), data.path().join("agent"));
    let enrol = async |made: &serde_json::Value| {
        let token = made["token"].as_str().unwrap();
        Identity::enrol(&addresses, token, "node-1", &dir, &tasks, soon()).await
    };
    let refused = enrol(&lost).await.unwrap_err();
    assert!(refused.to_string().contains("revoked"), "{refused}");
    enrol(&kept).await.unwrap();
    let listed = up.fairlead(&["agents", "tokens", "list", "-o", "json"]).json();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 1);
    let again = up.fairlead(&["agents", "tokens", "revoke", id]);
    assert!(again.code != 0 && again.err.contains("there is no token"), "{again:?}");
    let audit = up.fairlead(&["audit", "-o", "json"]).out;
    assert!(audit.contains("agenttokens.fairlead.dev") && audit.contains(id), "{audit}");
}

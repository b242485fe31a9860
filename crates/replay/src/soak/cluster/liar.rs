//! An agent that lies: somebody has taken over a node, and says with that node's certificate what its agent
//! never saw. That other nodes' pods talked, a million times each; that their addresses are its own.
//!
//! What a node says of others counts for nothing, so that no check but those of that node's own agent may
//! notice.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use node::Identity;
use node::client::{Answer, Client, Endpoint};

use stallproof::{Deadline, Tasks};
use traffic::agents::JoinFacts;
use traffic::conversations::{Moment, Protocol, Record, Report, Totals};

use super::Cannot;
use super::packets::OPEN;
use super::stage::Stage;

const PAUSE: Duration = Duration::from_millis(300);
const WAIT: Duration = Duration::from_secs(5);

/// Lies in the name of a node for a while. `data` is where the node's agent keeps its state.
pub(super) fn lie(stage: &Stage, node: u32, data: &Path, lasts: Duration) -> Result<(), Cannot> {
    let identity =
        Identity::open(&data.join("guard/agent"))?.ok_or("the agent has no certificate")?;
    let controllers = stage.controllers();
    let addresses = controllers.values().map(|it| format!("{}:7681", it.address)).collect();
    let endpoint = Endpoint { addresses, identity: Some(identity) };
    let others: Vec<IpAddr> =
        stage.probing()?.into_iter().filter(|it| it.0 != node).map(|it| it.1).collect();
    let name = stage.cluster.node_name(node);
    let until = Instant::now() + lasts;
    let told = Arc::clone(&stage.lies);
    stage.outside.spawn(async move {
        let tasks = Tasks::new("liar");
        while Instant::now() < until {
            // Whoever begins last is taken for the node's agent; its true one begins anew.
            let incarnation = Moment::now().0 + 1_000_000;
            let facts = JoinFacts {
                node: name.clone(),
                incarnation,
                addresses: others.clone(),
                local_addresses: others.clone(),
                ..JoinFacts::default()
            };
            let connections = tasks.child("connection");
            let joining = Client::join(&endpoint, &facts, &connections, Deadline::after(WAIT));
            if let Ok((client, _)) = Box::pin(joining).await
                && let Ok(mut reporting) = client.report(Deadline::after(WAIT)).await
            {
                for sequence in 1..=10 {
                    let report = lies(&others, incarnation, sequence);
                    if reporting.send(&report).await.is_err() {
                        break;
                    }
                    match Deadline::after(WAIT).bound(reporting.next()).await {
                        Ok(Ok(Answer::Counted { .. })) => told.fetch_add(1, Relaxed),
                        Ok(Ok(Answer::ComeBack { .. })) => continue,
                        _ => break,
                    };
                    tokio::time::sleep(PAUSE).await;
                }
            }
            connections.stop("it joins again");
            tokio::time::sleep(PAUSE).await;
        }
        tasks.shutdown(WAIT).await;
    });
    Ok(())
}

/// Each of these pods talked to each other one.
fn lies(pods: &[IpAddr], incarnation: u64, sequence: u64) -> Report {
    let now = Moment::now();
    let pairs = pods.iter().flat_map(|client| pods.iter().map(move |server| (*client, *server)));
    let records =
        pairs.filter(|(client, server)| client != server).map(|(client, server)| Record {
            client,
            server,
            port: OPEN,
            protocol: Protocol::TCP,
            application: Some("a lie".into()),
            totals: Totals {
                bytes: u64::MAX / 2,
                packets: 1 << 40,
                sessions: 1_000_000 * sequence,
            },
            first: now,
            last: now,
        });
    Report { incarnation, sequence, records: records.collect(), ..Report::default() }
}

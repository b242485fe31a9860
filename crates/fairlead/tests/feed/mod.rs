//! Agents on demand: a browser's test asks for conversations, and real agents report them over gRPC.
//!
//! One JSON document a line: `{"controller": "127.0.0.1:7681", "node": "node-1", "workloads":
//! [["shop", "web", "10.0.0.1"]], "records": [["10.0.0.1", "10.0.0.2", 5432, 4000, 2]]}`, the last three
//! numbers being port, bytes and sessions. The answer is `{"counted": 1}`, or `{"failed": "why"}`. The
//! agents of a connection leave with it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use node::client::{Answer, Client, Endpoint, Reporting};
use serde::Deserialize;
use serde_json::{Value, json};
use stallproof::{Deadline, Tasks};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use traffic::agents::JoinFacts;
use traffic::conversations::{LocalWorkload, Moment, Protocol, Record, Report, Totals};

/// What one report holds: a fraction of what one may.
const BATCH: usize = 2000;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Asked {
    controller: String,
    node: String,
    #[serde(default)]
    workloads: Vec<(String, String, IpAddr)>,
    #[serde(default)]
    records: Vec<(IpAddr, IpAddr, u16, u64, u64)>,
}

struct Agent {
    _client: Client,
    stream: Reporting,
    sequence: u64,
}

/// Serves until the runtime ends; returns where.
pub(crate) async fn serve(tasks: Tasks) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let below = tasks.clone();
    tasks.spawn("feed", async move {
        while let Ok((stream, _)) = listener.accept().await {
            below.spawn("agents", answer(stream, below.clone()));
        }
    });
    address
}

async fn answer(stream: TcpStream, tasks: Tasks) {
    let mut agents = HashMap::new();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let said = match report(&line, &mut agents, &tasks).await {
            Ok(counted) => json!({ "counted": counted }),
            Err(why) => json!({ "failed": why }),
        };
        if write.write_all(format!("{}\n", Value::to_string(&said)).as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn report(
    line: &str,
    agents: &mut HashMap<String, Agent>,
    tasks: &Tasks,
) -> Result<usize, String> {
    let asked: Asked = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let place = format!("{} {}", asked.controller, asked.node);
    if !agents.contains_key(&place) {
        agents.insert(place.clone(), join(&asked, tasks).await?);
    }
    let agent = agents.get_mut(&place).ok_or("just inserted")?;
    let now = Moment::now();
    let mut workloads: Option<Vec<_>> =
        Some(asked.workloads).filter(|all| !all.is_empty()).map(|all| {
            let workload = |(namespace, name, address): (String, String, IpAddr)| LocalWorkload {
                namespace: namespace.into(),
                name: name.into(),
                addresses: vec![address],
                from: Moment(0),
            };
            all.into_iter().map(workload).collect()
        });
    let records: Vec<_> = asked
        .records
        .into_iter()
        .map(|(client, server, port, bytes, sessions)| Record {
            client,
            server,
            port,
            protocol: Protocol::TCP,
            application: None,
            totals: Totals { bytes, packets: sessions * 3, sessions },
            first: Moment(1000),
            last: now,
        })
        .collect();
    let count = records.len();
    let mut batches: Vec<_> = records.chunks(BATCH).map(<[_]>::to_vec).collect();
    if batches.is_empty() {
        batches.push(Vec::new());
    }
    for records in batches {
        agent.sequence += 1;
        let workloads = workloads.take();
        let report = Report {
            incarnation: 1,
            sequence: agent.sequence,
            records,
            workloads,
            ..Report::default()
        };
        loop {
            agent.stream.send(&report).await.map_err(|error| error.to_string())?;
            match agent.stream.next().await.map_err(|error| error.to_string())? {
                Answer::Counted { .. } => break,
                Answer::ComeBack { after } => tokio::time::sleep(after).await,
            }
        }
    }
    Ok(count)
}

async fn join(asked: &Asked, tasks: &Tasks) -> Result<Agent, String> {
    let endpoint = Endpoint { addresses: vec![asked.controller.clone()], identity: None };
    let facts = JoinFacts {
        node: asked.node.clone(),
        incarnation: 1,
        version: "0.1.0".to_owned(),
        ..JoinFacts::default()
    };
    let deadline = Deadline::after(PATIENCE);
    let (client, _) = Client::join(&endpoint, &facts, tasks, deadline)
        .await
        .map_err(|error| error.to_string())?;
    // A stream lives as long as its deadline: a test may go on for minutes.
    let stream = client
        .report(Deadline::after(Duration::from_secs(1200)))
        .await
        .map_err(|error| error.to_string())?;
    Ok(Agent { _client: client, stream, sequence: 0 })
}

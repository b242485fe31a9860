//! Agents of nodes, as far as a controller can tell: they join, and report totals that grow.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use node::client::{Answer, Client, ClientError, Endpoint, Reporting};
use serde_json::Value;
use stallproof::{Deadline, Tasks};
use traffic::agents::JoinFacts;
use traffic::conversations::{Moment, Protocol, Record, Report, Totals};

use super::http::{self, Http};
use super::server::Server;
use crate::incident::Cannot;

/// A page of conversations, which says what all of them come to.
pub(crate) const CONVERSATIONS: &str = "/api/v1/guard/conversations?limit=50";

/// One agent as its node has it.
pub(crate) struct Agent {
    number: usize,
    records: usize,
    facts: JoinFacts,
    reporting: Option<Reporting>,
    sequence: u64,
    /// Of each of its records.
    sessions: u64,
    since: Moment,
    /// Of the controller that it joined last.
    pub(crate) epoch: u64,
}

impl Agent {
    pub(crate) fn new(number: usize, records: usize) -> Self {
        let facts = facts(format!("node-{number}"), 1);
        let (sequence, sessions, since, epoch) = (0, 0, Moment::now(), 0);
        Self { number, records, facts, reporting: None, sequence, sessions, since, epoch }
    }

    /// What a controller must have counted of it when its last report counts.
    pub(crate) fn sessions(&self) -> u64 {
        self.sessions * self.records as u64
    }

    /// Totals that have grown by one session each since the last ones.
    pub(crate) fn next(&mut self) -> Report {
        self.sequence += 1;
        self.sessions += 1;
        let [_, _, high, low] = u32::try_from(self.number).unwrap_or(u32::MAX).to_be_bytes();
        let sessions = self.sessions;
        let totals = Totals { bytes: sessions * 1000, packets: sessions * 10, sessions };
        let now = Moment::now();
        let record = |i: usize| Record {
            client: IpAddr::V4(Ipv4Addr::new(10, high, low, i as u8)),
            server: IpAddr::V4(Ipv4Addr::new(172, 16, (i % 16) as u8, 1)),
            port: 443,
            protocol: Protocol::TCP,
            application: None,
            totals,
            first: self.since,
            last: now,
        };
        Report {
            incarnation: self.facts.incarnation,
            sequence: self.sequence,
            records: (0..self.records).map(record).collect(),
            ..Report::default()
        }
    }

    /// Sends a batch, on the stream that there is or on another one.
    pub(crate) async fn send(
        &mut self,
        batch: &Report,
        endpoint: &Endpoint,
        tasks: &Tasks,
        within: Duration,
    ) -> Result<Answer, ClientError> {
        let deadline = Deadline::after(within);
        let mut reporting = match self.reporting.take() {
            Some(reporting) => reporting,
            None => {
                // On the heap: it is as large as all of connecting.
                let (client, joined) =
                    Box::pin(Client::join(endpoint, &self.facts, tasks, deadline)).await?;
                self.epoch = joined.epoch;
                client.report(deadline).await?
            }
        };
        let exchange = async {
            reporting.send(batch).await?;
            reporting.next().await
        };
        let over = |_| ClientError::Over("no answer in time".to_owned());
        let answer = deadline.bound(exchange).await.map_err(over)??;
        self.reporting = Some(reporting);
        Ok(answer)
    }

    /// Sends a batch until it is counted; false if it was not by then.
    pub(crate) async fn until_counted(
        &mut self,
        batch: &Report,
        endpoint: &Endpoint,
        tasks: &Tasks,
        deadline: Deadline,
    ) -> bool {
        while !deadline.has_passed() {
            let pause = match self.send(batch, endpoint, tasks, deadline.remaining()).await {
                Ok(Answer::Counted { .. }) => return true,
                Ok(Answer::ComeBack { after }) | Err(ClientError::ComeBack { after, .. }) => {
                    after.min(Duration::from_secs(2))
                }
                Err(_) => Duration::from_millis(200),
            };
            tokio::time::sleep(pause).await;
        }
        false
    }
}

pub(crate) fn facts(node: String, incarnation: u64) -> JoinFacts {
    JoinFacts { node, incarnation, version: "replay".to_owned(), ..JoinFacts::default() }
}

/// The sessions of all conversations, those too that are too old to be kept by themselves.
pub(crate) async fn counted_sessions(server: &Server) -> Result<u64, Cannot> {
    let request = http::get(CONVERSATIONS, Some(&server.token));
    let answer = Http::plain(server.api).await?.ask(&request, Duration::from_secs(10)).await?;
    if answer.status != 200 {
        return Err(format!("the conversations cannot be read: {}", answer.status).into());
    }
    let found: Value = serde_json::from_slice(&answer.body)?;
    let rest = found["rest"].as_array().into_iter().flatten();
    let all = rest.chain([&found["totals"]]).filter_map(|totals| totals["sessions"].as_u64());
    Ok(all.sum())
}

//! Agents and the controller's end over real sockets: counted once whatever the link does, let in
//! only with a certificate that holds, and nobody held up by anybody else.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use edge::agents::{Server, start};
use node::client::{Client, ClientError, Endpoint, Joined, Reporting};
use node::{Identity, IdentityError};
use objects::kinds::GroupMode;
use objects::{Election, Id, Objects, Timing};
use pki::agents::{Authority, LIFETIME, lead};
use protocol::Answer;
use stallproof::ledger::LedgerConfig;
use stallproof::{Deadline, Ledger, Map, Op, Snapshot, Tasks};
use tempfile::TempDir;
use testkit::Proxy;
use tokio::sync::Notify;
use tokio::time::sleep;
use traffic::agents::{AgentState, Agents, JoinFacts, Limits};
use traffic::conversations::{Moment, Protocol, Record, Report, Totals};
use traffic::ingest::{
    ActiveIngest, AgentGroup, AgentPolicy, Counted, Ingest, NotCounted, ReportSink, Settings,
};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn ledger() -> Ledger {
    Ledger::new(LedgerConfig { late_after: Duration::from_secs(10) })
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn facts(node: &str) -> JoinFacts {
    JoinFacts { node: node.to_owned(), incarnation: 1, ..JoinFacts::default() }
}

/// No pace, unless a test is about it.
fn limits() -> Limits {
    Limits { pace: Duration::ZERO, ..Limits::default() }
}

fn plain(at: SocketAddr) -> Endpoint {
    Endpoint { addresses: vec![at.to_string()], identity: None }
}

fn record(n: u32, totals: Totals) -> Record {
    let [_, b, c, d] = n.to_be_bytes();
    Record {
        client: IpAddr::from([203, b, c, d]),
        server: IpAddr::from([198, 51, 100, 7]),
        port: 443,
        protocol: Protocol::TCP,
        application: n.is_multiple_of(2).then(|| "http".into()),
        totals,
        first: Moment(1_800_000_000_000),
        last: Moment(1_800_000_001_000),
    }
}

fn batch(sequence: u64, records: Vec<Record>) -> Report {
    Report { incarnation: 1, sequence, records, ..Report::default() }
}

/// Counts nothing, or nobody before it is let go.
#[derive(Clone, Debug)]
struct Fake(Arc<Held>);

#[derive(Debug)]
struct Held {
    stuck: AtomicBool,
    released: Notify,
    offered: AtomicU64,
    forgotten: Snapshot<Vec<String>>,
    policy: Snapshot<AgentPolicy>,
}

fn fake(stuck: bool) -> Fake {
    let policy = AgentPolicy {
        version: 3,
        rules: Map::new(),
        groups: Map::new(),
        mode: GroupMode::Discover,
    };
    Fake(Arc::new(Held {
        stuck: stuck.into(),
        released: Notify::new(),
        offered: AtomicU64::new(0),
        forgotten: Snapshot::default(),
        policy: Snapshot::new(policy),
    }))
}

impl ReportSink for Fake {
    async fn offer(
        &self,
        report: &Report,
        _alive: impl Fn(&str) -> bool + Send,
        deadline: Deadline,
        _op: &Op,
    ) -> Result<Counted, NotCounted> {
        self.0.offered.fetch_add(1, SeqCst);
        let released = self.0.released.notified();
        if self.0.stuck.load(SeqCst) && deadline.bound(released).await.is_err() {
            return Err(NotCounted::Busy { retry: Duration::from_secs(1) });
        }
        Ok(Counted { through: report.sequence, durable: 0 })
    }

    fn epoch(&self) -> u64 {
        42
    }

    fn forget_agent(&self, node: &str) {
        self.0.forgotten.update(|forgotten| {
            forgotten.push(node.to_owned());
            true
        });
    }

    fn set_node_addresses(&self, _node: &str, _addresses: &[IpAddr], _local: &[IpAddr]) {}

    fn agent_policy(&self) -> &Snapshot<AgentPolicy> {
        &self.0.policy
    }
}

fn serve_plain<C: ReportSink>(
    counts: Option<C>,
    limits: Limits,
    tasks: &Tasks,
) -> (Agents, SocketAddr) {
    let agents = Agents::new(limits);
    let (listener, at) = listen();
    let counts = Snapshot::new(counts);
    start(Server::new(agents.clone(), counts, None, ledger(), tasks), listener).unwrap();
    (agents, at)
}

/// A node's agent as its contract is: running totals, sent until they are durable.
struct Node {
    name: String,
    totals: BTreeMap<u32, (Totals, u64)>,
    sequence: u64,
    durable: u64,
    epoch: Option<u64>,
    old: Vec<Report>,
    random: fastrand::Rng,
}

impl Node {
    fn new(number: u32, seed: u64) -> Self {
        Self {
            name: format!("node-{number}"),
            // Keys that no other node has.
            totals: (0..20).map(|i| (number * 100 + i, (Totals::ZERO, 0))).collect(),
            sequence: 0,
            durable: 0,
            epoch: None,
            old: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// A batch of what is not durable yet, or of everything.
    fn next(&mut self, grow: bool, all: bool) -> Report {
        self.sequence += 1;
        for (totals, changed) in self.totals.values_mut() {
            if grow && self.random.bool() {
                let bytes = self.random.u64(1..1000);
                *totals += Totals { bytes, packets: bytes / 100 + 1, sessions: 1 };
                *changed = self.sequence;
            }
        }
        let wanted = |changed: u64| changed > 0 && (all || changed > self.durable);
        let records = self.totals.iter().filter(|(_, (_, changed))| wanted(*changed));
        batch(self.sequence, records.map(|(key, (totals, _))| record(*key, *totals)).collect())
    }

    /// One connection, until it breaks or there were enough rounds.
    async fn talk(
        &mut self,
        at: SocketAddr,
        tasks: &Tasks,
        rounds: usize,
    ) -> Result<(), ClientError> {
        let (client, joined) = Client::join(&plain(at), &facts(&self.name), tasks, soon()).await?;
        let Joined { epoch, .. } = joined;
        let mut all = self.epoch.replace(epoch) != Some(epoch);
        if all {
            self.durable = 0;
        }
        let mut stream = client.report(soon()).await?;
        for _ in 0..rounds {
            let batch = self.next(true, all);
            self.old.push(batch.clone());
            stream.send(&batch).await?;
            match self.random.u8(0..10) {
                // The answer is lost.
                0 => return Ok(()),
                // It comes twice.
                1 => stream.send(&batch).await?,
                // An older one comes again.
                2 => {
                    let again = self.random.usize(0..self.old.len());
                    stream.send(&self.old[again]).await?;
                }
                // A later stream takes the place of this one, with a batch on its way.
                3 => stream = client.report(soon()).await?,
                _ => all = !self.heard(&mut stream, batch.sequence).await? && all,
            }
        }
        Ok(())
    }

    /// Waits for the answer to batch `sequence`; says whether it was counted.
    async fn heard(&mut self, stream: &mut Reporting, sequence: u64) -> Result<bool, ClientError> {
        loop {
            match soon().bound(stream.next()).await.unwrap()? {
                Answer::Counted { through, durable, .. } => {
                    self.durable = self.durable.max(durable);
                    if through >= sequence {
                        return Ok(true);
                    }
                }
                Answer::ComeBack { .. } => return Ok(false),
            }
        }
    }

    fn truth(&self) -> Totals {
        let mut sum = Totals::ZERO;
        self.totals.values().for_each(|(totals, _)| sum += *totals);
        sum
    }
}

/// A term of counting, in this directory.
fn term(seat: &ActiveIngest, dir: &Path, tasks: &Tasks) -> Tasks {
    let term = tasks.child("term");
    let settings = Settings::new(dir.to_owned());
    tasks.spawn("term", seat.clone().hold(settings, ledger(), term.clone(), |_| {}));
    term
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waited = async {
        while !done() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let patience = Deadline::after(Duration::from_secs(60));
    assert!(patience.bound(waited).await.is_ok(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_counted_once_over_a_link_that_breaks_and_repeats() {
    let (tasks, dir) = (Tasks::new("test"), TempDir::new().unwrap());
    let seat = ActiveIngest::default();
    let mut leading = term(&seat, dir.path(), &tasks);
    let (listener, at) = listen();
    let agents = Agents::new(limits());
    let counts = seat.current().clone();
    start(Server::<Ingest>::new(agents.clone(), counts, None, ledger(), &tasks), listener).unwrap();
    let proxy = Proxy::start(at);
    until("somebody counts", || seat.ingest().is_some()).await;

    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let through = proxy.address();
    let talking: Vec<_> = (0..4)
        .map(|number| {
            let (mut node, tasks) = (Node::new(number, seed + u64::from(number)), tasks.clone());
            tasks.clone().spawn("node", async move {
                for _ in 0..12 {
                    let rounds = node.random.usize(1..20);
                    // Whatever it ended with, it begins again.
                    let _ = node.talk(through, &tasks, rounds).await;
                }
                node
            })
        })
        .collect();
    // Meanwhile the link is cut, and the replica that counts is another one for a while.
    for round in 0..8 {
        sleep(Duration::from_millis(150)).await;
        proxy.cut();
        if round == 4 {
            leading.stop("another leads");
            until("the term ends", || seat.ingest().is_none()).await;
            leading = term(&seat, dir.path(), &tasks);
        }
    }
    until("somebody counts again", || seat.ingest().is_some()).await;
    let mut truth = Totals::ZERO;
    for node in talking {
        let mut node = node.await.unwrap();
        truth += node.truth();
        // In the end everything is told, and told again.
        let (client, _) =
            Client::join(&plain(at), &facts(&node.name), &tasks, soon()).await.unwrap();
        let mut stream = client.report(soon()).await.unwrap();
        for _ in 0..2 {
            let batch = node.next(false, true);
            stream.send(&batch).await.unwrap();
            assert!(node.heard(&mut stream, batch.sequence).await.unwrap());
        }
    }
    let ingest = seat.ingest().unwrap();
    until("all of it is seen", || ingest.view().totals() == truth).await;
    // And nothing comes on top of it.
    sleep(Duration::from_millis(700)).await;
    assert_eq!(ingest.view().totals(), truth);
    assert_eq!(agents.count(), 4);
    leading.stop("done");
    tasks.shutdown(Duration::from_secs(5)).await;
}

/// A controller with an authority, and where it is.
struct Controller {
    authority: Authority,
    agents: Agents,
    at: SocketAddr,
    tasks: Tasks,
    data: TempDir,
}

impl Controller {
    async fn start() -> Self {
        let (tasks, data) = (Tasks::new("test"), TempDir::new().unwrap());
        let objects = Objects::embedded(&data.path().join("objects"), &tasks).unwrap();
        let authority = Authority::follow(&objects, "fairlead", LIFETIME, &tasks);
        let lease = Id::namespaced("fairlead", "lease");
        let election = Election::new(objects, lease, "test", Timing::default());
        let (all, led) = (tasks.clone(), authority.clone());
        tasks.spawn("election", async move {
            election.run(&all, |leader| lead(&leader, &led)).await;
        });
        let agents = Agents::new(limits());
        let (listener, at) = listen();
        let (counts, authorities) = (Snapshot::new(Some(fake(false))), Some(authority.clone()));
        let server = Server::new(agents.clone(), counts, authorities, ledger(), &tasks);
        start(server, listener).unwrap();
        until("there is an authority", || authority.serving().is_some()).await;
        // The listener hears of it a moment later.
        sleep(Duration::from_millis(50)).await;
        Self { authority, agents, at, tasks, data }
    }

    async fn token(&self, node: Option<&str>) -> String {
        let ten_minutes = Duration::from_secs(600);
        let made = self.authority.make_token(node, ten_minutes, "test", soon()).await;
        made.unwrap().token.expose().to_owned()
    }

    async fn enrol(&self, token: &str, node: &str) -> Result<Identity, IdentityError> {
        let dir = self.data.path().join(node);
        let addresses = [self.at.to_string()];
        Identity::enrol(&addresses, token, node, &dir, &self.tasks, soon()).await
    }

    async fn join(&self, identity: &Identity, node: &str) -> Result<Client, ClientError> {
        let addresses = vec![self.at.to_string()];
        let endpoint = Endpoint { addresses, identity: Some(identity.clone()) };
        let joined = Client::join(&endpoint, &facts(node), &self.tasks, soon()).await;
        joined.map(|(client, _)| client)
    }
}

fn is_denied<T: std::fmt::Debug>(result: &Result<T, ClientError>) -> bool {
    matches!(result, Err(ClientError::Denied(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_enrols_reports_renews_and_is_revoked() {
    let controller = Controller::start().await;
    let token = controller.token(Some("node-1")).await;
    let identity = controller.enrol(&token, "node-1").await.unwrap();
    let file = controller.data.path().join("node-1/identity.json");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!format!("{identity:?}").contains("KEY"));
    let opened = Identity::open(file.parent().unwrap()).unwrap().unwrap();
    assert_eq!((opened.node(), opened.until()), ("node-1", identity.until()));

    let client = controller.join(&opened, "node-1").await.unwrap();
    let mut stream = client.report(soon()).await.unwrap();
    let one = batch(1, vec![record(1, Totals { bytes: 5, packets: 1, sessions: 1 })]);
    stream.send(&one).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), Answer::Counted { through: 1, .. }));
    assert_eq!(controller.agents.list()[0].records, 1);
    // It speaks for no other node.
    assert!(is_denied(&controller.join(&opened, "node-2").await));
    assert!(controller.enrol(&token, "node-2").await.is_err());

    let renewed = client.renew(&opened, soon()).await.unwrap();
    assert!(renewed.until() >= opened.until());
    assert_eq!(Identity::open(file.parent().unwrap()).unwrap().unwrap().until(), renewed.until());
    let client = controller.join(&renewed, "node-1").await.unwrap();
    let mut stream = client.report(soon()).await.unwrap();
    stream.send(&one).await.unwrap();
    stream.next().await.unwrap();

    let other = controller.enrol(&controller.token(None).await, "node-2").await.unwrap();
    let other = controller.join(&other, "node-2").await.unwrap();
    let mut others = other.report(soon()).await.unwrap();
    controller.authority.revoke("node-1", soon()).await.unwrap();
    // At once, also what is open and idle.
    let ended = soon().bound(stream.next()).await.unwrap();
    assert!(is_denied(&ended), "{ended:?}");
    for identity in [&opened, &renewed] {
        assert!(is_denied(&controller.join(identity, "node-1").await));
    }
    assert!(is_denied(&client.renew(&renewed, soon()).await));
    assert!(is_denied(&client.report(soon()).await));
    let refused = controller.enrol(&token, "node-1").await;
    assert!(matches!(refused, Err(IdentityError::Controller(ClientError::Denied(_)))));
    others.send(&one).await.unwrap();
    assert!(matches!(others.next().await.unwrap(), Answer::Counted { .. }));

    let identity =
        controller.enrol(&controller.token(Some("node-1")).await, "node-1").await.unwrap();
    controller.join(&identity, "node-1").await.unwrap();
    controller.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_has_a_few_connections_and_leaves_the_others_to_other_nodes() {
    let controller = Controller::start().await;
    let token = controller.token(None).await;
    let taken_over = controller.enrol(&token, "node-1").await.unwrap();
    let other = controller.enrol(&token, "node-2").await.unwrap();
    let mut held = Vec::new();
    while held.len() < 100 {
        match controller.join(&taken_over, "node-1").await {
            Ok(client) => held.push(client),
            Err(_) => break,
        }
    }
    assert_eq!(held.len(), 4);
    controller.join(&other, "node-2").await.unwrap();
    held.clear();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while let Err(error) = controller.join(&taken_over, "node-1").await {
        assert!(tokio::time::Instant::now() < until, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
    controller.tasks.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_in_between_sees_a_token_and_no_strange_certificate_is_taken() {
    let (controller, impostor) = (Controller::start().await, Controller::start().await);
    // The token pins the authority of another: the handshake fails before anything is said.
    let refused = impostor.enrol(&controller.token(None).await, "node-1").await;
    let unknown = |error: &ClientError| error.to_string().contains("no controller that we know");
    assert!(matches!(refused, Err(IdentityError::Controller(error)) if unknown(&error)));
    assert!(matches!(controller.enrol("fl1.nonsense", "a").await, Err(IdentityError::NoToken)));
    // Nor is a certificate of another authority taken, nor is one of ours shown to another.
    let identity = impostor.enrol(&impostor.token(None).await, "node-1").await.unwrap();
    let refused = controller.join(&identity, "node-1").await;
    assert!(is_denied(&refused) && refused.is_err_and(|error| unknown(&error)));
    // Without TLS there is nothing to speak to.
    let bare =
        Client::join(&plain(controller.at), &facts("node-1"), &controller.tasks, soon()).await;
    assert!(bare.is_err());
    assert_eq!(controller.agents.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_waits_for_no_report_and_who_hangs_holds_up_nobody() {
    let tasks = Tasks::new("test");
    let stuck = fake(true);
    // Room for one batch in all.
    let limits = Limits { bytes: 4 << 10, ..limits() };
    let (agents, at) = serve_plain(Some(stuck.clone()), limits, &tasks);
    let mut streams = Vec::new();
    for n in 0..20 {
        let (client, _) =
            Client::join(&plain(at), &facts(&format!("node-{n}")), &tasks, soon()).await.unwrap();
        let stream = client.report(soon()).await.unwrap();
        stream
            .send(&batch(1, vec![record(n, Totals { bytes: 1, packets: 1, sessions: 1 })]))
            .await
            .unwrap();
        streams.push(stream);
    }
    until("one is being counted", || stuck.0.offered.load(SeqCst) >= 1).await;
    // Still taken in, one after the other, and all are seen.
    let (_, joined) = Client::join(&plain(at), &facts("late"), &tasks, soon()).await.unwrap();
    assert_eq!(joined.epoch, 42);
    assert_eq!((agents.count(), agents.alive("late")), (21, true));
    stuck.0.stuck.store(false, SeqCst);
    stuck.0.released.notify_waiters();
    for mut stream in streams {
        let answer = soon().bound(stream.next()).await.unwrap().unwrap();
        assert!(matches!(answer, Answer::Counted { through: 1, .. }), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_too_often_is_told_to_come_back_and_others_are_not() {
    let tasks = Tasks::new("test");
    let limits = Limits { pace: Duration::from_secs(3600), burst: 3, ..Limits::default() };
    let (agents, at) = serve_plain(Some(fake(false)), limits, &tasks);
    let (noisy, _) = Client::join(&plain(at), &facts("noisy"), &tasks, soon()).await.unwrap();
    let mut stream = noisy.report(soon()).await.unwrap();
    let mut answers = Vec::new();
    for sequence in 1..=5 {
        stream.send(&batch(sequence, vec![])).await.unwrap();
        answers.push(stream.next().await.unwrap());
    }
    let counted = |answer: &&Answer| matches!(answer, Answer::Counted { .. });
    assert_eq!(answers.iter().filter(counted).count(), 3);
    let Answer::ComeBack { after } = answers[4] else { panic!("{answers:?}") };
    assert!(after >= Duration::from_secs(3000), "{after:?}");
    let (quiet, _) = Client::join(&plain(at), &facts("quiet"), &tasks, soon()).await.unwrap();
    let mut stream = quiet.report(soon()).await.unwrap();
    stream.send(&batch(1, vec![])).await.unwrap();
    assert!(matches!(stream.next().await.unwrap(), Answer::Counted { .. }));
    let list = agents.list();
    assert_eq!((list[0].refused, list[1].refused), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_ends_a_stream_and_nothing_else() {
    let tasks = Tasks::new("test");
    let (agents, at) = serve_plain(Some(fake(false)), limits(), &tasks);
    let (client, _) = Client::join(&plain(at), &facts("node-1"), &tasks, soon()).await.unwrap();
    let many = (0..8193).map(|n| record(n, Totals::ZERO)).collect();
    let other = Report { incarnation: 2, ..batch(1, vec![]) };
    for nonsense in [batch(0, vec![]), batch(1, many), other] {
        let mut stream = client.report(soon()).await.unwrap();
        stream.send(&nonsense).await.unwrap();
        let ended = stream.next().await;
        assert!(matches!(ended, Err(ClientError::Refused(_))), "{ended:?}");
    }
    let mut stream = client.report(soon()).await.unwrap();
    stream.send(&batch(1, vec![])).await.unwrap();
    assert!(stream.next().await.is_ok());
    assert_eq!(agents.list()[0].state, AgentState::Alive);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_finds_the_replica_that_counts_and_leaves_it() {
    let tasks = Tasks::new("test");
    let (_, follower) = serve_plain(None::<Fake>, limits(), &tasks);
    let counts = fake(false);
    let (agents, leader) = serve_plain(Some(counts.clone()), limits(), &tasks);
    // Nobody listens on the first one.
    let gone = { listen().1 };
    let addresses = [gone, follower, leader].map(|at| at.to_string()).to_vec();
    let endpoint = Endpoint { addresses: addresses.clone(), identity: None };
    let (client, joined) = Client::join(&endpoint, &facts("node-1"), &tasks, soon()).await.unwrap();
    assert_eq!((client.address, joined.rules_version), (leader, 3));
    let endpoint = Endpoint { addresses: addresses[..2].to_vec(), identity: None };
    let refused = Client::join(&endpoint, &facts("node-1"), &tasks, soon()).await;
    let Err(ClientError::Unreachable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("ask the leader"), "{why}");

    client.clone().leave(soon()).await.unwrap();
    assert_eq!(*counts.0.forgotten.load(), ["node-1"]);
    assert_eq!(agents.list()[0].state, AgentState::Left);
    assert!(client.report(soon()).await.is_err());
    let again = Client::join(&plain(leader), &facts("node-1"), &tasks, soon()).await;
    assert!(matches!(again, Err(ClientError::Outdated { known: 1, .. })), "{again:?}");
    let next = JoinFacts { incarnation: 2, ..facts("node-1") };
    Client::join(&plain(leader), &next, &tasks, soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_told_whole_and_then_by_what_changes() {
    let tasks = Tasks::new("test");
    let counts = fake(false);
    let policy = counts.0.policy.clone();
    let group = |name: &str, version: u64| {
        let (name, group) = (Arc::from(name), AgentGroup::default());
        policy.update(|policy| {
            policy.groups.insert(name, Arc::new(group));
            policy.version = version;
            true
        });
    };
    group("a", 4);
    let (_, at) = serve_plain(Some(counts), limits(), &tasks);
    let (client, _) = Client::join(&plain(at), &facts("node-1"), &tasks, soon()).await.unwrap();
    let mut rules = client.rules(0, soon()).await.unwrap();
    let first = rules.next().await.unwrap();
    assert_eq!((first.whole, first.version, first.groups.len()), (true, 4, 1));
    group("b", 5);
    let second = rules.next().await.unwrap();
    assert_eq!((second.whole, second.version, second.groups.len()), (false, 5, 1));
    // Who has it is told only what comes after.
    let mut rules = client.rules(5, soon()).await.unwrap();
    group("c", 6);
    let third = rules.next().await.unwrap();
    assert_eq!((third.whole, third.version, &*third.groups[0].0), (false, 6, "c"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_another_replica_counts_or_this_one_stops() {
    let tasks = Tasks::new("test");
    let counts = Snapshot::new(Some(fake(false)));
    let (listener, at) = listen();
    let all = tasks.child("server");
    let server = Server::new(Agents::new(limits()), counts.clone(), None, ledger(), &all);
    start(server, listener).unwrap();
    let (client, _) = Client::join(&plain(at), &facts("node-1"), &tasks, soon()).await.unwrap();
    let mut stream = client.report(soon()).await.unwrap();
    let mut rules = client.rules(3, soon()).await.unwrap();
    counts.update(|counts| counts.take().is_some());
    assert!(soon().bound(stream.next()).await.unwrap().is_err());
    assert!(soon().bound(rules.next()).await.unwrap().is_err());
    assert!(client.report(soon()).await.is_err());
    counts.update(|counts| counts.replace(fake(false)).is_none());
    let mut stream = client.report(soon()).await.unwrap();
    let left = all.shutdown(Duration::from_secs(10)).await;
    assert!(left.is_empty(), "{left:?}");
    assert!(soon().bound(stream.next()).await.unwrap().is_err());
}
